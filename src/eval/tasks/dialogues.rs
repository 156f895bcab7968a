//! dial2vec's three tasks, over one set of dialogues with a domain each.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;

use super::{Candidates, ListTask, Map, Outcome, Skipped, Task, Value};
use crate::{
    corpus::Dialogue,
    encoder::Vectors,
    error::{Error, Result},
    eval::{
        rank::{Items, Pool, Scorer, Step, Watch, must_be_numbers},
        significance::mean_and_deviation,
        trec::Measure,
    },
    measures::{clusters::Table, correlation::spearman, plane::plane, space::space},
    random::Random,
    search::clusters::partition,
};

/// As the paper's text has it, or as its released code does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The text: ten runs of k-means, one correlation over random pairs.
    Paper,
    /// The code: max(3, 10 − n/500) runs, and the mean over the dialogues of the correlation with all others.
    Code,
}

impl Profile {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Paper => "paper",
            Profile::Code => "code",
        }
    }
}

/// A measure of clusters.
type OfTable = fn(&Table) -> f64;

/// How often what is drawn is drawn.
const DRAWS: usize = 10;
/// Dialogues on a map, at most: more take longer to draw than to look at.
const MAPPED: usize = 1_000;
/// From how many beginnings k-means takes the best.
const BEGINNINGS: usize = 10;

/// Domain categorization, semantic relatedness and dialogue retrieval.
pub struct DialogueTask {
    retrieval: ListTask,
    /// The domain of each dialogue, by number.
    labels: Vec<usize>,
    domains: Vec<String>,
    profile: Profile,
    seed: u64,
}

impl DialogueTask {
    /// Of dialogues with a domain each. Those with none or several are left out, and counted.
    pub fn new(dialogues: Vec<Dialogue>, profile: Profile, seed: u64) -> Result<Self> {
        let mut skipped = Vec::new();
        let mut kept = Vec::new();
        for dialogue in dialogues {
            match dialogue.domains.len() {
                1 => kept.push(dialogue),
                0 => Skipped::count(&mut skipped, "dialogues without a domain", || dialogue.id.to_string()),
                _ => Skipped::count(&mut skipped, "dialogues of several domains", || dialogue.id.to_string()),
            }
        }
        let mut members: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (n, dialogue) in kept.iter().enumerate() {
            members.entry(&dialogue.domains[0]).or_default().push(n as u32);
        }
        if members.len() < 2 {
            return Err(Error::Data {
                message: format!(
                    "{} of one domain each; the tasks need at least two domains",
                    match members.len() {
                        0 => "there are no dialogues".to_owned(),
                        _ => format!("all {} dialogues have one domain", kept.len()),
                    }
                ),
                hint: Some(
                    "the domain is a label of each dialogue; `turnwise corpus stats` lists them".to_owned(),
                ),
            });
        }
        let numbers: HashMap<&str, usize> =
            members.keys().enumerate().map(|(n, domain)| (*domain, n)).collect();
        let labels: Vec<usize> = kept.iter().map(|dialogue| numbers[dialogue.domains[0].as_str()]).collect();
        let domains = members.keys().map(|domain| (*domain).to_owned()).collect();
        let mut judged = Vec::new();
        let mut places = Vec::new();
        for (n, dialogue) in kept.iter().enumerate() {
            let same = &members[dialogue.domains[0].as_str()];
            if same.len() < 2 {
                Skipped::count(&mut skipped, "dialogues that are alone in their domain, as queries", || {
                    dialogue.id.to_string()
                });
                continue;
            }
            judged.push(same.iter().filter(|other| **other != n as u32).map(|other| (*other, 1)).collect());
            places.push(n as u32);
        }
        let documents: Vec<String> = kept.iter().map(|dialogue| dialogue.id.to_string()).collect();
        let retrieval = ListTask {
            name: "dialogues",
            about: "dialogue retrieval, semantic relatedness and domain categorization (dial2vec)",
            queries: places.iter().map(|n| documents[*n as usize].clone()).collect(),
            documents,
            places,
            candidates: Candidates::All { judged, depth: usize::MAX },
            pool: Pool::of(Items::Dialogues(kept)),
            measures: vec![("MAP", Measure::Map), ("MRR", Measure::RecipRank)],
            skipped,
        };
        Ok(DialogueTask { retrieval, labels, domains, profile, seed })
    }

