//! Copies dialogues from Milvus to an index. The index is built in a temporary folder next to its final
//! place and renamed once it is verified.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    content::Content,
    report::{self, Report},
    samples, stop_if_asked,
};
use crate::cli::{Context, args::MigrateArgs, commands::index, progress::ProgressBar};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};
use turnwise_index::{
    dense,
    vectors::{Kind, Mode, Reached, Recipe, VectorReader, VectorWriter, dialogue_key, utterance_key},
};
use turnwise_milvus::{Milvus, Moved, Walk};
use turnwise_search::Searcher;
use turnwise_store::{Prepared, Snapshot, Store};

/// Progress of an earlier run, stored next to the unfinished index.
#[derive(Serialize, Deserialize)]
struct Progress {
    from: String,
    generation: u64,
    recipe: Option<Recipe>,
    /// Id of the last part that is complete.
    done: String,
    content: Content,
}

/// Temporary folder in which the index is built.
struct Staging {
    folder: PathBuf,
    index: PathBuf,
    mark: PathBuf,
}

impl Staging {
    fn next_to(root: &Path) -> Self {
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        let folder = root.with_file_name(format!(".{name}.migrating"));
        Staging { index: folder.join("index"), mark: folder.join("mark.json"), folder }
    }

    /// Returns the progress of an earlier run with the same source and target. Removes any other leftovers.
    fn resume_point(&self, wanted: &Progress) -> Result<Option<Progress>> {
        let read =
            fs::read(&self.mark).ok().and_then(|bytes| serde_json::from_slice::<Progress>(&bytes).ok());
        let same = |mark: &Progress| {
            (&mark.from, mark.generation, &mark.recipe) == (&wanted.from, wanted.generation, &wanted.recipe)
        };
        if let Some(mark) = read.filter(same) {
            return Ok(Some(mark));
        }
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).at("remove", &self.folder)?;
        }
        Ok(None)
    }

    fn note(&self, mark: &Progress) -> Result<()> {
        let json = serde_json::to_vec_pretty(mark).map_err(|e| Error::Internal(e.to_string()))?;
        files::replace(&self.mark, &json)
    }
}

pub(super) fn run(args: &MigrateArgs, context: &Context<'_>) -> Result<()> {
    if args.replace {
        return Err(Error::Input {
            message: "--replace works only when the target is Milvus".to_owned(),
            hint: Some("use a name that does not exist yet".to_owned()),
        });
    }
    let root = context.folder_of(&args.to);
    if root.exists() {
        return Err(Error::Input {
            message: format!("{} already exists", root.display()),
            hint: Some("use a different name, or move the existing folder".to_owned()),
        });
    }
    let target = context.far()?;
    let walk = Walk::over(&target)?;
    let wanted = Progress {
        from: target.to_string(),
        generation: walk.manifest().generation,
        recipe: walk.manifest().recipe.clone(),
        done: String::new(),
        content: Content::default(),
    };
    let far = Milvus::open(&target)?;
    let staging = Staging::next_to(&root);
    let begun = std::time::Instant::now();
    let earlier = staging.resume_point(&wanted)?;
    let already_there = earlier.as_ref().map_or(0, |mark| mark.content.dialogues);
    let content = fill(&staging, walk, earlier.unwrap_or(wanted), &far, context)?;
    let moving = begun.elapsed().as_secs_f64();
    finish(&staging.index, context)?;
    read_back(&staging, &content, &root, context)?;
    let sampled = {
        let searcher = Searcher::open(&staging.index)?;
        let here = searcher.embedded("migration")?;
        samples::compare(here.snapshot(), args.samples, &far, here)?
    };
    report::found(&sampled, &root.display().to_string(), context)?;
    fs::rename(&staging.index, &root).at("create", &root)?;
    files::sync_parent(&root)?;
    fs::remove_dir_all(&staging.folder).at("remove", &staging.folder)?;
    let names = [target.to_string(), root.display().to_string()];
    Report::new(names, &content, already_there, sampled, [moving, begun.elapsed().as_secs_f64()])
        .report("-i", context)
}

