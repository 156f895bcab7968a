//! Converts a message of a Slack export to a turn. In the text, mentions such as `<@U123>` become names, and links
//! become readable text.

use serde_json::{Map, Value};

use super::names::{Names, Profile};
use crate::formats::prelude::*;

pub(super) type Raw = Map<String, Value>;

/// Timestamp of a message in microseconds since 1970. It is unique within a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ts(i64);

impl Ts {
    /// Parses a timestamp in seconds, such as `1772442840.000200`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
        if !digits(seconds) || !digits(fraction) || fraction.len() > 6 {
            return None;
        }
        let micros: i64 = format!("{fraction:0<6}").parse().ok()?;
        Some(Ts(seconds.parse::<i64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)?))
    }

    pub(super) fn time(self) -> Option<Time> {
        jiff::Timestamp::from_microsecond(self.0).ok().map(Time)
    }
}

impl std::fmt::Display for Ts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

fn text<'a>(raw: &'a Raw, key: &str) -> Option<&'a str> {
    raw.get(key)?.as_str().filter(|text| !text.trim().is_empty())
}

fn list<'a>(raw: &'a Raw, key: &str) -> &'a [Value] {
    raw.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the timestamp of a message and, for a message in a thread, the timestamp of the first message of the thread.
/// Returns `None` if the message has no valid timestamp.
pub(super) fn timestamps(raw: &Raw) -> Option<(Ts, Option<Ts>)> {
    let ts = Ts::parse(text(raw, "ts")?)?;
    let answered =
        raw.get("reply_count").and_then(Value::as_u64).unwrap_or(0) > 0 || !list(raw, "replies").is_empty();
    let thread = text(raw, "thread_ts").and_then(Ts::parse).or(answered.then_some(ts));
    Some((ts, thread))
}

/// Returns whether a message is skipped: a join, a leave, a bot that is added or removed, or an edit or reply event.
pub(super) fn is_left_out(raw: &Raw) -> bool {
    const LEFT_OUT: &str = "channel_join channel_leave group_join group_leave bot_add bot_remove message_changed \
                            message_deleted message_replied";
    text(raw, "subtype").is_some_and(|subtype| LEFT_OUT.split(' ').any(|left_out| left_out == subtype))
}

/// Returns whether a message with this subtype is a notice without a speaker, such as a new topic or a pin.
fn is_notice(subtype: &str) -> bool {
    const NOTICES: [&str; 6] =
        ["pinned_item", "unpinned_item", "reminder_add", "tombstone", "huddle_thread", "sh_room_created"];
    subtype.starts_with("channel_") || subtype.starts_with("group_") || NOTICES.contains(&subtype)
}

pub(super) fn turn(raw: &Raw, ts: Ts, names: &Names) -> Turn {
    let subtype = text(raw, "subtype").unwrap_or_default();
    let user = text(raw, "user").or(text(raw, "bot_id"));
    let is_bot = matches!(subtype, "bot_message" | "slackbot_response")
        || raw.get("bot_id").is_some_and(Value::is_string)
        || user.is_some_and(|id| names.is_bot(id));
    let mut turn = Turn { time: ts.time(), ..Turn::default() };
    if is_notice(subtype) {
        turn.role = Some(Role::System);
    } else {
        turn.role = Some(if is_bot { Role::Agent } else { Role::Participant });
        turn.speaker = speaker(raw, user, names);
    }
    let files = files(raw);
    turn.text = message_text(raw, names);
    if turn.text.is_empty() {
        turn.text = files.join(", ");
    }
    turn.note("user", user);
    turn.note("edited", raw.get("edited").filter(|edit| edit.is_object()).map(|_| true));
    turn.note("deleted", (subtype == "tombstone").then_some(true));
    turn.note("bot", is_bot.then_some(true));
    if !matches!(subtype, "bot_message" | "file_share" | "tombstone") {
        turn.note("subtype", subtype);
    }
    turn.note("files", files);
    let reactions = list(raw, "reactions").iter().filter_map(|r| r.get("name").cloned());
    turn.note("reactions", reactions.filter(Value::is_string).collect::<Vec<Value>>());
    turn
}

