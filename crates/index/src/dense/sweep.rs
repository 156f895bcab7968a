//! All distinct vectors of a kind with their owners, for comparisons of all pairs.

use std::collections::HashMap;

use turnwise_nearest::{Hit, NodeSet, Scratch, SearchOptions};

use super::{generation::Generation, reader::DenseReader};
use crate::{Admitted, vectors::Kind};
use turnwise_core::{
    error::Result,
    ids::{DialogueId, Seq, TurnNo},
    vectors::normalize,
};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_store::Snapshot;

/// Number of neighbors that the first graph search requests. Each further search requests four times as many.
const FIRST_K: usize = 16;

/// The distinct vectors of a kind, numbered from 0: first the vectors in the graph, then those of dialogues that are
/// newer than the graph (the tail). A vector of the tail may also be in the graph. Zero vectors are omitted.
pub struct DistinctVectors<'a> {
    reader: &'a DenseReader,
    snapshot: &'a Snapshot,
    kind: Kind,
    admitted: Option<Admitted>,
    /// Graph node of each vector that is in the graph, indexed by the number of the vector.
    nodes: Vec<u32>,
    /// For each graph node, the number of its vector, or [`NO_POINT`] if all items of the node are deleted or filtered
    /// out.
    points: Vec<u32>,
    /// Graph nodes that a search may return; `None` if it may return all.
    allowed: Option<NodeSet>,
    recent: Vec<RecentVector>,
}

struct RecentVector {
    /// Row of the vector in the vector set.
    row: usize,
    owners: Vec<Owner>,
}

/// Owner of a vector: an utterance or a dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// An utterance or dialogue that was in the index when the graphs were built.
    Built {
        /// Index of the owner among the utterances or dialogues in the graphs, in descending order of ids.
        row: u32,
        /// Index of the owner's dialogue among the dialogues in the graphs, in descending order of ids.
        place: u32,
        /// The turn; `None` for a whole dialogue.
        turn: Option<TurnNo>,
    },
    /// An utterance or dialogue that is newer than the graphs.
    Recent {
        /// Index of the owner's dialogue among the dialogues that are newer than the graphs.
        place: u32,
        /// The turn; `None` for a whole dialogue.
        turn: Option<TurnNo>,
    },
}

impl Owner {
    /// The turn; `None` for a whole dialogue.
    pub fn turn(&self) -> Option<TurnNo> {
        match self {
            Owner::Built { turn, .. } | Owner::Recent { turn, .. } => *turn,
        }
    }
}

/// Reusable buffers for neighbor searches.
#[derive(Default)]
pub struct NeighborBuffers {
    scratch: Scratch,
    query: Vec<f32>,
    hits: Vec<Hit>,
}

/// Entry of `points` for a graph node without a vector number.
const NO_POINT: u32 = u32::MAX;

impl<'a> DistinctVectors<'a> {
    /// Collects the distinct vectors of all utterances or dialogues that the filter accepts.
    pub fn new(
        reader: &'a DenseReader,
        snapshot: &'a Snapshot,
        kind: Kind,
        filter: Option<&Filter>,
    ) -> Result<Self> {
        let admitted = filter.map(|filter| Admitted::by_records(snapshot, filter, kind)).transpose()?;
        let mut sweep = DistinctVectors {
            reader,
            snapshot,
            kind,
            admitted,
            nodes: Vec::new(),
            points: Vec::new(),
            allowed: None,
            recent: Vec::new(),
        };
        sweep.find_nodes();
        sweep.find_recent()?;
        Ok(sweep)
    }

    fn find_nodes(&mut self) {
        let Some(generation) = &self.reader.generation else { return };
        let graph = &generation.graphs[self.kind as usize];
        for node in 0..graph.nodes() as u32 {
            let there = graph.rows(node).iter().any(|row| self.owner(generation, *row).is_some());
            self.points.push(if there { self.nodes.len() as u32 } else { NO_POINT });
            if there {
                self.nodes.push(node);
            }
        }
        if self.nodes.len() < graph.nodes() {
            self.allowed = Some(NodeSet::rows(graph, |row| self.owner(generation, row).is_some()));
        }
    }

    fn find_recent(&mut self) -> Result<()> {
        let mut known: HashMap<usize, usize> = HashMap::new();
        let vectors = &self.reader.vectors;
        for (place, recent) in self.reader.tail.iter().enumerate() {
            for (turn, key) in recent.of_kind(self.kind) {
                let Some(row) = vectors.row_of(self.kind, key) else { continue };
                if !self.wants(recent.seq, turn) || vectors.row(self.kind, row)?.iter().all(|v| *v == 0.0) {
                    continue;
                }
                let point = *known.entry(row).or_insert_with(|| {
                    self.recent.push(RecentVector { row, owners: Vec::new() });
                    self.recent.len() - 1
                });
                self.recent[point].owners.push(Owner::Recent { place: place as u32, turn });
            }
        }
        Ok(())
    }