/// Reads everything that is not copied yet.
fn fill(
    staging: &Staging,
    walk: Walk,
    mut mark: Progress,
    far: &Milvus,
    context: &Context<'_>,
) -> Result<Content> {
    use turnwise_index::engine::Engine;

    let mut store = Store::open_or_create(&staging.index, context.command_line)?;
    let mut vectors = match &mark.recipe {
        Some(recipe) => {
            Some(VectorWriter::open(&staging.index, recipe, Mode::Continue, context.command_line)?)
        }
        None => None,
    };
    let total = far.totals();
    let mut progress = ProgressBar::new(context.printer, "moving", "dialogues", Some(total.dialogues))
        .after(mark.content.dialogues, mark.content.dialogues);
    let mut walk = if mark.done.is_empty() { walk } else { walk.behind(&mark.done) };
    while let Some((part, moved)) = walk.next_part()? {
        stop_if_asked()?;
        for moved in &moved {
            mark.content.add_moved(moved)?;
            store.put(&Prepared::new(&moved.dialogue)?)?;
            if let Some(vectors) = &mut vectors {
                put(vectors, moved)?;
            }
        }
        // Write the mark last: everything that it counts is committed.
        store.commit(None)?;
        vectors.as_mut().map_or(Ok(()), VectorWriter::commit)?;
        mark.done = part;
        staging.note(&mark)?;
        progress.set(mark.content.dialogues, mark.content.dialogues);
    }
    drop(progress);
    store.close()?;
    if let Some(mut vectors) = vectors {
        let snapshot = Snapshot::open(&staging.index)?;
        for kind in Kind::ALL {
            vectors.set_reached(kind, Reached { log: snapshot.log_id().to_owned(), at: snapshot.end() });
        }
        vectors.finish()?;
    }
    if (total.dialogues, total.turns) != (mark.content.dialogues, mark.content.turns) {
        // Records were written during the read, so the next run reads everything again.
        fs::remove_file(&staging.mark).at("remove", &staging.mark)?;
        return Err(Error::Data {
            message: format!(
                "read {} dialogues with {} turns from {}, but it reports {} with {}",
                mark.content.dialogues, mark.content.turns, mark.from, total.dialogues, total.turns
            ),
            hint: Some("is another process writing there? Try again when it has finished".to_owned()),
        });
    }
    Ok(mark.content)
}

fn put(vectors: &mut VectorWriter, moved: &Moved) -> Result<()> {
    // A vector without a direction is stored as zeros, just as an encoder returns it.
    let nothing = vec![0.0; vectors.manifest().recipe.dim];
    let or_nothing = |vector: &Option<Vec<f32>>| vector.clone().unwrap_or_else(|| nothing.clone());
    vectors.put(Kind::Dialogues, dialogue_key(&moved.dialogue), &or_nothing(&moved.whole))?;
    for (turn, vector) in moved.dialogue.turns.iter().zip(&moved.turns) {
        vectors.put(Kind::Utterances, utterance_key(&turn.text), &or_nothing(vector))?;
    }
    Ok(())
}

/// Builds the lexical index and the graphs, as after an ingest.
fn finish(root: &Path, context: &Context<'_>) -> Result<()> {
    let snapshot = Snapshot::open(root)?;
    index::update(root, &snapshot, context)?;
    if dense::is_worth_building(root, &snapshot)? {
        index::graphs(root, &snapshot, context)?;
    }
    Ok(())
}

fn read_back(staging: &Staging, content: &Content, root: &Path, context: &Context<'_>) -> Result<()> {
    let (snapshot, vectors) = (Snapshot::open(&staging.index)?, VectorReader::open(&staging.index)?);
    let mut progress = ProgressBar::new(context.printer, "checking", "dialogues", Some(content.dialogues));
    let mut here = Content::default();
    for dialogue in snapshot.dialogues() {
        here.add_here(&dialogue?, vectors.as_ref())?;
        if here.dialogues % 256 == 0 {
            stop_if_asked()?;
            progress.set(here.dialogues, here.dialogues);
        }
    }
    drop(progress);
    let same = report::same(content, &here, &root.display().to_string());
    if same.is_err() {
        fs::remove_file(&staging.mark).at("remove", &staging.mark)?;
    }
    same
}