/// Returns the name of the speaker, or the id of the user if no name is known.
fn speaker(raw: &Raw, user: Option<&str>, names: &Names) -> String {
    // The message of an integration can contain the name of the integration.
    let given = text(raw, "username").map(str::to_owned);
    let listed = user.and_then(|id| names.user(id)).map(str::to_owned);
    let profile = |key: &str| {
        let profile: Option<Profile> = raw.get(key).and_then(|p| serde_json::from_value(p.clone()).ok());
        profile.and_then(Profile::shown)
    };
    let named = if text(raw, "user").is_some() { listed.or(given) } else { given.or(listed) };
    let named = named.or_else(|| profile("user_profile")).or_else(|| profile("bot_profile"));
    named.or(user.map(str::to_owned)).unwrap_or_default()
}

/// Returns the names of the attached files. A deleted file has no name and is omitted.
fn files(raw: &Raw) -> Vec<String> {
    let file = raw.get("file").into_iter();
    let named = |file: &Value| {
        let file = file.as_object()?;
        text(file, "name").or(text(file, "title")).map(str::to_owned)
    };
    list(raw, "files").iter().chain(file).filter_map(named).collect()
}

/// Returns the text of a message and its attachments, without link previews. If that text is empty, returns the text of
/// the layout blocks.
fn message_text(raw: &Raw, names: &Names) -> String {
    let mut all = plain(text(raw, "text").unwrap_or_default().trim(), names);
    let mut add = |more: &str| {
        let more = plain(more.trim(), names);
        if !more.is_empty() && !all.contains(&more) {
            if !all.is_empty() {
                all.push('\n');
            }
            all.push_str(&more);
        }
    };
    for attachment in list(raw, "attachments").iter().filter_map(Value::as_object) {
        if attachment.contains_key("from_url") || attachment.contains_key("original_url") {
            continue;
        }
        let mut any = false;
        for key in ["pretext", "title", "text"] {
            if let Some(part) = text(attachment, key) {
                add(part);
                any = true;
            }
        }
        for field in list(attachment, "fields").iter().filter_map(Value::as_object) {
            let (title, value) =
                (text(field, "title").unwrap_or_default(), text(field, "value").unwrap_or_default());
            add(if title.is_empty() { value.to_owned() } else { format!("{title}: {value}") }.as_str());
            any = true;
        }
        if !any {
            add(text(attachment, "fallback").unwrap_or_default());
        }
    }
    if all.is_empty() {
        let mut blocks = String::new();
        list(raw, "blocks").iter().for_each(|block| append_block(block, names, &mut blocks));
        all = blocks.trim().to_owned();
    }
    all
}

/// Appends the text of a layout block, or of a list of layout blocks. The depth of the recursion is limited, because
/// the JSON parser limits the nesting depth.
fn append_block(value: &Value, names: &Names, out: &mut String) {
    let block = match value {
        Value::Object(block) => block,
        Value::Array(inner) => return inner.iter().for_each(|block| append_block(block, names, out)),
        _ => return,
    };
    match (text(block, "type").unwrap_or_default(), block) {
        ("mrkdwn", b) => out.push_str(&plain(text(b, "text").unwrap_or_default(), names)),
        ("text" | "plain_text", b) => out.push_str(text(b, "text").unwrap_or_default()),
        ("emoji", b) => out.push_str(&format!(":{}:", text(b, "name").unwrap_or_default())),
        ("link", b) => out.push_str(text(b, "text").or(text(b, "url")).unwrap_or_default()),
        ("user", b) => {
            let id = text(b, "user_id").unwrap_or_default();
            out.push_str(&format!("@{}", names.user(id).unwrap_or(id)));
        }
        ("channel", b) => {
            let id = text(b, "channel_id").unwrap_or_default();
            out.push_str(&format!("#{}", names.channel_name(id).unwrap_or(id)));
        }
        (kind, b) => {
            for key in ["text", "fields", "elements"] {
                b.get(key).into_iter().for_each(|inner| append_block(inner, names, out));
            }
            if matches!(kind, "rich_text_section" | "section" | "header" | "context") && !out.ends_with('\n')
            {
                out.push('\n');
            }
        }
    }
}

