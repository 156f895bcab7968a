//! `turnwise search`: utterances by their words.

use std::{
    io::{self, Write},
    ops::Range,
    path::Path,
    time::Instant,
};

use serde::Serialize;

use crate::{
    cli::{
        Context,
        args::SearchArgs,
        printer::{BOLD, DIM, NAME, counted},
    },
    corpus::{Dialogue, Turn},
    error::{Error, Result},
    ids::UtteranceId,
    index::lexical::Lexical,
    store::Snapshot,
    text,
};

/// The results of a search; `schema` names their shape for programs.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    schema: &'static str,
    query: String,
    hits: Vec<Hit>,
    milliseconds: f64,
}

#[derive(Debug, Serialize)]
struct Hit {
    score: f32,
    id: String,
    dialogue: String,
    title: Option<String>,
    domains: Vec<String>,
    turn: Turn,
    before: Vec<Turn>,
    after: Vec<Turn>,
}

pub(super) fn run(args: &SearchArgs, context: &Context<'_>) -> Result<()> {
    if text::analyze(&args.query).is_empty() {
        return Err(Error::Input {
            message: format!("`{}` holds no word to look for", args.query),
            hint: Some("type the words you remember, in any order".to_owned()),
        });
    }
    let root = context.existing_index()?;
    let snapshot = Snapshot::open(&root)?;
    let lexical = Lexical::open(&root)?;
    if !lexical.is_current(&snapshot) {
        context
            .printer
            .warn("the search index is behind the records; `turnwise index build` brings it up to date");
    }
    let found = search(&root, &snapshot, &args.query, args.k, args.window)?;
    context.printer.result(&found, |out| found.write(out))
}

pub(super) fn search(
    root: &Path,
    snapshot: &Snapshot,
    query: &str,
    k: usize,
    window: usize,
) -> Result<Found> {
    let started = Instant::now();
    let found = Lexical::open(root)?.search(query, k)?;
    let found = found.into_iter().map(|found| (found.score, found.utterance)).collect();
    shown(query, found, snapshot, window, started)
}

/// Utterances that were found, with the turns around them.
pub(super) fn shown(
    query: &str,
    found: Vec<(f32, UtteranceId)>,
    snapshot: &Snapshot,
    window: usize,
    started: Instant,
) -> Result<Found> {
    let mut hits = Vec::new();
    for (score, utterance) in found {
        // A dialogue that was deleted since the index was built is simply not there any more.
        let Some(dialogue) = snapshot.get(&utterance.dialogue)? else { continue };
        let Some(at) = dialogue.turns.iter().position(|t| t.number == utterance.turn) else { continue };
        hits.push(hit(score, utterance.to_string(), dialogue, at, window));
    }
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    Ok(Found { schema: "turnwise/search/1", query: query.to_owned(), hits, milliseconds })
}

fn hit(score: f32, id: String, dialogue: Dialogue, at: usize, window: usize) -> Hit {
    let Dialogue { id: name, title, domains, turns, .. } = dialogue;
    let before = turns[at.saturating_sub(window)..at].to_vec();
    let after = turns.iter().skip(at + 1).take(window).cloned().collect();
    let turn = turns[at].clone();
    Hit { score, id, dialogue: name.to_string(), title, domains, turn, before, after }
}

impl Found {
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.hits.is_empty() {
            return writeln!(out, "nothing found for `{}`", self.query);
        }
        let wanted: Vec<String> = text::analyze(&self.query).into_iter().map(|t| t.term).collect();
        for (n, hit) in self.hits.iter().enumerate() {
            let about = [hit.domains.join(", "), hit.title.clone().unwrap_or_default()];
            let about: Vec<&str> = about.iter().map(String::as_str).filter(|s| !s.is_empty()).collect();
            writeln!(
                out,
                "{DIM}{:>2}.{DIM:#} {NAME}{}{NAME:#}  {DIM}{:.2}  {}{DIM:#}",
                n + 1,
                hit.id,
                hit.score,
                about.join(" · ")
            )?;
            for turn in &hit.before {
                writeln!(out, "      {DIM}{}{DIM:#}", said(turn, &turn.text))?;
            }
            writeln!(out, "    {BOLD}>{BOLD:#} {}", said(&hit.turn, &marked(&hit.turn.text, &wanted)))?;
            for turn in &hit.after {
                writeln!(out, "      {DIM}{}{DIM:#}", said(turn, &turn.text))?;
            }
            writeln!(out)?;
        }
        writeln!(out, "{DIM}{} in {:.1} ms{DIM:#}", counted(self.hits.len() as u64, "hit"), self.milliseconds)
    }
}

fn said(turn: &Turn, text: &str) -> String {
    let role = turn.role.as_ref().map_or("", |r| r.as_str());
    match (turn.speaker.is_empty(), role.is_empty()) {
        (true, true) => text.to_owned(),
        (true, false) => format!("{role}: {text}"),
        (false, true) => format!("{}: {text}", turn.speaker),
        (false, false) => format!("{} ({role}): {text}", turn.speaker),
    }
}

/// The text with the terms that were looked for in bold.
fn marked(text: &str, wanted: &[String]) -> String {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for token in text::analyze(text).into_iter().filter(|t| wanted.contains(&t.term)) {
        match ranges.last_mut() {
            // Pairs of letters overlap.
            Some(last) if token.range.start <= last.end => last.end = last.end.max(token.range.end),
            _ => ranges.push(token.range),
        }
    }
    let mut out = String::with_capacity(text.len() + ranges.len() * 8);
    let mut done = 0;
    for range in ranges {
        out.push_str(&text[done..range.start]);
        out.push_str(&format!("{BOLD}{}{BOLD:#}", &text[range.clone()]));
        done = range.end;
    }
    out + &text[done..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_marked_whatever_their_case() {
        let strip = |s: String| s.replace("\u{1b}[1m", "<").replace("\u{1b}[0m", ">");
        assert_eq!(strip(marked("My Parcel, my parcel.", &["parcel".into()])), "My <Parcel>, my <parcel>.");
        assert_eq!(strip(marked("我要退款申请", &["退款".into(), "款申".into()])), "我要<退款申>请");
        assert_eq!(strip(marked("nothing", &["x".into()])), "nothing");
    }
}
