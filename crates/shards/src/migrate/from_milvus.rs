//! Copies dialogues from Milvus to a new index. The index is built in a temporary folder next to its final path. After
//! the index has been verified, it is moved to this path.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};
use turnwise_index::{
    dense::{self, BuildOptions},
    engine::Engine,
    lexical::Lexical,
    vectors::{Kind, Mode, Reached, Recipe, VectorReader, VectorWriter, dialogue_key, utterance_key},
};
use turnwise_milvus::{Milvus, Moved, Target, Walk};
use turnwise_search::Searcher;
use turnwise_store::{Prepared, Snapshot, Store};

use super::{
    CONTINUES, Migration, MigrationSettings, check_content, check_samples, content::Content, content_of,
    resumable, samples,
};
use crate::progress::{Amount, Progress, Step, stop_if_asked};

/// Progress of a migration, stored next to the unfinished index so that a later run can continue.
#[derive(Serialize, Deserialize)]
struct Mark {
    from: String,
    generation: u64,
    recipe: Option<Recipe>,
    /// Id of the last batch of dialogues that was copied completely.
    done: String,
    content: Content,
}

/// Paths of the temporary folder in which the index is built.
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

    /// Returns the progress of an earlier run if its source and recipe are the same as in `wanted`. Otherwise removes
    /// the temporary folder and returns `None`.
    fn resume_point(&self, wanted: &Mark) -> Result<Option<Mark>> {
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
}

/// Copies a collection in Milvus to a new index.
///
/// # Errors
///
/// [`Error::Input`] if the folder `root` exists; [`Error::Data`] if the copy differs from the collection.
pub fn from_milvus(
    target: &Target,
    root: &Path,
    settings: &MigrationSettings<'_>,
    progress: &dyn Progress,
) -> Result<Migration> {
    copy(target, root, settings, progress).map_err(resumable)
}

fn copy(
    target: &Target,
    root: &Path,
    settings: &MigrationSettings<'_>,
    progress: &dyn Progress,
) -> Result<Migration> {
    if root.exists() {
        return Err(Error::input(format!("{} already exists", root.display()))
            .with_hint("use a different name, or move the existing folder"));
    }
    let walk = Walk::over(target)?;
    let wanted = Mark {
        from: target.to_string(),
        generation: walk.manifest().generation,
        recipe: walk.manifest().recipe.clone(),
        done: String::new(),
        content: Content::default(),
    };
    let remote = Milvus::open(target)?;
    let staging = Staging::next_to(root);
    let begun = Instant::now();
    let earlier = staging.resume_point(&wanted)?;
    let already_there = earlier.as_ref().map_or(0, |mark| mark.content.dialogues);
    let content = fill(&staging, walk, earlier.unwrap_or(wanted), &remote, settings.command_line, progress)?;
    let moving = begun.elapsed().as_secs_f64();
    build_indexes(&staging.index, settings.command_line, progress)?;
    read_back(&staging, &content, root, progress)?;
    let sampled = {
        let searcher = Searcher::open(&staging.index)?;
        let here = searcher.embedded("migration")?;
        samples::compare(here.snapshot(), settings.samples, &remote, here)?
    };
    check_samples(&sampled, &root.display().to_string(), progress)?;
    fs::rename(&staging.index, root).at("create", root)?;
    files::sync_parent(root)?;
    fs::remove_dir_all(&staging.folder).at("remove", &staging.folder)?;
    let names = [target.to_string(), root.display().to_string()];
    let seconds = [moving, begun.elapsed().as_secs_f64()];
    Ok(Migration::new(names, &content, already_there, sampled, seconds))
}

