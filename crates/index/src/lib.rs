//! Search indexes over utterances and dialogues. All of them are derived from the record store and can be
//! rebuilt.

mod admitted;
pub mod dense;
pub mod embedded;
pub mod engine;
pub mod lexical;
pub mod location;
pub mod sealed;
pub mod vectors;

pub use admitted::Admitted;
pub use engine::SearchModes;
