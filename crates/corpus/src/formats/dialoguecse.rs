//! The files of DialogueCSE, in three layouts: `train_data`, `select` and `sts`. `⇥` is a tab.
//!
//! - `train_data.txt`: a response with its context, `turn|… before ⇥ turn|… after ⇥ roles ⇥ 1 ⇥ candidate|… ⇥ label|…`.
//!   The roles, such as `0|1-0-1`, have three parts: turns before, response, turns after. 0 is the customer, and 1 is
//!   the agent. The candidate with the label 1 is the response. The other candidates are random and are ignored. A line
//!   becomes a dialogue. Its metadata field `response` is the turn number of the response.
//! - `select.txt`: an utterance with lists of positive utterances (same meaning) and negative utterances (different
//!   meaning), `id ⇥ text ⇥ intent ⇥ id,… ⇥ id,…`. Ids are numbers, usually the line number counted from 0. A line
//!   becomes a dialogue of one turn, with the lists as metadata.
//! - `sts.txt`: `score ⇥ sentence ⇥ sentence`. A line becomes a dialogue with one turn for each sentence, and with the
//!   score as metadata.
//!
//! A dialogue id, such as `edc-dev-select-17`, consists of the corpus, the split, the file name and a number. In
//! `select.txt`, this number is the id of the line. In other files, it is the line number counted from 0.

use crate::formats::prelude::*;

/// Returns whether `fits` is true for each of the first 40 lines that are not blank. Returns `false` if all lines are
/// blank. The arguments of `fits` are the index of the line among the lines that are not blank, and the line.
fn all_fit(probe: &Probe<'_>, fits: impl Fn(usize, &str) -> bool) -> bool {
    let mut lines = probe.lines().take(40).enumerate().peekable();
    lines.peek().is_some() && lines.all(|(number, line)| fits(number, line))
}

/// Creates the dialogue of a line, without turns.
fn begin(path_info: &PathInfo, number: u64) -> Result<Dialogue, RecordError> {
    let id = DialogueId::new(format!("{}-{number}", path_info.prefix()))?;
    let mut dialogue = path_info.dialogue(id);
    if ["edc", "ecd", "jddc"].contains(&dialogue.source.to_ascii_lowercase().as_str()) {
        dialogue.language = Some("zh".into());
    }
    Ok(dialogue)
}

/// Reads one dialogue per line. The second argument of `parse` is the line number, counted from 0.
fn read(
    input: Input,
    options: &ReadOptions,
    parse: fn(&PathInfo, u64, &str) -> Result<Dialogue, RecordError>,
) -> Result<Dialogues> {
    let path_info = PathInfo::of(&input);
    Ok(support::from_lines(input, options, move |line| {
        parse(&path_info, line.number - 1, line.text).map(Some)
    }))
}

pub(super) static TRAIN: Format = Format {
    name: "dialoguecse-train",
    about: "DialogueCSE's train_data: turns before and after a response, roles, candidates and labels",
    sniff: sniff_train,
    read: |input, options| read(input, options, train),
};

fn sniff_train(probe: &Probe<'_>) -> Fit {
    let fits = |_, line: &str| {
        support::columns::<6>(line, "").is_ok_and(|[_, _, roles, ..]| {
            roles.split('-').count() == 3 && roles.bytes().all(|b| b"01|-".contains(&b))
        })
    };
    if all_fit(probe, fits) { Fit::Yes } else { Fit::No }
}

fn train(path_info: &PathInfo, number: u64, line: &str) -> Result<Dialogue, RecordError> {
    let [before, after, roles, _, candidates, labels] =
        support::columns(line, "before, after, roles, 1, candidates, labels")?;
    let parts: Vec<&str> = roles.split('-').collect();
    let [roles_before, role, roles_after] = parts[..] else {
        return Err(format!("the roles `{roles}` are not three parts separated by `-`").into());
    };
    let mut labeled = list(candidates).zip(list(labels));
    let (response, _) = labeled.find(|(_, label)| *label == "1").ok_or("no candidate has the label 1")?;
    let mut dialogue = begin(path_info, number)?;
    for (name, texts, roles) in
        [("before", before, roles_before), ("", response, role), ("after", after, roles_after)]
    {
        match (name, list(texts).count(), list(roles).count()) {
            (_, turns, roles) if turns == roles => {}
            ("", ..) => return Err("the response must have exactly one role".into()),
            (name, turns, roles) => {
                return Err(format!("{turns} turns {name} the response, but {roles} roles").into());
            }
        }
        for (text, role) in list(texts).zip(list(roles)) {
            let (speaker, role) = match role {
                "0" => ("user", Role::User),
                "1" => ("agent", Role::Agent),
                _ => return Err(format!("the role `{role}` is neither 0 nor 1").into()),
            };
            dialogue.push(speaker, role, text.trim());
        }
        if name.is_empty() {
            dialogue.note("response", dialogue.turns.len());
        }
    }
    Ok(dialogue)
}

