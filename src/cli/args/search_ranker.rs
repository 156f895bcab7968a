//! Options of the ranker `search` of `turnwise bench memory`.

use std::fmt;

use clap::{Arg, Args, Parser, ValueEnum};

use super::RankingArgs;
use turnwise_core::error::{Error, Result};
use turnwise_search::{Mode, Rerank, SearchRequest};

/// Ranker `search`: a search with the options of `turnwise search`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Ranker `search`")]
pub(crate) struct SearchRanker {
    /// Search mode [default: hybrid]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
    #[command(flatten)]
    ranking: RankingArgs,
}

/// Parser of a ranker such as `search --mode bm25`.
#[derive(Parser)]
#[command(name = "search", no_binary_name = false, disable_help_flag = true)]
struct Typed {
    #[command(flatten)]
    ranker: SearchRanker,
}

impl SearchRanker {
    /// Parses a ranker. Returns `None` if it is a different ranker than `search`.
    pub(crate) fn parse(spec: &str) -> Result<Option<Self>> {
        let words: Vec<&str> = spec.split_whitespace().collect();
        if words.first() != Some(&"search") {
            return Ok(None);
        }
        let typed = Typed::try_parse_from(&words).map_err(|e| {
            let text = e.to_string();
            let reason = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Error::input(format!("the ranker `{spec}`: {reason}"))
                .with_hint("the options are those of `turnwise search` that change the ranking, such as `search --mode bm25`")
        })?;
        if typed.ranker.ranking.selector().is_some() {
            return Err(Error::input("the ranker `search` cannot rerank by a selector")
                .with_hint("compare selectors with `turnwise bench response FILE -r selector:MODEL`"));
        }
        // The check of a request needs a query.
        SearchRequest { query: "query".to_owned(), ..typed.ranker.request() }.check()?;
        Ok(Some(typed.ranker))
    }

    /// Returns a request with these options and no query.
    pub(crate) fn request(&self) -> SearchRequest {
        SearchRequest { mode: self.mode, ..self.ranking.request() }
    }

    /// Returns whether the search uses vectors.
    pub(crate) fn needs_model(&self) -> bool {
        self.mode != Some(Mode::Bm25) || self.ranking.rerank.is_some()
    }

    /// Applies these options to the rankers of the command line: a ranker `search` without options gets them. If there
    /// is none, it is added.
    pub(crate) fn apply(&self, rankers: &mut Vec<String>) {
        let name = self.to_string();
        if name != "search" {
            match rankers.iter().position(|ranker| ranker == "search") {
                Some(position) => rankers[position] = name,
                None => rankers.insert(0, name),
            }
        }
        let mut seen = std::collections::HashSet::new();
        rankers.retain(|ranker| seen.insert(ranker.clone()));
    }
}

impl fmt::Display for SearchRanker {
    /// Formats the ranker as it is given on the command line, without options that have their default value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("search")?;
        let RankingArgs {
            fusion,
            rrf_k,
            dense_weight,
            bm25_weight,
            speaker_weight,
            date_weight,
            candidates,
            rerank,
            rerank_top,
            rerank_weight,
        } = &self.ranking;
        option(f, "mode", self.mode.as_ref().map(value_name))?;
        option(f, "fusion", fusion.as_ref().map(value_name))?;
        option(f, "rrf-k", *rrf_k)?;
        option(f, "dense-weight", *dense_weight)?;
        option(f, "bm25-weight", *bm25_weight)?;
        option(f, "speaker-weight", *speaker_weight)?;
        option(f, "date-weight", *date_weight)?;
        let default = SearchRequest::default();
        option(f, "candidates", Some(candidates).filter(|n| **n != default.candidates))?;
        option(f, "rerank", rerank.as_ref())?;
        let default = Rerank::default();
        option(f, "rerank-top", rerank.as_ref().map(|_| rerank_top).filter(|n| **n != default.top))?;
        option(f, "rerank-weight", rerank.as_ref().map(|_| rerank_weight).filter(|n| **n != default.weight))
    }
}

fn option(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " --{name} {value}"))
}

/// Returns the name of a value on the command line.
pub(crate) fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Replaces defaults and help texts of options that are different in `turnwise bench memory`. Returns other options
/// unchanged.
pub(super) fn describe_for_memory(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "rankers" => arg.default_values(["search", "search --mode bm25", "search --mode dense"]),
        "precision" => arg.long_help(
            "Numeric precision of the computation\n\n\
             For the ranker `search`, `auto` is the precision that `turnwise ingest` uses. For the other rankers, `auto` \
             means f32.",
        ),
        _ => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ranker_is_shown_with_the_options_that_are_not_defaults() {
        let shown = |spec: &str| SearchRanker::parse(spec).unwrap().unwrap().to_string();
        assert_eq!(shown("search"), "search");
        assert_eq!(shown("search  --candidates 100 --mode dense"), "search --mode dense");
        let all = "search --mode hybrid --fusion rrf --rrf-k 20 --dense-weight 0.5 --bm25-weight 1 --speaker-weight 0.1 --date-weight 0.3 \
                   --candidates 50 --rerank maxsim --rerank-top 7 --rerank-weight 0.25";
        assert_eq!(shown(all), all);
        assert!(SearchRanker::parse("bm25").unwrap().is_none());
        let e = SearchRanker::parse("search --k 3").unwrap_err().to_string();
        assert!(e.starts_with("the ranker `search --k 3`: unexpected argument '--k'"), "{e}");
    }

    #[test]
    fn options_apply_to_the_ranker_without_options() {
        let applied = |spec: &str, rankers: &[&str]| {
            let mut rankers = rankers.iter().map(|r| (*r).to_owned()).collect();
            SearchRanker::parse(spec).unwrap().unwrap().apply(&mut rankers);
            rankers
        };
        let dense = "search --mode dense";
        assert_eq!(applied("search", &["search", "bm25"]), ["search", "bm25"]);
        assert_eq!(applied(dense, &["search", "bm25", dense]), [dense, "bm25"]);
        assert_eq!(applied(dense, &["bm25"]), [dense, "bm25"]);
    }
}
