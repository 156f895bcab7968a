//! The three tasks of dial2vec: domain categorization, semantic relatedness and dialogue retrieval. All three tasks use
//! the same dialogues. Each dialogue has exactly one domain.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    Candidates, Columns, LoadOptions, Loaded, Map, Outcome, RankingTask, Skipped, Task, TaskSettings, Value,
};
use crate::{
    build::with_one_domain,
    data::hash_of_dialogues,
    rank::{Items, Pool, Progress, Scorer, Step, ensure_finite},
    significance::mean_and_deviation,
    trec::Measure,
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::Vectors;
use turnwise_measures::{clusters::Table, correlation::spearman, plane::plane, space::space};
use turnwise_search::clusters::partition;

/// Settings of the dial2vec tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct DialogueRetrieval {
    /// File or folder of dialogues, in any format that `ingest` reads
    #[cfg_attr(feature = "clap", arg(value_name = "PATH"))]
    pub data: PathBuf,
    /// Evaluation protocol: the protocol of the paper or of its released code.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(default)]
    pub profile: Profile,
}

impl TaskSettings for DialogueRetrieval {
    fn command(&self, folder: &Path) -> String {
        let profile = if self.profile == Profile::Code { " --profile code" } else { "" };
        format!("turnwise bench dialogues {}{profile}", folder.join(&self.data).display())
    }

    fn files(&self) -> Vec<&Path> {
        vec![&self.data]
    }

    fn load(&self, folder: &Path, with: &LoadOptions<'_>) -> Result<Loaded> {
        let path = folder.join(&self.data);
        let dialogues = (with.read_dialogues)(&path)?;
        let hash = hash_of_dialogues(&dialogues)?;
        Ok(Loaded::new(DialogueTask::new(dialogues, self.profile, with.seed)?, &[path], hash))
    }
}

/// Evaluation protocol: the protocol in the paper's text, or the protocol in its released code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Paper: ten k-means runs, and the correlation over random pairs.
    #[default]
    Paper,
    /// Code: max(3, 10 − n/500) k-means runs for n dialogues. The correlation is computed for each dialogue, over its
    /// pairs with all other dialogues, and then averaged over the dialogues.
    Code,
}

impl Profile {
    /// Returns the name that is used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Paper => "paper",
            Profile::Code => "code",
        }
    }
}

/// Number of random draws of pairs, and number of k-means runs, in the paper's protocol.
const DRAWS: usize = 10;
/// Maximum number of dialogues on a map. Larger maps are slow to draw.
const MAPPED: usize = 1_000;
/// Number of k-means initializations per run. The best result is used.
const INITIALIZATIONS: usize = 10;

/// Task that combines domain categorization, semantic relatedness and dialogue retrieval.
pub struct DialogueTask {
    retrieval: RankingTask,
    /// Index of each dialogue's domain in `domains`.
    labels: Vec<usize>,
    domains: Vec<String>,
    profile: Profile,
    seed: u64,
}

