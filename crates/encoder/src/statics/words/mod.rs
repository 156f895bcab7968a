//! Word vectors: read from the formats of GloVe and word2vec, averaged or weighted.

mod binary;
mod encoder;
mod lookup;
mod read;
mod sif;
mod table;
mod text;

pub(super) use encoder::KIND;
pub use encoder::WordEncoder;
pub use read::{WordFormat, WordReading, WordSettings, read_words, read_words_from};
pub use table::WordTable;
