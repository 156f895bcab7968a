use super::*;
use crate::formats::support::testing::{problems, read_text, sniffed};

fn turns(dialogue: &Dialogue) -> Vec<(Role, &str)> {
    dialogue.turns.iter().map(|turn| (turn.role.clone().unwrap(), turn.text.as_str())).collect()
}

const TRAIN: &str = "\
hello|what is it|a kettle\tit is - blue\t1|1|0-1-1\t1\twhich colour|no|yes\t1|0|0
\tthanks\t-0-1\t1\tno|is it in stock\t0|1
a|b\tc\t0-0-1\t1\tx|y\t1|0
a\tc\t0-0-1\t1\tx|y\t0|0
a\tc\t0-0-2\t1\tx|y\t1|0
a\tc\t0-0\t1\tx\t1
a\tc
";

#[test]
fn a_training_line_is_a_dialogue_with_its_response() {
    let name = "/c/edc/train/train_data.txt.sample";
    let got = read_text(&Train, name, TRAIN);
    assert_eq!(got.len(), 2);
    assert_eq!((got[0].id.as_str(), got[0].source.as_str()), ("edc-train-train_data-0", "edc"));
    assert_eq!((got[0].language.as_deref(), &got[0].metadata["split"]), (Some("zh"), &"train".into()));
    assert_eq!(
        turns(&got[0]),
        [
            (Role::Agent, "hello"),
            (Role::Agent, "what is it"),
            (Role::User, "a kettle"),
            (Role::Agent, "which colour"),
            (Role::Agent, "it is - blue")
        ]
    );
    assert_eq!(got[0].metadata["response"], 4);
    assert_eq!(turns(&got[1]), [(Role::User, "is it in stock"), (Role::Agent, "thanks")]);
    assert_eq!(got[1].metadata["response"], 1);
    let problems = problems(&Train, name, TRAIN);
    let reasons: Vec<_> = problems.iter().map(|p| p.strip_prefix(&format!("{name}:")).unwrap()).collect();
    assert_eq!(
        reasons,
        [
            "3: 2 turns before the response, but 1 roles",
            "4: no candidate has the label 1",
            "5: the role `2` is neither 0 nor 1",
            "6: the roles `0-0` are not three parts separated by `-`",
            "7: the line has 2 columns, not 6 (before, after, roles, 1, candidates, labels)",
        ]
    );
}

const SELECT: &str = "\
0\twhere is it\tdelivery\t1,2\t3
1\tstill waiting\t\t0\t
x\tstill waiting\t\t0\t1
3\tstill waiting\t\t0,o\t1
4\tstill waiting
5\t \t\t0\t1
";

#[test]
fn a_select_line_is_one_turn_with_its_lists() {
    let got = read_text(&Select, "/c/shop/dev/select.txt", SELECT);
    assert_eq!(got.len(), 2);
    assert_eq!(got[0].id.as_str(), "shop-dev-select-0");
    assert_eq!(turns(&got[0]), [(Role::User, "where is it")]);
    assert_eq!(got[0].turns[0].intent.as_deref(), Some("delivery"));
    assert_eq!(
        (&got[0].metadata["positives"], &got[0].metadata["positive_count"]),
        (&vec![1, 2].into(), &2.into())
    );
    assert_eq!(
        (&got[1].metadata["negatives"], &got[1].metadata["negative_count"]),
        (&vec![0; 0].into(), &0.into())
    );
    assert_eq!((got[1].turns[0].intent.as_deref(), got[1].language.as_deref()), (None, None));
    assert_eq!(
        problems(&Select, "/c/shop/dev/select.txt", SELECT),
        [
            "/c/shop/dev/select.txt:3: the id `x` is not a number",
            "/c/shop/dev/select.txt:4 (shop-dev-select-3): `o` among the positive ids is not a number",
            "/c/shop/dev/select.txt:5: the line has 2 columns, not 5 (id, text, intent, same, other)",
            "/c/shop/dev/select.txt:6 (shop-dev-select-5): every turn's text is empty",
        ]
    );
}

const STS: &str = "4\twhere is it\tis it here\n2.5\thello\tbye\n9\thello\tbye\n3\thello\t\n3\thello\n";

#[test]
fn an_sts_line_is_two_sentences_with_a_score() {
    let got = read_text(&Sts, "/c/jddc/test/sts.txt", STS);
    assert_eq!(got.len(), 2);
    assert_eq!((got[1].id.as_str(), &got[1].metadata["score"]), ("jddc-test-sts-1", &2.5.into()));
    assert_eq!(got[0].metadata["score"], 4);
    assert_eq!(turns(&got[0]), [(Role::Participant, "where is it"), (Role::Participant, "is it here")]);
    assert_eq!(
        problems(&Sts, "/c/jddc/test/sts.txt", STS),
        [
            "/c/jddc/test/sts.txt:3: `9` is not a score from 0 to 5",
            "/c/jddc/test/sts.txt:4 (jddc-test-sts-3): sentence b is empty",
            "/c/jddc/test/sts.txt:5: the line has 2 columns, not 3 (score, sentence, sentence)",
        ]
    );
}

#[test]
fn the_three_layouts_are_detected() {
    let first = |text: &str, n| text.lines().take(n).collect::<Vec<_>>().join("\n");
    assert_eq!(sniffed("train_data.txt.sample", &first(TRAIN, 4)), Some("dialoguecse-train"));
    assert_eq!(sniffed("x.sr.dev.tsv", &first(SELECT, 2)), Some("dialoguecse-select"));
    assert_eq!(sniffed("sts.txt", &first(STS, 2)), Some("dialoguecse-sts"));
    assert_eq!(sniffed("pairs.txt", &first(STS, 2)), Some("dialoguecse-sts"));
    assert_eq!(sniffed("list.tsv", "1\t2\t3\n2\t3\t4\n"), None);
}
