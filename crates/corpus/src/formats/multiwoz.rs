//! MultiWOZ 2.0, 2.1 (also in the single-split files of ConvLab-2) and 2.2.
//!
//! A file of version 2.0 or 2.1 is a JSON object that maps dialogue ids to `{goal, log}`. A file of version 2.2 is an
//! array of dialogues with services and frames, in the layout of SGD. The dialog acts are in the log or in a companion
//! file.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};

use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "multiwoz",
    about: "MultiWOZ 2.0 and 2.1 (data.json, ConvLab-2's val.json), MultiWOZ 2.2 (dialogues_*.json)",
    sniff,
    read,
};

#[derive(Deserialize)]
#[serde(expecting = "an object with a dialogue")]
struct Record {
    goal: Option<Map<String, Value>>,
    log: Option<Vec<LogTurn>>,
    dialogue_id: Option<String>,
    services: Option<Vec<String>>,
    turns: Option<Vec<FramedTurn>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a turn")]
struct LogTurn {
    text: String,
    /// The belief state. It is empty or missing in user turns.
    metadata: Option<BTreeMap<String, IgnoredAny>>,
    dialog_act: Option<Value>,
}

fn sniff(probe: &Probe<'_>) -> Fit {
    if any_element(probe, 1, |_, value| is_log(value) || is_framed(value, true)) {
        Fit::Yes
    } else if is_companion(probe) || is_schema(probe) {
        Fit::Companion
    } else {
        Fit::No
    }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let stem = input.stem();
    let split = split_of(&stem).or_else(|| input.folder_name().and_then(|folder| split_of(&folder)));
    let splits = Splits::of(input.path.as_deref(), split);
    let has_acts = any_element(&input.probe(), 1, |_, value| {
        value.get("log").and_then(|log| log.get(0)).is_some_and(|turn| turn.get("dialog_act").is_some())
    });
    let (acts, problems) = match &input.path {
        Some(path) if !has_acts => Acts::read_near(path, options),
        _ => (Acts::default(), Vec::new()),
    };
    let framed = input.probe().text.trim_start().starts_with('[');
    let dialogues = support::from_elements(input, options, 1, move |element| {
        let key = element.keys.last().map_or("", String::as_str);
        let read: Record = record(element, framed.then_some("dialogue_id"))?;
        let id = match read.dialogue_id.filter(|id| !id.is_empty()) {
            None if !framed => DialogueId::new(key)?,
            id => support::id_or_generated(id, &stem, position(element))?,
        };
        let mut dialogue = support::dialogue(id, "multiwoz", Some("en"));
        match (read.log, read.turns) {
            (Some(log), _) => add_log(&mut dialogue, log),
            (None, Some(turns)) => add_framed_turns(&mut dialogue, turns),
            (None, None) => {
                let reason = "the dialogue has neither `log` (MultiWOZ 2.0, 2.1) nor `turns` (2.2)";
                return Err(RecordError::new(reason).with_id(Some(dialogue.id.as_str())));
            }
        }
        dialogue.domains = read.services.unwrap_or_default();
        if let Some(goal) = &read.goal {
            add_goal(&mut dialogue, goal);
        }
        if dialogue.domains.is_empty() {
            dialogue.domains = domains_of_intents(&dialogue.intents);
        }
        dialogue.note("split", splits.of_dialogue(dialogue.id.as_str()));
        acts.add_to(&mut dialogue);
        Ok(Some(dialogue))
    });
    Ok(Box::new(problems.into_iter().map(Err).chain(dialogues)))
}

fn is_log(value: &Value) -> bool {
    let turn = value.get("log").and_then(|log| log.get(0));
    value.get("goal").is_some_and(Value::is_object) && turn.is_some_and(|turn| turn.get("text").is_some())
}

fn add_log(dialogue: &mut Dialogue, log: Vec<LogTurn>) {
    let filled = |turn: &LogTurn| turn.metadata.as_ref().is_some_and(|state| !state.is_empty());
    let has_states = log.iter().any(filled);
    for (n, turn) in log.into_iter().enumerate() {
        // A belief state marks a system turn, even if an earlier turn is missing. In a log without belief states,
        // turns alternate, and the user starts.
        let is_user = if has_states && turn.metadata.is_some() { !filled(&turn) } else { n % 2 == 0 };
        let (speaker, role) = if is_user { ("USER", Role::User) } else { ("SYSTEM", Role::Agent) };
        dialogue.push(speaker, role, turn.text).acts =
            turn.dialog_act.as_ref().map(act_names).unwrap_or_default();
    }
}

/// Adds the domains for which the user has a goal. The instructions for the user become the metadata `goal`.
fn add_goal(dialogue: &mut Dialogue, goal: &Map<String, Value>) {
    for (domain, wanted) in goal {
        let wants = wanted.as_object().is_some_and(|wanted| !wanted.is_empty());
        if wants && domain != "topic" && domain != "message" {
            push_unique(&mut dialogue.domains, domain);
        }
    }
    let message = match goal.get("message") {
        Some(Value::String(text)) => without_tags(text),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(Value::as_str).map(without_tags).collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    };
    dialogue.note("goal", message);
}

/// Removes tags from a text. In the instructions for the user, values are marked with `<span class='emphasis'>`.
fn without_tags(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tag)) = rest.split_once('<') {
        plain.push_str(before);
        let Some((_, after)) = tag.split_once('>') else {
            rest = &rest[before.len()..];
            break;
        };
        rest = after;
    }
    plain.push_str(rest);
    plain.trim().to_owned()
}

