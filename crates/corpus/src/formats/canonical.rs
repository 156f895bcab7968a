//! The canonical format of turnwise: one JSON dialogue per line (see `turnwise corpus schema`).

use crate::formats::prelude::*;

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
        Err(e) => with_one_domain(line.text)
            .map(Some)
            .ok_or_else(|| RecordError::from(e).with_id(support::id_in(line.text.as_bytes(), "id"))),
    }))
}

/// Parses a record with the extra string field `domain`, which some other tools write. The domain is added to
/// `domains`. Returns `None` for any other record.
fn with_one_domain(text: &str) -> Option<Dialogue> {
    let mut record: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
    let domain = record.remove("domain")?.as_str()?.to_owned();
    let mut dialogue: Dialogue = serde_json::from_value(record.into()).ok()?;
    if !dialogue.domains.contains(&domain) {
        dialogue.domains.push(domain);
    }
    Some(dialogue)
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
