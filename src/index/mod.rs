//! Search indexes, each derived from the records and made anew whenever it is lost.

pub mod lexical;
