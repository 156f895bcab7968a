//! Search inside long conversations: find the turns that answer a question.
//!
//! The data is LoCoMo, where each conversation is searched on its own, or a corpus and a file of questions.

mod load;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use rayon::prelude::*;
use serde::{Deserialize, Deserializer, Serialize};

use super::{LoadOptions, Loaded, Outcome, Ranked, Skipped, Task, TaskSettings, Value};
use crate::{
    data::hash_of_dialogues,
    rank::{self, NOT_FOUND, Pool, Progress, Scorer, Step, ensure_finite},
    trec::Measure,
};
use load::Builder;
use turnwise_core::{error::Result, numbers::counted};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_measures::{random_baseline::RandomBaseline, ranking::Ranking};

/// Number of hits per question that are evaluated.
pub const DEPTH: usize = 100;
/// Number of questions that are ranked between two progress updates.
const CHUNK: usize = 64;
/// Name of the measures of turns in results. The measures of sessions have the prefix `session `.
const MEASURES: [(&str, Measure); 4] = [
    ("R@5", Measure::Recall(5)),
    ("R@10", Measure::Recall(10)),
    ("hit@5", Measure::Success(5)),
    ("MRR", Measure::RecipRank),
];
const SESSION_MEASURES: [(&str, Measure); 2] =
    [("session R@5", Measure::Recall(5)), ("session R@10", Measure::Recall(10))];

/// Settings of the search for turns that answer a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// LoCoMo files (conversations with their questions), or folders of them
    #[cfg_attr(feature = "clap", arg(value_name = "PATH", required_unless_present = "corpus"))]
    #[serde(default, deserialize_with = "one_or_several", skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<PathBuf>,
    /// Search these files or folders instead, in any format that `ingest` reads; repeatable
    ///
    /// All dialogues are in one index.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "PATH", requires = "questions", conflicts_with = "data")
    )]
    #[serde(default, deserialize_with = "one_or_several", skip_serializing_if = "Vec::is_empty")]
    pub corpus: Vec<PathBuf>,
    /// With --corpus: file of questions, as JSON lines
    ///
    /// Example of a line: {"query": "where is my refund", "evidence": ["billing-001#3"], "category": "refunds", "within":
    /// "meta.thread=7"}. `evidence` lists the IDs of the turns that answer the question. `category` and `within` are
    /// optional. `within` is a filter: only the turns that match it are searched.
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", requires = "corpus"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub questions: Option<PathBuf>,
}

/// Deserializes one path or a list of paths.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Paths {
        One(PathBuf),
        Several(Vec<PathBuf>),
    }
    Ok(match Paths::deserialize(deserializer)? {
        Paths::One(path) => vec![path],
        Paths::Several(paths) => paths,
    })
}

impl TaskSettings for Memory {
    fn command(&self, folder: &Path) -> String {
        let file = |path: &PathBuf| folder.join(path).display().to_string();
        let data = self.data.iter().map(|path| format!(" {}", file(path)));
        let corpus = self.corpus.iter().map(|path| format!(" --corpus {}", file(path)));
        let questions = self.questions.iter().map(|path| format!(" --questions {}", file(path)));
        format!("turnwise bench memory{}", data.chain(corpus).chain(questions).collect::<String>())
    }

    fn files(&self) -> Vec<&Path> {
        self.data.iter().chain(&self.corpus).chain(&self.questions).map(PathBuf::as_path).collect()
    }

    fn load(&self, folder: &Path, with: &LoadOptions<'_>) -> Result<Loaded> {
        let joined = |paths: &[PathBuf]| paths.iter().map(|path| folder.join(path)).collect::<Vec<_>>();
        let mut builder = Builder::default();
        let mut paths = joined(&self.data);
        match &self.questions {
            None => builder.add_locomo(&paths, with)?,
            Some(questions) => {
                let questions = folder.join(questions);
                paths = joined(&self.corpus);
                for path in &paths {
                    builder.add_dialogues("", (with.read_dialogues)(path)?);
                }
                builder.add_questions(&questions)?;
                paths.push(questions);
            }
        }
        let task = builder.finish(&paths)?;
        let hash = task.hash()?;
        Ok(Loaded::new(task, &paths, hash))
    }
}

