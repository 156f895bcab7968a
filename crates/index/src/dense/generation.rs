//! One version of the graphs (a generation): manifest, files, and the tables that map the rows of a graph to dialogues
//! and turns.

use std::{
    cmp::Ordering,
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

pub(super) const FORMAT: u32 = 1;
const NAME: &str = "manifest.json";
const CURRENT: &str = "current.json";

/// Manifest of a generation, which is one version of the graphs of an index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the file format.
    pub format: u32,
    /// Version of turnwise that wrote the file.
    pub turnwise: String,
    /// Folder name of the vector set that the graphs were built from.
    pub vectors: String,
    /// Fingerprint of the encoder that made the vectors.
    pub encoder: Fingerprint,
    /// Id of the record log. The graphs are valid for this log only.
    pub log: String,
    /// Log position of the snapshot that the graphs were built from.
    pub at: Position,
    /// Number of dialogues in the index when the graphs were built.
    pub dialogues_there: u64,
    /// Name of the graph builder.
    pub builder: String,
    /// Statistics of the graph of utterances.
    pub utterances: GraphStats,
    /// Statistics of the graph of dialogues.
    pub dialogues: GraphStats,
    /// Name and CRC-32 of each table file. A graph file contains its own checksum.
    pub checksums: Vec<(String, u32)>,
}

/// Statistics of a graph, recorded when it was built.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphStats {
    /// Number of utterances or dialogues in the index, with or without a vector.
    pub there: u64,
    /// Number of utterances or dialogues without a vector.
    pub without: u64,
    /// Number of utterances or dialogues with a zero vector, which are not in the graph. A vector is zero if the
    /// encoder knows no token of the text.
    pub unknown: u64,
    /// Number of vectors of this kind in the vector set, including those of deleted texts.
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
    /// Distribution of the cosines of random pairs. Each pair consists of an utterance and a dialogue. Empty in the
    /// statistics of the utterance graph.
    #[serde(default, skip_serializing_if = "SimilarityDistribution::is_empty")]
    pub of_utterances: SimilarityDistribution,
}

