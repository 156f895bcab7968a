//! Descriptions of clusters: characteristic terms, domains, central dialogues, and positions on a map.
//!
//! The weight of a term is a variant of class-based TF-IDF (c-TF-IDF), computed from numbers of dialogues:
//!
//! ```text
//! weight(term, cluster) = p · ln(p / q) · ln(1 / q)    p: fraction of the cluster's dialogues that contain the term
//!                                                      q: fraction of all clustered dialogues that contain it
//! ```
//!
//! The weight is high for terms that are frequent in the cluster and rare elsewhere. For terms in nearly all dialogues,
//! `p ≈ q ≈ 1`, so the weight is near 0. Therefore, no list of stop words is needed, in any language.
//!
//! Terms without a letter and terms with `p ≤ q` are ignored. Terms in only one dialogue of a cluster are also ignored,
//! unless the cluster has only one dialogue.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Central, Cluster, ClusterOptions, Clusters, Purity, Share, Stop,
    kmeans::{Items, Partition, sample_indices},
};
use crate::scan::each_dialogue;
use turnwise_core::Result;
use turnwise_corpus::Dialogue;
use turnwise_encoder::Vectors;
use turnwise_measures::plane::plane;
use turnwise_store::Snapshot;
use turnwise_text::Analyzer;

/// A term that distinguishes a cluster from the others.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Term {
    /// The term in its indexed form, as the analyzer returns it.
    pub term: String,
    /// Weight `p · ln(p / q) · ln(1 / q)`, where `p` is `here` and `q` is `everywhere`. Greater is more characteristic.
    pub weight: f64,
    /// Fraction of the cluster's dialogues that contain the term.
    pub here: f64,
    /// Fraction of all clustered dialogues that contain the term.
    pub everywhere: f64,
}

/// Returns the distinct terms of a dialogue that contain a letter.
fn terms_of(dialogue: &Dialogue, analyzer: &Analyzer) -> Vec<String> {
    let mut terms: Vec<String> = Vec::new();
    for turn in &dialogue.turns {
        let tokens = analyzer.analyze(&turn.text).into_iter().map(|token| token.term);
        terms.extend(tokens.filter(|term| term.chars().any(char::is_alphabetic)));
    }
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// For each term and cluster, the number of dialogues in the cluster that contain the term.
struct Counts {
    /// For each term, pairs of a cluster and the number of its dialogues that contain the term.
    terms: HashMap<String, Vec<(u32, u32)>>,
    /// Number of dialogues in each cluster.
    sizes: Vec<u32>,
}

impl Counts {
    fn new(clusters: usize) -> Self {
        Counts { terms: HashMap::new(), sizes: vec![0; clusters] }
    }

    fn add(&mut self, cluster: u32, terms: Vec<String>) {
        self.sizes[cluster as usize] += 1;
        for term in terms {
            let counts = self.terms.entry(term).or_default();
            match counts.iter_mut().find(|(c, _)| *c == cluster) {
                Some((_, count)) => *count += 1,
                None => counts.push((cluster, 1)),
            }
        }
    }

    /// Returns at most `top` terms for each cluster, sorted by descending weight, then by term.
    fn best(self, top: usize) -> Vec<Vec<Term>> {
        let all: u32 = self.sizes.iter().sum();
        let mut best: Vec<Vec<Term>> = vec![Vec::new(); self.sizes.len()];
        for (term, counts) in self.terms {
            let everywhere = counts.iter().map(|(_, n)| *n).sum::<u32>();
            let everywhere = f64::from(everywhere) / f64::from(all);
            for (cluster, count) in counts {
                let size = self.sizes[cluster as usize];
                let here = f64::from(count) / f64::from(size);
                if (count > 1 || size == 1) && here > everywhere {
                    let weight = here * (here / everywhere).ln() * (1.0 / everywhere).ln();
                    best[cluster as usize].push(Term { term: term.clone(), weight, here, everywhere });
                }
            }
        }
        for terms in &mut best {
            terms.sort_unstable_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.term.cmp(&b.term)));
            terms.truncate(top);
        }
        best
    }
}

/// Maximum length of [`Point::text`] in characters, without the ellipsis.
const MAX_CHARS: usize = 120;

/// A dialogue on the two-dimensional map.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// Id of the dialogue.
    pub id: String,
    /// Index of the dialogue's cluster in the list `clusters`, starting at 0.
    pub cluster: usize,
    /// Coordinates `[x, y]`, each from −1 to 1.
    pub at: [f32; 2],
    /// Title of the dialogue, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// At most 120 characters of the first user turn with text, else of the first turn with text. If the text was cut,
    /// it ends with `…`.
    pub text: String,
}

impl Point {
    fn of(dialogue: &Dialogue, cluster: usize, at: [f32; 2]) -> Self {
        let text = dialogue.opening().map(|turn| turn.text.as_str()).unwrap_or_default();
        let end = text.char_indices().nth(MAX_CHARS);
        Point {
            id: dialogue.id.to_string(),
            cluster,
            at,
            title: dialogue.title.clone(),
            text: end.map_or_else(|| text.to_owned(), |(end, _)| format!("{}…", &text[..end])),
        }
    }
}

/// Computes map coordinates for a random sample of at most `limit` items. Returns a map from the index of an item to
/// its coordinates.
fn map_positions(
    items: Items<'_>,
    limit: usize,
    seed: u64,
    stop: Stop<'_>,
) -> Result<HashMap<u32, [f32; 2]>> {
    let drawn = sample_indices(items.len(), limit, seed);
    let mut vectors = Vectors::new(items.dim);
    drawn.iter().for_each(|n| vectors.push(&items.unit(*n)));
    let mut stopped = Ok(());
    let points = plane(&vectors, seed, |_, _| {
        stopped = stop.check();
        stopped.is_ok()
    });
    stopped?;
    Ok(drawn.into_iter().map(|n| n as u32).zip(points.into_iter().flatten()).collect())
}

