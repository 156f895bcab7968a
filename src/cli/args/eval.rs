//! Arguments of `turnwise eval`.

use std::path::PathBuf;

use clap::Args;

/// Options like those of trec_eval. Measures, columns and the order of ties are the same, too.
#[derive(Debug, Args)]
#[command(after_help = MEASURES)]
pub(crate) struct EvalArgs {
    /// Relevance judgments: one `query 0 document grade` per line, or a BEIR table
    pub(crate) qrels: PathBuf,
    /// Run: one `query Q0 document rank score tag` per line
    pub(crate) run: PathBuf,
    /// Measure to print (see the list below); repeatable
    #[arg(short, long = "measure", value_name = "MEASURE", default_value = "official")]
    pub(crate) measures: Vec<String>,
    // trec_eval uses -q for this. The clap id of the global --quiet, which also has -q, makes this option replace it.
    /// Also print the measures of each query
    #[arg(id = "quiet", short = 'q', long = "per-query")]
    pub(crate) per_query: bool,
    /// Count judged queries that are missing from the run as 0
    #[arg(short, long)]
    pub(crate) complete: bool,
    /// Minimum grade of a relevant document
    #[arg(short, long, value_name = "GRADE", default_value_t = 1)]
    pub(crate) level: i32,
}

const MEASURES: &str = "Measures: map, gm_map, Rprec, bpref, recip_rank, ndcg, num_q, num_ret, num_rel, num_rel_ret, and with \
cutoffs P.5,10, recall.100, ndcg_cut.10, map_cut.100, success.1, iprec_at_recall.0.10 (default: trec_eval's cutoffs). \
`official` is the default set of trec_eval.";