impl DialogueTask {
    /// Creates the task. Skips and counts dialogues that have no domain or several domains. Returns an error if fewer
    /// than two domains remain.
    pub fn new(dialogues: Vec<Dialogue>, profile: Profile, seed: u64) -> Result<Self> {
        let mut skipped = Vec::new();
        let kept = with_one_domain(dialogues, &mut skipped);
        let mut members: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (n, dialogue) in kept.iter().enumerate() {
            members.entry(&dialogue.domains[0]).or_default().push(n as u32);
        }
        if members.len() < 2 {
            return Err(Error::data(format!(
                "{}; the tasks need at least two domains",
                match members.len() {
                    0 => "there are no dialogues with exactly one domain".to_owned(),
                    _ => format!("all {} dialogues have the same domain", kept.len()),
                }
            ))
            .with_hint("a domain is a label of a dialogue; `turnwise corpus stats` lists the domains"));
        }
        let numbers: HashMap<&str, usize> =
            members.keys().enumerate().map(|(n, domain)| (*domain, n)).collect();
        let labels: Vec<usize> = kept.iter().map(|dialogue| numbers[dialogue.domains[0].as_str()]).collect();
        let domains = members.keys().map(|domain| (*domain).to_owned()).collect();
        let mut judged = Vec::new();
        let mut pool_indices = Vec::new();
        for (n, dialogue) in kept.iter().enumerate() {
            let same = &members[dialogue.domains[0].as_str()];
            if same.len() < 2 {
                let what = "queries that are the only dialogue of their domain";
                Skipped::count(&mut skipped, what, &dialogue.id);
                continue;
            }
            judged.push(same.iter().filter(|other| **other != n as u32).map(|other| (*other, 1)).collect());
            pool_indices.push(n as u32);
        }
        let documents: Vec<String> = kept.iter().map(|dialogue| dialogue.id.to_string()).collect();
        let retrieval = RankingTask {
            name: "dialogues",
            about: "dialogue retrieval, semantic relatedness and domain categorization (dial2vec)",
            queries: pool_indices.iter().map(|n| documents[*n as usize].clone()).collect(),
            documents,
            pool_indices,
            candidates: Candidates::All { judged, depth: usize::MAX },
            pool: Pool::of(Items::Dialogues(kept)),
            measures: vec![("MAP", Measure::Map), ("MRR", Measure::RecipRank)],
            skipped,
        };
        Ok(DialogueTask { retrieval, labels, domains, profile, seed })
    }

    fn space(&self, scorer: &dyn Scorer) -> Vec<Value> {
        let same = |a: usize, b: usize| self.labels[a] == self.labels[b];
        let found = scorer.vectors().and_then(|vectors| space(vectors, same));
        let Some(found) = found else { return Vec::new() };
        let named = [
            ("alignment", found.alignment),
            ("adjusted alignment", found.adjusted_alignment),
            ("uniformity", found.uniformity),
        ];
        named.into_iter().map(|(name, value)| Value::new(name, value)).collect()
    }

    /// Projects the vectors of the dialogues onto a plane. If there are more than [`MAPPED`] dialogues, uses a random
    /// sample. Returns `None` if the ranker has no vectors.
    fn map(&self, scorer: &dyn Scorer, watch: &dyn Progress) -> Result<Option<Map>> {
        let Some(vectors) = scorer.vectors() else { return Ok(None) };
        let mut drawn: Vec<usize> = (0..self.labels.len()).collect();
        Random::new(self.seed, u64::MAX).shuffle(&mut drawn);
        drawn.truncate(MAPPED);
        drawn.sort_unstable();
        let mut of_drawn = Vectors::new(vectors.dim());
        drawn.iter().for_each(|n| of_drawn.push(vectors.row(*n)));
        let points = plane(&of_drawn, self.seed, |done, all| {
            watch.done(Step::Mapping, done, all);
            !watch.stop()
        });
        watch.check()?;
        Ok(points.map(|points| Map {
            names: self.domains.clone(),
            labels: drawn.iter().map(|n| self.labels[*n]).collect(),
            ids: drawn.iter().map(|n| self.retrieval.documents[*n].clone()).collect(),
            // Keep three decimal places. More would not be visible and would make the file larger.
            points: points.iter().map(|point| point.map(|v| (v * 1e3).round() / 1e3)).collect(),
        }))
    }
}

impl Task for DialogueTask {
    fn name(&self) -> &'static str {
        self.retrieval.name
    }

    fn about(&self) -> &'static str {
        self.retrieval.about
    }

    fn size(&self) -> String {
        format!("{} dialogues of {} domains", self.labels.len(), self.domains.len())
    }

    fn pool(&self) -> &Pool {
        &self.retrieval.pool
    }

    fn skipped(&self) -> &[Skipped] {
        &self.retrieval.skipped
    }

    fn classes(&self) -> Option<usize> {
        Some(self.domains.len())
    }

    fn identity(&self) -> String {
        format!("dialogues/{}/{}/{DRAWS}/{INITIALIZATIONS}", self.profile.name(), self.seed)
    }

    fn run(&self, scorer: &dyn Scorer, keep: bool, watch: &dyn Progress) -> Result<Outcome> {
        let mut outcome = self.retrieval.run(scorer, keep, watch)?;
        let (related, pairs) = relatedness(self, scorer, keep)?;
        outcome.values.push(related);
        let (categorized, clusters) = categorization(self, scorer, keep, watch)?;
        outcome.values.extend(categorized);
        outcome.columns.extend(pairs.into_iter().chain(clusters));
        outcome.values.extend(self.space(scorer));
        outcome.map = self.map(scorer, watch)?;
        Ok(outcome)
    }
}

