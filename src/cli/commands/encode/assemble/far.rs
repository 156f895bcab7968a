//! `turnwise encode --assemble PLACE INPUT… --engine ADDRESS`: dialogues into a Milvus, with the vectors that shards have.
//!
//! Shards hold vectors by their keys and no dialogues, so the dialogues are read from what the shards were made of. First
//! all rows go into a set of vectors of its own in the folder for temporary files, mapped, so that memory does not grow with
//! them; then the dialogues are read once to see that none lacks a vector, and only then does Milvus hear of them. Nothing is
//! encoded, and no encoder is opened.

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

    use super::{super::put_in, lacking};
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
        let set = assemble::all_there(place.as_ref(), context)?;
        let [first, ..] = set.records.as_slice() else {
            return Err(Error::Internal("no shards were found complete".into()));
        };
        has_both(first, place.name())?;
        if !args.replace {
            fits(first, MilvusWriter::manifest(&target)?.as_ref(), &target, place.name())?;
        }
        // What cannot be read is told before anything is fetched.
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
        let giver = Some(Box::new(vectors) as Box<dyn VectorSource>);
        let home = match args.replace {
            true => MilvusWriter::anew(&target, Analyzer::default(), recipe, giver, Unfinished::ThrowAway)?,
            false => MilvusWriter::open_or_create_given(&target, Analyzer::default(), recipe, giver)?,
        };
        let (plan, read) = commands::plan(&args.inputs, &args.read, context)?;
        let files = Files::of(&plan);
        ingest::far::fill(home, &target, (plan, files), &IngestOptions { read, ..options }, context)
    }

    /// Whether there are dialogues to read: files, twice.
    fn has_inputs(args: &EncodeArgs) -> Result<()> {
        let refused =
            |message: String, hint: &str| Err(Error::Input { message, hint: Some(hint.to_owned()) });
        if args.inputs.is_empty() {
            return refused(
                "shards hold vectors, and the dialogues are to be read".to_owned(),
                "name the files that the shards were made of: `turnwise encode --assemble PLACE INPUT… --engine ADDRESS`",
            );
        }
        for path in &args.inputs {
            if path == Path::new("-") {
                return refused(
                    "standard input cannot be read twice".to_owned(),
                    "name a file: it is read once to see that no vector is missing, and once to be brought there",
                );
            }
            if IndexManifest::exists(path) {
                return refused(
                    format!("{} is an index, and files are read here", path.display()),
                    "`turnwise encode --assemble PLACE -i INDEX` gives it the vectors, and `turnwise migrate` brings it there",
                );
            }
        }
        Ok(())
    }

    /// Whether shards have vectors of utterances and of dialogues, as Milvus' rows do.
    fn has_both(record: &Record, place: &str) -> Result<()> {
        let Some(lacks) = Kind::ALL.into_iter().find(|kind| record.rows(*kind).is_none()) else {
            return Ok(());
        };
        Err(Error::Input {
            message: format!("the shards in {place} have no vectors of {}", lacks.name()),
            hint: Some(
                "in Milvus utterances and dialogues have vectors: make the shards again with --of both"
                    .to_owned(),
            ),
        })
    }

    /// Whether the vectors of shards may stand beside those that are there.
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
            message: format!("{target} holds {what}"),
            hint: Some(
                "--replace puts the dialogues with these vectors in the place of what is there; or take another name"
                    .to_owned(),
            ),
        })
    }

    /// The rows of all shards, by their keys.
    fn vectors(place: &dyn Place, records: &[Record], context: &Context<'_>) -> Result<VectorReader> {
        let [first, ..] = records else {
            return Err(Error::Internal("no shards were found complete".into()));
        };
        let folder = Folder::new()?;
        let mut writer = VectorWriter::open(&folder.0, &first.recipe, Mode::GoOn, context.command_line)?;
        put_in(place, records, &mut writer, "nothing was written", context)?;
        writer.finish()?;
        // What is mapped stays while it is mapped, so that the folder can go now: a kill leaves nothing.
        VectorReader::open(&folder.0)?.ok_or_else(|| VectorReader::none_yet(&folder.0))
    }

    /// A folder of this process among the temporary files, until it is dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Result<Self> {
            let name = Temporary::within(&env::temp_dir(), "turnwise-assembled")?;
            fs::create_dir(&name.path).at("create", &name.path)?;
            Ok(Folder(name.path.clone()))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // Where the system does not let it go while it is mapped, it clears its temporary files itself.
            let _ = files::remove_folder(&self.0);
        }
    }
}
