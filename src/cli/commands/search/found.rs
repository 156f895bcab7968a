//! What a search prints: hits with the turns around them, and the terms that were looked for in bold.

use std::{
    io::{self, Write},
    ops::Range,
    time::Instant,
};

use serde::Serialize;

use crate::{
    cli::printer::{BOLD, DIM, NAME, counted},
    corpus::{Dialogue, Turn},
    ids::UtteranceId,
    text::Analyzer,
};

/// The results of a search; `schema` names their shape for programs.
#[derive(Debug, Serialize)]
pub(in crate::cli::commands) struct Found {
    schema: &'static str,
    query: String,
    of: &'static str,
    hits: Vec<Hit>,
    milliseconds: f64,
    #[serde(skip)]
    marks: Marks,
}

#[derive(Debug, Serialize)]
pub(super) struct Hit {
    score: f32,
    id: String,
    dialogue: String,
    title: Option<String>,
    domains: Vec<String>,
    /// How many turns a dialogue has that was found as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    turns: Option<usize>,
    /// What was found, or the turn that fits best of a dialogue that was found as a whole.
    turn: Turn,
    before: Vec<Turn>,
    after: Vec<Turn>,
}

/// What is to be in bold: the terms, and the analysis they come from.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) analyzer: Analyzer,
    pub(super) terms: Vec<String>,
}

impl Marks {
    /// The words of a text.
    pub(super) fn of(text: &str) -> Self {
        let analyzer = Analyzer::default();
        Marks { analyzer, terms: analyzer.terms(text) }
    }

    /// The text with the terms in bold.
    fn on(&self, text: &str) -> String {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for token in self.analyzer.analyze(text).into_iter().filter(|t| self.terms.contains(&t.term)) {
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
}

impl Hit {
    pub(super) fn of_utterance(
        score: f32,
        id: &UtteranceId,
        dialogue: Dialogue,
        at: usize,
        window: usize,
    ) -> Self {
        Hit { id: id.to_string(), turns: None, ..Hit::of_dialogue(score, dialogue, at, window) }
    }

    pub(super) fn of_dialogue(score: f32, dialogue: Dialogue, at: usize, window: usize) -> Self {
        let Dialogue { id, title, domains, turns, .. } = dialogue;
        Hit {
            score,
            id: id.to_string(),
            dialogue: id.to_string(),
            title,
            domains,
            turns: Some(turns.len()),
            before: turns[at.saturating_sub(window)..at].to_vec(),
            after: turns.iter().skip(at + 1).take(window).cloned().collect(),
            turn: turns[at].clone(),
        }
    }

    fn write(&self, n: usize, marks: &Marks, out: &mut dyn Write) -> io::Result<()> {
        let turns = self.turns.map(|turns| counted(turns as u64, "turn"));
        let about =
            [self.domains.join(", "), self.title.clone().unwrap_or_default(), turns.unwrap_or_default()];
        let about: Vec<&str> = about.iter().map(String::as_str).filter(|s| !s.is_empty()).collect();
        writeln!(
            out,
            "{DIM}{n:>2}.{DIM:#} {NAME}{}{NAME:#}  {DIM}{:.2}  {}{DIM:#}",
            self.id,
            self.score,
            about.join(" · ")
        )?;
        for turn in &self.before {
            writeln!(out, "      {DIM}{}{DIM:#}", said(turn, &turn.text))?;
        }
        // The id of an utterance names the turn; that of a dialogue does not.
        let number = self.turns.map(|_| format!("{DIM}#{}{DIM:#} ", self.turn.number)).unwrap_or_default();
        writeln!(out, "    {BOLD}>{BOLD:#} {number}{}", said(&self.turn, &marks.on(&self.turn.text)))?;
        for turn in &self.after {
            writeln!(out, "      {DIM}{}{DIM:#}", said(turn, &turn.text))?;
        }
        writeln!(out)
    }
}

impl Found {
    pub(super) fn new(of: &'static str, query: &str, hits: Vec<Hit>, marks: Marks, started: Instant) -> Self {
        let milliseconds = started.elapsed().as_secs_f64() * 1e3;
        Found { schema: "turnwise/search/1", query: query.to_owned(), of, hits, milliseconds, marks }
    }

    pub(in crate::cli::commands) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.hits.is_empty() {
            return writeln!(out, "nothing found for `{}`", self.query);
        }
        for (n, hit) in self.hits.iter().enumerate() {
            hit.write(n + 1, &self.marks, out)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(analyzer: &str, text: &str, terms: &[&str]) -> String {
        let terms = terms.iter().map(|&term| term.to_owned()).collect();
        let marks = Marks { analyzer: analyzer.parse().unwrap(), terms };
        marks.on(text).replace("\u{1b}[1m", "<").replace("\u{1b}[0m", ">")
    }

    #[test]
    fn terms_are_marked_whatever_their_case() {
        assert_eq!(marked("mixed-1", "My Parcel, my parcel.", &["parcel"]), "My <Parcel>, my <parcel>.");
        assert_eq!(marked("mixed-1", "我要退款申请", &["退款", "款申"]), "我要<退款申>请");
        assert_eq!(marked("mixed-1", "nothing", &["x"]), "nothing");
    }

    #[test]
    fn stems_are_marked_as_the_words_they_come_from() {
        assert_eq!(marked("mixed-1+stem-en", "Two deliveries", &["deliveri"]), "Two <deliveries>");
    }
}
