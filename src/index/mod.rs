//! Search indexes over the utterances. All of them derive from the store and can be made anew.

#[cfg(feature = "lexical")]
pub mod lexical;
pub mod vectors;
