//! Encodes the records of an index. One thread reads the log, one encodes, and the caller's thread stores vectors.

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

/// Minimum time between two commits, so that a fast encoder does not wait for the disk.
const COMMIT_EVERY: Duration = Duration::from_millis(250);
/// Maximum number of dialogues that the reading thread sends at a time.
const READ_GROUP: usize = 128;
/// Maximum number of groups of dialogues in the queue from the reading thread.
const READ_AHEAD: usize = 8;

/// Kinds of inputs to encode, and the chunk size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeTargets {
    /// True to encode utterances.
    pub utterances: bool,
    /// True to encode whole dialogues.
    pub dialogues: bool,
    /// Maximum number of inputs per chunk for the encoder.
    pub chunk: usize,
}

impl EncodeTargets {
    fn kinds(&self) -> impl Iterator<Item = Kind> {
        let kinds = [(Kind::Utterances, self.utterances), (Kind::Dialogues, self.dialogues)];
        kinds.into_iter().filter_map(|(kind, wanted)| wanted.then_some(kind))
    }
}

/// Progress and result of [`fill`].
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct EncodeProgress {
    /// Number of dialogues read from the log and completely encoded; approximate until the run ends.
    pub seen: u64,
    /// Number of utterances encoded.
    pub utterances: u64,
    /// Number of dialogues encoded.
    pub dialogues: u64,
    /// Number of inputs skipped because they already have a vector.
    pub known: u64,
    /// Token counts and counts of truncated inputs, from the encoder.
    pub spent: EncodeStats,
    /// True if all records up to the end of the snapshot were encoded.
    pub complete: bool,
}

/// Number of dialogues that [`fill`] will read.
pub fn pending_dialogues(snapshot: &Snapshot, writer: &VectorWriter, wanted: &EncodeTargets) -> Result<u64> {
    snapshot.count_live_since(start(snapshot, writer, wanted))
}

fn start(snapshot: &Snapshot, writer: &VectorWriter, wanted: &EncodeTargets) -> Position {
    let positions = wanted.kinds().map(|kind| position(snapshot, writer, kind));
    positions.min().unwrap_or_else(|| snapshot.end())
}

/// Returns the log position from which records may lack vectors of a kind.
fn position(snapshot: &Snapshot, writer: &VectorWriter, kind: Kind) -> Position {
    Reached::position_in(writer.manifest().extent(kind).reached.as_ref(), snapshot)
}

/// Encodes all selected inputs that have no vector, and returns the result.
///
/// `progress` is called after each chunk. If `stop` returns true, the function ends after the current chunk. Finished
/// chunks are committed, even if the encoder fails, and the next call continues after them.
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
    let mut kinds: [Gathering; 2] = Default::default();
    for kind in wanted.kinds() {
        let at = position(snapshot, writer, kind);
        kinds[kind as usize].from = Some(at);
        // Set the position now: an interrupted pass must not leave the kind marked as never requested.
        writer.set_reached(kind, Reached::of(snapshot, at));
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

/// Inputs of one dialogue from the log, with the keys of their vectors. Kinds that are not requested have no inputs.
struct Read {
    after: Position,
    utterances: Vec<(IdKey, String)>,
    dialogue: Option<(IdKey, Dialogue)>,
}

/// Reads the log and sends its undeleted dialogues in groups. Stops at the end of the log, after an error (which is
/// also sent), or when the receiver is dropped.
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
#[derive(Default)]
struct Gathering {
    /// Log position from which this kind needs vectors; `None` if the kind is not requested.
    from: Option<Position>,
    /// Keys of the waiting inputs, in the order of `texts` or `dialogues`.
    keys: Vec<IdKey>,
    texts: Vec<String>,
    dialogues: Vec<Dialogue>,
    /// Size of the texts of all waiting inputs, in bytes.
    bytes: usize,
    /// Keys of the inputs that are waiting or being encoded.
    pending: HashSet<IdKey>,
    /// Number of dialogues that had been read when the last finished chunk was handed to the encoder.
    seen: u64,
}

/// Data kept with a chunk until its vectors arrive.
struct Tag {
    kind: Kind,
    keys: Vec<IdKey>,
    /// Log position before which all inputs of this kind are in this chunk or an earlier one.
    complete_to: Option<Position>,
    /// Number of dialogues that had been read when the chunk was handed to the encoder.
    seen: u64,
}

struct Filling<'a> {
    receiver: Receiver<Result<Vec<Read>>>,
    group: std::vec::IntoIter<Read>,
    snapshot: &'a Snapshot,
    writer: &'a mut VectorWriter,
    wanted: EncodeTargets,
    kinds: [Gathering; 2],
    chunk_bytes: usize,
    after: Option<Position>,
    after_previous: Option<Position>,
    filled: EncodeProgress,
    seen: u64,
    last_commit: Instant,
    progress: &'a mut dyn FnMut(&EncodeProgress),
}

