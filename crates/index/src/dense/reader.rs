//! Searches the generation in use and the tail after it.

use std::{
    borrow::Cow,
    path::Path,
    sync::{Arc, OnceLock},
};

use turnwise_nearest::{Hit, Metric, NodeSet, Scorer, Scratch, SearchOptions};

use super::{
    SimilarityDistribution,
    build::set_of,
    generation::{Generation, Manifest},
};
use crate::{
    Admitted,
    vectors::{Kind, VectorReader, dialogue_key, utterance_key},
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
    /// Compare the query with all vectors instead of searching the graph.
    pub exact: bool,
    /// Restricts the results to the items that a filter accepts.
    pub among: Option<&'a NodeFilter>,
}

impl Default for SearchSettings<'_> {
    fn default() -> Self {
        let SearchOptions { k, ef, .. } = SearchOptions::default();
        SearchSettings { k, ef, exact: false, among: None }
    }
}

/// Result of a filter in the form that the graph search needs. Can be reused for several searches.
pub struct NodeFilter {
    admitted: Arc<Admitted>,
    nodes: Option<NodeSet>,
}

/// Utterance or dialogue found by a vector search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DenseHit {
    /// Cosine of the hit's vector and the query.
    pub score: f32,
    /// Key of the dialogue id.
    pub dialogue: IdKey,
    /// Sequence number of the dialogue.
    pub seq: Seq,
    /// The turn; `None` for a whole dialogue.
    pub turn: Option<TurnNo>,
}

/// A hit with the data that is needed to sort ties.
struct Ranked<'a> {
    hit: DenseHit,
    /// Row in the generation, if the hit is in the generation. A greater row has a smaller id.
    row: Option<u32>,
    /// Dialogue id. For hits in the generation, it is read only to sort ties.
    id: Option<Cow<'a, DialogueId>>,
}

/// The vectors of an index, opened for searching as of one snapshot.
pub struct DenseReader {
    pub(super) vectors: VectorReader,
    pub(super) generation: Option<Generation>,
    /// For each kind, the graph nodes with at least one live row; `None` if all rows are live.
    alive: [Option<NodeSet>; 2],
    /// For each dialogue of the generation, true if it was deleted or replaced.
    dead: Vec<bool>,
    pub(super) tail: Vec<Recent>,
    without: [u64; 2],
    /// Similarity distributions: of utterances, of dialogues, and of utterances with dialogues.
    backgrounds: [OnceLock<SimilarityDistribution>; 3],
}

/// A dialogue of the tail: it is newer than the generation, so it is not in the graphs.
pub(super) struct Recent {
    pub(super) id: DialogueId,
    pub(super) seq: Seq,
    pub(super) whole: IdKey,
    pub(super) turns: Vec<(TurnNo, IdKey)>,
}

