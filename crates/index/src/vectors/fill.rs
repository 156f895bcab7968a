//! Encodes the records of an index: one thread reads the log, one encodes, and the caller's thread stores
//! vectors.

use std::{
    collections::HashSet,
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::vectors::{Kind, VectorWriter, dialogue_key, sets::Reached, utterance_key};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{
    EncodeStats, Encoded, Encoder,
    ahead::{self, Chunk, Inputs, Options, Stream},
};
use turnwise_store::{Change, Position, Snapshot};

/// Minimum time between two commits. A fast encoder then does not wait for the disk.
const COMMIT_EVERY: Duration = Duration::from_millis(250);
/// Number of dialogues that the reading thread sends at a time.
const READ_GROUP: usize = 128;
/// Maximum number of groups of dialogues in the queue.
const READ_AHEAD: usize = 8;

/// Selection of the inputs to encode, and the chunk size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeTargets {
    /// Encode every utterance.
    pub utterances: bool,
    /// Encode every dialogue as a whole.
    pub dialogues: bool,
    /// Maximum number of inputs per chunk for the encoder.
    pub chunk: usize,
}

impl EncodeTargets {
    fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::Utterances => self.utterances,
            Kind::Dialogues => self.dialogues,
        }
    }
}

/// Progress and result of an encoding pass.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct EncodeProgress {
    /// Number of dialogues read from the log.
    pub seen: u64,
    /// Number of utterances encoded.
    pub utterances: u64,
    /// Number of dialogues encoded.
    pub dialogues: u64,
    /// Number of inputs skipped because they already have a vector.
    pub known: u64,
    /// Token counts and counts of truncated inputs.
    pub spent: EncodeStats,
    /// True if the pass reached the end of the log.
    pub complete: bool,
}

/// Number of dialogues that the next pass will read.
pub fn pending_dialogues(snapshot: &Snapshot, writer: &VectorWriter, wanted: &EncodeTargets) -> Result<u64> {
    snapshot.count_live_since(start(snapshot, writer, wanted))
}

fn start(snapshot: &Snapshot, writer: &VectorWriter, wanted: &EncodeTargets) -> Position {
    let reached =
        |kind: Kind| Reached::position_in(writer.manifest().extent(kind).reached.as_ref(), snapshot);
    Kind::ALL.into_iter().filter(|k| wanted.has(*k)).map(reached).min().unwrap_or_else(|| snapshot.end())
}

/// Encodes all selected inputs that have no vector yet. `stop` ends the pass after the current chunk. All finished
/// chunks are committed, and the next call continues from there. After an error, the vectors of the last commit are
/// kept.
pub fn fill(
    snapshot: &Snapshot,
    writer: &mut VectorWriter,
    encoder: &dyn Encoder,
    wanted: &EncodeTargets,
    options: &Options,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn FnMut(&EncodeProgress),
) -> Result<EncodeProgress> {
    let from = start(snapshot, writer, wanted);
    let part = |kind: Kind| Gathering {
        from: wanted
            .has(kind)
            .then(|| Reached::position_in(writer.manifest().extent(kind).reached.as_ref(), snapshot)),
        ..Gathering::new()
    };
    let kinds = Kind::ALL.map(part);
    // Record the position now: an interrupted pass must not leave the kind marked as never requested.
    for kind in Kind::ALL.into_iter().filter(|k| wanted.has(*k)) {
        let at = Reached::position_in(writer.manifest().extent(kind).reached.as_ref(), snapshot);
        writer.set_reached(kind, Reached { log: snapshot.log_id().to_owned(), at });
    }
    let chunk_bytes = encoder.chunk_bytes();
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(READ_AHEAD);
        let wanted = *wanted;
        scope.spawn(move || read(snapshot, from, &wanted, chunk_bytes, &sender));
        let mut filling = Filling {
            receiver,
            group: Vec::new().into_iter(),
            snapshot,
            writer,
            wanted,
            kinds,
            chunk_bytes,
            after: None,
            after_previous: None,
            filled: EncodeProgress::default(),
            seen: 0,
            last_commit: Instant::now(),
            progress,
        };
        let ended = ahead::encode(encoder, options, stop, &mut filling);
        filling.end(ended)
    })
}

/// A dialogue from the log, with its hashes.
struct Read {
    /// Log position after the dialogue.
    after: Position,
    utterances: Vec<(IdKey, String)>,
    dialogue: Option<(IdKey, Dialogue)>,
}

