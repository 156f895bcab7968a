//! A topic map: the dialogues of an index in clusters, by the cosines of their vectors, with what tells each from the others.

mod choose;
mod gather;
mod kmeans;
mod map;
mod terms;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

pub use choose::Tried;
pub use map::Point;
pub use terms::Term;

use gather::each_dialogue;
use kmeans::{Item, Items, Partition, kmeans};
use terms::{Counts, terms_of};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_encoder::Vectors;
use turnwise_index::vectors::{Kind, VectorReader, dialogue_key};
use turnwise_store::Snapshot;
use turnwise_text::Analyzer;

/// Beginnings that are tried; the best is kept.
const RESTARTS: usize = 4;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// How many clusters; chosen if not given. Fewer are made where there are fewer different dialogues.
    pub k: Option<usize>,
    /// What all that is drawn depends on.
    pub seed: u64,
    /// How many terms are given of each cluster.
    pub terms: usize,
    /// How many dialogues are given of each cluster, the most central ones.
    pub central: usize,
    /// How many dialogues are given a place on a plane: all, if there are fewer, else some drawn by chance.
    pub drawn: usize,
    /// What makes terms of texts.
    pub analyzer: Analyzer,
    /// Only dialogues that fit.
    pub filter: Option<&'a Filter>,
}

/// A topic map.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Clusters {
    /// Dialogues in clusters.
    pub dialogues: u64,
    /// Dialogues that have no vector yet.
    pub without: u64,
    /// Dialogues of which the encoder knew nothing.
    pub unknown: u64,
    /// The mean of the dialogues' cosines with the centres of their clusters.
    pub cohesion: f64,
    /// What was tried to find the number of clusters, if it was not given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
    /// How clusters and domains agree, if any dialogues have one domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purity: Option<Purity>,
    /// The clusters, the largest first.
    pub clusters: Vec<Cluster>,
    /// Where dialogues lie, for people to look at, in the order in which they came.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub map: Vec<Point>,
}

/// How clusters and known domains agree.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Purity {
    /// The part of the dialogues whose domain is the most frequent one of their cluster.
    pub purity: f64,
    /// Dialogues that have exactly one domain; the others are not counted.
    pub dialogues: u64,
    /// Different domains of these.
    pub domains: u64,
}

/// Dialogues that are like each other.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Cluster {
    /// How many.
    pub size: u64,
    /// The part of all.
    pub share: f64,
    /// The mean of their cosines with the centre.
    pub cohesion: f64,
    /// What tells them from the others: weights descending.
    pub terms: Vec<Term>,
    /// The most frequent domains, where they are known.
    pub domains: Vec<Share>,
    /// The dialogues nearest to the centre. Of equal ones, the one that came first.
    pub central: Vec<Central>,
}

/// A domain in a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// Dialogues of the cluster that are about it; one may be about several.
    pub dialogues: u64,
    /// The part of the cluster's.
    pub share: f64,
}

/// A dialogue near the centre of its cluster.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Central {
    /// Its id.
    pub id: String,
    /// The cosine with the centre.
    pub similarity: f32,
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// How many turns it has.
    pub turns: usize,
    /// The first thing that a user says.
    pub text: String,
}

/// Asked now and then, whether to stop.
#[derive(Clone, Copy)]
struct Stop<'a>(&'a (dyn Fn() -> bool + Sync));

impl Stop<'_> {
    fn check(self) -> Result<()> {
        match (self.0)() {
            true => Err(Error::Interrupted { hint: None }),
            false => Ok(()),
        }
    }
}

/// What becomes of a dialogue.
enum Fate {
    NotWanted,
    Without,
    Unknown,
    In(Item),
}

/// What is looked at of a dialogue that is in a cluster.
struct Seen {
    terms: Vec<String>,
    domains: Vec<String>,
    /// If it is shown.
    dialogue: Option<Dialogue>,
}