impl DenseReader {
    /// Opens vectors and graphs; `None` if the index has no vectors. A generation built from other vectors or
    /// another log is ignored. Damaged files are an error.
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
            tail: Vec::new(),
            without: [0; 2],
            backgrounds: Default::default(),
        };
        reader.read_tail(snapshot, from)?;
        Ok(Some(reader))
    }

    fn read_tail(&mut self, snapshot: &Snapshot, from: Position) -> Result<()> {
        let mut changes = snapshot.changes(from);
        let mut any = false;
        while let Some(change) = changes.next_change() {
            let (key, live) = match change? {
                Change::Deleted(id) => (IdKey::of(id), None),
                Change::Put { dialogue, live } => (dialogue.id.key(), live.then_some(dialogue)),
            };
            let place = self.generation.as_ref().and_then(|g| g.dialogues.find(&key));
            if let Some(dead) = place.and_then(|place| self.dead.get_mut(place as usize)) {
                *dead = true;
                any = true;
            }
            if let Some(dialogue) = live
                && let Some(seq) = snapshot.seq_of(key)
            {
                let turns = dialogue.turns.iter().map(|t| (t.number, utterance_key(&t.text))).collect();
                self.tail.push(Recent { whole: dialogue_key(&dialogue), turns, id: dialogue.id, seq });
            }
        }
        for recent in &self.tail {
            let missing = |kind, key| u64::from(self.vectors.row_of(kind, key).is_none());
            self.without[0] +=
                recent.turns.iter().map(|(_, key)| missing(Kind::Utterances, key)).sum::<u64>();
            self.without[1] += missing(Kind::Dialogues, &recent.whole);
        }
        if let Some(generation) = self.generation.as_ref().filter(|_| any) {
            self.alive = Kind::ALL.map(|kind| {
                let there =
                    |row: u32| generation.dialogue(kind, row).is_some_and(|(place, _)| !self.is_dead(place));
                Some(NodeSet::rows(&generation.graphs[kind as usize], there))
            });
        }
        Ok(())
    }

    pub(super) fn is_dead(&self, place: u32) -> bool {
        self.dead.get(place as usize).copied().unwrap_or(true)
    }

    /// Returns the vectors.
    pub fn vectors(&self) -> &VectorReader {
        &self.vectors
    }

    /// Returns the manifest of the generation that is searched.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.generation.as_ref().map(|g| &g.manifest)
    }

    /// Number of dialogues that are newer than the generation.
    pub fn tail(&self) -> usize {
        self.tail.len()
    }

    /// Number of utterances or dialogues that cannot be found because they have no vector.
    pub fn without(&self, kind: Kind) -> u64 {
        self.manifest().map_or(0, |m| m.part(kind).without) + self.without[kind as usize]
    }

    /// Returns the distribution of cosines between random items. `from` is the kind of the query, and `to` is the
    /// kind of the hits. The distribution is read from the generation, or computed now if it is not stored there.
    /// Dialogues are never used as queries for utterances.
    pub fn background(&self, from: Kind, to: Kind) -> Result<&SimilarityDistribution> {
        let known = &self.backgrounds[if from == to { to as usize } else { 2 }];
        if let Some(known) = known.get() {
            return Ok(known);
        }
        let of = |manifest: &Manifest| {
            let part = manifest.part(to);
            if from == to { part.background.clone() } else { part.of_utterances.clone() }
        };
        let built = self.manifest().map(of).filter(|b| !b.is_empty());
        let background = match built {
            Some(built) => built,
            None => SimilarityDistribution::sample(&self.vectors, from, to)?,
        };
        Ok(known.get_or_init(|| background))
    }

    /// Converts the result of a filter to the graph nodes that a search may return. Leaves out deleted and replaced
    /// items.
    pub fn among(&self, kind: Kind, admitted: Arc<Admitted>) -> NodeFilter {
        let nodes = self.generation.as_ref().map(|generation| {
            let wanted = |row| self.wanted(generation, kind, row, Some(&admitted)).is_some();
            NodeSet::rows(&generation.graphs[kind as usize], wanted)
        });
        NodeFilter { nodes, admitted }
    }

    /// Returns the `k` nearest neighbors of a query: scores descending, then ids descending. A zero query finds
    /// nothing.
    pub fn search(
        &self,
        snapshot: &Snapshot,
        kind: Kind,
        query: &[f32],
        look: &SearchSettings<'_>,
    ) -> Result<Vec<DenseHit>> {
        let mut found = self.in_generation(snapshot, kind, query, look)?;
        self.in_tail(kind, query, look, &mut found)?;
        found.sort_by(|a, b| b.hit.score.total_cmp(&a.hit.score).then(a.row.cmp(&b.row)));
        sort_ties(snapshot, look.k, &mut found)?;
        found.truncate(look.k);
        Ok(found.into_iter().map(|ranked| ranked.hit).collect())
    }

    fn in_generation(
        &self,
        snapshot: &Snapshot,
        kind: Kind,
        query: &[f32],
        look: &SearchSettings<'_>,
    ) -> Result<Vec<Ranked<'_>>> {
        let Some(generation) = &self.generation else { return Ok(Vec::new()) };
        let graph = &generation.graphs[kind as usize];
        let admitted = look.among.map(|among| among.admitted.as_ref());
        let wanted = |row: u32| self.wanted(generation, kind, row, admitted);
        let nodes = look.among.and_then(|among| among.nodes.as_ref());
        let search = SearchOptions {
            k: look.k,
            ef: look.ef.max(look.k),
            rerank: 32.max(look.k),
            filter: nodes.or(self.alive[kind as usize].as_ref()),
            exact: look.exact,
            ..SearchOptions::default()
        };
        let mut nodes: Vec<Hit> = Vec::new();
        graph.search(query, &search, &mut Scratch::default(), &mut nodes)?;
        let mut found = Vec::new();
        for node in nodes {
            // Rows are sorted by descending id, so the first rows are the ones to return.
            let rows = graph.rows(node.node).iter().filter_map(|row| Some((*row, wanted(*row)?)));
            let live = rows.filter(|(_, (key, seq, _))| snapshot.seq_of(*key) == Some(*seq)).take(look.k);
            found.extend(live.map(|(row, (dialogue, seq, turn))| Ranked {
                hit: DenseHit { score: node.score, dialogue, seq, turn },
                row: Some(row),
                id: None,
            }));
        }
        Ok(found)
    }

    /// Returns the utterance or dialogue of a graph row, if it still exists and the filter accepts it.
    fn wanted(
        &self,
        generation: &Generation,
        kind: Kind,
        row: u32,
        admitted: Option<&Admitted>,
    ) -> Option<(IdKey, Seq, Option<TurnNo>)> {
        let (place, turn) = generation.dialogue(kind, row)?;
        let (key, seq) = generation.dialogues.get(place).filter(|_| !self.is_dead(place))?;
        admitted.is_none_or(|admitted| admitted.holds(seq, turn)).then_some((key, seq, turn))
    }

    fn in_tail<'a>(
        &'a self,
        kind: Kind,
        query: &[f32],
        look: &SearchSettings<'_>,
        found: &mut Vec<Ranked<'a>>,
    ) -> Result<()> {
        let Some(mut scorer) = Scorer::new(Metric::Cosine, query)? else { return Ok(()) };
        let mut limit = (4 * look.k).max(4_096);
        for recent in &self.tail {
            let mut visit = |key: &IdKey, turn: Option<TurnNo>| -> Result<()> {
                if look.among.is_some_and(|among| !among.admitted.holds(recent.seq, turn)) {
                    return Ok(());
                }
                let Some(vector) = self.vectors.get(kind, key)? else { return Ok(()) };
                found.extend(scorer.score(vector)?.map(|score| Ranked {
                    hit: DenseHit { score, dialogue: recent.id.key(), seq: recent.seq, turn },
                    row: None,
                    id: Some(Cow::Borrowed(&recent.id)),
                }));
                Ok(())
            };
            match kind {
                Kind::Utterances => {
                    recent.turns.iter().try_for_each(|(turn, key)| visit(key, Some(*turn)))?
                }
                Kind::Dialogues => visit(&recent.whole, None)?,
            }
            if found.len() > limit {
                found.sort_by(|a, b| b.hit.score.total_cmp(&a.hit.score));
                // Hits that tie with the last one must stay.
                let least = found[look.k.saturating_sub(1)].hit.score;
                found.retain(|ranked| ranked.hit.score >= least);
                limit = limit.max(2 * found.len());
            }
        }
        Ok(())
    }
}

/// Sorts ties among the first `k` by descending id, whether they come from the graph or from the tail.
fn sort_ties(snapshot: &Snapshot, k: usize, found: &mut [Ranked<'_>]) -> Result<()> {
    let mut from = 0;
    while from < k.min(found.len()) {
        let score = found[from].hit.score;
        let length = found[from..].iter().take_while(|ranked| ranked.hit.score == score).count();
        let ties = &mut found[from..from + length];
        // Rows of the graph alone are already in order.
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
    /// Returns the index of a row's dialogue, and its turn.
    pub(super) fn dialogue(&self, kind: Kind, row: u32) -> Option<(u32, Option<TurnNo>)> {
        match kind {
            Kind::Utterances => self.utterances.get(row).map(|(place, turn)| (place, Some(turn))),
            Kind::Dialogues => Some((row, None)),
        }
    }
}
