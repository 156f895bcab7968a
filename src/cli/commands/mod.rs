//! The commands, one file each. A command gets its parsed arguments and a [`Context`], and prints through the printer
//! of the context.

mod analyze;
mod backup;
mod bench;
mod best_model;
mod clusters;
mod config;
mod convert;
mod delete;
mod demo;
mod doctor;
mod duplicates;
mod embed;
mod encode;
mod eval;
mod index;
mod ingest;
mod meta;
#[cfg(feature = "milvus")]
mod migrate;
mod model;
mod reference;
mod respond;
mod search;
#[cfg(feature = "serve")]
mod serve;
mod show;
mod split;
mod stats;
mod summary;
mod train;
mod vectors;
mod verify;

use std::fs;

use crate::cli::{
    args::{Command, ConfigCommand, CorpusCommand, IndexCommand, InputArgs, ReadArgs},
    prelude::*,
    printer::Printer,
};
use turnwise_corpus::{
    clean::Cleaning,
    formats::{self, Format, ReadOptions},
    reader::Reader,
    walk::Plan,
};

pub(crate) use demo::check_name as check_demo_name;

pub(crate) fn run(command: Command, context: &Context<'_>) -> Result<()> {
    match command {
        Command::Demo => demo::run(context),
        Command::Ingest(args) => ingest::run(args, context),
        Command::Search(args) => search::run(&args, context),
        Command::Similar(args) => search::similar(&args, context),
        Command::Respond(args) => respond::run(&args, context),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(&args, context),
        Command::Duplicates(args) => duplicates::run(&args, context),
        Command::Clusters(args) => clusters::run(&args, context),
        Command::Analyze(args) => analyze::run(&args, context),
        Command::Embed(args) => embed::run(&args, context),
        Command::Encode(args) => encode::run(&args, context),
        Command::Corpus(command) => corpus(command, context),
        Command::Stats => stats::of_index(context),
        Command::Delete(args) => delete::run(&args, context),
        Command::Index(IndexCommand::Build(args)) => index::build(&args, context),
        Command::Index(IndexCommand::Compact) => index::compact::run(context),
        Command::Index(IndexCommand::Rebuild(args)) => index::rebuild(&args, context),
        Command::Index(IndexCommand::Info) => index::info::run(context),
        Command::Train(args) => train::run(&args, context),
        Command::Bench(command) => bench::run(command, context),
        Command::Eval(args) => eval::run(&args, context),
        Command::Verify { recall } => verify::verify(recall, context),
        Command::Repair => verify::repair(context),
        Command::Backup { target, no_vectors } => backup::backup(&target, !no_vectors, context),
        Command::Restore { source } => backup::restore(&source, context),
        #[cfg(feature = "milvus")]
        Command::Migrate(args) => migrate::run(&args, context),
        #[cfg(not(feature = "milvus"))]
        Command::Migrate(_) => match context.milvus_target()? {},
        Command::Model(command) => model::run(command, context),
        Command::Doctor { gpu } => doctor::run(gpu, context),
        Command::Config(ConfigCommand::Show { origin }) => config::show(origin, context),
        Command::Config(ConfigCommand::Init) => config::init(context),
        Command::Completions { shell } => meta::completions(shell),
        Command::Man => meta::manual(),
        Command::Reference { folder } => reference::run(&folder, context),
    }
}

fn corpus(command: CorpusCommand, context: &Context<'_>) -> Result<()> {
    match command {
        CorpusCommand::Stats { paths, .. } if paths.is_empty() => stats::of_index(context),
        CorpusCommand::Stats { paths, read } => stats::of_files(&paths, &read, context),
        CorpusCommand::Show(args) => show::run(&args, context),
        CorpusCommand::Export(write) => convert::export(&write, context),
        CorpusCommand::Convert { input, clean, write } => {
            convert::run(&input, &cleaning(&clean), &write, context)
        }
        CorpusCommand::Split { paths, read, parts, output } => {
            split::run(&paths, &read, &parts, &output, context)
        }
        CorpusCommand::Schema => meta::schema(context),
        CorpusCommand::Formats => meta::formats(context),
    }
}

