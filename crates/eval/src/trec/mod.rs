//! TREC files: relevance judgments (qrels) and runs. Also the evaluation of a run with trec_eval's measures.

mod evaluate;
mod files;
mod measure;

pub use evaluate::{Evaluation, Options, evaluate};
pub use files::{Qrels, Run, read_qrels, read_run, write_qrels, write_run};
pub use measure::{Measure, parse_measures};
