//! `turnwise encode --assemble PLACE INPUT… --engine ADDRESS`: writes dialogues to Milvus with the vectors
//! of the shards.
//!
//! Shards contain vectors by key but no dialogues, so the dialogues are read from the original inputs.
//! First, all rows are copied to a memory-mapped vector set in the temporary folder, so that memory use stays
//! bounded. Then the dialogues are read once to check that each has a vector. Only then are they written to
//! Milvus. Nothing is encoded, and no encoder is opened.

use crate::cli::{Context, args::EncodeArgs};
use turnwise_core::error::Result;

#[cfg(not(feature = "milvus"))]
pub(super) fn run(_: &str, _: &EncodeArgs, context: &Context<'_>) -> Result<()> {
    match context.far()? {}
}

#[cfg(feature = "milvus")]
pub(super) fn run(place: &str, args: &EncodeArgs, context: &Context<'_>) -> Result<()> {
    there::run(place, args, context)
}

#[cfg(feature = "milvus")]
mod lacking;

#[cfg(feature = "milvus")]
mod there {
    use std::{
        env, fs,
        path::{Path, PathBuf},
    };

    use super::{super::load_all, lacking};
    use crate::cli::{
        Context,
        args::EncodeArgs,
        commands::{self, encode::assemble, ingest, summary::Files},
        shards::{self, Place, Record, Temporary},
    };
    use turnwise_core::{
        error::{Error, IoContext, Result},
        files,
    };
    use turnwise_index::vectors::{Kind, Mode, VectorReader, VectorWriter};
    use turnwise_milvus::{Manifest, MilvusWriter, Target, Unfinished, VectorSource};
    use turnwise_store::{Manifest as IndexManifest, ingest::IngestOptions};
    use turnwise_text::Analyzer;

    pub(super) fn run(place: &str, args: &EncodeArgs, context: &Context<'_>) -> Result<()> {
        let target = context.far()?;
        has_inputs(args)?;
        let place = shards::open(place)?;
        let set = assemble::complete_shards(place.as_ref(), context)?;
        let [first, ..] = set.records.as_slice() else {
            return Err(Error::Internal("the set of complete shards is empty".into()));
        };
        has_both(first, place.name())?;
        if !args.replace {
            fits(first, MilvusWriter::manifest(&target)?.as_ref(), &target, place.name())?;
        }
        // Report unreadable inputs before downloading anything.
        commands::plan(&args.inputs, &args.read, context)?;
        let vectors = vectors(place.as_ref(), &set.records, context)?;
        let (plan, read) = commands::plan(&args.inputs, &args.read, context)?;
        let options = IngestOptions {
            read,
            max_errors: context.settings.max_errors,
            batch: context.settings.batch,
            ..IngestOptions::default()
        };
        lacking::refuse(&vectors, plan, &options, (&set, place.name()), context)?;
        let recipe = Some(first.recipe.clone());
        let source = Some(Box::new(vectors) as Box<dyn VectorSource>);
        let sink = match args.replace {
            true => MilvusWriter::anew(&target, Analyzer::default(), recipe, source, Unfinished::Discard)?,
            false => MilvusWriter::open_or_create_given(&target, Analyzer::default(), recipe, source)?,
        };
        let (plan, read) = commands::plan(&args.inputs, &args.read, context)?;
        let files = Files::of(&plan);
        ingest::remote::fill(sink, &target, (plan, files), &IngestOptions { read, ..options }, context)
    }

    /// Checks that the inputs are files, because they are read twice.
    fn has_inputs(args: &EncodeArgs) -> Result<()> {
        let refused =
            |message: String, hint: &str| Err(Error::Input { message, hint: Some(hint.to_owned()) });
        if args.inputs.is_empty() {
            return refused(
                "shards contain only vectors; the dialogues must be read from the input files".to_owned(),
                "name the input files of the shards: `turnwise encode --assemble PLACE INPUT… --engine ADDRESS`",
            );
        }
        for path in &args.inputs {
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

    /// Checks that the shards have both utterance and dialogue vectors, because rows in Milvus have both.
    fn has_both(record: &Record, place: &str) -> Result<()> {
        let Some(lacks) = Kind::ALL.into_iter().find(|kind| record.rows(*kind).is_none()) else {
            return Ok(());
        };
        Err(Error::Input {
            message: format!("the shards in {place} have no vectors of {}", lacks.name()),
            hint: Some(
                "Milvus stores vectors of utterances and dialogues: create the shards again with --of both"
                    .to_owned(),
            ),
        })
    }

    /// Returns an error if the shards' vectors cannot be mixed with the vectors under this name.
    fn fits(record: &Record, there: Option<&Manifest>, target: &Target, place: &str) -> Result<()> {
        let Some(there) = there else { return Ok(()) };
        let what = match &there.recipe {
            None => "dialogues without vectors".to_owned(),
            Some(recipe) => match recipe.conflict(&record.recipe, true) {
                None => return Ok(()),
                Some(what) => format!("{what}, which made the shards in {place}"),
            },
        };
        Err(Error::Input {
            message: format!("{target} has {what}"),
            hint: Some(
                "--replace replaces the existing dialogues and vectors; or use a different name".to_owned(),
            ),
        })
    }

    /// Copies the rows of all shards to a temporary vector set.
    fn vectors(place: &dyn Place, records: &[Record], context: &Context<'_>) -> Result<VectorReader> {
        let [first, ..] = records else {
            return Err(Error::Internal("the set of complete shards is empty".into()));
        };
        let folder = Folder::new()?;
        let mut writer = VectorWriter::open(&folder.0, &first.recipe, Mode::Continue, context.command_line)?;
        load_all(place, records, &mut writer, "nothing was written", context)?;
        writer.finish()?;
        // Mapped files stay readable after removal. Removing the folder now means that a killed process
        // leaves nothing.
        VectorReader::open(&folder.0)?.ok_or_else(|| VectorReader::missing_error(&folder.0))
    }

    /// Temporary folder of this process, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Result<Self> {
            let name = Temporary::unique_in(&env::temp_dir(), "turnwise-assembled")?;
            fs::create_dir(&name.path).at("create", &name.path)?;
            Ok(Folder(name.path.clone()))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // Some systems cannot remove mapped files. They clean up temporary files themselves.
            let _ = files::remove_folder(&self.0);
        }
    }
}