impl Manifest {
    /// Returns the statistics of the graph of a kind.
    pub fn part(&self, kind: Kind) -> &GraphStats {
        match kind {
            Kind::Utterances => &self.utterances,
            Kind::Dialogues => &self.dialogues,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Current {
    format: u32,
    generation: String,
}

/// One version of the graphs of an index (a generation), opened for searching.
pub(super) struct Generation {
    pub(super) folder: PathBuf,
    pub(super) manifest: Manifest,
    /// The graph of utterances, followed by the graph of dialogues.
    pub(super) graphs: [GraphFile; 2],
    pub(super) dialogues: Dialogues,
    pub(super) utterances: Utterances,
}

impl Generation {
    /// Opens the graphs in use; `None` if the index has no graphs.
    pub(super) fn open(root: &Path) -> Result<Option<Self>> {
        let current = folder(root).join(CURRENT);
        let mut tries = 0;
        loop {
            if !current.exists() {
                return Ok(None);
            }
            let name = named(&current)?;
            match Generation::open_in(folder(root).join(&name)) {
                // Another process may have switched to new graphs and removed this folder: open the new graphs.
                Err(_) if tries < 20 && named(&current).is_ok_and(|now| now != name) => tries += 1,
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

fn named(current: &Path) -> Result<String> {
    let Current { generation, .. } = sealed::read(current, FORMAT, damaged)?;
    if generation.is_empty() || !generation.bytes().all(|b| b.is_ascii_digit()) {
        return Err(damaged(current, format!("`{generation}` is not a valid generation name")));
    }
    Ok(generation)
}

/// Returns the manifest of the graphs in use, even if the graphs are damaged; `None` if the index has no graphs.
pub(super) fn manifest(root: &Path) -> Option<Result<Manifest>> {
    let current = folder(root).join(CURRENT);
    let read = || sealed::read(&folder(root).join(named(&current)?).join(NAME), FORMAT, damaged);
    current.exists().then(read)
}

pub(super) fn graph_path(folder: &Path, kind: Kind) -> PathBuf {
    folder.join(format!("{}.graph", kind.name()))
}

/// Adds the checksums of the table files to a manifest, writes it to `folder`, and returns it. All other files in the
/// folder must already be complete.
pub(super) fn seal(folder: &Path, mut manifest: Manifest) -> Result<Manifest> {
    manifest.checksums.clear();
    for name in [DIALOGUES, KEYS, UTTERANCES] {
        let path = folder.join(name);
        manifest.checksums.push((name.to_owned(), crc32fast::hash(&fs::read(&path).at("read", &path)?)));
    }
    sealed::write(&folder.join(NAME), &manifest)?;
    Ok(manifest)
}

pub(super) fn switch(root: &Path, generation: &str) -> Result<()> {
    let current = Current { format: FORMAT, generation: generation.to_owned() };
    sealed::write(&folder(root).join(CURRENT), &current)
}

/// Removes all graph folders except `keep`, including those of unfinished builds. A process that has opened removed
/// graphs can continue to use them.
pub(super) fn remove_others(root: &Path, keep: &Path) {
    for (_, other) in all(root).into_iter().filter(|(_, folder)| folder != keep) {
        let _ = fs::remove_dir_all(other);
    }
}

/// Returns the numbers and folders of all versions of the graphs, including those of unfinished builds.
pub(super) fn all(root: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = fs::read_dir(folder(root)) else { return Vec::new() };
    let number = |path: &Path| path.file_name()?.to_str()?.parse().ok();
    entries.flatten().filter_map(|e| Some((number(&e.path())?, e.path()))).collect()
}

const DIALOGUES: &str = "dialogues.places";
const KEYS: &str = "dialogues.keys";
const UTTERANCES: &str = "utterances.places";

/// A memory-mapped table with entries of `N` bytes.
struct Table<const N: usize>(Mmap);

impl<const N: usize> Table<N> {
    /// Maps a table file into memory, and checks that it has `entries` entries.
    fn open(path: &Path, entries: u64) -> Result<Self> {
        let file = File::open(path).at("open", path)?;
        // SAFETY: files of a generation never change.
        let map = unsafe { Mmap::map(&file) }.at("map", path)?;
        let (bytes, expected) = (map.len(), entries * N as u64);
        if bytes as u64 != expected {
            return Err(damaged(path, format!("it has {bytes} bytes, expected {expected}")));
        }
        Ok(Table(map))
    }

    fn get(&self, at: u32) -> Option<&[u8; N]> {
        self.0.as_chunks().0.get(at as usize)
    }
}

/// The dialogues in one version of the graphs, sorted by descending id, with a lookup by key.
pub(super) struct Dialogues {
    entries: Table<24>,
    by_key: Table<4>,
}

impl Dialogues {
    pub(super) fn open(folder: &Path, count: u64) -> Result<Self> {
        let entries = Table::open(&folder.join(DIALOGUES), count)?;
        Ok(Dialogues { entries, by_key: Table::open(&folder.join(KEYS), count)? })
    }

    pub(super) fn get(&self, index: u32) -> Option<(IdKey, Seq)> {
        let (key, seq) = self.entries.get(index)?.split_at(16);
        Some((IdKey(key.try_into().ok()?), Seq(u64::from_le_bytes(seq.try_into().ok()?))))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.0.len() / 24
    }

    pub(super) fn find(&self, key: &IdKey) -> Option<u32> {
        let (by_key, _) = self.by_key.0.as_chunks::<4>();
        let found = by_key.binary_search_by(|index| {
            let other = self.get(u32::from_le_bytes(*index));
            other.map_or(Ordering::Greater, |(other, _)| other.cmp(key))
        });
        found.ok().map(|at| u32::from_le_bytes(by_key[at]))
    }

    pub(super) fn write(folder: &Path, dialogues: &[(IdKey, Seq)]) -> Result<()> {
        let bytes = |(key, seq): &(IdKey, Seq)| [&key.0[..], &seq.0.to_le_bytes()].concat();
        write(&folder.join(DIALOGUES), dialogues.iter().map(bytes))?;
        let mut by_key: Vec<u32> = (0..dialogues.len() as u32).collect();
        by_key.sort_unstable_by_key(|index| dialogues[*index as usize].0);
        write(&folder.join(KEYS), by_key.iter().map(|index| index.to_le_bytes().to_vec()))
    }
}

/// The utterances in one version of the graphs. An entry has the index of the utterance's dialogue, and the turn.
pub(super) struct Utterances(Table<8>);

impl Utterances {
    pub(super) fn open(folder: &Path, count: u64) -> Result<Self> {
        Table::open(&folder.join(UTTERANCES), count).map(Utterances)
    }

    pub(super) fn get(&self, index: u32) -> Option<(u32, TurnNo)> {
        let (dialogue, turn) = self.0.get(index)?.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).ok();
        Some((number(dialogue)?, TurnNo(number(turn)?)))
    }

    pub(super) fn len(&self) -> usize {
        self.0.0.len() / 8
    }

    /// Returns the row of a turn. The rows are sorted by dialogue. Within a dialogue, the last turn comes first.
    pub(super) fn row(&self, dialogue: u32, turn: TurnNo) -> Option<u32> {
        let (mut from, mut to) = (0, self.len() as u32);
        while from < to {
            let middle = from + (to - from) / 2;
            let (other, number) = self.get(middle)?;
            match other.cmp(&dialogue).then(turn.cmp(&number)) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    pub(super) fn write(folder: &Path, utterances: &[(u32, TurnNo)]) -> Result<()> {
        let bytes =
            |(dialogue, turn): &(u32, TurnNo)| [dialogue.to_le_bytes(), turn.0.to_le_bytes()].concat();
        write(&folder.join(UTTERANCES), utterances.iter().map(bytes))
    }
}

fn write(path: &Path, entries: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let mut out = BufWriter::new(File::create_new(path).at("create", path)?);
    for entry in entries {
        out.write_all(&entry).at("write", path)?;
    }
    let file = out.into_inner().map_err(|e| e.into_error()).at("write", path)?;
    file.sync_all().at("flush", path)
}
