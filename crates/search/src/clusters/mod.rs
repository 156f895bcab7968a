//! Topic map: clusters of dialogues whose vectors have high cosines with each other. Each cluster is described by
//! characteristic terms and central dialogues.

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
    /// Number of clusters. 0 counts as 1. If `None`, the number is chosen automatically. The result has fewer clusters
    /// if there are fewer distinct vectors.
    pub k: Option<usize>,
    /// Random seed. The result depends only on the dialogues, the options and the seed.
    pub seed: u64,
    /// Maximum number of terms to return per cluster.
    pub terms: usize,
    /// Maximum number of central dialogues to return per cluster.
    pub central: usize,
    /// Maximum number of dialogues to place on the map; 0 for no map. If there are more dialogues, a random sample is
    /// used.
    pub drawn: usize,
    /// Analyzer that splits texts into terms.
    pub analyzer: Analyzer,
    /// Filter for the dialogues to cluster; `None` for all dialogues.
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
    /// Number of clustered dialogues.
    pub dialogues: u64,
    /// Number of dialogues without a vector. They are in no cluster.
    pub without: u64,
    /// Number of dialogues with a zero vector, because the encoder knows none of their words. They are in no cluster.
    pub unknown: u64,
    /// Mean cosine of the clustered dialogues with the centers of their clusters, from −1 to 1.
    pub cohesion: f64,
    /// Cluster counts that were tried to choose the count automatically; empty if the count was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
    /// Agreement of clusters and domains; `None` if no clustered dialogue has exactly one domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purity: Option<Purity>,
    /// The clusters, largest first.
    pub clusters: Vec<Cluster>,
    /// Positions of dialogues on a two-dimensional map, in the order in which the dialogues are stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub map: Vec<Point>,
}

/// Agreement of the clusters with the domains of the dialogues.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Purity {
    /// Fraction of the dialogues whose domain is the most frequent domain in their cluster, from 0 to 1. Only dialogues
    /// with exactly one domain count.
    pub purity: f64,
    /// Number of clustered dialogues with exactly one domain.
    pub dialogues: u64,
    /// Number of distinct domains of the dialogues with exactly one domain.
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
    /// At most 5 domains, the most frequent first; empty if no dialogue in the cluster has a domain.
    pub domains: Vec<Share>,
    /// The dialogues nearest to the center, the nearest first. If several dialogues have the same vector, only one of
    /// them is included.
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
    /// Title of the dialogue, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Number of turns of the dialogue.
    pub turns: usize,
    /// Text of the first user turn with text, else of the first turn with text.
    pub text: String,
}

/// Callback that is called regularly during a computation. If it returns true, the computation ends with an error.
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
    /// The vector of the dialogue is zero, so its cosines are undefined.
    ZeroVector,
    /// The dialogue is clustered as this item.
    Item(Item),
}

/// Builds a topic map of the dialogues that match the filter and have a nonzero vector. The result does not depend on
/// the number of threads. Returns an error if `stop` returns true.
pub fn clusters(
    snapshot: &Snapshot,
    vectors: &VectorReader,
    wanted: &ClusterOptions<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Clusters> {
    let stop = Stop(stop);
    let mut made = Clusters::default();
    let mut items = Vec::new();
    // Index of each dialogue in `items`; `None` if it is not clustered. Dialogues are in the order of the log.
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
/// `restarts` runs with different initial centers. Assigns zero vectors to cluster 0. Returns an error if `stop`
/// returns true.
pub fn partition(
    vectors: &Vectors,
    k: usize,
    seed: u64,
    restarts: usize,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<u32>> {
    let is_nonzero = |n: &usize| vectors.row(*n).iter().any(|v| *v != 0.0);
    let items: Vec<Item> =
        (0..vectors.len()).filter(is_nonzero).map(|n| Item { row: n as u32, scale: 1.0 }).collect();
    let all = Items { flat: vectors.flat(), dim: vectors.dim(), items: &items };
    let partition = kmeans(all, k, seed, restarts, Stop(stop))?;
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
