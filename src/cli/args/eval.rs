//! Judging runs.

use std::path::PathBuf;

use clap::Args;

/// As trec_eval does: its measures, its columns, its order of equal scores.
#[derive(Debug, Args)]
#[command(after_help = MEASURES)]
pub(crate) struct EvalArgs {
    /// The judgments: `query 0 document grade` a line, or a table of BEIR
    pub(crate) qrels: PathBuf,
    /// The run: `query Q0 document rank score tag` a line
    pub(crate) run: PathBuf,
    /// A measure (below); more than one with more than one -m
    #[arg(short, long = "measure", value_name = "MEASURE", default_value = "official")]
    pub(crate) measures: Vec<String>,
    // It has the name of the global option whose letter it takes, which it stands for here.
    /// Print the measures of each query, too
    #[arg(id = "quiet", short = 'q', long = "per-query")]
    pub(crate) per_query: bool,
    /// Count judged queries that the run does not have, as 0
    #[arg(short, long)]
    pub(crate) complete: bool,
    /// From which grade on a document is relevant
    #[arg(short, long, value_name = "GRADE", default_value_t = 1)]
    pub(crate) level: i32,
}

const MEASURES: &str = "Measures: map, gm_map, Rprec, bpref, recip_rank, ndcg, num_q, num_ret, num_rel, num_rel_ret, and with \
places P.5,10, recall.100, ndcg_cut.10, map_cut.100, success.1, iprec_at_recall.0.10 (without: trec_eval's places); \
official is what trec_eval prints unasked.";
