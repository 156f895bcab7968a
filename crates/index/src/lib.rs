//! Search indexes over the utterances. All of them derive from the store and can be made anew.

mod admitted;
pub mod dense;
pub mod embedded;
pub mod engine;
pub mod lexical;
pub mod sealed;
pub mod vectors;

pub use admitted::Admitted;
pub use engine::SearchModes;