/// Question with the turns that answer it.
#[derive(Debug, Clone)]
pub struct Question {
    /// Id of the question in results.
    pub id: String,
    /// Number of the collection that is searched.
    pub collection: usize,
    /// Filter that restricts the search.
    pub within: Option<Filter>,
    category: String,
    /// Index of its list of documents in [`MemoryTask::lists`].
    list: usize,
    /// Documents that answer the question, in ascending order.
    evidence: Vec<u32>,
}

/// Dialogues that are searched together, and the questions about them. Each document is a turn.
#[derive(Debug)]
pub struct MemoryTask {
    pool: Pool,
    /// Collections of dialogues. Each collection is searched on its own.
    pub collections: Vec<Vec<Dialogue>>,
    /// Questions, in the order of the pool's queries.
    pub questions: Vec<Question>,
    /// Number of each document, by its utterance id.
    numbers: HashMap<String, u32>,
    documents: Vec<String>,
    /// Number of the dialogue of each document.
    sessions: Vec<u32>,
    /// Documents that questions search, in ascending order.
    lists: Vec<Vec<u32>>,
    skipped: Vec<Skipped>,
}

impl MemoryTask {
    /// Returns the number of the document with an utterance id.
    pub fn document(&self, id: &str) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    /// Returns the text of question `n`.
    pub fn question_text(&self, n: usize) -> Cow<'_, str> {
        self.pool.queries().text(n)
    }

    fn hash(&self) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        for collection in &self.collections {
            hasher.update(hash_of_dialogues(collection)?.as_bytes());
        }
        for (n, question) in self.questions.iter().enumerate() {
            let within = question.within.as_ref().map_or("", Filter::as_str);
            let part = (&question.id, question.collection, self.question_text(n), within, &question.evidence);
            hasher.update(format!("{part:?}").as_bytes());
        }
        Ok(hasher.finalize().to_hex()[..32].to_owned())
    }

    /// Returns the first documents of the ranking of a question, best first, with their scores.
    fn ranked(&self, n: usize, scorer: &dyn Scorer, id_ranks: &[u32]) -> Result<Vec<(u32, f32)>> {
        let question = &self.questions[n];
        let documents = &self.lists[question.list];
        let mut scores = Vec::new();
        scorer.scores(n, documents, &mut scores)?;
        ensure_finite("the ranker", &question.id, &scores)?;
        let mut ranked: Vec<(u32, f32)> = documents.iter().copied().zip(scores).collect();
        ranked.retain(|(_, score)| *score != NOT_FOUND);
        ranked.sort_unstable_by(|a, b| {
            let by_id = || id_ranks[a.0 as usize].cmp(&id_ranks[b.0 as usize]);
            b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then_with(by_id)
        });
        ranked.truncate(DEPTH);
        Ok(ranked)
    }

    /// Computes all measures of a ranking: those of turns, then those of sessions.
    fn measures(&self, question: &Question, ranked: &[(u32, f32)]) -> Vec<f64> {
        let turns = judged(ranked.iter().map(|(document, _)| *document), &question.evidence);
        let session = |document: u32| self.sessions[document as usize];
        let mut seen = HashSet::new();
        let in_order = ranked.iter().map(|(document, _)| session(*document)).filter(|s| seen.insert(*s));
        let mut relevant: Vec<u32> = question.evidence.iter().map(|document| session(*document)).collect();
        relevant.dedup();
        let sessions = judged(in_order, &relevant);
        let of_turns = MEASURES.iter().map(|(_, measure)| measure.of(&turns));
        of_turns.chain(SESSION_MEASURES.iter().map(|(_, measure)| measure.of(&sessions))).collect()
    }

    /// Computes the expected values of the measures of turns for a random order.
    fn random_baseline(&self, question: &Question) -> [f64; MEASURES.len()] {
        let (all, relevant) = (self.lists[question.list].len(), question.evidence.len());
        let random = RandomBaseline { all, relevant };
        // Probability that the first relevant document is at rank 1, 2, …, among the first DEPTH.
        let mut none = 1.0;
        let (mut hit, mut reciprocal_rank) = (0.0, 0.0);
        for rank in 1..=all.min(DEPTH) {
            let first = none * (relevant as f64 / (all - rank + 1) as f64).min(1.0);
            none -= first;
            reciprocal_rank += first / rank as f64;
            hit += if rank <= 5 { first } else { 0.0 };
        }
        [random.recall(5), random.recall(10), hit, reciprocal_rank]
    }
}

