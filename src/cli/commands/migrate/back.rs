//! What is in a Milvus into an index: in a folder of its own beside it, which gets its name once it is proven whole.

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

/// How far an earlier try has come, kept beside what it made.
#[derive(Serialize, Deserialize)]
struct Mark {
    from: String,
    generation: u64,
    recipe: Option<Recipe>,
    /// Everything up to this part is there.
    done: String,
    content: Content,
}

/// Where an index is made before it gets its name.
struct Workshop {
    folder: PathBuf,
    index: PathBuf,
    mark: PathBuf,
}

impl Workshop {
    fn beside(root: &Path) -> Self {
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        let folder = root.with_file_name(format!(".{name}.migrating"));
        Workshop { index: folder.join("index"), mark: folder.join("mark.json"), folder }
    }

    /// What an earlier try of the same has left; anything else is thrown away.
    fn earlier(&self, wanted: &Mark) -> Result<Option<Mark>> {
        let read = fs::read(&self.mark).ok().and_then(|bytes| serde_json::from_slice::<Mark>(&bytes).ok());
        let same = |mark: &Mark| {
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

    fn note(&self, mark: &Mark) -> Result<()> {
        let json = serde_json::to_vec_pretty(mark).map_err(|e| Error::Internal(e.to_string()))?;
        files::replace(&self.mark, &json)
    }
}

pub(super) fn run(args: &MigrateArgs, context: &Context<'_>) -> Result<()> {
    if args.replace {
        return Err(Error::Input {
            message: "--replace is for the way into Milvus".to_owned(),
            hint: Some("take a name that is free".to_owned()),
        });
    }
    let root = context.folder_of(&args.to);
    if root.exists() {
        return Err(Error::Input {
            message: format!("{} is there already", root.display()),
            hint: Some("take another name, or move it out of the way".to_owned()),
        });
    }
    let target = context.far()?;
    let walk = Walk::over(&target)?;
    let wanted = Mark {
        from: target.to_string(),
        generation: walk.manifest().generation,
        recipe: walk.manifest().recipe.clone(),
        done: String::new(),
        content: Content::default(),
    };
    let far = Milvus::open(&target)?;
    let workshop = Workshop::beside(&root);
    let begun = std::time::Instant::now();
    let earlier = workshop.earlier(&wanted)?;
    let already_there = earlier.as_ref().map_or(0, |mark| mark.content.dialogues);
    let content = fill(&workshop, walk, earlier.unwrap_or(wanted), &far, context)?;
    let moving = begun.elapsed().as_secs_f64();
    finish(&workshop.index, context)?;
    read_back(&workshop, &content, &root, context)?;
    let sampled = {
        let searcher = Searcher::open(&workshop.index)?;
        let here = searcher.embedded("moving")?;
        samples::compare(here.snapshot(), args.samples, &far, here)?
    };
    report::found(&sampled, &root.display().to_string(), context)?;
    fs::rename(&workshop.index, &root).at("create", &root)?;
    files::sync_parent(&root)?;
    fs::remove_dir_all(&workshop.folder).at("remove", &workshop.folder)?;
    let names = [target.to_string(), root.display().to_string()];
    Report::new(names, &content, already_there, sampled, [moving, begun.elapsed().as_secs_f64()])
        .tell("-i", context)
}

/// Reads everything that is not here yet.
fn fill(
    workshop: &Workshop,
    walk: Walk,
    mut mark: Mark,
    far: &Milvus,
    context: &Context<'_>,
) -> Result<Content> {
    use turnwise_index::engine::Engine;

    let mut store = Store::open_or_create(&workshop.index, context.command_line)?;
    let mut vectors = match &mark.recipe {
        Some(recipe) => Some(VectorWriter::open(&workshop.index, recipe, Mode::GoOn, context.command_line)?),
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
        // The mark comes last: what it counts is there.
        store.commit(None)?;
        vectors.as_mut().map_or(Ok(()), VectorWriter::commit)?;
        mark.done = part;
        workshop.note(&mark)?;
        progress.set(mark.content.dialogues, mark.content.dialogues);
    }
    drop(progress);
    store.close()?;
    if let Some(mut vectors) = vectors {
        let snapshot = Snapshot::open(&workshop.index)?;
        for kind in Kind::ALL {
            vectors.set_reached(kind, Reached { log: snapshot.log_id().to_owned(), at: snapshot.end() });
        }
        vectors.finish()?;
    }
    if (total.dialogues, total.turns) != (mark.content.dialogues, mark.content.turns) {
        // The next try reads everything again: somebody wrote there while this one went from part to part.
        fs::remove_file(&workshop.mark).at("remove", &workshop.mark)?;
        return Err(Error::Data {
            message: format!(
                "{} dialogues with {} turns were read from {}, which says it holds {} with {}",
                mark.content.dialogues, mark.content.turns, mark.from, total.dialogues, total.turns
            ),
            hint: Some("does somebody write there? Try again when that is done".to_owned()),
        });
    }
    Ok(mark.content)
}

fn put(vectors: &mut VectorWriter, moved: &Moved) -> Result<()> {
    // What has no direction is kept as zeros, as an encoder gives it.
    let nothing = vec![0.0; vectors.manifest().recipe.dim];
    let or_nothing = |vector: &Option<Vec<f32>>| vector.clone().unwrap_or_else(|| nothing.clone());
    vectors.put(Kind::Dialogues, dialogue_key(&moved.dialogue), &or_nothing(&moved.whole))?;
    for (turn, vector) in moved.dialogue.turns.iter().zip(&moved.turns) {
        vectors.put(Kind::Utterances, utterance_key(&turn.text), &or_nothing(vector))?;
    }
    Ok(())
}

/// Makes it searchable as after an ingest.
fn finish(root: &Path, context: &Context<'_>) -> Result<()> {
    let snapshot = Snapshot::open(root)?;
    index::update(root, &snapshot, context)?;
    if dense::is_worth_building(root, &snapshot)? {
        index::graphs(root, &snapshot, context)?;
    }
    Ok(())
}

fn read_back(workshop: &Workshop, content: &Content, root: &Path, context: &Context<'_>) -> Result<()> {
    let (snapshot, vectors) = (Snapshot::open(&workshop.index)?, VectorReader::open(&workshop.index)?);
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
        fs::remove_file(&workshop.mark).at("remove", &workshop.mark)?;
    }
    same
}
