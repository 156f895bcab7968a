//! Topic map: clusters the dialogues of an index by the cosines of their vectors, and describes each cluster by its
//! characteristic terms.

mod choose;
mod describe;
mod kmeans;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Serialize;

pub use choose::Tried;
pub use describe::{Point, Term};

use crate::scan::each_dialogue;
use describe::{describe, mean};
use kmeans::{Item, Items, kmeans};
use turnwise_core::{Error, Result};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_encoder::Vectors;
use turnwise_index::vectors::{Kind, VectorReader, dialogue_key};
use turnwise_store::Snapshot;
use turnwise_text::Analyzer;

/// Number of k-means restarts. The best result is kept.
const RESTARTS: usize = 4;

/// Options of a topic map.
#[derive(Debug, Clone)]
pub struct ClusterOptions<'a> {
    /// Number of clusters; `None` to choose it automatically. The result has fewer clusters if there are fewer
    /// distinct dialogues.
    pub k: Option<usize>,
    /// Random seed.
    pub seed: u64,
    /// Number of terms to return per cluster.
    pub terms: usize,
    /// Number of central dialogues to return per cluster.
    pub central: usize,
    /// Maximum number of dialogues to place on the map; 0 for no map. If there are more dialogues, a random sample is
    /// used.
    pub drawn: usize,
    /// Analyzer that splits texts into terms.
    pub analyzer: Analyzer,
    /// Use only dialogues that match this filter.
    pub filter: Option<&'a Filter>,
}

impl Default for ClusterOptions<'_> {
    fn default() -> Self {
        ClusterOptions {
            k: None,
            seed: 0,
            terms: 8,
            central: 3,
            drawn: 0,
            analyzer: Analyzer::default(),
            filter: None,
        }
    }
}

/// A topic map: clusters of the dialogues of an index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Clusters {
    /// Number of dialogues in clusters.
    pub dialogues: u64,
    /// Number of dialogues without a vector.
    pub without: u64,
    /// Number of dialogues with a zero vector. The encoder knows none of the words in these dialogues.
    pub unknown: u64,
    /// Mean cosine of the dialogues with the centers of their clusters.
    pub cohesion: f64,
    /// Cluster counts that were tried, if the count was chosen automatically.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
    /// Agreement of clusters and domains, if any dialogue has exactly one domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purity: Option<Purity>,
    /// The clusters, largest first.
    pub clusters: Vec<Cluster>,
    /// Positions of dialogues on a two-dimensional map, in the order of ingestion.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub map: Vec<Point>,
}

/// Agreement of the clusters with the domains that the corpus gives.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Purity {
    /// Fraction of the dialogues whose domain is the most frequent one in their cluster.
    pub purity: f64,
    /// Number of dialogues with exactly one domain. Only these are counted.
    pub dialogues: u64,
    /// Number of distinct domains among these dialogues.
    pub domains: u64,
}

/// A cluster of similar dialogues.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Cluster {
    /// Number of dialogues in the cluster.
    pub size: u64,
    /// Fraction of all clustered dialogues that are in this cluster, from 0 to 1.
    pub share: f64,
    /// Mean cosine of the dialogues with the center of the cluster, from −1 to 1.
    pub cohesion: f64,
    /// Terms that distinguish this cluster from the others, by descending weight.
    pub terms: Vec<Term>,
    /// The most frequent domains, if known.
    pub domains: Vec<Share>,
    /// The dialogues nearest to the center. Of dialogues with equal vectors, only the first ingested one.
    pub central: Vec<Central>,
}

/// A domain, and its share of the dialogues in a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Share {
    /// Name of the domain.
    pub name: String,
    /// Number of dialogues in the cluster with this domain. A dialogue can have several domains.
    pub dialogues: u64,
    /// Fraction of the dialogues in the cluster that have this domain, from 0 to 1.
    pub share: f64,
}

/// A dialogue near the center of its cluster.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Central {
    /// Id of the dialogue.
    pub id: String,
    /// Cosine of the dialogue with the center of its cluster, from −1 to 1.
    pub similarity: f32,
    /// Title of the dialogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Number of turns of the dialogue.
    pub turns: usize,
    /// Text of the first user turn.
    pub text: String,
}

