//! Filling an index's vectors: reading the log ahead on one thread, encoding on another, storing on the caller's.

use std::{
    collections::HashSet,
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::vectors::{
    VectorWriter,
    key::{Kind, dialogue_key, utterance_key},
    manifest::Reached,
};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{
    Encoded, Encoder, Spent,
    ahead::{self, Chunk, Inputs, Options, Stream},
};
use turnwise_store::{Change, Position, Snapshot};

/// Commits are no nearer to each other, so that a fast device does not wait for the disk.
const COMMIT_EVERY: Duration = Duration::from_millis(250);
/// Dialogues that the reading thread hands over at once, and how many times it may be ahead.
const READ_TOGETHER: usize = 128;
const READ_AHEAD: usize = 8;

/// What is to be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Every utterance.
    pub utterances: bool,
    /// Every dialogue as a whole.
    pub dialogues: bool,
    /// How many inputs go through the encoder together.
    pub chunk: usize,
}

impl Wanted {
    fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::Utterances => self.utterances,
            Kind::Dialogues => self.dialogues,
        }
    }
}

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Filled {
    /// Dialogues of the log that were looked at.
    pub seen: u64,
    /// Utterances that were encoded.
    pub utterances: u64,
    /// Dialogues that were encoded.
    pub dialogues: u64,
    /// Inputs that had a vector already, here or earlier.
    pub known: u64,
    /// What the encoder needed.
    pub spent: Spent,
    /// Whether the pass came to its end.
    pub complete: bool,
}

/// How many dialogues a pass must look at.
pub fn to_look_at(snapshot: &Snapshot, writer: &VectorWriter, wanted: &Wanted) -> Result<u64> {
    snapshot.live_since(start(snapshot, writer, wanted))
}

fn start(snapshot: &Snapshot, writer: &VectorWriter, wanted: &Wanted) -> Position {
    let reached = |kind: Kind| Reached::place_in(writer.manifest().extent(kind).reached.as_ref(), snapshot);
    Kind::ALL.into_iter().filter(|k| wanted.has(*k)).map(reached).min().unwrap_or_else(|| snapshot.end())
}

/// Encodes what has no vector yet. `stop` ends the pass behind the chunk that is being encoded; everything up to there
/// is committed. Whatever happens, the same call goes on where this one ended.
pub fn fill(
    snapshot: &Snapshot,
    writer: &mut VectorWriter,
    encoder: &dyn Encoder,
    wanted: &Wanted,
    options: &Options,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn FnMut(&Filled),
) -> Result<Filled> {
    let from = start(snapshot, writer, wanted);
    let part = |kind: Kind| Gathering {
        from: wanted
            .has(kind)
            .then(|| Reached::place_in(writer.manifest().extent(kind).reached.as_ref(), snapshot)),
        ..Gathering::new()
    };
    let kinds = Kind::ALL.map(part);
    // An interrupted pass must not leave a kind looking as if it had never been asked for.
    for kind in Kind::ALL.into_iter().filter(|k| wanted.has(*k)) {
        let at = Reached::place_in(writer.manifest().extent(kind).reached.as_ref(), snapshot);
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
            behind: None,
            behind_whole: None,
            filled: Filled::default(),
            seen: 0,
            last_commit: Instant::now(),
            progress,
        };
        let ended = ahead::encode(encoder, options, stop, &mut filling);
        filling.end(ended)
    })
}

/// What the log says of one dialogue, hashed.
struct Read {
    /// Behind it in the log.
    behind: Position,
    utterances: Vec<(IdKey, String)>,
    dialogue: Option<(IdKey, Dialogue)>,
}

/// The reading thread. It ends when the receiver is gone.
fn read(
    snapshot: &Snapshot,
    from: Position,
    wanted: &Wanted,
    chunk_bytes: usize,
    sender: &mpsc::SyncSender<Result<Vec<Read>>>,
) {
    let mut changes = snapshot.changes(from);
    let mut group = Vec::with_capacity(READ_TOGETHER);
    let mut bytes = 0;
    loop {
        let dialogue = match changes.next_change() {
            None => break,
            Some(Ok(Change::Put { dialogue, live: true })) => dialogue,
            Some(Ok(_)) => continue,
            Some(Err(e)) => {
                // The reader is told after what came before.
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
        group.push(Read { behind: changes.position(), utterances, dialogue });
        if group.len() == READ_TOGETHER || bytes >= chunk_bytes {
            bytes = 0;
            if sender.send(Ok(std::mem::take(&mut group))).is_err() {
                return;
            }
        }
    }
    let _ = sender.send(Ok(group));
}

/// Inputs of one kind on their way to the next chunk.
struct Gathering {
    /// Where this kind begins to be interested; `None` if never.
    from: Option<Position>,
    keys: Vec<IdKey>,
    texts: Vec<String>,
    dialogues: Vec<Dialogue>,
    bytes: usize,
    /// Keys that are gathered or in the encoder.
    on_the_way: HashSet<IdKey>,
    /// How many dialogues had been looked at when what was done last was given to the encoder.
    seen: u64,
}

/// What must be known when the vectors come.
struct Tag {
    kind: Kind,
    keys: Vec<IdKey>,
    /// All inputs of this kind up to here have been handed to the encoder.
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
            on_the_way: HashSet::new(),
            seen: 0,
        }
    }
}

