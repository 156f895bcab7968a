//! Copies an index to Milvus, or a collection in Milvus to an index, and checks the copy.

mod content;
mod from_milvus;
mod samples;
mod to_milvus;

use serde::Serialize;

use turnwise_core::{
    error::{Error, Result},
    numbers::counted,
};
use turnwise_index::vectors::VectorReader;
use turnwise_store::Snapshot;

use crate::progress::{Amount, Progress, Step, stop_if_asked};
use content::Content;

pub use from_milvus::from_milvus;
pub use samples::Sampled;
pub use to_milvus::to_milvus;

/// Hint for the error after an interruption.
const CONTINUES: &str =
    "the copied data are kept, but not visible yet; run the same command again to continue";
/// Minimum share of dense hits that the original and the copy must have in common. The check fails below this share.
const MIN_OVERLAP: f64 = 0.8;
/// Tolerance of the check: for at most one in this many sampled turns, a search with the turn's own vector may miss the
/// turn. Some misses are normal, because graph searches are approximate.
const LOST_ONE_IN: usize = 5;

/// Settings of a migration to or from Milvus.
#[derive(Debug, Clone)]
pub struct MigrationSettings<'a> {
    /// Whether a copy to Milvus may replace a collection that already has dialogues.
    pub replace: bool,
    /// Number of searches to compare between the original and the copy.
    pub samples: usize,
    /// Command line to store in the lock files of the index, to identify this process.
    pub command_line: &'a str,
}

/// Result of a migration and of its checks.
#[derive(Debug, Serialize)]
pub struct Migration {
    schema: &'static str,
    /// The original: the folder of an index, or the address of a collection.
    pub from: String,
    /// The copy: the folder of an index, or the address of a collection.
    pub to: String,
    /// Number of dialogues copied.
    pub dialogues: u64,
    /// Number of turns in these dialogues.
    pub turns: u64,
    /// Number of nonzero vectors copied.
    pub vectors: u64,
    /// Number of dialogues that the target already contained, because an earlier or parallel run had copied them.
    pub already_there: u64,
    /// Checksum of all dialogues and vectors.
    pub checksum: String,
    /// Comparison of sampled searches in the original and in the copy.
    #[serde(flatten)]
    pub sampled: Sampled,
    /// Duration of the copying in seconds. Excludes building the indexes and checking the copy.
    pub moving_seconds: f64,
    /// Duration of the whole migration in seconds.
    pub seconds: f64,
}

impl Migration {
    fn new(
        [from, to]: [String; 2],
        content: &Content,
        already_there: u64,
        sampled: Sampled,
        [moving_seconds, seconds]: [f64; 2],
    ) -> Self {
        Migration {
            schema: "turnwise/migrate/1",
            from,
            to,
            dialogues: content.dialogues,
            turns: content.turns,
            vectors: content.vectors,
            already_there,
            checksum: content.checksum(),
            sampled,
            moving_seconds,
            seconds,
        }
    }
}

/// Computes the counts and checksums of an index. Also returns the number of vectors that are missing in `vectors`.
fn content_of(
    snapshot: &Snapshot,
    vectors: Option<&VectorReader>,
    step: Step,
    progress: &dyn Progress,
) -> Result<(Content, u64)> {
    progress.begin(step, Some(snapshot.totals().dialogues), 0);
    let (mut content, mut missing) = (Content::default(), 0);
    for dialogue in snapshot.dialogues() {
        missing += content.add_local(&dialogue?, vectors)?;
        if content.dialogues % 256 == 0 {
            stop_if_asked(progress, CONTINUES)?;
            progress.advance(Amount::units(content.dialogues));
        }
    }
    progress.end();
    Ok((content, missing))
}

/// Returns an error if `read_back`, the content of the copy, differs from the content of the original. `to` is the name
/// of the copy.
fn check_content(content: &Content, read_back: &Content, to: &str) -> Result<()> {
    match content.differs(read_back) {
        None => Ok(()),
        Some(what) => Err(Error::data(format!(
            "the check of {to} failed: {what}; the data are not visible yet"
        ))
        .with_hint(
            "did another process write to the source or the target? Run the same command to try again",
        )),
    }
}

/// Returns an error if searches in the copy miss too many hits or too many sampled turns. Warns if they miss only a few
/// turns.
fn check_samples(sampled: &Sampled, to: &str, progress: &dyn Progress) -> Result<()> {
    let lost = sampled.lost.first().map(|first| {
        format!(
            "{} of {} not found by their own vectors, such as {first}",
            sampled.lost.len(),
            counted(sampled.searches as u64, "turn")
        )
    });
    let few = sampled.dense.filter(|part| *part < MIN_OVERLAP);
    let what = match (lost, few) {
        (None, None) => return Ok(()),
        (Some(lost), None) if sampled.lost.len() * LOST_ONE_IN <= sampled.searches => {
            progress.warn(lost);
            return Ok(());
        }
        (_, Some(part)) => format!("only {:.0}% of the dense hits are the same", part * 100.0),
        (Some(lost), None) => lost,
    };
    Err(Error::data(format!("{to} is complete, but {what}; the data are not visible yet")).with_hint(
        "are its graphs still being built? Run the same command to check again; nothing is copied twice",
    ))
}

/// If the error is a failed connection, adds to its hint that the migration can be resumed.
fn resumable(e: Error) -> Error {
    match (&e, e.hint()) {
        (Error::Unavailable { .. }, Some(hint)) => e.with_hint(format!(
            "{hint} The copied data are kept, but not visible yet; run the same command again to continue"
        )),
        _ => e,
    }
}