/// Splits a cell at `|`. An empty cell has no items.
fn list(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('|').filter(move |_| !cell.is_empty())
}

pub(super) static SELECT: Format = Format {
    name: "dialoguecse-select",
    about: "DialogueCSE's select.txt: id, text, intent, ids of sentences with the same meaning, ids of sentences with another meaning",
    sniff: sniff_select,
    read: |input, options| read(input, options, select),
};

fn sniff_select(probe: &Probe<'_>) -> Fit {
    let fits = |number: usize, line: &str| {
        support::columns::<5>(line, "").is_ok_and(|[id, _, _, positives, negatives]| {
            let is_id = id.trim().parse::<usize>().is_ok_and(|id| id >= number);
            is_id && numbers(positives).is_ok() && numbers(negatives).is_ok()
        })
    };
    if all_fit(probe, fits) { Fit::Yes } else { Fit::No }
}

fn select(path_info: &PathInfo, _: u64, line: &str) -> Result<Dialogue, RecordError> {
    let [id, text, intent, positives, negatives] = support::columns(line, "id, text, intent, same, other")?;
    let number = id.trim().parse().map_err(|_| format!("the id `{}` is not a number", id.trim()))?;
    let mut dialogue = begin(path_info, number)?;
    dialogue.push("user", Role::User, text.trim()).intent =
        Some(intent.trim().to_owned()).filter(|intent| !intent.is_empty());
    for (name, cell) in [("positive", positives), ("negative", negatives)] {
        let ids = numbers(cell).map_err(|wrong| {
            RecordError::new(format!("`{wrong}` among the {name} ids is not a number"))
                .with_id(Some(dialogue.id.as_str()))
        })?;
        dialogue.metadata.insert(format!("{name}_count"), ids.len().into());
        dialogue.metadata.insert(format!("{name}s"), ids.into());
    }
    Ok(dialogue)
}

/// Parses comma-separated numbers. The error is the first part that is not a number.
fn numbers(cell: &str) -> Result<Vec<u64>, &str> {
    let parts = cell.split(',').map(str::trim).filter(|_| !cell.trim().is_empty());
    parts.map(|part| part.parse().map_err(|_| part)).collect()
}

pub(super) static STS: Format = Format {
    name: "dialoguecse-sts",
    about: "DialogueCSE's sts.txt: a score from 0 to 5 and two sentences, separated by tabs",
    sniff: sniff_sts,
    read: |input, options| read(input, options, sts),
};

fn sniff_sts(probe: &Probe<'_>) -> Fit {
    let is_sentence = |text: &str| !text.is_empty() && text.parse::<f64>().is_err();
    let fits = |_, line: &str| {
        support::columns(line, "")
            .is_ok_and(|[grade, a, b]| score(grade).is_some() && is_sentence(a) && is_sentence(b))
    };
    match all_fit(probe, fits) {
        true if probe.file_name().starts_with("sts") => Fit::Yes,
        true => Fit::Maybe,
        false => Fit::No,
    }
}

fn sts(path_info: &PathInfo, number: u64, line: &str) -> Result<Dialogue, RecordError> {
    let [grade, a, b] = support::columns(line, "score, sentence, sentence")?;
    let score = score(grade).ok_or_else(|| format!("`{}` is not a score from 0 to 5", grade.trim()))?;
    let mut dialogue = begin(path_info, number)?;
    dialogue.note("score", score);
    for (speaker, text) in [("a", a), ("b", b)] {
        if text.trim().is_empty() {
            let reason = format!("sentence {speaker} is empty");
            return Err(RecordError::new(reason).with_id(Some(dialogue.id.as_str())));
        }
        dialogue.push(speaker, Role::Participant, text.trim());
    }
    Ok(dialogue)
}

/// Parses a score from 0 to 5. Returns `None` for any other text.
fn score(cell: &str) -> Option<serde_json::Number> {
    let score: serde_json::Number = cell.trim().parse().ok()?;
    (0.0..=5.0).contains(&score.as_f64()?).then_some(score)
}

#[cfg(test)]
mod tests {
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
        let got = read_text(&super::TRAIN, name, TRAIN);
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
        let problems = problems(&super::TRAIN, name, TRAIN);
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
        let got = read_text(&super::SELECT, "/c/shop/dev/select.txt", SELECT);
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
            problems(&super::SELECT, "/c/shop/dev/select.txt", SELECT),
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
        let got = read_text(&super::STS, "/c/jddc/test/sts.txt", STS);
        assert_eq!(got.len(), 2);
        assert_eq!((got[1].id.as_str(), &got[1].metadata["score"]), ("jddc-test-sts-1", &2.5.into()));
        assert_eq!(got[0].metadata["score"], 4);
        assert_eq!(turns(&got[0]), [(Role::Participant, "where is it"), (Role::Participant, "is it here")]);
        assert_eq!(
            problems(&super::STS, "/c/jddc/test/sts.txt", STS),
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
}
