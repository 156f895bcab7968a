//! Local index folder. Changes by any process are detected from its files.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{ChangeToken, Selection, Source, filled};
use crate::{
    OpenIndex,
    app::Client,
    problem::Outcome,
    stored_responses::{self, IdempotentResponses},
};
use turnwise_core::{error::Result, ids::DialogueId};
use turnwise_corpus::{Dialogue, walk::Plan};
use turnwise_search::Searcher;
use turnwise_store::{
    Snapshot, Store,
    ingest::{IngestOptions, Ingested},
};

/// Name of the lock holder.
const HOLDER: &str = "turnwise serve";

pub(super) struct Folder {
    root: PathBuf,
    answers: IdempotentResponses,
}

impl Folder {
    pub(super) fn new(root: PathBuf) -> Self {
        Folder { answers: IdempotentResponses::beside(&root), root }
    }
}

/// Paths, sizes and modification times of an index's files.
#[derive(Debug, PartialEq)]
pub(crate) struct Files(Vec<(PathBuf, u64, Option<SystemTime>)>);

impl Files {
    fn of(root: &Path) -> Self {
        let mut files = Vec::new();
        collect(root, 0, &mut files);
        files.sort();
        Files(files)
    }
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<(PathBuf, u64, Option<SystemTime>)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.filter_map(|entry| entry.ok()) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Files of sled are internal to the writer; locks and stored responses are not part of the index.
        if name.starts_with("records") || name.contains("lock") || name == stored_responses::FILE {
            continue;
        }
        match entry.metadata() {
            Ok(data) if data.is_dir() && depth < 2 => collect(&entry.path(), depth + 1, files),
            Ok(data) if data.is_file() => files.push((entry.path(), data.len(), data.modified().ok())),
            _ => {}
        }
    }
}

impl Source for Folder {
    fn kind(&self) -> &'static str {
        "embedded"
    }

    fn places(&self) -> Vec<String> {
        vec![self.root.display().to_string()]
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn change_token(&self) -> Result<ChangeToken> {
        Ok(ChangeToken::Files(Files::of(&self.root)))
    }

    fn pause(&self) -> Duration {
        Duration::ZERO
    }

    fn open(&self) -> Result<Searcher> {
        Searcher::over(&self.root, Snapshot::open(&self.root)?)
    }

    fn ingest_plan(&self, plan: Plan, options: &IngestOptions, _: &OpenIndex) -> Outcome<Ingested> {
        let mut store = Store::open(&self.root, HOLDER)?;
        let taken = filled(&mut store, plan, options);
        // Closes the store even after an error, which persists all acknowledged records.
        let closed = store.close();
        let taken = taken?;
        closed?;
        Ok(taken)
    }

    fn remove(&self, selection: &Selection, client: &Client) -> Result<usize> {
        let ids = wanted(&Snapshot::open(&self.root)?, selection, |dialogue| client.can_see(dialogue))?;
        if ids.is_empty() {
            return Ok(0);
        }
        let mut store = Store::open(&self.root, HOLDER)?;
        for id in &ids {
            store.delete(id)?;
        }
        let unfinished = store.unfinished_ingest().cloned();
        store.commit(unfinished)?;
        store.close()?;
        Ok(ids.len())
    }

    fn answers(&self) -> &IdempotentResponses {
        &self.answers
    }
}

fn wanted(
    snapshot: &Snapshot,
    selection: &Selection,
    can_see: impl Fn(&Dialogue) -> bool,
) -> Result<Vec<DialogueId>> {
    let filter = match selection {
        Selection::One(id) => {
            return Ok(snapshot.get(id)?.filter(can_see).map(|there| there.id).into_iter().collect());
        }
        Selection::Matching(filter) => filter,
    };
    let mut ids = Vec::new();
    for dialogue in snapshot.dialogues() {
        let dialogue = dialogue?;
        if filter.matches(&dialogue) && can_see(&dialogue) {
            ids.push(dialogue.id);
        }
    }
    Ok(ids)
}
