//! Parallel scans over all dialogues of an index, and statistics of these dialogues.

use rayon::prelude::*;

use crate::clusters::Stop;
use turnwise_core::{Error, Result};
use turnwise_corpus::{Dialogue, filter::Filter, stats::Statistics};
use turnwise_store::Snapshot;

/// Computes the statistics of the dialogues that match a filter. Calls `seen` with each of these dialogues, from
/// several threads. Calls `done` with the number of records read so far. If `done` returns an error, the computation
/// stops and returns this error.
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
                let dialogue = parse(snapshot, json)?;
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

/// Maximum number of records that are in memory at a time.
const CHUNK: usize = 4_096;

fn parse(snapshot: &Snapshot, json: &[u8]) -> Result<Dialogue> {
    serde_json::from_slice(json)
        .map_err(|e| Error::corrupt(snapshot.root(), format!("a record is unreadable: {e}")))
}

/// Calls `look` in parallel with each dialogue and its position in the log. Calls `take` with the results of `look`, in
/// log order.
pub(crate) fn each_dialogue<T: Send>(
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
            .map(|(n, json)| look(done + n, parse(snapshot, json)?))
            .collect::<Result<_>>()?;
        done += found.len();
        found.into_iter().for_each(&mut *take);
    }
}
