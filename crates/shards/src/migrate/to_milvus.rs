//! Copies an index to Milvus, into a new generation. The name switches to it once it is verified.

use std::path::Path;

use super::{
    content::Content,
    report::{self, Report},
    samples, stop_if_asked,
};
use crate::cli::{Context, args::MigrateArgs, printer::counted, progress::ProgressBar};
use turnwise_core::{
    error::{Error, Result},
    ids::DialogueId,
};
use turnwise_index::{engine::Engine, vectors::VectorReader};
use turnwise_milvus::{MilvusWriter, Target, Unfinished, VectorSource};
use turnwise_search::{Searcher, Tuning};
use turnwise_store::{Prepared, Put, Snapshot, ingest::DialogueSink};

/// Maximum number of dialogues per batch.
const BATCH: usize = 1_000;
/// Maximum size of a batch in bytes.
const BYTES: usize = 16 << 20;

pub(super) fn run(args: &MigrateArgs, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let target = context.milvus_target_at(&args.to)?;
    let searcher = Searcher::open(&root)?;
    let here = searcher.embedded("migration")?;
    let snapshot = here.snapshot();
    let vectors = VectorReader::open(&root)?;
    if MilvusWriter::manifest(&target)?.is_some() && !args.replace {
        return Err(Error::Input {
            message: format!("{target} already has dialogues"),
            hint: Some(
                "--replace replaces them once the copy is complete; or use a different name".to_owned(),
            ),
        });
    }
    let content = summarize(&root, snapshot, vectors.as_ref(), context)?;
    if vectors.is_none() {
        context.printer.warn(format!(
            "{} has no vectors: only lexical search will work until `turnwise encode --engine {target}` creates them",
            root.display()
        ));
    }
    let recipe = vectors.as_ref().map(|vectors| vectors.recipe().clone());
    let source = vectors.map(|vectors| Box::new(vectors) as Box<dyn VectorSource>);
    let begun = std::time::Instant::now();
    let mut sink = MilvusWriter::anew(&target, here.analyzer(), recipe, source, Unfinished::Continue)?;
    let progress = ProgressBar::new(context.printer, "moving", "dialogues", Some(content.dialogues));
    let already_there = fill(&mut sink, snapshot, progress)?;
    context.warn_truncated(&sink);
    sink.settle()?;
    let moving = begun.elapsed().as_secs_f64();
    read_back(&mut sink, snapshot, &content, &target, context)?;
    let sampled = samples::compare(snapshot, args.samples, here, &sink.searched()?)?;
    report::found(&sampled, &target.to_string(), context)?;
    sink.finish()?;
    if Tuning::read(&root)?.is_some() {
        context
            .printer
            .warn("the tuned search settings of the index are not copied: Milvus uses the defaults");
    }
    let names = [root.display().to_string(), target.to_string()];
    Report::new(names, &content, already_there, sampled, [moving, begun.elapsed().as_secs_f64()])
        .report("--engine", context)
}

/// Summarizes the index. Returns an error if vectors are missing, before anything is copied.
fn summarize(
    root: &Path,
    snapshot: &Snapshot,
    vectors: Option<&VectorReader>,
    context: &Context<'_>,
) -> Result<Content> {
    let total = snapshot.totals().dialogues;
    let mut progress = ProgressBar::new(context.printer, "reading", "dialogues", Some(total));
    let (mut content, mut missing) = (Content::default(), 0);
    for dialogue in snapshot.dialogues() {
        missing += content.add_here(&dialogue?, vectors)?;
        if content.dialogues % 256 == 0 {
            stop_if_asked()?;
            progress.set(content.dialogues, content.dialogues);
        }
    }
    match missing {
        0 => Ok(content),
        n => Err(Error::Input {
            message: format!("{} of {} missing", counted(n, "vector"), root.display()),
            hint: Some(format!("`turnwise encode -i {}` creates them", root.display())),
        }),
    }
}

/// Copies what is not there yet. Returns the number of dialogues that already were.
fn fill(sink: &mut MilvusWriter, snapshot: &Snapshot, mut progress: ProgressBar<'_>) -> Result<u64> {
    let mut live = snapshot.records();
    let (mut done, mut already_there) = (0, 0);
    loop {
        stop_if_asked()?;
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
        sink.ahead(&keys)?;
        for prepared in &batch {
            already_there += u64::from(sink.put(prepared)? == Put::Unchanged);
        }
        sink.commit(None)?;
        done += batch.len() as u64;
        progress.set(done, done);
    }
}

/// Reads everything back. Removes dialogues that were deleted from the index since an earlier run.
fn read_back(
    sink: &mut MilvusWriter,
    snapshot: &Snapshot,
    content: &Content,
    target: &Target,
    context: &Context<'_>,
) -> Result<()> {
    let mut progress = ProgressBar::new(context.printer, "checking", "dialogues", Some(content.dialogues));
    let (mut there, mut strangers) = (Content::default(), Vec::<DialogueId>::new());
    let mut walk = sink.walk()?;
    while let Some((_, part)) = walk.next_part()? {
        stop_if_asked()?;
        for moved in part {
            match snapshot.seq_of(moved.dialogue.id.key()) {
                Some(_) => there.add_moved(&moved)?,
                None => strangers.push(moved.dialogue.id),
            }
        }
        progress.set(there.dialogues, there.dialogues);
    }
    drop(progress);
    sink.delete(&strangers)?;
    report::same(content, &there, &target.to_string())?;
    let totals = sink.totals()?;
    match (totals.dialogues, totals.turns) == (content.dialogues, content.turns) {
        true => Ok(()),
        false => Err(Error::Data {
            message: format!(
                "{target} reports {} with {}, but {} with {} were copied; the data are not visible yet",
                counted(totals.dialogues, "dialogue"),
                counted(totals.turns, "turn"),
                counted(content.dialogues, "dialogue"),
                counted(content.turns, "turn")
            ),
            hint: Some("leftovers are counted, too; run the same command again to remove them".to_owned()),
        }),
    }
}
