//! Writes dialogues to Milvus, together with their vectors from shards.
//!
//! Shards contain vectors with keys, but no dialogues, so the dialogues are read from the original inputs. First, all
//! vectors are copied to memory-mapped files in the temporary folder, so that memory use stays bounded. Then the
//! dialogues are read once to check that no vector is missing. Finally, dialogues and vectors are written to Milvus.
//! Nothing is encoded, and no encoder is opened.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
    ids::{DialogueId, IdKey},
    numbers::counted,
};
use turnwise_corpus::{Dialogue, walk::Plan};
use turnwise_index::vectors::{Kind, Mode, VectorReader, VectorWriter};
use turnwise_milvus::{Manifest, MilvusWriter, Target, VectorSource};
use turnwise_store::{
    IngestMark, Manifest as IndexManifest, Prepared, PutOutcome,
    ingest::{DialogueSink, IngestControl, IngestOptions, ingest},
};

use crate::{
    assemble,
    folder::{Folder, TemporaryFile},
    inputs::CorpusFiles,
    manifest::{ShardManifest, keys},
    progress::{Amount, Progress, Step, stop_if_asked},
    shard::{Shard, Shards},
    survey::Survey,
};

/// Hint of the error if the assembly was interrupted before it wrote anything to Milvus.
const NOTHING_WRITTEN: &str = "nothing was written";

/// Settings for writing the vectors of shards to Milvus, together with the dialogues from the original input files.
pub struct MilvusAssembly<'a> {
    /// Folder of the shards.
    pub folder: &'a dyn Folder,
    /// Input files from which the shards were encoded.
    pub files: CorpusFiles,
    /// Options for ingesting the files. Their reading options are ignored; those in `files` are used instead.
    pub options: IngestOptions,
    /// Milvus collection to write to.
    pub target: Target,
    /// Whether to replace all existing data of the collection.
    pub replace: bool,
    /// Command line, for the lock file of the temporary vector files.
    pub command_line: &'a str,
}

/// A Milvus writer, and the inputs and options for an ingest with this writer. The vectors come from shards.
pub struct PreparedIngest {
    /// Writer to Milvus. It takes the vectors of the dialogues from the shards.
    pub writer: MilvusWriter,
    /// Sources of the dialogues.
    pub plan: Plan,
    /// Options for ingesting the sources.
    pub options: IngestOptions,
}

impl MilvusAssembly<'_> {
    /// Checks that all shards are complete and that they contain the vectors of every dialogue. Then opens the writer.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] if a shard is missing or damaged, or a dialogue has no vector; [`Error::Input`] if the
    /// collection has dialogues without vectors or vectors from a different encoder, and `replace` is false.
    pub fn prepare(self, progress: &dyn Progress) -> Result<PreparedIngest> {
        check_inputs(&self.files.paths)?;
        let (folder, target) = (self.folder, &self.target);
        let survey = assemble::complete_shards(folder, progress)?;
        let first = survey.first()?;
        check_kinds(first, folder.name())?;
        if !self.replace {
            check_encoder(first, MilvusWriter::read_manifest(target)?.as_ref(), target, folder.name())?;
        }
        // Report unreadable inputs before downloading anything.
        self.files.plan(progress)?;
        let vectors = vectors(folder, &survey, self.command_line, progress)?;
        let (plan, read) = self.files.plan(progress)?;
        let options = IngestOptions { read, ..self.options };
        check_vectors(&vectors, plan, &options, (&survey, folder.name()), progress)?;
        let recipe = Some(first.recipe.clone());
        let source = Some(Box::new(vectors) as Box<dyn VectorSource>);
        let writer = if self.replace {
            MilvusWriter::new_generation_by_language(target, recipe, source)?
        } else {
            MilvusWriter::open_or_create_with_source(target, None, recipe, |_| source)?
        };
        let (plan, read) = self.files.plan(progress)?;
        Ok(PreparedIngest { writer, plan, options: IngestOptions { read, ..options } })
    }
}

/// Returns an error unless all inputs are files. Other inputs are not supported; for example, standard input cannot be
/// read twice.
fn check_inputs(paths: &[PathBuf]) -> Result<()> {
    let refused = |message: String, hint: &str| Err(Error::input(message).with_hint(hint));
    if paths.is_empty() {
        return refused(
            "shards contain only vectors; the dialogues must be read from the input files".to_owned(),
            "name the input files of the shards: `turnwise encode --assemble PLACE INPUT… --engine ADDRESS`",
        );
    }
    for path in paths {
        if path == Path::new("-") {
            return refused(
                "standard input cannot be read twice".to_owned(),
                "name a file: it is read once to check for missing vectors and once to ingest it",
            );
        }
        if IndexManifest::exists(path) {
            return refused(
                format!("{} is an index, but only files can be read here", path.display()),
                "`turnwise encode --assemble PLACE -i INDEX` loads the vectors into it, and `turnwise migrate` copies it to Milvus",
            );
        }
    }
    Ok(())
}

/// Returns an error unless the shards have both utterance vectors and dialogue vectors, because Milvus stores both
/// kinds.
fn check_kinds(manifest: &ShardManifest, folder: &str) -> Result<()> {
    let Some(lacks) = Kind::ALL.into_iter().find(|kind| manifest.rows(*kind).is_none()) else {
        return Ok(());
    };
    Err(Error::input(format!("the shards in {folder} have no vectors of {}", lacks.name())).with_hint(
        "Milvus stores vectors of utterances and dialogues: create the shards again with --of both",
    ))
}

