//! Copies an index to Milvus, into a new generation of a collection. Searches use the copy only after it has been
//! verified.

use std::{path::Path, time::Instant};

use turnwise_core::{
    error::{Error, Result},
    ids::DialogueId,
    numbers::counted,
};
use turnwise_index::{engine::Engine, vectors::VectorReader};
use turnwise_milvus::{MilvusWriter, Target, VectorSource};
use turnwise_search::{Searcher, Tuning};
use turnwise_store::{Prepared, PutOutcome, Snapshot, ingest::DialogueSink};

use super::{
    CONTINUES, Migration, MigrationSettings, check_content, check_samples, content::Content, content_of,
    resumable, samples,
};
use crate::progress::{Amount, Progress, Step, stop_if_asked};

/// Maximum number of dialogues per batch.
const BATCH: usize = 1_000;
/// Size in bytes at which a batch is full, even if it has fewer than [`BATCH`] dialogues.
const BYTES: usize = 16 << 20;

/// Copies an index to Milvus.
///
/// # Errors
///
/// [`Error::Input`] if the collection has dialogues and `replace` is not set, or if vectors are missing;
/// [`Error::Data`] if the copy differs from the index.
pub fn to_milvus(
    root: &Path,
    target: &Target,
    settings: &MigrationSettings<'_>,
    progress: &dyn Progress,
) -> Result<Migration> {
    copy(root, target, settings, progress).map_err(resumable)
}

fn copy(
    root: &Path,
    target: &Target,
    settings: &MigrationSettings<'_>,
    progress: &dyn Progress,
) -> Result<Migration> {
    let searcher = Searcher::open(root)?;
    let here = searcher.embedded("migration")?;
    let snapshot = here.snapshot();
    let vectors = VectorReader::open(root)?;
    if MilvusWriter::read_manifest(target)?.is_some() && !settings.replace {
        return Err(Error::input(format!("{target} already has dialogues"))
            .with_hint("--replace replaces them once the copy is complete; or use a different name"));
    }
    let content = summarize(root, snapshot, vectors.as_ref(), progress)?;
    if vectors.is_none() {
        progress.warn(format!(
            "{} has no vectors: only lexical search will work until `turnwise encode --engine {target}` creates them",
            root.display()
        ));
    }
    let recipe = vectors.as_ref().map(|vectors| vectors.recipe().clone());
    let source = vectors.map(|vectors| Box::new(vectors) as Box<dyn VectorSource>);
    let begun = Instant::now();
    let mut writer = MilvusWriter::new_generation(target, here.analyzer(), recipe, source)?;
    progress.begin(Step::Copying, Some(content.dialogues), 0);
    let already_there = fill(&mut writer, snapshot, progress)?;
    progress.end();
    if let Some(warning) = writer.truncation_warning() {
        progress.warn(warning);
    }
    writer.flush()?;
    let moving = begun.elapsed().as_secs_f64();
    read_back(&mut writer, snapshot, &content, target, progress)?;
    let sampled = samples::compare(snapshot, settings.samples, here, &writer.open_engine()?)?;
    check_samples(&sampled, &target.to_string(), progress)?;
    writer.finish()?;
    if Tuning::read(root)?.is_some() {
        progress.warn(
            "the tuned search settings of the index are not copied: Milvus uses the defaults".to_owned(),
        );
    }
    let names = [root.display().to_string(), target.to_string()];
    let seconds = [moving, begun.elapsed().as_secs_f64()];
    Ok(Migration::new(names, &content, already_there, sampled, seconds))
}

/// Computes the counts and checksums of the index. Returns an error if the index has vectors, but some are missing.
fn summarize(
    root: &Path,
    snapshot: &Snapshot,
    vectors: Option<&VectorReader>,
    progress: &dyn Progress,
) -> Result<Content> {
    let (content, missing) = content_of(snapshot, vectors, Step::Reading, progress)?;
    match missing {
        0 => Ok(content),
        n => Err(Error::input(format!("{} of {} missing", counted(n, "vector"), root.display()))
            .with_hint(format!("`turnwise encode -i {}` creates them", root.display()))),
    }
}

/// Copies the dialogues that the target does not contain yet. Returns the number of dialogues that it already
/// contained.
fn fill(writer: &mut MilvusWriter, snapshot: &Snapshot, progress: &dyn Progress) -> Result<u64> {
    let mut live = snapshot.records();
    let (mut done, mut already_there) = (0, 0);
    loop {
        stop_if_asked(progress, CONTINUES)?;
        let (mut batch, mut bytes) = (Vec::with_capacity(BATCH), 0);
        while batch.len() < BATCH
            && bytes < BYTES
            && let Some(record) = live.next_record()
        {
            let prepared = Prepared::new(&record?.dialogue()?)?;
            bytes += prepared.json.len();
            batch.push(prepared);
        }
        if batch.is_empty() {
            return Ok(already_there);
        }
        let keys: Vec<_> = batch.iter().map(|prepared| prepared.id).collect();
        writer.prefetch(&keys)?;
        for prepared in &batch {
            already_there += u64::from(writer.put(prepared)? == PutOutcome::Unchanged);
        }
        writer.commit(None)?;
        done += batch.len() as u64;
        progress.advance(Amount::units(done));
    }
}

/// Reads the copy back and compares it with the index. Also removes from the copy the dialogues that the index no
/// longer contains. An earlier run copied them.
fn read_back(
    writer: &mut MilvusWriter,
    snapshot: &Snapshot,
    content: &Content,
    target: &Target,
    progress: &dyn Progress,
) -> Result<()> {
    progress.begin(Step::CheckingDialogues, Some(content.dialogues), 0);
    let (mut there, mut strangers) = (Content::default(), Vec::<DialogueId>::new());
    let mut walk = writer.walk()?;
    while let Some((_, part)) = walk.next_part()? {
        stop_if_asked(progress, CONTINUES)?;
        for moved in part {
            match snapshot.seq_of(moved.dialogue.id.key()) {
                Some(_) => there.add_moved(&moved)?,
                None => strangers.push(moved.dialogue.id),
            }
        }
        progress.advance(Amount::units(there.dialogues));
    }
    progress.end();
    writer.delete(&strangers)?;
    check_content(content, &there, &target.to_string())?;
    let totals = writer.totals()?;
    if (totals.dialogues, totals.turns) == (content.dialogues, content.turns) {
        return Ok(());
    }
    Err(Error::data(format!(
        "{target} reports {} with {}, but {} with {} were copied; the data are not visible yet",
        counted(totals.dialogues, "dialogue"),
        counted(totals.turns, "turn"),
        counted(content.dialogues, "dialogue"),
        counted(content.turns, "turn")
    ))
    .with_hint("leftovers are counted, too; run the same command again to remove them"))
}
