//! `turnwise encode --assemble`: loads the vectors of all shards into an index, or with their dialogues
//! into Milvus.

mod remote;

use std::{
    io::{self, Write},
    path::Path,
    time::Instant,
};

use serde::Serialize;

use crate::cli::{
    Context,
    args::EncodeArgs,
    printer::{BOLD, DIM, counted, grouped},
    progress::ProgressBar,
    shards::{self, Destination, Place, Record, Set, survey},
    signals,
};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_index::vectors::{Kind, Mode, Reached, VectorReader, VectorWriter};
use turnwise_store::Snapshot;

/// Hint after an interrupted assembly.
const GOES_ON: &str = "the rows added so far are kept; run the same command again";

/// Result of the command. Also its JSON output.
#[derive(Serialize)]
struct Assembled {
    schema: &'static str,
    index: String,
    place: String,
    shards: usize,
    encoder: String,
    fingerprint: String,
    /// Number of rows in all shards.
    rows: u64,
    /// Number of rows that were not yet in the index, from an earlier run or a different shard.
    new: u64,
    utterance_vectors: u64,
    dialogue_vectors: u64,
    /// Number of utterances and dialogues of the index that are in no shard.
    without: u64,
    seconds: f64,
}

pub(super) fn run(place: &str, args: &EncodeArgs, context: &Context<'_>) -> Result<()> {
    if context.settings.engine.is_some() {
        return remote::run(place, args, context);
    }
    if let [first, ..] = args.inputs.as_slice() {
        return Err(Error::Input {
            message: format!(
                "{} is only read with --engine: an index already has its dialogues",
                first.display()
            ),
            hint: Some("remove it; `turnwise ingest` adds dialogues to an index".to_owned()),
        });
    }
    let root = context.existing_index()?;
    let place = shards::open(place)?;
    let set = complete_shards(place.as_ref(), context)?;
    let assembled = assemble(place.as_ref(), &set.records, &root, args.replace, context)?;
    context.printer.result(&assembled, |out| assembled.write(out))?;
    if assembled.without > 0 {
        context.printer.hint(format!("`turnwise encode -i {}` creates the missing vectors", root.display()));
    }
    Ok(())
}

/// Reads the shard records of a place. Returns an error if any shard is missing or damaged.
fn complete_shards(place: &dyn Place, context: &Context<'_>) -> Result<Set> {
    let mut set = survey(place)?;
    check_all(place, &mut set, context)?;
    set.complete(place.name())?;
    if let [first, ..] = set.left_over.as_slice() {
        let n = set.left_over.len() as u64;
        context.printer.detail(format!("{} not in any record, such as {first}", counted(n, "data file")));
    }
    Ok(set)
}

/// Copies the rows of all shards into a vector set. Returns the number of rows and the number of new ones.
fn load_all(
    place: &dyn Place,
    records: &[Record],
    writer: &mut VectorWriter,
    if_stopped: &str,
    context: &Context<'_>,
) -> Result<(u64, u64)> {
    let total = records.iter().flat_map(|r| Kind::ALL.into_iter().filter_map(|kind| r.rows(kind))).sum();
    let mut progress = ProgressBar::new(context.printer, "assembling", "rows", Some(total));
    let (mut rows, mut new) = (0, 0);
    for record in records {
        stop_if_asked(if_stopped)?;
        let loaded = shards::load(place, record, writer)?;
        rows += loaded.rows;
        new += loaded.new;
        progress.set(rows, rows);
        context.printer.detail(format!("shard {}: {} new", record.shard, counted(loaded.new, "row")));
    }
    Ok((rows, new))
}

/// Verifies the checksums of all local shards before any row is used. Remote shards are verified when they
/// are downloaded.
fn check_all(place: &dyn Place, set: &mut Set, context: &Context<'_>) -> Result<()> {
    if !place.is_local() {
        return Ok(());
    }
    let total = set.records.len() as u64;
    let mut progress = ProgressBar::new(context.printer, "checking", "shards", Some(total));
    for (done, record) in set.records.clone().iter().enumerate() {
        stop_if_asked("nothing was put into the index")?;
        if !shards::is_whole(place, record)? {
            set.reject(record.shard, &format!("the content of {} differs from its record", record.data.file));
        }
        progress.set(done as u64 + 1, done as u64 + 1);
    }
    Ok(())
}