fn cleaning(args: &crate::cli::args::CleanArgs) -> Cleaning {
    Cleaning {
        normalize: args.normalize,
        merge_turns: args.merge_turns,
        min_turns: args.min_turns,
        redact: args.redact,
        dedupe: args.dedupe,
    }
}

/// Finds the files to ingest. Returns the list of files and the options for reading them.
fn plan(args: &InputArgs, context: &Context<'_>) -> Result<(Plan, ReadOptions)> {
    let reader = reader(&args.read, context)?;
    let plan = reader.plan(&args.paths)?;
    for path in &plan.unrecognized {
        context.printer.detail(format!("not recognized: {}", path.display()));
    }
    Ok((plan, reader.options))
}

/// Returns the input format given by `--from`, or CSV if only `--map` (for tables) is given. Returns `None` if the
/// format is to be detected.
fn format(args: &ReadArgs) -> Result<Option<&'static Format>> {
    let name = args.from.as_deref().or(args.map.as_ref().map(|_| "csv"));
    name.map(formats::by_name).transpose()
}

/// Creates a reader of files, with the options from the command line and the settings.
fn reader(args: &ReadArgs, context: &Context<'_>) -> Result<Reader> {
    Ok(Reader {
        format: args.from.as_deref().map(formats::by_name).transpose()?,
        options: read_options(args, context),
        max_rejects: context.settings.max_errors,
    })
}

/// Returns an error if an output file (`written`) is also an input file (`read`).
fn must_not_overwrite_inputs<'a>(written: &[PathBuf], read: impl Iterator<Item = &'a str>) -> Result<()> {
    let written: Vec<PathBuf> = written.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    let mut both = read.filter(|name| fs::canonicalize(name).is_ok_and(|read| written.contains(&read)));
    match both.next() {
        None => Ok(()),
        Some(name) => Err(Error::input(format!("{name} is an input file and would be overwritten"))
            .with_hint("choose a different name for the output")),
    }
}

/// Returns an error if two output files have the same path.
fn must_differ(written: &[PathBuf]) -> Result<()> {
    // A file that does not exist has no canonical path, but its folder may have one.
    let canonical = |path: &PathBuf| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let in_folder = || Some(fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?));
        fs::canonicalize(&path).ok().or_else(in_folder).unwrap_or(path)
    };
    let paths: Vec<PathBuf> = written.iter().map(canonical).collect();
    match (1..paths.len()).find(|n| paths[..*n].contains(&paths[*n])) {
        None => Ok(()),
        Some(n) => Err(Error::input(format!("two outputs would be written to {}", written[n].display()))
            .with_hint("choose a different name for one of them")),
    }
}

/// Prints which file lists the rejected records. If there is no such file and some rejected records were not shown,
/// suggests `--rejects`.
fn report_rejects_file(rejected: u64, shown: u64, file: Option<&str>, printer: &Printer) {
    match file {
        Some(file) if rejected > 0 => {
            let verb = if rejected == 1 { "is" } else { "are" };
            printer.say(format!("{} {verb} listed in {file}", counted(rejected, "reject")));
        }
        None if rejected > shown => {
            printer.hint(format!("{} more; --rejects FILE lists them all", grouped(rejected - shown)));
        }
        _ => {}
    }
}

fn read_options(args: &ReadArgs, context: &Context<'_>) -> ReadOptions {
    ReadOptions {
        columns: args.map.clone(),
        max_record: args
            .max_record_mb
            .map_or(context.settings.max_record, |mb| mb.clamp(1, 4000) * 1_000_000),
        strip_nicks: args.strip_nicks,
        ..ReadOptions::default()
    }
}
