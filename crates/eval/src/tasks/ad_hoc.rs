//! Ad-hoc retrieval. The data is a folder in BEIR's layout (`corpus.jsonl`, `queries.jsonl`, `qrels/*.tsv`). The
//! relevance judgments can also be in a TREC file.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Candidates, LoadOptions, Loaded, RankingTask, Skipped, TaskSettings};
use crate::{
    data::each_line,
    rank::{Items, Pool},
    trec::{Measure, read_qrels},
};
use turnwise_core::error::{Error, IoContext, Result};

/// Maximum number of top documents that are evaluated per query.
const DEPTH: usize = 1000;
/// Names of files with judgments in the folder `qrels`, without the extension, in order of preference.
const SPLITS: [&str; 3] = ["test", "dev", "train"];

/// Settings of ad-hoc retrieval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct AdHoc {
    /// Folder with corpus.jsonl, queries.jsonl and qrels/test.tsv
    #[cfg_attr(feature = "clap", arg(value_name = "FOLDER"))]
    pub data: PathBuf,
    /// Relevance judgments to use instead of qrels/test.tsv, in BEIR or TREC format
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qrels: Option<PathBuf>,
}

impl TaskSettings for AdHoc {
    fn command(&self, folder: &Path) -> String {
        let file = |path: &PathBuf| folder.join(path).display().to_string();
        let qrels = self.qrels.as_ref().map(|path| format!(" --qrels {}", file(path)));
        format!("turnwise bench adhoc {}{}", file(&self.data), qrels.unwrap_or_default())
    }

    fn files(&self) -> Vec<&Path> {
        std::iter::once(self.data.as_path()).chain(self.qrels.as_deref()).collect()
    }

    fn load(&self, folder: &Path, _: &LoadOptions<'_>) -> Result<Loaded> {
        let qrels = self.qrels.as_ref().map(|path| folder.join(path));
        let (task, files) = ad_hoc(&folder.join(&self.data), qrels.as_deref())?;
        Loaded::from_files(task, files)
    }
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "_id", alias = "id")]
    id: String,
    #[serde(default)]
    title: String,
    text: String,
}

/// Reads an ad-hoc retrieval task. Also returns the paths of its files. If `qrels` is set, uses the judgments in this
/// file instead of the judgments in the folder.
fn ad_hoc(folder: &Path, qrels: Option<&Path>) -> Result<(RankingTask, Vec<PathBuf>)> {
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
            Skipped::count(&mut skipped, "judged queries that are not in queries.jsonl", query);
            continue;
        };
        let mut list = HashMap::new();
        for (document, grade) in grades {
            match numbers.get(document.as_str()) {
                Some(number) => {
                    list.insert(*number, *grade);
                }
                None => {
                    Skipped::count(&mut skipped, "judged documents that are not in corpus.jsonl", document);
                }
            }
        }
        if !list.values().any(|grade| *grade > 0) {
            Skipped::count(&mut skipped, "queries without a relevant document", query);
            continue;
        }
        queries.push(query.clone());
        of_query.push(*place);
        lists.push(list);
    }
    if queries.is_empty() {
        return Err(Error::data(format!(
            "no query of {} has a relevant document in {}",
            asked.display(),
            judged.display()
        )));
    }
    let task = RankingTask {
        name: "adhoc",
        about: "ad-hoc retrieval (BEIR, TREC)",
        pool: Pool::with_queries(Items::Texts(texts), Items::Texts(questions)),
        documents,
        queries,
        pool_indices: of_query,
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
    Err(Error::input(format!("{} contains none of test.tsv, dev.tsv and train.tsv", qrels.display()))
        .with_hint("specify the judgments with --qrels FILE"))
}

fn read_texts(path: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let (mut ids, mut texts) = (Vec::new(), Vec::new());
    let mut seen: HashMap<String, u64> = HashMap::new();
    each_line(path, |number, text| {
        let line: Line = serde_json::from_str(text)
            .map_err(|e| format!("expected an object with `_id` and `text`: {e}"))?;
        if let Some(before) = seen.insert(line.id.clone(), number) {
            return Err(format!("the id `{}` is already on line {before}", line.id));
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
