//! IRC logs with annotated reply links (irc-disentanglement, #ubuntu and others): `X.ascii.txt` or `X.raw.txt`, with
//! `X.annotation.txt` in the same folder.
//!
//! A channel contains many conversations at the same time. The annotation starts at some message (usually number
//! 1000), and links each message to the messages that it answers. A conversation is a connected component of the links.
//! The numbers in links are line numbers in the log, counted from 0.
//!
//! Every message is a separate turn. Actions (`* nick waves`) are turns with the act `action`. The times of a log have
//! only hours and minutes. The first annotated message gets the date in the file name. Logs up to 2007 have a 12-hour
//! clock, so the times of their turns can be half a day early.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::formats::irc_log::{self, Clock, Links, LogLine, link};
use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "ubuntu-irc",
    about: "IRC logs with reply links (irc-disentanglement): X.ascii.txt or X.raw.txt, with X.annotation.txt in the same folder",
    sniff,
    read,
};

const LOG_EXTENSIONS: [&str; 2] = [".ascii.txt", ".raw.txt"];

fn sniff(probe: &Probe<'_>) -> Fit {
    let name = probe.file_name();
    if let Some(log) = LOG_EXTENSIONS.iter().find(|extension| name.ends_with(*extension)) {
        let lines: Vec<_> = probe.lines().take(20).collect();
        let fitting = lines.iter().filter(|line| irc_log::is_log_line(line)).count();
        // A log can contain other lines, for example from pasted text.
        if lines.is_empty() || fitting * 2 < lines.len() {
            return Fit::No;
        }
        let has_companion = |extension| probe.path.and_then(|path| companion(path, extension)).is_some();
        return match *log {
            // The two files contain the same log. If both were read, every conversation would be read twice.
            ".raw.txt" if has_companion(".ascii.txt") => Fit::Companion,
            _ if has_companion(".annotation.txt") => Fit::Yes,
            _ => Fit::Maybe,
        };
    }
    let links = || {
        let mut lines = probe.lines().take(20).peekable();
        lines.peek().is_some() && lines.all(|line| link(line).is_some())
    };
    let tokens = || probe.lines().take(20).any(|line| line.starts_with("<s> "));
    match name.as_str() {
        n if n.ends_with(".annotation.txt") && links() => Fit::Companion,
        n if n.ends_with(".tok.txt") && tokens() => Fit::Companion,
        _ => Fit::No,
    }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let options = options.clone();
    // A log is small, so the whole log is read at once.
    Ok(Box::new(std::iter::once(input).flat_map(move |input| read_log(input, &options))))
}

/// Returns the path of the file with the same name as a log but with the given extension. The file can be compressed.
/// Returns `None` if there is no such file.
fn companion(log: &Path, extension: &str) -> Option<PathBuf> {
    let stem = stem(log)?;
    ["", ".gz", ".zst"]
        .iter()
        .map(|packed| log.with_file_name(format!("{stem}{extension}{packed}")))
        .find(|p| p.exists())
}

/// Returns the file name of a log without its extensions.
fn stem(log: &Path) -> Option<&str> {
    let name = log.file_name()?.to_str()?.trim_end_matches(".gz").trim_end_matches(".zst");
    let known = LOG_EXTENSIONS.iter().find_map(|extension| name.strip_suffix(extension));
    Some(known.unwrap_or_else(|| name.trim_end_matches(".txt")))
}

/// An annotated message.
struct Message {
    nick: String,
    text: String,
    act: Option<&'static str>,
    /// Time of the message in minutes, from [`Clock::run`]. `None` if the line has no time.
    minute: Option<i64>,
}

/// The annotated messages of a log file.
#[derive(Default)]
struct Log {
    /// The messages by line number, counted from 0.
    messages: BTreeMap<u64, Message>,
    /// Midnight of the date in the file name, in minutes on the scale of [`Clock::run`].
    midnight: Option<i64>,
    /// Number of lines that were read, including invalid lines.
    lines: u64,
    /// The problem of the file, if the log could not be read to its end.
    broken: Option<Problem>,
}

impl Log {
    fn read(input: Input, options: &ReadOptions, links: &Links, problems: &mut Vec<Problem>) -> Self {
        let path = input.name.clone();
        let mut lines = Lines::new(input.into_stream(), options.max_record);
        let mut clock = Clock::default();
        let mut log = Log::default();
        while let Some(line) = lines.next_line() {
            let number = log.lines;
            let annotated = links.named.contains_key(&number);
            if let Err(e @ LineError::Broken { .. }) = line {
                log.broken = Some(support::line_problem(&path, e));
                break;
            }
            log.lines += 1;
            let line = match line {
                Ok(line) => line,
                Err(e) => {
                    // An invalid line that is not part of a conversation is ignored.
                    problems.extend(annotated.then(|| support::line_problem(&path, e)));
                    continue;
                }
            };
            let (time, kind) = irc_log::parse(line.text);
            let minute = time.map(|time| clock.run(time));
            if log.midnight.is_none() && links.first.is_some_and(|first| number >= first) {
                log.midnight = clock.now().map(|(minute, time)| minute - time);
            }
            match kind {
                LogLine::Message(message) if annotated && !message.text.is_empty() => {
                    let (nick, text) = (message.nick.to_owned(), message.text.to_owned());
                    log.messages.insert(number, Message { nick, text, act: message.act, minute });
                }
                LogLine::Unknown if annotated && !line.text.trim().is_empty() => {
                    let reason = "the line is annotated, but it is neither a message ([03:41] <nick> text) nor a notice (===)";
                    problems.push(RecordError::new(reason).at(&path, line.number));
                }
                _ => {}
            }
        }
        log
    }
}

