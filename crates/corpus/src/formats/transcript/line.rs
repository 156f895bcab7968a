//! Parser for the lines of a transcript: time, speaker and text.

use crate::{Role, Time};

/// Kind of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Blank,
    /// A rule with an optional title.
    Rule(&'a str),
    /// A line that starts with `#`.
    Comment(&'a str),
    Text,
}

pub(super) fn kind(line: &str) -> Kind<'_> {
    let line = line.trim();
    let is_rule = |c: char| matches!(c, '-' | '=' | '*' | '_' | '—');
    if line.is_empty() {
        Kind::Blank
    } else if line.starts_with("===")
        || line.starts_with("---")
        || line.chars().count() > 2 && line.chars().all(is_rule)
    {
        Kind::Rule(line.trim_matches(|c| is_rule(c) || c == ' '))
    } else if line.starts_with('#') {
        Kind::Comment(line.trim_start_matches('#').trim())
    } else {
        Kind::Text
    }
}

/// A line with a speaker.
#[derive(Debug, PartialEq)]
pub(super) struct Spoken<'a> {
    pub(super) time: Option<Time>,
    /// A time of day or an offset, as written.
    pub(super) at: Option<String>,
    pub(super) speaker: String,
    pub(super) text: &'a str,
}

/// Parses `[time] Speaker: text`. A name is accepted if it is a known speaker (`is_known`), is a role name, or looks
/// like a name.
pub(super) fn spoken<'a>(line: &'a str, is_known: &dyn Fn(&str) -> bool) -> Option<Spoken<'a>> {
    let (stamp, rest) = leading_stamp(line.trim());
    let (name, text, ends) = split_name(rest)?;
    // Markdown: **Agent:** text
    let name = name.trim().trim_matches('*').trim();
    let (name, stamp) = match stamp {
        None => trailing_stamp(name),
        stamp => (name, stamp),
    };
    let named = is_known(name) || is_role_name(name) || ends && looks_like_name(name);
    if !named {
        return None;
    }
    let text = text.strip_prefix("**").unwrap_or(text).trim();
    let (time, at) = match stamp {
        Some(stamp) if is_clock(stamp) => (None, Some(stamp.to_owned())),
        Some(stamp) => (Time::parse(stamp), None),
        None => (None, None),
    };
    Some(Spoken { time, at, speaker: name.to_owned(), text })
}

/// Splits a line into name and text at a colon.
///
/// A full-width colon, or a colon before white space or the end, surely ends a name: the third value is `true`. If
/// there is none, splits at the first colon: the third value is `false`.
fn split_name(text: &str) -> Option<(&str, &str, bool)> {
    const LONGEST: usize = 120;
    let mut first = None;
    for (at, c) in text.char_indices().take(LONGEST) {
        let after = at + c.len_utf8();
        if c != ':' && c != '：' {
            continue;
        }
        let rest = &text[after..];
        if c == '：' || rest.is_empty() || rest.starts_with(char::is_whitespace) || rest.starts_with("**") {
            return Some((&text[..at], rest, true));
        }
        first = first.or(Some((&text[..at], rest, false)));
    }
    first
}

fn looks_like_name(name: &str) -> bool {
    const LONGEST: usize = 60;
    const PARTICLES: [&str; 16] = [
        "of", "the", "de", "del", "da", "di", "la", "le", "van", "von", "der", "den", "bin", "al", "el", "y",
    ];
    let words: Vec<&str> = name.split_whitespace().collect();
    let first = name.chars().next().is_some_and(|c| c.is_alphanumeric() || c == '@' || c == '~');
    let is_word = |w: &str| PARTICLES.contains(&w) || !w.starts_with(char::is_lowercase);
    first
        && name.chars().count() <= LONGEST
        && words.len() <= 6
        && name.chars().any(char::is_alphabetic)
        && !name.contains([
            '?', '!', ';', '"', '<', '>', '{', '}', '[', ']', '|', '=', '\\', '\t', '“', '。', '，',
        ])
        && (words.len() == 1 || words.iter().all(|w| is_word(w)))
}

/// Splits off a time at the start of a line, with or without brackets.
fn leading_stamp(line: &str) -> (Option<&str>, &str) {
    for (open, close) in [('[', ']'), ('(', ')')] {
        if let Some((inner, rest)) = line.strip_prefix(open).and_then(|inner| inner.split_once(close)) {
            let inner = inner.trim();
            return if is_stamp(inner) { (Some(inner), after_stamp(rest)) } else { (None, line) };
        }
    }
    // Without brackets: a time, or a date and a time.
    let spaces: Vec<usize> = line.match_indices(' ').take(2).map(|(at, _)| at).collect();
    for &at in spaces.iter().rev() {
        if is_stamp(&line[..at]) {
            return (Some(&line[..at]), after_stamp(&line[at..]));
        }
    }
    (None, line)
}

fn after_stamp(rest: &str) -> &str {
    let rest = rest.trim_start();
    ["- ", "– ", "— "].iter().find_map(|dash| rest.strip_prefix(dash)).unwrap_or(rest).trim_start()
}

