//! Parsers for IRC logs and their annotated reply links. A log line has a time in hours and minutes, without a date.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::formats::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogLine<'a> {
    Message(Message<'a>),
    /// A notice from the server or the client, such as a join, a leave, or a change of nick or mode.
    System,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) nick: &'a str,
    pub(super) text: &'a str,
    /// `action` for a message such as `/me waves`, `notice` for a notice, `None` for a normal message.
    pub(super) act: Option<&'static str>,
}

/// Parses a line of an IRC log. Returns the time of the line in minutes since midnight, if it has a time, and the
/// parsed line.
pub(super) fn parse(line: &str) -> (Option<i64>, LogLine<'_>) {
    if line.starts_with("===") {
        return (None, LogLine::System);
    }
    let Some((clock, rest)) = clock(line) else {
        return (None, LogLine::Unknown);
    };
    let rest = rest.trim_start();
    let kind = if rest.starts_with("===") || rest.starts_with("***") {
        LogLine::System
    } else {
        message(rest).map_or(LogLine::Unknown, LogLine::Message)
    };
    (Some(clock), kind)
}

fn message(rest: &str) -> Option<Message<'_>> {
    let (nick, text, act) = if let Some(rest) = rest.strip_prefix('<') {
        let (nick, text) = rest.split_once('>')?;
        (nick, text, None)
    } else if let Some(rest) = rest.strip_prefix("* ") {
        let (nick, text) = rest.trim_start().split_once(' ').unwrap_or((rest, ""));
        (nick, text, Some("action"))
    } else {
        let (to, text) = rest.strip_prefix('-')?.split_once("- ")?;
        (to.split_once(':')?.0, text, Some("notice"))
    };
    // Some clients show the rank in the channel (`@`, `+` or `%`) before the nick.
    let nick = nick.trim().trim_start_matches(['@', '+', '%']);
    (!nick.is_empty()).then(|| Message { nick, text: text.trim(), act })
}

/// Parses a time such as `[03:41]` or `[03:41:07]` at the start of a line. Returns the minutes since midnight and the
/// rest of the line.
fn clock(line: &str) -> Option<(i64, &str)> {
    let (clock, rest) = line.strip_prefix('[')?.split_once(']')?;
    let mut parts = clock.split(':').map(|part| part.parse::<u8>().ok());
    let (hour, minute) = (parts.next()??, parts.next()??);
    (hour < 24 && minute < 60).then_some((i64::from(hour) * 60 + i64::from(minute), rest))
}

/// Returns whether a line is a message or a notice of an IRC log.
pub(super) fn is_log_line(line: &str) -> bool {
    !matches!(parse(line), (_, LogLine::Unknown))
}

const HOUR: i64 = 60;

/// Converter from the times in a log to minutes that increase across midnight.
///
/// The #ubuntu logs up to 2007 have a 12-hour clock without AM or PM. In such a log, `01:00` after `12:59` is one
/// minute later, not half a day earlier.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last: Option<i64>,
    /// Total minutes of the days that have passed. With a 12-hour clock, half days are counted.
    passed: i64,
    /// Whether the log has a 24-hour clock, because one of its times is 13:00 or later.
    is_24_hour: bool,
}

impl Clock {
    /// Converts the time of the next line, given in minutes since midnight. Returns the minutes since the midnight
    /// before the first line. With a 12-hour clock, the minutes can start at noon instead of midnight.
    pub(super) fn run(&mut self, clock: i64) -> i64 {
        self.is_24_hour |= clock >= 13 * HOUR;
        if let Some(last) = self.last {
            if !self.is_24_hour && last >= 11 * HOUR && clock < 2 * HOUR {
                self.passed += 12 * HOUR;
            } else if clock < last - HOUR {
                // The line is on the next day. If its time were at most an hour earlier, it would only be out of order.
                self.passed += 24 * HOUR;
            }
        }
        self.last = Some(clock);
        self.passed + clock
    }

    /// Returns the last result of [`Clock::run`] and the argument of that call. Returns `None` before the first call.
    pub(super) fn now(&self) -> Option<(i64, i64)> {
        self.last.map(|last| (self.passed + last, last))
    }
}

