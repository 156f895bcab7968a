//! The readers against the real data sets: counts from their READMEs and the papers. Each test unpacks what it needs
//! from `../shared/data` and skips, saying so, where that is absent.

mod chats;
mod data;
mod never_panics;