/// Makes a topic map of the dialogues that have vectors. The same at any number of threads.
pub fn clusters(
    snapshot: &Snapshot,
    vectors: &VectorReader,
    wanted: &Wanted<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Clusters> {
    let stop = Stop(stop);
    let mut made = Clusters {
        dialogues: 0,
        without: 0,
        unknown: 0,
        cohesion: 0.0,
        tried: Vec::new(),
        purity: None,
        clusters: Vec::new(),
        map: Vec::new(),
    };
    let mut items = Vec::new();
    // Of each dialogue in the order of the log, which item it is.
    let mut places: Vec<Option<u32>> = Vec::new();
    each_dialogue(snapshot, stop, &|_, dialogue| fate(&dialogue, vectors, wanted), &mut |fate| {
        places.push(matches!(fate, Fate::In(_)).then_some(items.len() as u32));
        match fate {
            Fate::NotWanted => {}
            Fate::Without => made.without += 1,
            Fate::Unknown => made.unknown += 1,
            Fate::In(item) => items.push(item),
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
    describe(snapshot, wanted, items, &partition, &places, &mut made, stop)?;
    Ok(made)
}

/// The cluster of each of some vectors of length 1, by k-means from the best of some beginnings. One of zeros is in cluster 0.
pub fn partition(
    vectors: &Vectors,
    k: usize,
    seed: u64,
    beginnings: usize,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<u32>> {
    let lies = |n: &usize| vectors.row(*n).iter().any(|v| *v != 0.0);
    let items: Vec<Item> =
        (0..vectors.len()).filter(lies).map(|n| Item { row: n as u32, scale: 1.0 }).collect();
    let all = Items { flat: vectors.flat(), dim: vectors.dim(), items: &items };
    let partition = kmeans(all, k, seed, beginnings, Stop(stop))?;
    let mut of = vec![0; vectors.len()];
    items.iter().zip(&partition.of).for_each(|(item, cluster)| of[item.row as usize] = *cluster);
    Ok(of)
}

fn fate(dialogue: &Dialogue, vectors: &VectorReader, wanted: &Wanted<'_>) -> Result<Fate> {
    if wanted.filter.is_some_and(|filter| !filter.matches(dialogue)) {
        return Ok(Fate::NotWanted);
    }
    let Some(row) = vectors.row_of(Kind::Dialogues, &dialogue_key(dialogue)) else {
        return Ok(Fate::Without);
    };
    let vector = vectors.row(Kind::Dialogues, row)?;
    let length = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
    Ok(match length > 0.0 {
        true => Fate::In(Item { row: row as u32, scale: (1.0 / length) as f32 }),
        false => Fate::Unknown,
    })
}

fn mean<'a>(cosines: impl ExactSizeIterator<Item = &'a f32>) -> f64 {
    let count = cosines.len().max(1);
    cosines.map(|c| f64::from(*c)).sum::<f64>() / count as f64
}

/// Goes over the dialogues once more, for what tells the clusters from each other.
fn describe(
    snapshot: &Snapshot,
    wanted: &Wanted<'_>,
    items: Items<'_>,
    partition: &Partition,
    places: &[Option<u32>],
    made: &mut Clusters,
    stop: Stop<'_>,
) -> Result<()> {
    let central: Vec<Vec<u32>> = partition
        .members
        .iter()
        .map(|members| most_central(items, partition, members, wanted.central))
        .collect();
    let is_central = |n: u32| central[partition.of[n as usize] as usize].contains(&n);
    let drawn: HashMap<u32, [f32; 2]> = map::places(items, wanted.drawn, wanted.seed, stop)?;
    let mut counts = Counts::new(partition.members.len());
    let mut domains: Vec<BTreeMap<String, u64>> = vec![BTreeMap::new(); partition.members.len()];
    let mut single: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
    let mut shown: BTreeMap<u32, Central> = BTreeMap::new();
    let look = |n: usize, dialogue: Dialogue| -> Result<Option<(u32, Seen)>> {
        let Some(item) = places.get(n).copied().flatten() else { return Ok(None) };
        let terms = terms_of(&dialogue, &wanted.analyzer);
        let domains = dialogue.domains.clone();
        let shown = is_central(item) || drawn.contains_key(&item);
        Ok(Some((item, Seen { terms, domains, dialogue: shown.then_some(dialogue) })))
    };
    each_dialogue(snapshot, stop, &look, &mut |seen| {
        let Some((item, Seen { terms, domains: mut of_this, dialogue })) = seen else { return };
        let cluster = partition.of[item as usize];
        counts.add(cluster, terms);
        of_this.sort_unstable();
        of_this.dedup();
        if let [domain] = of_this.as_slice() {
            *single.entry(domain.clone()).or_default().entry(cluster).or_default() += 1;
        }
        for domain in of_this {
            *domains[cluster as usize].entry(domain).or_default() += 1;
        }
        let Some(dialogue) = dialogue else { return };
        if let Some(at) = drawn.get(&item) {
            made.map.push(Point::of(&dialogue, cluster as usize, *at));
        }
        if is_central(item) {
            shown.insert(item, Central::of(dialogue, partition.cosines[item as usize]));
        }
    })?;
    made.purity = purity(&single, partition.members.len());
    let all = made.dialogues.max(1) as f64;
    let rest = counts.best(wanted.terms).into_iter().zip(domains).zip(central);
    for (((terms, domains), central), members) in rest.zip(&partition.members) {
        let size = members.len() as u64;
        made.clusters.push(Cluster {
            size,
            share: size as f64 / all,
            cohesion: mean(members.iter().map(|n| &partition.cosines[*n as usize])),
            terms,
            domains: shares(domains, size),
            central: central.iter().filter_map(|n| shown.remove(n)).collect(),
        });
    }
    // Stable: of equal sizes, in the order in which they were made.
    let mut order: Vec<usize> = (0..made.clusters.len()).collect();
    order.sort_by_key(|n| std::cmp::Reverse(made.clusters[*n].size));
    made.clusters.sort_by_key(|cluster| std::cmp::Reverse(cluster.size));
    for point in &mut made.map {
        point.cluster = order.iter().position(|n| *n == point.cluster).unwrap_or_default();
    }
    Ok(())
}

/// The items nearest to the centre, of those with the same vector only one.
fn most_central(items: Items<'_>, partition: &Partition, members: &[u32], count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = members.to_vec();
    let cosine = |n: &u32| partition.cosines[*n as usize];
    order.sort_by(|a, b| cosine(b).total_cmp(&cosine(a)).then(a.cmp(b)));
    let mut rows = Vec::new();
    let is_new = |n: &u32| {
        let row = items.items[*n as usize].row;
        let new = !rows.contains(&row);
        rows.push(row);
        new
    };
    order.into_iter().filter(is_new).take(count).collect()
}

/// The most frequent domains.
fn shares(domains: BTreeMap<String, u64>, size: u64) -> Vec<Share> {
    const MOST: usize = 5;
    let share =
        |(name, dialogues): (String, u64)| Share { name, dialogues, share: dialogues as f64 / size as f64 };
    let mut shares: Vec<Share> = domains.into_iter().map(share).collect();
    // Stable: of equal ones, in the order of the alphabet.
    shares.sort_by_key(|share| std::cmp::Reverse(share.dialogues));
    shares.truncate(MOST);
    shares
}

/// `single` counts the dialogues of each domain in each cluster.
fn purity(single: &BTreeMap<String, BTreeMap<u32, u64>>, clusters: usize) -> Option<Purity> {
    let dialogues: u64 = single.values().flat_map(BTreeMap::values).sum();
    let most = |cluster: u32| single.values().filter_map(|of| of.get(&cluster)).max().copied().unwrap_or(0);
    let agree: u64 = (0..clusters as u32).map(most).sum();
    let purity = agree as f64 / dialogues.max(1) as f64;
    (dialogues > 0).then_some(Purity { purity, dialogues, domains: single.len() as u64 })
}

impl Central {
    fn of(dialogue: Dialogue, similarity: f32) -> Self {
        Central {
            similarity,
            turns: dialogue.turns.len(),
            text: dialogue.opening().map(|turn| turn.text.clone()).unwrap_or_default(),
            id: dialogue.id.to_string(),
            title: dialogue.title,
        }
    }
}
