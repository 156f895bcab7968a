//! Location of an index in a local folder. Detects changes by the sizes and modification times of the files, whichever
//! process made them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::Embedded;
use crate::{
    engine::{Engine, unsupported},
    location::{
        ChangeToken, Contents, Deletion, EngineWriter, Location, Selection, WriteMode, WriterOptions,
    },
    vectors::VectorReader,
};
use turnwise_core::{error::Result, files};
use turnwise_store::{Manifest, Snapshot, Store, Totals};

/// Location of an index in a folder on this machine.
pub struct Folder(PathBuf);

impl Folder {
    /// File name of the responses that `turnwise serve` stores in the folder. The file is not part of the index.
    pub const RESPONSES: &'static str = "answered.json";

    /// Creates the location of a folder. The folder need not exist.
    pub fn new(root: PathBuf) -> Self {
        Folder(root)
    }
}

/// Adds the path, size and modification time of each index file in `folder` to `found`. `depth` is the level of
/// `folder` below the index folder; subfolders are searched down to level 2.
fn collect(folder: &Path, depth: usize, found: &mut Vec<(PathBuf, u64, Option<SystemTime>)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.filter_map(|entry| entry.ok()) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Files of sled are internal to the writer; locks and stored responses are not part of the index.
        if name.starts_with("records") || name.contains("lock") || name == Folder::RESPONSES {
            continue;
        }
        match entry.metadata() {
            Ok(data) if data.is_dir() && depth < 2 => collect(&entry.path(), depth + 1, found),
            Ok(data) if data.is_file() => found.push((entry.path(), data.len(), data.modified().ok())),
            _ => {}
        }
    }
}

impl Location for Folder {
    fn kind(&self) -> &'static str {
        "embedded"
    }

    fn place(&self) -> String {
        self.0.display().to_string()
    }

    fn name(&self) -> String {
        let whole = fs::canonicalize(&self.0).unwrap_or_else(|_| self.0.clone());
        whole.file_name().map_or_else(|| "index".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.0)
    }

    fn compactable(&self) -> Result<&Path> {
        Ok(&self.0)
    }

    fn change_token(&self) -> Result<ChangeToken> {
        let mut found = Vec::new();
        collect(&self.0, 0, &mut found);
        found.sort();
        Ok(ChangeToken::new(format!("{found:?}")))
    }

    fn contents(&self) -> Result<Option<Contents>> {
        if !Manifest::exists(&self.0) {
            return Ok(None);
        }
        let recipe = VectorReader::open(&self.0)?.map(|vectors| vectors.recipe().clone());
        Ok(Some(Contents { recipe }))
    }

    fn open(&self) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Embedded::over(&self.0, Snapshot::open(&self.0)?)?))
    }

    fn open_writer(&self, options: WriterOptions<'_>) -> Result<Box<dyn EngineWriter>> {
        let mut store = match options.mode {
            WriteMode::Append => Store::open(&self.0, options.holder)?,
            WriteMode::CreateOrAppend(_) => Store::open_or_create(&self.0, options.holder)?,
            WriteMode::Replace(_) => {
                let hint = "ingest into a different index instead";
                return Err(unsupported(&self.place(), "replacing all dialogues", hint));
            }
        };
        options.segment_bytes.into_iter().for_each(|bytes| store.set_segment_bytes(bytes));
        Ok(Box::new(store))
    }

    fn delete(&self, selection: &Selection, dry_run: bool, holder: &str) -> Result<Deletion> {
        let snapshot = Snapshot::open(&self.0)?;
        let (mut deleted, mut missing) = (Vec::new(), Vec::new());
        match selection {
            Selection::Ids(ids, filter) => {
                for id in ids {
                    match snapshot.get(id)?.filter(|d| filter.as_ref().is_none_or(|f| f.matches(d))) {
                        Some(_) => deleted.push(id.clone()),
                        None => missing.push(id.clone()),
                    }
                }
            }
            Selection::Matching(filter) => {
                for dialogue in snapshot.dialogues() {
                    let dialogue = dialogue?;
                    if filter.matches(&dialogue) {
                        deleted.push(dialogue.id);
                    }
                }
            }
        }
        // Drop the snapshot first: its memory maps would keep the old files open.
        drop(snapshot);
        if !dry_run && !deleted.is_empty() {
            let mut store = Store::open(&self.0, holder)?;
            for id in &deleted {
                store.delete(id)?;
            }
            // Keep the resume point of an interrupted ingest: a deletion must not discard it.
            let unfinished = store.unfinished_ingest().cloned();
            store.commit(unfinished)?;
            store.close()?;
        }
        Ok(Deletion::Listed { deleted, missing })
    }

    fn remove(&self) -> Result<()> {
        files::remove_folder(&self.0)
    }
}

impl EngineWriter for Store {
    fn engine(&self) -> &'static str {
        "turnwise"
    }

    fn take_warnings(&mut self) -> Vec<String> {
        self.take_notices()
    }

    fn totals(&self) -> Result<Totals> {
        Ok(self.view().totals())
    }

    /// Closes the writer. Ignores the second argument (`complete`): it matters only in [`WriteMode::Replace`], which
    /// this engine does not support.
    fn close(self: Box<Self>, _: bool) -> Result<()> {
        Store::close(*self)
    }
}