/// Returns the domains of intents, such as `police` for `find_police`. Used for dialogues of version 2.2 without
/// services.
fn domains_of_intents(intents: &[String]) -> Vec<String> {
    let mut domains = Vec::new();
    for intent in intents {
        push_unique(&mut domains, intent.rsplit('_').next().unwrap_or_default());
    }
    domains
}

const DOMAINS: [&str; 8] =
    ["attraction", "bus", "hospital", "hotel", "police", "restaurant", "taxi", "train"];

/// Possible names of the file with the dialog acts. The name depends on the version of MultiWOZ.
const ACT_FILES: [&str; 3] = ["dialogue_acts.json", "system_acts.json", "dialog_acts.json"];

/// Maximum number of dialog acts that are read from a file. It is more than ten times the number in MultiWOZ.
const MAX_ACTS: usize = 4_000_000;
/// Maximum number of dialogue ids that are read from the list files of a split.
const MAX_LISTED: usize = 1_000_000;

/// Returns whether a file belongs to MultiWOZ but contains no dialogues.
fn is_companion(probe: &Probe<'_>) -> bool {
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

/// The split (train, val or test) of each dialogue in a file.
struct Splits {
    /// The split of all dialogues, if the name of the file or of its folder contains a split.
    whole: Option<String>,
    val_ids: HashSet<String>,
    test_ids: HashSet<String>,
}

impl Splits {
    /// Returns the splits. If `whole` is `None`, the ids of the val and test splits are read from files in the folder
    /// of `path`.
    fn of(path: Option<&Path>, whole: Option<String>) -> Self {
        let list = |name: &str| match path {
            Some(path) if whole.is_none() => listed(path, name),
            _ => HashSet::new(),
        };
        Splits { val_ids: list("valListFile"), test_ids: list("testListFile"), whole }
    }

    fn of_dialogue(&self, id: &str) -> Option<&str> {
        let id = bare(id);
        match &self.whole {
            Some(split) => Some(split),
            None if self.val_ids.contains(id) => Some("val"),
            None if self.test_ids.contains(id) => Some("test"),
            None if self.val_ids.is_empty() || self.test_ids.is_empty() => None,
            None => Some("train"),
        }
    }
}

/// Removes the suffix `.json` from a dialogue id. Ids have this suffix only in some versions of MultiWOZ.
fn bare(id: &str) -> &str {
    id.strip_suffix(".json").unwrap_or(id)
}

/// Reads the ids in the files `NAME`, `NAME.json` and `NAME.txt` in the folder of `path`, one id per line. Missing
/// files are ignored.
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

/// Dialog acts from a companion file. Each distinct act name is stored only once.
#[derive(Default)]
struct Acts {
    names: Vec<String>,
    /// For each dialogue id without `.json`: pairs of a turn index and an index into `names`.
    by_dialogue: HashMap<String, Vec<(u32, u32)>>,
}

impl Acts {
    /// Reads the dialog acts from a companion file in the folder of `path` or in its parent folder. Also returns the
    /// problems of that file.
    fn read_near(path: &Path, options: &ReadOptions) -> (Self, Vec<Problem>) {
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
            let mut acts = Vec::new();
            for (key, value) in turns {
                let Some(turn) = turn_index(&key, &value) else {
                    continue;
                };
                for act in act_names(value.get("dialog_act").unwrap_or(&value)) {
                    let next = self.names.len() as u32;
                    let number = *numbers.entry(act).or_insert_with_key(|act| {
                        self.names.push(act.clone());
                        next
                    });
                    acts.push((turn, number));
                }
            }
            total += acts.len();
            if total > MAX_ACTS {
                let reason = format!("the file has more than {MAX_ACTS} dialog acts; the rest is ignored");
                return problems.push(problem(Some(element.line), id, reason));
            }
            acts.sort_unstable();
            self.by_dialogue.insert(bare(id.map_or("", String::as_str)).to_owned(), acts);
        }
    }

    /// Adds the acts to the turns of a dialogue. Does nothing if any turn of the dialogue already has acts.
    fn add_to(&self, dialogue: &mut Dialogue) {
        let Some(acts) = self.by_dialogue.get(bare(dialogue.id.as_str())) else {
            return;
        };
        if dialogue.turns.iter().any(|turn| !turn.acts.is_empty()) {
            return;
        }
        for &(turn, number) in acts {
            let turn = dialogue.turns.get_mut(turn as usize);
            if let (Some(turn), Some(name)) = (turn, self.names.get(number as usize)) {
                push_unique(&mut turn.acts, name);
            }
        }
    }
}