/// Copies the dialogues that an earlier run has not copied. Returns the counts and checksums of all copied data.
fn fill(
    staging: &Staging,
    walk: Walk,
    mut mark: Mark,
    remote: &Milvus,
    command_line: &str,
    progress: &dyn Progress,
) -> Result<Content> {
    let mut store = Store::open_or_create(&staging.index, command_line)?;
    let mut vectors = match &mark.recipe {
        Some(recipe) => Some(VectorWriter::open(&staging.index, recipe, Mode::Continue, command_line)?),
        None => None,
    };
    let total = remote.totals();
    progress.begin(Step::Copying, Some(total.dialogues), mark.content.dialogues);
    let mut walk = if mark.done.is_empty() { walk } else { walk.resume_after(&mark.done) };
    while let Some((part, moved)) = walk.next_part()? {
        stop_if_asked(progress, CONTINUES)?;
        for moved in &moved {
            mark.content.add_moved(moved)?;
            store.put(&Prepared::new(&moved.dialogue)?)?;
            if let Some(vectors) = &mut vectors {
                put(vectors, moved)?;
            }
        }
        // Write the mark last, so that everything that it counts is already committed.
        store.commit(None)?;
        vectors.as_mut().map_or(Ok(()), VectorWriter::commit)?;
        mark.done = part;
        files::replace_json(&staging.mark, &mark)?;
        progress.advance(Amount::units(mark.content.dialogues));
    }
    progress.end();
    store.close()?;
    if let Some(mut vectors) = vectors {
        let snapshot = Snapshot::open(&staging.index)?;
        for kind in Kind::ALL {
            vectors.set_reached(kind, Reached { log: snapshot.log_id().to_owned(), at: snapshot.end() });
        }
        vectors.finish()?;
    }
    if (total.dialogues, total.turns) != (mark.content.dialogues, mark.content.turns) {
        // Another process may have written dialogues during the copying, so the next run must read everything again.
        fs::remove_file(&staging.mark).at("remove", &staging.mark)?;
        return Err(Error::data(format!(
            "read {} dialogues with {} turns from {}, but it reports {} with {}",
            mark.content.dialogues, mark.content.turns, mark.from, total.dialogues, total.turns
        ))
        .with_hint("is another process writing there? Try again when it has finished"));
    }
    Ok(mark.content)
}

fn put(vectors: &mut VectorWriter, moved: &Moved) -> Result<()> {
    // Milvus need not store zero vectors, so a missing vector is restored as a zero vector.
    let nothing = vec![0.0; vectors.manifest().recipe.dim];
    let or_nothing = |vector: &Option<Vec<f32>>| vector.clone().unwrap_or_else(|| nothing.clone());
    vectors.put(Kind::Dialogues, dialogue_key(&moved.dialogue), &or_nothing(&moved.whole))?;
    for (turn, vector) in moved.dialogue.turns.iter().zip(&moved.turns) {
        vectors.put(Kind::Utterances, utterance_key(&turn.text), &or_nothing(vector))?;
    }
    Ok(())
}

/// Builds the lexical index, and the graphs if the index has vectors.
fn build_indexes(root: &Path, command_line: &str, progress: &dyn Progress) -> Result<()> {
    let snapshot = Snapshot::open(root)?;
    progress.begin(Step::Indexing, Some(snapshot.totals().turns), 0);
    let mut show = |done| progress.advance(Amount::units(done));
    Lexical::update(None, root, &snapshot, &|| progress.stop(), &mut show)?;
    progress.end();
    if dense::is_worth_building(root, &snapshot)? {
        dense::build(root, &snapshot, &BuildOptions::default(), command_line, progress)?;
    }
    Ok(())
}

fn read_back(staging: &Staging, content: &Content, root: &Path, progress: &dyn Progress) -> Result<()> {
    let (snapshot, vectors) = (Snapshot::open(&staging.index)?, VectorReader::open(&staging.index)?);
    let (copied, _) = content_of(&snapshot, vectors.as_ref(), Step::CheckingDialogues, progress)?;
    let same = check_content(content, &copied, &root.display().to_string());
    if same.is_err() {
        fs::remove_file(&staging.mark).at("remove", &staging.mark)?;
    }
    same
}
