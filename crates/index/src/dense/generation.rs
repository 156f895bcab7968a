//! A generation of graphs: its manifest, its files, and the tables that map the rows of a graph to dialogues and
//! turns.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use memmap2::Mmap;
use serde::{Deserialize, Serialize};

use super::{SimilarityDistribution, damaged, folder};
use crate::{sealed, vectors::Kind};
use turnwise_core::{
    error::{IoContext, Result},
    ids::{IdKey, Seq, TurnNo},
};
use turnwise_encoder::Fingerprint;
use turnwise_nearest::GraphFile;
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
    /// Fingerprint of the encoder that made the vectors.
    pub encoder: Fingerprint,
    /// Id of the record log. A generation is valid for this log only.
    pub log: String,
    /// Log position of the snapshot that the generation was built from.
    pub at: Position,
    /// Number of dialogues in the index at the build.
    pub dialogues_there: u64,
    /// Name of the graph builder.
    pub builder: String,
    /// Statistics of the graph of utterances.
    pub utterances: Part,
    /// Statistics of the graph of dialogues.
    pub dialogues: Part,
    /// File name and CRC-32 of each file that does not contain its own checksum.
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
    /// Number of graph nodes. Equal vectors share one node.
    pub nodes: u64,
    /// Recall@10 after the build, from 0 to 1.
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

/// The generation in use, opened for searching: its graphs and its dialogues.
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

/// Reads the file that names the generation in use.
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
    for path in [dialogues_path(folder), keys_path(folder), utterances_path(folder)] {
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

const DIALOGUE_BYTES: usize = 24;
const UTTERANCE_BYTES: usize = 8;

/// A memory-mapped table with entries of a fixed size.
pub(super) struct Table {
    map: Mmap,
    entry: usize,
}

impl Table {
    /// Maps a table, and checks that it has this number of entries.
    fn open(path: &Path, entry: usize, entries: u64) -> Result<Self> {
        let file = File::open(path).at("open", path)?;
        // SAFETY: files of a generation never change.
        let map = unsafe { Mmap::map(&file) }.at("map", path)?;
        if map.len() as u64 != entries * entry as u64 {
            return Err(super::damaged(
                path,
                format!("it has {} bytes, expected {}", map.len(), entries * entry as u64),
            ));
        }
        Ok(Table { map, entry })
    }

    fn get(&self, at: u32) -> Option<&[u8]> {
        self.map.get(at as usize * self.entry..(at as usize + 1) * self.entry)
    }

    pub(super) fn len(&self) -> usize {
        self.map.len() / self.entry
    }
}

/// The dialogues of a generation, in its order, with a lookup by key.
pub(super) struct Dialogues {
    places: Table,
    by_key: Table,
}

impl Dialogues {
    pub(super) fn open(folder: &Path, count: u64) -> Result<Self> {
        Ok(Dialogues {
            places: Table::open(&dialogues_path(folder), DIALOGUE_BYTES, count)?,
            by_key: Table::open(&keys_path(folder), 4, count)?,
        })
    }

    pub(super) fn get(&self, place: u32) -> Option<(IdKey, Seq)> {
        let entry = self.places.get(place)?;
        Some((IdKey(entry[..16].try_into().ok()?), Seq(u64::from_le_bytes(entry[16..].try_into().ok()?))))
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the index of the dialogue with this key.
    pub(super) fn find(&self, key: &IdKey) -> Option<u32> {
        let (mut from, mut to) = (0, self.by_key.len());
        while from < to {
            let middle = (from + to) / 2;
            let place = self.by_key.get(middle as u32)?.try_into().map(u32::from_le_bytes).ok()?;
            match self.get(place)?.0.cmp(key) {
                std::cmp::Ordering::Equal => return Some(place),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    pub(super) fn write(folder: &Path, dialogues: &[(IdKey, Seq)]) -> Result<()> {
        write(
            &dialogues_path(folder),
            dialogues.iter().map(|(key, seq)| [&key.0[..], &seq.0.to_le_bytes()].concat()),
        )?;
        let mut by_key: Vec<u32> = (0..dialogues.len() as u32).collect();
        by_key.sort_unstable_by_key(|place| dialogues[*place as usize].0);
        write(&keys_path(folder), by_key.iter().map(|place| place.to_le_bytes().to_vec()))
    }
}

/// The utterances of a generation. Each entry has the index of the dialogue and the turn.
pub(super) struct Utterances(Table);

impl Utterances {
    pub(super) fn open(folder: &Path, count: u64) -> Result<Self> {
        Table::open(&utterances_path(folder), UTTERANCE_BYTES, count).map(Utterances)
    }

    pub(super) fn get(&self, place: u32) -> Option<(u32, TurnNo)> {
        let entry = self.0.get(place)?;
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).ok();
        Some((number(&entry[..4])?, TurnNo(number(&entry[4..])?)))
    }

    pub(super) fn write(folder: &Path, utterances: &[(u32, TurnNo)]) -> Result<()> {
        let bytes =
            |(dialogue, turn): &(u32, TurnNo)| [dialogue.to_le_bytes(), turn.0.to_le_bytes()].concat();
        write(&utterances_path(folder), utterances.iter().map(bytes))
    }
}

pub(super) fn dialogues_path(folder: &Path) -> PathBuf {
    folder.join("dialogues.places")
}

pub(super) fn keys_path(folder: &Path) -> PathBuf {
    folder.join("dialogues.keys")
}

pub(super) fn utterances_path(folder: &Path) -> PathBuf {
    folder.join("utterances.places")
}

fn write(path: &Path, entries: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let file = File::create_new(path).at("create", path)?;
    let mut out = BufWriter::new(file);
    for entry in entries {
        out.write_all(&entry).at("write", path)?;
    }
    let file = out.into_inner().map_err(|e| e.into_error()).at("write", path)?;
    file.sync_all().at("flush", path)
}
