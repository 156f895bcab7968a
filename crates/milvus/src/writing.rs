//! Writing of dialogues as rows. The order of the writes ensures that readers never see a partial dialogue.

use std::collections::HashSet;

use milvus::v2::{
    FieldData,
    request::{
        dml::{DeleteRequest, InsertRequest, UpsertRequest},
        utility::FlushRequest,
    },
};

use super::{
    connection::Connection,
    generations::Manifest,
    names,
    rows::{self, Pieces, Rows, WordsColumn, key_text, pieces},
    speakers,
    vector_source::{self, VectorInput, VectorSource},
};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_corpus::Dialogue;
use turnwise_index::{engine::Version, vectors::Kind};

const ROWS: usize = 4_000;
/// The waiting rows are sent when their size reaches this number of bytes.
const BYTES: usize = 16 << 20;
pub(super) const NAMED: usize = 1_000;
/// Maximum number of names of speakers that a writer remembers.
const KNOWN_SPEAKERS: usize = 100_000;

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) manifest: Manifest,
    pub(super) words: WordsColumn,
    /// Source of the vectors; `None` if the rows have no vectors.
    pub(super) source: Option<Box<dyn VectorSource>>,
    /// Names of speakers that this writer has written.
    pub(super) speakers: HashSet<String>,
    /// Number of rows whose text was truncated to the maximum length of a column.
    pub(super) cut: u64,
}

/// Rows that are not sent yet, with the turns or dialogues from which their vectors are made.
#[derive(Default)]
struct Waiting<'a> {
    rows: Rows,
    inputs: Vec<VectorInput<'a>>,
}

impl Writer {
    pub(super) fn records(&self) -> String {
        self.manifest.records(&self.connection.target.name)
    }

    /// Returns the names of the three collections with the data of each dialogue.
    fn collections(&self) -> [String; 3] {
        self.manifest.collections(&self.connection.target.name)
    }

    /// Writes the names of the speakers and the rows of dialogues first. Then writes their records, which make the new
    /// versions current. Finally, removes the old versions of the dialogues in `replaced`.
    pub(super) fn write(
        &mut self,
        dialogues: &[(Dialogue, Version)],
        replaced: &HashSet<IdKey>,
    ) -> Result<()> {
        self.write_speakers(dialogues)?;
        self.write_rows(dialogues)?;
        self.write_records(dialogues)?;
        self.remove_old_versions(dialogues, replaced)
    }

    fn write_speakers(&mut self, dialogues: &[(Dialogue, Version)]) -> Result<()> {
        if !self.manifest.speakers {
            return Ok(());
        }
        let names = speakers::of(dialogues.iter().map(|(dialogue, _)| dialogue));
        let new: Vec<&str> = names.into_iter().filter(|name| !self.speakers.contains(*name)).collect();
        for some in new.chunks(ROWS) {
            let columns = rows::speakers(some.iter().copied());
            self.upsert(&self.manifest.speakers(&self.connection.target.name), columns)?;
        }
        if self.speakers.len() > KNOWN_SPEAKERS {
            self.speakers.clear();
        }
        self.speakers.extend(new.into_iter().map(str::to_owned));
        Ok(())
    }

