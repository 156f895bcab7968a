//! Searching: the generation in use, and the tail behind it.

use std::path::Path;

use turnwise_nearest::{Allowed, Ask, Hit, Scratch};

use super::{
    build::set_of,
    generation::{Generation, Manifest},
};
use crate::{
    encoder::vectors::cosine,
    error::Result,
    ids::{DialogueId, IdKey, TurnNo, UtteranceId},
    index::vectors::{Kind, VectorReader, dialogue_key, utterance_key},
    store::{Change, Position, Snapshot},
};

/// How is looked.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// How many are wanted.
    pub k: usize,
    /// How many candidates a walk keeps.
    pub ef: usize,
    /// Whether all vectors are looked at.
    pub exact: bool,
}

impl Default for Look {
    fn default() -> Self {
        Look { k: 10, ef: 64, exact: false }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseHit {
    /// The cosine of its vector and the query.
    pub score: f32,
    /// Its dialogue.
    pub dialogue: DialogueId,
    /// Its turn; `None` for a whole dialogue.
    pub turn: Option<TurnNo>,
}

impl DenseHit {
    /// Which utterance it is, if it is one.
    pub fn utterance(&self) -> Option<UtteranceId> {
        self.turn.map(|turn| UtteranceId { dialogue: self.dialogue.clone(), turn })
    }
}

/// The vectors of an index, ready to be searched as of one snapshot.
pub struct DenseReader {
    pub(super) vectors: VectorReader,
    pub(super) generation: Option<Generation>,
    /// For each kind, the nodes that are still there; `None` if all are.
    alive: [Option<Allowed>; 2],
    /// Of the generation's dialogues, those that are gone or have been replaced.
    dead: Vec<bool>,
    pub(super) tail: Vec<Recent>,
    without: [u64; 2],
}

/// A dialogue that came after the generation.
pub(super) struct Recent {
    pub(super) id: DialogueId,
    pub(super) whole: IdKey,
    pub(super) turns: Vec<(TurnNo, IdKey)>,
}

impl DenseReader {
    /// Opens what there is; `None` if the index has no vectors. A generation of other vectors, or of another log, is passed
    /// over.
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
            if let Some(dialogue) = live {
                let turns = dialogue.turns.iter().map(|t| (t.number, utterance_key(&t.text))).collect();
                self.tail.push(Recent { whole: dialogue_key(&dialogue), turns, id: dialogue.id });
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
                Some(Allowed::rows(&generation.graphs[kind as usize], there))
            });
        }
        Ok(())
    }

    pub(super) fn is_dead(&self, place: u32) -> bool {
        self.dead.get(place as usize).copied().unwrap_or(true)
    }

    /// What made the vectors.
    pub fn vectors(&self) -> &VectorReader {
        &self.vectors
    }

    /// The generation that is searched.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.generation.as_ref().map(|g| &g.manifest)
    }

    /// How many dialogues came since.
    pub fn tail(&self) -> usize {
        self.tail.len()
    }

    /// How many utterances or dialogues cannot be found, because they have no vector yet.
    pub fn without(&self, kind: Kind) -> u64 {
        self.manifest().map_or(0, |m| m.part(kind).without) + self.without[kind as usize]
    }

    /// The `k` nearest to a query: scores descending, then ids descending.
    pub fn search(
        &self,
        snapshot: &Snapshot,
        kind: Kind,
        query: &[f32],
        look: &Look,
    ) -> Result<Vec<DenseHit>> {
        let mut hits = self.in_generation(snapshot, kind, query, look)?;
        self.in_tail(kind, query, look.k, &mut hits)?;
        hits.sort_by(|a, b| {
            let ids = || b.dialogue.cmp(&a.dialogue).then(b.turn.cmp(&a.turn));
            b.score.total_cmp(&a.score).then_with(ids)
        });
        hits.truncate(look.k);
        Ok(hits)
    }

    fn in_generation(
        &self,
        snapshot: &Snapshot,
        kind: Kind,
        query: &[f32],
        look: &Look,
    ) -> Result<Vec<DenseHit>> {
        let Some(generation) = &self.generation else { return Ok(Vec::new()) };
        let graph = &generation.graphs[kind as usize];
        let ask = Ask {
            k: look.k,
            ef: look.ef.max(look.k),
            rerank: 32.max(look.k),
            allowed: self.alive[kind as usize].as_ref(),
            exact: look.exact,
            ..Ask::default()
        };
        let mut nodes: Vec<Hit> = Vec::new();
        graph.search(query, &ask, &mut Scratch::default(), &mut nodes)?;
        let mut hits = Vec::new();
        for node in nodes {
            let mut of_this = Vec::new();
            // Rows are in the order of falling ids: the first ones are those that would be given.
            for row in graph.rows(node.node) {
                if of_this.len() == look.k {
                    break;
                }
                of_this.extend(self.found(generation, snapshot, kind, query, *row)?);
            }
            hits.append(&mut of_this);
        }
        Ok(hits)
    }

    /// What a row of a graph is now. Scored as the tail is, so that the same vector has the same score in both.
    fn found(
        &self,
        generation: &Generation,
        snapshot: &Snapshot,
        kind: Kind,
        query: &[f32],
        row: u32,
    ) -> Result<Option<DenseHit>> {
        let Some((place, turn)) = generation.dialogue(kind, row) else { return Ok(None) };
        let Some((key, seq)) = generation.dialogues.get(place).filter(|_| !self.is_dead(place)) else {
            return Ok(None);
        };
        let Some((_, dialogue)) = snapshot.record(key)?.filter(|(now, _)| *now == seq) else {
            return Ok(None);
        };
        let key = match turn {
            None => dialogue_key(&dialogue),
            Some(turn) => match dialogue.turns.iter().find(|t| t.number == turn) {
                Some(turn) => utterance_key(&turn.text),
                None => return Ok(None),
            },
        };
        let vector = self.vectors.get(kind, &key)?;
        Ok(vector.map(|vector| DenseHit { score: cosine(query, vector), dialogue: dialogue.id, turn }))
    }

    fn in_tail(&self, kind: Kind, query: &[f32], k: usize, hits: &mut Vec<DenseHit>) -> Result<()> {
        let mut limit = (4 * k).max(4_096);
        for recent in &self.tail {
            let mut look = |key: &IdKey, turn: Option<TurnNo>| -> Result<()> {
                if let Some(vector) = self.vectors.get(kind, key)?.filter(|v| v.iter().any(|n| *n != 0.0)) {
                    let score = cosine(query, vector);
                    hits.push(DenseHit { score, dialogue: recent.id.clone(), turn });
                }
                Ok(())
            };
            match kind {
                Kind::Utterances => recent.turns.iter().try_for_each(|(turn, key)| look(key, Some(*turn)))?,
                Kind::Dialogues => look(&recent.whole, None)?,
            }
            if hits.len() > limit {
                hits.sort_by(|a, b| b.score.total_cmp(&a.score));
                // Equally near ones at the border must all stay.
                let least = hits[k.saturating_sub(1)].score;
                hits.retain(|hit| hit.score >= least);
                limit = limit.max(2 * hits.len());
            }
        }
        Ok(())
    }
}

impl Generation {
    /// The place of a row's dialogue, and its turn.
    pub(super) fn dialogue(&self, kind: Kind, row: u32) -> Option<(u32, Option<TurnNo>)> {
        match kind {
            Kind::Utterances => self.utterances.get(row).map(|(place, turn)| (place, Some(turn))),
            Kind::Dialogues => Some((row, None)),
        }
    }
}
