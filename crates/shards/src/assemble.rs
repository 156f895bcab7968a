//! Assembles shards: verifies that all shards of the corpus are complete, and adds their vectors to an index.

use std::{path::Path, time::Instant};

use serde::Serialize;

use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
    numbers::counted,
};
use turnwise_index::vectors::{Kind, Mode, Reached, VectorReader, VectorWriter};
use turnwise_store::Snapshot;

use crate::{
    folder::{Folder, TemporaryFile},
    manifest::{self, ShardManifest},
    progress::{Amount, Progress, Step, stop_if_asked},
    survey::{Survey, survey},
    vector_files::read_rows,
};

/// Hint for the error after an interruption of the assembly.
const CONTINUES: &str = "the rows added so far are kept; run the same command again";

/// Result of adding shards to an index.
#[derive(Debug, Serialize)]
pub struct Assembled {
    schema: &'static str,
    /// Folder of the index.
    pub index: String,
    /// Folder or URL of the shards.
    pub place: String,
    /// Number of shards.
    pub shards: usize,
    /// Name of the encoder.
    pub encoder: String,
    /// Fingerprint of the encoder.
    pub fingerprint: String,
    /// Number of rows in all shards.
    pub rows: u64,
    /// Number of rows that were added. The index already contained the other rows, from an earlier run or from another
    /// shard.
    pub new: u64,
    /// Number of utterance vectors in the index after the assembly.
    pub utterance_vectors: u64,
    /// Number of dialogue vectors in the index after the assembly.
    pub dialogue_vectors: u64,
    /// Number of utterances and dialogues in the index that still have no vector.
    pub without: u64,
    /// Duration in seconds. Excludes the verification of the shards.
    pub seconds: f64,
}

/// Adds the vectors of all shards in a folder to an index. If `replace` is true, the vectors from the shards replace
/// all vectors in the index. `command_line` is stored in the lock file to identify this process.
///
/// # Errors
///
/// [`Error::Data`] if a shard is missing or damaged; its hint contains the command that encodes missing shards.
/// [`Error::Input`] if the index has vectors from a different encoder and `replace` is false.
pub fn into_index(
    folder: &dyn Folder,
    root: &Path,
    replace: bool,
    command_line: &str,
    progress: &dyn Progress,
) -> Result<Assembled> {
    let survey = complete_shards(folder, progress)?;
    let first = survey.first()?;
    let mode = if replace { Mode::Replace } else { Mode::Continue };
    if !replace {
        check_encoder(first, root, folder.name())?;
    }
    let snapshot = Snapshot::open(root)?;
    let mut writer = VectorWriter::open(root, &first.recipe, mode, command_line)?;
    let begun = Instant::now();
    let loaded = load_all(folder, &survey.manifests, &mut writer, CONTINUES, progress)?;
    let without = count_missing(&snapshot, &mut writer, first, progress)?;
    let seconds = begun.elapsed().as_secs_f64();
    let [utterance_vectors, dialogue_vectors] = Kind::ALL.map(|kind| writer.rows(kind));
    writer.finish()?;
    Ok(Assembled {
        schema: "turnwise/encode-assemble/1",
        index: root.display().to_string(),
        place: folder.name().to_owned(),
        shards: survey.manifests.len(),
        encoder: first.recipe.name.clone(),
        fingerprint: first.recipe.fingerprint.to_string(),
        rows: loaded.rows,
        new: loaded.new,
        utterance_vectors,
        dialogue_vectors,
        without,
        seconds,
    })
}

/// Finds all shards in a folder, and verifies their checksums if the folder is local. Returns an error if a shard is
/// missing or damaged.
pub(crate) fn complete_shards(folder: &dyn Folder, progress: &dyn Progress) -> Result<Survey> {
    let mut survey = survey(folder)?;
    // Shards in an object store are verified when they are downloaded.
    if folder.is_local() {
        verify_all(folder, &mut survey, progress)?;
    }
    survey.complete(folder.name())?;
    if let [first, ..] = survey.left_over.as_slice() {
        let n = survey.left_over.len() as u64;
        progress.detail(format!("{} not in any manifest, such as {first}", counted(n, "data file")));
    }
    Ok(survey)
}

/// Verifies the checksums of all shards, and marks shards with a wrong checksum as damaged.
fn verify_all(folder: &dyn Folder, survey: &mut Survey, progress: &dyn Progress) -> Result<()> {
    progress.begin(Step::CheckingShards, Some(survey.manifests.len() as u64), 0);
    for (done, manifest) in (1..).zip(survey.manifests.clone()) {
        stop_if_asked(progress, "nothing was put into the index")?;
        if !is_whole(folder, &manifest)? {
            let why = format!("the content of {} differs from its manifest", manifest.data.file);
            survey.reject(manifest.shard, &why);
        }
        progress.advance(Amount::units(done));
    }
    progress.end();
    Ok(())
}

