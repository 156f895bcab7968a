//! Bringing dialogues into Milvus, and taking them out again.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use milvus::v2::{
    FieldData,
    request::dml::{DeleteRequest, InsertRequest, UpsertRequest},
};

use super::{
    connection::Connection,
    engine::columns,
    manifest::Manifest,
    names,
    rows::{Pieces, Rows, Version, key_of, key_text, pieces},
    target::Target,
};
use crate::{
    corpus::{Dialogue, filter::Filter},
    encoder::{Encoder, Vectors, ahead::Options},
    error::{Error, Result},
    ids::{DialogueId, IdKey},
    index::vectors::{Kind, Recipe},
    store::{IngestMark, Prepared, Put, frame::Totals, ingest::Home},
    text::Analyzer,
};

/// So many rows, or so many of their bytes, go together at most.
const ROWS: usize = 4_000;
const BYTES: usize = 16 << 20;

/// A writer.
pub struct MilvusHome {
    connection: Connection,
    manifest: Manifest,
    analyzer: Analyzer,
    encoder: Option<Arc<dyn Encoder>>,
    options: Options,
    /// What is there of dialogues that were asked for.
    known: HashMap<IdKey, Option<Version>>,
    pending: Vec<(Dialogue, Version)>,
    pending_bytes: usize,
    /// Of these another version is there.
    replaced: HashSet<IdKey>,
    cut: u64,
}

impl MilvusHome {
    /// What made the vectors of a name, if it is there.
    pub fn manifest(target: &Target) -> Result<Option<Manifest>> {
        Connection::open(target)?.manifest()
    }

