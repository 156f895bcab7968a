//! Plain-text transcripts: `Speaker: text`, one turn per line.
//!
//! - A blank line or a rule (`---`, `===`) ends a dialogue. `=== Title ===` also sets the title of the next dialogue.
//! - If a file starts with single turns of several speakers, separated by blank lines, then blank lines are ignored.
//!   In such a file, a dialogue ends only at a rule, or at a `#` line after a blank line.
//! - A line can start with a time. `[2026-03-02 09:14]` becomes the time of the turn, in UTC. `[00:12]` has no date and
//!   becomes the metadata `at` of the turn.
//! - A line without a speaker, or an indented line, continues the previous turn.
//! - The first `#` line (or line without a speaker) before a dialogue is its title. Other `#` lines become the
//!   metadata `comments` of the dialogue.
//! - The role of a speaker is recognized from a common role name, as in `Customer`, `Agent 2` or `Support (Ana)`. All
//!   other speakers are participants.

use std::collections::BTreeSet;

use crate::formats::chat_text::{self, Draft, LineReader, Out};
use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "transcript",
    about: "plain text with one `Speaker: text` per line and optional [times]; dialogues separated by a blank line, --- or ===",
    sniff,
    read,
};

fn sniff(probe: &Probe<'_>) -> Fit {
    const OTHERS: [&str; 12] =
        [".json", ".jsonl", ".csv", ".tsv", ".yaml", ".yml", ".toml", ".html", ".xml", ".log", ".ini", ".py"];
    if OTHERS.iter().any(|e| probe.has_extension(e))
        || probe.text.starts_with(['{', '[', '<']) && is_markup(probe)
    {
        return Fit::No;
    }
    let (mut lines, mut turns, mut by_role) = (0, 0, 0);
    let mut speakers = BTreeSet::new();
    for line in probe.lines().take(60).filter(|line| kind(line) == Kind::Text) {
        lines += 1;
        if let Some(spoken) = spoken(line, &|_| false) {
            turns += 1;
            by_role += usize::from(known_role(&spoken.speaker).is_some());
            speakers.insert(spoken.speaker);
        }
    }
    // A list of `key: value` looks similar, but its keys rarely repeat.
    let is_talk = by_role * 2 >= turns || speakers.len() * 2 <= turns;
    let fits = turns >= 2 && speakers.len() >= 2 && turns * 10 >= lines * 6 && is_talk;
    if fits { Fit::Maybe } else { Fit::No }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let reader = Reader {
        stem: input.stem(),
        limit: options.max_record,
        blank_ends: !ignores_blank_lines(input.probe().text),
        started_dialogues: 0,
        after_blank: false,
        heading: Heading::default(),
        draft: None,
        speakers: BTreeSet::new(),
    };
    Ok(chat_text::read(input, options, reader))
}

/// Returns whether a file starts like JSON or XML. A `[` that starts a time in a transcript does not count.
fn is_markup(probe: &Probe<'_>) -> bool {
    let start = probe.text.trim_start();
    ["{", "<", "[{", "[\n", "[\""].iter().any(|markup| start.starts_with(markup))
}

/// Returns whether blank lines separate turns, not dialogues. This is the case if each of the first blocks of lines is
/// one turn, and if the turns have several speakers.
///
/// At most three blocks are checked, so the result does not change if more lines are appended.
fn ignores_blank_lines(head: &str) -> bool {
    let mut blocks: Vec<usize> = Vec::new();
    let mut speakers = BTreeSet::new();
    let mut fresh = true;
    for line in head.lines() {
        match kind(line) {
            Kind::Blank => fresh = true,
            Kind::Rule(_) if blocks.len() > 1 => break,
            Kind::Rule(_) => fresh = true,
            Kind::Comment(_) => {}
            Kind::Text => {
                let Some(spoken) = spoken(line, &|_| false) else {
                    continue;
                };
                if fresh && blocks.len() == 3 {
                    break;
                }
                match blocks.last_mut() {
                    Some(turns) if !fresh => *turns += 1,
                    _ => blocks.push(1),
                }
                fresh = false;
                speakers.insert(spoken.speaker);
            }
        }
    }
    blocks.len() > 1 && speakers.len() > 1 && blocks.iter().all(|&turns| turns == 1)
}