/// Callback that returns whether to stop. It is called regularly.
#[derive(Clone, Copy)]
pub(crate) struct Stop<'a>(&'a (dyn Fn() -> bool + Sync));

impl Stop<'_> {
    pub(crate) fn check(self) -> Result<()> {
        match (self.0)() {
            true => Err(Error::Interrupted { hint: None }),
            false => Ok(()),
        }
    }
}

/// Result of checking whether a dialogue can be clustered.
enum Selection {
    /// The filter excludes the dialogue.
    Filtered,
    /// The dialogue has no vector.
    NoVector,
    /// The vector of the dialogue is zero, so the dialogue has no direction.
    ZeroVector,
    /// The dialogue is clustered as this item.
    Item(Item),
}

/// Builds a topic map of the dialogues that have vectors. The result does not depend on the number of threads.
/// Returns an error if `stop` returns true.
pub fn clusters(
    snapshot: &Snapshot,
    vectors: &VectorReader,
    wanted: &ClusterOptions<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Clusters> {
    let stop = Stop(stop);
    let mut made = Clusters::default();
    let mut items = Vec::new();
    // Item index of each dialogue, in the order of the log. `None` for dialogues that are not clustered.
    let mut item_indices: Vec<Option<u32>> = Vec::new();
    each_dialogue(snapshot, stop, &|_, dialogue| select(&dialogue, vectors, wanted), &mut |selection| {
        item_indices.push(matches!(selection, Selection::Item(_)).then_some(items.len() as u32));
        match selection {
            Selection::Filtered => {}
            Selection::NoVector => made.without += 1,
            Selection::ZeroVector => made.unknown += 1,
            Selection::Item(item) => items.push(item),
        }
    })?;
    made.dialogues = items.len() as u64;
    let items = Items { flat: vectors.flat(Kind::Dialogues), dim: vectors.dim(), items: &items };
    let k = match wanted.k {
        Some(k) => k,
        None => {
            let (k, tried) = choose::choose(items, wanted.seed, stop)?;
            made.tried = tried;
            k
        }
    };
    let partition = kmeans(items, k, wanted.seed, RESTARTS, stop)?;
    made.cohesion = mean(partition.cosines.iter());
    describe(snapshot, wanted, items, &partition, &item_indices, &mut made, stop)?;
    Ok(made)
}

/// Clusters L2-normalized vectors by k-means and returns the cluster index of each vector. Keeps the best of
/// `beginnings` restarts. Zero vectors are assigned to cluster 0. Returns an error if `stop` returns true.
pub fn partition(
    vectors: &Vectors,
    k: usize,
    seed: u64,
    beginnings: usize,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<u32>> {
    let is_nonzero = |n: &usize| vectors.row(*n).iter().any(|v| *v != 0.0);
    let items: Vec<Item> =
        (0..vectors.len()).filter(is_nonzero).map(|n| Item { row: n as u32, scale: 1.0 }).collect();
    let all = Items { flat: vectors.flat(), dim: vectors.dim(), items: &items };
    let partition = kmeans(all, k, seed, beginnings, Stop(stop))?;
    let mut of = vec![0; vectors.len()];
    items.iter().zip(&partition.of).for_each(|(item, cluster)| of[item.row as usize] = *cluster);
    Ok(of)
}

fn select(dialogue: &Dialogue, vectors: &VectorReader, wanted: &ClusterOptions<'_>) -> Result<Selection> {
    if wanted.filter.is_some_and(|filter| !filter.matches(dialogue)) {
        return Ok(Selection::Filtered);
    }
    let Some(row) = vectors.row_of(Kind::Dialogues, &dialogue_key(dialogue)) else {
        return Ok(Selection::NoVector);
    };
    let vector = vectors.row(Kind::Dialogues, row)?;
    let length = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
    Ok(match length > 0.0 {
        true => Selection::Item(Item { row: row as u32, scale: (1.0 / length) as f32 }),
        false => Selection::ZeroVector,
    })
}
