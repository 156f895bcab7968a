//! Compares the default model with stored vectors of sentence-transformers, for machines without Python.
//!
//! `TURNWISE_WRITE_FIXTURE=1 cargo test --test agreement stored` writes the vectors again (needs the Python packages).

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    support::{CLOSE, Peers, Rows, Work, default_model, jsonl},
    texts,
};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/agreement")).join(name)
}

/// Returns the line of the fixture with a hash of the texts. The hash shows whether the stored vectors belong to these
/// texts.
fn of_texts(texts: &[String]) -> String {
    format!("texts blake3 {}", blake3::hash(jsonl(texts).as_bytes()))
}

#[test]
fn the_fixture_has_a_vector_for_each_text() {
    let texts = texts::stored();
    if std::env::var_os("TURNWISE_WRITE_FIXTURE").is_some() {
        let test = "the_fixture_has_a_vector_for_each_text";
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

/// The default model runs in int8, unless `--precision` is given. A model that differs in any setting runs in 16 bits.
#[test]
fn int8_is_the_default_only_for_measured_models() {
    let Some(model) = default_model("int8_is_the_default_only_for_measured_models") else { return };
    let texts = &texts::stored()[..20];
    let work = Work::new();
    let file = work.texts("texts.jsonl", texts);
    let int8 = work.embed(model, &file, &["--precision", "int8"]);
    let unasked = work.embed(model, &file, &[]);
    unasked.agree(&int8, 0.0, texts, "the default model unasked and in int8");

    let other = work.path("other");
    copy(model, &other);
    let limit = other.join("sentence_bert_config.json");
    fs::remove_file(&limit).unwrap();
    fs::write(&limit, r#"{"max_seq_length": 200, "do_lower_case": false}"#).unwrap();
    let exact = work.embed(&other, &file, &["--precision", "f32"]);
    let unasked = work.embed(&other, &file, &[]);
    assert!(mean_cosine(&unasked, &exact) >= 0.9999);
    assert!(mean_cosine(&int8, &exact) < 0.9995);
}

/// Copies a folder. Links are replaced by the files that they point to.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Returns the mean cosine of corresponding rows, which are unit vectors.
fn mean_cosine(ours: &Rows, theirs: &Rows) -> f64 {
    assert_eq!((ours.count, ours.width), (theirs.count, theirs.width));
    let dot = |n: usize| ours.row(n).iter().zip(theirs.row(n)).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    (0..ours.count).map(dot).sum::<f64>() / ours.count as f64
}

/// Checks that the mean cosine with the stored vectors reaches the minimum for each precision.
#[test]
fn lower_precisions_are_close_to_the_stored_vectors() {
    let Some(model) = default_model("lower_precisions_are_close_to_the_stored_vectors") else { return };
    let texts = texts::stored();
    let work = Work::new();
    let file = work.texts("texts.jsonl", &texts);
    let stored = Rows::read(&fixture("minilm.npy"));
    for (precision, least) in [("int16", 0.9999), ("int8", 0.99)] {
        let ours = work.embed(model, &file, &["--precision", precision]);
        let mean = mean_cosine(&ours, &stored);
        assert!(mean >= least, "{precision}: mean cosine {mean}");
    }
}
