//! The files of DialogueCSE, in three layouts: `train_data`, `select` and `sts`.
//!
//! - `train_data.txt`: a response with its context,
//!   `turn|… before ⇥ turn|… after ⇥ roles ⇥ 1 ⇥ candidate|… ⇥ label|…`. Roles are `0|1-0-1`: those of the turns
//!   before, of the response, and of the turns after. 0 is the customer, 1 the agent. The candidate with label 1 is
//!   the response; the others are random and are ignored. A line becomes a dialogue. Its metadata has the number of
//!   the response turn.
//! - `select.txt`: an utterance with lists of positive and negative utterances (with the same or a different
//!   meaning), `id ⇥ text ⇥ intent ⇥ id,… ⇥ id,…`. Ids are numbers, usually the line number counted from 0. A line
//!   becomes a dialogue of one turn, with the lists as metadata.
//! - `sts.txt`: `score ⇥ sentence ⇥ sentence`, with scores from 1 to 5. A line becomes a record of two unrelated
//!   turns, with the score as metadata.
//!
//! Dialogue ids consist of corpus, split, file and line number from 0 (in `select.txt`, the id): `edc-dev-select-17`.

use crate::{
    Dialogue, Role,
    formats::{
        Dialogues, Fit, Format, ReadOptions,
        path_info::PathInfo,
        support::{self, RecordError},
    },
    input::{Input, Probe},
};
use turnwise_core::{error::Result, ids::DialogueId};

pub(super) struct Train;
pub(super) struct Select;
pub(super) struct Sts;

/// Number of lines to check for format detection.
const PROBE_LINES: usize = 40;

fn cells(line: &str) -> Vec<&str> {
    line.split('\t').collect()
}

/// Returns whether all of the first lines fit. The arguments of `fits` are the line number from 0 and the line.
fn all_fit(probe: &Probe<'_>, fits: impl Fn(usize, &str) -> bool) -> bool {
    let mut lines = probe.lines().take(PROBE_LINES).enumerate().peekable();
    lines.peek().is_some() && lines.all(|(number, line)| fits(number, line))
}

/// Creates an empty dialogue for a line.
fn begin(path_info: &PathInfo, number: impl std::fmt::Display) -> Result<Dialogue, RecordError> {
    let mut dialogue = Dialogue::new(DialogueId::new(format!("{}-{number}", path_info.prefix()))?);
    dialogue.source = path_info.source();
    if ["edc", "ecd", "jddc"].contains(&dialogue.source.to_ascii_lowercase().as_str()) {
        dialogue.language = Some("zh".into());
    }
    if let Some(split) = &path_info.split {
        dialogue.metadata.insert("split".into(), split.as_str().into());
    }
    Ok(dialogue)
}

/// Reads one dialogue per line. Blank lines are skipped.
fn read(
    input: Input,
    options: &ReadOptions,
    parse: fn(&PathInfo, u64, &str) -> Result<Dialogue, RecordError>,
) -> Dialogues {
    let path_info = PathInfo::of(&input);
    support::from_lines(input, options, move |line| match line.text.trim() {
        "" => Ok(None),
        _ => parse(&path_info, line.number - 1, line.text).map(Some),
    })
}

impl Format for Train {
    fn name(&self) -> &'static str {
        "dialoguecse-train"
    }

    fn about(&self) -> &'static str {
        "DialogueCSE's train_data: turns before and after a response, roles, candidates and labels"
    }

    fn sniff(&self, probe: &Probe<'_>) -> Fit {
        let fits = |_, line: &str| match cells(line)[..] {
            [_, _, roles, _, _, _] => {
                roles.split('-').count() == 3 && roles.bytes().all(|b| b"01|-".contains(&b))
            }
            _ => false,
        };
        if all_fit(probe, fits) { Fit::Yes } else { Fit::No }
    }

    fn read(&self, input: Input, options: &ReadOptions) -> Result<Dialogues> {
        Ok(read(input, options, train))
    }
}

