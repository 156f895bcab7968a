//! Companion files of MultiWOZ: lists of ids in each split, dialog acts, the ontology and databases.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    Dialogue,
    formats::{
        Problem, ReadOptions, support,
        task_oriented::{act_names, any_element, push_unique},
    },
    input::{Input, Probe},
    json_elements::Elements,
    lines::Lines,
};
use turnwise_core::error::Reject;

const DOMAINS: [&str; 8] =
    ["attraction", "bus", "hospital", "hotel", "police", "restaurant", "taxi", "train"];

/// Names of the dialog act files in the MultiWOZ versions.
const ACT_FILES: [&str; 3] = ["dialogue_acts.json", "system_acts.json", "dialog_acts.json"];

/// Maximum number of dialog acts in a file, more than ten times the number in the corpus. It limits memory use.
const MAX_ACTS: usize = 4_000_000;
/// Maximum number of ids in a list file.
const MAX_LISTED: usize = 1_000_000;

/// Returns whether a file belongs to the corpus but contains no dialogues.
pub(super) fn is_companion(probe: &Probe<'_>) -> bool {
    let name = probe.file_name();
    if is_list_name(&name) {
        return probe.lines().next().is_some_and(|line| !line.trim().contains(char::is_whitespace));
    }
    if ACT_FILES.contains(&name.as_str()) {
        return any_element(probe, 1, |_, value| value.is_object());
    }
    if name == "ontology.json" || name == "slot_descriptions.json" {
        return any_element(probe, 1, |keys, _| {
            keys.last()
                .and_then(|key| key.split_once('-'))
                .is_some_and(|(domain, _)| DOMAINS.contains(&domain))
        });
    }
    name.strip_suffix("_db.json").is_some_and(|domain| DOMAINS.contains(&domain))
}

fn is_list_name(name: &str) -> bool {
    ["trainlistfile", "vallistfile", "testlistfile"].iter().any(|list| name.starts_with(list))
}

/// Splits of the dialogues.
pub(super) struct Splits {
    /// The split of the whole file, from its name or its folder.
    whole: Option<String>,
    val: HashSet<String>,
    test: HashSet<String>,
}

impl Splits {
    /// Uses the split of the whole file, or reads the list files in the same folder.
    pub(super) fn of(path: Option<&Path>, whole: Option<String>) -> Self {
        let list = |name: &str| match path {
            Some(path) if whole.is_none() => listed(path, name),
            _ => HashSet::new(),
        };
        Splits { val: list("valListFile"), test: list("testListFile"), whole }
    }

    pub(super) fn of_dialogue(&self, id: &str) -> Option<&str> {
        let id = bare(id);
        match &self.whole {
            Some(split) => Some(split),
            None if self.val.contains(id) => Some("val"),
            None if self.test.contains(id) => Some("test"),
            None if self.val.is_empty() || self.test.is_empty() => None,
            None => Some("train"),
        }
    }
}

/// Removes `.json` from an id. Some versions have this suffix, others do not.
fn bare(id: &str) -> &str {
    id.strip_suffix(".json").unwrap_or(id)
}

/// Reads the ids in a list file next to a file. All lists have one id per line, but the extension may be `.json`,
/// `.txt` or none.
fn listed(path: &Path, name: &str) -> HashSet<String> {
    let mut ids = HashSet::new();
    for extension in ["", ".json", ".txt"] {
        let Ok(input) = Input::open(&path.with_file_name(format!("{name}{extension}"))) else {
            continue;
        };
        let mut lines = Lines::new(input.into_stream(), 4096);
        while let Some(line) = lines.next_line() {
            let Ok(line) = line else { continue };
            if ids.len() < MAX_LISTED {
                ids.insert(bare(line.text.trim()).to_owned());
            }
        }
    }
    ids
}

/// Dialog acts from a companion file. Each distinct name is stored once.
#[derive(Default)]
pub(super) struct Acts {
    names: Vec<String>,
    /// For each dialogue, pairs of turn index (from 0) and act index.
    by_dialogue: HashMap<String, Vec<(u32, u32)>>,
}

impl Acts {
    /// Reads the dialog act file in the folder of a file, or in its parent folder as in version 2.2. Also returns the
    /// problems found.
    pub(super) fn read_near(path: &Path, options: &ReadOptions) -> (Self, Vec<Problem>) {
        let mut acts = Acts::default();
        let mut problems = Vec::new();
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let candidates = absolute.ancestors().skip(1).take(2);
        let found: Option<PathBuf> = candidates
            .flat_map(|folder| ACT_FILES.iter().map(move |name| folder.join(name)))
            .find(|file| file.is_file() && *file != absolute);
        if let Some(file) = found {
            acts.load(&file, options, &mut problems);
        }
        (acts, problems)
    }

    fn load(&mut self, file: &Path, options: &ReadOptions, problems: &mut Vec<Problem>) {
        let name = file.display().to_string();
        let problem = |line, id: Option<&String>, reason: String| {
            Problem::Record(Reject { path: name.clone(), line, id: id.cloned(), reason })
        };
        let input = match Input::open(file) {
            Ok(input) => input,
            Err(e) => return problems.push(problem(None, None, format!("cannot read the dialog acts: {e}"))),
        };
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut total = 0;
        for element in Elements::at_depth(input.into_stream(), 1, options.max_record) {
            let element = match element {
                Ok(element) => element,
                Err(e) => {
                    problems.push(support::element_problem(&name, e));
                    continue;
                }
            };
            let id = element.keys.last();
            let turns: HashMap<String, Value> = match serde_json::from_slice(&element.json) {
                Ok(turns) => turns,
                Err(e) => {
                    problems.push(problem(Some(element.line), id, support::json_reason(&e)));
                    continue;
                }
            };
            let mut places = Vec::new();
            for (place, value) in turns {
                let Some(place) = turn_index(&place, &value) else {
                    continue;
                };
                for act in act_names(value.get("dialog_act").unwrap_or(&value)) {
                    let next = self.names.len() as u32;
                    let number = *numbers.entry(act).or_insert_with_key(|act| {
                        self.names.push(act.clone());
                        next
                    });
                    places.push((place, number));
                }
            }
            total += places.len();
            if total > MAX_ACTS {
                let reason = format!("the file has more than {MAX_ACTS} dialog acts; the rest is ignored");
                return problems.push(problem(Some(element.line), id, reason));
            }
            places.sort_unstable();
            self.by_dialogue.insert(bare(id.map_or("", String::as_str)).to_owned(), places);
        }
    }

    /// Adds the acts to the turns of a dialogue, unless it already has acts.
    pub(super) fn add_to(&self, dialogue: &mut Dialogue) {
        let Some(places) = self.by_dialogue.get(bare(dialogue.id.as_str())) else {
            return;
        };
        if dialogue.turns.iter().any(|turn| !turn.acts.is_empty()) {
            return;
        }
        for &(place, number) in places {
            let turn = dialogue.turns.get_mut(place as usize);
            if let (Some(turn), Some(name)) = (turn, self.names.get(number as usize)) {
                push_unique(&mut turn.acts, name);
            }
        }
    }
}

/// Returns the index of a turn in the log. Version 2.2 counts all turns from 0 and wraps the acts in `dialog_act`.
/// Earlier versions count only system turns, from 1.
fn turn_index(key: &str, value: &Value) -> Option<u32> {
    let number: u32 = key.trim().parse().ok()?;
    if value.get("dialog_act").is_some() { Some(number) } else { number.checked_mul(2)?.checked_sub(1) }
}
