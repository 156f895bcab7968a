//! What is divided into shards: files that hold a corpus, or indexes. All of it is read for each shard, and what
//! belongs to others is passed over.

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

/// Rejects that are shown; the rest is counted.
const SHOWN: u64 = 5;

/// Everything that is to be read, each time anew.
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
                    message: "a shard is not read from standard input".to_owned(),
                    hint: Some("name a file: it is read again when the shard is made again".to_owned()),
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
            // Finds what cannot be read, too.
            let (plan, _) = commands::plan(&inputs.files, inputs.read, context)?;
            inputs.total = plan.sources.iter().map(Source::bytes).sum::<Option<u64>>().filter(|n| *n > 0);
        }
        Ok(inputs)
    }

    /// What the progress grows to: bytes of files, or dialogues of indexes.
    pub(super) fn total(&self) -> Option<u64> {
        self.total
    }

    /// The vectors of the one index that is read, if there are any: their encoder is the one to go on with.
    pub(super) fn vectors(&self) -> Result<Option<VectorReader>> {
        match (self.indexes.as_slice(), self.files.as_slice()) {
            ([index], []) => VectorReader::open(index.root()),
            _ => Ok(None),
        }
    }

    /// The dialogues of a shard.
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

/// What comes of an input; the outer error is the end of all.
type Part<'i> = Box<dyn Iterator<Item = Result<Result<Dialogue, Problem>>> + 'i>;

/// The dialogues of a shard, one after the other.
pub(super) struct Items<'i> {
    shard: Shard,
    all: Part<'i>,
    bytes_read: Option<Arc<AtomicU64>>,
    seen: u64,
    rejected: u64,
    /// Why a file could not be read to its end.
    damaged: Option<String>,
    context: &'i Context<'i>,
}

/// A dialogue of the shard.
pub(super) struct Item {
    pub(super) dialogue: Dialogue,
    /// How far the inputs have been read: bytes of files, or dialogues of indexes.
    pub(super) read: u64,
}

impl Items<'_> {
    pub(super) fn next(&mut self) -> Result<Option<Item>> {
        while let Some(item) = self.all.next().transpose()? {
            if signals::stopped() {
                let hint = format!("nothing of shard {} was written; run the same command again", self.shard);
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
            message: format!("{e}; nothing of shard {} was written", self.shard),
            hint: Some("allow more with the setting ingest.max_errors".to_owned()),
        })
    }

    /// Whether everything could be read. A shard that lacks something must not look complete.
    pub(super) fn end(&self) -> Result<()> {
        match &self.damaged {
            None => Ok(()),
            Some(why) => Err(Error::Data {
                message: format!("an input could not be read to its end: {why}"),
                hint: Some(format!("nothing of shard {} was written; mend the file first", self.shard)),
            }),
        }
    }
}