fn assemble(
    place: &dyn Place,
    records: &[Record],
    root: &Path,
    replace: bool,
    context: &Context<'_>,
) -> Result<Assembled> {
    let [first, ..] = records else {
        return Err(Error::Internal("the set of complete shards is empty".into()));
    };
    let mode = if replace { Mode::Replace } else { Mode::Continue };
    if !replace {
        fits(first, root, place.name())?;
    }
    let snapshot = Snapshot::open(root)?;
    let mut writer = VectorWriter::open(root, &first.recipe, mode, context.command_line)?;
    let begun = Instant::now();
    let (rows, new) = load_all(place, records, &mut writer, GOES_ON, context)?;
    let without = count_missing(&snapshot, &mut writer, first)?;
    let seconds = begun.elapsed().as_secs_f64();
    let [utterance_vectors, dialogue_vectors] = Kind::ALL.map(|kind| writer.rows(kind));
    writer.finish()?;
    Ok(Assembled {
        schema: "turnwise/encode-assemble/1",
        index: root.display().to_string(),
        place: place.name().to_owned(),
        shards: records.len(),
        encoder: first.recipe.name.clone(),
        fingerprint: first.recipe.fingerprint.to_string(),
        rows,
        new,
        utterance_vectors,
        dialogue_vectors,
        without,
        seconds,
    })
}

/// Returns an error if the shards' vectors cannot be mixed with the vectors in the index.
fn fits(record: &Record, root: &Path, place: &str) -> Result<()> {
    let Some(reader) = VectorReader::open(root)? else { return Ok(()) };
    let dialogues_too = reader.rows(Kind::Dialogues) > 0 && record.dialogues.is_some();
    let Some(what) = reader.recipe().conflict(&record.recipe, dialogues_too) else { return Ok(()) };
    let index = root.display();
    Err(Error::Input {
        message: format!("{index} has {what}, which made the shards in {place}"),
        hint: Some(format!(
            "to replace the existing vectors: `turnwise encode --assemble {place} -i {index} --replace`; or create \
             the shards again with --model {}",
            reader.recipe().model
        )),
    })
}

/// Counts the utterances and dialogues of the index that are in no shard. If there are none, marks the
/// vectors as up to date; otherwise the next `encode` checks all dialogues.
fn count_missing(snapshot: &Snapshot, writer: &mut VectorWriter, record: &Record) -> Result<u64> {
    let mut without = [0u64; 2];
    for dialogue in snapshot.dialogues() {
        stop_if_asked(GOES_ON)?;
        let dialogue = dialogue?;
        for kind in record.kinds() {
            let lacks = |key: &&IdKey| !writer.contains(kind, key);
            without[kind as usize] += shards::keys(kind, &dialogue).iter().filter(lacks).count() as u64;
        }
    }
    for kind in record.kinds() {
        let before = writer.manifest().extent(kind).reached.as_ref();
        let at = match without[kind as usize] {
            0 => snapshot.end(),
            _ => Reached::place_in(before, snapshot),
        };
        writer.set_reached(kind, Reached { log: snapshot.log_id().to_owned(), at });
    }
    Ok(without.iter().sum())
}

fn stop_if_asked(hint: &str) -> Result<()> {
    match signals::stopped() {
        true => Err(Error::Interrupted { hint: Some(hint.to_owned()) }),
        false => Ok(()),
    }
}

impl Destination for VectorWriter {
    fn put(&mut self, kind: Kind, key: IdKey, row: &[f32]) -> Result<bool> {
        VectorWriter::put(self, kind, key, row)
    }

    fn commit(&mut self) -> Result<()> {
        VectorWriter::commit(self)
    }
}

impl Assembled {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{BOLD}{}{BOLD:#} of {} assembled in {:.1} s {DIM}({} rows/s){DIM:#}",
            counted(self.shards as u64, "shard"),
            self.place,
            self.seconds,
            grouped((self.rows as f64 / self.seconds.max(1e-3)) as u64)
        )?;
        let mut row = |n: u64, what: &str| match n {
            0 => Ok(()),
            _ => writeln!(out, "  {:>12}  {what}", grouped(n)),
        };
        row(self.new, "vectors added")?;
        row(self.rows - self.new, "already known: the same text is in a different shard or in the index")?;
        row(self.without, "utterances and dialogues of the index are in no shard")?;
        writeln!(
            out,
            "{BOLD}{}{BOLD:#} now has {} and {} by {}",
            self.index,
            counted(self.utterance_vectors, "utterance vector"),
            counted(self.dialogue_vectors, "dialogue vector"),
            self.encoder
        )
    }
}
