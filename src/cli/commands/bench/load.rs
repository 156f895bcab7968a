//! Loads the data of a task.

use std::path::{Path, PathBuf};

use super::build;
use crate::cli::{Context, args::ReadArgs, watching::StepProgress};
use turnwise_core::error::{Error, Result};
use turnwise_eval::{
    build::retrieval_set,
    data,
    rank::Terms,
    recipe::TaskSpec,
    result::Data,
    tasks::{DialogueTask, Task},
};

/// Loads a task whose files are in a folder.
pub(in crate::cli::commands) fn load(
    spec: &TaskSpec,
    folder: &Path,
    read: &ReadArgs,
    seed: u64,
    context: &Context<'_>,
) -> Result<(Box<dyn Task>, Data)> {
    let (task, files, hash): (Box<dyn Task>, Vec<PathBuf>, String) = match spec {
        TaskSpec::Sr { data: file, build: None } => {
            let file = folder.join(file);
            let hash = data::hash(&[&file])?;
            (Box::new(data::semantic_retrieval(&file)?), vec![file], hash)
        }
        TaskSpec::Sr { data: file, build: Some(recipe) } => {
            let file = folder.join(file);
            let sentences = data::labelled(&file)?;
            let watch = StepProgress::new(context.printer);
            let set = retrieval_set(sentences, *recipe, Terms::default(), seed, &watch)?;
            let mut made = Vec::new();
            set.write(&mut made).map_err(|e| Error::Internal(e.to_string()))?;
            let hash = blake3::hash(&made).to_hex()[..32].to_owned();
            (Box::new(data::semantic_retrieval_of(made.as_slice(), &file)?), vec![file], hash)
        }
        TaskSpec::Dsts { data: file, background } => {
            let (file, background) = (folder.join(file), background.as_ref().map(|path| folder.join(path)));
            let sentences = background.as_deref().map(data::sentences).transpose()?.unwrap_or_default();
            let task = data::sentence_pairs(&file, sentences)?;
            let files: Vec<PathBuf> = std::iter::once(file).chain(background).collect();
            let hash = data::hash(&files)?;
            (Box::new(task), files, hash)
        }
        TaskSpec::Response { data: file } => {
            let file = folder.join(file);
            let hash = data::hash(&[&file])?;
            (Box::new(data::response_selection(&file)?), vec![file], hash)
        }
        TaskSpec::Adhoc { data: files, qrels } => {
            let qrels = qrels.as_ref().map(|path| folder.join(path));
            let (task, files) = data::ad_hoc(&folder.join(files), qrels.as_deref())?;
            let hash = data::hash(&files)?;
            (Box::new(task), files, hash)
        }
        TaskSpec::Dialogues { data: path, profile } => {
            let path = folder.join(path);
            let dialogues = build::all(std::slice::from_ref(&path), read, context)?;
            let hash = data::hash_of_dialogues(&dialogues)?;
            (Box::new(DialogueTask::new(dialogues, *profile, seed)?), vec![path], hash)
        }
    };
    let paths = files.iter().map(|path| path.display().to_string()).collect();
    let data = Data { paths, hash, size: task.size() };
    Ok((task, data))
}
