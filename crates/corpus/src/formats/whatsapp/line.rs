//! Parser for the lines of a WhatsApp export: date, time, speaker and text. Also detects the order of day and month.

use std::str::FromStr;

use jiff::civil::DateTime;

/// Order of day, month and year in the dates of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    DayMonth,
    MonthDay,
    YearMonthDay,
}

impl Order {
    pub(super) fn name(self) -> &'static str {
        match self {
            Order::DayMonth => "day/month/year",
            Order::MonthDay => "month/day/year",
            Order::YearMonthDay => "year/month/day",
        }
    }
}

/// First line of a message. It starts with a date and a time, such as `[02/03/26, 09:14:05]` or `02/03/2026, 09:14 -`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header<'a> {
    /// The three numbers of the date, in the order in which they occur in the line.
    numbers: [i16; 3],
    /// The date as written in the line.
    pub(super) date: &'a str,
    clock: Clock,
    /// Whether date and time are in the format of the United States, such as `3/2/26, 9:14 AM`.
    american: bool,
    /// The rest of the line: speaker and text.
    pub(super) rest: &'a str,
}

/// Hour, minute, and second if the time has seconds.
type Clock = (i8, i8, Option<i8>);

/// Returns whether a character is a direction mark. WhatsApp adds such marks before lines, names and notices.
pub(super) fn is_mark(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{a0}' | '\u{202f}' | '\u{2009}')
}

/// Removes white space at the ends, and all direction marks except U+200F, which right-to-left texts contain.
pub(super) fn clean(text: &str) -> String {
    let text: String = text.chars().filter(|&c| c == '\u{200f}' || !is_mark(c)).collect();
    text.trim().to_owned()
}

impl<'a> Header<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim_start_matches(is_mark);
        let (bracketed, text) = match line.strip_prefix('[') {
            Some(text) => (true, text),
            None => (false, line),
        };
        let (first, after) = number(text, 4)?;
        let separator = after.chars().next().filter(|c| matches!(c, '/' | '.' | '-'))?;
        let part = |text: &'a str| text.strip_prefix(separator).map(|t| t.trim_start_matches(is_space));
        let (second, after) = number(part(after)?, 2)?;
        let (third, after) = number(part(after)?, 4)?;
        let date = &text[..text.len() - after.len()];
        // Some languages have a dot after the year: `12. 3. 2026.`
        let after = after.strip_prefix('.').unwrap_or(after);
        let after = match after.strip_prefix(',') {
            Some(after) => after,
            // Other formats have times such as `[2026-03-02 09:14]`. A date with dashes must therefore end with a
            // comma.
            None if separator != '-' => after,
            None => return None,
        };
        let time = after.trim_start_matches(is_space);
        if time.len() == after.len() {
            return None;
        }
        let (clock, upper, after) = clock(time)?;
        let rest = if bracketed {
            after.trim_start_matches(is_space).strip_prefix(']')?
        } else {
            let after = after.trim_start_matches(is_space);
            after
                .strip_prefix("- ")
                .or_else(|| after.strip_prefix("– "))
                .or_else(|| (after == "-").then_some(""))?
        };
        let padded = date.starts_with('0') || date.contains(&format!("{separator}0"));
        Some(Header {
            numbers: [first, second, third],
            date,
            clock,
            american: separator == '/' && upper && !padded,
            rest: rest.trim_start_matches(is_space),
        })
    }

    /// Returns the date and time of the message, in the local time of the phone. Returns `None` if the date or the time
    /// is invalid in the given order.
    pub(super) fn time(&self, order: Order) -> Option<DateTime> {
        let [a, b, c] = self.numbers;
        let (year, month, day) = match order {
            Order::DayMonth => (c, b, a),
            Order::MonthDay => (c, a, b),
            Order::YearMonthDay => (a, b, c),
        };
        let year = if year < 100 { year + 2000 } else { year };
        // WhatsApp was released in 2009, so a smaller number is a day or a month, not a year.
        if year < 2009 {
            return None;
        }
        let (hour, minute, second) = self.clock;
        let (month, day) = (i8::try_from(month).ok()?, i8::try_from(day).ok()?);
        DateTime::new(year, month, day, hour, minute, second.unwrap_or(0), 0).ok()
    }

    pub(super) fn has_seconds(&self) -> bool {
        self.clock.2.is_some()
    }
}