/// Returns whether the size and the checksum of a shard's data file match its manifest.
pub(crate) fn is_whole(folder: &dyn Folder, manifest: &ShardManifest) -> Result<bool> {
    matches(&folder.fetch(&manifest.data.file)?, manifest)
}

fn matches(file: &TemporaryFile, manifest: &ShardManifest) -> Result<bool> {
    Ok(file.sum()? == (manifest.data.bytes, manifest.data.blake3.clone()))
}

/// Numbers of rows loaded from shards: all rows, and rows that the vector files did not contain before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Loaded {
    rows: u64,
    new: u64,
}

/// Adds the rows of all shards to the vector files of an index. `if_stopped` is the hint for the error after an
/// interruption.
pub(crate) fn load_all(
    folder: &dyn Folder,
    manifests: &[ShardManifest],
    writer: &mut VectorWriter,
    if_stopped: &str,
    progress: &dyn Progress,
) -> Result<Loaded> {
    let total = manifests.iter().flat_map(|m| Kind::ALL.into_iter().filter_map(|kind| m.rows(kind))).sum();
    progress.begin(Step::Assembling, Some(total), 0);
    let mut all = Loaded::default();
    for manifest in manifests {
        stop_if_asked(progress, if_stopped)?;
        let loaded = load(folder, manifest, writer)?;
        all.rows += loaded.rows;
        all.new += loaded.new;
        progress.advance(Amount::units(all.rows));
        progress.detail(format!("shard {}: {} new", manifest.shard, counted(loaded.new, "row")));
    }
    progress.end();
    Ok(all)
}

/// Adds the rows of one shard to the vector files. A downloaded data file is verified first, so that no row of a
/// damaged file is used.
fn load(folder: &dyn Folder, manifest: &ShardManifest, writer: &mut VectorWriter) -> Result<Loaded> {
    let file = folder.fetch(&manifest.data.file)?;
    // Local files do not need this check: they were verified before the first shard was loaded.
    if !folder.is_local() && !matches(&file, manifest)? {
        return Err(damaged(manifest));
    }
    let mut loaded = Loaded::default();
    let mut counts = [0; 2];
    read_rows(&file.path, manifest.data.target, &mut |id, row| {
        let (kind, key) = manifest::parse_row_id(id).ok_or_else(|| {
            Error::data(format!("`{id}` in {} is not a valid row id of a shard", manifest.data.file))
        })?;
        if row.len() != manifest.recipe.dim {
            return Err(damaged(manifest));
        }
        counts[kind as usize] += 1;
        loaded.rows += 1;
        loaded.new += u64::from(writer.put(kind, key, row)?);
        Ok(())
    })?;
    if Kind::ALL.into_iter().any(|kind| manifest.rows(kind).unwrap_or_default() != counts[kind as usize]) {
        return Err(damaged(manifest));
    }
    writer.commit().map(|()| loaded)
}

/// Returns the error for a data file that differs from its manifest.
fn damaged(manifest: &ShardManifest) -> Error {
    Error::data(format!(
        "shard {} is damaged: the content of {} differs from its manifest",
        manifest.shard, manifest.data.file
    ))
}

/// Returns an error if the shards' vectors cannot be mixed with the vectors in the index.
fn check_encoder(manifest: &ShardManifest, root: &Path, folder: &str) -> Result<()> {
    let Some(reader) = VectorReader::open(root)? else { return Ok(()) };
    let dialogues_too = reader.rows(Kind::Dialogues) > 0 && manifest.dialogues.is_some();
    let Some(what) = reader.recipe().conflict(&manifest.recipe, dialogues_too) else { return Ok(()) };
    let index = root.display();
    Err(Error::input(format!("{index} has {what}, which made the shards in {folder}")).with_hint(format!(
            "to replace the existing vectors: `turnwise encode --assemble {folder} -i {index} --replace`; or create \
             the shards again with --model {}",
            reader.recipe().model
        )))
}

/// Counts the utterances and dialogues of the index that still have no vector. If no vector of a kind is missing, marks
/// this kind as up to date. Otherwise, the next `encode` looks for the missing vectors.
fn count_missing(
    snapshot: &Snapshot,
    writer: &mut VectorWriter,
    manifest: &ShardManifest,
    progress: &dyn Progress,
) -> Result<u64> {
    let mut without = [0u64; 2];
    for dialogue in snapshot.dialogues() {
        stop_if_asked(progress, CONTINUES)?;
        let dialogue = dialogue?;
        for kind in manifest.kinds() {
            let lacks = |key: &&IdKey| !writer.contains(kind, key);
            without[kind as usize] += manifest::keys(kind, &dialogue).iter().filter(lacks).count() as u64;
        }
    }
    for kind in manifest.kinds() {
        let before = writer.manifest().extent(kind).reached.as_ref();
        let at = match without[kind as usize] {
            0 => snapshot.end(),
            _ => Reached::position_in(before, snapshot),
        };
        writer.set_reached(kind, Reached { log: snapshot.log_id().to_owned(), at });
    }
    Ok(without.iter().sum())
}