/// Parses a line of an annotation, such as `1002 1003 -`. Returns the numbers of the two linked messages, the smaller
/// number first.
pub(super) fn link(line: &str) -> Option<(u64, u64)> {
    let mut parts = line.split_whitespace();
    let (a, b) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    matches!((parts.next(), parts.next()), (None | Some("-"), None))
        .then_some((std::cmp::min(a, b), std::cmp::max(a, b)))
}

/// Graph of the annotated reply links. A message is identified by its line number in the log, counted from 0.
#[derive(Default)]
pub(super) struct Links {
    /// For each linked message, the number of the first line of the annotation file that links the message.
    pub(super) named: BTreeMap<u64, u64>,
    /// For each linked message, the messages to which it is linked.
    pub(super) neighbors: BTreeMap<u64, Vec<u64>>,
    /// The first annotated message. Each link is an annotation of the later of its two messages. `None` if there are
    /// no links.
    pub(super) first: Option<u64>,
}

impl Links {
    /// Reads the reply links in an annotation file. For each invalid line, a problem is added to `problems`.
    pub(super) fn read(path: &Path, problems: &mut Vec<Problem>) -> Result<Self> {
        let mut links = Links::default();
        for (number, line) in (1..).zip(support::read_companion(path)?.lines()) {
            if line.trim().is_empty() {
                continue;
            }
            let Some((earlier, later)) = link(line) else {
                let reason =
                    "this is not a reply link; a link is two message numbers and a dash: 1002 1003 -";
                problems.push(RecordError::new(reason).at(&path.display().to_string(), number));
                continue;
            };
            links.first = Some(links.first.map_or(later, |first| first.min(later)));
            for (a, b) in [(earlier, later), (later, earlier)] {
                links.named.entry(a).or_insert(number);
                links.neighbors.entry(a).or_default().push(b);
            }
        }
        Ok(links)
    }

    /// Returns the conversations, sorted by their first messages. A conversation is a connected component of the graph.
    pub(super) fn conversations(&self) -> Vec<BTreeSet<u64>> {
        let mut seen = BTreeSet::new();
        let mut conversations = Vec::new();
        for &start in self.neighbors.keys() {
            let mut conversation = BTreeSet::new();
            let mut open = vec![start];
            while let Some(message) = open.pop() {
                if seen.insert(message) {
                    conversation.insert(message);
                    open.extend(self.neighbors.get(&message).into_iter().flatten());
                }
            }
            if !conversation.is_empty() {
                conversations.push(conversation);
            }
        }
        conversations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_lines_are_parsed() {
        let said = |nick, text, act| LogLine::Message(Message { nick, text, act });
        assert_eq!(parse("[03:41] <amy> is it: on?"), (Some(221), said("amy", "is it: on?", None)));
        assert_eq!(parse("[03:41:20] <@amy> "), (Some(221), said("amy", "", None)));
        assert_eq!(parse("[10:00]  * amy waves"), (Some(600), said("amy", "waves", Some("action"))));
        assert_eq!(parse("[10:00]  * amy"), (Some(600), said("amy", "", Some("action"))));
        assert_eq!(parse("[10:00] -amy:#room- hello"), (Some(600), said("amy", "hello", Some("notice"))));
        assert_eq!(parse("=== amy has joined #room"), (None, LogLine::System));
        assert_eq!(parse("[10:00] === amy has joined #room"), (Some(600), LogLine::System));
        assert_eq!(parse("[25:00] <amy> x"), (None, LogLine::Unknown));
        assert_eq!(parse("amy: hello"), (None, LogLine::Unknown));
    }

    #[test]
    fn the_clock_increases_across_midnight_and_noon() {
        let run = |clocks: &[i64]| {
            let mut clock = Clock::default();
            clocks.iter().map(|&c| clock.run(c)).collect::<Vec<_>>()
        };
        assert_eq!(run(&[23 * 60 + 59, 0, 1]), [1439, 1440, 1441]);
        assert_eq!(run(&[12 * 60 + 59, 60]), [779, 780]);
        assert_eq!(run(&[11 * 60 + 59, 1]), [719, 721]);
        // A line that is one minute out of order is not on the next day.
        assert_eq!(run(&[100, 99, 101]), [100, 99, 101]);
    }
}