/// Parses a number with at most `max_digits` digits. Returns the number and the rest of the text.
fn number<N: FromStr>(text: &str, max_digits: usize) -> Option<(N, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || digits > max_digits {
        return None;
    }
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

/// Parses a time of day. Returns the time in 24-hour format, whether it is followed by AM or PM in capitals, and the
/// rest of the text.
fn clock(text: &str) -> Option<(Clock, bool, &str)> {
    // Some languages have a word between date and time (`klo`, `um`, `à`, `kl.`), or AM/PM before the time.
    let word_end = text.find(|c: char| c.is_ascii_digit())?;
    let word = text[..word_end].trim_matches(is_space);
    if word.chars().count() > 4 || word.chars().any(|c| !c.is_alphabetic() && c != '.') {
        return None;
    }
    let half_before = match word {
        "上午" | "午前" | "오전" => Some(false),
        "下午" | "午後" | "오후" => Some(true),
        _ => None,
    };
    let (hour, after) = number::<i8>(&text[word_end..], 2)?;
    let separator = after.chars().next().filter(|c| matches!(c, ':' | '.'))?;
    let (minute, after) = number(after.strip_prefix(separator)?, 2)?;
    let (second, after) = match after.strip_prefix(separator).and_then(|t| number(t, 2)) {
        Some((second, after)) => (Some(second), after),
        None => (None, after),
    };
    let (half_after, upper, after) = half(after);
    let hour = match half_before.or(half_after) {
        Some(_) if hour > 12 || hour == 0 => return None,
        Some(pm) => hour % 12 + if pm { 12 } else { 0 },
        None => hour,
    };
    Some(((hour, minute, second), upper, after))
}

/// Parses an optional `AM`, `pm`, `a.m.` or `p. m.` after a time. Returns whether the time is PM (`None` without AM or
/// PM), whether AM or PM is in capitals, and the rest of the text.
fn half(text: &str) -> (Option<bool>, bool, &str) {
    let trimmed = text.trim_start_matches(is_space);
    let mut letters = String::new();
    let mut used = 0;
    for c in trimmed.chars() {
        match c {
            'a' | 'p' | 'A' | 'P' if letters.is_empty() => letters.push(c),
            'm' | 'M' if letters.len() == 1 => letters.push(c),
            '.' if !letters.is_empty() => {}
            c if is_space(c) && letters.len() == 1 => {}
            _ => break,
        }
        used += c.len_utf8();
    }
    match letters.to_ascii_lowercase().as_str() {
        half @ ("am" | "pm") => (Some(half == "pm"), letters == "AM" || letters == "PM", &trimmed[used..]),
        _ => (None, false, text),
    }
}

/// Detects the order of the dates at the beginning of a file. Returns the order, and whether it is only assumed.
///
/// 1. The order with the most valid dates is chosen. Years before 2009 are invalid.
/// 2. On a tie, the order with the fewest steps back in time between consecutive messages is chosen.
/// 3. If day first and month first are still tied, the order is assumed: month first if a header has the format of the
///    United States (`3/2/26, 9:14 AM`), otherwise day first.
pub(super) fn order<'a>(lines: impl Iterator<Item = &'a str>) -> (Order, bool) {
    let headers: Vec<Header<'_>> = lines.filter_map(Header::parse).collect();
    let candidates = [Order::DayMonth, Order::MonthDay, Order::YearMonthDay];
    let judge = |order: Order| {
        let times: Vec<DateTime> = headers.iter().filter_map(|h| h.time(order)).collect();
        let backwards = times.windows(2).filter(|pair| matches!(pair, [a, b] if b < a)).count();
        (headers.len() - times.len(), backwards)
    };
    let judged = candidates.map(|order| (judge(order), order));
    let best = judged.iter().map(|(score, _)| *score).min().unwrap_or_default();
    let fits = |order: Order| judged.iter().any(|(score, o)| *o == order && *score == best);
    let american = headers.iter().any(|h| h.american);
    match (fits(Order::DayMonth), fits(Order::MonthDay)) {
        (true, true) => (if american { Order::MonthDay } else { Order::DayMonth }, !headers.is_empty()),
        (true, false) => (Order::DayMonth, false),
        (false, true) => (Order::MonthDay, false),
        (false, false) => (Order::YearMonthDay, false),
    }
}

