use std::fs;

use super::*;
use crate::formats::support::testing::{problems, read_text, sniffed};
use crate::formats::{self, Problem};

const LOG: &str = r#"{"SNG0001.json":{"goal":{"taxi":{},"hotel":{"info":{"area":"east"}},"train":{"info":{"day":"friday"}},
    "topic":{"hotel":true},"message":["You want a <span class='emphasis'>hotel</span>","in the east"]},
    "log":[{"text":"An inn, please.","metadata":{},"dialog_act":{"Hotel-Inform":[["Area","east"]],"general-greet":[]}},
    {"text":"The Anchor?","metadata":{"hotel":{"book":{}}},"dialog_act":"No Annotation"},
    {"text":"Yes."},{"text":"Done.","metadata":{"hotel":{}}}]}}"#;

#[test]
fn a_log_gives_domains_goal_roles_and_acts() {
    let d = &read_text(&MultiWoz, "x/val.json", LOG)[0];
    assert_eq!(d.id.as_str(), "SNG0001.json");
    assert_eq!((d.source.as_str(), &d.domains), ("multiwoz", &vec!["hotel".to_owned(), "train".to_owned()]));
    assert_eq!(d.metadata["goal"], "You want a hotel in the east");
    assert_eq!(d.metadata["split"], "val");
    let roles: Vec<_> = d.turns.iter().map(|t| t.role.clone().unwrap()).collect();
    assert_eq!(roles, [Role::User, Role::Agent, Role::User, Role::Agent]);
    assert_eq!(d.turns[0].acts, ["Hotel-Inform", "general-greet"]);
    assert!(d.turns[1].acts.is_empty());
}

#[test]
fn belief_states_mark_system_turns_even_if_a_turn_is_missing() {
    let text = r#"{"A":{"goal":{},"log":[{"text":"a","metadata":{}},{"text":"b","metadata":{}},{"text":"c","metadata":{"bus":1}}]}}"#;
    let speakers = |d: &Dialogue| d.turns.iter().map(|t| t.speaker.clone()).collect::<Vec<_>>();
    assert_eq!(speakers(&read_text(&MultiWoz, "d.json", text)[0]), ["USER", "USER", "SYSTEM"]);
    let text = text.replace(r#"{"bus":1}"#, "{}");
    assert_eq!(speakers(&read_text(&MultiWoz, "d.json", &text)[0]), ["USER", "SYSTEM", "USER"]);
}

const FRAMED: &str = r#"[{"dialogue_id":"PMUL1.json","services":["bus"],"turns":[
    {"turn_id":"0","speaker":"USER","utterance":"A bus.","frames":[
     {"service":"bus","state":{"active_intent":"find_bus"}},{"service":"taxi","state":{"active_intent":"NONE"}}]},
    {"turn_id":"1","speaker":"SYSTEM","utterance":"From where?","frames":[]}]},
    {"dialogue_id":"SNG2.json","services":[],"turns":[{"turn_id":"0","speaker":"USER","utterance":"Police!","frames":[
     {"service":"police","state":{"active_intent":"find_police"}}]}]}]"#;

#[test]
fn frames_give_services_and_intents() {
    let all = read_text(&MultiWoz, "2.2/train/dialogues_001.json", FRAMED);
    assert_eq!(all[0].id.as_str(), "PMUL1.json");
    assert_eq!(
        (&all[0].domains[..], &all[0].intents[..]),
        (&["bus".to_owned()][..], &["find_bus".to_owned()][..])
    );
    assert_eq!(all[0].metadata["split"], "train");
    assert_eq!(all[0].turns[0].intent.as_deref(), Some("find_bus"));
    assert_eq!(all[0].turns[1].role, Some(Role::Agent));
    assert_eq!(all[1].domains, ["police"]);
}

/// Writes the files to a temporary folder and reads one of them.
fn read_from_folder(files: &[(&str, &str)], name: &str) -> (Vec<Dialogue>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let input = Input::open(&dir.path().join(name)).unwrap();
    let (mut dialogues, mut reasons) = (Vec::new(), Vec::new());
    for item in MultiWoz.read(input, &ReadOptions::default()).unwrap() {
        match item {
            Ok(d) => dialogues.push(d),
            Err(Problem::Record(r) | Problem::File(r)) => {
                reasons.push(r.to_string().replace(&dir.path().display().to_string(), ""));
            }
        }
    }
    (dialogues, reasons)
}