/// Two dialogues, `a` and `b`, as indices, with the score of this pair. `same` is true if they have the same domain.
struct Pair {
    a: usize,
    b: usize,
    same: bool,
    score: f64,
}

/// Computes semantic relatedness: how well the scores of dialogue pairs correlate with whether the dialogues have the
/// same domain. If `keep` is true and the pairs were drawn at random, also returns the pairs.
fn relatedness(task: &DialogueTask, scorer: &dyn Scorer, keep: bool) -> Result<(Value, Option<Columns>)> {
    let drawn = match task.profile {
        Profile::Paper => {
            Some((0..DRAWS as u64).map(|draw| pairs(task, scorer, draw)).collect::<Result<Vec<_>>>()?)
        }
        Profile::Code => None,
    };
    let each: Vec<f64> = match &drawn {
        Some(drawn) => drawn.iter().map(|pairs| correlation(pairs)).collect(),
        None => (0..task.labels.len())
            .into_par_iter()
            .map(|a| Ok(correlation(&with_all(task, scorer, a)?)))
            .collect::<Result<Vec<f64>>>()?,
    };
    let (value, deviation) = mean_and_deviation(&each);
    let value = Value {
        deviation: drawn.is_some().then_some(deviation),
        floor: Some(0.0),
        each,
        ..Value::new("Spearman", value)
    };
    Ok((value, drawn.filter(|_| keep).map(|drawn| pair_columns(task, &drawn))))
}

/// Draws the pairs for the protocol of the paper: each dialogue with one random other dialogue.
fn pairs(task: &DialogueTask, scorer: &dyn Scorer, draw: u64) -> Result<Vec<Pair>> {
    let n = task.labels.len();
    let mut random = Random::new(task.seed, draw);
    let mut one = Vec::new();
    let pair = |a: usize| {
        // Draw any dialogue except `a`.
        let b = (a + 1 + random.below(n - 1)) % n;
        scorer.scores(a, &[b as u32], &mut one)?;
        ensure_finite("the ranker", &task.retrieval.documents[a], &one)?;
        Ok(Pair { a, b, same: task.labels[a] == task.labels[b], score: f64::from(one[0]) })
    };
    (0..n).map(pair).collect()
}

/// Returns the pairs for the protocol of the released code: dialogue `a` with each other dialogue.
fn with_all(task: &DialogueTask, scorer: &dyn Scorer, a: usize) -> Result<Vec<Pair>> {
    let others: Vec<u32> = (0..task.labels.len() as u32).filter(|b| *b != a as u32).collect();
    let mut scores = Vec::new();
    scorer.scores(a, &others, &mut scores)?;
    ensure_finite("the ranker", &task.retrieval.documents[a], &scores)?;
    let pair = |(b, score): (&u32, &f32)| {
        let b = *b as usize;
        Pair { a, b, same: task.labels[a] == task.labels[b], score: f64::from(*score) }
    };
    Ok(others.iter().zip(&scores).map(pair).collect())
}

/// Returns the Spearman correlation between `score` and `same` over the pairs. `same` counts as 0 or 1. As in the
/// released code, returns 0 if the correlation is undefined, for example because all pairs have equal scores.
fn correlation(pairs: &[Pair]) -> f64 {
    let scores: Vec<f64> = pairs.iter().map(|pair| pair.score).collect();
    let same: Vec<f64> = pairs.iter().map(|pair| f64::from(u8::from(pair.same))).collect();
    spearman(&scores, &same).unwrap_or(0.0)
}

