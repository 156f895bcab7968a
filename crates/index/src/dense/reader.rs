//! Vector search in the graphs in use, and in the dialogues that are newer than the graphs.

use std::{
    borrow::Cow,
    path::Path,
    sync::{Arc, OnceLock},
};

use turnwise_nearest::{Hit, Metric, NodeSet, Scorer, Scratch, SearchOptions};

use super::{
    SimilarityDistribution, VectorKeys,
    build::set_of,
    generation::{Generation, Manifest},
    places::Places,
};
use crate::{
    Admitted,
    engine::Candidate,
    vectors::{Kind, VectorReader},
};
use turnwise_core::{
    error::Result,
    ids::{DialogueId, IdKey, Seq, TurnNo},
};
use turnwise_store::{Change, Position, Snapshot};

/// Options of a vector search.
#[derive(Clone, Copy)]
pub struct SearchSettings<'a> {
    /// Maximum number of results.
    pub k: usize,
    /// Size of the candidate list of the graph search (`ef`).
    pub ef: usize,
    /// True to compare the query with all vectors instead of searching the graph.
    pub exact: bool,
    /// Filter of the results; `None` to search all items.
    pub among: Option<&'a NodeFilter>,
}

impl Default for SearchSettings<'_> {
    fn default() -> Self {
        let SearchOptions { k, ef, .. } = SearchOptions::default();
        SearchSettings { k, ef, exact: false, among: None }
    }
}

/// Result of a filter in the form that the vector search needs. Can be reused for several searches.
pub struct NodeFilter {
    admitted: Arc<Admitted>,
    /// Graph nodes with at least one accepted item; `None` if there are no graphs.
    nodes: Option<NodeSet>,
}

struct Ranked<'a> {
    hit: Candidate,
    /// Row in the graph; `None` for a hit in a dialogue that is newer than the graph. The rows of the graph are
    /// sorted by descending dialogue id.
    row: Option<u32>,
    /// Dialogue id. For a hit in the graph, it is `None` until it is needed to break a tie.
    id: Option<Cow<'a, DialogueId>>,
}

/// The vectors and graphs of an index, opened for searching the state of one snapshot.
pub struct DenseReader {
    pub(super) vectors: VectorReader,
    pub(super) generation: Option<Generation>,
    /// For each kind, the graph nodes with an item that still exists; `None` if all items still exist.
    alive: [Option<NodeSet>; 2],
    /// For each dialogue in the graphs, true if it was deleted or replaced.
    dead: Vec<bool>,
    places: Places,
    /// Dialogues that are newer than the graphs.
    pub(super) tail: Vec<VectorKeys>,
    /// For each kind, the number of items in the dialogues of `tail` that have no vector.
    without: [u64; 2],
    /// Similarity distributions: between utterances, between dialogues, and between utterances and dialogues.
    backgrounds: [OnceLock<SimilarityDistribution>; 3],
}

impl DenseReader {
    /// Opens vectors and graphs; `None` if the index has no vectors. Returns an error if a file is damaged. Ignores
    /// graphs that were built from a different vector set or log, or that are newer than the snapshot.
    pub fn open(root: &Path, snapshot: &Snapshot) -> Result<Option<Self>> {
        let Some(vectors) = VectorReader::open(root)? else { return Ok(None) };
        let set = set_of(&vectors);
        let fits = |g: &Generation| {
            let m = &g.manifest;
            m.vectors == set && m.log == snapshot.log_id() && m.at <= snapshot.end()
        };
        let generation = Generation::open(root)?.filter(fits);
        let from = generation.as_ref().map_or(Position::START, |g| g.manifest.at);
        let mut reader = DenseReader {
            dead: vec![false; generation.as_ref().map_or(0, |g| g.dialogues.len())],
            vectors,
            generation,
            alive: [None, None],
            places: Places::default(),
            tail: Vec::new(),
            without: [0; 2],
            backgrounds: Default::default(),
        };
        reader.read_tail(snapshot, from)?;
        Ok(Some(reader))
    }

    /// Reads the dialogues that are newer than the graphs. Marks deleted and replaced dialogues as dead.
    fn read_tail(&mut self, snapshot: &Snapshot, from: Position) -> Result<()> {
        let mut changes = snapshot.changes(from);
        let mut any_dead = false;
        while let Some(change) = changes.next_change() {
            let (key, live) = match change? {
                Change::Deleted(id) => (IdKey::of(id), None),
                Change::Put { dialogue, live } => (dialogue.id.key(), live.then_some(dialogue)),
            };
            let index = self.generation.as_ref().and_then(|g| g.dialogues.find(&key));
            if let Some(dead) = index.and_then(|index| self.dead.get_mut(index as usize)) {
                *dead = true;
                any_dead = true;
            }
            if let Some(dialogue) = live
                && let Some(seq) = snapshot.seq_of(key)
            {
                self.tail.push(VectorKeys::of(*dialogue, seq));
            }
        }
        self.without = Kind::ALL.map(|kind| {
            let keys = self.tail.iter().flat_map(|recent| recent.of_kind(kind));
            keys.filter(|(_, key)| self.vectors.row_of(kind, key).is_none()).count() as u64
        });
        if let Some(generation) = self.generation.as_ref().filter(|_| any_dead) {
            self.alive = Kind::ALL.map(|kind| {
                let is_live =
                    |row: u32| generation.dialogue(kind, row).is_some_and(|(index, _)| !self.is_dead(index));
                Some(NodeSet::rows(&generation.graphs[kind as usize], is_live))
            });
        }
        Ok(())
    }

