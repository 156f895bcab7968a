//! Parallel iteration over all dialogues, with results in log order.

use rayon::prelude::*;

use super::Stop;
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;
use turnwise_store::Snapshot;

/// Number of records in memory at a time.
const CHUNK: usize = 4_096;

/// Calls `look` for each dialogue with its index in log order, in parallel. Calls `take` with the results in log
/// order.
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