struct Filling<'a> {
    receiver: Receiver<Result<Vec<Read>>>,
    group: std::vec::IntoIter<Read>,
    snapshot: &'a Snapshot,
    writer: &'a mut VectorWriter,
    wanted: Wanted,
    kinds: [Gathering; 2],
    chunk_bytes: usize,
    /// Behind the dialogue that was gathered last.
    behind: Option<Position>,
    /// Behind the one before it.
    behind_whole: Option<Position>,
    filled: Filled,
    seen: u64,
    last_commit: Instant,
    progress: &'a mut dyn FnMut(&Filled),
}

impl Filling<'_> {
    fn gather(&mut self, read: Read) {
        let wants = |kinds: &[Gathering; 2], kind: Kind| {
            kinds[kind.place()].from.is_some_and(|from| read.behind > from)
        };
        self.seen += 1;
        self.behind_whole = self.behind.replace(read.behind);
        if wants(&self.kinds, Kind::Utterances) {
            for (key, text) in read.utterances {
                if self.is_new(Kind::Utterances, key) {
                    let gathering = &mut self.kinds[Kind::Utterances.place()];
                    gathering.bytes += text.len();
                    gathering.texts.push(text);
                }
            }
        }
        if let Some((key, dialogue)) = read.dialogue
            && wants(&self.kinds, Kind::Dialogues)
            && self.is_new(Kind::Dialogues, key)
        {
            let gathering = &mut self.kinds[Kind::Dialogues.place()];
            gathering.bytes += dialogue.turns.iter().map(|t| t.text.len()).sum::<usize>();
            gathering.dialogues.push(dialogue);
        }
    }

    fn is_new(&mut self, kind: Kind, key: IdKey) -> bool {
        let known = self.writer.contains(kind, &key);
        let gathering = &mut self.kinds[kind.place()];
        let new = !known && gathering.on_the_way.insert(key);
        match new {
            true => gathering.keys.push(key),
            false => self.filled.known += 1,
        }
        new
    }

    /// The next chunk of a kind, if it is full or everything has been read.
    fn chunk(&mut self, kind: Kind, everything: bool) -> Option<Chunk<Tag>> {
        let gathering = &mut self.kinds[kind.place()];
        let waiting = gathering.keys.len();
        if waiting == 0 || (!everything && waiting < self.wanted.chunk && gathering.bytes < self.chunk_bytes)
        {
            return None;
        }
        let many = waiting.min(self.wanted.chunk);
        // A chunk is made as soon as there is enough for it, so that what does not fit in is of the last dialogue.
        let complete_to = if many == waiting { self.behind } else { self.behind_whole };
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

    /// How many dialogues have been looked at and have all their vectors, about.
    fn seen_and_done(&self) -> u64 {
        let done = |kind: &Gathering| if kind.on_the_way.is_empty() { self.seen } else { kind.seen };
        self.kinds.iter().map(done).min().unwrap_or_default()
    }

    fn reached(&mut self, kind: Kind, at: Position) {
        // A kind that had come further in an earlier pass stays there.
        let from = self.kinds[kind.place()].from;
        if from.is_some_and(|from| at > from) {
            self.writer.set_reached(kind, Reached { log: self.snapshot.log_id().to_owned(), at });
        }
    }

    /// Commits what was done, and says how it ended.
    fn end(mut self, ended: Result<bool>) -> Result<Filled> {
        if matches!(ended, Ok(true)) {
            for kind in Kind::ALL.into_iter().filter(|k| self.wanted.has(*k)) {
                let end = self.snapshot.end();
                self.writer.set_reached(kind, Reached { log: self.snapshot.log_id().to_owned(), at: end });
            }
            self.filled.seen = self.seen;
        }
        match ended {
            // The write itself failed: what was gathered cannot be committed.
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
            // The rest of what did not fit into a chunk goes first.
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
            self.kinds[tag.kind.place()].on_the_way.remove(key);
        }
        let done = tag.keys.len() as u64;
        match tag.kind {
            Kind::Utterances => self.filled.utterances += done,
            Kind::Dialogues => self.filled.dialogues += done,
        }
        self.filled.spent += encoded.spent;
        self.kinds[tag.kind.place()].seen = tag.seen;
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
