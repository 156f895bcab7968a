//! Dropping the terms of what was deleted: Tantivy keeps them until segments merge, and what was killed keeps them
//! for ever.

use std::path::Path;

use super::{Lexical, UTTERANCES, beside, folder, side::Side};
use turnwise_core::{error::Result, files};
use turnwise_store::Snapshot;

impl Lexical {
    /// Makes the index anew if it may hold terms of what was deleted, and gives whether it did. It may if it is of
    /// another log than the snapshot's, from which nothing must have been deleted: that is so when it was compacted.
    pub fn compact(
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<bool> {
        let exists = folder(root).is_dir();
        for rest in beside(root).iter().filter(|rest| rest.is_dir()) {
            Side::refuse_if_written(&rest.join(UTTERANCES))?;
            files::remove_folder(rest)?;
        }
        if !exists || Lexical::open(root).is_ok_and(|lexical| lexical.is_of(snapshot)) {
            return Ok(false);
        }
        Lexical::rebuild(None, root, snapshot, stop, progress).map(|_| true)
    }

    /// Whether it follows the log of a snapshot, behind or not.
    pub fn is_of(&self, snapshot: &Snapshot) -> bool {
        let of = |side: &Side| side.progress().is_some_and(|p| p.log == snapshot.log_id());
        of(&self.utterances) && of(&self.dialogues)
    }
}
