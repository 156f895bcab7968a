//! Every different vector of a kind once, with those who have it: for whoever compares all with all.

use std::collections::HashMap;

use turnwise_nearest::{Allowed, Ask, Hit, Scratch};

use super::{generation::Generation, reader::DenseReader};
use crate::{Admitted, vectors::Kind};
use turnwise_core::{
    error::Result,
    ids::{DialogueId, Seq, TurnNo},
    vectors::normalize,
};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_store::Snapshot;

/// So many neighbours are asked for at first.
const FIRST_LOOK: usize = 16;

/// The different vectors of what a snapshot holds, numbered: first those of the generation, then those of the tail that came
/// since. A vector of zeros is like nothing and is none of them. A vector of the tail may be one of the generation's once
/// more.
pub struct Sweep<'a> {
    reader: &'a DenseReader,
    snapshot: &'a Snapshot,
    kind: Kind,
    /// What is wanted; `None` if it is all.
    admitted: Option<Admitted>,
    /// The nodes that are points, and of each node which point it is.
    nodes: Vec<u32>,
    points: Vec<u32>,
    /// What a search may find; `None` if it is all.
    allowed: Option<Allowed>,
    recent: Vec<Fresh>,
}

/// A vector of the tail.
struct Fresh {
    row: usize,
    owners: Vec<Owner>,
}

/// Someone who has a vector: an utterance or a dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// In the generation. The lesser comes first by id, descending.
    Built {
        /// Its place among all of the kind.
        row: u32,
        /// Its dialogue's place.
        place: u32,
        /// Which turn it is, if it is one.
        turn: Option<TurnNo>,
    },
    /// In the tail.
    Recent {
        /// Its dialogue's place.
        place: u32,
        /// Which turn it is, if it is one.
        turn: Option<TurnNo>,
    },
}

impl Owner {
    /// Which turn it is; `None` for a whole dialogue.
    pub fn turn(&self) -> Option<TurnNo> {
        match self {
            Owner::Built { turn, .. } | Owner::Recent { turn, .. } => *turn,
        }
    }
}

/// What a search for neighbours needs; kept, it need not be made again.
#[derive(Default)]
pub struct Near {
    scratch: Scratch,
    query: Vec<f32>,
    hits: Vec<Hit>,
}

const NO_POINT: u32 = u32::MAX;

impl<'a> Sweep<'a> {
    /// Looks who is there, of those that a filter lets through.
    pub fn new(
        reader: &'a DenseReader,
        snapshot: &'a Snapshot,
        kind: Kind,
        filter: Option<&Filter>,
    ) -> Result<Self> {
        let admitted = filter.map(|filter| Admitted::by_records(snapshot, filter, kind)).transpose()?;
        let mut sweep = Sweep {
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
            self.allowed = Some(Allowed::rows(graph, |row| self.owner(generation, row).is_some()));
        }
    }

    fn find_recent(&mut self) -> Result<()> {
        let mut known: HashMap<usize, usize> = HashMap::new();
        let vectors = &self.reader.vectors;
        for (place, recent) in self.reader.tail.iter().enumerate() {
            let keys: Vec<_> = match self.kind {
                Kind::Utterances => recent.turns.iter().map(|(turn, key)| (Some(*turn), key)).collect(),
                Kind::Dialogues => vec![(None, &recent.whole)],
            };
            for (turn, key) in keys {
                let Some(row) = vectors.row_of(self.kind, key) else { continue };
                if !self.wants(recent.seq, turn) {
                    continue;
                }
                if vectors.row(self.kind, row)?.iter().all(|v| *v == 0.0) {
                    continue;
                }
                let point = *known.entry(row).or_insert_with(|| {
                    self.recent.push(Fresh { row, owners: Vec::new() });
                    self.recent.len() - 1
                });
                self.recent[point].owners.push(Owner::Recent { place: place as u32, turn });
            }
        }
        Ok(())
    }

    /// Who has a row of the graph, if he is there and wanted.
    fn owner(&self, generation: &Generation, row: u32) -> Option<Owner> {
        let (place, turn) = generation.dialogue(self.kind, row)?;
        let (_, seq) = generation.dialogues.get(place)?;
        let there = !self.reader.is_dead(place) && self.wants(seq, turn);
        there.then_some(Owner::Built { row, place, turn })
    }

    fn wants(&self, seq: Seq, turn: Option<TurnNo>) -> bool {
        self.admitted.as_ref().is_none_or(|admitted| admitted.holds(seq, turn))
    }

    /// How many different vectors there are.
    pub fn len(&self) -> usize {
        self.nodes.len() + self.recent.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of them are in the graph: the first ones.
    pub fn built(&self) -> usize {
        self.nodes.len()
    }

    /// The width of a vector.
    pub fn dim(&self) -> usize {
        self.reader.vectors.dim()
    }

    /// Who has a vector: at least one. Those in the generation by id, descending.
    pub fn owners(&self, point: usize) -> Vec<Owner> {
        match (self.nodes.get(point), &self.reader.generation) {
            (Some(node), Some(generation)) => {
                let rows = generation.graphs[self.kind as usize].rows(*node);
                rows.iter().filter_map(|row| self.owner(generation, *row)).collect()
            }
            _ => self.recent.get(point - self.nodes.len()).map_or_else(Vec::new, |f| f.owners.clone()),
        }
    }

    /// Adds a vector, brought to length 1, to the end of `out`.
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

    /// The vectors of the generation that the graph finds near a vector, with a cosine of at least so much: `most` of them at
    /// most. It may find itself.
    pub fn near(&self, point: usize, at_least: f32, most: usize, near: &mut Near) -> Result<Vec<usize>> {
        let Some(generation) = &self.reader.generation else { return Ok(Vec::new()) };
        let graph = &generation.graphs[self.kind as usize];
        let Near { scratch, query, hits } = near;
        query.clear();
        self.vector(point, query)?;
        let mut k = FIRST_LOOK.min(most);
        loop {
            let ask = Ask {
                k,
                ef: (2 * k).max(64),
                rerank: k.max(32),
                allowed: self.allowed.as_ref(),
                ..Ask::default()
            };
            graph.search(query, &ask, scratch, hits)?;
            hits.retain(|hit| hit.score >= at_least);
            // As long as the last of them is near enough, there may be more behind it.
            if hits.len() < k || k >= most {
                let point = |hit: &Hit| self.points.get(hit.node as usize).filter(|p| **p != NO_POINT);
                return Ok(hits.iter().filter_map(point).map(|p| *p as usize).collect());
            }
            k = (4 * k).min(most);
        }
    }

    /// The id of an owner's dialogue, if it can be told without reading the dialogue.
    pub fn id(&self, owner: &Owner) -> Option<&DialogueId> {
        match owner {
            Owner::Built { .. } => None,
            Owner::Recent { place, .. } => self.reader.tail.get(*place as usize).map(|recent| &recent.id),
        }
    }

    /// The dialogue of an owner.
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