    fn relatedness(&self, scorer: &dyn Scorer) -> Result<Value> {
        let n = self.labels.len();
        let each = match self.profile {
            Profile::Paper => (0..DRAWS as u64)
                .map(|draw| {
                    let mut random = Random::new(self.seed, draw);
                    let (mut scores, mut same, mut one) = (Vec::new(), Vec::new(), Vec::new());
                    for a in 0..n {
                        // Any but itself.
                        let b = (a + 1 + random.below(n - 1)) % n;
                        scorer.scores(a, &[b as u32], &mut one)?;
                        must_be_numbers("the ranker", &self.retrieval.documents[a], &one)?;
                        scores.push(f64::from(one[0]));
                        same.push(f64::from(u8::from(self.labels[a] == self.labels[b])));
                    }
                    Ok(spearman(&scores, &same).unwrap_or(0.0))
                })
                .collect::<Result<Vec<f64>>>()?,
            Profile::Code => (0..n)
                .into_par_iter()
                .map(|a| {
                    let others: Vec<u32> = (0..n as u32).filter(|b| *b != a as u32).collect();
                    let mut scores = Vec::new();
                    scorer.scores(a, &others, &mut scores)?;
                    must_be_numbers("the ranker", &self.retrieval.documents[a], &scores)?;
                    let scores: Vec<f64> = scores.iter().map(|score| f64::from(*score)).collect();
                    let same = |b: &u32| f64::from(u8::from(self.labels[*b as usize] == self.labels[a]));
                    let same: Vec<f64> = others.iter().map(same).collect();
                    Ok(spearman(&scores, &same).unwrap_or(0.0))
                })
                .collect::<Result<Vec<f64>>>()?,
        };
        let (value, deviation) = mean_and_deviation(&each);
        let drawn = self.profile == Profile::Paper;
        Ok(Value {
            measure: "Spearman".to_owned(),
            value,
            deviation: drawn.then_some(deviation),
            floor: Some(0.0),
            each,
        })
    }

    /// How often k-means runs.
    fn runs(&self) -> usize {
        match self.profile {
            Profile::Paper => DRAWS,
            Profile::Code => 10usize.saturating_sub(self.labels.len() / 500).max(3),
        }
    }

    fn categorization(&self, scorer: &dyn Scorer, watch: &dyn Watch) -> Result<Vec<Value>> {
        let Some(vectors) = scorer.vectors() else { return Ok(Vec::new()) };
        let mut tables = Vec::new();
        for run in 0..self.runs() {
            let of =
                partition(vectors, self.domains.len(), self.seed + run as u64, BEGINNINGS, &|| watch.stop())?;
            let clusters: Vec<usize> = of.iter().map(|cluster| *cluster as usize).collect();
            tables.push(Table::new(&clusters, &self.labels));
            watch.done(Step::Clustering, run + 1, self.runs());
        }
        let by_chance: Vec<Table> = (0..DRAWS as u64)
            .map(|draw| {
                let mut random = Random::new(self.seed, draw);
                Table::new(
                    &self.labels.iter().map(|_| random.below(self.domains.len())).collect::<Vec<_>>(),
                    &self.labels,
                )
            })
            .collect();
        let measures: [(&str, OfTable); 4] = [
            ("purity", Table::purity),
            ("NMI", Table::nmi),
            ("ARI", Table::ari),
            ("accuracy", Table::accuracy),
        ];
        let value = |(name, measure): (&str, OfTable)| {
            let each: Vec<f64> = tables.iter().map(measure).collect();
            let (value, deviation) = mean_and_deviation(&each);
            let (floor, _) = mean_and_deviation(&by_chance.iter().map(measure).collect::<Vec<f64>>());
            Value { measure: name.to_owned(), value, deviation: Some(deviation), floor: Some(floor), each }
        };
        Ok(measures.into_iter().map(value).collect())
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

    /// Where the dialogues lie; of many, so many drawn by chance.
    fn map(&self, scorer: &dyn Scorer, watch: &dyn Watch) -> Result<Option<Map>> {
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
            // More digits than anybody can see make the file longer.
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
        format!("dialogues/{}/{}/{DRAWS}/{BEGINNINGS}", self.profile.name(), self.seed)
    }

    fn run(&self, scorer: &dyn Scorer, keep: bool, watch: &dyn Watch) -> Result<Outcome> {
        let mut outcome = self.retrieval.run(scorer, keep, watch)?;
        outcome.values.push(self.relatedness(scorer)?);
        outcome.values.extend(self.categorization(scorer, watch)?);
        outcome.values.extend(self.space(scorer));
        outcome.map = self.map(scorer, watch)?;
        Ok(outcome)
    }
}
