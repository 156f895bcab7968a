//! An index into a Milvus: into a generation that nobody sees, which the name stands for once it is proven whole.

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

/// Dialogues that are acknowledged together, and their bytes.
const BATCH: usize = 1_000;
const BYTES: usize = 16 << 20;

pub(super) fn run(args: &MigrateArgs, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let target = context.far_at(&args.to)?;
    let searcher = Searcher::open(&root)?;
    let here = searcher.embedded("moving")?;
    let snapshot = here.snapshot();
    let vectors = VectorReader::open(&root)?;
    if MilvusWriter::manifest(&target)?.is_some() && !args.replace {
        return Err(Error::Input {
            message: format!("there are dialogues at {target} already"),
            hint: Some(
                "--replace puts the index in their place once it is there as a whole; or take another name"
                    .to_owned(),
            ),
        });
    }
    let content = look_through(&root, snapshot, vectors.as_ref(), context)?;
    if vectors.is_none() {
        context.printer.warn(format!(
            "{} has no vectors: it will be searched by words alone, until `turnwise encode --engine {target}` makes some",
            root.display()
        ));
    }
    let recipe = vectors.as_ref().map(|vectors| vectors.recipe().clone());
    let giver = vectors.map(|vectors| Box::new(vectors) as Box<dyn VectorSource>);
    let begun = std::time::Instant::now();
    let mut home = MilvusWriter::anew(&target, here.analyzer(), recipe, giver, Unfinished::GoOn)?;
    let progress = ProgressBar::new(context.printer, "moving", "dialogues", Some(content.dialogues));
    let already_there = fill(&mut home, snapshot, progress)?;
    context.tell_cut(&home);
    home.settle()?;
    let moving = begun.elapsed().as_secs_f64();
    read_back(&mut home, snapshot, &content, &target, context)?;
    let sampled = samples::compare(snapshot, args.samples, here, &home.searched()?)?;
    report::found(&sampled, &target.to_string(), context)?;
    home.finish()?;
    if Tuning::read(&root)?.is_some() {
        context.printer.warn(
            "how the index is searched unasked (`index tune`) stays with it: Milvus is searched by the defaults",
        );
    }
    let names = [root.display().to_string(), target.to_string()];
    Report::new(names, &content, already_there, sampled, [moving, begun.elapsed().as_secs_f64()])
        .tell("--engine", context)
}

/// What is to be moved; that vectors are missing is told before anything is.
fn look_through(
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
            message: format!("{} of {} not there yet", counted(n, "vector"), root.display()),
            hint: Some(format!("`turnwise encode -i {}` makes what is missing", root.display())),
        }),
    }
}

/// Moves what is not there yet; gives how many dialogues were.
fn fill(home: &mut MilvusWriter, snapshot: &Snapshot, mut progress: ProgressBar<'_>) -> Result<u64> {
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
        home.ahead(&keys)?;
        for prepared in &batch {
            already_there += u64::from(home.put(prepared)? == Put::Unchanged);
        }
        home.commit(None)?;
        done += batch.len() as u64;
        progress.set(done, done);
    }
}

/// Reads back everything. What left the index since an earlier try is removed.
fn read_back(
    home: &mut MilvusWriter,
    snapshot: &Snapshot,
    content: &Content,
    target: &Target,
    context: &Context<'_>,
) -> Result<()> {
    let mut progress = ProgressBar::new(context.printer, "checking", "dialogues", Some(content.dialogues));
    let (mut there, mut strangers) = (Content::default(), Vec::<DialogueId>::new());
    let mut walk = home.walk()?;
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
    home.delete(&strangers)?;
    report::same(content, &there, &target.to_string())?;
    let totals = home.totals()?;
    match (totals.dialogues, totals.turns) == (content.dialogues, content.turns) {
        true => Ok(()),
        false => Err(Error::Data {
            message: format!(
                "{target} says it holds {} with {}, and {} with {} were moved; nobody sees it yet",
                counted(totals.dialogues, "dialogue"),
                counted(totals.turns, "turn"),
                counted(content.dialogues, "dialogue"),
                counted(content.turns, "turn")
            ),
            hint: Some("what was left behind is counted, too: the same command sweeps it away".to_owned()),
        }),
    }
}
