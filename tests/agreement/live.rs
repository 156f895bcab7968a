//! Compares the default model in turnwise and in sentence-transformers on all texts.

use crate::{
    support::{CLOSE, Peers, Work, default_model},
    texts,
};

#[test]
fn the_default_model_gives_the_vectors_of_sentence_transformers() {
    let test = "the_default_model_gives_the_vectors_of_sentence_transformers";
    let (Some(peers), Some(model)) = (Peers::find(test), default_model(test)) else { return };
    let work = Work::new();
    let texts = texts::all();
    let file = work.texts("texts.jsonl", &texts);
    let theirs = peers.vectors(&work, model, &file);
    let ours = work.embed(model, &file, &["--precision", "f32"]);
    ours.agree(&theirs, CLOSE, &texts, "turnwise and sentence-transformers");
}