/// Body of the reading thread. It ends when the receiver is dropped.
fn read(
    snapshot: &Snapshot,
    from: Position,
    wanted: &EncodeTargets,
    chunk_bytes: usize,
    sender: &mpsc::SyncSender<Result<Vec<Read>>>,
) {
    let mut changes = snapshot.changes(from);
    let mut group = Vec::with_capacity(READ_GROUP);
    let mut bytes = 0;
    loop {
        let dialogue = match changes.next_change() {
            None => break,
            Some(Ok(Change::Put { dialogue, live: true })) => dialogue,
            Some(Ok(_)) => continue,
            Some(Err(e)) => {
                // Send the dialogues before the error first.
                let _ = sender.send(Ok(group)).and_then(|()| sender.send(Err(e)));
                return;
            }
        };
        let key = wanted.dialogues.then(|| dialogue_key(&dialogue));
        let utterances = match wanted.utterances {
            true => dialogue.turns.iter().map(|t| (utterance_key(&t.text), t.text.clone())).collect(),
            false => Vec::new(),
        };
        bytes += dialogue.turns.iter().map(|t| t.text.len()).sum::<usize>();
        let dialogue = key.map(|key| (key, *dialogue));
        group.push(Read { after: changes.position(), utterances, dialogue });
        if group.len() == READ_GROUP || bytes >= chunk_bytes {
            bytes = 0;
            if sender.send(Ok(std::mem::take(&mut group))).is_err() {
                return;
            }
        }
    }
    let _ = sender.send(Ok(group));
}

/// Inputs of one kind that wait for the next chunk.
struct Gathering {
    /// Log position from which this kind needs vectors; `None` if it is not requested.
    from: Option<Position>,
    keys: Vec<IdKey>,
    texts: Vec<String>,
    dialogues: Vec<Dialogue>,
    bytes: usize,
    /// Keys that are waiting or being encoded.
    pending: HashSet<IdKey>,
    /// Number of dialogues read when the last finished chunk was handed to the encoder.
    seen: u64,
}

/// Data kept with a chunk until its vectors arrive.
struct Tag {
    kind: Kind,
    keys: Vec<IdKey>,
    /// Log position before which all inputs of this kind have been handed to the encoder.
    complete_to: Option<Position>,
    seen: u64,
}

impl Gathering {
    fn new() -> Self {
        Gathering {
            from: None,
            keys: Vec::new(),
            texts: Vec::new(),
            dialogues: Vec::new(),
            bytes: 0,
            pending: HashSet::new(),
            seen: 0,
        }
    }
}

struct Filling<'a> {
    receiver: Receiver<Result<Vec<Read>>>,
    group: std::vec::IntoIter<Read>,
    snapshot: &'a Snapshot,
    writer: &'a mut VectorWriter,
    wanted: EncodeTargets,
    kinds: [Gathering; 2],
    chunk_bytes: usize,
    /// Log position after the last gathered dialogue.
    after: Option<Position>,
    /// Log position after the second-to-last gathered dialogue.
    after_previous: Option<Position>,
    filled: EncodeProgress,
    seen: u64,
    last_commit: Instant,
    progress: &'a mut dyn FnMut(&EncodeProgress),
}

