//! How a hit came to its place, in words.

use std::io::{self, Write};

use crate::cli::printer::DIM;
use turnwise_search::{Effective, Explanation, Fused, HALF, Hit, Method, Place, Response};

/// So many terms of a long query are named.
const TERMS: usize = 12;

/// `above 99.2%`: of random pairs.
pub(super) fn percentile(percent: f64) -> String {
    // What is rounded up to 100 is not above all.
    match percent {
        p if p >= 100.0 => "above all".to_owned(),
        p if p > 99.0 => format!("above {:.2}%", (p * 100.0).floor() / 100.0),
        p => format!("above {:.0}%", p.floor()),
    }
}

/// What a query became.
pub(super) fn effective(effective: &Effective, out: &mut dyn Write) -> io::Result<()> {
    if !effective.meaning.is_empty() {
        let parts = effective
            .meaning
            .iter()
            .rev()
            .map(|part| format!("{:.2} × \"{}\"", part.weight, short(&part.text)));
        writeln!(out, "{DIM}by meaning: {}{DIM:#}", parts.collect::<Vec<_>>().join(" + "))?;
    }
    if !effective.words.is_empty() {
        let mut words: Vec<&str> = effective.words.iter().take(TERMS).map(String::as_str).collect();
        if effective.words.len() > TERMS {
            words.push("…");
        }
        writeln!(out, "{DIM}by words: {}{DIM:#}", words.join(" "))?;
    }
    writeln!(out)
}

fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// The tree of a hit's score.
pub(super) fn hit(found: &Response, hit: &Hit, why: &Explanation, out: &mut dyn Write) -> io::Result<()> {
    let mut line = |depth: usize, text: String| writeln!(out, "{DIM}    {}{text}{DIM:#}", "  ".repeat(depth));
    if let Some(before) = why.before {
        line(
            0,
            format!(
                "{:.4} by ranking again; before, {:.4} on place {}",
                hit.score, before.score, before.rank
            ),
        )?;
    }
    if let Some(fused) = &why.fusion {
        line(0, format!("{:.4} = {}", fused.score, sum(fused, why)))?;
    }
    if let (None, Some(cosine)) = (why.dense, why.cosine) {
        line(1, format!("meaning: cosine {cosine:.4}, not among the candidates by meaning"))?;
    }
    if let Some(place) = why.dense {
        let above =
            hit.percentile.map(|p| format!(", {} of random pairs", percentile(p))).unwrap_or_default();
        line(1, format!("meaning: cosine {:.4}, place {}{above}", place.score, place.rank))?;
    }
    if let Some(place) = why.bm25 {
        line(1, format!("words: BM25 {:.4}, place {}", place.score, place.rank))?;
        for term in why.terms.iter().take(TERMS) {
            let length = format!("{} terms long, {:.1} in the mean", term.length, term.mean_length);
            line(
                2,
                format!(
                    "{:.4}  {}: idf {:.3}, {}× here, {length}",
                    term.score, term.term, term.idf, term.frequency
                ),
            )?;
        }
    }
    let t = &found.timings;
    if found.hits.first().is_some_and(|first| first.id == hit.id) {
        line(
            0,
            format!(
                "encoding {:.1} ms, filter {:.1}, meaning {:.1}, words {:.1}, hits {:.1}",
                t.encode, t.filter, t.dense, t.bm25, t.hits
            ),
        )?;
    }
    Ok(())
}

fn sum(fused: &Fused, why: &Explanation) -> String {
    let by = &fused.by;
    let rank = |weight: f32, place: Option<Place>| {
        place.map(|place| format!("{weight}/({} + {})", by.k, place.rank))
    };
    let [meaning, words] = match by.method {
        Method::Rrf => [rank(by.dense, why.dense), rank(by.bm25, why.bm25)],
        Method::Weighted => [
            why.cosine.map(|cosine| format!("{} × {cosine:.4}", by.dense)),
            why.bm25.map(|place| format!("{} × {:.4}/({:.4} + {HALF})", by.bm25, place.score, place.score)),
        ],
    };
    let named = |part: Option<String>, name: &str| part.map(|part| format!("{part} {name}"));
    let parts = [named(meaning, "meaning"), named(words, "words")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_never_rounded_up() {
        let said = [100.0, 99.999, 99.5, 98.99, 0.0].map(percentile);
        assert_eq!(said, ["above all", "above 99.99%", "above 99.50%", "above 98%", "above 0%"]);
    }
}