/// Returns an error if the shards' vectors cannot be mixed with the vectors in the collection.
fn check_encoder(
    manifest: &ShardManifest,
    there: Option<&Manifest>,
    target: &Target,
    folder: &str,
) -> Result<()> {
    let Some(there) = there else { return Ok(()) };
    let what = match &there.recipe {
        None => "dialogues without vectors".to_owned(),
        Some(recipe) => match recipe.conflict(&manifest.recipe, true) {
            None => return Ok(()),
            Some(what) => format!("{what}, which made the shards in {folder}"),
        },
    };
    Err(Error::input(format!("{target} has {what}"))
        .with_hint("--replace replaces the existing dialogues and vectors; or use a different name"))
}

/// Copies the rows of all shards to temporary vector files and opens these files for reading.
fn vectors(
    folder: &dyn Folder,
    survey: &Survey,
    command_line: &str,
    progress: &dyn Progress,
) -> Result<VectorReader> {
    let temporary = TemporaryFile::unique_in(&env::temp_dir(), "turnwise-assembled")?;
    fs::create_dir(&temporary.path).at("create", &temporary.path)?;
    let set = TemporaryFolder(temporary.path.clone());
    let mut writer = VectorWriter::open(&set.0, &survey.first()?.recipe, Mode::Continue, command_line)?;
    assemble::load_all(folder, &survey.manifests, &mut writer, NOTHING_WRITTEN, progress)?;
    writer.finish()?;
    // Memory-mapped files stay readable after they are removed. The temporary folder is removed on return, so that a
    // process that is killed later leaves no files.
    VectorReader::open(&set.0)?.ok_or_else(|| VectorReader::missing_error(&set.0))
}

/// Temporary folder of this process, removed when dropped.
struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // Ignore errors: some systems cannot remove mapped files, but remove temporary files later.
        let _ = files::remove_folder(&self.0);
    }
}

/// Reads the inputs in the same way as an ingest. Returns an error if any vector of a dialogue or utterance is missing
/// in `vectors`.
fn check_vectors(
    vectors: &VectorReader,
    plan: Plan,
    options: &IngestOptions,
    (survey, folder): (&Survey, &str),
    progress: &dyn Progress,
) -> Result<()> {
    let mut check =
        VectorCheck { vectors, of: survey.of, lacking: BTreeSet::new(), first: None, count: 0, progress };
    let total = plan.sources.iter().map(|s| s.bytes()).sum::<Option<u64>>().filter(|n| *n > 0);
    progress.begin(Step::CheckingDialogues, total, 0);
    let bytes_read = options.read.bytes_read.clone();
    ingest(
        &mut check,
        plan,
        options,
        IngestControl {
            stop: &AtomicBool::new(false),
            progress: &mut |tally| {
                let done = bytes_read.load(Ordering::Relaxed);
                progress.advance(Amount { done, ..Amount::units(tally.records) });
            },
            acknowledged: &mut |_| (),
            resumed: &mut |_| (),
        },
    )?;
    progress.end();
    let Some(first) = &check.first else { return Ok(()) };
    let others = match check.count {
        1 => String::new(),
        n => format!(", and neither have {} more", n - 1),
    };
    let shards = Shards::of(check.of, check.lacking.iter().copied());
    Err(Error::data(format!("{first} has no vector in the shards in {folder}{others}; nothing was written"))
        .with_hint(format!(
            "`{}` creates {} again, if its input is the same as here",
            survey.command_for(&shards, folder),
            counted(shards.len() as u64, "shard")
        )))
}

/// Ingest destination that stores no dialogues. It only records which vectors are missing.
struct VectorCheck<'a> {
    vectors: &'a VectorReader,
    /// Number of shards of the corpus.
    of: u32,
    /// Numbers of the shards that should have contained the missing vectors.
    lacking: BTreeSet<u32>,
    /// Id of the first utterance or dialogue without a vector, for the error message.
    first: Option<String>,
    /// Number of missing vectors.
    count: u64,
    progress: &'a dyn Progress,
}

impl DialogueSink for VectorCheck<'_> {
    fn get(&self, _: &DialogueId) -> Result<Option<Dialogue>> {
        Ok(None)
    }

    fn put(&mut self, prepared: &Prepared) -> Result<PutOutcome> {
        stop_if_asked(self.progress, NOTHING_WRITTEN)?;
        let dialogue: Dialogue =
            serde_json::from_slice(&prepared.json).map_err(|e| Error::Internal(e.to_string()))?;
        for kind in Kind::ALL {
            for (row, key) in keys(kind, &dialogue).iter().enumerate() {
                if self.vectors.row_of(kind, key).is_some() {
                    continue;
                }
                self.count += 1;
                self.lacking.insert(Shard::of_dialogue(&dialogue.id, self.of).number);
                self.first.get_or_insert_with(|| match kind {
                    Kind::Utterances => format!("{}#{}", dialogue.id, dialogue.turns[row].number),
                    Kind::Dialogues => format!("the dialogue {}", dialogue.id),
                });
            }
        }
        Ok(PutOutcome::Added)
    }

    fn pending(&self) -> usize {
        0
    }

    fn pending_bytes(&self) -> usize {
        0
    }

    fn commit(&mut self, _: Option<IngestMark>) -> Result<()> {
        Ok(())
    }

    fn unfinished(&self) -> Option<IngestMark> {
        None
    }

    fn set_rejected(&mut self, _: &str, _: u64) {}

    fn for_each_text_key(&self, _: &mut dyn FnMut(IdKey, IdKey)) -> Result<()> {
        Ok(())
    }
}
