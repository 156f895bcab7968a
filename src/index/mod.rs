//! Search indexes over the utterances. All of them derive from the store and can be made anew.

mod admitted;
pub mod dense;
#[cfg(feature = "lexical")]
pub mod embedded;
#[cfg(feature = "lexical")]
pub mod engine;
#[cfg(feature = "lexical")]
pub mod lexical;
#[cfg(feature = "milvus")]
pub mod milvus;
pub(crate) mod sealed;
pub mod vectors;

pub use admitted::Admitted;
#[cfg(feature = "lexical")]
pub use engine::Ways;
