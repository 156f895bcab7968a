//! IRC logs with annotated reply links (irc-disentanglement, #ubuntu and others): `X.ascii.txt` or `X.raw.txt`, with
//! `X.annotation.txt` in the same folder.
//!
//! A channel contains many conversations at the same time. The annotation starts at some message (usually number
//! 1000), and links each message to those that it answers. A conversation is a connected component of the links,
//! including linked earlier messages. The numbers in links are line numbers in the log, counted from 0.
//!
//! Every line is a separate turn. Actions (`* nick waves`) are turns with the act `action`. The clock of a log has
//! only hours and minutes. The date in the file name is used for the first annotated message. Logs up to 2007 have a
//! 12-hour clock, so their times may be half a day early.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    Dialogue, Role, Time,
    formats::{
        Dialogues, Fit, Format, Problem, ReadOptions,
        irc_links::{Links, link},
        irc_log::{self, Clock, LogLine},
        support::{self, RecordError},
    },
    input::{Input, Probe},
    lines::{LineError, Lines},
};
use turnwise_core::{
    error::{Reject, Result},
    ids::DialogueId,
};

pub(super) struct UbuntuIrc;

const LOG_EXTENSIONS: [&str; 2] = [".ascii.txt", ".raw.txt"];

impl Format for UbuntuIrc {
    fn name(&self) -> &'static str {
        "ubuntu-irc"
    }

    fn about(&self) -> &'static str {
        "IRC logs with reply links (irc-disentanglement): X.ascii.txt or X.raw.txt, with X.annotation.txt in the same folder"
    }

    fn sniff(&self, probe: &Probe<'_>) -> Fit {
        let name = probe.file_name();
        if let Some(log) = LOG_EXTENSIONS.iter().find(|extension| name.ends_with(*extension)) {
            let lines: Vec<_> = probe.lines().take(20).collect();
            let fitting = lines.iter().filter(|line| irc_log::is_log_line(line)).count();
            // Pasted text can leave stray lines in a log.
            if lines.is_empty() || fitting * 2 < lines.len() {
                return Fit::No;
            }
            let has_companion = |extension| probe.path.and_then(|path| companion(path, extension)).is_some();
            return match *log {
                // The same log in a different encoding. Reading both would duplicate every conversation.
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

    fn read(&self, input: Input, options: &ReadOptions) -> Result<Dialogues> {
        let options = options.clone();
        // A log is small, and only its annotated messages are kept.
        Ok(Box::new(std::iter::once(input).flat_map(move |input| read_log(input, &options))))
    }
}

/// Returns the companion file of a log: the same name with a different extension.
fn companion(log: &Path, extension: &str) -> Option<PathBuf> {
    let stem = stem(log)?;
    ["", ".gz", ".zst"]
        .iter()
        .map(|packed| log.with_file_name(format!("{stem}{extension}{packed}")))
        .find(|p| p.exists())
}

/// Returns the name of a log without its extensions.
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
    minute: Option<i64>,
}

/// Data kept from a log.
#[derive(Default)]
struct Log {
    messages: BTreeMap<u64, Message>,
    /// The running minute at which the day in the file name starts.
    midnight: Option<i64>,
    /// Number of lines.
    lines: u64,
    /// The read error, if the end of the log cannot be read.
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
            let line = match line {
                Ok(line) => line,
                Err(e @ LineError::Broken { .. }) => {
                    log.broken = Some(support::line_problem(&path, e));
                    break;
                }
                Err(e) => {
                    // An invalid line outside all conversations is ignored.
                    if annotated {
                        problems.push(support::line_problem(&path, e));
                    }
                    log.lines += 1;
                    continue;
                }
            };
            log.lines += 1;
            let (shown, what) = irc_log::parse(line.text);
            let minute = shown.map(|shown| clock.run(shown));
            if log.midnight.is_none() && links.first.is_some_and(|first| number >= first) {
                log.midnight = clock.now().map(|(minute, shown)| minute - shown);
            }
            match what {
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

fn read_log(input: Input, options: &ReadOptions) -> Vec<Result<Dialogue, Problem>> {
    let name = input.name.clone();
    let unreadable = |reason: String| {
        vec![Err(Problem::File(Reject { path: name.clone(), line: None, id: None, reason }))]
    };
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

struct Builder<'a> {
    stem: String,
    date: Option<jiff::civil::Date>,
    split: Option<String>,
    links: &'a Links,
    log: &'a Log,
    strip_nicks: bool,
}

impl Builder<'_> {
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
        let at = |fail: RecordError| fail.at(path, first + 1);
        let id = DialogueId::new(format!("{}:{first}", self.stem)).map_err(|e| at(e.into()))?;
        let mut dialogue = Dialogue::new(id);
        dialogue.source = "ubuntu-irc".into();
        dialogue.language = Some("en".into());
        if let Some(split) = self.split.as_deref().filter(|s| ["train", "dev", "test"].contains(s)) {
            dialogue.metadata.insert("split".into(), split.into());
        }
        let nicks: BTreeSet<&str> = messages.iter().map(|(_, message)| message.nick.as_str()).collect();
        let turn_of: BTreeMap<u64, u64> = messages.iter().map(|(number, _)| *number).zip(1..).collect();
        for (number, message) in &messages {
            let text = if self.strip_nicks { strip(&message.text, &nicks) } else { &message.text };
            let turn = dialogue.push(&message.nick, Role::Participant, text);
            turn.time = self.time(message);
            turn.acts.extend(message.act.map(str::to_owned));
            let answered: BTreeSet<u64> = self
                .links
                .neighbors
                .get(number)
                .into_iter()
                .flatten()
                .copied()
                .filter(|n| n < number)
                .collect();
            let answered: Vec<u64> = answered.iter().filter_map(|n| turn_of.get(n).copied()).collect();
            if !answered.is_empty() {
                turn.metadata.insert("replies_to".into(), answered.into());
            }
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

/// Removes the names of participants from the start of a text: `bob: amy, try that` becomes `try that`.
///
/// A text with only names is not changed.
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
mod tests;
