use std::fs;

use super::*;

const LOG: &str = "\
[23:58] <amy> my disk is full
[23:59] <bob> Amy: which one?
=== cat has joined #room
[00:00] <amy> bob, the old one
[00:01] <cat> anyone here?
[00:02] <amy>
[00:02]  * bob thinks
[00:03] <bob> amy: amy, cat: delete something
some stray line
";

/// Writes a log and its links to a folder named after a split.
fn folder(log: &[u8], links: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dev/2010-05-02_00.ascii.txt");
    fs::create_dir(dir.path().join("dev")).unwrap();
    fs::write(&path, log).unwrap();
    fs::write(path.with_file_name("2010-05-02_00.annotation.txt"), links).unwrap();
    (dir, path)
}

/// Reads a log. Returns the dialogues, and the problems with only the file name of the path.
fn read(path: &Path, options: &ReadOptions) -> (Vec<Dialogue>, Vec<String>) {
    let (mut dialogues, mut problems) = (Vec::new(), Vec::new());
    for item in UbuntuIrc.read(Input::open(path).unwrap(), options).unwrap() {
        match item {
            Ok(dialogue) => dialogues.push(dialogue),
            Err(Problem::Record(r) | Problem::File(r)) => {
                problems.push(r.to_string().rsplit('/').next().unwrap().to_owned());
            }
        }
    }
    (dialogues, problems)
}

#[test]
fn links_make_conversations() {
    let (_dir, path) = folder(LOG.as_bytes(), "0 1 -\n1 3 - \n2 2 -\n4 4 -\n5 5 -\n3 6 -\n1 7 -\n6 7 -\n");
    let (dialogues, problems) = read(&path, &ReadOptions::default());
    assert_eq!(problems, Vec::<String>::new());
    let ids: Vec<_> = dialogues.iter().map(|d| d.id.as_str()).collect();
    // A single notice or empty message is not a conversation.
    assert_eq!(ids, ["2010-05-02_00:0", "2010-05-02_00:4"]);
    let [first, second] = &dialogues[..] else { panic!("two") };
    assert_eq!(first.speakers(), ["amy", "bob"]);
    assert_eq!(first.metadata["split"], "dev");
    assert_eq!(first.source, "ubuntu-irc");
    assert_eq!(first.turns.len(), 5);
    assert_eq!(first.turns[0].role, Some(Role::Participant));
    assert_eq!(first.turns[1].metadata["replies_to"], serde_json::json!([1]));
    assert_eq!(
        (first.turns[3].text.as_str(), &first.turns[3].acts[..]),
        ("thinks", &["action".to_owned()][..])
    );
    assert_eq!(first.turns[4].metadata["replies_to"], serde_json::json!([2, 4]));
    assert_eq!(first.turns[4].text, "amy: amy, cat: delete something");
    // Message 1 is the first annotated one, so its date is the date in the file name.
    assert_eq!(first.time.unwrap().to_string(), "2010-05-02T23:58:00Z");
    assert_eq!(second.time.unwrap().to_string(), "2010-05-03T00:01:00Z");
}

#[test]
fn nicks_of_participants_are_stripped_on_request() {
    let (_dir, path) = folder(LOG.as_bytes(), "0 1 -\n1 3 -\n1 7 -\n");
    let (dialogues, _) = read(&path, &ReadOptions { strip_nicks: true, ..ReadOptions::default() });
    let texts: Vec<_> = dialogues[0].turns.iter().map(|t| t.text.as_str()).collect();
    // `cat` is not a participant.
    assert_eq!(texts, ["my disk is full", "which one?", "the old one", "cat: delete something"]);
    assert_eq!(strip("bob:", &["bob"].into()), "bob:");
    assert_eq!(strip("bob://x y", &["bob"].into()), "bob://x y");
}

#[test]
fn invalid_links_and_lines_are_reported() {
    let (_dir, path) = folder(LOG.as_bytes(), "0 1 -\n4 four -\n4 4\n8 8 -\n4 30 -\n");
    let (dialogues, problems) = read(&path, &ReadOptions::default());
    assert_eq!(dialogues.len(), 2);
    assert_eq!(
        problems,
        [
            "2010-05-02_00.annotation.txt:2: this is not a reply link; a link is two message numbers and a dash: 1002 1003 -",
            "2010-05-02_00.ascii.txt:9: the line is annotated, but it is neither a message ([03:41] <nick> text) nor a notice (===)",
            "2010-05-02_00.annotation.txt:5: message 30 is not in the log; the log ends with message 8",
        ]
    );
}

#[test]
fn invalid_utf8_rejects_only_its_line() {
    let (_dir, path) =
        folder(b"[10:00] <amy> one\n[10:01] <bob> \xff\n[10:02] <amy> two\n", "0 1 -\n1 2 -\n");
    let (dialogues, problems) = read(&path, &ReadOptions::default());
    assert_eq!(dialogues[0].turns.len(), 2);
    assert_eq!(problems, ["2010-05-02_00.ascii.txt:2: invalid UTF-8 at byte 15 of the line"]);
}

#[test]
fn a_truncated_log_gives_its_complete_conversations() {
    let (_dir, path) = folder(b"", "0 1 -\n2 19999 -\n");
    let log: String =
        (0..20_000).map(|n| format!("[10:00] <amy> {}\n", blake3::hash(&[n as u8, 3]))).collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, log.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let path = path.with_file_name("2010-05-02_00.ascii.txt.gz");
    fs::write(&path, &packed[..packed.len() / 2]).unwrap();
    let (dialogues, problems) = read(&path, &ReadOptions::default());
    assert_eq!(dialogues.iter().map(|d| d.id.as_str()).collect::<Vec<_>>(), ["2010-05-02_00:0"]);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].ends_with("the compressed file ends early: it is truncated"), "{problems:?}");
}

#[test]
fn missing_links_are_reported() {
    let (dir, path) = folder(LOG.as_bytes(), "");
    fs::remove_file(dir.path().join("dev/2010-05-02_00.annotation.txt")).unwrap();
    let (_, problems) = read(&path, &ReadOptions::default());
    assert_eq!(
        problems,
        [
            "2010-05-02_00.ascii.txt: the reply links are missing: there is no 2010-05-02_00.annotation.txt in the same folder"
        ]
    );
}

#[test]
fn logs_and_companions_are_detected() {
    let (_dir, path) = folder(LOG.as_bytes(), "0 1 -\n");
    let fit = |path: &Path| UbuntuIrc.sniff(&Input::open(path).unwrap().probe());
    assert_eq!(fit(&path), Fit::Yes);
    assert_eq!(fit(&path.with_file_name("2010-05-02_00.annotation.txt")), Fit::Companion);
    let raw = path.with_file_name("2010-05-02_00.raw.txt");
    fs::write(&raw, LOG).unwrap();
    assert_eq!(fit(&raw), Fit::Companion);
    fs::remove_file(&path).unwrap();
    assert_eq!(fit(&raw), Fit::Yes);
    let other = path.with_file_name("notes.ascii.txt");
    fs::write(&other, "Dear diary,\nnothing.\n").unwrap();
    assert_eq!(fit(&other), Fit::No);
}
