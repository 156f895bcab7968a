//! `turnwise corpus show`: prints dialogues.

use crate::cli::{args::ShowArgs, commands::search::speaker, prelude::*};
use turnwise_core::ids::TurnNo;
use turnwise_corpus::{Dialogue, Turn};

pub(super) fn run(args: &ShowArgs, context: &Context<'_>) -> Result<()> {
    match &args.thread {
        Some(thread) => of_thread(thread, context),
        None => by_ids(&args.ids, context),
    }
}

/// Prints the dialogues of a thread.
fn of_thread(thread: &str, context: &Context<'_>) -> Result<()> {
    let searcher = context.searcher()?;
    let dialogues = searcher.thread(thread, None)?;
    if dialogues.is_empty() {
        return Err(searcher.unknown_thread(thread, None)?);
    }
    context.printer.results(&dialogues, |out| {
        let turns = dialogues.iter().map(|dialogue| dialogue.turns.len() as u64).sum();
        let counts = [counted(dialogues.len() as u64, "dialogue"), counted(turns, "turn")];
        writeln!(out, "{BOLD}{thread}{BOLD:#}  {DIM}{}{DIM:#}", counts.join(", "))?;
        dialogues.iter().try_for_each(|dialogue| {
            writeln!(out)?;
            let title = dialogue.title.clone();
            let turns = counted(dialogue.turns.len() as u64, "turn");
            let time = dialogue.started().map_or_else(|| "no time".to_owned(), |time| time.to_string());
            let about: Vec<String> = [Some(time), title, Some(turns)].into_iter().flatten().collect();
            writeln!(out, "{BOLD}{NAME}{}{NAME:#}{BOLD:#}  {DIM}{}{DIM:#}", dialogue.id, about.join(" · "))?;
            write_turns(out, dialogue, None)
        })
    })
}

fn by_ids(ids: &[String], context: &Context<'_>) -> Result<()> {
    let found: Vec<(Dialogue, Option<TurnNo>)> = match context.settings.engine {
        Some(_) => {
            let searcher = context.searcher()?;
            let view = searcher.engine().view();
            ids.iter().map(|id| view.find(id)).collect::<Result<_>>()?
        }
        None => {
            let snapshot = context.snapshot()?;
            ids.iter().map(|id| snapshot.find(id)).collect::<Result<_>>()?
        }
    };
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
    write_turns(out, d, marked)
}

fn write_turns(out: &mut dyn Write, d: &Dialogue, marked: Option<TurnNo>) -> io::Result<()> {
    for turn in &d.turns {
        let mark = if marked == Some(turn.number) { ">" } else { " " };
        let Turn { number, text, .. } = turn;
        let speaker = speaker(turn);
        let intent = turn.intent.as_ref().map_or(String::new(), |i| format!("  {DIM}[{i}]{DIM:#}"));
        write!(out, "{BOLD}{mark}{BOLD:#} {DIM}{number:>3}{DIM:#} {BOLD}{speaker}{BOLD:#}: ")?;
        writeln!(out, "{text}{intent}")?;
    }
    Ok(())
}
