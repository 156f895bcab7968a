//! Doc2Dial: dialogues about documents, grouped by domain and document. The files of MultiDoc2Dial are also read. Their
//! dialogues are grouped only by domain.

use serde::Deserialize;
use serde_json::Value;

use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "doc2dial",
    about: "Doc2Dial and MultiDoc2Dial (doc2dial_dial_*.json); the documents themselves are not read",
    sniff,
    read,
};

/// Nesting depth of a dialogue in Doc2Dial. The keys on the path are `dial_data`, a domain, a document and an index.
const DEPTH: usize = 4;
/// Nesting depth of a dialogue in MultiDoc2Dial. The keys on the path are `dial_data`, a domain and an index.
const MULTI_DEPTH: usize = 3;

#[derive(Deserialize)]
#[serde(expecting = "an object with a dialogue")]
struct Record {
    dial_id: Option<String>,
    turns: Vec<TurnRecord>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a turn")]
struct TurnRecord {
    role: String,
    utterance: String,
    #[serde(default)]
    da: Option<String>,
    #[serde(default)]
    references: Value,
}

fn sniff(probe: &Probe<'_>) -> Fit {
    if holds_dialogues(probe, DEPTH) || holds_dialogues(probe, MULTI_DEPTH) {
        Fit::Yes
    } else if begins_with_key(probe, "doc_data") {
        Fit::Companion
    } else {
        Fit::No
    }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let stem = input.stem();
    let split = split_of(&stem);
    let is_multi = holds_dialogues(&input.probe(), MULTI_DEPTH);
    let (depth, source) = if is_multi { (MULTI_DEPTH, "multidoc2dial") } else { (DEPTH, "doc2dial") };
    let mut count = 0;
    Ok(support::from_elements(input, options, depth, move |element| {
        if element.keys.first().map(String::as_str) != Some("dial_data") {
            return Ok(None);
        }
        count += 1;
        let read: Record = record(element, Some("dial_id"))?;
        let id = support::id_or_generated(read.dial_id, &stem, count)?;
        let mut dialogue = support::dialogue(id, source, Some("en"));
        dialogue.domains.extend(element.keys.get(1).cloned());
        if let (DEPTH, Some(document)) = (depth, element.keys.get(2)) {
            // A document id is the title of the document with a suffix, such as `How to renew#3_0`.
            let title = document.rsplit_once('#').map_or(document.as_str(), |(title, _)| title);
            dialogue.title = Some(title.to_owned()).filter(|title| !title.trim().is_empty());
            dialogue.note("doc_id", document.as_str());
        }
        dialogue.note("split", split.as_deref());
        for record in read.turns {
            let role = role_of(&record.role);
            let turn = dialogue.push(record.role, role, record.utterance);
            turn.acts.extend(record.da.filter(|act| !act.is_empty()));
            turn.note("references", spans(&record.references));
        }
        Ok(Some(dialogue))
    }))
}

fn holds_dialogues(probe: &Probe<'_>, depth: usize) -> bool {
    begins_with_key(probe, "dial_data")
        && any_element(probe, depth, |_, value| {
            let turn = value.get("turns").and_then(|turns| turns.get(0));
            turn.is_some_and(|turn| turn.get("utterance").is_some() && turn.get("role").is_some())
        })
}

/// Returns whether a file is a JSON object with `key` as its first key. The object is not parsed, because the probe
/// (the beginning of the file) is usually incomplete.
fn begins_with_key(probe: &Probe<'_>, key: &str) -> bool {
    let inside = probe.text.trim_start().strip_prefix('{').map(str::trim_start);
    inside.and_then(|t| t.strip_prefix('"')?.strip_prefix(key)?.strip_prefix('"')).is_some()
}

/// Returns the ids of the document spans to which a turn refers. An id has the form `document/span`, or `span` if the
/// document is not given.
fn spans(references: &Value) -> Vec<String> {
    let mut spans = Vec::new();
    for reference in references.as_array().into_iter().flatten() {
        let id = reference.get("sp_id").or_else(|| reference.get("id_sp")).and_then(Value::as_str);
        match (reference.get("doc_id").and_then(Value::as_str), id) {
            (Some(document), Some(id)) => push_unique(&mut spans, &format!("{document}/{id}")),
            (None, Some(id)) => push_unique(&mut spans, id),
            _ => {}
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    const ONE: &str = r#"{"dial_data": {"parks": {"Camping in winter#1_0": [{"dial_id":"9f","doc_id":"Camping in winter#1_0","domain":"parks","turns":[
        {"turn_id":1,"role":"user","da":"query_condition","references":[{"sp_id":"4","label":"precondition"},{"sp_id":"5","label":"solution"}],"utterance":"May I camp in snow?"},
        {"turn_id":2,"role":"agent","da":"respond_solution","references":[],"utterance":"Yes, with a permit."}]}]}}}"#;

    #[test]
    fn a_dialogue_has_the_id_of_its_document() {
        let d = &read_text(&FORMAT, "doc2dial_dial_train.json", ONE)[0];
        assert_eq!((d.id.as_str(), d.source.as_str()), ("9f", "doc2dial"));
        assert_eq!(d.title.as_deref(), Some("Camping in winter"));
        assert_eq!(d.domains, ["parks"]);
        assert_eq!(
            (&d.metadata["doc_id"], &d.metadata["split"]),
            (&"Camping in winter#1_0".into(), &"train".into())
        );
        assert_eq!((d.turns[0].role.clone(), d.turns[1].role.clone()), (Some(Role::User), Some(Role::Agent)));
        assert_eq!(d.turns[0].acts, ["query_condition"]);
        assert_eq!(d.turns[0].metadata["references"], serde_json::json!(["4", "5"]));
        assert!(d.turns[1].metadata.is_empty());
    }

    #[test]
    fn multidoc2dial_has_no_document_level() {
        let text = r#"{"dial_data":{"parks":[{"dial_id":"8a","turns":[{"turn_id":1,"role":"user","da":"","utterance":"Hi",
            "references":[{"id_sp":"2","label":"solution","doc_id":"Fishing#2_0"}]}]}]}}"#;
        let d = &read_text(&FORMAT, "multidoc2dial_dial_test.json", text)[0];
        assert_eq!((d.id.as_str(), d.source.as_str(), &d.domains[0][..]), ("8a", "multidoc2dial", "parks"));
        assert_eq!(d.turns[0].metadata["references"], serde_json::json!(["Fishing#2_0/2"]));
        assert_eq!(sniffed("multidoc2dial_dial_test.json", text), Some("doc2dial"));
    }

    #[test]
    fn bad_dialogues_are_reported_and_the_rest_is_read() {
        let text = r#"{"dial_data":{"p":{"d":[{"dial_id":"a"},{"dial_id":"b","turns":[]},{"turns":[{"role":"user","utterance":"x"}]},
            {"dial_id":"c","turns":[{"role":"user"}]}],"#;
        let ids: Vec<_> = read_text(&FORMAT, "d.json", text).iter().map(|d| d.id.to_string()).collect();
        assert_eq!(ids, ["d-000003"]);
        assert_eq!(
            problems(&FORMAT, "d.json", text),
            [
                "d.json:1 (a): missing field `turns` at column 15",
                "d.json:1 (b): the dialogue has no turns",
                "d.json:2 (c): missing field `utterance` at column 39",
                "d.json:2: the file ends in the middle of a JSON value",
            ]
        );
    }

    #[test]
    fn dialogues_are_distinguished_from_documents() {
        assert_eq!(sniffed("x.json", ONE), Some("doc2dial"));
        let documents =
            r#"{"doc_data": {"parks": {"Camping#1_0": {"doc_id": "Camping#1_0", "title": "Camping"}}}}"#;
        let input = Input::from_stream("d".into(), None, Box::new(std::io::Cursor::new(documents))).unwrap();
        assert_eq!(sniff(&input.probe()), Fit::Companion);
        assert_ne!(sniffed("x.json", r#"{"dial_data": 5}"#), Some("doc2dial"));
    }
}