/// Converts the markup in the text of a message to plain text.
fn plain(text: &str, names: &Names) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let (before, tag) = rest.split_at(start);
        unescape(before, &mut out);
        // A tag contains no `<`. An unclosed tag is plain text.
        match tag.get(1..).and_then(|inner| Some((inner, inner.find(['<', '>'])?))) {
            Some((inner, end)) if inner[end..].starts_with('>') => {
                unescape(&plain_tag(&inner[..end], names), &mut out);
                rest = &inner[end + 1..];
            }
            _ => {
                out.push('<');
                rest = &tag[1..];
            }
        }
    }
    unescape(rest, &mut out);
    out
}

/// Converts a tag to plain text. A tag is a mention, a link or a date. `tag` is the tag without its angle brackets.
fn plain_tag(tag: &str, names: &Names) -> String {
    let (target, label) = match tag.split_once('|') {
        Some((target, label)) => (target, Some(label).filter(|l| !l.is_empty())),
        None => (tag, None),
    };
    if let Some(user) = target.strip_prefix('@') {
        return format!("@{}", names.user(user).or(label).unwrap_or(user));
    }
    if let Some(channel) = target.strip_prefix('#') {
        return format!("#{}", label.or(names.channel_name(channel)).unwrap_or(channel));
    }
    if let Some(special) = target.strip_prefix('!') {
        // Examples: <!here>, <!subteam^S1|@oncall>, <!date^123^{date}|2 March>
        return match label {
            Some(label) => label.to_owned(),
            None => format!("@{}", special.split('^').next_back().unwrap_or(special)),
        };
    }
    let address = target.strip_prefix("mailto:").or(target.strip_prefix("tel:")).unwrap_or(target);
    match label {
        Some(label) if address.ends_with(label) => address.to_owned(),
        Some(label) => format!("{label} ({address})"),
        None => address.to_owned(),
    }
}

