//! Search indexes over the utterances. All of them derive from the store and can be made anew.

mod admitted;
pub mod dense;
#[cfg(feature = "lexical")]
pub mod lexical;
pub(crate) mod sealed;
pub mod vectors;

pub use admitted::Admitted;
