//! Judgments and runs in the files of TREC, and what trec_eval prints of them.

mod evaluate;
mod measure;
mod read;
mod write;

pub use evaluate::{Evaluation, Options, evaluate};
pub use measure::{Measure, asked};
pub use read::{Qrels, Run, read_qrels, read_run};
pub use write::{write_qrels, write_run};
