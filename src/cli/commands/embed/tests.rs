//! Tests of `turnwise embed` with a test encoder.

use std::{fs, io::Write, path::PathBuf};

use clap::Parser;

use super::*;
use crate::cli::{
    args::{Cli, Command},
    printer::Printer,
    settings::Settings,
};
use turnwise_core::error::Class;
use turnwise_encoder::testing::{DIM, HashEncoder};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Runs `turnwise embed`. A word such as `@in.txt` in `line` becomes the path of that file in the test folder.
    fn embed_with(&self, line: &str, encoder: fn() -> HashEncoder) -> Result<Summary> {
        let words = line.split_whitespace().map(|word| match word.strip_prefix('@') {
            Some(name) => self.path(name).display().to_string(),
            None => word.to_owned(),
        });
        let fixed = ["turnwise", "embed", "-q", "--no-progress"].map(str::to_owned);
        let cli = Cli::try_parse_from(fixed.into_iter().chain(words)).unwrap();
        let Command::Embed(args) = cli.command else { panic!("another command") };
        let mut settings = Settings::resolve(&cli.global).unwrap();
        settings.encode_batch = 3;
        let printer = Printer::new(&settings, &cli.global);
        let context = Context { settings, printer: &printer, command_line: "test" };
        embed(&args, &|_, _| Ok(Box::new(encoder())), &context)
    }

    fn embed(&self, line: &str) -> Result<Summary> {
        self.embed_with(line, HashEncoder::default)
    }

    /// Reads the ids and vectors of a JSONL file.
    fn read(&self, name: &str) -> Vec<(String, Vec<f32>)> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        let record = |line: &str| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let row = record["embedding"].as_array().unwrap();
            let row = row.iter().map(|n| n.to_string().parse().unwrap()).collect();
            (record["id"].as_str().unwrap().to_owned(), row)
        };
        text.lines().map(record).collect()
    }

    fn ids(&self, name: &str) -> Vec<String> {
        self.read(name).into_iter().map(|(id, _)| id).collect()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn vector(text: &str) -> Vec<f32> {
    HashEncoder::default().vector(text).to_vec()
}

const DIALOGUES: &str = r#"{"id":"a","turns":[{"speaker":"Ann","role":"user","text":"hello there"},{"speaker":"Bob","role":"agent","text":""}]}
{"id":"b#1","turns":[{"number":4,"speaker":"Ann","role":"user","text":"good bye"}]}
"#;

#[test]
fn lines_become_vectors_in_their_order() {
    let f = Folder::new();
    let texts: Vec<String> = (1..=20).map(|n| format!("line {n}")).collect();
    f.write("in.txt", texts.join("\n") + "\n\nlast one");
    let summary = f.embed("@in.txt -o @out.jsonl").unwrap();
    assert_eq!((summary.vectors, summary.dim, summary.spent.tokens, summary.spent.unknown), (22, DIM, 42, 1));
    assert_eq!(summary.read_as, [("lines", 1)].into());
    let expected = texts.iter().map(String::as_str).chain(["", "last one"]).enumerate();
    let expected: Vec<_> = expected.map(|(n, text)| ((n + 1).to_string(), vector(text))).collect();
    assert_eq!(f.read("out.jsonl"), expected);
}

#[test]
fn the_format_is_detected_from_the_content() {
    let f = Folder::new();
    f.write("texts.jsonl", "{\"id\":\"x\",\"text\":\"one two\"}\n{\"text\":\"three\"}\n");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(DIALOGUES.as_bytes()).unwrap();
    f.write("corpus/all.jsonl.gz", packed.finish().unwrap());
    f.write("plain.txt", "one two\n");
    let summary = f.embed("@texts.jsonl @corpus @plain.txt -o @out.jsonl").unwrap();
    assert_eq!(summary.read_as, [("jsonl", 1), ("lines", 1), ("texts-jsonl", 1)].into());
    let texts = f.path("texts.jsonl").display().to_string();
    let plain = f.path("plain.txt").display().to_string();
    assert_eq!(
        f.read("out.jsonl"),
        [
            ("x".to_owned(), vector("one two")),
            (format!("{texts}:2"), vector("three")),
            ("a#1".to_owned(), vector("hello there")),
            ("a#2".to_owned(), vector("")),
            ("b#1#4".to_owned(), vector("good bye")),
            (format!("{plain}:1"), vector("one two")),
        ]
    );
    // An explicit format has priority over the detected format.
    f.embed("@texts.jsonl --from lines -o @raw.jsonl").unwrap();
    assert_eq!(f.read("raw.jsonl")[1], ("2".to_owned(), vector("{\"text\":\"three\"}")));
}

#[test]
fn dialogues_become_one_vector_each() {
    let f = Folder::new();
    f.write("in.jsonl", DIALOGUES);
    let summary = f.embed("@in.jsonl --of dialogues -o @out.jsonl").unwrap();
    assert_eq!((summary.vectors, summary.unit), (2, "dialogues"));
    assert_eq!(f.read("out.jsonl")[0], ("a".to_owned(), vector("<user> hello there <agent> ")));
    assert_eq!(f.ids("out.jsonl"), ["a", "b#1"]);
    f.write("in.txt", "only lines\nno speakers\n");
    let e = f.embed("@in.txt --of dialogues -o @none.jsonl").err().unwrap();
    assert!(e.class() == Class::Input && e.to_string().contains("--of dialogues needs dialogues"), "{e}");
}

#[test]
fn vectors_are_cut_and_scaled_as_asked() {
    let f = Folder::new();
    f.write("in.txt", "some words here\n\n");
    f.embed("@in.txt --dim 5 --normalize -o @out.jsonl").unwrap();
    let mut expected = vector("some words here")[..5].to_vec();
    turnwise_core::vectors::normalize(&mut expected);
    let got = f.read("out.jsonl");
    assert_eq!((&got[0].1, &got[1].1), (&expected, &vec![0.0; 5]));
    let e = f.embed("@in.txt --dim 17 -o @out.jsonl").err().unwrap();
    assert!(e.to_string().contains("--dim 17 is larger than the 16 dimensions"), "{e}");
}

#[test]
fn bad_records_are_rejected_and_the_rest_keeps_ids_and_order() {
    let f = Folder::new();
    f.write(
        "in.jsonl",
        b"{\"id\":\"a\",\"text\":\"x\"}\n{oops\n{\"id\":\"b\"}\n\xff\n{\"id\":\"c\",\"text\":\"z\"}\n",
    );
    let summary = f.embed("@in.jsonl -o @out.jsonl").unwrap();
    assert_eq!((summary.vectors, summary.rejected), (2, 3));
    assert_eq!(f.read("out.jsonl"), [("a".to_owned(), vector("x")), ("c".to_owned(), vector("z"))]);

    fs::remove_file(f.path("out.jsonl")).unwrap();
    let e = f.embed("@in.jsonl -o @out.jsonl --max-errors 2").err().unwrap();
    assert_eq!(e.class(), Class::Data);
    assert!(e.to_string().contains("in.jsonl:4: invalid UTF-8 at byte 1"), "{e}");
    assert!(e.hint().unwrap().contains("--max-errors"), "{e:?}");
    assert_eq!(f.names(), ["in.jsonl"]);
}

#[test]
fn a_truncated_archive_gives_the_texts_before_the_damage() {
    let f = Folder::new();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    (0..5000).for_each(|n| writeln!(packed, "this is line {n}").unwrap());
    let packed = packed.finish().unwrap();
    f.write("in.txt.gz", &packed[..packed.len() / 2]);
    let summary = f.embed("@in.txt.gz -o @out.jsonl").unwrap();
    assert_eq!(summary.damaged_files, 1);
    assert!(summary.vectors > 1000 && f.read("out.jsonl").len() as u64 == summary.vectors);
}

#[test]
fn nothing_is_written_after_a_failure() {
    let f = Folder::new();
    f.write("in.txt", (0..100).map(|n| format!("line {n}\n")).collect::<String>());
    for out in ["v.npy", "v.safetensors", "v.jsonl", "v.arrow"] {
        let failing = || HashEncoder { fail_on: Some("line 50"), ..HashEncoder::default() };
        assert!(f.embed_with(&format!("@in.txt -o @{out}"), failing).is_err());
        assert_eq!(f.names(), ["in.txt"], "{out}");
    }
}

#[test]
fn invalid_input_is_refused_before_the_model_is_loaded() {
    let f = Folder::new();
    f.write("in.jsonl", DIALOGUES);
    f.write("out.ids.txt", "some texts\nof mine\n");
    f.write("empty.txt", "");
    f.write("other.json", "{\"query\":\"x\"}\n");
    let cases = [
        ("@in.jsonl -o @in.jsonl", "is an input file and would be overwritten"),
        ("@out.ids.txt -o @out.npy", "is an input file and would be overwritten"),
        ("@in.jsonl -o @vectors", "is not a known vector format"),
        ("@in.jsonl -o - --to npy", "npy needs a file"),
        ("@empty.txt -o @out.npy", "is empty"),
        ("@none.txt -o @out.npy", "cannot open"),
        ("@other.json -o @out.npy", "looks like JSON"),
        ("@in.jsonl --from lnes -o @out.npy", "unknown format `lnes`"),
    ];
    for (line, text) in cases {
        let e = f.embed(line).err().unwrap();
        assert!(e.to_string().contains(text), "{line}: {e}");
    }
    assert_eq!(
        f.embed("@in.jsonl --from lnes -o @out.npy").err().unwrap().hint().unwrap(),
        "did you mean `lines`?"
    );
    assert_eq!(fs::read_to_string(f.path("in.jsonl")).unwrap(), DIALOGUES);
}