#[test]
fn acts_and_splits_are_read_from_companion_files() {
    let log = r#"{"A.json":{"goal":{},"log":[{"text":"a"},{"text":"b"},{"text":"c"},{"text":"d"}]},
        "B.json":{"goal":{},"log":[{"text":"a"}]},"C.json":{"goal":{},"log":[{"text":"a"}]}}"#;
    let acts = r#"{"A":{"1":{"Bus-Request":[["From","?"]]},"2":"No Annotation","9":{"Bus-Offer":[]}},"B":7}"#;
    let files = [
        ("data.json", log),
        ("dialogue_acts.json", acts),
        ("valListFile.json", "B.json\n"),
        ("testListFile.json", "C.json\n"),
    ];
    let (read, reasons) = read_from_folder(&files, "data.json");
    assert_eq!(
        read[0].turns.iter().map(|t| t.acts.join(",")).collect::<Vec<_>>(),
        ["", "Bus-Request", "", ""]
    );
    assert_eq!(
        read.iter().map(|d| d.metadata["split"].as_str().unwrap()).collect::<Vec<_>>(),
        ["train", "val", "test"]
    );
    assert_eq!(reasons, ["/dialogue_acts.json:1 (B): invalid type: integer `7`, expected a map at column 1"]);
}

#[test]
fn acts_of_2_2_are_in_the_parent_folder_and_count_all_turns() {
    let acts = r#"{"PMUL1.json":{"0":{"dialog_act":{"Bus-Inform":[]},"span_info":[]},"1":{"dialog_act":{"Bus-Request":[]}}}}"#;
    let (read, reasons) = read_from_folder(
        &[("dialog_acts.json", acts), ("dev/dialogues_001.json", FRAMED)],
        "dev/dialogues_001.json",
    );
    assert_eq!(
        read[0].turns.iter().map(|t| t.acts.join(",")).collect::<Vec<_>>(),
        ["Bus-Inform", "Bus-Request"]
    );
    assert!(reasons.is_empty());
}

#[test]
fn bad_dialogues_are_reported_and_the_rest_is_read() {
    let text = r#"{"A":{"goal":{}},"B":{"goal":{},"log":[]},"C":{"goal":{},"log":[{"txt":"x"}]},
        "D":{"goal":{},"log":[{"text":"fine"}]},"E":{"goal"#;
    assert_eq!(read_text(&MultiWoz, "data.json", text).len(), 1);
    assert_eq!(
        problems(&MultiWoz, "data.json", text),
        [
            "data.json:1 (A): the dialogue has neither `log` (MultiWOZ 2.0, 2.1) nor `turns` (2.2)",
            "data.json:1 (B): the dialogue has no turns",
            "data.json:1 (C): missing field `text` at column 29",
            "data.json:2: the file ends in the middle of a JSON value",
        ]
    );
}

#[test]
fn multiwoz_files_are_detected() {
    assert_eq!(sniffed("data.json", LOG), Some("multiwoz"));
    assert_eq!(sniffed("dialogues_001.json", FRAMED), Some("multiwoz"));
    assert_ne!(
        sniffed("x.json", r#"{"1":{"goal":[],"messages":[{"content":"x"}],"sys-usr":[1,2]}}"#),
        Some("multiwoz")
    );
    let companion = |name: &str, text: &str| {
        let stream = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
        let input = Input::from_stream(name.into(), Some(name.into()), stream).unwrap();
        MultiWoz.sniff(&input.probe()) == Fit::Companion && formats::sniff(&input.probe()).is_some()
    };
    assert!(companion("valListFile", "PMUL1\nSNG2\n"));
    assert!(companion("testListFile.json", "PMUL1.json\n"));
    assert!(companion("ontology.json", r#"{"hotel-semi-area":["east"]}"#));
    assert!(companion("dialogue_acts.json", r#"{"PMUL1":{"1":"No Annotation"}}"#));
    assert!(companion("bus_db.json", "[]"));
    assert!(!companion("ontology.json", r#"{"colour":["red"]}"#));
}
