//! TREC files: judgments (qrels) and runs, and their evaluation with trec_eval's measures.

mod evaluate;
mod measure;
mod read;
mod write;

pub use evaluate::{Evaluation, Options, evaluate};
pub use measure::{Measure, parse_measures};
pub use read::{Qrels, Run, read_qrels, read_run};
pub use write::{write_qrels, write_run};