/// Decodes the three entities that Slack uses (`&lt;`, `&gt;` and `&amp;`) in a text, and appends the result to `out`.
fn unescape(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, entity) = rest.split_at(at);
        out.push_str(before);
        let known =
            [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&')].into_iter().find(|(e, _)| entity.starts_with(e));
        let (name, c) = known.unwrap_or(("&", '&'));
        out.push(c);
        rest = &entity[name.len()..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(json: &str) -> String {
        let raw: Raw = serde_json::from_str(json).unwrap();
        let names = Names::for_tests(&[("U1", "Ana"), ("U2", "Bo")], &[("C1", "general")]);
        let (ts, thread) = timestamps(&raw).unwrap();
        let turn = turn(&raw, ts, &names);
        let metadata = serde_json::to_string(&turn.metadata).unwrap();
        let thread = thread.map(|t| format!(" in {t}")).unwrap_or_default();
        format!("{}/{}: {} {metadata}{thread}", turn.speaker, turn.role.unwrap(), turn.text)
    }

    #[test]
    fn all_kinds_of_messages_are_converted() {
        for (json, want) in [
            (r#"{"ts":"1.5","user":"U1","text":"hi <@U2>"}"#, r#"Ana/participant: hi @Bo {"user":"U1"}"#),
            (
                r#"{"ts":"2.000001","thread_ts":"1.5","user":"U9","user_profile":{"display_name":"","real_name":"Cem"},"text":"x","edited":{"user":"U9"},"reactions":[{"name":"tada"},{}]}"#,
                r#"Cem/participant: x {"edited":true,"reactions":["tada"],"user":"U9"} in 1.500000"#,
            ),
            (
                r#"{"ts":"1.5","reply_count":2,"user":"U9","text":"root"}"#,
                r#"U9/participant: root {"user":"U9"} in 1.500000"#,
            ),
            (
                r#"{"ts":"1","subtype":"bot_message","bot_id":"B1","username":"deploys","text":"","attachments":[{"title":"Done","text":"in 3 s","fields":[{"title":"By","value":"<@U1>"}]},{"from_url":"x","text":"preview"},{"fallback":"and so on"}]}"#,
                "deploys/agent: Done\nin 3 s\nBy: @Ana\nand so on {\"bot\":true,\"user\":\"B1\"}",
            ),
            (
                r#"{"ts":"1","user":"U1","bot_id":"B1","bot_profile":{"name":"app"},"blocks":[{"type":"section","text":{"type":"mrkdwn","text":"a &amp; b"}},{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"see "},{"type":"user","user_id":"U2"},{"type":"emoji","name":"wave"}]}]}]}"#,
                "Ana/agent: a & b\nsee @Bo:wave: {\"bot\":true,\"user\":\"U1\"}",
            ),
            (
                r#"{"ts":"1","user":"U1","subtype":"file_share","text":"","files":[{"name":"a.pdf"},{"mode":"tombstone"}]}"#,
                r#"Ana/participant: a.pdf {"files":["a.pdf"],"user":"U1"}"#,
            ),
            (
                r#"{"ts":"1","user":"USLACKBOT","subtype":"tombstone","text":"This message was deleted."}"#,
                r#"/system: This message was deleted. {"bot":true,"deleted":true,"user":"USLACKBOT"}"#,
            ),
            (
                r#"{"ts":"1","user":"U1","subtype":"channel_topic","text":"<@U1> set the channel topic: x"}"#,
                r#"/system: @Ana set the channel topic: x {"subtype":"channel_topic","user":"U1"}"#,
            ),
            (r#"{"ts":"1","text":7,"user":[],"files":{},"blocks":[[1]]}"#, "/participant:  {}"),
        ] {
            assert_eq!(show(json), want);
        }
    }

    #[test]
    fn timestamps_have_microseconds() {
        assert_eq!(Ts::parse("1772442840.000200").unwrap().to_string(), "1772442840.000200");
        assert_eq!(
            Ts::parse("1772442840.0002").unwrap().time().unwrap().to_string(),
            "2026-03-02T09:14:00.0002Z"
        );
        for no in ["", "x", "1.", "-1.0", "1.0000001", "99999999999999999.0"] {
            assert_eq!(Ts::parse(no), None, "{no}");
        }
    }

    #[test]
    fn markup_becomes_readable_text() {
        let names = Names::for_tests(&[("U1", "Ana")], &[("C1", "general")]);
        for (text, want) in [
            ("<@U1> and <@U2> and <@U3|cem>", "@Ana and @U2 and @cem"),
            ("in <#C1> or <#C2|random> or <#C3>", "in #general or #random or #C3"),
            ("<!here> <!subteam^S1|@oncall> <!subteam^S1>", "@here @oncall @S1"),
            ("<https://example.com/a?b=1&amp;c=2>", "https://example.com/a?b=1&c=2"),
            ("<https://example.com|the page>", "the page (https://example.com)"),
            ("<http://example.com|example.com>", "http://example.com"),
            ("<mailto:a@example.com|a@example.com>", "a@example.com"),
            ("1 &lt; 2 &amp;&amp; 3 &gt; 2 &amp;lt; &é", "1 < 2 && 3 > 2 &lt; &é"),
            ("a < b <", "a < b <"),
            ("<<@U1>>", "<@Ana>"),
            ("<>", ""),
        ] {
            assert_eq!(plain(text, &names), want, "{text}");
        }
    }
}
