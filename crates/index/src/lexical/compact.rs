//! Removes the terms of deleted dialogues. Tantivy keeps these terms until segments are merged. Files left by a crash
//! keep them forever.

use std::path::Path;

use super::{Lexical, UTTERANCES, folder, side::Side, temporary_folders};
use turnwise_core::{error::Result, files};
use turnwise_store::Snapshot;

impl Lexical {
    /// Rebuilds the index if it may contain terms of deleted dialogues. Returns true if the index was rebuilt. An
    /// index that belongs to the log of the snapshot is kept. The snapshot's log must be freshly compacted: it must
    /// not contain deletions.
    pub fn compact(
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<bool> {
        let exists = folder(root).is_dir();
        for rest in temporary_folders(root).iter().filter(|rest| rest.is_dir()) {
            Side::refuse_if_written(&rest.join(UTTERANCES))?;
            files::remove_folder(rest)?;
        }
        if !exists || Lexical::open(root).is_ok_and(|lexical| lexical.is_of(snapshot)) {
            return Ok(false);
        }
        Lexical::rebuild(None, root, snapshot, stop, progress).map(|_| true)
    }

    /// Returns true if the index belongs to the log of a snapshot, up to date or not.
    pub fn is_of(&self, snapshot: &Snapshot) -> bool {
        let of = |side: &Side| side.progress().is_some_and(|p| p.log == snapshot.log_id());
        of(&self.utterances) && of(&self.dialogues)
    }
}