impl Filling<'_> {
    fn gather(&mut self, read: Read) {
        let wants = |gathering: &Gathering| gathering.from.is_some_and(|position| read.after > position);
        let [wants_utterances, wants_dialogues] = self.kinds.each_ref().map(wants);
        self.seen += 1;
        self.after_previous = self.after.replace(read.after);
        for (key, text) in read.utterances.into_iter().filter(|_| wants_utterances) {
            if self.is_new(Kind::Utterances, key) {
                let gathering = &mut self.kinds[Kind::Utterances as usize];
                gathering.bytes += text.len();
                gathering.texts.push(text);
            }
        }
        if let Some((key, dialogue)) = read.dialogue.filter(|_| wants_dialogues)
            && self.is_new(Kind::Dialogues, key)
        {
            let gathering = &mut self.kinds[Kind::Dialogues as usize];
            gathering.bytes += dialogue.turns.iter().map(|t| t.text.len()).sum::<usize>();
            gathering.dialogues.push(dialogue);
        }
    }

    /// Returns true if an input has no vector and is neither waiting nor being encoded. In this case, queues `key` for
    /// a chunk.
    fn is_new(&mut self, kind: Kind, key: IdKey) -> bool {
        let known = self.writer.contains(kind, &key);
        let gathering = &mut self.kinds[kind as usize];
        let new = !known && gathering.pending.insert(key);
        match new {
            true => gathering.keys.push(key),
            false => self.filled.known += 1,
        }
        new
    }

    /// Returns the next full chunk of a kind; `None` if there is none. If `everything` is true, also returns a partial
    /// chunk.
    fn chunk(&mut self, kind: Kind, everything: bool) -> Option<Chunk<Tag>> {
        let gathering = &mut self.kinds[kind as usize];
        let waiting = gathering.keys.len();
        let full = waiting >= self.wanted.chunk || gathering.bytes >= self.chunk_bytes;
        if waiting == 0 || !(everything || full) {
            return None;
        }
        let count = waiting.min(self.wanted.chunk);
        // Chunks are taken as soon as they are full. Any remaining inputs belong to the last gathered dialogue.
        let complete_to = if count == waiting { self.after } else { self.after_previous };
        let keys = gathering.keys.drain(..count).collect();
        let inputs = match kind {
            Kind::Utterances => Inputs::Texts(gathering.texts.drain(..count).collect()),
            Kind::Dialogues => Inputs::Dialogues(gathering.dialogues.drain(..count).collect()),
        };
        if count == waiting {
            gathering.bytes = 0;
        }
        Some(Chunk { inputs, tag: Tag { kind, keys, complete_to, seen: self.seen } })
    }

    /// Returns the approximate number of dialogues that have been read and completely encoded.
    fn seen_and_done(&self) -> u64 {
        let done = |kind: &Gathering| if kind.pending.is_empty() { self.seen } else { kind.seen };
        self.kinds.iter().map(done).min().unwrap_or_default()
    }

    /// Commits the finished chunks, and returns the final counts. `ended` is the result of the run: `Ok(true)` if all
    /// inputs were encoded, `Ok(false)` if the run ended early. Returns the error in `ended`, if any. After an I/O
    /// error or an internal error, commits nothing.
    fn end(mut self, ended: Result<bool>) -> Result<EncodeProgress> {
        if matches!(ended, Ok(true)) {
            for kind in self.wanted.kinds() {
                self.writer.set_reached(kind, Reached::of(self.snapshot, self.snapshot.end()));
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
            self.kinds[tag.kind as usize].pending.remove(key);
        }
        let done = tag.keys.len() as u64;
        match tag.kind {
            Kind::Utterances => self.filled.utterances += done,
            Kind::Dialogues => self.filled.dialogues += done,
        }
        self.filled.spent += encoded.spent;
        let gathering = &mut self.kinds[tag.kind as usize];
        gathering.seen = tag.seen;
        // Never move the position back: an earlier pass may have reached a later position for this kind.
        if let Some(at) = tag.complete_to.filter(|at| gathering.from.is_some_and(|from| *at > from)) {
            self.writer.set_reached(tag.kind, Reached::of(self.snapshot, at));
        }
        self.filled.seen = self.seen_and_done();
        if self.last_commit.elapsed() >= COMMIT_EVERY {
            self.writer.commit()?;
            self.last_commit = Instant::now();
        }
        (self.progress)(&self.filled);
        Ok(())
    }
}