    /// Returns the owner of a graph row; `None` if the owner was deleted or replaced, or if the filter rejects it.
    fn owner(&self, generation: &Generation, row: u32) -> Option<Owner> {
        let (place, turn) = generation.dialogue(self.kind, row)?;
        let (_, seq) = generation.dialogues.get(place)?;
        let is_live = !self.reader.is_dead(place) && self.wants(seq, turn);
        is_live.then_some(Owner::Built { row, place, turn })
    }

    fn wants(&self, seq: Seq, turn: Option<TurnNo>) -> bool {
        self.admitted.as_ref().is_none_or(|admitted| admitted.holds(seq, turn))
    }

    /// Number of distinct vectors.
    pub fn len(&self) -> usize {
        self.nodes.len() + self.recent.len()
    }

    /// Returns true if there are no vectors. Zero vectors do not count.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of vectors that are in the graph. These vectors are numbered first, from 0.
    pub fn built(&self) -> usize {
        self.nodes.len()
    }

    /// Number of dimensions of a vector.
    pub fn dim(&self) -> usize {
        self.reader.vectors.dim()
    }

    /// Returns the utterances or dialogues that have vector number `point`. There is at least one. Owners of kind
    /// [`Owner::Built`] are sorted by descending id.
    pub fn owners(&self, point: usize) -> Vec<Owner> {
        match (self.nodes.get(point), &self.reader.generation) {
            (Some(node), Some(generation)) => {
                let rows = generation.graphs[self.kind as usize].rows(*node);
                rows.iter().filter_map(|row| self.owner(generation, *row)).collect()
            }
            _ => self.recent.get(point - self.nodes.len()).map_or_else(Vec::new, |f| f.owners.clone()),
        }
    }

    /// Appends vector number `point` to `out`, L2-normalized.
    pub fn vector(&self, point: usize, out: &mut Vec<f32>) -> Result<()> {
        let start = out.len();
        match (self.nodes.get(point), &self.reader.generation) {
            (Some(node), Some(generation)) => {
                out.extend(generation.graphs[self.kind as usize].vector(*node));
            }
            _ => {
                let recent = self.recent.get(point - self.nodes.len());
                let row = recent.map(|f| self.reader.vectors.row(self.kind, f.row)).transpose()?;
                out.extend_from_slice(row.unwrap_or(&[]));
            }
        }
        normalize(&mut out[start..]);
        Ok(())
    }

    /// Searches the graph for neighbors of vector number `point`. Returns the numbers of at most `most` vectors with a
    /// cosine of at least `at_least`. The result may include `point`. If the index has no graph, the result is empty.
    pub fn near(
        &self,
        point: usize,
        at_least: f32,
        most: usize,
        near: &mut NeighborBuffers,
    ) -> Result<Vec<usize>> {
        let Some(generation) = &self.reader.generation else { return Ok(Vec::new()) };
        let graph = &generation.graphs[self.kind as usize];
        let NeighborBuffers { scratch, query, hits } = near;
        query.clear();
        self.vector(point, query)?;
        let mut k = FIRST_K.min(most);
        loop {
            let search = SearchOptions {
                k,
                ef: (2 * k).max(64),
                rerank: k.max(32),
                filter: self.allowed.as_ref(),
                ..SearchOptions::default()
            };
            graph.search(query, &search, scratch, hits)?;
            hits.retain(|hit| hit.score >= at_least);
            // If the last hit is still similar enough, there may be more: search again with a larger k.
            if hits.len() < k || k >= most {
                let point = |hit: &Hit| self.points.get(hit.node as usize).filter(|p| **p != NO_POINT);
                return Ok(hits.iter().filter_map(point).map(|p| *p as usize).collect());
            }
            k = (4 * k).min(most);
        }
    }

    /// Returns the id of an owner's dialogue; `None` for [`Owner::Built`], because the graph files have no ids.
    pub fn id(&self, owner: &Owner) -> Option<&DialogueId> {
        match owner {
            Owner::Built { .. } => None,
            Owner::Recent { place, .. } => self.reader.tail.get(*place as usize).map(|recent| &recent.id),
        }
    }

    /// Reads the dialogue of an owner; `None` if the snapshot does not contain it.
    pub fn dialogue(&self, owner: &Owner) -> Result<Option<Dialogue>> {
        match owner {
            Owner::Recent { .. } => self.id(owner).map_or(Ok(None), |id| self.snapshot.get(id)),
            Owner::Built { place, .. } => {
                let key = self.reader.generation.as_ref().and_then(|g| g.dialogues.get(*place));
                let Some((key, seq)) = key else { return Ok(None) };
                let found = self.snapshot.record(key)?;
                Ok(found.filter(|(now, _)| *now == seq).map(|(_, dialogue)| dialogue))
            }
        }
    }
}
