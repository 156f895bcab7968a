//! Inputs to encode in shards: corpus files or indexes. For each shard, all inputs are read, and the dialogues of other
//! shards are skipped.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use turnwise_core::error::{Error, Result};
use turnwise_corpus::{
    Dialogue,
    formats::{Format, Problem, ReadOptions},
    walk::{self, Plan, Source},
};
use turnwise_index::vectors::VectorReader;
use turnwise_store::{Manifest, Snapshot};

use crate::{
    progress::{Progress, count_reject, stop_if_asked},
    shard::Shard,
};

/// Corpus files and how to read them.
pub struct CorpusFiles {
    /// Files and folders to read.
    pub paths: Vec<PathBuf>,
    /// Format of all files. If `None`, the format of each file is detected.
    pub format: Option<&'static Format>,
    /// Options for reading the files.
    pub options: ReadOptions,
    /// Maximum number of rejected records. If there are more, encoding fails.
    pub max_errors: u64,
}

impl CorpusFiles {
    /// Finds the files to read. Also returns the reading options, with a new counter of the bytes read.
    pub(crate) fn plan(&self, progress: &dyn Progress) -> Result<(Plan, ReadOptions)> {
        let plan = walk::plan(&self.paths, self.format)?;
        for path in &plan.unrecognized {
            progress.detail(format!("not recognized: {}", path.display()));
        }
        Ok((plan, ReadOptions { bytes_read: Arc::default(), ..self.options.clone() }))
    }
}

/// Corpus files and indexes to encode. Both are read again for each shard.
pub struct Inputs {
    indexes: Vec<Snapshot>,
    files: CorpusFiles,
    /// Total size of the inputs: in bytes if all are files, in dialogues if all are indexes. `None` for a mix of both,
    /// or if the size is unknown.
    pub(crate) total: Option<u64>,
}

impl Inputs {
    /// Finds and checks the inputs. A folder that is an index is read as an index. If `files` has no paths, the index
    /// that `default` opens is the only input.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if an input is standard input, because the inputs are read again for each shard.
    pub fn find(
        mut files: CorpusFiles,
        default: impl FnOnce() -> Result<Snapshot>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut indexes = Vec::new();
        if files.paths.is_empty() {
            indexes.push(default()?);
        }
        for path in std::mem::take(&mut files.paths) {
            if path == Path::new("-") {
                return Err(Error::input("a shard cannot be read from standard input")
                    .with_hint("name a file: creating the shard again needs the same input"));
            }
            if Manifest::exists(&path) {
                indexes.push(Snapshot::open(&path)?);
            } else {
                files.paths.push(path);
            }
        }
        let mut total = None;
        if files.paths.is_empty() {
            total = Some(indexes.iter().map(|index| index.totals().dialogues).sum());
        } else if indexes.is_empty() {
            // Planning also reports missing and unreadable paths.
            let (plan, _) = files.plan(progress)?;
            total = plan.sources.iter().map(Source::bytes).sum::<Option<u64>>().filter(|n| *n > 0);
        }
        Ok(Inputs { indexes, files, total })
    }

    /// If the only input is an index that has vectors, opens these vectors. Otherwise returns `None`.
    pub fn vectors(&self) -> Result<Option<VectorReader>> {
        match (self.indexes.as_slice(), self.files.paths.as_slice()) {
            ([index], []) => VectorReader::open(index.root()),
            _ => Ok(None),
        }
    }

    /// Starts reading the dialogues of a shard.
    pub(crate) fn items<'i>(&'i self, shard: Shard, progress: &'i dyn Progress) -> Result<Items<'i>> {
        let (plan, options) = self.files.plan(progress)?;
        let bytes_read = options.bytes_read.clone();
        let of_indexes = self
            .indexes
            .iter()
            .map(|index| -> Part<'i> { Box::new(index.dialogues().map(|dialogue| dialogue.map(Ok))) });
        let of_files = plan.sources.into_iter().map(move |source| -> Part<'i> {
            match source.read(&options) {
                Ok(dialogues) => Box::new(dialogues.map(Ok)),
                Err(e) => Box::new(std::iter::once(Err(e))),
            }
        });
        Ok(Items {
            shard,
            all: Box::new(of_indexes.chain(of_files).flatten()),
            bytes_read: self.indexes.is_empty().then_some(bytes_read),
            seen: 0,
            rejected: 0,
            max_errors: self.files.max_errors,
            damaged: None,
            progress,
        })
    }
}

/// Dialogues of one or more inputs. An item `Ok(Err(problem))` is a record that cannot be read. An item `Err` stops the
/// whole run.
type Part<'i> = Box<dyn Iterator<Item = Result<Result<Dialogue, Problem>>> + 'i>;

/// Iterator over the dialogues of a shard.
pub(crate) struct Items<'i> {
    shard: Shard,
    all: Part<'i>,
    bytes_read: Option<Arc<AtomicU64>>,
    seen: u64,
    rejected: u64,
    /// Error of a file that could not be read to its end. `None` if there is no such file.
    damaged: Option<String>,
    max_errors: u64,
    progress: &'i dyn Progress,
}

/// A dialogue of the shard, and the progress of reading.
pub(crate) struct Item {
    pub(crate) dialogue: Dialogue,
    /// Progress through the inputs: in bytes if all inputs are files, otherwise in dialogues.
    pub(crate) read: u64,
}

impl Items<'_> {
    pub(crate) fn next(&mut self) -> Result<Option<Item>> {
        while let Some(item) = self.all.next().transpose()? {
            stop_if_asked(self.progress, not_written(self.shard))?;
            match item {
                Err(problem) => self.problem(problem)?,
                Ok(dialogue) => {
                    self.seen += 1;
                    if self.shard.holds(&dialogue.id) {
                        let bytes = self.bytes_read.as_ref().map(|read| read.load(Ordering::Relaxed));
                        return Ok(Some(Item { dialogue, read: bytes.unwrap_or(self.seen) }));
                    }
                }
            }
        }
        Ok(None)
    }

    fn problem(&mut self, problem: Problem) -> Result<()> {
        let reject = match problem {
            Problem::Record(reject) => reject,
            Problem::File(reject) => {
                self.damaged = Some(reject.to_string());
                reject
            }
        };
        let consequence = format!("shard {} was not written", self.shard);
        count_reject(reject, &mut self.rejected, self.max_errors, &consequence, self.progress)
            .map_err(|e| e.with_hint("allow more with the setting ingest.max_errors"))
    }

    /// Returns an error if a file could not be read to its end. The caller then writes no shard, because it would be
    /// incomplete.
    pub(crate) fn end(&self) -> Result<()> {
        match &self.damaged {
            None => Ok(()),
            Some(why) => Err(Error::data(format!("an input could not be read to its end: {why}"))
                .with_hint(format!("shard {} was not written; repair the file first", self.shard))),
        }
    }
}

/// Returns the hint for the error after an interruption.
pub(crate) fn not_written(shard: Shard) -> String {
    format!("shard {shard} was not written; run the same command again")
}