impl Filling<'_> {
    fn gather(&mut self, read: Read) {
        let wants = |kinds: &[Gathering; 2], kind: Kind| {
            kinds[kind.index()].from.is_some_and(|from| read.after > from)
        };
        self.seen += 1;
        self.after_previous = self.after.replace(read.after);
        if wants(&self.kinds, Kind::Utterances) {
            for (key, text) in read.utterances {
                if self.is_new(Kind::Utterances, key) {
                    let gathering = &mut self.kinds[Kind::Utterances.index()];
                    gathering.bytes += text.len();
                    gathering.texts.push(text);
                }
            }
        }
        if let Some((key, dialogue)) = read.dialogue
            && wants(&self.kinds, Kind::Dialogues)
            && self.is_new(Kind::Dialogues, key)
        {
            let gathering = &mut self.kinds[Kind::Dialogues.index()];
            gathering.bytes += dialogue.turns.iter().map(|t| t.text.len()).sum::<usize>();
            gathering.dialogues.push(dialogue);
        }
    }

    fn is_new(&mut self, kind: Kind, key: IdKey) -> bool {
        let known = self.writer.contains(kind, &key);
        let gathering = &mut self.kinds[kind.index()];
        let new = !known && gathering.pending.insert(key);
        match new {
            true => gathering.keys.push(key),
            false => self.filled.known += 1,
        }
        new
    }

    /// Returns the next chunk of a kind if the chunk is full. With `everything`, also returns a partial chunk.
    fn chunk(&mut self, kind: Kind, everything: bool) -> Option<Chunk<Tag>> {
        let gathering = &mut self.kinds[kind.index()];
        let waiting = gathering.keys.len();
        if waiting == 0 || (!everything && waiting < self.wanted.chunk && gathering.bytes < self.chunk_bytes)
        {
            return None;
        }
        let many = waiting.min(self.wanted.chunk);
        // Chunks are taken as soon as they are full. Any remaining inputs belong to the last gathered dialogue.
        let complete_to = if many == waiting { self.after } else { self.after_previous };
        let keys = gathering.keys.drain(..many).collect();
        let inputs = match kind {
            Kind::Utterances => Inputs::Texts(gathering.texts.drain(..many).collect()),
            Kind::Dialogues => Inputs::Dialogues(gathering.dialogues.drain(..many).collect()),
        };
        if many == waiting {
            gathering.bytes = 0;
        }
        Some(Chunk { inputs, tag: Tag { kind, keys, complete_to, seen: self.seen } })
    }

    /// Approximate number of dialogues that are read and completely encoded.
    fn seen_and_done(&self) -> u64 {
        let done = |kind: &Gathering| if kind.pending.is_empty() { self.seen } else { kind.seen };
        self.kinds.iter().map(done).min().unwrap_or_default()
    }

    fn reached(&mut self, kind: Kind, at: Position) {
        // Never move the position back: an earlier pass may have reached a later one for this kind.
        let from = self.kinds[kind.index()].from;
        if from.is_some_and(|from| at > from) {
            self.writer.set_reached(kind, Reached { log: self.snapshot.log_id().to_owned(), at });
        }
    }

    /// Commits the finished work and returns the result of the pass.
    fn end(mut self, ended: Result<bool>) -> Result<EncodeProgress> {
        if matches!(ended, Ok(true)) {
            for kind in Kind::ALL.into_iter().filter(|k| self.wanted.has(*k)) {
                let end = self.snapshot.end();
                self.writer.set_reached(kind, Reached { log: self.snapshot.log_id().to_owned(), at: end });
            }
            self.filled.seen = self.seen;
        }
        match ended {
            // The write itself failed, and nothing can be committed.
            Err(e @ (Error::Io { .. } | Error::Internal(_))) => return Err(e),
            _ => self.writer.commit()?,
        }
        self.filled.complete = ended?;
        (self.progress)(&self.filled);
        Ok(self.filled)
    }
}

impl Stream for Filling<'_> {
    type Tag = Tag;

    fn next(&mut self) -> Result<Option<Chunk<Tag>>> {
        loop {
            // Inputs that did not fit into the last chunk go first.
            for kind in Kind::ALL {
                if let Some(chunk) = self.chunk(kind, false) {
                    return Ok(Some(chunk));
                }
            }
            match self.group.next() {
                Some(read) => self.gather(read),
                None => match self.receiver.recv() {
                    Ok(group) => self.group = group?.into_iter(),
                    Err(_) => break,
                },
            }
        }
        Ok(Kind::ALL.into_iter().find_map(|kind| self.chunk(kind, true)))
    }

    fn done(&mut self, tag: Tag, encoded: Encoded) -> Result<()> {
        for (key, row) in tag.keys.iter().zip(encoded.vectors.rows()) {
            self.writer.put(tag.kind, *key, row)?;
            self.kinds[tag.kind.index()].pending.remove(key);
        }
        let done = tag.keys.len() as u64;
        match tag.kind {
            Kind::Utterances => self.filled.utterances += done,
            Kind::Dialogues => self.filled.dialogues += done,
        }
        self.filled.spent += encoded.spent;
        self.kinds[tag.kind.index()].seen = tag.seen;
        self.filled.seen = self.seen_and_done();
        if let Some(at) = tag.complete_to {
            self.reached(tag.kind, at);
        }
        if self.last_commit.elapsed() >= COMMIT_EVERY {
            self.writer.commit()?;
            self.last_commit = Instant::now();
        }
        (self.progress)(&self.filled);
        Ok(())
    }
}
