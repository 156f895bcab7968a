//! `turnwise embed`: writes the vectors of texts, utterances or dialogues in files, without an index.

mod reading;
mod summary;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::RecvTimeoutError,
    },
    time::Duration,
};

use crate::cli::{
    Context,
    args::{EmbedArgs, UnitArg},
    commands::embed::{
        reading::{Item, Reading},
        summary::Summary,
    },
    encoders::{self, Open},
    printer::grouped,
    progress::ProgressBar,
    signals,
};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, formats::Problem, rejects::Rejects};
use turnwise_encoder::{
    Encoded, Encoder, Spent,
    ahead::{self, Chunk, Inputs, Stream},
};
use turnwise_shards::vector_files::{self, VectorFileFormat, VectorFileWriter};

pub(super) use summary::report_usage;

/// Largest number of rejects shown as warnings; the others are only counted.
const SHOWN: u64 = 5;

pub(super) fn run(args: &EmbedArgs, context: &Context<'_>) -> Result<()> {
    let summary = embed(args, &|model, settings| encoders::open(context, model, settings), context)?;
    summary.report(args.output == Path::new("-"), context)?;
    match summary.damaged_files {
        0 => Ok(()),
        _ => Err(Error::Data {
            message: "an input could not be read to its end; the output has everything before that point"
                .to_owned(),
            hint: Some("see the warning above for the reason".to_owned()),
        }),
    }
}

fn embed(args: &EmbedArgs, open: Open<'_>, context: &Context<'_>) -> Result<Summary> {
    let target = args.to.map_or_else(|| VectorFileFormat::of(&args.output), Ok)?;
    // Check the inputs before loading the model, because loading is slow.
    let reading = Reading::plan(args, context)?;
    reading.must_not_overwrite(args, target)?;
    let model = args.encoder.model.as_deref().unwrap_or(encoders::DEFAULT_MODEL);
    let encoder = open(model, &args.encoder.settings(args.encoder.precision(), args.tokens.given()))?;
    let encoder = encoder.as_ref();
    let dim = width(encoder, args.dim)?;
    let sink = vector_files::create(&args.output, target, dim, &about(encoder, model, dim, args))?;
    let unit = match args.of {
        UnitArg::Utterances => "texts",
        UnitArg::Dialogues => "dialogues",
    };
    let read_as = reading.read_as.clone();
    let mut embedding = Embedding {
        progress: ProgressBar::new(context.printer, "embedding", unit, reading.bytes),
        bytes_read: reading.options.bytes_read.clone(),
        items: reading.start()?,
        waiting: VecDeque::new(),
        of: args.of,
        normalize: args.normalize,
        dim,
        chunk: context.settings.encode_batch,
        chunk_bytes: encoder.chunk_bytes(),
        sink,
        rejected: 0,
        rejects: Rejects::open(args.rejects.file.clone(), 0)?,
        damaged_files: 0,
        allowed: args.rejects.max_errors.unwrap_or(context.settings.max_errors),
        vectors: 0,
        spent: Spent::default(),
        context,
    };
    let options = args.encoder.given().into_options();
    let done = ahead::encode(encoder, &options, &signals::stopped, &mut embedding);
    // Write the rejects file even if encoding failed.
    embedding.rejects.flush()?;
    if !done? {
        return Err(interrupted());
    }
    let Embedding { sink, progress, rejected, damaged_files, vectors, spent, .. } = embedding;
    let seconds = progress.seconds();
    drop(progress);
    if vectors == 0 {
        return Err(Error::data("the input has no texts to embed; nothing was written"));
    }
    sink.finish()?;
    Ok(Summary {
        schema: "turnwise/embed/1",
        model: model.to_owned(),
        encoder: encoder.name().to_owned(),
        fingerprint: encoder.fingerprint().to_string(),
        runs: encoder.describe(),
        output: match args.output == Path::new("-") {
            true => "standard output".to_owned(),
            false => args.output.display().to_string(),
        },
        ids: (target == VectorFileFormat::Npy)
            .then(|| vector_files::ids_path(&args.output).display().to_string()),
        format: target.name(),
        read_as,
        unit,
        vectors,
        dim,
        max_tokens: encoder.max_tokens(),
        spent,
        rejected,
        rejects: args.rejects.file.as_ref().map(|path| path.display().to_string()),
        damaged_files,
        seconds,
    })
}

fn interrupted() -> Error {
    Error::Interrupted { hint: Some("nothing was written".to_owned()) }
}

fn width(encoder: &dyn Encoder, wanted: Option<u32>) -> Result<usize> {
    let all = encoder.dim();
    match wanted.map(|n| n as usize) {
        Some(n) if n > all => Err(Error::Input {
            message: format!("--dim {n} is larger than the {all} dimensions of {}", encoder.name()),
            hint: Some(format!("use {all} or less")),
        }),
        wanted => Ok(wanted.unwrap_or(all)),
    }
}

