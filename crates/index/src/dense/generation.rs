//! A generation of graphs: its manifest and its files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use turnwise_nearest::GraphFile;

use super::{
    SimilarityDistribution, damaged, folder,
    places::{self, Dialogues, Utterances},
};
use crate::{sealed, vectors::Kind};
use turnwise_core::error::{IoContext, Result};
use turnwise_encoder::Fingerprint;
use turnwise_store::Position;

const FORMAT: u32 = 1;
const NAME: &str = "manifest.json";
const CURRENT: &str = "current.json";

/// Manifest of a generation: the vectors, the log position and the settings of the build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the file format.
    pub format: u32,
    /// Version of turnwise that wrote the file.
    pub turnwise: String,
    /// Folder name of the vector set.
    pub vectors: String,
    /// Fingerprint of the encoder.
    pub encoder: Fingerprint,
    /// Id of the log.
    pub log: String,
    /// Log position of the build.
    pub at: Position,
    /// Number of dialogues in the index at the build.
    pub dialogues_there: u64,
    /// Name of the graph builder.
    pub builder: String,
    /// Graph of the utterances.
    pub utterances: Part,
    /// Graph of the dialogues.
    pub dialogues: Part,
    /// Checksums of the files that contain no checksum, by file name.
    pub checksums: Vec<(String, u32)>,
}

/// Statistics of one graph of a generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Number of utterances or dialogues in the index at the build.
    pub there: u64,
    /// Number of utterances or dialogues without a vector.
    pub without: u64,
    /// Number of utterances or dialogues with a zero vector. The encoder knows none of their tokens, and they have no
    /// neighbors.
    pub unknown: u64,
    /// Number of vectors of this kind in the vector set.
    pub vectors: u64,
    /// Number of distinct vectors.
    pub nodes: u64,
    /// Recall@10, measured after the build.
    pub recall: f64,
    /// Number of queries used to measure the recall.
    pub recall_queries: u64,
    /// Distribution of the cosines of random pairs of vectors.
    #[serde(default)]
    pub background: SimilarityDistribution,
    /// Only for dialogues: distribution of the cosines of random utterances and dialogues. Used when an utterance is
    /// the query in a search for dialogues.
    #[serde(default, skip_serializing_if = "SimilarityDistribution::is_empty")]
    pub of_utterances: SimilarityDistribution,
}

impl Manifest {
    /// Returns the statistics of a kind's graph.
    pub fn part(&self, kind: Kind) -> &Part {
        match kind {
            Kind::Utterances => &self.utterances,
            Kind::Dialogues => &self.dialogues,
        }
    }

    pub(super) const FORMAT: u32 = FORMAT;
}

/// Content of `current.json`.
#[derive(Serialize, Deserialize)]
struct Current {
    format: u32,
    generation: String,
}

/// An open generation.
pub(super) struct Generation {
    pub(super) folder: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) graphs: [GraphFile; 2],
    pub(super) dialogues: Dialogues,
    pub(super) utterances: Utterances,
}

impl Generation {
    /// Opens the generation in use; `None` if there is none.
    pub(super) fn open(root: &Path) -> Result<Option<Self>> {
        let current = folder(root).join(CURRENT);
        let mut tries = 0;
        loop {
            if !current.exists() {
                return Ok(None);
            }
            let named = named(&current)?;
            let opened = Generation::open_in(folder(root).join(&named.generation));
            // Another process may have switched and removed this generation; then open the new one.
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
        let graph = |kind: Kind| GraphFile::open(&graph_path(&folder, kind));
        Ok(Generation {
            graphs: [graph(Kind::ALL[0])?, graph(Kind::ALL[1])?],
            dialogues: Dialogues::open(&folder, manifest.dialogues_there)?,
            utterances: Utterances::open(&folder, manifest.utterances.there)?,
            manifest,
            folder,
        })
    }

    /// Verifies the checksums of all files.
    pub(super) fn verify(&self) -> Result<()> {
        self.graphs.iter().try_for_each(GraphFile::verify)?;
        for (name, crc) in &self.manifest.checksums {
            let path = self.folder.join(name);
            if crc32fast::hash(&fs::read(&path).at("read", &path)?) != *crc {
                return Err(damaged(&path, "its checksum is wrong".to_owned()));
            }
        }
        Ok(())
    }
}

/// Reads the name of the generation in use.
fn named(current: &Path) -> Result<Current> {
    let named: Current = sealed::read(current, FORMAT, damaged)?;
    if named.generation.is_empty() || !named.generation.bytes().all(|b| b.is_ascii_digit()) {
        return Err(damaged(current, format!("`{}` is not a valid generation name", named.generation)));
    }
    Ok(named)
}

/// Returns the manifest of the generation in use, even if its graphs are damaged; `None` if there is none.
pub(super) fn manifest(root: &Path) -> Option<Result<Manifest>> {
    let current = folder(root).join(CURRENT);
    let read = || sealed::read(&folder(root).join(named(&current)?.generation).join(NAME), FORMAT, damaged);
    current.exists().then(read)
}

pub(super) fn graph_path(folder: &Path, kind: Kind) -> PathBuf {
    folder.join(format!("{}.graph", kind.name()))
}

/// Writes the manifest of a generation. It is always the last file to be written.
pub(super) fn seal(folder: &Path, mut manifest: Manifest) -> Result<Manifest> {
    manifest.checksums.clear();
    for path in [places::dialogues_path(folder), places::keys_path(folder), places::utterances_path(folder)] {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        manifest.checksums.push((name, crc32fast::hash(&fs::read(&path).at("read", &path)?)));
    }
    sealed::write(&folder.join(NAME), &manifest)?;
    Ok(manifest)
}

/// Makes another generation the generation in use.
pub(super) fn switch(root: &Path, generation: &str) -> Result<()> {
    let current = Current { format: FORMAT, generation: generation.to_owned() };
    sealed::write(&folder(root).join(CURRENT), &current)
}

/// Removes all generations except `keep`. Readers that have a removed generation mapped can continue to use it.
pub(super) fn remove_others(root: &Path, keep: &Path) {
    for (_, other) in all(root).into_iter().filter(|(_, folder)| folder != keep) {
        let _ = fs::remove_dir_all(other);
    }
}

/// Returns the numbers and folders of all generations, complete or not.
pub(super) fn all(root: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = fs::read_dir(folder(root)) else { return Vec::new() };
    let number = |path: &Path| path.file_name()?.to_str()?.parse().ok();
    entries.flatten().filter_map(|e| Some((number(&e.path())?, e.path()))).collect()
}
