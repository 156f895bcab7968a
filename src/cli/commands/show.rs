//! `turnwise corpus show`: prints dialogues.

use crate::cli::prelude::*;
use turnwise_core::ids::TurnNo;
use turnwise_corpus::{Dialogue, Role};

pub(super) fn run(ids: &[String], context: &Context<'_>) -> Result<()> {
    let mut found = Vec::new();
    match context.settings.engine {
        Some(_) => {
            let searcher = context.searcher()?;
            let view = searcher.engine().view();
            for id in ids {
                found.push(view.find(id)?);
            }
        }
        None => {
            let snapshot = context.snapshot()?;
            for id in ids {
                found.push(snapshot.find(id)?);
            }
        }
    }
    let dialogues: Vec<&Dialogue> = found.iter().map(|(dialogue, _)| dialogue).collect();
    context.printer.results(&dialogues, |out| {
        found.iter().enumerate().try_for_each(|(n, (dialogue, turn))| {
            if n > 0 {
                writeln!(out)?;
            }
            write(out, dialogue, *turn)
        })
    })
}

fn write(out: &mut dyn Write, d: &Dialogue, marked: Option<TurnNo>) -> io::Result<()> {
    writeln!(out, "{BOLD}{NAME}{}{NAME:#}{BOLD:#}  {}", d.id, d.title.as_deref().unwrap_or_default())?;
    let mut facts: Vec<String> = Vec::new();
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            facts.push(format!("{DIM}{name}{DIM:#} {value}"));
        }
    };
    fact("domain", d.domains.join(", "));
    fact("intent", d.intents.join(", "));
    fact("source", d.source.clone());
    fact("language", d.language.clone().unwrap_or_default());
    fact("time", d.time.map_or(String::new(), |t| t.to_string()));
    for (key, value) in &d.metadata {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        fact(key, text.chars().take(60).collect());
    }
    if !facts.is_empty() {
        writeln!(out, "{}", facts.join("  "))?;
    }
    for turn in &d.turns {
        let mark = if marked == Some(turn.number) { ">" } else { " " };
        let role = turn.role.as_ref().map_or("", Role::as_str);
        let who = match (turn.speaker.as_str(), role) {
            ("", role) => role.to_owned(),
            (name, "") => name.to_owned(),
            (name, role) => format!("{name} ({role})"),
        };
        let intent = turn.intent.as_ref().map_or(String::new(), |i| format!("  {DIM}[{i}]{DIM:#}"));
        writeln!(
            out,
            "{BOLD}{mark}{BOLD:#} {DIM}{:>3}{DIM:#} {BOLD}{who}{BOLD:#}: {}{intent}",
            turn.number, turn.text
        )?;
    }
    Ok(())
}