/// A message of a chat, without its date and time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The speaker. `None` for a notice.
    pub(super) speaker: Option<String>,
    pub(super) text: String,
    /// `attached` if the message has a file that is part of the export. `omitted` if the file is not part of the
    /// export. `None` if the message has no file.
    pub(super) media: Option<&'static str>,
    pub(super) attachment: Option<String>,
    pub(super) deleted: bool,
}

/// Phrases that occur in notices but not in names. If the text before a colon contains such a phrase, it is not a
/// speaker. An example is `Ann changed the subject to "Trip: day 2"`.
const NOTICE_NAMES: [&str; 6] =
    [" changed the ", " changed this ", " changed to ", " created group ", " added ", " security code "];

/// English phrases in the notices that an iPhone exports as messages.
const NOTICES: [&str; 22] = [
    "end-to-end encrypted",
    "created this group",
    "created group",
    "added you",
    " added ",
    " removed ",
    "joined using ",
    "joined from ",
    "joined this group",
    " left",
    "changed the subject",
    "changed the group",
    "changed this group",
    "changed their phone number",
    "security code",
    "disappearing messages",
    "pinned a message",
    "now an admin",
    "is a contact",
    "this contact",
    "voice call",
    "video call",
];

impl Content {
    pub(super) fn parse(rest: &str) -> Self {
        let notice = |text: &str| Content { text: clean(text), ..Content::default() };
        let parts = rest.split_once(": ").or_else(|| Some((rest.strip_suffix(':')?, "")));
        let Some((name, message)) = parts else {
            return notice(rest);
        };
        let is_notice_name = name.contains(['"', '“']) || NOTICE_NAMES.iter().any(|n| name.contains(n));
        let marked = message.contains('\u{200e}');
        let text = clean(message);
        let speaker =
            clean(name.trim_start_matches(is_mark).trim_start_matches('~').trim_start_matches(is_space));
        if is_notice_name || speaker.is_empty() {
            return notice(rest);
        }
        if message.starts_with('\u{200e}') && NOTICES.iter().any(|phrase| text.contains(phrase)) {
            return notice(&text);
        }
        let mut content = Content { speaker: Some(speaker), ..Content::default() };
        if let Some(inner) =
            text.strip_prefix('<').and_then(|t| t.strip_suffix('>')).filter(|t| !t.contains('>'))
        {
            match inner.split_once(": ") {
                // An example is `<attached: 00000012-PHOTO-2026-03-02.jpg>`. The word `attached` can be in any
                // language.
                Some((_, file)) if file.contains('.') => {
                    (content.media, content.attachment) = (Some("attached"), Some(file.to_owned()));
                }
                _ if inner.contains(' ') && inner.len() < 60 => content.media = Some("omitted"),
                _ => {}
            }
        } else if marked && text.ends_with(" omitted") {
            content.media = Some("omitted");
        } else if let Some(file) = text.strip_suffix(" (file attached)") {
            (content.media, content.attachment) = (Some("attached"), Some(file.to_owned()));
        }
        content.deleted =
            text.starts_with("This message was deleted") || text.starts_with("You deleted this message");
        content.text = text;
        content
    }
}

