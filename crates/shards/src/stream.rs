//! Streams the dialogues of a shard through the encoder into its file.

use crate::cli::{
    commands::encode::shard::inputs::Items,
    embeddings::Sink,
    printer::grouped,
    progress::ProgressBar,
    shards::{Contents, row_id},
};
use turnwise_core::{error::Result, ids::IdKey};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{
    Encoded, Spent,
    ahead::{Chunk, Inputs, Stream},
};
use turnwise_index::vectors::{Kind, dialogue_key, utterance_key};

/// Inputs of one kind that wait to be encoded.
struct Waiting<T> {
    keys: Vec<IdKey>,
    inputs: Vec<T>,
    bytes: usize,
}

impl<T> Waiting<T> {
    fn new() -> Self {
        Waiting { keys: Vec::new(), inputs: Vec::new(), bytes: 0 }
    }

    fn add(&mut self, key: IdKey, input: T, bytes: usize) {
        self.keys.push(key);
        self.inputs.push(input);
        self.bytes += bytes;
    }

    /// Takes a full chunk; without limits, takes everything.
    fn take(&mut self, limits: Option<Limits>) -> Option<(Vec<IdKey>, Vec<T>)> {
        let enough =
            limits.is_none_or(|limits| self.keys.len() >= limits.inputs || self.bytes >= limits.bytes);
        if self.keys.is_empty() || !enough {
            return None;
        }
        let Waiting { keys, inputs, .. } = std::mem::replace(self, Waiting::new());
        Some((keys, inputs))
    }
}

/// Size of a chunk.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) inputs: usize,
    pub(super) bytes: usize,
}

/// A shard while it is encoded.
pub(super) struct Encoding<'a, 'p> {
    items: Items<'a>,
    sink: Box<dyn Sink>,
    kinds: &'a [Kind],
    limits: Limits,
    contents: Contents,
    utterances: Waiting<String>,
    dialogues: Waiting<Dialogue>,
    read: u64,
    seen: u64,
    rows: u64,
    spent: Spent,
    progress: &'a mut ProgressBar<'p>,
}

/// Keys of a chunk, needed when its vectors arrive.
pub(super) struct Tag {
    kind: Kind,
    keys: Vec<IdKey>,
    read: u64,
    seen: u64,
}

impl<'a, 'p> Encoding<'a, 'p> {
    pub(super) fn new(
        items: Items<'a>,
        sink: Box<dyn Sink>,
        kinds: &'a [Kind],
        limits: Limits,
        progress: &'a mut ProgressBar<'p>,
    ) -> Self {
        Encoding {
            items,
            sink,
            kinds,
            limits,
            contents: Contents::default(),
            utterances: Waiting::new(),
            dialogues: Waiting::new(),
            read: 0,
            seen: 0,
            rows: 0,
            spent: Spent::default(),
            progress,
        }
    }

    /// Finishes the file and returns the keys in it.
    pub(super) fn finish(self) -> Result<Contents> {
        self.items.end()?;
        self.sink.finish()?;
        Ok(self.contents)
    }

    fn gather(&mut self, dialogue: Dialogue) {
        if self.kinds.contains(&Kind::Utterances) {
            for turn in &dialogue.turns {
                let key = utterance_key(&turn.text);
                if self.contents.add(Kind::Utterances, key) {
                    self.utterances.add(key, turn.text.clone(), turn.text.len());
                }
            }
        }
        if self.kinds.contains(&Kind::Dialogues) {
            let key = dialogue_key(&dialogue);
            if self.contents.add(Kind::Dialogues, key) {
                let bytes = dialogue.turns.iter().map(|turn| turn.text.len()).sum();
                self.dialogues.add(key, dialogue, bytes);
            }
        }
    }

    fn chunk(&mut self, limits: Option<Limits>) -> Option<Chunk<Tag>> {
        let (read, seen) = (self.read, self.seen);
        let tag = |kind, keys| Tag { kind, keys, read, seen };
        if let Some((keys, texts)) = self.utterances.take(limits) {
            return Some(Chunk { inputs: Inputs::Texts(texts), tag: tag(Kind::Utterances, keys) });
        }
        let (keys, dialogues) = self.dialogues.take(limits)?;
        Some(Chunk { inputs: Inputs::Dialogues(dialogues), tag: tag(Kind::Dialogues, keys) })
    }
}

impl Stream for Encoding<'_, '_> {
    type Tag = Tag;

    fn next(&mut self) -> Result<Option<Chunk<Tag>>> {
        loop {
            if let Some(chunk) = self.chunk(Some(self.limits)) {
                return Ok(Some(chunk));
            }
            let Some(item) = self.items.next()? else { return Ok(self.chunk(None)) };
            (self.read, self.seen) = (item.read, self.seen + 1);
            self.gather(item.dialogue);
        }
    }

    fn done(&mut self, tag: Tag, encoded: Encoded) -> Result<()> {
        let ids: Vec<String> = tag.keys.iter().map(|key| row_id(tag.kind, key)).collect();
        self.sink.write(&ids, &encoded.vectors)?;
        self.rows += ids.len() as u64;
        self.spent += encoded.spent;
        let seconds = self.progress.seconds().max(1e-3);
        let rate = |n: u64| grouped((n as f64 / seconds) as u64);
        self.progress.set_suffix(format!(
            "{} texts/s, {} tokens/s",
            rate(self.rows),
            rate(self.spent.tokens)
        ));
        self.progress.set(tag.read, tag.seen);
        Ok(())
    }
}
