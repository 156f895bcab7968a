//! Ad-hoc retrieval: a folder as BEIR has it (`corpus.jsonl`, `queries.jsonl`, `qrels/*.tsv`), or the same files under other
//! names with judgments of TREC.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::each_line;
use crate::{
    rank::{Items, Pool},
    tasks::{Candidates, ListTask, Skipped},
    trec::{Measure, read_qrels},
};
use turnwise_core::error::{Error, IoContext, Result};

/// So many of a ranking are looked at, as for trec_eval.
const DEPTH: usize = 1000;
/// Of several sets of judgments, in this order.
const SPLITS: [&str; 3] = ["test", "dev", "train"];

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "_id", alias = "id")]
    id: String,
    #[serde(default)]
    title: String,
    text: String,
}

/// Of a folder, and judgments where they are not its own. What was read comes with it.
pub fn ad_hoc(folder: &Path, qrels: Option<&Path>) -> Result<(ListTask, Vec<PathBuf>)> {
    let (corpus, asked) = (folder.join("corpus.jsonl"), folder.join("queries.jsonl"));
    let judged = qrels.map_or_else(|| own_judgments(folder), |qrels| Ok(qrels.to_owned()))?;
    let (documents, texts) = read_texts(&corpus)?;
    let (ids, questions) = read_texts(&asked)?;
    let qrels = read_qrels(&judged)?;
    let numbers: HashMap<&str, u32> =
        documents.iter().enumerate().map(|(n, id)| (id.as_str(), n as u32)).collect();
    let places: HashMap<&str, u32> = ids.iter().enumerate().map(|(n, id)| (id.as_str(), n as u32)).collect();
    let mut skipped = Vec::new();
    let (mut queries, mut of_query, mut lists) = (Vec::new(), Vec::new(), Vec::new());
    for (query, grades) in &qrels.queries {
        let Some(place) = places.get(query.as_str()) else {
            Skipped::count(&mut skipped, "judged queries that there are not", || query.clone());
            continue;
        };
        let mut list = HashMap::new();
        for (document, grade) in grades {
            match numbers.get(document.as_str()) {
                Some(number) => {
                    list.insert(*number, *grade);
                }
                None => {
                    Skipped::count(&mut skipped, "judged documents that there are not", || document.clone())
                }
            }
        }
        if !list.values().any(|grade| *grade > 0) {
            Skipped::count(&mut skipped, "queries without a relevant document", || query.clone());
            continue;
        }
        queries.push(query.clone());
        of_query.push(*place);
        lists.push(list);
    }
    if queries.is_empty() {
        return Err(Error::data(format!(
            "no query of {} is judged in {}",
            asked.display(),
            judged.display()
        )));
    }
    let task = ListTask {
        name: "adhoc",
        about: "ad-hoc retrieval (BEIR, TREC)",
        pool: Pool::with_queries(Items::Texts(texts), Items::Texts(questions)),
        documents,
        queries,
        places: of_query,
        candidates: Candidates::All { judged: lists, depth: DEPTH },
        measures: vec![
            ("nDCG@10", Measure::NdcgCut(10)),
            ("MAP", Measure::Map),
            ("R@100", Measure::Recall(100)),
            ("MRR", Measure::RecipRank),
        ],
        skipped,
    };
    Ok((task, vec![corpus, asked, judged]))
}

fn own_judgments(folder: &Path) -> Result<PathBuf> {
    let qrels = folder.join("qrels");
    let named = SPLITS.iter().map(|split| qrels.join(format!("{split}.tsv"))).find(|path| path.is_file());
    if let Some(path) = named {
        return Ok(path);
    }
    std::fs::read_dir(&qrels).at("read", &qrels)?;
    Err(Error::Input {
        message: format!("{} has neither test.tsv nor dev.tsv nor train.tsv", qrels.display()),
        hint: Some("name the judgments with --qrels FILE".to_owned()),
    })
}

fn read_texts(path: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let (mut ids, mut texts) = (Vec::new(), Vec::new());
    let mut seen: HashMap<String, u64> = HashMap::new();
    each_line(path, |number, text| {
        let line: Line =
            serde_json::from_str(text).map_err(|e| format!("this is no `_id` with a text: {e}"))?;
        if let Some(before) = seen.insert(line.id.clone(), number) {
            return Err(format!("the id `{}` stands in line {before} as well", line.id));
        }
        ids.push(line.id);
        texts.push(if line.title.is_empty() { line.text } else { format!("{} {}", line.title, line.text) });
        Ok(())
    })?;
    match ids.is_empty() {
        true => Err(Error::data(format!("{} is empty", path.display()))),
        false => Ok((ids, texts)),
    }
}