/// Removes the mark of an edited message from the end of a line. Returns `None` if the line does not have this mark.
pub(super) fn without_edited(text: &str) -> Option<&str> {
    text.strip_suffix("<This message was edited>").map(str::trim_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: &str, order: Order) -> Option<String> {
        let header = Header::parse(line)?;
        Some(format!("{} {}", header.time(order)?, header.rest))
    }

    #[test]
    fn headers_of_many_locales_are_parsed() {
        let march = |line: &str| at(line, Order::DayMonth).unwrap_or_default();
        for line in [
            "[02/03/26, 09:14:05] Ann: x",
            "\u{200e}[02/03/2026, 9:14:05\u{202f}AM] Ann: x",
            "[02.03.26, 09:14:05] Ann: x",
            "[2.3.2026 klo 9.14.05] Ann: x",
        ] {
            assert_eq!(march(line), "2026-03-02T09:14:05 Ann: x", "{line}");
        }
        for line in [
            "02/03/2026, 09:14 - Ann: x",
            "2/3/26, 9:14 AM - Ann: x",
            "02/03/26, 9:14\u{202f}am – Ann: x",
            "02/03/2026, 9:14 a. m. - Ann: x",
            "02.03.26, 09:14 - Ann: x",
            "02.03.2026. 09:14 - Ann: x",
            "02-03-2026, 09:14 - Ann: x",
            "02/03/2026 à 09:14 - Ann: x",
        ] {
            assert_eq!(march(line), "2026-03-02T09:14:00 Ann: x", "{line}");
        }
        let first = |line: &str| at(line, Order::YearMonthDay).unwrap_or_default();
        assert_eq!(first("2026-03-02, 21:14 - Ann: x"), "2026-03-02T21:14:00 Ann: x");
        assert_eq!(first("[2026/3/2 下午9:14:05] Ann: x"), "2026-03-02T21:14:05 Ann: x");
        assert_eq!(march("2/3/26, 12:00 AM - Ann: x"), "2026-03-02T00:00:00 Ann: x");
        assert_eq!(march("2/3/26, 12:00 pm - Ann: x"), "2026-03-02T12:00:00 Ann: x");
        for no in [
            "[2026-03-02 09:14] Ann: x",
            "2026-03-02 09:14:05,123 - name - INFO",
            "02/03/2026 is the day",
            "[12:01] <ann> x",
            "13/3/26, 13:14 PM - Ann: x",
            "1/2/3",
            "",
            "[",
        ] {
            assert_eq!(Header::parse(no), None, "{no}");
        }
    }

    #[test]
    fn the_order_of_day_and_month_is_detected() {
        let detected = |dates: &[&str], tail: &str| {
            let lines: Vec<String> = dates.iter().map(|d| format!("{d}, 9:14{tail} - Ann: x")).collect();
            order(lines.iter().map(String::as_str))
        };
        assert_eq!(detected(&["02/03/26", "13/03/26"], ""), (Order::DayMonth, false));
        assert_eq!(detected(&["02/03/26", "03/13/26"], ""), (Order::MonthDay, false));
        assert_eq!(detected(&["01/02/26", "01/03/26", "02/01/26"], ""), (Order::MonthDay, false));
        assert_eq!(detected(&["02/01/26", "01/02/26", "01/03/26"], ""), (Order::DayMonth, false));
        assert_eq!(detected(&["02/03/26", "03/03/26"], " am"), (Order::DayMonth, true));
        assert_eq!(detected(&["3/2/26"], " AM"), (Order::MonthDay, true));
        assert_eq!(detected(&["2026-03-02"], ""), (Order::YearMonthDay, false));
        assert_eq!(detected(&["26/03/02", "26/03/11"], ""), (Order::YearMonthDay, false));
    }

    #[test]
    fn speakers_notices_and_media_are_recognized() {
        let speaker = |rest: &str| Content::parse(rest).speaker;
        assert_eq!(speaker("Ann: a: b").as_deref(), Some("Ann"));
        assert_eq!(speaker("~\u{202f}Ann: x").as_deref(), Some("Ann"));
        assert_eq!(speaker("\u{202a}+49 555 0100\u{202c}: x").as_deref(), Some("+49 555 0100"));
        assert_eq!(speaker("Ann:").as_deref(), Some("Ann"));
        assert_eq!(speaker("Ann added Bob"), None);
        assert_eq!(speaker("Ann changed the subject to \"Trip: day 2\""), None);
        assert_eq!(speaker("Trip: \u{200e}Ann created this group"), None);
        assert_eq!(speaker("Ann: Bob created this group").as_deref(), Some("Ann"));
        let media = |rest: &str| (Content::parse(rest).media, Content::parse(rest).attachment);
        assert_eq!(media("Ann: <Media omitted>"), (Some("omitted"), None));
        assert_eq!(media("Ann: \u{200e}image omitted"), (Some("omitted"), None));
        assert_eq!(media("Ann: the image omitted"), (None, None));
        assert_eq!(media("Ann: <3>"), (None, None));
        assert_eq!(
            media("Ann: \u{200e}<attached: 12-PHOTO.jpg>"),
            (Some("attached"), Some("12-PHOTO.jpg".into()))
        );
        assert_eq!(media("Ann: IMG-1.jpg (file attached)"), (Some("attached"), Some("IMG-1.jpg".into())));
        assert!(Content::parse("Ann: \u{200e}This message was deleted.").deleted);
    }
}