/// Reads a log with its reply links. Returns the conversations and all problems.
fn read_log(input: Input, options: &ReadOptions) -> Vec<Result<Dialogue, Problem>> {
    let name = input.name.clone();
    let unreadable = |reason: String| vec![Err(support::file_problem(&name, None, reason))];
    let Some((path, stem)) =
        input.path.clone().and_then(|path| Some((path.clone(), stem(&path)?.to_owned())))
    else {
        return unreadable(
            "the reply links are in a separate file next to the log; pass the log by its path".to_owned(),
        );
    };
    let Some(annotation) = companion(&path, ".annotation.txt") else {
        return unreadable(format!(
            "the reply links are missing: there is no {stem}.annotation.txt in the same folder"
        ));
    };
    let mut problems = Vec::new();
    let links = match Links::read(&annotation, &mut problems) {
        Ok(links) => links,
        Err(e) => return unreadable(format!("the reply links cannot be read: {e}")),
    };
    let split = input.folder_name();
    let log = Log::read(input, options, &links, &mut problems);
    if log.broken.is_none() {
        for (message, line) in links.named.range(log.lines..) {
            let reason = format!(
                "message {message} is not in the log; the log ends with message {}",
                log.lines.saturating_sub(1)
            );
            problems.push(RecordError::new(reason).at(&annotation.display().to_string(), *line));
        }
    }
    let date = stem.get(..10).and_then(|date| date.parse().ok());
    let builder = Builder { stem, date, split, links: &links, log: &log, strip_nicks: options.strip_nicks };
    let dialogues: Vec<_> =
        links.conversations().iter().filter_map(|c| builder.dialogue(c, &name).transpose()).collect();
    problems.into_iter().map(Err).chain(dialogues).chain(log.broken.map(Err)).collect()
}

/// Builder of dialogues from the conversations in a log.
struct Builder<'a> {
    stem: String,
    /// The date in the file name.
    date: Option<jiff::civil::Date>,
    split: Option<String>,
    links: &'a Links,
    log: &'a Log,
    strip_nicks: bool,
}

impl Builder<'_> {
    /// Builds the dialogue of a conversation. Returns `None` if the conversation has no messages, or if its end could
    /// not be read.
    fn dialogue(&self, conversation: &BTreeSet<u64>, path: &str) -> Result<Option<Dialogue>, Problem> {
        let messages: Vec<_> = conversation
            .iter()
            .filter_map(|number| Some((*number, self.log.messages.get(number)?)))
            .collect();
        let cut_off =
            self.log.broken.is_some() && conversation.last().is_some_and(|last| *last >= self.log.lines);
        let (Some(first), false, false) = (conversation.first(), messages.is_empty(), cut_off) else {
            return Ok(None);
        };
        let at = |e: RecordError| e.at(path, first + 1);
        let id = DialogueId::new(format!("{}:{first}", self.stem)).map_err(|e| at(e.into()))?;
        let mut dialogue = support::dialogue(id, "ubuntu-irc", Some("en"));
        dialogue.note("split", self.split.as_deref().filter(|s| ["train", "dev", "test"].contains(s)));
        let nicks: BTreeSet<&str> = messages.iter().map(|(_, message)| message.nick.as_str()).collect();
        let turn_of: BTreeMap<u64, u64> = messages.iter().map(|(number, _)| *number).zip(1..).collect();
        for (number, message) in &messages {
            let text = if self.strip_nicks { strip(&message.text, &nicks) } else { &message.text };
            let turn = dialogue.push(&message.nick, Role::Participant, text);
            turn.time = self.time(message);
            turn.acts.extend(message.act.map(str::to_owned));
            let neighbors = self.links.neighbors.get(number).into_iter().flatten();
            let answered: BTreeSet<&u64> = neighbors.filter(|n| *n < number).collect();
            let answered: Vec<u64> = answered.into_iter().filter_map(|n| turn_of.get(n).copied()).collect();
            turn.note("replies_to", answered);
        }
        dialogue.time = dialogue.turns.first().and_then(|turn| turn.time);
        support::checked(dialogue).map(Some).map_err(at)
    }

    fn time(&self, message: &Message) -> Option<Time> {
        let since = message.minute? - self.log.midnight?;
        let midnight = self.date?.to_datetime(jiff::civil::Time::midnight());
        Time::from_civil(midnight.checked_add(jiff::SignedDuration::from_mins(since)).ok()?)
    }
}

/// Removes the names of participants from the start of a text. For example, `bob: amy, try that` becomes `try that`.
/// The last word of a text is never removed.
fn strip<'a>(text: &'a str, nicks: &BTreeSet<&str>) -> &'a str {
    let mut rest = text;
    while let Some((word, after)) = rest.split_once(char::is_whitespace) {
        let Some(nick) = word.strip_suffix([':', ',']) else {
            break;
        };
        let after = after.trim_start();
        if after.is_empty() || !nicks.iter().any(|n| n.eq_ignore_ascii_case(nick)) {
            break;
        }
        rest = after;
    }
    rest
}

#[cfg(test)]
mod tests {
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

    /// Reads a log. Returns the dialogues, and the problems as texts with file names instead of full paths.
    fn read(path: &Path, options: &ReadOptions) -> (Vec<Dialogue>, Vec<String>) {
        let (mut dialogues, mut problems) = (Vec::new(), Vec::new());
        for item in FORMAT.read(Input::open(path).unwrap(), options).unwrap() {
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
        let (_dir, path) =
            folder(LOG.as_bytes(), "0 1 -\n1 3 - \n2 2 -\n4 4 -\n5 5 -\n3 6 -\n1 7 -\n6 7 -\n");
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
        // Message 1 is the first annotated message, so its date is the date in the file name.
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
        let fit = |path: &Path| sniff(&Input::open(path).unwrap().probe());
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
}
