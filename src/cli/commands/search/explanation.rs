//! Text output of `--explain`: how the score of each hit was computed.

use clap::ValueEnum;

use crate::cli::{commands::vectors::shortened, prelude::*};
use turnwise_core::TurnNo;
use turnwise_search::{
    BM25_HALF_SCORE, ContextExplanation, Coverage, DateMatch, EARLIER_HALF_SCORE, EarlierScore,
    EffectiveQuery, Explanation, FusionExplanation, FusionMethod, Hit, RankedScore, Rerank, RerankMethod,
    Response, Stretch, Timings, TurnCosine, WordShare,
};

/// Maximum number of BM25 terms to print.
const TERMS: usize = 12;

/// Formats the percentile of a hit, such as `above 99.20%`: the percentage of random pairs of texts that are less
/// similar than the query and the hit.
pub(super) fn percentile(percent: f64) -> String {
    // A percentile is rounded down, because 100% would mean that the hit is above all pairs.
    match percent {
        p if p >= 100.0 => "above all".to_owned(),
        p if p > 99.0 => format!("above {:.2}%", (p * 100.0).floor() / 100.0),
        p => format!("above {:.0}%", p.floor()),
    }
}

/// Prints what was recognized in the query: speakers and dates. With a context, or if `all` is true, also prints the
/// texts from which the query vector was computed, with their weights, and the BM25 terms of the query.
pub(super) fn effective(effective: &EffectiveQuery, all: bool, out: &mut dyn Write) -> io::Result<()> {
    let recognized = [("speaker", &effective.speakers), ("date", &effective.dates)];
    let recognized = recognized.into_iter().filter(|(_, found)| !found.is_empty());
    let recognized: Vec<String> =
        recognized.map(|(what, found)| format!("{what}: {}", shortened(&found.join(", "), 100))).collect();
    if !recognized.is_empty() {
        writeln!(out, "{DIM}{}{DIM:#}", recognized.join("; "))?;
    }
    if !all && effective.meaning.len() < 2 && !recognized.is_empty() {
        return writeln!(out);
    }
    if !effective.meaning.is_empty() {
        let parts = effective
            .meaning
            .iter()
            .rev()
            .map(|part| format!("{:.2} × \"{}\"", part.weight, shortened(&part.text, 60)));
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

/// Prints the computation of a hit's score as a tree.
pub(super) fn hit(found: &Response, hit: &Hit, why: &Explanation, out: &mut dyn Write) -> io::Result<()> {
    let mut line = |depth: usize, text: String| writeln!(out, "{DIM}    {}{text}{DIM:#}", "  ".repeat(depth));
    if let (Some(before), Some(rerank)) = (why.before, found.rerank) {
        line(
            0,
            format!(
                "{:.4} = {}; rank {} before",
                hit.score,
                reranked(hit.score, before.score, &rerank),
                before.rank
            ),
        )?;
    }
    if let Some(fused) = &why.fusion {
        line(0, format!("{:.4} = {}", fused.score, sum(fused, why)))?;
    }
    if let Some(context) = &why.context {
        in_context(context, hit, &mut line)?;
    }
    if let (None, Some(cosine)) = (why.dense, why.cosine) {
        line(1, format!("dense: cosine {cosine:.4}, not among the dense candidates"))?;
    }
    if let Some(RankedScore { score, rank }) = why.dense {
        let query = match &why.context {
            Some(ContextExplanation { earlier: Some(_), .. }) => " of the query with its context",
            _ => "",
        };
        let above =
            hit.percentile.map(|p| format!(", {} of random pairs", percentile(p))).unwrap_or_default();
        line(1, format!("dense: cosine {score:.4}{query}, rank {rank}{above}"))?;
    }
    if let Some(RankedScore { score, rank }) = why.bm25 {
        line(1, format!("BM25: score {score:.4}, rank {rank}"))?;
        for t in why.terms.iter().take(TERMS) {
            let length = format!("length {} terms, mean {:.1}", t.length, t.mean_length);
            let idf = format!("idf {:.3}, frequency {}", t.idf, t.frequency);
            line(2, format!("{:.4}  {}: {idf}, {length}", t.score, t.term))?;
        }
    }
    if let Some(RankedScore { score, rank }) = why.title {
        line(1, format!("title: score {score:.4}, rank {rank} (half of it counts)"))?;
    }
    if let Some(WordShare { share, factor }) = why.words {
        line(1, format!("words together: {:.0}% of the query: × {factor:.2}", 100.0 * share))?;
    }
    if let (None, Some(fused)) = (&why.context, &why.fusion) {
        if fused.from_speaker.is_some() {
            line(1, "speaker: the query names a speaker of this dialogue".to_owned())?;
        }
        if fused.from_date.is_some() {
            line(1, "date: a turn of this dialogue was said on a date of the query".to_owned())?;
        }
    }
    if found.hits.first().is_some_and(|first| first.id == hit.id) {
        let Timings { encode, filter, dense, bm25, hits, .. } = found.timings;
        let search = format!("filter {filter:.1}, dense {dense:.1}, BM25 {bm25:.1}, hits {hits:.1}");
        line(0, format!("encoding {encode:.1} ms, {search}"))?;
    }
    Ok(())
}

/// Prints the scores of a hit together with its neighbors.
fn in_context(
    context: &ContextExplanation,
    hit: &Hit,
    line: &mut dyn FnMut(usize, String) -> io::Result<()>,
) -> io::Result<()> {
    if let Some(cosine) = context.cosine {
        let several = context.cosines.len() > 1;
        let with = if several { " with the weighted sum of their vectors" } else { "" };
        line(1, format!("dense, with neighboring turns: cosine {cosine:.4}{with}"))?;
        if several {
            for TurnCosine { turn, weight, cosine } in &context.cosines {
                line(2, format!("{cosine:.4}  {}, weight {weight}", place(Some(*turn), hit)))?;
            }
        }
    }
    if context.bm25 > 0.0 {
        let shared =
            if context.terms.len() > 1 { ", each turn's score shared evenly among its words" } else { "" };
        line(1, format!("BM25, with neighboring turns: score {:.4}{shared}", context.bm25))?;
        for term in context.terms.iter().take(TERMS) {
            line(2, format!("{:.4}  {}: in {}", term.score, term.term, place(term.turn, hit)))?;
        }
        let Coverage { share, dialogues, factor } = context.coverage;
        if share > 0.0 {
            let others = match dialogues {
                0 | 1 => "more than in any other dialogue".to_owned(),
                n => format!("as in {}", counted(n as u64 - 1, "other dialogue")),
            };
            let percent = 100.0 * share;
            line(1, format!("words together: {percent:.0}% of the query, {others}: × {factor:.2}"))?;
        }
    }
    if context.speaker {
        line(
            1,
            format!(
                "speaker: the query names {}, the speaker of this turn (twice the weight)",
                hit.turn.speaker
            ),
        )?;
    } else if context.participant {
        line(1, "speaker: the query names a speaker of this dialogue".to_owned())?;
    }
    match context.date {
        Some(DateMatch::Said) => line(1, "date: this turn was said on a date of the query".to_owned())?,
        Some(DateMatch::Mentioned) => line(1, "date: this turn mentions a date of the query".to_owned())?,
        None => {}
    }
    if let Some(EarlierScore { cosine, bm25, .. }) = context.earlier {
        line(1, format!("conversation before: cosine {cosine:.4}, BM25 score {bm25:.4}"))?;
    }
    Ok(())
}

/// Names a turn in the dialogue of a hit; `None` is the title.
fn place(turn: Option<TurnNo>, hit: &Hit) -> String {
    match turn {
        None => "the title".to_owned(),
        Some(turn) if turn == hit.turn.number => "this turn".to_owned(),
        Some(turn) => format!("turn {turn}"),
    }
}

/// Formats the computation of a score after reranking.
fn reranked(score: f32, before: f32, rerank: &Rerank) -> String {
    let method = rerank.by.to_possible_value().map(|method| method.get_name().to_owned()).unwrap_or_default();
    match rerank.by {
        RerankMethod::Exact => "cosine".to_owned(),
        RerankMethod::Selector => "score of the selector".to_owned(),
        _ if rerank.weight == 0.0 => format!("{before:.4} + 0 {method}"),
        _ => format!("{before:.4} + {} × {:.4} {method}", rerank.weight, (score - before) / rerank.weight),
    }
}

fn sum(fused: &FusionExplanation, why: &Explanation) -> String {
    let by = &fused.by;
    let rank = |weight: f32, place: Option<RankedScore>| {
        place.map(|place| format!("{weight}/({} + {})", by.k, place.rank))
    };
    let weighted = |cosine: f32| match fused.stretch {
        Some(Stretch { center, factor }) => {
            format!("{} × ({center:.4} + {factor:.2} × ({cosine:.4} - {center:.4}))", by.dense)
        }
        None => format!("{} × {cosine:.4}", by.dense),
    };
    let scaled = |score: f32, half: f32| format!("{} × {score:.4}/({score:.4} + {half})", by.bm25);
    let [dense, bm25] = match by.method {
        FusionMethod::Context => {
            let context = why.context.as_ref();
            let bm25 = context.filter(|context| context.bm25 > 0.0).map(|context| {
                let factor = context.coverage.factor;
                let is_covered = context.coverage.share > 0.0;
                let covered = if is_covered { format!(" × {factor:.2}") } else { String::new() };
                scaled(context.bm25, context.half_score) + &covered
            });
            [context.and_then(|context| context.cosine).map(weighted), bm25]
        }
        FusionMethod::Rrf => [rank(by.dense, why.dense), rank(by.bm25, why.bm25)],
        FusionMethod::Weighted => {
            let covered = why.words.map_or(String::new(), |words| format!(" × {:.2}", words.factor));
            let bm25 = why.bm25_with_title().map(|score| scaled(score, BM25_HALF_SCORE) + &covered);
            [why.cosine.map(weighted), bm25]
        }
    };
    let named = |part: Option<String>, name: &str| part.map(|part| format!("{part} {name}"));
    let number = |part: Option<f32>| part.map(|part| part.to_string());
    let earlier = why.context.as_ref().and_then(|context| context.earlier).map(|earlier| {
        let EarlierScore { weight, cosine, bm25 } = earlier;
        let words = match bm25 > 0.0 {
            true => format!(" + {}", scaled(bm25, EARLIER_HALF_SCORE)),
            false => String::new(),
        };
        format!("{weight:.2} × ({}{words})", weighted(cosine))
    });
    let parts = [
        named(dense, "dense"),
        named(bm25, "BM25"),
        named(number(fused.from_speaker), "speaker"),
        named(number(fused.from_date), "date"),
        named(earlier, "conversation before"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reranked_scores_are_sums() {
        let maxsim = Rerank { by: RerankMethod::MaxsimStatic, weight: 0.5, ..Rerank::default() };
        assert_eq!(reranked(1.0, 0.75, &maxsim), "0.7500 + 0.5 × 0.5000 maxsim-static");
        assert_eq!(reranked(0.75, 0.75, &Rerank { weight: 0.0, ..maxsim }), "0.7500 + 0 maxsim-static");
        assert_eq!(reranked(0.4, 0.75, &Rerank::default()), "cosine");
    }

    #[test]
    fn percentiles_are_never_rounded_up() {
        let said = [100.0, 99.999, 99.5, 98.99, 0.0].map(percentile);
        assert_eq!(said, ["above all", "above 99.99%", "above 99.50%", "above 98%", "above 0%"]);
    }
}