/// Splits off a time after a name: `Agent (00:12)`.
fn trailing_stamp(name: &str) -> (&str, Option<&str>) {
    for (open, close) in [('[', ']'), ('(', ')')] {
        let parts = name.strip_suffix(close).and_then(|name| name.rsplit_once(open));
        if let Some((name, stamp)) = parts.filter(|(_, stamp)| is_stamp(stamp.trim())) {
            return (name.trim(), Some(stamp.trim()));
        }
    }
    (name, None)
}

fn is_stamp(text: &str) -> bool {
    is_clock(text) || text.as_bytes().get(4) == Some(&b'-') && Time::parse(text).is_some()
}

/// Returns whether a text is a clock time or an offset: `00:12`, `1:02:03`, `00:12.345`.
fn is_clock(text: &str) -> bool {
    let (clock, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    let digits = |t: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&t.len()) && t.bytes().all(|b| b.is_ascii_digit())
    };
    let mut parts = clock.split(':');
    let first = parts.next().is_some_and(|p| digits(p, 1..=3));
    let rest: Vec<&str> = parts.collect();
    first && (1..=2).contains(&rest.len()) && rest.iter().all(|p| digits(p, 2..=2)) && digits(fraction, 1..=6)
}

fn known_role(name: &str) -> Option<Role> {
    let name = name.to_lowercase();
    let name = name.split(['(', '[']).next().unwrap_or_default();
    let name =
        name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '#' || c == '_' || c.is_whitespace());
    Some(match name {
        "customer" | "client" | "user" | "usr" | "caller" | "guest" | "visitor" | "shopper" | "buyer"
        | "seeker" | "patient" | "passenger" | "member" | "subscriber" | "human" | "end user" | "客户"
        | "顾客" | "用户" => Role::User,
        "agent" | "support" | "assistant" | "bot" | "chatbot" | "operator" | "representative" | "rep"
        | "advisor" | "adviser" | "wizard" | "helpdesk" | "help desk" | "csr" | "customer service"
        | "customer support" | "support agent" | "live agent" | "virtual assistant" | "virtual agent"
        | "ai" | "客服" | "坐席" | "机器人" | "助手" => Role::Agent,
        "system" | "notice" | "系统" => Role::System,
        _ => return None,
    })
}

/// Returns whether a name is a role name.
pub(super) fn is_role_name(name: &str) -> bool {
    known_role(name).is_some()
}

/// Returns the role of a speaker, by the whole name or by its first word (`Agent Smith`).
pub(super) fn role(name: &str) -> Role {
    known_role(name).or_else(|| known_role(name.split_whitespace().next()?)).unwrap_or(Role::Participant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &str) -> Option<String> {
        spoken(line, &|name| name == "tom b").map(|s| format!("{}>{}", s.speaker, s.text))
    }

    #[test]
    fn names_are_distinguished_from_sentences() {
        for (line, want) in [
            ("Ann: hi", Some("Ann>hi")),
            ("Dr. Ana de la Cruz: hi", Some("Dr. Ana de la Cruz>hi")),
            ("**Agent:** hi **there**", Some("Agent>hi **there**")),
            ("**Agent**: hi", Some("Agent>hi")),
            ("agent:hi", Some("agent>hi")),
            ("客户：你好", Some("客户>你好")),
            ("王小明：在吗", Some("王小明>在吗")),
            ("live agent: hi", Some("live agent>hi")),
            ("tom b: hi", Some("tom b>hi")),
            ("tom c: hi", None),
            ("Ann:hi", None),
            ("here is the thing: no", None),
            ("see https://example.com: no", None),
            ("https://example.com/x", None),
            ("at 10:30 then", None),
            ("10: ten", None),
            ("09:14 Ann: hi", Some("Ann>hi")),
            ("2026-03-02 09:14:05 - Ann: hi", Some("Ann>hi")),
            ("[1:02:03.250] Ann: it is 10:30: late", Some("Ann>it is 10:30: late")),
            ("[laughs] Ann: hi", None),
            ("Agent:", Some("Agent>")),
            (":", None),
            ("", None),
        ] {
            assert_eq!(name(line).as_deref(), want, "{line}");
        }
    }

    #[test]
    fn roles_are_recognized_from_common_names() {
        assert_eq!(role("Customer 2"), Role::User);
        assert_eq!(role("AGENT (Priya)"), Role::Agent);
        assert_eq!(role("Agent Smith"), Role::Agent);
        assert_eq!(role("System"), Role::System);
        assert_eq!(role("Priya"), Role::Participant);
        assert_eq!(role("Speaker 1"), Role::Participant);
    }

    #[test]
    fn rules_and_comments() {
        assert_eq!(kind("--- Second call ---"), Kind::Rule("Second call"));
        assert_eq!(kind("***"), Kind::Rule(""));
        assert_eq!(kind("## Title"), Kind::Comment("Title"));
        assert_eq!(kind("-- no"), Kind::Text);
    }
}