/// Data from one clustered dialogue. It is needed to describe the cluster of the dialogue.
struct DialogueFacts {
    terms: Vec<String>,
    domains: Vec<String>,
    /// The dialogue, if it is central or on the map.
    dialogue: Option<Dialogue>,
}

/// Reads the dialogues again and adds the clusters to `made`, with terms, domains and central dialogues. Also adds the
/// purity and the map.
pub(super) fn describe(
    snapshot: &Snapshot,
    wanted: &ClusterOptions<'_>,
    items: Items<'_>,
    partition: &Partition,
    item_indices: &[Option<u32>],
    made: &mut Clusters,
    stop: Stop<'_>,
) -> Result<()> {
    let central: Vec<Vec<u32>> = partition
        .members
        .iter()
        .map(|members| most_central(items, partition, members, wanted.central))
        .collect();
    let is_central = |n: u32| central[partition.of[n as usize] as usize].contains(&n);
    let drawn: HashMap<u32, [f32; 2]> = map_positions(items, wanted.drawn, wanted.seed, stop)?;
    let mut counts = Counts::new(partition.members.len());
    let mut domains: Vec<BTreeMap<String, u64>> = vec![BTreeMap::new(); partition.members.len()];
    let mut single: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
    let mut shown: BTreeMap<u32, Central> = BTreeMap::new();
    let look = |n: usize, dialogue: Dialogue| -> Result<Option<(u32, DialogueFacts)>> {
        let Some(item) = item_indices.get(n).copied().flatten() else { return Ok(None) };
        let terms = terms_of(&dialogue, &wanted.analyzer);
        let domains = dialogue.domains.clone();
        let shown = is_central(item) || drawn.contains_key(&item);
        Ok(Some((item, DialogueFacts { terms, domains, dialogue: shown.then_some(dialogue) })))
    };
    each_dialogue(snapshot, stop, &look, &mut |facts| {
        let Some((item, DialogueFacts { terms, domains: mut of_this, dialogue })) = facts else { return };
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
    // Both sorts are stable, so `order` matches the new order of the clusters.
    let mut order: Vec<usize> = (0..made.clusters.len()).collect();
    order.sort_by_key(|n| std::cmp::Reverse(made.clusters[*n].size));
    made.clusters.sort_by_key(|cluster| std::cmp::Reverse(cluster.size));
    for point in &mut made.map {
        point.cluster = order.iter().position(|n| *n == point.cluster).unwrap_or_default();
    }
    Ok(())
}

/// Returns at most `count` members of a cluster, sorted from the nearest to its center. If several members have the
/// same vector, returns only the first of them.
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

fn shares(domains: BTreeMap<String, u64>, size: u64) -> Vec<Share> {
    const MAX_SHARES: usize = 5;
    let share =
        |(name, dialogues): (String, u64)| Share { name, dialogues, share: dialogues as f64 / size as f64 };
    let mut shares: Vec<Share> = domains.into_iter().map(share).collect();
    // The sort is stable: domains with equal counts stay in alphabetical order.
    shares.sort_by_key(|share| std::cmp::Reverse(share.dialogues));
    shares.truncate(MAX_SHARES);
    shares
}

/// Computes the purity. `single` contains, for each domain and cluster, the number of dialogues that have only this
/// domain. Returns `None` if no dialogue has exactly one domain.
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

pub(super) fn mean<'a>(cosines: impl ExactSizeIterator<Item = &'a f32>) -> f64 {
    let count = cosines.len().max(1);
    cosines.map(|c| f64::from(*c)).sum::<f64>() / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::DialogueId;
    use turnwise_corpus::Role;

    fn terms(texts: &[&str]) -> Vec<String> {
        let mut dialogue = Dialogue::new(DialogueId::new("d").unwrap());
        for text in texts {
            dialogue.push("", Role::User, *text);
        }
        terms_of(&dialogue, &Analyzer::default())
    }

    #[test]
    fn common_terms_are_not_characteristic() {
        let mut counts = Counts::new(2);
        counts.add(0, terms(&["the card is lost", "I lost the card, the card!"]));
        counts.add(0, terms(&["the card is 5 days late", "thank you"]));
        counts.add(0, terms(&["is the new card there"]));
        counts.add(1, terms(&["the train is late", "thank you"]));
        counts.add(1, terms(&["is there the train at 5"]));
        let best = counts.best(3);
        let names = |n: usize| best[n].iter().map(|t| t.term.as_str()).collect::<Vec<_>>();
        // "lost" is in one dialogue only, "is" and "the" are in all, "5" has no letter.
        assert_eq!((names(0), names(1)), (vec!["card"], vec!["train"]));
        let card = &best[0][0];
        assert_eq!((card.here, card.everywhere), (1.0, 0.6));
        assert!((card.weight - (1.0f64 / 0.6).ln().powi(2)).abs() < 1e-9);
    }

    #[test]
    fn a_cluster_of_one_dialogue_has_terms() {
        let mut counts = Counts::new(2);
        counts.add(0, terms(&["退款"]));
        counts.add(1, terms(&["订单", "a b"]));
        counts.add(1, terms(&["订单", "b a"]));
        let best = counts.best(2);
        let names = |n: usize| best[n].iter().map(|t| t.term.as_str()).collect::<Vec<_>>();
        assert_eq!((names(0), names(1)), (vec!["退款"], vec!["a", "b"]));
        assert!(Counts::new(0).best(3).is_empty());
    }
}
