//! Encodes one shard of a corpus into its own file.

use std::{collections::BTreeMap, time::Instant};

use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{
    EncodeStats, Encoded, Encoder,
    ahead::{self, Chunk, Inputs as ChunkInputs, Options, Stream},
};
use turnwise_index::vectors::{Kind, Recipe, dialogue_key, utterance_key};

use crate::{
    folder::{Folder, TemporaryFile, write_file},
    inputs::{Inputs, Item, Items, not_written},
    manifest::{self, Contents, DataFile, FORMAT, ShardManifest, row_id},
    progress::{Amount, Progress, Step},
    shard::Shard,
    vector_files::{self, VectorFileFormat, VectorFileWriter},
};

/// Encodes a corpus in shards.
pub struct ShardEncoder<'a> {
    /// Where to write the shards.
    pub folder: &'a dyn Folder,
    /// Dialogues to encode.
    pub inputs: Inputs,
    /// Encoder that makes the vectors.
    pub encoder: &'a dyn Encoder,
    /// Recipe of the vectors.
    pub recipe: Recipe,
    /// Encoding options of the recipe.
    pub options: Options,
    /// Utterances, dialogues or both.
    pub kinds: Vec<Kind>,
    /// Format of the data files.
    pub format: VectorFileFormat,
    /// Number of inputs encoded together.
    pub batch: usize,
    /// Arguments of the command, from [`reusable_args`](crate::shard::reusable_args). Error messages repeat them.
    pub command: Vec<String>,
    /// Receiver of progress.
    pub progress: &'a dyn Progress,
}

/// A complete shard in the folder, new or from an earlier run.
pub struct EncodedShard {
    /// Manifest of the shard.
    pub manifest: ShardManifest,
    /// Encoding time in seconds; `None` if the shard already existed.
    pub seconds: Option<f64>,
}

