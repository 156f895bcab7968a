//! Semantic retrieval. The data is a file in the format of DialogueCSE's `select.txt`:
//! `id ⇥ text ⇥ intent ⇥ positive ids ⇥ negative ids`. The ids in a column are separated by commas.

use std::{
    collections::HashMap,
    io::BufRead,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Candidates, LoadOptions, Loaded, RankingTask, Skipped, TaskSettings};
use crate::{
    build::{CandidateSelection, retrieval_set},
    data::{self, each_line, each_line_of},
    rank::{Items, Pool, Terms},
    trec::Measure,
};
use turnwise_core::error::{Error, IoContext, Result};

/// Settings of semantic retrieval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct SemanticRetrieval {
    /// Tab-separated file with the columns id, text, intent, positive ids, negative ids
    ///
    /// The ids in a column are separated by commas. Positive ids are candidates with the same intent, negative ids are
    /// candidates with other intents.
    #[cfg_attr(feature = "clap", arg(value_name = "FILE"))]
    pub data: PathBuf,
    /// Method of selecting the candidates from labeled sentences. If it is set, `data` is a file of labeled sentences.
    /// `None` if `data` already contains the candidates.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<CandidateSelection>,
}

impl TaskSettings for SemanticRetrieval {
    fn command(&self, folder: &Path) -> String {
        let file = folder.join(&self.data);
        match self.build {
            None => format!("turnwise bench sr {}", file.display()),
            Some(selection) => format!(
                "turnwise bench build sr {} --candidate-selection {} -o select.txt && turnwise bench sr select.txt",
                file.display(),
                selection.name()
            ),
        }
    }

    fn files(&self) -> Vec<&Path> {
        vec![&self.data]
    }

    fn load(&self, folder: &Path, with: &LoadOptions<'_>) -> Result<Loaded> {
        let file = folder.join(&self.data);
        let Some(selection) = self.build else {
            return Loaded::from_files(semantic_retrieval(&file)?, vec![file]);
        };
        let sentences = data::labeled(&file)?;
        let set = retrieval_set(sentences, selection, Terms::default(), with.seed, with.progress)?;
        let mut made = Vec::new();
        set.write(&mut made).map_err(|e| Error::Internal(e.to_string()))?;
        let hash = blake3::hash(&made).to_hex()[..32].to_owned();
        Ok(Loaded::new(semantic_retrieval_of(made.as_slice(), &file)?, &[file], hash))
    }
}

/// Reads a file in the format of `select.txt` and returns only its sentences.
pub(super) fn sentences(path: &Path) -> Result<Vec<String>> {
    let mut sentences = Vec::new();
    each_line(path, |_, text| {
        let text = text
            .split('\t')
            .nth(1)
            .ok_or_else(|| "a line of select.txt needs a text in its second column".to_owned())?;
        sentences.push(text.to_owned());
        Ok(())
    })?;
    Ok(sentences)
}

/// Reads a semantic retrieval task, in which positive and negative candidates are ranked for each sentence.
pub fn semantic_retrieval(path: &Path) -> Result<RankingTask> {
    let file = std::fs::File::open(path).at("read", path)?;
    semantic_retrieval_of(std::io::BufReader::new(file), path)
}

/// Reads a semantic retrieval task from an open reader. `path` is used only in error messages.
pub fn semantic_retrieval_of(reader: impl BufRead, path: &Path) -> Result<RankingTask> {
    let mut rows: Vec<(u64, String, String)> = Vec::new();
    let (mut ids, mut texts) = (Vec::new(), Vec::new());
    let mut numbers: HashMap<String, u32> = HashMap::new();
    each_line_of(reader, path, |line, text| {
        let fields: Vec<&str> = text.split('\t').collect();
        let [id, text, _, positive, negative] = fields[..] else {
            return Err(format!(
                "a line of select.txt has 5 columns (id, text, intent, positive ids, negative ids), this one has {}",
                fields.len()
            ));
        };
        if numbers.insert(id.to_owned(), ids.len() as u32).is_some() {
            return Err(format!("duplicate id `{id}`"));
        }
        ids.push(id.to_owned());
        texts.push(text.to_owned());
        rows.push((line, positive.to_owned(), negative.to_owned()));
        Ok(())
    })?;
    if ids.is_empty() {
        return Err(Error::data(format!("{} is empty", path.display())));
    }
    let (mut queries, mut pool_indices, mut lists) = (Vec::new(), Vec::new(), Vec::new());
    let mut skipped = Vec::new();
    for (n, (line, positive, negative)) in rows.iter().enumerate() {
        let mut list: Vec<(u32, i32)> = Vec::new();
        for (listed, grade) in [(positive, 1), (negative, 0)] {
            for id in listed.split(',').map(str::trim).filter(|id| !id.is_empty()) {
                let position = format_args!("{id} on line {line}");
                let Some(document) = numbers.get(id).copied() else {
                    Skipped::count(&mut skipped, "candidates with an unknown id", position);
                    continue;
                };
                match list.iter().find(|(listed, _)| *listed == document) {
                    Some((_, before)) if *before != grade => {
                        return Err(Error::data(format!(
                            "{}:{line}: the id `{id}` is both positive and negative",
                            path.display()
                        )));
                    }
                    Some(_) => Skipped::count(&mut skipped, "duplicate candidates in a list", position),
                    None if document as usize == n => {
                        Skipped::count(&mut skipped, "sentences among their own candidates", id);
                    }
                    None => list.push((document, grade)),
                }
            }
        }
        let count = list.iter().filter(|(_, grade)| *grade > 0).count();
        let why = if list.is_empty() {
            "sentences without candidates"
        } else if count == 0 {
            "queries without a positive candidate"
        } else if count == list.len() {
            "queries without a negative candidate"
        } else {
            queries.push(ids[n].clone());
            pool_indices.push(n as u32);
            lists.push(list);
            continue;
        };
        Skipped::count(&mut skipped, why, &ids[n]);
    }
    if queries.is_empty() {
        let reasons = skipped.iter().map(|s: &Skipped| format!("{} {} ({})", s.count, s.what, s.first));
        return Err(Error::data(format!(
            "{} has no query with a positive and a negative candidate",
            path.display()
        ))
        .with_hint(format!("left out: {}", reasons.collect::<Vec<_>>().join("; "))));
    }
    Ok(RankingTask {
        name: "sr",
        about: "semantic retrieval (SR, DialogueCSE)",
        pool: Pool::of(Items::Texts(texts)),
        documents: ids,
        queries,
        pool_indices,
        candidates: Candidates::Given(lists),
        measures: vec![("MAP", Measure::Map), ("MRR", Measure::RecipRank)],
        skipped,
    })
}
