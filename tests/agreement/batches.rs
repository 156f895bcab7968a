//! Checks that the vector of a text does not depend on the other texts of the batch, their order or the number of
//! threads.

use crate::{
    support::{CLOSE, Work, default_model},
    texts,
};

/// Number of texts, including the unusual texts. They fill several batches.
const COUNT: usize = 400;

fn vectors_do_not_depend_on_the_batch(test: &str, precision: &str) {
    let Some(model) = default_model(test) else { return };
    let work = Work::new();
    let texts = &texts::all()[..COUNT];
    let file = work.texts("texts.jsonl", texts);
    let first = work.embed(model, &file, &["--precision", precision, "--threads", "1"]);
    for threads in ["2", "3"] {
        let rows = work.embed(model, &file, &["--precision", precision, "--threads", threads]);
        rows.agree(&first, CLOSE, texts, &format!("{precision}, {threads} threads against one"));
    }

    let reversed: Vec<&String> = texts.iter().rev().collect();
    let file = work.texts("reversed.jsonl", &reversed);
    let rows = work.embed(model, &file, &["--precision", precision]);
    rows.agree(&first.select((0..COUNT).rev()), CLOSE, &reversed, &format!("{precision}, in reversed order"));

    // Texts that are encoded alone: an empty text, a word, a long text, and some others.
    let long = texts.iter().position(|text| text.split_whitespace().count() > 400).unwrap();
    for place in [0, 21, long, COUNT - 2, COUNT - 1] {
        let alone = &texts[place..=place];
        let file = work.texts("alone.jsonl", alone);
        let rows = work.embed(model, &file, &["--precision", precision]);
        rows.agree(&first.select([place]), CLOSE, alone, &format!("{precision}, text {place} alone"));
    }
}

#[test]
fn in_f32() {
    vectors_do_not_depend_on_the_batch("batches::in_f32", "f32");
}

#[test]
fn in_int16() {
    vectors_do_not_depend_on_the_batch("batches::in_int16", "int16");
}

#[test]
fn in_int8() {
    vectors_do_not_depend_on_the_batch("batches::in_int8", "int8");
}

#[test]
fn in_bf16() {
    vectors_do_not_depend_on_the_batch("batches::in_bf16", "bf16");
}
