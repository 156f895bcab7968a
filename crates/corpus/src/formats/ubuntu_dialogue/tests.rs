use super::*;
use crate::formats::support::testing::{problems, read_text, sniffed};

const TRAIN: &str = "Context,Utterance,Label\n\
    \"my sound is gone , \"\"again\"\" __eou__ help __eou__ __eot__ which card ? __eou__ __eot__ \",an old one __eou__ ok __eou__,1.0\n\
    hello __eou__ __eot__ hi __eou__ __eot__ ,,0.0\n\
    hello __eou__ __eot__ ,go away __eou__,0\n\
    hello __eou__ __eot__ ,go away __eou__,maybe\n\
    hello __eou__ __eot__\n";

fn texts(dialogue: &Dialogue) -> Vec<(&str, &str)> {
    dialogue.turns.iter().map(|turn| (turn.speaker.as_str(), turn.text.as_str())).collect()
}

#[test]
fn a_training_row_is_a_context_with_utterance_and_label() {
    let got = read_text(&UbuntuDialogue, "train.csv", TRAIN);
    assert_eq!(
        texts(&got[0]),
        [
            ("user", "my sound is gone , \"again\""),
            ("user", "help"),
            ("agent", "which card ?"),
            ("user", "an old one"),
            ("user", "ok")
        ]
    );
    assert_eq!((got[0].id.as_str(), &got[0].metadata["label"]), ("ubuntu-dialogue-train-000001", &1.into()));
    // Ids count all rows, including rejected ones. They do not change when a row is fixed.
    assert_eq!((got[1].id.as_str(), &got[1].metadata["label"]), ("ubuntu-dialogue-train-000003", &0.into()));
    assert_eq!(got[1].metadata["split"], "train");
    assert_eq!(texts(&got[1]), [("user", "hello"), ("agent", "go away")]);
}

#[test]
fn bad_rows_are_reported() {
    assert_eq!(
        problems(&UbuntuDialogue, "train.csv", TRAIN),
        [
            "train.csv:3 (ubuntu-dialogue-train-000002): the row has no utterance after the context",
            "train.csv:5 (ubuntu-dialogue-train-000004): the label `maybe` is neither 0 nor 1",
            "train.csv:6 (ubuntu-dialogue-train-000005): the row has 1 columns, not 3",
        ]
    );
}

#[test]
fn an_evaluation_row_keeps_its_distractors() {
    let text = "Context,Ground Truth Utterance,Distractor_0,Distractor_1\n\
        hello __eou__ __eot__ ,hi __eou__ there __eou__,no __eou__ way __eou__,never __eou__\n";
    let got = read_text(&UbuntuDialogue, "/c/valid.csv", text);
    assert_eq!(texts(&got[0]), [("user", "hello"), ("agent", "hi"), ("agent", "there")]);
    assert_eq!(got[0].metadata["distractors"], serde_json::json!(["no way", "never"]));
    assert_eq!(got[0].metadata["split"], "valid");
    assert_eq!(sniffed("valid.csv", text), Some("ubuntu-dialogue"));
}

const CHAT: &str = "2009-03-01T10:00:00.000Z\tamy\t\tmy \"disk\" is full\n\
    2009-03-01T10:01:00.000Z\tbob\tamy\twhich one?\n\
    2009-03-01T10:02:00.000Z\tamy\tbob\t\n\
    2009-03-01T10:02:00.000Z\tamy\tbob\tthe old\tone\n";

#[test]
fn a_raw_chat_is_one_dialogue() {
    let got = read_text(&UbuntuDialogue, "dialogs/4/17.tsv", CHAT);
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].id.as_str(), "ubuntu-dialogue-4-17");
    assert_eq!(
        texts(&got[0]),
        [("amy", "my \"disk\" is full"), ("bob", "which one?"), ("amy", "the old\tone")]
    );
    assert_eq!(got[0].turns[1].role, Some(Role::Agent));
    assert_eq!(got[0].time.unwrap().to_string(), "2009-03-01T10:00:00Z");
}

#[test]
fn bad_lines_of_a_chat_are_reported() {
    let text = "2009-03-01T10:00:00.000Z\tamy\t\thello\nso\tit\nlately\tamy\t\thello\n2009-03-01T10:00:00Z\t\t\thi\n";
    assert_eq!(
        problems(&UbuntuDialogue, "3/1.tsv", text),
        [
            "3/1.tsv:2: the line is not a message; the columns must be time, from, to and text, separated by tabs",
            "3/1.tsv:3: `lately` is not a time like 2008-04-23T14:55:00.000Z",
            "3/1.tsv:4: the message has no sender",
        ]
    );
    assert_eq!(
        problems(&UbuntuDialogue, "3/1.tsv", "\n"),
        ["3/1.tsv:1 (ubuntu-dialogue-3-1): the dialogue has no turns"]
    );
}

#[test]
fn both_layouts_are_detected_by_their_columns() {
    assert_eq!(sniffed("train.csv", TRAIN), Some("ubuntu-dialogue"));
    assert_eq!(sniffed("1.tsv", CHAT), Some("ubuntu-dialogue"));
    assert_ne!(sniffed("a.tsv", "time\tfrom\tto\ttext\n2009\tamy\t\thi\n"), Some("ubuntu-dialogue"));
    assert_eq!(sniffed("trainfiles.csv", "100.tsv, 3\n7.tsv, 12\n"), None);
}