impl ShardEncoder<'_> {
    /// Encodes a shard, unless the folder has one with the same inputs and options.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] if too many records are rejected or a file cannot be read to its end; [`Error::Interrupted`] if
    /// the user stops it. In both cases, the shard is not written.
    pub fn encode(&self, shard: Shard) -> Result<EncodedShard> {
        let before = self.folder.read(&shard.manifest_name())?;
        // An unreadable manifest is treated as missing.
        let before = before.and_then(|bytes| ShardManifest::read(&bytes, &shard.manifest_name()).ok());
        if let Some(manifest) = &before
            && self.is_done(manifest)?
        {
            return Ok(EncodedShard { manifest: manifest.clone(), seconds: None });
        }
        let begun = Instant::now();
        self.progress.begin(Step::Encoding, self.inputs.total(), 0);
        let made = self.make(shard);
        self.progress.end();
        let manifest = self.publish(made?, before.as_ref())?;
        Ok(EncodedShard { manifest, seconds: Some(begun.elapsed().as_secs_f64()) })
    }

    /// Whether the shard exists and matches the current inputs and options. Cheap checks come first.
    fn is_done(&self, manifest: &ShardManifest) -> Result<bool> {
        if !manifest.was_made_with(&self.kinds, &self.recipe, self.format) {
            return Ok(false);
        }
        let mut contents = Contents::default();
        let mut items = self.items(manifest.shard)?;
        while let Some(Item { dialogue, .. }) = items.next()? {
            for kind in self.kinds.iter().copied() {
                for key in manifest::keys(kind, &dialogue) {
                    contents.add(kind, key);
                }
            }
        }
        items.end()?;
        if contents.digest() != manifest.contents {
            return Ok(false);
        }
        // A missing or unreadable data file means that the shard is encoded again.
        Ok(crate::assemble::is_whole(self.folder, manifest).unwrap_or(false))
    }

    fn items(&self, shard: Shard) -> Result<Items<'_>> {
        self.inputs.items(shard, self.progress)
    }

    /// Encodes the shard into a temporary file.
    fn make(&self, shard: Shard) -> Result<UnpublishedShard> {
        let file = self.folder.temporary(&shard.stem())?;
        let data = vector_files::create(&file.path, self.format, self.recipe.dim, &self.about(shard))?;
        let limits = Limits { inputs: self.batch, bytes: self.encoder.chunk_bytes() };
        let mut encoding = ShardStream::new(self.items(shard)?, data, &self.kinds, limits, self.progress);
        let ended = ahead::encode(self.encoder, &self.options, &|| self.progress.stop(), &mut encoding)?;
        if !ended {
            return Err(Error::Interrupted { hint: Some(not_written(shard)) });
        }
        let contents = encoding.finish()?;
        let rows = |kind: Kind| self.kinds.contains(&kind).then(|| contents.count(kind));
        let (bytes, hash) = file.sum()?;
        let manifest = ShardManifest {
            format: FORMAT,
            turnwise: env!("CARGO_PKG_VERSION").to_owned(),
            shard,
            recipe: self.recipe.clone(),
            utterances: rows(Kind::Utterances),
            dialogues: rows(Kind::Dialogues),
            contents: contents.digest(),
            data: DataFile {
                file: format!("{}-{}.{}", shard.stem(), &hash[..16], self.format.name()),
                target: self.format,
                bytes,
                blake3: hash,
            },
            command: self.command.clone(),
        };
        Ok(UnpublishedShard { manifest, file })
    }

    /// Publishes the shard: first the data file, then its manifest. A replaced data file is removed last.
    fn publish(&self, made: UnpublishedShard, before: Option<&ShardManifest>) -> Result<ShardManifest> {
        let UnpublishedShard { manifest, mut file } = made;
        let stem = manifest.shard.stem();
        self.folder.publish(&mut file, &manifest.data.file)?;
        let bytes = manifest.to_bytes()?;
        write_file(self.folder, &stem, &manifest.shard.manifest_name(), &bytes)?;
        if let Some(old) = before.filter(|old| old.data.file != manifest.data.file) {
            self.folder.remove(&old.data.file)?;
        }
        self.folder.remove_leftovers(&stem);
        Ok(manifest)
    }

    /// Metadata stored in the data file for other programs.
    fn about(&self, shard: Shard) -> BTreeMap<String, String> {
        [
            ("turnwise", env!("CARGO_PKG_VERSION").to_owned()),
            ("model", self.recipe.model.clone()),
            ("fingerprint", self.recipe.fingerprint.to_string()),
            ("runs", self.encoder.describe()),
            ("dim", self.recipe.dim.to_string()),
            ("shard", shard.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// An encoded shard that is not published yet.
struct UnpublishedShard {
    manifest: ShardManifest,
    file: TemporaryFile,
}

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

/// Number of inputs and bytes that make a chunk full.
#[derive(Clone, Copy)]
struct Limits {
    inputs: usize,
    bytes: usize,
}

/// State of a shard while it is encoded.
struct ShardStream<'a> {
    items: Items<'a>,
    file: Box<dyn VectorFileWriter>,
    kinds: &'a [Kind],
    limits: Limits,
    contents: Contents,
    utterances: Waiting<String>,
    dialogues: Waiting<Dialogue>,
    read: u64,
    seen: u64,
    rows: u64,
    spent: EncodeStats,
    progress: &'a dyn Progress,
}

/// Keys of a chunk, needed when its vectors arrive.
struct Tag {
    kind: Kind,
    keys: Vec<IdKey>,
    read: u64,
    seen: u64,
}

impl<'a> ShardStream<'a> {
    fn new(
        items: Items<'a>,
        file: Box<dyn VectorFileWriter>,
        kinds: &'a [Kind],
        limits: Limits,
        progress: &'a dyn Progress,
    ) -> Self {
        ShardStream {
            items,
            file,
            kinds,
            limits,
            contents: Contents::default(),
            utterances: Waiting::new(),
            dialogues: Waiting::new(),
            read: 0,
            seen: 0,
            rows: 0,
            spent: EncodeStats::default(),
            progress,
        }
    }

    /// Finishes the file and returns the keys in it.
    fn finish(self) -> Result<Contents> {
        self.items.end()?;
        self.file.finish()?;
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
            return Some(Chunk { inputs: ChunkInputs::Texts(texts), tag: tag(Kind::Utterances, keys) });
        }
        let (keys, dialogues) = self.dialogues.take(limits)?;
        Some(Chunk { inputs: ChunkInputs::Dialogues(dialogues), tag: tag(Kind::Dialogues, keys) })
    }
}

impl Stream for ShardStream<'_> {
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
        self.file.write(&ids, &encoded.vectors)?;
        self.rows += ids.len() as u64;
        self.spent += encoded.spent;
        self.progress.advance(Amount {
            done: tag.read,
            units: tag.seen,
            texts: self.rows,
            tokens: self.spent.tokens,
        });
        Ok(())
    }
}
