//! Tests of `turnwise encode` with a test encoder.

use std::path::Path;

use clap::Parser;

use super::*;
use crate::cli::{
    args::{Cli, Command},
    printer::Printer,
    settings::Settings,
};
use turnwise_core::{error::Class, ids::DialogueId};
use turnwise_corpus::{Dialogue, Role};
use turnwise_encoder::{testing::HashEncoder, transformer};
use turnwise_store::{Prepared, Store};

fn put(root: &Path, from: usize, to: usize) {
    let mut store = Store::open_or_create(root, "test").unwrap();
    for n in from..to {
        let mut dialogue = Dialogue::new(DialogueId::new(format!("d{n}")).unwrap());
        dialogue.push("ann", Role::User, format!("text number {n}"));
        dialogue.push("bob", Role::Agent, "one moment please");
        dialogue.check().unwrap();
        store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
    }
    store.commit(None).unwrap();
    store.close().unwrap();
}

/// Runs `turnwise encode` with a test encoder. The vectors depend on the name of the model and on `--max-tokens`.
fn run(root: &Path, line: &str) -> Result<Encoded> {
    let index = root.display().to_string();
    let fixed = ["turnwise", "encode", "-q", "--no-progress", "-i", &index];
    let cli = Cli::try_parse_from(fixed.into_iter().chain(line.split_whitespace())).unwrap();
    let Command::Encode(args) = cli.command else { panic!("another command") };
    let mut settings = Settings::resolve(&cli.global).unwrap();
    settings.encode_batch = 5;
    let printer = Printer::new(&settings, &cli.global);
    let context = Context { settings, printer: &printer, command_line: "test" };
    let open = |model: &str, how: &transformer::Settings| -> Result<Box<dyn Encoder>> {
        let salt = model.parse().unwrap_or(0) + 10 * how.tokens.max.unwrap_or(0) as u8;
        Ok(Box::new(HashEncoder { salt, ..HashEncoder::default() }))
    };
    encode(&args, &open, &context)
}

#[test]
fn an_index_remembers_what_it_was_encoded_with() {
    let dir = tempfile::tempdir().unwrap();
    let root = &dir.path().join("x");
    put(root, 0, 12);
    let done = run(root, "--model 7 --of utterances --precision int8").unwrap();
    assert_eq!((done.filled.seen, done.utterance_vectors, done.dialogue_vectors), (12, 13, 0));
    put(root, 12, 14);
    // Kinds, model and precision are taken from the first run.
    let done = run(root, "").unwrap();
    assert_eq!((done.model.as_str(), done.filled.seen, done.utterance_vectors), ("7", 2, 15));
    assert_eq!(done.dialogue_vectors, 0);
    assert_eq!(VectorReader::open(root).unwrap().unwrap().recipe().precision, "int8");
    // The dialogue mode was not chosen yet, so it can be chosen now.
    let done = run(root, "--of both --dialogue-mode utterances").unwrap();
    assert_eq!((done.filled.seen, done.utterance_vectors, done.dialogue_vectors), (14, 15, 14));
    let e = run(root, "--dialogue-mode sequence").err().unwrap();
    assert!(e.class() == Class::Input && e.to_string().contains("dialogue vectors with utterances"), "{e}");
    assert_eq!(run(root, "").unwrap().filled.seen, 0);
}

#[test]
fn token_options_are_remembered_for_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let root = &dir.path().join("x");
    put(root, 0, 12);
    run(root, "--model 7 --layers first-last=0.4,0.6 --max-tokens 9").unwrap();
    let tokens = || VectorReader::open(root).unwrap().unwrap().recipe().tokens.clone();
    assert_eq!(tokens().layers.unwrap().to_string(), "first-last=0.4,0.6");
    put(root, 12, 14);
    assert_eq!(run(root, "").unwrap().filled.seen, 2);
    assert_eq!(tokens().max, Some(9));
    assert_eq!(run(root, "--max-tokens 8").err().unwrap().class(), Class::Input);
    // A different model starts with its own token options.
    run(root, "--model 8 --replace").unwrap();
    assert_eq!(tokens(), transformer::Tokens::default());
}

#[test]
fn another_model_is_refused_with_the_command_that_would_do_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = &dir.path().join("x");
    put(root, 0, 12);
    run(root, "--model 7 --of dialogues").unwrap();
    let e = run(root, "--model 8").err().unwrap();
    assert_eq!(e.class(), Class::Input);
    let command = format!("`turnwise encode -i {} --model 8 --replace`", root.display());
    assert!(e.hint().unwrap().starts_with(&command), "{e:?}");
    let done = run(root, "--model 8 --replace").unwrap();
    assert_eq!((done.filled.dialogues, done.utterance_vectors, done.dialogue_vectors), (12, 0, 12));
    assert_eq!(run(root, "").unwrap().model, "8");
}

#[test]
fn the_summary_says_what_was_done() {
    let dir = tempfile::tempdir().unwrap();
    let root = &dir.path().join("x");
    put(root, 0, 12);
    let text = |done: &Encoded| {
        let mut out = Vec::new();
        done.write(&mut out).unwrap();
        anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string()
    };
    let said = text(&run(root, "--model 7").unwrap());
    assert!(said.starts_with("12 dialogues checked in "), "{said}");
    assert!(said.contains("          13  utterances encoded\n            12  dialogues encoded\n"), "{said}");
    assert!(said.contains("          11  already known"), "{said}");
    assert!(said.ends_with("x now has 13 utterance vectors and 12 dialogue vectors with 16 dimensions, by hashed words (f32 on cpu)\n"), "{said}");
    assert!(text(&run(root, "").unwrap()).contains("x is up to date\n"));
}