    fn write_rows(&mut self, dialogues: &[(Dialogue, Version)]) -> Result<()> {
        let mut waiting: [Waiting<'_>; 2] = Default::default();
        for (dialogue, version) in dialogues {
            for turn in &dialogue.turns {
                waiting[0].rows.push(dialogue, Some(turn), *version, self.words)?;
                waiting[0].inputs.push(VectorInput::Turn(dialogue, turn));
            }
            waiting[1].rows.push(dialogue, None, *version, self.words)?;
            if self.manifest.titles {
                waiting[1].rows.push_title(dialogue, self.words);
            }
            waiting[1].inputs.push(VectorInput::Whole(dialogue));
            for kind in Kind::ALL {
                self.send(kind, &mut waiting[kind as usize], false)?;
            }
        }
        for kind in Kind::ALL {
            self.send(kind, &mut waiting[kind as usize], true)?;
        }
        Ok(())
    }

    /// Sends the waiting rows to the server if there are enough for a request, or if `all` is true.
    fn send(&mut self, kind: Kind, waiting: &mut Waiting<'_>, all: bool) -> Result<()> {
        let dim = self.manifest.recipe.as_ref().map_or(0, |recipe| recipe.dim);
        let rows = &waiting.rows;
        let full = rows.len() >= ROWS || rows.bytes + 4 * dim * rows.len() >= BYTES;
        if rows.len() == 0 || !(all || full) {
            return Ok(());
        }
        let Waiting { mut rows, inputs } = std::mem::take(waiting);
        self.cut += rows.cut;
        if let Some(source) = &self.source {
            let vectors = source.vectors(&inputs)?;
            vector_source::check(&vectors, &inputs)?;
            rows.set_vectors(vectors);
        }
        let columns = rows.into_columns(&self.manifest);
        self.upsert(&self.manifest.rows(&self.connection.target.name, kind), columns)
    }

    /// Writes the records of dialogues. Writes the first piece of a record last, because it makes the new version
    /// current.
    fn write_records(&self, dialogues: &[(Dialogue, Version)]) -> Result<()> {
        let (mut first, mut rest) = (Pieces::default(), Pieces::default());
        for (dialogue, version) in dialogues {
            let json = serde_json::to_string(dialogue).map_err(|e| Error::Internal(e.to_string()))?;
            let (key, corpus, parts) = (dialogue.id.key(), &dialogue.source, pieces(&json));
            for (number, part) in parts.iter().enumerate().skip(1) {
                rest.push(key, *version, [number, parts.len()], corpus, part);
                if rest.bytes >= BYTES {
                    self.send_pieces(&mut rest)?;
                }
            }
            first.push(key, *version, [0, parts.len()], corpus, parts[0]);
            if first.bytes >= BYTES {
                self.send_pieces(&mut rest)?;
                self.send_pieces(&mut first)?;
            }
        }
        self.send_pieces(&mut rest)?;
        self.send_pieces(&mut first)
    }

    fn send_pieces(&self, pieces: &mut Pieces) -> Result<()> {
        match std::mem::take(pieces) {
            none if none.len() == 0 => Ok(()),
            pieces => self.upsert(&self.records(), pieces.into_columns()),
        }
    }

    fn remove_old_versions(
        &self,
        dialogues: &[(Dialogue, Version)],
        replaced: &HashSet<IdKey>,
    ) -> Result<()> {
        let versions = dialogues.iter().map(|(dialogue, version)| (dialogue.id.key(), *version));
        let replaced: Vec<(IdKey, Version)> = versions.filter(|(key, _)| replaced.contains(key)).collect();
        for some in replaced.chunks(NAMED) {
            let keys: Vec<IdKey> = some.iter().map(|(key, _)| *key).collect();
            let versions: Vec<String> = some.iter().map(|(_, version)| version.0.to_string()).collect();
            self.delete_where(&format!("{} and version not in [{}]", key_in(&keys), versions.join(", ")))?;
        }
        Ok(())
    }

    pub(super) fn delete(&self, keys: &[IdKey]) -> Result<()> {
        keys.chunks(NAMED).try_for_each(|some| self.delete_where(&key_in(some)))
    }

    /// Flushes the buffers of the server. Without a flush, no data is lost, but searches must scan all new rows.
    pub(super) fn flush(&self) -> Result<()> {
        let most = self.connection.target.timeout.as_millis().try_into().unwrap_or(i64::MAX);
        let name = &self.connection.target.name;
        let speakers = self.manifest.speakers.then(|| self.manifest.speakers(name));
        let collections = self.collections().into_iter().chain(speakers);
        let request = FlushRequest::builder().collection_names(collections).wait_flushed_ms(most).build();
        self.connection.call("flushing", async { self.connection.client.flush(request?).await }).map(drop)
    }

    fn upsert(&self, collection: &str, columns: Vec<FieldData>) -> Result<()> {
        let rows = InsertRequest::builder().collection_name(collection).columns(columns).build();
        let write = async {
            let request = UpsertRequest::builder().insert(rows?).build();
            self.connection.client.upsert(request?).await
        };
        self.connection.call("writing", write).map(drop)
    }

    /// In each collection, deletes the rows that match an expression. Starts with the records, because a dialogue
    /// without a record counts as deleted.
    fn delete_where(&self, filter: &str) -> Result<()> {
        let client = &self.connection.client;
        for collection in self.collections() {
            let request = DeleteRequest::builder().collection_name(collection).filter(filter).build();
            self.connection.call("deleting", async { client.delete(request?).await })?;
        }
        Ok(())
    }
}

pub(super) fn key_in(keys: &[IdKey]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| names::quoted(&key_text(*key))).collect();
    format!("key in [{}]", keys.join(", "))
}
