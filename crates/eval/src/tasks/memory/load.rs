//! Reads the dialogues and the questions of the task `memory`.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{
    super::{LoadOptions, Skipped},
    MemoryTask, Question,
};
use crate::{
    data::each_line,
    rank::{Items, Pool},
};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, filter::Filter, formats::locomo_questions, walk};

/// Question before its evidence is looked up.
struct RawQuestion {
    id: String,
    collection: usize,
    text: String,
    category: String,
    within: Option<Filter>,
    evidence: Vec<String>,
}

/// Line of a file of questions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    id: Option<String>,
    query: String,
    evidence: Vec<String>,
    #[serde(default)]
    category: String,
    #[serde(default)]
    within: Option<String>,
}

/// Dialogues and questions before they are combined to a task.
#[derive(Default)]
pub(super) struct Builder {
    /// Names of the collections.
    names: HashMap<String, usize>,
    collections: Vec<Vec<Dialogue>>,
    /// Collection and position of each dialogue, by its id.
    places: HashMap<String, (usize, usize)>,
    questions: Vec<RawQuestion>,
    skipped: Vec<Skipped>,
}

impl Builder {
    pub(super) fn add_locomo(&mut self, paths: &[PathBuf], with: &LoadOptions<'_>) -> Result<()> {
        for source in walk::plan(paths, None)?.sources {
            if source.format.name != "locomo" {
                Skipped::count(&mut self.skipped, "files that are not in the format locomo", &source.name);
                continue;
            }
            let path = PathBuf::from(&source.name);
            for dialogue in (with.read_dialogues)(&path)? {
                let thread = dialogue.metadata.get("thread").and_then(|name| name.as_str());
                let thread = thread.unwrap_or(dialogue.id.as_str()).to_owned();
                self.add_dialogues(&thread, vec![dialogue]);
            }
            for question in locomo_questions(&path)? {
                let id = format!("{}/{}", question.sample, question.number);
                let category = match question.category {
                    // The answer is not in the conversation.
                    Some(5) => {
                        Skipped::count(&mut self.skipped, "questions without an answer (category 5)", id);
                        continue;
                    }
                    Some(category) => category_name(category),
                    None => String::new(),
                };
                let Some(collection) = self.names.get(&question.sample).copied() else {
                    Skipped::count(
                        &mut self.skipped,
                        "questions about conversations without valid sessions",
                        id,
                    );
                    continue;
                };
                let (text, evidence) = (question.text, question.evidence);
                self.questions.push(RawQuestion { id, collection, text, category, within: None, evidence });
            }
        }
        Ok(())
    }

    pub(super) fn add_questions(&mut self, path: &Path) -> Result<()> {
        each_line(path, |number, text| {
            let line: Line = serde_json::from_str(text)
                .map_err(|e| format!("expected an object with `query` and `evidence`: {e}"))?;
            let within = line.within.map(|filter| filter.parse::<Filter>()).transpose();
            self.questions.push(RawQuestion {
                id: line.id.unwrap_or_else(|| number.to_string()),
                collection: 0,
                text: line.query,
                category: line.category,
                within: within.map_err(|e| format!("`within`: {e}"))?,
                evidence: line.evidence,
            });
            Ok(())
        })
    }

    /// Adds dialogues to a collection. As in an index, a dialogue replaces an earlier one with the same id.
    pub(super) fn add_dialogues(&mut self, collection: &str, dialogues: Vec<Dialogue>) {
        let next = self.collections.len();
        let number = *self.names.entry(collection.to_owned()).or_insert(next);
        if number == next {
            self.collections.push(Vec::new());
        }
        for dialogue in dialogues {
            let id = dialogue.id.as_str();
            if let Some((collection, position)) = self.places.get(id).copied() {
                Skipped::count(&mut self.skipped, "dialogues with the id of a later dialogue", id);
                self.collections[collection][position] = dialogue;
                continue;
            }
            self.places.insert(id.to_owned(), (number, self.collections[number].len()));
            self.collections[number].push(dialogue);
        }
    }

    pub(super) fn finish(self, paths: &[PathBuf]) -> Result<MemoryTask> {
        let Builder { collections, questions, mut skipped, .. } = self;
        let (mut documents, mut texts, mut sessions) = (Vec::new(), Vec::new(), Vec::new());
        let mut turns = Vec::new();
        let mut whole: Vec<Vec<u32>> = vec![Vec::new(); collections.len()];
        for (session, (collection, dialogue)) in
            collections.iter().enumerate().flat_map(|(n, list)| list.iter().map(move |d| (n, d))).enumerate()
        {
            for turn in &dialogue.turns {
                whole[collection].push(documents.len() as u32);
                documents.push(dialogue.utterance_id(turn.number).to_string());
                texts.push(turn.text.clone());
                sessions.push(session as u32);
                turns.push((dialogue, turn));
            }
        }
        let numbers: HashMap<String, u32> = documents.iter().cloned().zip(0..).collect();
        let mut lists = whole;
        let mut filtered: BTreeMap<String, usize> = BTreeMap::new();
        let (mut kept, mut queries) = (Vec::new(), Vec::new());
        for question in questions {
            let RawQuestion { id, collection, text, category, within, evidence } = question;
            if text.trim().is_empty() {
                Skipped::count(&mut skipped, "questions without text", &id);
                continue;
            }
            let list = match &within {
                None => collection,
                Some(filter) => *filtered.entry(filter.as_str().to_owned()).or_insert_with(|| {
                    let all = lists.first().map(Vec::as_slice).unwrap_or_default();
                    let matches = |n: &u32| {
                        let (dialogue, turn) = turns[*n as usize];
                        filter.matches_turn(dialogue, turn)
                    };
                    let matching: Vec<u32> = all.iter().copied().filter(matches).collect();
                    lists.push(matching);
                    lists.len() - 1
                }),
            };
            let mut found = Vec::new();
            for turn in &evidence {
                match numbers.get(turn) {
                    None => Skipped::count(
                        &mut skipped,
                        "evidence ids that do not exist",
                        format!("{id}: {turn}"),
                    ),
                    Some(number) if lists[list].binary_search(number).is_err() => {
                        Skipped::count(
                            &mut skipped,
                            "evidence ids outside of the searched turns",
                            format!("{id}: {turn}"),
                        );
                    }
                    Some(number) => found.push(*number),
                }
            }
            found.sort_unstable();
            found.dedup();
            if found.is_empty() {
                Skipped::count(&mut skipped, "questions without evidence", &id);
                continue;
            }
            queries.push(text);
            kept.push(Question { id, collection, within, category, list, evidence: found });
        }
        if kept.is_empty() {
            let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            let reasons: Vec<String> = skipped.iter().map(|s| format!("{} {}", s.count, s.what)).collect();
            let error = Error::data(format!("{}: no question has a turn as evidence", names.join(", ")));
            return Err(match reasons.is_empty() {
                true => error.with_hint(
                    "LoCoMo files have questions in `qa`; for other corpora, use --corpus and --questions",
                ),
                false => error.with_hint(format!("skipped: {}", reasons.join(", "))),
            });
        }
        drop(turns);
        let pool = Pool::with_queries(Items::Texts(texts), Items::Texts(queries));
        Ok(MemoryTask { pool, collections, questions: kept, numbers, documents, sessions, lists, skipped })
    }
}

/// Returns the name of a category of LoCoMo.
fn category_name(category: u64) -> String {
    let name = match category {
        1 => " multi-hop",
        2 => " temporal",
        3 => " open-domain",
        4 => " single-hop",
        _ => "",
    };
    format!("{category}{name}")
}
