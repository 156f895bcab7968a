//! The default model against vectors of sentence-transformers that are stored here, for machines without Python.
//!
//! `TURNWISE_WRITE_FIXTURE=1 cargo test --test agreement stored` writes them anew, where the packages are.

use std::{fs, path::PathBuf};

use crate::{
    support::{CLOSE, Peers, Rows, Work, default_model, jsonl},
    texts,
};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/agreement")).join(name)
}

/// A line that tells for which texts the vectors are.
fn of_texts(texts: &[String]) -> String {
    format!("texts blake3 {}", blake3::hash(jsonl(texts).as_bytes()))
}

#[test]
fn the_stored_vectors_are_those_of_the_texts() {
    let texts = texts::stored();
    if std::env::var_os("TURNWISE_WRITE_FIXTURE").is_some() {
        let test = "the_stored_vectors_are_those_of_the_texts";
        let (peers, model) = (Peers::find(test).unwrap(), default_model(test).unwrap());
        let work = Work::new();
        peers.vectors(&work, model, &work.texts("texts.jsonl", &texts));
        fs::create_dir_all(fixture("")).unwrap();
        fs::copy(work.path("peers.npy"), fixture("minilm.npy")).unwrap();
        let weights = blake3::hash(&fs::read(model.join("model.safetensors")).unwrap());
        let about = format!(
            "Vectors of all-MiniLM-L6-v2 by sentence-transformers, f32, for texts::stored() of tests/agreement.\n\
             {}\nweights blake3 {weights}\n{}",
            of_texts(&texts),
            peers.reference(&["versions"]),
        );
        fs::write(fixture("minilm.txt"), about).unwrap();
    }
    let about = fs::read_to_string(fixture("minilm.txt")).unwrap();
    let wanted = of_texts(&texts);
    assert!(
        about.lines().any(|line| line == wanted),
        "texts.rs or the samples changed: write the fixture anew"
    );
    let rows = Rows::read(&fixture("minilm.npy"));
    assert_eq!((rows.count, rows.width), (texts::STORED, 384));
}

#[test]
fn the_default_model_gives_the_stored_vectors() {
    let Some(model) = default_model("the_default_model_gives_the_stored_vectors") else { return };
    let weights = blake3::hash(&fs::read(model.join("model.safetensors")).unwrap()).to_string();
    let about = fs::read_to_string(fixture("minilm.txt")).unwrap();
    assert!(
        about.contains(&weights),
        "{} holds other weights than the stored vectors are of",
        model.display()
    );
    let texts = texts::stored();
    let work = Work::new();
    let file = work.texts("texts.jsonl", &texts);
    let ours = work.embed(model, &file, &["--precision", "f32"]);
    ours.agree(&Rows::read(&fixture("minilm.npy")), CLOSE, &texts, "turnwise and the stored vectors");
}

/// The promise of each precision, on the same texts: the mean cosine.
#[test]
fn less_precision_stays_near_the_stored_vectors() {
    let Some(model) = default_model("less_precision_stays_near_the_stored_vectors") else { return };
    let texts = texts::stored();
    let work = Work::new();
    let file = work.texts("texts.jsonl", &texts);
    let stored = Rows::read(&fixture("minilm.npy"));
    for (precision, least) in [("int16", 0.9999), ("int8", 0.99)] {
        let ours = work.embed(model, &file, &["--precision", precision]);
        assert_eq!((ours.count, ours.width), (stored.count, stored.width));
        // Both have length 1.
        let dot =
            |n: usize| ours.row(n).iter().zip(stored.row(n)).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let mean = (0..ours.count).map(dot).sum::<f64>() / ours.count as f64;
        assert!(mean >= least, "{precision}: mean cosine {mean}");
    }
}
