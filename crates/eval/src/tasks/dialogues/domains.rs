//! Domain categorization: compares k-means clusters of the vectors with the domains.

use super::{Columns, DRAWS, DialogueTask, INITIALIZATIONS, Profile, Value};
use crate::{
    rank::{Progress, Scorer, Step},
    significance::mean_and_deviation,
};
use turnwise_core::{error::Result, random::Random};
use turnwise_measures::clusters::Table;
use turnwise_search::clusters::partition;

/// Cluster measure computed from a contingency table.
type OfTable = fn(&Table) -> f64;

/// Number of k-means runs.
fn runs(task: &DialogueTask) -> usize {
    match task.profile {
        Profile::Paper => DRAWS,
        Profile::Code => 10usize.saturating_sub(task.labels.len() / 500).max(3),
    }
}

/// Computes the cluster measures, averaged over the runs. With `keep`, also returns the clusters of each run. A ranker
/// without vectors has no values.
pub(super) fn categorization(
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
        Value { measure: name.to_owned(), value, deviation: Some(deviation), floor: Some(floor), each }
    };
    let values = measures.into_iter().map(value).collect();
    Ok((values, keep.then(|| columns(task, &clusters))))
}

/// One row per dialogue: its domain, and its cluster in each run.
fn columns(task: &DialogueTask, clusters: &[Vec<usize>]) -> Columns {
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