/// Returns the index of the turn to which an entry of the dialog act file belongs. Version 2.2 counts all turns from 0,
/// and its entries contain `dialog_act`. Earlier versions count only the system turns, from 1.
fn turn_index(key: &str, value: &Value) -> Option<u32> {
    let number: u32 = key.trim().parse().ok()?;
    if value.get("dialog_act").is_some() { Some(number) } else { number.checked_mul(2)?.checked_sub(1) }
}

#[cfg(test)]
mod tests {
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
        let d = &read_text(&FORMAT, "x/val.json", LOG)[0];
        assert_eq!(d.id.as_str(), "SNG0001.json");
        assert_eq!(
            (d.source.as_str(), &d.domains),
            ("multiwoz", &vec!["hotel".to_owned(), "train".to_owned()])
        );
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
        assert_eq!(speakers(&read_text(&FORMAT, "d.json", text)[0]), ["USER", "USER", "SYSTEM"]);
        let text = text.replace(r#"{"bus":1}"#, "{}");
        assert_eq!(speakers(&read_text(&FORMAT, "d.json", &text)[0]), ["USER", "SYSTEM", "USER"]);
    }

    const FRAMED: &str = r#"[{"dialogue_id":"PMUL1.json","services":["bus"],"turns":[
    {"turn_id":"0","speaker":"USER","utterance":"A bus.","frames":[
     {"service":"bus","state":{"active_intent":"find_bus"}},{"service":"taxi","state":{"active_intent":"NONE"}}]},
    {"turn_id":"1","speaker":"SYSTEM","utterance":"From where?","frames":[]}]},
    {"dialogue_id":"SNG2.json","services":[],"turns":[{"turn_id":"0","speaker":"USER","utterance":"Police!","frames":[
     {"service":"police","state":{"active_intent":"find_police"}}]}]}]"#;

    #[test]
    fn frames_give_services_and_intents() {
        let all = read_text(&FORMAT, "2.2/train/dialogues_001.json", FRAMED);
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
        for item in FORMAT.read(input, &ReadOptions::default()).unwrap() {
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
        let acts =
            r#"{"A":{"1":{"Bus-Request":[["From","?"]]},"2":"No Annotation","9":{"Bus-Offer":[]}},"B":7}"#;
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
        assert_eq!(
            reasons,
            ["/dialogue_acts.json:1 (B): invalid type: integer `7`, expected a map at column 1"]
        );
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
        assert_eq!(read_text(&FORMAT, "data.json", text).len(), 1);
        assert_eq!(
            problems(&FORMAT, "data.json", text),
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
            sniff(&input.probe()) == Fit::Companion && formats::sniff(&input.probe()).is_some()
        };
        assert!(companion("valListFile", "PMUL1\nSNG2\n"));
        assert!(companion("testListFile.json", "PMUL1.json\n"));
        assert!(companion("ontology.json", r#"{"hotel-semi-area":["east"]}"#));
        assert!(companion("dialogue_acts.json", r#"{"PMUL1":{"1":"No Annotation"}}"#));
        assert!(companion("bus_db.json", "[]"));
        assert!(!companion("ontology.json", r#"{"colour":["red"]}"#));
    }
}