    /// Returns true if the dialogue with this index in the graph files was deleted or replaced after the build.
    pub(super) fn is_dead(&self, index: u32) -> bool {
        self.dead.get(index as usize).copied().unwrap_or(true)
    }

    /// Returns the reader of the stored vectors.
    pub fn vectors(&self) -> &VectorReader {
        &self.vectors
    }

    /// Returns the manifest of the graphs that are searched; `None` if there are no usable graphs.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.generation.as_ref().map(|g| &g.manifest)
    }

    /// Number of dialogues that are newer than the graphs. A search compares the query with each of them.
    pub fn tail(&self) -> usize {
        self.tail.len()
    }

    /// Number of items without a vector. A search cannot find them. The number may include items that were deleted
    /// after the graphs were built.
    pub fn without(&self, kind: Kind) -> u64 {
        self.manifest().map_or(0, |m| m.part(kind).without) + self.without[kind as usize]
    }

    /// Returns the distribution of the cosines of random pairs. Each pair has a query of kind `from` and a hit of kind
    /// `to`. If the manifest of the graphs does not contain this distribution, samples random pairs.
    pub fn background(&self, from: Kind, to: Kind) -> Result<&SimilarityDistribution> {
        let cached = &self.backgrounds[if from == to { to as usize } else { 2 }];
        if let Some(cached) = cached.get() {
            return Ok(cached);
        }
        let stored = |manifest: &Manifest| {
            let part = manifest.part(to);
            if from == to { part.background.clone() } else { part.of_utterances.clone() }
        };
        let background = match self.manifest().map(stored).filter(|stored| !stored.is_empty()) {
            Some(stored) => stored,
            None => SimilarityDistribution::sample(&self.vectors, from, to)?,
        };
        Ok(cached.get_or_init(|| background))
    }

    /// Converts the result of a filter to the graph nodes that a search may return, without deleted and replaced items.
    pub fn among(&self, kind: Kind, admitted: Arc<Admitted>) -> NodeFilter {
        let nodes = self.generation.as_ref().map(|generation| {
            let graph = &generation.graphs[kind as usize];
            let Some(few) = admitted.few() else {
                let wanted = |row| self.wanted(generation, kind, row, Some(&admitted)).is_some();
                return NodeSet::rows(graph, wanted);
            };
            let places = |(seq, turn): &(Seq, Option<TurnNo>)| {
                let index = self.places.dialogue(generation, *seq)?;
                let row = generation.row(kind, index, *turn).filter(|_| !self.is_dead(index))?;
                self.places.node(generation, kind, row)
            };
            NodeSet::new(graph, few.iter().filter_map(places))
        });
        NodeFilter { nodes, admitted }
    }

    /// Returns at most `settings.k` nearest neighbors of a query vector, sorted by descending cosine. Equal cosines are
    /// sorted by descending id. A zero vector has no neighbors.
    pub fn search(
        &self,
        snapshot: &Snapshot,
        kind: Kind,
        query: &[f32],
        settings: &SearchSettings<'_>,
    ) -> Result<Vec<Candidate>> {
        let mut found = self.in_generation(snapshot, kind, query, settings)?;
        self.in_tail(kind, query, settings, &mut found)?;
        found.sort_by(|a, b| b.hit.score.total_cmp(&a.hit.score).then(a.row.cmp(&b.row)));
        sort_ties(snapshot, settings.k, &mut found)?;
        found.truncate(settings.k);
        Ok(found.into_iter().map(|ranked| ranked.hit).collect())
    }

    fn in_generation(
        &self,
        snapshot: &Snapshot,
        kind: Kind,
        query: &[f32],
        settings: &SearchSettings<'_>,
    ) -> Result<Vec<Ranked<'_>>> {
        let Some(generation) = &self.generation else { return Ok(Vec::new()) };
        let graph = &generation.graphs[kind as usize];
        let admitted = settings.among.map(|among| among.admitted.as_ref());
        let wanted = |row: u32| self.wanted(generation, kind, row, admitted);
        let nodes = settings.among.and_then(|among| among.nodes.as_ref());
        let search = SearchOptions {
            k: settings.k,
            ef: settings.ef.max(settings.k),
            rerank: 32.max(settings.k),
            filter: nodes.or(self.alive[kind as usize].as_ref()),
            exact: settings.exact,
            ..SearchOptions::default()
        };
        let mut nodes: Vec<Hit> = Vec::new();
        graph.search(query, &search, &mut Scratch::default(), &mut nodes)?;
        let mut found = Vec::new();
        for node in nodes {
            // Rows are sorted by descending id, so the first rows are the ones to return.
            let rows = graph.rows(node.node).iter().filter_map(|row| Some((*row, wanted(*row)?)));
            let live = rows.filter(|(_, (key, seq, _))| snapshot.seq_of(*key) == Some(*seq)).take(settings.k);
            found.extend(live.map(|(row, (dialogue, seq, turn))| Ranked {
                hit: Candidate { dialogue, version: seq.into(), turn, score: node.score, terms: None },
                row: Some(row),
                id: None,
            }));
        }
        Ok(found)
    }

    /// Returns the utterance or dialogue of a graph row; `None` if it was deleted or replaced, or if the filter rejects
    /// it.
    fn wanted(
        &self,
        generation: &Generation,
        kind: Kind,
        row: u32,
        admitted: Option<&Admitted>,
    ) -> Option<(IdKey, Seq, Option<TurnNo>)> {
        let (index, turn) = generation.dialogue(kind, row)?;
        let (key, seq) = generation.dialogues.get(index).filter(|_| !self.is_dead(index))?;
        admitted.is_none_or(|admitted| admitted.holds(seq, turn)).then_some((key, seq, turn))
    }

    /// Adds to `found` the hits in dialogues that are newer than the graphs. May remove hits from `found` that cannot
    /// be among the best `k`.
    fn in_tail<'a>(
        &'a self,
        kind: Kind,
        query: &[f32],
        settings: &SearchSettings<'_>,
        found: &mut Vec<Ranked<'a>>,
    ) -> Result<()> {
        let Some(mut scorer) = Scorer::new(Metric::Cosine, query)? else { return Ok(()) };
        let mut limit = (4 * settings.k).max(4_096);
        for recent in &self.tail {
            for (turn, key) in recent.of_kind(kind) {
                if settings.among.is_some_and(|among| !among.admitted.holds(recent.seq, turn)) {
                    continue;
                }
                let Some(vector) = self.vectors.get(kind, key)? else { continue };
                found.extend(scorer.score(vector)?.map(|score| Ranked {
                    hit: Candidate {
                        dialogue: recent.id.key(),
                        version: recent.seq.into(),
                        turn,
                        score,
                        terms: None,
                    },
                    row: None,
                    id: Some(Cow::Borrowed(&recent.id)),
                }));
            }
            if found.len() > limit {
                found.sort_by(|a, b| b.hit.score.total_cmp(&a.hit.score));
                // Keep hits that tie with the `k`th hit.
                let least = found[settings.k.saturating_sub(1)].hit.score;
                found.retain(|ranked| ranked.hit.score >= least);
                limit = limit.max(2 * found.len());
            }
        }
        Ok(())
    }
}

