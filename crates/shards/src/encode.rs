//! Encodes one shard of a corpus and writes it to a separate file.

use std::{mem, time::Instant};

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

/// Encoder for the shards of a corpus.
pub struct ShardEncoder<'a> {
    /// Folder to write the shards to.
    pub folder: &'a dyn Folder,
    /// Inputs with the dialogues to encode.
    pub inputs: Inputs,
    /// Encoder that computes the vectors.
    pub encoder: &'a dyn Encoder,
    /// Recipe of the vectors: the encoder, and the options that affect the vectors.
    pub recipe: Recipe,
    /// Encoding options. They must match the recipe.
    pub options: Options,
    /// Kinds of vectors to compute: utterance vectors, dialogue vectors or both.
    pub kinds: Vec<Kind>,
    /// Format of the data files.
    pub format: VectorFileFormat,
    /// Maximum number of texts or dialogues encoded together.
    pub batch: usize,
    /// Arguments of the command, from [`reusable_args`](crate::shard::reusable_args). The manifests store this list.
    pub command: Vec<String>,
    /// Receiver of progress reports, which can also stop the encoding.
    pub progress: &'a dyn Progress,
}

/// A complete shard in the folder, encoded by this run or by an earlier run.
pub struct EncodedShard {
    /// Manifest of the shard.
    pub manifest: ShardManifest,
    /// Encoding time in seconds; `None` if the shard already existed.
    pub seconds: Option<f64>,
}

impl ShardEncoder<'_> {
    /// Encodes a shard, unless the folder already contains this shard with the same inputs and options.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] if too many records are rejected or a file cannot be read to its end; [`Error::Interrupted`] if
    /// the user stops the encoding. In both cases, the shard is not written.
    pub fn encode(&self, shard: Shard) -> Result<EncodedShard> {
        let before = self.folder.read(&shard.manifest_name())?;
        // An unreadable manifest is treated as missing.
        let before = before
            .and_then(|bytes| ShardManifest::read(&bytes, &shard.manifest_name()).ok())
            .filter(|manifest| manifest.shard == shard);
        if let Some(manifest) = &before
            && self.is_done(manifest)?
        {
            return Ok(EncodedShard { manifest: manifest.clone(), seconds: None });
        }
        let begun = Instant::now();
        self.progress.begin(Step::Encoding, self.inputs.total, 0);
        let made = self.make(shard);
        self.progress.end();
        let (manifest, mut file) = made?;
        self.publish(&manifest, &mut file, before.as_ref())?;
        Ok(EncodedShard { manifest, seconds: Some(begun.elapsed().as_secs_f64()) })
    }

    /// Returns whether the shard with this manifest is complete and matches the current inputs and options. Cheap
    /// checks come first.
    fn is_done(&self, manifest: &ShardManifest) -> Result<bool> {
        if !manifest.was_made_with(&self.kinds, &self.recipe, self.format) {
            return Ok(false);
        }
        let mut contents = Contents::default();
        let mut items = self.inputs.items(manifest.shard, self.progress)?;
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

    /// Encodes the shard and writes its rows to a temporary file. Returns the shard's manifest and the temporary file.
    fn make(&self, shard: Shard) -> Result<(ShardManifest, TemporaryFile)> {
        let file = self.folder.temporary(&shard.stem())?;
        let dim = self.recipe.dim;
        let shard_number = [("shard", shard.to_string())];
        let about = vector_files::metadata(self.encoder, &self.recipe.model, dim, shard_number);
        let mut stream = ShardStream {
            items: self.inputs.items(shard, self.progress)?,
            file: vector_files::create(&file.path, self.format, dim, &about)?,
            kinds: &self.kinds,
            limits: Limits { inputs: self.batch, bytes: self.encoder.chunk_bytes() },
            contents: Contents::default(),
            utterances: Waiting::new(),
            dialogues: Waiting::new(),
            read: 0,
            seen: 0,
            rows: 0,
            spent: EncodeStats::default(),
            progress: self.progress,
        };
        if !ahead::encode(self.encoder, &self.options, &|| self.progress.stop(), &mut stream)? {
            return Err(Error::Interrupted { hint: Some(not_written(shard)) });
        }
        let ShardStream { items, file: data, contents, .. } = stream;
        items.end()?;
        data.finish()?;
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
        Ok((manifest, file))
    }

    /// Publishes the shard: first the data file, then the manifest. `before` is the manifest of the previous version,
    /// if there is one. The previous data file is removed last.
    fn publish(
        &self,
        manifest: &ShardManifest,
        file: &mut TemporaryFile,
        before: Option<&ShardManifest>,
    ) -> Result<()> {
        let stem = manifest.shard.stem();
        self.folder.publish(file, &manifest.data.file)?;
        write_file(self.folder, &stem, &manifest.shard.manifest_name(), &manifest.to_bytes()?)?;
        if let Some(old) = before.filter(|old| old.data.file != manifest.data.file) {
            self.folder.remove(&old.data.file)?;
        }
        self.folder.remove_leftovers(&stem);
        Ok(())
    }
}

/// Inputs of one kind that wait to be encoded, with their keys.
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

    /// Takes all waiting inputs and their keys. Returns `None` if no inputs are waiting, or if the inputs reach neither
    /// of the limits in `limits`.
    fn take(&mut self, limits: Option<Limits>) -> Option<(Vec<IdKey>, Vec<T>)> {
        let enough =
            limits.is_none_or(|limits| self.keys.len() >= limits.inputs || self.bytes >= limits.bytes);
        if self.keys.is_empty() || !enough {
            return None;
        }
        self.bytes = 0;
        Some((mem::take(&mut self.keys), mem::take(&mut self.inputs)))
    }
}

/// Limits of a chunk. A chunk that reaches one of them is full.
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

/// Keys of a chunk and the progress of reading, needed when the vectors of the chunk arrive.
struct Tag {
    kind: Kind,
    keys: Vec<IdKey>,
    read: u64,
    seen: u64,
}

impl ShardStream<'_> {
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