fn train(path_info: &PathInfo, number: u64, line: &str) -> Result<Dialogue, RecordError> {
    let cells = cells(line);
    let [before, after, roles, _, candidates, labels] = cells[..] else {
        return Err(RecordError::new(format!(
            "the line has {} columns, not 6 (before, after, roles, 1, candidates, labels)",
            cells.len()
        )));
    };
    let parts: Vec<&str> = roles.split('-').collect();
    let [roles_before, role, roles_after] = parts[..] else {
        return Err(RecordError::new(format!("the roles `{roles}` are not three parts separated by `-`")));
    };
    let mut true_ones =
        list(candidates).zip(list(labels)).filter(|(_, label)| *label == "1").map(|(text, _)| text);
    let Some(response) = true_ones.next() else {
        return Err(RecordError::new("no candidate has the label 1"));
    };
    let mut dialogue = begin(path_info, number)?;
    for (name, texts, roles) in
        [("before", before, roles_before), ("", response, role), ("after", after, roles_after)]
    {
        let (count, wanted) = (list(texts).count(), list(roles).count());
        if count != wanted {
            return Err(RecordError::new(match name {
                "" => "the response must have exactly one role".to_owned(),
                _ => format!("{count} turns {name} the response, but {wanted} roles"),
            }));
        }
        for (text, role) in list(texts).zip(list(roles)) {
            let (speaker, role) = match role {
                "0" => ("user", Role::User),
                "1" => ("agent", Role::Agent),
                _ => return Err(RecordError::new(format!("the role `{role}` is neither 0 nor 1"))),
            };
            dialogue.push(speaker, role, text.trim());
        }
        if name.is_empty() {
            dialogue.metadata.insert("response".into(), dialogue.turns.len().into());
        }
    }
    Ok(dialogue)
}

/// Splits a cell at `|`. An empty cell has no items.
fn list(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('|').filter(move |_| !cell.is_empty())
}

impl Format for Select {
    fn name(&self) -> &'static str {
        "dialoguecse-select"
    }

    fn about(&self) -> &'static str {
        "DialogueCSE's select.txt: id, text, intent, ids of the same meaning, ids of another"
    }

    fn sniff(&self, probe: &Probe<'_>) -> Fit {
        let fits = |number: usize, line: &str| match cells(line)[..] {
            [id, _, _, positives, negatives] => {
                id.trim().parse::<usize>().is_ok_and(|id| id >= number)
                    && numbers(positives).is_ok()
                    && numbers(negatives).is_ok()
            }
            _ => false,
        };
        if all_fit(probe, fits) { Fit::Yes } else { Fit::No }
    }

    fn read(&self, input: Input, options: &ReadOptions) -> Result<Dialogues> {
        Ok(read(input, options, select))
    }
}

fn select(path_info: &PathInfo, _: u64, line: &str) -> Result<Dialogue, RecordError> {
    let cells = cells(line);
    let [id, text, intent, positives, negatives] = cells[..] else {
        return Err(RecordError::new(format!(
            "the line has {} columns, not 5 (id, text, intent, same, other)",
            cells.len()
        )));
    };
    let number: u64 =
        id.trim().parse().map_err(|_| RecordError::new(format!("the id `{}` is not a number", id.trim())))?;
    let mut dialogue = begin(path_info, number)?;
    let intent = intent.trim();
    dialogue.push("user", Role::User, text.trim()).intent =
        Some(intent.to_owned()).filter(|intent| !intent.is_empty());
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

impl Format for Sts {
    fn name(&self) -> &'static str {
        "dialoguecse-sts"
    }

    fn about(&self) -> &'static str {
        "DialogueCSE's sts.txt: a score from 1 to 5 and two sentences, separated by tabs"
    }

    fn sniff(&self, probe: &Probe<'_>) -> Fit {
        let fits = |_, line: &str| match cells(line)[..] {
            [grade, a, b] => {
                score(grade).is_some()
                    && [a, b].iter().all(|text| !text.is_empty() && text.parse::<f64>().is_err())
            }
            _ => false,
        };
        if !all_fit(probe, fits) {
            Fit::No
        } else if probe.file_name().starts_with("sts") {
            Fit::Yes
        } else {
            Fit::Maybe
        }
    }

    fn read(&self, input: Input, options: &ReadOptions) -> Result<Dialogues> {
        Ok(read(input, options, sts))
    }
}

fn sts(path_info: &PathInfo, number: u64, line: &str) -> Result<Dialogue, RecordError> {
    let cells = cells(line);
    let [grade, a, b] = cells[..] else {
        return Err(RecordError::new(format!(
            "the line has {} columns, not 3 (score, sentence, sentence)",
            cells.len()
        )));
    };
    let Some(score) = score(grade) else {
        return Err(RecordError::new(format!("`{}` is not a score from 0 to 5", grade.trim())));
    };
    let mut dialogue = begin(path_info, number)?;
    dialogue.metadata.insert("score".into(), score.into());
    for (speaker, text) in [("a", a), ("b", b)] {
        if text.trim().is_empty() {
            return Err(
                RecordError::new(format!("sentence {speaker} is empty")).with_id(Some(dialogue.id.as_str()))
            );
        }
        dialogue.push(speaker, Role::Participant, text.trim());
    }
    Ok(dialogue)
}

fn score(cell: &str) -> Option<serde_json::Number> {
    let score: serde_json::Number = cell.trim().parse().ok()?;
    (0.0..=5.0).contains(&score.as_f64()?).then_some(score)
}

#[cfg(test)]
mod tests;
