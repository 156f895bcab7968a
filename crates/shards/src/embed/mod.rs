//! Encodes the texts, utterances or dialogues of input files, and writes the vectors to one file. No index is needed.

mod reading;

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::RecvTimeoutError,
    },
    time::{Duration, Instant},
};

use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, formats::Problem, writers::Rejects};
use turnwise_encoder::{
    EncodeStats, Encoded, Encoder,
    ahead::{self, Chunk, Inputs as ChunkInputs, Options, Stream},
};
use turnwise_index::vectors::Kind;

use crate::{
    progress::{Amount, Progress, Step, count_reject, stop_if_asked},
    vector_files::{self, VectorFileFormat, VectorFileWriter},
};
use reading::{Item, Items};

pub use reading::EmbedInputs;

/// Maximum number of rejected records reported as warnings. Further records are only counted.
pub const MAX_WARNINGS: u64 = 5;
/// Hint for the error after an interruption.
const NOTHING_WRITTEN: &str = "nothing was written";

/// Options of [`embed`].
#[derive(Debug, Clone)]
pub struct EmbedSettings<'a> {
    /// Name of the model, for the metadata of the file.
    pub model: &'a str,
    /// Encoding options.
    pub options: Options,
    /// File to write.
    pub output: &'a Path,
    /// Format of the file.
    pub format: VectorFileFormat,
    /// Number of dimensions to keep; `None` for all.
    pub dim: Option<usize>,
    /// Whether to normalize the vectors to unit vectors.
    pub normalize: bool,
    /// Maximum number of texts or dialogues encoded together.
    pub batch: usize,
    /// File for the records that could not be read.
    pub rejects: Option<PathBuf>,
    /// Maximum number of rejected records. If there are more, embedding fails.
    pub max_errors: u64,
}

/// Result of [`embed`].
#[derive(Debug)]
pub struct Embedded {
    /// Number of inputs by format name.
    pub read_as: BTreeMap<&'static str, u64>,
    /// Number of vectors written.
    pub vectors: u64,
    /// Number of dimensions of the vectors.
    pub dim: usize,
    /// Encoding statistics, such as the number of tokens.
    pub spent: EncodeStats,
    /// Number of records that could not be read.
    pub rejected: u64,
    /// Number of files that could not be read to their end.
    pub damaged_files: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Embeds the inputs in order and writes the vectors to the output file. Until the file is complete, it has a temporary
/// name.
///
/// # Errors
///
/// [`Error::Input`] if more dimensions are requested than the encoder has; [`Error::Data`] if too many records are
/// rejected, or if there is nothing to embed; [`Error::Interrupted`] if the user stops the operation.
pub fn embed(
    inputs: EmbedInputs,
    encoder: &dyn Encoder,
    settings: &EmbedSettings<'_>,
    progress: &dyn Progress,
) -> Result<Embedded> {
    let dim = width(encoder, settings.dim)?;
    let normalized = settings.normalize || (dim == encoder.dim() && encoder.normalizes());
    let mut about =
        vector_files::metadata(encoder, settings.model, dim, [("normalized", normalized.to_string())]);
    about.extend(settings.options.texts.prompt.clone().map(|prompt| ("prompt".to_owned(), prompt)));
    let file = vector_files::create(settings.output, settings.format, dim, &about)?;
    let begun = Instant::now();
    progress.begin(Step::Embedding(inputs.unit), inputs.bytes, 0);
    let read_as = inputs.read_as.clone();
    let mut embedding = Embedding {
        bytes_read: inputs.options.bytes_read.clone(),
        unit: inputs.unit,
        items: inputs.start()?,
        waiting: VecDeque::new(),
        settings,
        dim,
        chunk_bytes: encoder.chunk_bytes(),
        file,
        rejected: 0,
        rejects: Rejects::open(settings.rejects.clone(), 0)?,
        damaged_files: 0,
        vectors: 0,
        spent: EncodeStats::default(),
        progress,
    };
    let done = ahead::encode(encoder, &settings.options, &|| progress.stop(), &mut embedding);
    // Write the rejects file even if encoding failed.
    embedding.rejects.flush()?;
    if !done? {
        return Err(Error::Interrupted { hint: Some(NOTHING_WRITTEN.to_owned()) });
    }
    let Embedding { file, rejected, damaged_files, vectors, spent, .. } = embedding;
    let seconds = begun.elapsed().as_secs_f64();
    progress.end();
    if vectors == 0 {
        return Err(Error::data("the input has no texts to embed; nothing was written"));
    }
    file.finish()?;
    Ok(Embedded { read_as, vectors, dim, spent, rejected, damaged_files, seconds })
}

/// Returns the number of dimensions to write: `wanted`, or all dimensions of the encoder. Returns an error if `wanted`
/// is too large.
fn width(encoder: &dyn Encoder, wanted: Option<usize>) -> Result<usize> {
    let all = encoder.dim();
    match wanted {
        Some(n) if n > all => {
            Err(Error::input(format!("--dim {n} is larger than the {all} dimensions of {}", encoder.name()))
                .with_hint(format!("use {all} or less")))
        }
        wanted => Ok(wanted.unwrap_or(all)),
    }
}

struct Embedding<'a> {
    items: Items,
    waiting: VecDeque<Item>,
    unit: Kind,
    settings: &'a EmbedSettings<'a>,
    dim: usize,
    chunk_bytes: usize,
    file: Box<dyn VectorFileWriter>,
    progress: &'a dyn Progress,
    bytes_read: Arc<AtomicU64>,
    rejected: u64,
    rejects: Rejects,
    damaged_files: u64,
    vectors: u64,
    spent: EncodeStats,
}

/// Ids of a chunk, and the number of input bytes that had been read when the chunk was complete.
struct Tag {
    ids: Vec<String>,
    read: u64,
}

impl Embedding<'_> {
    /// Returns the next item, or `None` at the end of the inputs. Waits until an item arrives or the user stops the
    /// operation.
    fn item(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.waiting.pop_front() {
                return Ok(Some(item));
            }
            stop_if_asked(self.progress, NOTHING_WRITTEN)?;
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
        self.rejects.write(&reject)?;
        count_reject(reject, &mut self.rejected, self.settings.max_errors, NOTHING_WRITTEN, self.progress)
            .map_err(|e| e.with_hint("allow more with --max-errors N"))
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
        while gathered.ids.len() < self.settings.batch && gathered.bytes < self.chunk_bytes {
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
        let inputs = match self.unit {
            Kind::Utterances => ChunkInputs::Texts(gathered.texts),
            Kind::Dialogues => ChunkInputs::Dialogues(gathered.dialogues),
        };
        Ok((!inputs.is_empty()).then_some(Chunk { inputs, tag: Tag { ids: gathered.ids, read } }))
    }

    fn done(&mut self, tag: Tag, encoded: Encoded) -> Result<()> {
        let mut vectors = encoded.vectors.truncate(self.dim);
        if self.settings.normalize {
            vectors.normalize();
        }
        self.file.write(&tag.ids, &vectors)?;
        self.vectors += tag.ids.len() as u64;
        self.spent += encoded.spent;
        self.progress.advance(Amount {
            done: tag.read,
            units: self.vectors,
            texts: 0,
            tokens: self.spent.tokens,
        });
        Ok(())
    }
}
