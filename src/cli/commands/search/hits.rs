//! Text output of a search: the hits with their context, query terms in bold.

use anstyle::Style;

use super::explanation;
use crate::cli::prelude::*;
use turnwise_corpus::{Role, Turn};
use turnwise_search::{Candidates, FusionMethod, Group, Hit, HitKind, Mode, Response};
use turnwise_text::Analyzer;

/// Prints the result of a search.
pub(in crate::cli::commands) fn write(found: &Response, out: &mut dyn Write) -> io::Result<()> {
    if let Some(effective) = &found.effective {
        let explained = found.hits.first().is_some_and(|hit| hit.explanation.is_some());
        explanation::effective(effective, explained, out)?;
    }
    if !found.absent.is_empty() && !found.hits.is_empty() {
        writeln!(out, "{DIM}in no turn or title: {}{DIM:#}\n", found.absent.join(", "))?;
    }
    if found.hits.is_empty() {
        return writeln!(out, "no results for `{}`{}", found.query, no_results_reason(found));
    }
    for (n, hit) in found.hits.iter().enumerate() {
        write_hit(found, n + 1, hit, out)?;
    }
    footer(found, out)
}

fn no_results_reason(found: &Response) -> String {
    match found.candidates {
        Candidates { admitted: Some(0), .. } => ": nothing matches the filter".to_owned(),
        Candidates { too_low: Some(n), .. } => {
            let candidates = counted_with(n as u64, "candidate", ["is", "are"]);
            format!(": {candidates} below --min-score or --min-percentile")
        }
        Candidates { dense, bm25, .. } if found.offset > 0 && dense + bm25 > 0 => {
            format!(" after the first {}", found.offset)
        }
        _ => String::new(),
    }
}

fn footer(found: &Response, out: &mut dyn Write) -> io::Result<()> {
    let candidates = found.candidates.dense.max(found.candidates.bm25) as u64;
    let mode = match found.mode {
        Mode::Hybrid => "hybrid search",
        Mode::Dense => "dense search",
        Mode::Bm25 => "lexical search",
    };
    let tuned = if found.tuned { " (tuned)" } else { "" };
    let (hits, candidates) = (counted(found.hits.len() as u64, "hit"), counted(candidates, "candidate"));
    let mut parts = vec![format!("{hits} of {candidates}, {mode}{tuned} in {:.1} ms", found.milliseconds)];
    if let Some(admitted) = found.candidates.admitted {
        let of = match found.of {
            HitKind::Utterances => "utterance",
            HitKind::Dialogues => "dialogue",
        };
        parts.push(format!("the filter matches {}", counted(admitted, of)));
    }
    writeln!(out, "{DIM}{}{DIM:#}", parts.join("; "))
}

/// Formats the score of a hit, with its percentile if there is one. Scores of rank fusion are small and need more
/// digits.
fn score(found: &Response, hit: &Hit) -> String {
    let reciprocal = found.fusion.is_some_and(|fusion| fusion.method == FusionMethod::Rrf);
    let digits = if reciprocal { 4 } else { 2 };
    let mut text = format!("{:.digits$}", hit.score);
    if let Some(percentile) = hit.percentile {
        text.push_str(&format!("  {}", explanation::percentile(percentile)));
    }
    text
}

fn write_hit(found: &Response, n: usize, hit: &Hit, out: &mut dyn Write) -> io::Result<()> {
    let turns = hit.turns.map(|turns| counted(turns as u64, "turn"));
    let group =
        if found.group == Some(Group::Thread) && hit.thread.is_some() { "thread" } else { "dialogue" };
    let more = hit.more.filter(|more| *more > 0).map(|more| format!("{more} more in this {group}"));
    let date = match hit.turn.time {
        Some(time) => Some(time.minute()),
        None => hit.time.map(|time| time.date()),
    };
    let title = hit.title.as_ref().map(|title| marked(found.analyzer, &found.terms, title, DIM));
    let about = [date, Some(hit.domains.join(", ")), title, turns, more];
    let about: Vec<String> = about.into_iter().flatten().filter(|s| !s.is_empty()).collect();
    let (id, score, about) = (&hit.id, score(found, hit), about.join(" · "));
    writeln!(out, "{DIM}{n:>2}.{DIM:#} {NAME}{id}{NAME:#}  {DIM}{score}  {about}{DIM:#}")?;
    for turn in &hit.before {
        writeln!(out, "      {DIM}{}{DIM:#}", with_speaker(turn, &turn.text))?;
    }
    // The id of an utterance already includes the number of the turn.
    let number = hit.turns.map(|_| format!("{DIM}#{}{DIM:#} ", hit.turn.number)).unwrap_or_default();
    let text = marked(found.analyzer, &found.terms, &hit.turn.text, Style::new());
    writeln!(out, "    {BOLD}>{BOLD:#} {number}{}", with_speaker(&hit.turn, &text))?;
    for turn in &hit.after {
        writeln!(out, "      {DIM}{}{DIM:#}", with_speaker(turn, &turn.text))?;
    }
    if let Some(explanation) = &hit.explanation {
        explanation::hit(found, hit, explanation, out)?;
    }
    writeln!(out)
}

/// Returns the text with the query terms in bold. `around` is the style of the other text.
fn marked(analyzer: Analyzer, terms: &[String], text: &str, around: Style) -> String {
    let ranges = analyzer.ranges(text, terms);
    let mut out = String::with_capacity(text.len() + ranges.len() * 8);
    let mut done = 0;
    for range in ranges {
        out.push_str(&text[done..range.start]);
        out.push_str(&format!("{around:#}{BOLD}{}{BOLD:#}{around}", &text[range.clone()]));
        done = range.end;
    }
    out + &text[done..]
}

fn with_speaker(turn: &Turn, text: &str) -> String {
    match speaker(turn) {
        speaker if speaker.is_empty() => text.to_owned(),
        speaker => format!("{speaker}: {text}"),
    }
}

/// Formats the speaker and the role of a turn, such as `Ann (user)`. Omits an empty speaker or role.
pub(in crate::cli::commands) fn speaker(turn: &Turn) -> String {
    match (turn.speaker.as_str(), turn.role.as_ref().map_or("", Role::as_str)) {
        ("", role) => role.to_owned(),
        (name, "") => name.to_owned(),
        (name, role) => format!("{name} ({role})"),
    }
}

#[cfg(test)]
mod tests {
    use anstyle::Style;

    fn marked(analyzer: &str, text: &str, terms: &[&str]) -> String {
        let terms: Vec<String> = terms.iter().map(|&term| term.to_owned()).collect();
        let marked = super::marked(analyzer.parse().unwrap(), &terms, text, Style::new());
        marked.replace("\u{1b}[1m", "<").replace("\u{1b}[0m", ">")
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