/// Creates a ranking with the grade 1 for each relevant item. `relevant` is sorted.
fn judged(ranked: impl Iterator<Item = u32>, relevant: &[u32]) -> Ranking {
    Ranking {
        grades: ranked.map(|item| relevant.binary_search(&item).is_ok().then_some(1)).collect(),
        given: vec![1; relevant.len()],
        judged_not: 0,
        level: 1,
    }
}

impl Task for MemoryTask {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn about(&self) -> &'static str {
        "search in long conversations: turns that answer a question"
    }

    fn size(&self) -> String {
        let dialogues: usize = self.collections.iter().map(Vec::len).sum();
        let [questions, turns, dialogues] =
            [(self.questions.len(), "question"), (self.documents.len(), "turn"), (dialogues, "dialogue")]
                .map(|(n, one)| counted(n as u64, one));
        match self.collections.len() {
            1 => format!("{questions}, {turns} in {dialogues}"),
            n => format!("{questions}, {turns} in {dialogues}, {n} conversations"),
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    fn identity(&self) -> String {
        let names: Vec<&str> = MEASURES.iter().chain(&SESSION_MEASURES).map(|(name, _)| *name).collect();
        format!("memory/{}/{DEPTH}", names.join(","))
    }

    fn memory(&self) -> Option<&MemoryTask> {
        Some(self)
    }

    fn run(&self, scorer: &dyn Scorer, keep: bool, watch: &dyn Progress) -> Result<Outcome> {
        let id_ranks = rank::descending_ranks(&self.documents);
        let numbers: Vec<usize> = (0..self.questions.len()).collect();
        let mut rankings = Vec::with_capacity(numbers.len());
        for chunk in numbers.chunks(CHUNK) {
            watch.check()?;
            let ranked: Vec<_> =
                chunk.par_iter().map(|n| self.ranked(*n, scorer, &id_ranks)).collect::<Result<_>>()?;
            rankings.extend(ranked);
            watch.done(Step::Ranking, rankings.len(), self.questions.len());
        }
        let of_each: Vec<Vec<f64>> = self
            .questions
            .iter()
            .zip(&rankings)
            .map(|(question, ranked)| self.measures(question, ranked))
            .collect();
        let floors: Vec<_> = self.questions.iter().map(|question| self.random_baseline(question)).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let values = MEASURES.iter().chain(&SESSION_MEASURES).enumerate().map(|(m, (name, _))| {
            let each: Vec<f64> = of_each.iter().map(|values| values[m]).collect();
            let floor = (m < MEASURES.len()).then(|| mean(&floors.iter().map(|f| f[m]).collect::<Vec<_>>()));
            Value { floor, value: mean(&each), each, ..Value::new(name, 0.0) }
        });
        let kept = |(question, ranked): (&Question, &Vec<(u32, f32)>)| {
            let grade = |document: &u32| question.evidence.binary_search(document).is_ok().then_some(1);
            let found: HashSet<u32> = ranked.iter().map(|(document, _)| *document).collect();
            // Judgments of turns that were not found come last, with a rank below all hits.
            let missed = question.evidence.iter().filter(|document| !found.contains(document));
            let documents = ranked.iter().copied().chain(missed.map(|document| (*document, NOT_FOUND)));
            let named = documents.map(|(document, score)| {
                (self.documents[document as usize].clone(), score, grade(&document))
            });
            Ranked { query: question.id.clone(), documents: named.collect() }
        };
        Ok(Outcome {
            values: values.collect(),
            queries: self.questions.iter().map(|question| question.id.clone()).collect(),
            categories: self.questions.iter().map(|question| question.category.clone()).collect(),
            rankings: if keep {
                self.questions.iter().zip(&rankings).map(kept).collect()
            } else {
                Vec::new()
            },
            ..Outcome::default()
        })
    }
}
