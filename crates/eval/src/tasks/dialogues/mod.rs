//! The three dial2vec tasks over one set of dialogues, each with one domain.

mod domains;
mod related;

use std::collections::{BTreeMap, HashMap};

use super::{Candidates, Columns, ListTask, Map, Outcome, Skipped, Task, Value};
use crate::{
    rank::{Items, Pool, Progress, Scorer, Step},
    trec::Measure,
};
use domains::categorization;
use related::relatedness;
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::Vectors;
use turnwise_measures::{plane::plane, space::space};

/// Evaluation protocol: the one in the paper's text, or the one in its released code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Paper: ten k-means runs, and the correlation over random pairs.
    Paper,
    /// Code: max(3, 10 − n/500) k-means runs, and each dialogue's correlation with all others, averaged over the
    /// dialogues.
    Code,
}

impl Profile {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Paper => "paper",
            Profile::Code => "code",
        }
    }
}

/// Number of random draws.
const DRAWS: usize = 10;
/// Largest number of dialogues on a map. Larger maps are slow to draw.
const MAPPED: usize = 1_000;
/// Number of k-means initializations; the best result is used.
const INITIALIZATIONS: usize = 10;

/// Domain categorization, semantic relatedness and dialogue retrieval.
pub struct DialogueTask {
    retrieval: ListTask,
    /// Index of each dialogue's domain in `domains`.
    labels: Vec<usize>,
    domains: Vec<String>,
    profile: Profile,
    seed: u64,
}

impl DialogueTask {
    /// Creates the tasks. Dialogues without a domain or with several domains are left out and counted.
    pub fn new(dialogues: Vec<Dialogue>, profile: Profile, seed: u64) -> Result<Self> {
        let mut skipped = Vec::new();
        let mut kept = Vec::new();
        for dialogue in dialogues {
            match dialogue.domains.len() {
                1 => kept.push(dialogue),
                0 => Skipped::count(&mut skipped, "dialogues without a domain", || dialogue.id.to_string()),
                _ => {
                    Skipped::count(&mut skipped, "dialogues with several domains", || dialogue.id.to_string())
                }
            }
        }
        let mut members: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (n, dialogue) in kept.iter().enumerate() {
            members.entry(&dialogue.domains[0]).or_default().push(n as u32);
        }
        if members.len() < 2 {
            return Err(Error::Data {
                message: format!(
                    "{}; the tasks need at least two domains",
                    match members.len() {
                        0 => "there are no dialogues with exactly one domain".to_owned(),
                        _ => format!("all {} dialogues have the same domain", kept.len()),
                    }
                ),
                hint: Some(
                    "a domain is a label of a dialogue; `turnwise corpus stats` lists the domains".to_owned(),
                ),
            });
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
                Skipped::count(&mut skipped, "queries that are the only dialogue of their domain", || {
                    dialogue.id.to_string()
                });
                continue;
            }
            judged.push(same.iter().filter(|other| **other != n as u32).map(|other| (*other, 1)).collect());
            pool_indices.push(n as u32);
        }
        let documents: Vec<String> = kept.iter().map(|dialogue| dialogue.id.to_string()).collect();
        let retrieval = ListTask {
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
        let value = |(name, value): (&str, f64)| Value {
            measure: name.to_owned(),
            value,
            deviation: None,
            floor: None,
            each: Vec::new(),
        };
        named.into_iter().map(value).collect()
    }

    /// Projects the dialogues onto a plane; a random sample if there are more than [`MAPPED`].
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
            // More digits would not be visible and would only make the file larger.
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