/// Metadata for output formats that support it.
fn about(encoder: &dyn Encoder, model: &str, dim: usize, args: &EmbedArgs) -> BTreeMap<String, String> {
    let mut about: BTreeMap<String, String> = [
        ("turnwise", env!("CARGO_PKG_VERSION").to_owned()),
        ("model", model.to_owned()),
        ("fingerprint", encoder.fingerprint().to_string()),
        ("runs", encoder.describe()),
        ("dim", dim.to_string()),
        ("normalized", (args.normalize || (dim == encoder.dim() && encoder.normalizes())).to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    about.extend(args.encoder.prompt.clone().map(|prompt| ("prompt".to_owned(), prompt)));
    about
}

struct Embedding<'a> {
    items: reading::Items,
    waiting: VecDeque<Item>,
    of: UnitArg,
    normalize: bool,
    dim: usize,
    chunk: usize,
    chunk_bytes: usize,
    sink: Box<dyn VectorFileWriter>,
    progress: ProgressBar<'a>,
    bytes_read: Arc<AtomicU64>,
    rejected: u64,
    rejects: Rejects,
    damaged_files: u64,
    allowed: u64,
    vectors: u64,
    spent: Spent,
    context: &'a Context<'a>,
}

/// The ids of a chunk, and the input bytes read when it was complete.
struct Tag {
    ids: Vec<String>,
    read: u64,
}

impl Embedding<'_> {
    /// Returns the next item. Waits until one arrives or the user interrupts.
    fn item(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.waiting.pop_front() {
                return Ok(Some(item));
            }
            if signals::stopped() {
                return Err(interrupted());
            }
            match self.items.recv_timeout(Duration::from_millis(100)) {
                Ok(group) => self.waiting = group.into(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    fn problem(&mut self, problem: Problem) -> Result<()> {
        let reject = match problem {
            Problem::Record(reject) => reject,
            Problem::File(reject) => {
                self.damaged_files += 1;
                reject
            }
        };
        self.rejected += 1;
        self.rejects.write(&reject)?;
        if self.rejected <= SHOWN {
            self.progress.suspend(|| self.context.printer.warn(format!("rejected: {reject}")));
        }
        if self.rejected <= self.allowed {
            return Ok(());
        }
        let e = Error::TooManyRejects { rejected: self.rejected, allowed: self.allowed, last: reject };
        Err(Error::Data {
            message: format!("{e}; nothing was written"),
            hint: Some("allow more with --max-errors N".to_owned()),
        })
    }
}

/// Inputs collected for the next chunk.
#[derive(Default)]
struct PendingChunk {
    ids: Vec<String>,
    texts: Vec<String>,
    dialogues: Vec<Dialogue>,
    bytes: usize,
}

impl Stream for Embedding<'_> {
    type Tag = Tag;

    fn next(&mut self) -> Result<Option<Chunk<Tag>>> {
        let mut gathered = PendingChunk::default();
        while gathered.ids.len() < self.chunk && gathered.bytes < self.chunk_bytes {
            match self.item()? {
                None => break,
                Some(Item::Problem(problem)) => self.problem(problem)?,
                Some(Item::Text(text)) => {
                    gathered.bytes += text.text.len();
                    gathered.ids.push(text.id);
                    gathered.texts.push(text.text);
                }
                Some(Item::Dialogue(dialogue)) => {
                    gathered.bytes += dialogue.turns.iter().map(|t| t.text.len()).sum::<usize>();
                    gathered.ids.push(dialogue.id.to_string());
                    gathered.dialogues.push(*dialogue);
                }
            }
        }
        let read = self.bytes_read.load(Ordering::Relaxed);
        let inputs = match self.of {
            UnitArg::Utterances => Inputs::Texts(gathered.texts),
            UnitArg::Dialogues => Inputs::Dialogues(gathered.dialogues),
        };
        Ok((!inputs.is_empty()).then_some(Chunk { inputs, tag: Tag { ids: gathered.ids, read } }))
    }

    fn done(&mut self, tag: Tag, encoded: Encoded) -> Result<()> {
        let mut vectors = encoded.vectors.truncate(self.dim);
        if self.normalize {
            vectors.normalize();
        }
        self.sink.write(&tag.ids, &vectors)?;
        self.vectors += tag.ids.len() as u64;
        self.spent += encoded.spent;
        let rate = self.spent.tokens as f64 / self.progress.seconds().max(1e-3);
        self.progress.set_suffix(format!("{} tokens/s", grouped(rate as u64)));
        self.progress.set(tag.read, self.vectors);
        Ok(())
    }
}
