//! Inputs of a sharded encoding: corpus files or indexes. Each shard reads all inputs and skips the
//! dialogues of other shards.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::cli::{
    Context,
    args::{EncodeArgs, ReadArgs},
    commands,
    shards::Shard,
    signals,
};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, formats::Problem, walk::Source};
use turnwise_index::vectors::VectorReader;
use turnwise_store::{Manifest, Snapshot};

/// Largest number of rejects shown as warnings; the others are only counted.
const SHOWN: u64 = 5;

/// All inputs. They are read again for each shard.
pub(super) struct Inputs<'a> {
    indexes: Vec<Snapshot>,
    files: Vec<PathBuf>,
    read: &'a ReadArgs,
    total: Option<u64>,
}

impl<'a> Inputs<'a> {
    pub(super) fn find(args: &'a EncodeArgs, context: &Context<'_>) -> Result<Self> {
        let mut inputs = Inputs { indexes: Vec::new(), files: Vec::new(), read: &args.read, total: None };
        if args.inputs.is_empty() {
            inputs.indexes.push(context.snapshot()?);
        }
        for path in &args.inputs {
            if path == Path::new("-") {
                return Err(Error::Input {
                    message: "a shard cannot be read from standard input".to_owned(),
                    hint: Some("name a file: creating the shard again needs the same input".to_owned()),
                });
            }
            match Manifest::exists(path) {
                true => inputs.indexes.push(Snapshot::open(path)?),
                false => inputs.files.push(path.clone()),
            }
        }
        if inputs.files.is_empty() {
            inputs.total = Some(inputs.indexes.iter().map(|index| index.totals().dialogues).sum());
        } else if inputs.indexes.is_empty() {
            // Also finds unreadable files.
            let (plan, _) = commands::plan(&inputs.files, inputs.read, context)?;
            inputs.total = plan.sources.iter().map(Source::bytes).sum::<Option<u64>>().filter(|n| *n > 0);
        }
        Ok(inputs)
    }

    /// Length of the progress bar: bytes for files, dialogues for indexes.
    pub(super) fn total(&self) -> Option<u64> {
        self.total
    }

    /// Vectors of the index if exactly one index is read. Their encoder is the default.
    pub(super) fn vectors(&self) -> Result<Option<VectorReader>> {
        match (self.indexes.as_slice(), self.files.as_slice()) {
            ([index], []) => VectorReader::open(index.root()),
            _ => Ok(None),
        }
    }

    /// Returns the dialogues of a shard.
    pub(super) fn items<'i>(&'i self, shard: Shard, context: &'i Context<'i>) -> Result<Items<'i>> {
        let (plan, options) = commands::plan(&self.files, self.read, context)?;
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
            damaged: None,
            context,
        })
    }
}

/// Dialogues of one input. The outer error stops the whole run; the inner one is a single bad record.
type Part<'i> = Box<dyn Iterator<Item = Result<Result<Dialogue, Problem>>> + 'i>;

/// Iterator over the dialogues of a shard.
pub(super) struct Items<'i> {
    shard: Shard,
    all: Part<'i>,
    bytes_read: Option<Arc<AtomicU64>>,
    seen: u64,
    rejected: u64,
    /// Error of a file that could not be read to its end.
    damaged: Option<String>,
    context: &'i Context<'i>,
}

/// One dialogue of the shard.
pub(super) struct Item {
    pub(super) dialogue: Dialogue,
    /// Progress through the inputs: bytes for files, dialogues for indexes.
    pub(super) read: u64,
}

impl Items<'_> {
    pub(super) fn next(&mut self) -> Result<Option<Item>> {
        while let Some(item) = self.all.next().transpose()? {
            if signals::stopped() {
                let hint = format!("shard {} was not written; run the same command again", self.shard);
                return Err(Error::Interrupted { hint: Some(hint) });
            }
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
        self.rejected += 1;
        if self.rejected <= SHOWN {
            self.context.printer.warn(format!("rejected: {reject}"));
        }
        let (rejected, allowed) = (self.rejected, self.context.settings.max_errors);
        if rejected <= allowed {
            return Ok(());
        }
        let e = Error::TooManyRejects { rejected, allowed, last: reject };
        Err(Error::Data {
            message: format!("{e}; shard {} was not written", self.shard),
            hint: Some("allow more with the setting ingest.max_errors".to_owned()),
        })
    }

    /// Returns an error if a file was damaged. An incomplete shard must not look complete.
    pub(super) fn end(&self) -> Result<()> {
        match &self.damaged {
            None => Ok(()),
            Some(why) => Err(Error::Data {
                message: format!("an input could not be read to its end: {why}"),
                hint: Some(format!("shard {} was not written; repair the file first", self.shard)),
            }),
        }
    }
}
