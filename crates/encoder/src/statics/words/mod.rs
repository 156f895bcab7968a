//! Word vectors: read from GloVe and word2vec files, and averaged with or without weights.

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