#[derive(Default)]
struct Heading {
    title: Option<String>,
    comments: Vec<String>,
    /// Number of the first line before the dialogue that is neither a title nor a comment.
    stray_line: Option<u64>,
}

struct Reader {
    stem: String,
    limit: usize,
    /// Whether a blank line ends a dialogue.
    blank_ends: bool,
    started_dialogues: u64,
    after_blank: bool,
    heading: Heading,
    draft: Option<Draft>,
    speakers: BTreeSet<String>,
}

const MAX_TITLE_BYTES: usize = 200;
/// Maximum number of comments of a dialogue. Further comments are dropped.
const MAX_COMMENTS: usize = 100;

impl LineReader for Reader {
    fn line(&mut self, line: Line<'_>, out: &mut Out) {
        let after_blank = std::mem::replace(&mut self.after_blank, false);
        match kind(line.text) {
            Kind::Blank => {
                self.after_blank = true;
                if self.blank_ends {
                    self.end(out);
                }
            }
            Kind::Rule(title) => {
                self.end(out);
                if !title.is_empty() {
                    self.heading.title = Some(title.to_owned());
                }
            }
            Kind::Comment(text) => {
                if !self.blank_ends && after_blank {
                    self.end(out);
                }
                self.comment(text);
            }
            Kind::Text => self.text(line, out),
        }
    }

    /// Ends the current dialogue, if there is one. A heading without turns becomes the heading of the next dialogue.
    /// But if the heading contains text other than a title and comments, the heading is reported and dropped.
    fn end(&mut self, out: &mut Out) {
        self.speakers.clear();
        match self.draft.take() {
            Some(mut draft) => {
                draft.dialogue.note("comments", std::mem::take(&mut self.heading.comments));
                out.push_back(draft.finish());
            }
            None => {
                if let Some(line) = self.heading.stray_line {
                    self.heading = Heading::default();
                    out.push_back((line, Err("no turns found here: no line starts with `Speaker: `".into())));
                }
            }
        }
    }
}

impl Reader {
    fn comment(&mut self, text: &str) {
        let text = text.to_owned();
        match &mut self.heading {
            _ if text.is_empty() => {}
            heading if self.draft.is_none() && heading.title.is_none() => heading.title = Some(text),
            heading if heading.comments.len() < MAX_COMMENTS => heading.comments.push(text),
            _ => {}
        }
    }

    fn text(&mut self, line: Line<'_>, out: &mut Out) {
        let indented = line.text.starts_with("  ") || line.text.starts_with('\t');
        let spoken = match (&self.draft, indented) {
            (Some(_), true) => None,
            _ => spoken(line.text, &|name| self.speakers.contains(name)),
        };
        let text = line.text.trim();
        match (spoken, &mut self.draft) {
            (None, Some(draft)) => draft.append(text),
            (None, None) if self.heading.title.is_none() && text.len() <= MAX_TITLE_BYTES => {
                self.heading.title = Some(text.to_owned());
            }
            (None, None) => _ = self.heading.stray_line.get_or_insert(line.number),
            (Some(spoken), _) => {
                if self.draft.is_none() {
                    self.begin(line.number, out);
                }
                let Some(draft) = &mut self.draft else { return };
                draft.dialogue.time = draft.dialogue.time.or(spoken.time);
                if let Some(turn) = draft.turn(&spoken.speaker, role(&spoken.speaker), spoken.text) {
                    turn.time = spoken.time;
                    turn.note("at", spoken.at);
                    self.speakers.insert(spoken.speaker);
                }
            }
        }
    }

