//! The canonical format of turnwise: one JSON dialogue per line (see `turnwise corpus schema`).

use crate::{THREAD, dialogue::thread_name, formats::prelude::*};

pub(super) static FORMAT: Format = Format {
    name: "jsonl",
    about: "the turnwise format: one JSON dialogue per line; `corpus schema` prints its JSON Schema",
    sniff,
    read,
};

fn sniff(probe: &Probe<'_>) -> Fit {
    let fits = any_json_line(probe, |line| {
        let turn = line.get("turns").and_then(|turns| turns.get(0));
        let has_text = turn.is_some_and(|turn| turn.get("text").is_some());
        has_text && line.contains_key("id") && !line.contains_key("dialogue_id")
    });
    if fits { Fit::Yes } else { Fit::No }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    Ok(support::from_lines(input, options, |line| match serde_json::from_str(line.text) {
        Ok(dialogue) => Ok(Some(dialogue)),
        Err(e) => with_extra_fields(line.text)
            .unwrap_or_else(|| Err(e.into()))
            .map(Some)
            .map_err(|e| e.with_id(support::id_in(line.text.as_bytes(), "id"))),
    }))
}

/// Parses a record with the extra fields `thread` or `domain`. The thread is stored as the metadata value `thread`. The
/// text `domain`, which some other tools write, is added to `domains`. Returns `None` for any other record, and an error
/// if the thread is invalid or differs from that in the metadata.
fn with_extra_fields(text: &str) -> Option<Result<Dialogue, RecordError>> {
    let mut record: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
    let (thread, domain) = (record.remove(THREAD), record.remove("domain"));
    if thread.is_none() && domain.is_none() {
        return None;
    }
    let domain = match domain {
        Some(domain) => Some(domain.as_str()?.to_owned()),
        None => None,
    };
    let mut dialogue: Dialogue = match serde_json::from_value(record.into()) {
        Ok(dialogue) => dialogue,
        // The error of the whole line has a column.
        Err(_) if domain.is_some() || thread.is_none() => return None,
        Err(e) => return Some(Err(e.into())),
    };
    if let Some(domain) = domain.filter(|domain| !dialogue.domains.contains(domain)) {
        dialogue.domains.push(domain);
    }
    Some(thread.map_or(Ok(()), |thread| set_thread(&mut dialogue, &thread)).map(|()| dialogue))
}

/// Sets the thread of a dialogue. Null and empty texts are ignored.
fn set_thread(dialogue: &mut Dialogue, thread: &serde_json::Value) -> Result<(), RecordError> {
    let blank = thread.is_null() || thread.as_str().is_some_and(|text| text.trim().is_empty());
    let name = match thread_name(thread) {
        Some(name) => name,
        None if blank => return Ok(()),
        None => return Err(format!("`thread` is {thread}; it must be a text or a number").into()),
    };
    match dialogue.thread() {
        Some(other) if other != name => {
            Err(format!("`thread` is `{name}`, but the metadata value `thread` is `{other}`").into())
        }
        Some(_) => Ok(()),
        None => {
            dialogue.note(THREAD, name.into_owned());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text};

    #[test]
    fn records_round_trip() {
        let line = r#"{"id":"d1","source":"s","title":"T","language":"en","time":"2026-03-02T09:14:00Z","domains":["a"],"metadata":{"n":1},"turns":[{"number":2,"speaker":"P","role":"user","text":"hi","intent":"greet","acts":["x"]}]}"#;
        let got = read_text(&FORMAT, "a.jsonl", line);
        assert_eq!(serde_json::to_string(&got[0]).unwrap(), line);
    }

    #[test]
    fn a_domain_may_be_a_string() {
        let text = "{\"id\":\"a\",\"domain\":\"bank\",\"turns\":[{\"text\":\"x\"}]}\n\
                    {\"id\":\"b\",\"domain\":\"bank\",\"domains\":[\"bank\"],\"turns\":[{\"text\":\"x\"}]}\n\
                    {\"id\":\"c\",\"domain\":3,\"turns\":[{\"text\":\"x\"}]}\n";
        let got = read_text(&FORMAT, "a.jsonl", text);
        let domains: Vec<&[String]> = got.iter().map(|d| d.domains.as_slice()).collect();
        assert_eq!(domains, [["bank".to_owned()], ["bank".to_owned()]]);
        assert!(problems(&FORMAT, "a.jsonl", text)[0].starts_with("a.jsonl:3 (c): unknown field `domain`"));
    }

    #[test]
    fn a_thread_becomes_metadata() {
        let line =
            |id: &str, fields: &str| format!("{{\"id\":\"{id}\",{fields},\"turns\":[{{\"text\":\"x\"}}]}}\n");
        let text = [
            line("a", "\"thread\":\"maria-jon\""),
            line("b", "\"thread\":1187654321234567891,\"metadata\":{\"n\":1}"),
            line("c", "\"thread\":\"7\",\"metadata\":{\"thread\":7}"),
            line("d", "\"thread\":\"\""),
            line("e", "\"thread\":null,\"domain\":\"bank\""),
            line("f", "\"thread\":\"x\",\"metadata\":{\"thread\":\"y\"}"),
            line("g", "\"thread\":[\"x\"]"),
            line("h", "\"thread\":\"x\",\"titel\":\"y\""),
        ]
        .concat();
        let got = read_text(&FORMAT, "a.jsonl", &text);
        let threads: Vec<_> = got.iter().map(|d| serde_json::to_string(&d.metadata).unwrap()).collect();
        let big = r#"{"n":1,"thread":"1187654321234567891"}"#;
        assert_eq!(threads, [r#"{"thread":"maria-jon"}"#, big, r#"{"thread":7}"#, "{}", "{}"]);
        let problems = problems(&FORMAT, "a.jsonl", &text);
        assert_eq!(
            problems[..2],
            [
                "a.jsonl:6 (f): `thread` is `x`, but the metadata value `thread` is `y`",
                "a.jsonl:7 (g): `thread` is [\"x\"]; it must be a text or a number",
            ]
        );
        assert!(problems[2].starts_with("a.jsonl:8 (h): unknown field `titel`"), "{problems:?}");
    }

    #[test]
    fn bad_lines_are_reported_and_the_rest_is_read() {
        let text = "{\"id\":\"a\",\"turns\":[{\"text\":\"x\"}]}\n\n{oops\n{\"id\":\"b\",\"turns\":[]}\n{\"id\":\"c\",\"turns\":[{\"texd\":\"x\"}]}\n";
        assert_eq!(
            problems(&FORMAT, "a.jsonl", text),
            [
                "a.jsonl:3: not valid JSON: key must be a string at column 2",
                "a.jsonl:4 (b): the dialogue has no turns",
                "a.jsonl:5 (c): unknown field `texd`, expected one of `number`, `speaker`, `role`, `text`, `time`, `intent`, `acts`, `metadata` at column 26",
            ]
        );
        assert_eq!(read_text(&FORMAT, "a.jsonl", text).len(), 1);
    }
}
