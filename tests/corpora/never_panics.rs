//! Tests with damaged and random files. No reader may panic or loop forever, and every dialogue that a reader returns
//! must be valid.

use std::{
    fs,
    io::Cursor,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use proptest::prelude::*;
use turnwise_corpus::{
    formats::{self, Dialogues, ReadOptions},
    input::Input,
};

/// Returns the path and the content of all files in `fixtures/`, which are small valid files of every format.
fn fixtures() -> &'static [(PathBuf, Vec<u8>)] {
    static FILES: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpora/fixtures")];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = fs::read(&path).unwrap();
                    assert!(bytes.len() < 64 * 1024, "{} is too large for a fixture", path.display());
                    files.push((path, bytes));
                }
            }
        }
        files.sort();
        files
    })
}

/// Detects the format of a file from its name and its beginning.
fn sniffed(path: &Path, bytes: &[u8]) -> Option<&'static str> {
    let stream = Box::new(Cursor::new(bytes.to_vec()));
    let input = Input::from_stream("fixture".into(), Some(path.to_owned()), stream).unwrap();
    formats::sniff(&input.probe()).map(|(format, _)| format.name)
}

#[test]
fn every_format_has_a_fixture() {
    let detected: Vec<_> = fixtures().iter().filter_map(|(path, bytes)| sniffed(path, bytes)).collect();
    let missing: Vec<_> =
        formats::all().iter().map(|f| f.name).filter(|name| !detected.contains(name)).collect();
    assert_eq!(missing, [""; 0]);
}

/// A change that damages a file. Positions are in thousandths of its length.
#[derive(Debug, Clone)]
enum Damage {
    Cut(usize),
    Remove(usize, usize),
    Replace(usize, u8),
    Insert(usize, Vec<u8>),
    /// Copies a piece to a different position.
    Copy(usize, usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = || 0..1000usize;
    // Characters with a meaning in some format are more likely to cause errors than random bytes.
    let telling: Vec<&[u8]> = vec![
        b"\"",
        b"{",
        b"}",
        b"[",
        b"]",
        b"\\",
        b"\n",
        b"\r\n",
        b"\n\n",
        b"\t",
        b":",
        b": ",
        b",",
        b"<",
        b">",
        b"#",
        b"---\n",
        b"null",
        b"-1",
        b"99999999999999999999",
        b"1e400",
        b"\0",
        b"\xff",
        b"\xe2\x80",
        "\u{202f}".as_bytes(),
        "\u{200e}".as_bytes(),
        "：".as_bytes(),
        "é".as_bytes(),
        "𝄞".as_bytes(),
        b"\"ts\":\"9223372036854775807.9\"",
        b"31/02/0000, 99:99 - ",
        b"[1/1/1, 1:1:1",
        b"[2026-99-99 09:14] A: x\n",
    ];
    let bytes = prop_oneof![
        4 => prop::sample::select(telling).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 1..20),
    ];
    prop_oneof![
        1 => place().prop_map(Damage::Cut),
        2 => (place(), 1..40usize).prop_map(|(at, n)| Damage::Remove(at, n)),
        2 => (place(), any::<u8>()).prop_map(|(at, b)| Damage::Replace(at, b)),
        4 => (place(), bytes).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        1 => (place(), place(), 1..200usize).prop_map(|(from, to, n)| Damage::Copy(from, to, n)),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let length = bytes.len();
    let at = |place: usize| place * length / 1000;
    match damage {
        Damage::Cut(place) => bytes.truncate(at(*place)),
        Damage::Remove(place, n) => _ = bytes.drain(at(*place)..(at(*place) + n).min(length)),
        Damage::Replace(place, b) => _ = bytes.get_mut(at(*place)).map(|old| *old = *b),
        Damage::Insert(place, new) => _ = bytes.splice(at(*place)..at(*place), new.iter().copied()),
        Damage::Copy(from, to, n) => {
            let piece = bytes[at(*from)..(at(*from) + n).min(length)].to_vec();
            bytes.splice(at(*to)..at(*to), piece);
        }
    }
}

/// Reads all dialogues and checks each of them.
fn exhaust(dialogues: Dialogues, what: &str) {
    const FAR_TOO_MANY: usize = 1_000_000;
    let mut items = 0;
    for item in dialogues {
        items += 1;
        assert!(items < FAR_TOO_MANY, "{what} does not come to an end");
        if let Ok(mut dialogue) = item {
            assert!(dialogue.check().is_ok(), "{what}: {dialogue:?}");
        }
    }
}

/// Runs the detection and the reader of every format on the bytes.
fn read_in_every_format(path: &Path, bytes: &[u8]) {
    let mapped = ReadOptions { columns: Some("text=1,speaker=2".parse().unwrap()), ..ReadOptions::default() };
    let tight = ReadOptions { max_record: 100, strip_nicks: true, ..ReadOptions::default() };
    for format in formats::all() {
        for options in [&mapped, &tight] {
            let stream = Box::new(Cursor::new(bytes.to_vec()));
            // Input that is not text is refused here.
            let Ok(input) = Input::from_stream("damaged".into(), Some(path.to_owned()), stream) else {
                return;
            };
            format.sniff(&input.probe());
            if let Ok(dialogues) = format.read(input, options) {
                exhaust(dialogues, format.name);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        read_in_every_format(Path::new("any/2026-03-02.json"), &bytes);
    }

    #[test]
    fn any_text(text in "[\\[\\]{}\":,<>#@|&\\-=\\\\/ \n\t0-9a-zA-Zéß客：\u{202f}\u{200e}]{0,300}") {
        read_in_every_format(Path::new("any/_chat.txt"), text.as_bytes());
    }

    #[test]
    fn damaged_files(which in any::<prop::sample::Index>(), damages in prop::collection::vec(damage(), 0..6)) {
        let (path, bytes) = which.get(fixtures());
        let mut bytes = bytes.clone();
        damages.iter().for_each(|d| apply(&mut bytes, d));
        read_in_every_format(path, &bytes);
    }

    #[test]
    fn damaged_archives(which in any::<prop::sample::Index>(), damages in prop::collection::vec(damage(), 1..4), gz: bool) {
        let (path, bytes) = which.get(fixtures());
        let mut packed = if gz {
            let mut encoder = flate2::read::GzEncoder::new(&bytes[..], flate2::Compression::fast());
            let mut packed = Vec::new();
            std::io::Read::read_to_end(&mut encoder, &mut packed).unwrap();
            packed
        } else {
            zstd::encode_all(&bytes[..], 1).unwrap()
        };
        damages.iter().for_each(|d| apply(&mut packed, d));
        read_in_every_format(path, &packed);
    }

    #[test]
    fn damaged_folders(which in any::<prop::sample::Index>(), damages in prop::collection::vec(damage(), 1..4)) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpora/fixtures/slack");
        let files: Vec<_> = fixtures().iter().filter(|(path, _)| path.starts_with(&root)).collect();
        let spoilt = which.index(files.len());
        let dir = tempfile::tempdir().unwrap();
        for (n, (path, bytes)) in files.iter().enumerate() {
            let mut bytes = bytes.clone();
            if n == spoilt {
                damages.iter().for_each(|d| apply(&mut bytes, d));
            }
            let copy = dir.path().join(path.strip_prefix(&root).unwrap());
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::write(copy, bytes).unwrap();
        }
        for format in formats::all() {
            format.claims_folder(dir.path());
            if let Ok(dialogues) = format.read_folder(dir.path(), &ReadOptions::default()) {
                exhaust(dialogues, format.name);
            }
        }
    }
}
