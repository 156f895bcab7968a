//! Statistics of the dialogues in an index, computed in parallel.

use rayon::prelude::*;

use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, filter::Filter, stats::Statistics};
use turnwise_store::Snapshot;

/// Number of records in memory at a time.
const CHUNK: usize = 4_096;

/// Computes the statistics of the dialogues that match a filter. `seen` is called with each of these dialogues,
/// from several threads. `done` receives the number of records read and can stop the computation with an error.
pub fn statistics(
    snapshot: &Snapshot,
    filter: Option<&Filter>,
    seen: &(dyn Fn(&Dialogue) + Sync),
    done: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Statistics> {
    let mut records = snapshot.records();
    let (mut statistics, mut records_read) = (Statistics::default(), 0);
    loop {
        let chunk = records.next_chunk(CHUNK)?;
        if chunk.is_empty() {
            return Ok(statistics);
        }
        let part = |records: &[Vec<u8>]| {
            let mut part = Statistics::default();
            for json in records {
                let dialogue: Dialogue = serde_json::from_slice(json)
                    .map_err(|e| Error::corrupt(snapshot.root(), format!("a record is unreadable: {e}")))?;
                if filter.is_none_or(|filter| filter.matches(&dialogue)) {
                    part.add(&dialogue);
                    seen(&dialogue);
                }
            }
            Ok::<_, Error>(part)
        };
        let counted =
            chunk.par_chunks(256).map(part).try_reduce(Statistics::default, |a, b| Ok(a.joined(b)))?;
        statistics = statistics.joined(counted);
        records_read += chunk.len() as u64;
        done(records_read)?;
    }
}
