//! Text output of `--explain`: how the score of each hit was computed.

use crate::cli::prelude::*;
use turnwise_search::{
    BM25_HALF_SCORE, EffectiveQuery, Explanation, FusionExplanation, FusionMethod, Hit, RankedScore, Response,
};

/// Largest number of terms shown for a long query.
const TERMS: usize = 12;

/// Formats a percentile among random pairs, such as `above 99.2%`.
pub(super) fn percentile(percent: f64) -> String {
    // Do not round up to 100%: that means above all.
    match percent {
        p if p >= 100.0 => "above all".to_owned(),
        p if p > 99.0 => format!("above {:.2}%", (p * 100.0).floor() / 100.0),
        p => format!("above {:.0}%", p.floor()),
    }
}

/// Prints the query vector's parts and the query terms.
pub(super) fn effective(effective: &EffectiveQuery, out: &mut dyn Write) -> io::Result<()> {
    if !effective.meaning.is_empty() {
        let parts = effective
            .meaning
            .iter()
            .rev()
            .map(|part| format!("{:.2} × \"{}\"", part.weight, short(&part.text)));
        writeln!(out, "{DIM}dense query: {}{DIM:#}", parts.collect::<Vec<_>>().join(" + "))?;
    }
    if !effective.words.is_empty() {
        let mut words: Vec<&str> = effective.words.iter().take(TERMS).map(String::as_str).collect();
        if effective.words.len() > TERMS {
            words.push("…");
        }
        writeln!(out, "{DIM}BM25 terms: {}{DIM:#}", words.join(" "))?;
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

/// Prints the computation of a hit's score as a tree.
pub(super) fn hit(found: &Response, hit: &Hit, why: &Explanation, out: &mut dyn Write) -> io::Result<()> {
    let mut line = |depth: usize, text: String| writeln!(out, "{DIM}    {}{text}{DIM:#}", "  ".repeat(depth));
    if let Some(before) = why.before {
        line(
            0,
            format!("{:.4} after reranking; before, {:.4} at rank {}", hit.score, before.score, before.rank),
        )?;
    }
    if let Some(fused) = &why.fusion {
        line(0, format!("{:.4} = {}", fused.score, sum(fused, why)))?;
    }
    if let (None, Some(cosine)) = (why.dense, why.cosine) {
        line(1, format!("dense: cosine {cosine:.4}, not among the dense candidates"))?;
    }
    if let Some(place) = why.dense {
        let above =
            hit.percentile.map(|p| format!(", {} of random pairs", percentile(p))).unwrap_or_default();
        line(1, format!("dense: cosine {:.4}, rank {}{above}", place.score, place.rank))?;
    }
    if let Some(place) = why.bm25 {
        line(1, format!("BM25: score {:.4}, rank {}", place.score, place.rank))?;
        for term in why.terms.iter().take(TERMS) {
            let length = format!("length {} terms, mean {:.1}", term.length, term.mean_length);
            line(
                2,
                format!(
                    "{:.4}  {}: idf {:.3}, frequency {}, {length}",
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
                "encoding {:.1} ms, filter {:.1}, dense {:.1}, BM25 {:.1}, hits {:.1}",
                t.encode, t.filter, t.dense, t.bm25, t.hits
            ),
        )?;
    }
    Ok(())
}

fn sum(fused: &FusionExplanation, why: &Explanation) -> String {
    let by = &fused.by;
    let rank = |weight: f32, place: Option<RankedScore>| {
        place.map(|place| format!("{weight}/({} + {})", by.k, place.rank))
    };
    let [dense, bm25] = match by.method {
        FusionMethod::Rrf => [rank(by.dense, why.dense), rank(by.bm25, why.bm25)],
        FusionMethod::Weighted => [
            why.cosine.map(|cosine| format!("{} × {cosine:.4}", by.dense)),
            why.bm25.map(|place| {
                format!("{} × {:.4}/({:.4} + {BM25_HALF_SCORE})", by.bm25, place.score, place.score)
            }),
        ],
    };
    let named = |part: Option<String>, name: &str| part.map(|part| format!("{part} {name}"));
    let parts = [named(dense, "dense"), named(bm25, "BM25")];
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