/// Sorts hits with equal scores by descending id. Skips hits that cannot be among the first `k`. `found` must already
/// be sorted by score, then by row.
fn sort_ties(snapshot: &Snapshot, k: usize, found: &mut [Ranked<'_>]) -> Result<()> {
    let mut from = 0;
    while from < k.min(found.len()) {
        let score = found[from].hit.score;
        let length = found[from..].iter().take_while(|ranked| ranked.hit.score == score).count();
        let ties = &mut found[from..from + length];
        // Ties between graph rows only are already in order.
        if length > 1 && ties.iter().any(|ranked| ranked.row.is_none()) {
            for ranked in ties.iter_mut().filter(|ranked| ranked.id.is_none()) {
                ranked.id =
                    snapshot.record(ranked.hit.dialogue)?.map(|(_, dialogue)| Cow::Owned(dialogue.id));
            }
            ties.sort_by(|a, b| b.id.cmp(&a.id).then(b.hit.turn.cmp(&a.hit.turn)));
        }
        from += length;
    }
    Ok(())
}

impl Generation {
    /// Returns the dialogue of a graph row, as an index into the dialogue table, and the turn of the row. Returns
    /// `None` if the utterance table has no such row.
    pub(super) fn dialogue(&self, kind: Kind, row: u32) -> Option<(u32, Option<TurnNo>)> {
        match kind {
            Kind::Utterances => self.utterances.get(row).map(|(index, turn)| (index, Some(turn))),
            Kind::Dialogues => Some((row, None)),
        }
    }

    /// Returns the row of a dialogue, or of one of its turns. `index` is its index in the dialogue table.
    fn row(&self, kind: Kind, index: u32, turn: Option<TurnNo>) -> Option<u32> {
        let Some(turn) = turn.filter(|_| kind == Kind::Utterances) else { return Some(index) };
        self.utterances.row(index, turn)
    }
}