/// Returns a table for export that has one row per drawn pair.
fn pair_columns(task: &DialogueTask, drawn: &[Vec<Pair>]) -> Columns {
    let id = |n: usize| task.retrieval.documents[n].clone();
    let row = |(draw, pair): (usize, &Pair)| {
        vec![
            (draw + 1).to_string(),
            id(pair.a),
            id(pair.b),
            u8::from(pair.same).to_string(),
            pair.score.to_string(),
        ]
    };
    Columns {
        name: "related",
        names: ["draw", "dialogue", "other", "same", "score"].map(str::to_owned).into(),
        rows: drawn
            .iter()
            .enumerate()
            .flat_map(|(n, pairs)| pairs.iter().map(move |pair| (n, pair)))
            .map(row)
            .collect(),
    }
}

/// Function that computes a cluster measure from a contingency table.
type OfTable = fn(&Table) -> f64;

/// Returns the number of k-means runs in the protocol of the task.
fn runs(task: &DialogueTask) -> usize {
    match task.profile {
        Profile::Paper => DRAWS,
        Profile::Code => 10usize.saturating_sub(task.labels.len() / 500).max(3),
    }
}

/// Computes domain categorization: cluster measures, averaged over several k-means runs. Returns no values if the
/// ranker has no vectors. If `keep` is true, also returns the clusters of each run.
fn categorization(
    task: &DialogueTask,
    scorer: &dyn Scorer,
    keep: bool,
    watch: &dyn Progress,
) -> Result<(Vec<Value>, Option<Columns>)> {
    let Some(vectors) = scorer.vectors() else { return Ok((Vec::new(), None)) };
    let mut clusters = Vec::new();
    for run in 0..runs(task) {
        let seed = task.seed + run as u64;
        let of = partition(vectors, task.domains.len(), seed, INITIALIZATIONS, &|| watch.stop())?;
        clusters.push(of.iter().map(|cluster| *cluster as usize).collect::<Vec<usize>>());
        watch.done(Step::Clustering, run + 1, runs(task));
    }
    let random_clusters = (0..DRAWS as u64).map(|draw| {
        let mut random = Random::new(task.seed, draw);
        task.labels.iter().map(|_| random.below(task.domains.len())).collect::<Vec<usize>>()
    });
    let random_tables: Vec<Table> =
        random_clusters.map(|clusters| Table::new(&clusters, &task.labels)).collect();
    let tables: Vec<Table> = clusters.iter().map(|clusters| Table::new(clusters, &task.labels)).collect();
    let measures: [(&str, OfTable); 4] =
        [("purity", Table::purity), ("NMI", Table::nmi), ("ARI", Table::ari), ("accuracy", Table::accuracy)];
    let value = |(name, measure): (&str, OfTable)| {
        let each: Vec<f64> = tables.iter().map(measure).collect();
        let (value, deviation) = mean_and_deviation(&each);
        let (floor, _) = mean_and_deviation(&random_tables.iter().map(measure).collect::<Vec<f64>>());
        Value { deviation: Some(deviation), floor: Some(floor), each, ..Value::new(name, value) }
    };
    let values = measures.into_iter().map(value).collect();
    Ok((values, keep.then(|| cluster_columns(task, &clusters))))
}

/// Returns a table for export that has one row per dialogue, with its domain and its cluster in each run.
fn cluster_columns(task: &DialogueTask, clusters: &[Vec<usize>]) -> Columns {
    let row = |n: usize| {
        let of_runs = clusters.iter().map(|of_run| of_run[n].to_string());
        let domain = task.domains[task.labels[n]].clone();
        [task.retrieval.documents[n].clone(), domain].into_iter().chain(of_runs).collect()
    };
    let names = (1..=clusters.len()).map(|run| format!("run{run}"));
    Columns {
        name: "clusters",
        names: ["dialogue", "domain"].map(str::to_owned).into_iter().chain(names).collect(),
        rows: (0..task.labels.len()).map(row).collect(),
    }
}