    fn begin(&mut self, line: u64, out: &mut Out) {
        self.started_dialogues += 1;
        match support::generated_id(&self.stem, self.started_dialogues) {
            Ok(id) => {
                let mut dialogue = support::dialogue(id, &self.stem, None);
                dialogue.title = self.heading.title.take();
                self.heading.stray_line = None;
                self.draft = Some(Draft::new(dialogue, line, self.limit));
            }
            // The file name cannot be part of a dialogue id.
            Err(e) => out.push_back((line, Err(e.into()))),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Kind<'a> {
    Blank,
    /// A rule, such as `===`. The value is the title in the rule, or an empty text.
    Rule(&'a str),
    /// A line that starts with `#`. The value is the text after the `#`.
    Comment(&'a str),
    Text,
}

fn kind(line: &str) -> Kind<'_> {
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

/// A line that names its speaker.
#[derive(Debug, PartialEq)]
struct Spoken<'a> {
    time: Option<Time>,
    /// A time of day, or an offset from the start of the conversation, as written in the file.
    at: Option<String>,
    speaker: String,
    text: &'a str,
}

/// Parses a line of the form `[time] Speaker: text`. Returns `None` if the text before the colon is not a speaker. A
/// speaker is a role name, a text that looks like a name, or a name for which `is_known` returns `true`.
fn spoken<'a>(line: &'a str, is_known: &dyn Fn(&str) -> bool) -> Option<Spoken<'a>> {
    let (stamp, rest) = leading_stamp(line.trim());
    let (name, text, ends) = split_name(rest)?;
    // In Markdown, a name can be bold, as in `**Agent:** text`.
    let name = name.trim().trim_matches('*').trim();
    let (name, stamp) = match stamp {
        None => trailing_stamp(name),
        stamp => (name, stamp),
    };
    let is_speaker = is_known(name) || known_role(name).is_some() || ends && looks_like_name(name);
    if !is_speaker {
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

/// Splits a line into a name and a text at a colon.
///
/// Prefers a full-width colon, or a colon before white space, before `**` or at the end of the line. In this case, the
/// third value is `true`. If there is no such colon, splits at the first colon, and the third value is `false`.
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

/// Splits off a time at the start of a line, with or without brackets. Returns the time and the rest of the line.
fn leading_stamp(line: &str) -> (Option<&str>, &str) {
    for (open, close) in [('[', ']'), ('(', ')')] {
        if let Some((inner, rest)) = line.strip_prefix(open).and_then(|inner| inner.split_once(close)) {
            let inner = inner.trim();
            return if is_stamp(inner) { (Some(inner), after_stamp(rest)) } else { (None, line) };
        }
    }
    // A time without brackets consists of one word, or of two words if it includes a date.
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

/// Splits off a time in brackets after a name, as in `Agent (00:12)`.
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

/// Returns whether a text is a time of day or an offset from the start, such as `00:12`, `1:02:03` or `00:12.345`.
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

/// Maps a role name to a role. A number or a text in brackets after the role name is ignored, as in `Support (Ana)`.
/// Returns `None` for other names.
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

/// Returns the role that a name or its first word indicates, as in `Agent Smith`. Any other name is a participant.
fn role(name: &str) -> Role {
    known_role(name).or_else(|| known_role(name.split_whitespace().next()?)).unwrap_or(Role::Participant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    fn show(text: &str) -> Vec<String> {
        read_text(&FORMAT, "calls.txt", text).iter().map(show_one).collect()
    }

    fn show_one(d: &Dialogue) -> String {
        let turns: Vec<_> = d
            .turns
            .iter()
            .map(|t| format!("{}/{}: {}", t.speaker, t.role.clone().unwrap(), t.text))
            .collect();
        format!("{} [{}] {}", d.id, d.title.clone().unwrap_or_default(), turns.join(" | "))
    }

    #[test]
    fn blank_lines_and_rules_end_a_dialogue() {
        let text = "# A wrong parcel\n\nCustomer: it's not mine\nAgent (Ana): whose is it?\nthe label, I mean\n  Note: bottom right\nCustomer: a Mr Lee\n\nCustomer: hello?\nBot: Hi!\n=== Third ===\nSpeaker 1: One.\nSpeaker 2: Two.\n";
        assert_eq!(
            show(text),
            [
                "calls-000001 [A wrong parcel] Customer/user: it's not mine | Agent (Ana)/agent: whose is it?\nthe label, I mean\nNote: bottom right | Customer/user: a Mr Lee",
                "calls-000002 [] Customer/user: hello? | Bot/agent: Hi!",
                "calls-000003 [Third] Speaker 1/participant: One. | Speaker 2/participant: Two.",
            ]
        );
        assert!(problems(&FORMAT, "calls.txt", text).is_empty());
        assert_eq!(sniffed("calls.txt", text), Some("transcript"));
    }

    #[test]
    fn blank_lines_between_all_turns_are_ignored() {
        let text = "Call of 2 March\n\nAnn: Hello.\n\nBob: Hi.\n\nAnn: Bye.\nFor now.\n\n---\n\nAnn: Again.\n\nBob: Yes.\n\n# Later\nAnn: x\n";
        assert_eq!(
            show(text),
            [
                "calls-000001 [Call of 2 March] Ann/participant: Hello. | Bob/participant: Hi. | Ann/participant: Bye.\nFor now.",
                "calls-000002 [] Ann/participant: Again. | Bob/participant: Yes.",
                "calls-000003 [Later] Ann/participant: x",
            ]
        );
        // If all blocks have the same speaker, each block is a dialogue.
        assert_eq!(show("User: a\n\nUser: b\n\nUser: c\n").len(), 3);
    }

    #[test]
    fn leading_times_are_kept() {
        let text =
            "[2026-03-02 09:14] client: hi\n# on hold\n[00:01:12] agent: yo\nagent (00:12): there: now\n";
        let got = &read_text(&FORMAT, "t.txt", text)[0];
        assert_eq!(got.time.unwrap().to_string(), "2026-03-02T09:14:00Z");
        assert_eq!(got.turns[0].time, got.time);
        assert_eq!(got.turns[1].metadata["at"], "00:01:12");
        assert_eq!(
            (got.turns[2].metadata["at"].as_str(), &*got.turns[2].text),
            (Some("00:12"), "there: now")
        );
        assert_eq!(got.metadata["comments"], serde_json::json!(["on hold"]));
        assert_eq!(sniffed("t.txt", text), Some("transcript"));
    }

    #[test]
    fn text_without_a_speaker_is_reported() {
        let text = "Title\nSome prose.\nMore of it.\n\nA: x\n\nB:\n\nA: y\nB: z\n";
        assert_eq!(
            problems(&FORMAT, "p.txt", text),
            [
                "p.txt:2: no turns found here: no line starts with `Speaker: `",
                "p.txt:7 (p-000002): every turn's text is empty",
            ]
        );
        assert_eq!(read_text(&FORMAT, "p.txt", text).len(), 2);
    }

    #[test]
    fn a_dialogue_over_the_limit_is_reported_and_the_next_is_read() {
        let text = format!("A: {}\nB: {}\n\nA: x\nB: y\n", "a".repeat(300), "b".repeat(300));
        let stream = Box::new(std::io::Cursor::new(text.into_bytes()));
        let input = Input::from_stream("t.txt".into(), Some("t.txt".into()), stream).unwrap();
        let options = ReadOptions { max_record: 500, ..ReadOptions::default() };
        let got: Vec<_> = FORMAT.read(input, &options).unwrap().collect();
        let reason = format!("{:?}", got[0].as_ref().unwrap_err());
        assert!(reason.contains("over the limit") && reason.contains("t-000001"), "{reason}");
        assert_eq!(got[1].as_ref().unwrap().id.as_str(), "t-000002");
    }

    #[test]
    fn other_text_is_not_detected() {
        assert_eq!(sniffed("a.txt", "name: x\nversion: 1\nauthor: me\nlicense: none\n"), None);
        assert_eq!(sniffed("a.txt", "Dear all,\nhere is the list: a, b.\nYours\nAnn\n"), None);
        assert_eq!(sniffed("a.txt", "[12:01] <ann> bob: hi\n[12:02] <bob> ann: yo\n"), None);
        assert_eq!(sniffed("a.yaml", "user: a\nagent: b\nuser: c\nagent: d\n"), None);
        assert_eq!(sniffed("a.json", "{\n\"user\": 1,\n\"agent\": 2}"), None);
    }

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