    /// Opens what a name stands for, or makes it: with vectors as the recipe has them, or without any.
    pub fn open_or_create(
        target: &Target,
        analyzer: Analyzer,
        recipe: Option<Recipe>,
        encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Self> {
        let connection = Connection::open(target)?;
        let manifest = match connection.manifest()? {
            Some(manifest) => {
                connection.load(&manifest)?;
                manifest
            }
            None => {
                let manifest = Manifest::new(1, analyzer, recipe);
                connection.create(&manifest)?;
                connection.switch(&manifest)?;
                manifest
            }
        };
        MilvusHome::filled_by(connection, manifest, encoder)
    }

    fn filled_by(
        connection: Connection,
        manifest: Manifest,
        encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Self> {
        let fits = match (&manifest.recipe, &encoder) {
            (Some(recipe), Some(encoder)) => recipe.fingerprint == encoder.fingerprint(),
            (None, _) => true,
            (Some(_), None) => false,
        };
        if !fits {
            return Err(other_encoder(&connection.target, &manifest, encoder.as_deref()));
        }
        let encoder = encoder.filter(|_| manifest.recipe.is_some());
        MilvusHome::over(connection, manifest, encoder)
    }

    /// Opens what is there, for taking dialogues out of it.
    pub fn open(target: &Target) -> Result<Self> {
        let (connection, manifest) = Connection::there(target)?;
        MilvusHome::over(connection, manifest, None)
    }

    /// Opens what is there, for bringing dialogues to it with the encoder that made its vectors.
    pub fn open_to_fill(target: &Target, encoder: Option<Arc<dyn Encoder>>) -> Result<Self> {
        let (connection, manifest) = Connection::there(target)?;
        MilvusHome::filled_by(connection, manifest, encoder)
    }

    /// Removes a name with everything that it stands for.
    pub fn remove(target: &Target) -> Result<()> {
        let connection = Connection::open(target)?;
        match connection.manifest()? {
            Some(manifest) => connection.remove(&manifest),
            None => Ok(()),
        }
    }

    fn over(connection: Connection, manifest: Manifest, encoder: Option<Arc<dyn Encoder>>) -> Result<Self> {
        let mut options = Options::default();
        if let Some(recipe) = &manifest.recipe {
            options.texts.prompt.clone_from(&recipe.prompt);
            options.dialogues.prompt.clone_from(&recipe.prompt);
            (options.dialogues.mode, options.dialogues.pooling) = (recipe.dialogue_mode, recipe.pooling);
        }
        Ok(MilvusHome {
            analyzer: manifest.analyzer()?,
            encoder,
            connection,
            manifest,
            options,
            known: HashMap::new(),
            pending: Vec::new(),
            pending_bytes: 0,
            replaced: HashSet::new(),
            cut: 0,
        })
    }

    /// How many rows are longer than Milvus' columns: what came behind is not found by words.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// How many dialogues and turns are there.
    pub fn totals(&self) -> Result<Totals> {
        self.connection.totals(&self.manifest)
    }

    fn collection(&self, kind: Kind) -> String {
        self.manifest.rows(&self.connection.target.name, kind)
    }

    fn records(&self) -> String {
        self.manifest.records(&self.connection.target.name)
    }

    fn upsert(&self, collection: &str, columns: Vec<FieldData>) -> Result<()> {
        let rows = InsertRequest::builder().collection_name(collection).columns(columns).build();
        let write = async {
            let request = UpsertRequest::builder().insert(rows?).build();
            self.connection.client.upsert(request?).await
        };
        self.connection.ask("writing", write).map(drop)
    }

    fn delete_where(&self, collection: &str, filter: &str) -> Result<()> {
        let request = DeleteRequest::builder().collection_name(collection).filter(filter).build();
        self.connection.ask("deleting", async { self.connection.client.delete(request?).await }).map(drop)
    }

    /// Removes dialogues by their ids; gives how many were there.
    pub fn delete(&mut self, ids: &[DialogueId]) -> Result<u64> {
        let keys: Vec<IdKey> = ids.iter().map(DialogueId::key).collect();
        self.ahead(&keys)?;
        let there: Vec<IdKey> =
            keys.into_iter().filter(|key| self.known.get(key).copied().flatten().is_some()).collect();
        for some in there.chunks(ROWS / 4) {
            let filter = among(some);
            // Without its record a dialogue does not count any more; the rest is tidying up.
            self.delete_where(&self.records(), &filter)?;
            for kind in Kind::ALL {
                self.delete_where(&self.collection(kind), &filter)?;
            }
        }
        there.iter().for_each(|key| {
            self.known.insert(*key, None);
        });
        Ok(there.len() as u64)
    }

    /// Removes the dialogues that fit a filter; gives how many did.
    pub fn delete_fitting(&mut self, filter: &Filter) -> Result<u64> {
        let (mut deleted, mut behind) = (0, None);
        loop {
            let (found, next) = self.connection.listed(&self.manifest, behind, Some(filter), ROWS / 4)?;
            let ids: Vec<DialogueId> = found.into_iter().map(|dialogue| dialogue.id).collect();
            deleted += self.delete(&ids)?;
            if next.is_none() {
                return Ok(deleted);
            }
            behind = next;
        }
    }

    /// Writes rows in parts that a server takes.
    fn write(&mut self, dialogues: &[(Dialogue, Version)]) -> Result<()> {
        let mut waiting: [Waiting<'_>; 2] = Default::default();
        for (dialogue, version) in dialogues {
            for turn in &dialogue.turns {
                waiting[0].rows.push(dialogue, Some(turn), *version, self.analyzer)?;
                waiting[0].of.push(Of::Turn(dialogue, &turn.text));
            }
            waiting[1].rows.push(dialogue, None, *version, self.analyzer)?;
            waiting[1].of.push(Of::Dialogue(dialogue));
            for kind in Kind::ALL {
                self.flush(kind, &mut waiting[kind as usize], false)?;
            }
        }
        for kind in Kind::ALL {
            self.flush(kind, &mut waiting[kind as usize], true)?;
        }
        Ok(())
    }

    fn flush(&mut self, kind: Kind, waiting: &mut Waiting<'_>, all: bool) -> Result<()> {
        let width = self.manifest.recipe.as_ref().map_or(0, |recipe| recipe.dim);
        let full =
            waiting.rows.len() >= ROWS || waiting.rows.bytes() + 4 * width * waiting.rows.len() >= BYTES;
        if waiting.rows.len() == 0 || !(all || full) {
            return Ok(());
        }
        let Waiting { mut rows, of } = std::mem::take(waiting);
        self.cut += rows.cut();
        if let Some(encoder) = &self.encoder {
            rows.set_vectors(vectors(encoder.as_ref(), &self.options, &of)?);
        }
        self.upsert(&self.collection(kind), rows.into_columns())
    }

    /// Writes records: all their pieces but the first, then those, with which they count.
    fn write_records(&self, dialogues: &[(Dialogue, Version)]) -> Result<()> {
        let (mut first, mut rest) = (Pieces::default(), Pieces::default());
        for (dialogue, version) in dialogues {
            let json = serde_json::to_string(dialogue).map_err(|e| Error::Internal(e.to_string()))?;
            pieces(dialogue.id.key(), *version, &dialogue.source, &json, &mut first, &mut rest);
        }
        for pieces in [rest, first] {
            if pieces.len() > 0 {
                self.upsert(&self.records(), pieces.into_columns())?;
            }
        }
        Ok(())
    }

    /// Removes what is left of dialogues as they were before.
    fn sweep(&self, dialogues: &[(Dialogue, Version)]) -> Result<()> {
        let replaced: Vec<(IdKey, Version)> = dialogues
            .iter()
            .map(|(dialogue, version)| (dialogue.id.key(), *version))
            .filter(|(key, _)| self.replaced.contains(key))
            .collect();
        for some in replaced.chunks(ROWS / 4) {
            let keys: Vec<IdKey> = some.iter().map(|(key, _)| *key).collect();
            let versions: Vec<String> = some.iter().map(|(_, version)| version.0.to_string()).collect();
            let filter = format!("{} and version not in [{}]", among(&keys), versions.join(", "));
            for collection in
                [self.collection(Kind::Utterances), self.collection(Kind::Dialogues), self.records()]
            {
                self.delete_where(&collection, &filter)?;
            }
        }
        Ok(())
    }
}

/// Rows that are not written yet, and what their vectors are of.
#[derive(Default)]
struct Waiting<'a> {
    rows: Rows,
    of: Vec<Of<'a>>,
}

enum Of<'a> {
    Turn(&'a Dialogue, &'a str),
    Dialogue(&'a Dialogue),
}

/// The vectors of rows; texts that come again are encoded once.
fn vectors(encoder: &dyn Encoder, options: &Options, of: &[Of<'_>]) -> Result<Vec<Vec<f32>>> {
    let mut texts: Vec<&str> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut dialogues: Vec<&Dialogue> = Vec::new();
    for of in of {
        match of {
            Of::Turn(_, text) => {
                places.entry(text).or_insert_with(|| {
                    texts.push(text);
                    texts.len() - 1
                });
            }
            Of::Dialogue(dialogue) => dialogues.push(dialogue),
        }
    }
    let encoded = match texts.is_empty() {
        true => Vectors::new(encoder.dim()),
        false => encoder.encode(&texts, &options.texts)?.vectors,
    };
    let whole = match dialogues.is_empty() {
        true => Vectors::new(encoder.dim()),
        false => encoder.encode_dialogues(&dialogues, &options.dialogues)?.vectors,
    };
    let mut next = 0;
    of.iter()
        .map(|of| {
            let (vector, dialogue) = match of {
                Of::Turn(dialogue, text) => (encoded.row(places[text]), dialogue),
                Of::Dialogue(dialogue) => {
                    next += 1;
                    (whole.row(next - 1), dialogue)
                }
            };
            check(vector, dialogue)?;
            Ok(vector.to_vec())
        })
        .collect()
}

/// Milvus takes any numbers, and what it then finds is anything.
fn check(vector: &[f32], dialogue: &Dialogue) -> Result<()> {
    if vector.iter().all(|v| v.is_finite()) {
        return Ok(());
    }
    Err(Error::Data {
        message: format!("{}: a vector has a number that is none (NaN or infinity)", dialogue.id),
        hint: Some("take the model in another precision, or another model".to_owned()),
    })
}

fn among(keys: &[IdKey]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| names::quoted(&key_text(*key))).collect();
    format!("key in [{}]", keys.join(", "))
}

fn other_encoder(target: &Target, manifest: &Manifest, encoder: Option<&dyn Encoder>) -> Error {
    let there =
        manifest.recipe.as_ref().map(|r| format!("{} ({})", r.name, r.fingerprint)).unwrap_or_default();
    let here =
        encoder.map_or("none is here".to_owned(), |e| format!("{} ({}) is here", e.name(), e.fingerprint()));
    Error::Input {
        message: format!("the vectors at {target} are of {there}, and {here}"),
        hint: Some(
            "take the model that made them (--model), or bring the dialogues into another name".to_owned(),
        ),
    }
}

impl Home for MilvusHome {
    fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>> {
        let waiting = self.pending.iter().rev().find(|(dialogue, _)| dialogue.id == *id);
        let key = id.key();
        match (waiting, self.known.get(&key)) {
            (Some((dialogue, _)), _) => Ok(Some(dialogue.clone())),
            (None, Some(None)) => Ok(None),
            (None, _) => {
                let mut read = self.connection.records(&self.manifest, &[key])?;
                Ok(read.remove(&key).map(|(_, dialogue)| dialogue))
            }
        }
    }

    fn ahead(&mut self, ids: &[IdKey]) -> Result<()> {
        let unknown: Vec<IdKey> = ids.iter().filter(|key| !self.known.contains_key(key)).copied().collect();
        for some in unknown.chunks(ROWS / 4) {
            let filter = format!("{} and piece == 0", among(some));
            let found = self.connection.rows(&self.records(), filter, &["key", "version"])?;
            let found = columns(&found);
            some.iter().for_each(|key| {
                self.known.insert(*key, None);
            });
            for (key, version) in found.texts("key").iter().zip(found.numbers("version")) {
                if let Some(key) = key_of(key) {
                    self.known.insert(key, Some(Version(*version)));
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, prepared: &Prepared) -> Result<Put> {
        self.ahead(&[prepared.id])?;
        let version = Version::of(prepared.content);
        let known = self.known.get(&prepared.id).copied().flatten();
        if known == Some(version) {
            return Ok(Put::Unchanged);
        }
        let dialogue: Dialogue =
            serde_json::from_slice(&prepared.json).map_err(|e| Error::Internal(e.to_string()))?;
        // What Milvus does not take is told of the record that has it, before anything of it is written.
        Rows::default().push(&dialogue, None, version, self.analyzer)?;
        for turn in &dialogue.turns {
            Rows::default().push(&dialogue, Some(turn), version, self.analyzer)?;
        }
        self.pending_bytes += prepared.json.len();
        self.pending.push((dialogue, version));
        self.known.insert(prepared.id, Some(version));
        match known {
            Some(_) => {
                self.replaced.insert(prepared.id);
                Ok(Put::Replaced)
            }
            None => Ok(Put::Added),
        }
    }

    fn pending(&self) -> usize {
        self.pending.len()
    }

    fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    fn commit(&mut self, _: Option<IngestMark>) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let dialogues = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        self.write(&dialogues)?;
        self.write_records(&dialogues)?;
        self.sweep(&dialogues)?;
        self.replaced.clear();
        // It could be everything that there is; what comes again is asked for again.
        if self.known.len() > 1_000_000 {
            self.known.clear();
        }
        Ok(())
    }

    /// What is there already is passed over by its version, so that no place needs to be kept.
    fn unfinished(&self) -> Option<IngestMark> {
        None
    }

    fn set_rejected(&mut self, _: &str, _: u64) {}

    fn texts(&self, _: &mut dyn FnMut(IdKey, IdKey)) -> Result<()> {
        Err(Error::Unsupported {
            message: "finding duplicates among what is in Milvus (--dedupe) is not possible".to_owned(),
            hint: Some("`turnwise corpus convert --dedupe` leaves them out before".to_owned()),
        })
    }
}
