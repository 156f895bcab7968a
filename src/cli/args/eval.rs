//! Arguments of `turnwise eval`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `turnwise eval`. They have the names and meanings of trec_eval's options.
#[derive(Debug, Args)]
#[command(after_help = MEASURES)]
pub(crate) struct EvalArgs {
    /// File of relevance judgments: one `query 0 document grade` per line (TREC), or tab-separated (BEIR)
    pub(crate) qrels: PathBuf,
    /// File of the run (search results): one `query Q0 document rank score tag` per line
    pub(crate) run: PathBuf,
    /// Measure to print (see the list at the end); repeatable
    #[arg(short, long = "measure", value_name = "MEASURE", default_value = "official")]
    pub(crate) measures: Vec<String>,
    // trec_eval uses -q for this. The clap id of the global --quiet, which also has -q, makes this option replace it.
    /// Also print the measures of each query; in this command, -q does not mean --quiet
    #[arg(id = "quiet", short = 'q', long = "per-query")]
    pub(crate) per_query: bool,
    /// Average over all judged queries; queries that are missing from the run count as 0
    ///
    /// By default, only queries that are in both files count.
    #[arg(short, long)]
    pub(crate) complete: bool,
    /// Minimum grade at which a document counts as relevant
    #[arg(short, long, value_name = "GRADE", default_value_t = 1)]
    pub(crate) level: i32,
}

const MEASURES: &str = "\
Measures without a cutoff: map, gm_map, Rprec, bpref, recip_rank, ndcg, num_q, num_ret, num_rel, num_rel_ret.

Measures with cutoffs: P, recall, ndcg_cut, map_cut, success, iprec_at_recall. Append the cutoffs, such as P.5,10 or \
iprec_at_recall.0.10. Without cutoffs, those of trec_eval are used.

`official` is the default set of measures of trec_eval.";
