//! Going over all dialogues on all cores, with what was found of them in their order.

use rayon::prelude::*;

use super::Stop;
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;
use turnwise_store::Snapshot;

/// Records that are held in memory at a time.
const CHUNK: usize = 4_096;

/// `look` is given each dialogue and its place in the log, on any thread; `take` gets what it found, in order.
pub(super) fn each_dialogue<T: Send>(
    snapshot: &Snapshot,
    stop: Stop<'_>,
    look: &(dyn Fn(usize, Dialogue) -> Result<T> + Sync),
    take: &mut dyn FnMut(T),
) -> Result<()> {
    let mut records = snapshot.records();
    let mut done = 0;
    loop {
        stop.check()?;
        let chunk = records.next_chunk(CHUNK)?;
        if chunk.is_empty() {
            return Ok(());
        }
        let found: Vec<T> = chunk
            .par_iter()
            .enumerate()
            .map(|(n, json)| {
                let dialogue = serde_json::from_slice(json)
                    .map_err(|e| Error::corrupt(snapshot.root(), format!("a record is unreadable: {e}")))?;
                look(done + n, dialogue)
            })
            .collect::<Result<_>>()?;
        done += found.len();
        found.into_iter().for_each(&mut *take);
    }
}
