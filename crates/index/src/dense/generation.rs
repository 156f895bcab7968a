//! A generation: what it was built of, and its files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use turnwise_nearest::Frozen;

use super::{
    Background, damaged, folder,
    places::{self, Dialogues, Utterances},
};
use crate::{sealed, vectors::Kind};
use turnwise_core::error::{IoContext, Result};
use turnwise_encoder::Fingerprint;
use turnwise_store::Position;

const FORMAT: u32 = 1;
const NAME: &str = "manifest.json";
const CURRENT: &str = "current.json";

/// What a generation was built of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the files' format.
    pub format: u32,
    /// The turnwise that wrote it.
    pub turnwise: String,
    /// The folder of the vectors it was built of.
    pub vectors: String,
    /// The encoder that made them.
    pub encoder: Fingerprint,
    /// The log's name.
    pub log: String,
    /// How far the log had come.
    pub at: Position,
    /// Dialogues that were there.
    pub dialogues_there: u64,
    /// What builds the graphs.
    pub builder: String,
    /// The graph of the utterances.
    pub utterances: Part,
    /// The graph of the dialogues.
    pub dialogues: Part,
    /// Checksums of the files that have none within, by name.
    pub checksums: Vec<(String, u32)>,
}

/// A graph of a generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Utterances or dialogues that were there.
    pub there: u64,
    /// Those that had no vector yet.
    pub without: u64,
    /// Those of which the encoder knew nothing: a vector that is all zeros is near to nothing.
    pub unknown: u64,
    /// Vectors of the kind that the set had.
    pub vectors: u64,
    /// Different vectors.
    pub nodes: u64,
    /// Of the nearest ten, the part that is found.
    pub recall: f64,
    /// With how many queries that was measured.
    pub recall_queries: u64,
    /// How near any two of its vectors are.
    #[serde(default)]
    pub background: Background,
    /// Of dialogues: how near utterances are to them, as a query is that looks for dialogues.
    #[serde(default, skip_serializing_if = "Background::is_empty")]
    pub of_utterances: Background,
}

impl Manifest {
    /// What is known of a kind's graph.
    pub fn part(&self, kind: Kind) -> &Part {
        match kind {
            Kind::Utterances => &self.utterances,
            Kind::Dialogues => &self.dialogues,
        }
    }

    pub(super) const FORMAT: u32 = FORMAT;
}

/// What `current.json` says.
#[derive(Serialize, Deserialize)]
struct Current {
    format: u32,
    generation: String,
}

/// A generation that is open.
pub(super) struct Generation {
    pub(super) folder: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) graphs: [Frozen; 2],
    pub(super) dialogues: Dialogues,
    pub(super) utterances: Utterances,
}

impl Generation {
    /// Opens the one in use; `None` if there is none.
    pub(super) fn open(root: &Path) -> Result<Option<Self>> {
        let current = folder(root).join(CURRENT);
        let mut tries = 0;
        loop {
            if !current.exists() {
                return Ok(None);
            }
            let named = named(&current)?;
            let opened = Generation::open_in(folder(root).join(&named.generation));
            // A builder may have switched in between and removed this one; then another is named.
            let again = |named: &Current| {
                let now = sealed::read::<Current>(&current, FORMAT, damaged);
                now.is_ok_and(|now| now.generation != named.generation)
            };
            match opened {
                Err(_) if tries < 20 && again(&named) => tries += 1,
                other => return other.map(Some),
            }
        }
    }

    fn open_in(folder: PathBuf) -> Result<Self> {
        let manifest: Manifest = sealed::read(&folder.join(NAME), FORMAT, damaged)?;
        let graph = |kind: Kind| Frozen::open(&graph_path(&folder, kind));
        Ok(Generation {
            graphs: [graph(Kind::ALL[0])?, graph(Kind::ALL[1])?],
            dialogues: Dialogues::open(&folder, manifest.dialogues_there)?,
            utterances: Utterances::open(&folder, manifest.utterances.there)?,
            manifest,
            folder,
        })
    }

    /// Compares every byte with its checksum.
    pub(super) fn verify(&self) -> Result<()> {
        self.graphs.iter().try_for_each(Frozen::verify)?;
        for (name, crc) in &self.manifest.checksums {
            let path = self.folder.join(name);
            if crc32fast::hash(&fs::read(&path).at("read", &path)?) != *crc {
                return Err(damaged(&path, "its checksum is wrong".to_owned()));
            }
        }
        Ok(())
    }
}

/// The generation in use.
fn named(current: &Path) -> Result<Current> {
    let named: Current = sealed::read(current, FORMAT, damaged)?;
    if named.generation.is_empty() || !named.generation.bytes().all(|b| b.is_ascii_digit()) {
        return Err(damaged(current, format!("`{}` is no name of a generation", named.generation)));
    }
    Ok(named)
}

/// The manifest of the generation in use, whatever has become of its graphs; `None` if there is none.
pub(super) fn manifest(root: &Path) -> Option<Result<Manifest>> {
    let current = folder(root).join(CURRENT);
    let read = || sealed::read(&folder(root).join(named(&current)?.generation).join(NAME), FORMAT, damaged);
    current.exists().then(read)
}

pub(super) fn graph_path(folder: &Path, kind: Kind) -> PathBuf {
    folder.join(format!("{}.graph", kind.name()))
}

/// Writes a generation's manifest, its last file.
pub(super) fn seal(folder: &Path, mut manifest: Manifest) -> Result<Manifest> {
    manifest.checksums.clear();
    for path in [places::dialogues_path(folder), places::keys_path(folder), places::utterances_path(folder)] {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        manifest.checksums.push((name, crc32fast::hash(&fs::read(&path).at("read", &path)?)));
    }
    sealed::write(&folder.join(NAME), &manifest)?;
    Ok(manifest)
}

/// Makes a generation the one in use.
pub(super) fn switch(root: &Path, generation: &str) -> Result<()> {
    let current = Current { format: FORMAT, generation: generation.to_owned() };
    sealed::write(&folder(root).join(CURRENT), &current)
}

/// Removes every generation but one. Whoever has another mapped keeps it until he lets go.
pub(super) fn remove_others(root: &Path, keep: &Path) {
    for (_, other) in all(root).into_iter().filter(|(_, folder)| folder != keep) {
        let _ = fs::remove_dir_all(other);
    }
}

/// The folders of all generations, whole or not, with their numbers.
pub(super) fn all(root: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = fs::read_dir(folder(root)) else { return Vec::new() };
    let number = |path: &Path| path.file_name()?.to_str()?.parse().ok();
    entries.flatten().filter_map(|e| Some((number(&e.path())?, e.path()))).collect()
}
