//! `turnwise model`: lists, downloads, imports, fits and measures models.

mod bench;
mod fit;
mod info;
mod pull;

pub(super) use pull::fetch;

use crate::cli::{args::ModelCommand, prelude::*};
use turnwise_encoder::{
    folder::ModelFolder,
    hub::{
        Checked, Origin, import,
        known::DEFAULT,
        list::{Entry, list},
    },
};

pub(super) fn run(command: ModelCommand, context: &Context<'_>) -> Result<()> {
    match command {
        ModelCommand::List => list_models(context),
        ModelCommand::Pull(args) => pull::run(&args, context),
        ModelCommand::Import { folder, name } => import(&folder, name.as_deref(), context),
        ModelCommand::Fit(args) => fit::run(&args, context),
        ModelCommand::Bench(args) => bench::run(&args, context),
        ModelCommand::Info { model } => info::run(&model, context),
    }
}

/// Runs `turnwise model import`: copies a model to the folder of imported models.
fn import(folder: &Path, name: Option<&str>, context: &Context<'_>) -> Result<()> {
    let imported = import::import(folder, name, &context.places(), &|copy| {
        let model = ModelFolder::open(copy)?;
        model.network().and_then(|_| model.tokenizer()).map(drop)
    })?;
    context.printer.result(&imported, |out| {
        let (name, path) = (&imported.name, imported.path.display());
        let (files, size) = (counted(imported.files.len() as u64, "file"), bytes(imported.bytes));
        writeln!(out, "imported {name} to {path} ({files}, {size})")?;
        let Some(first) = imported.left_out.first() else { return Ok(()) };
        let files = counted(imported.left_out.len() as u64, "file");
        writeln!(out, "{files} that no encoder uses skipped, such as {first}")
    })
}

/// Describes how the downloaded weights were verified.
fn checked(checked: Option<Checked>) -> &'static str {
    match checked {
        Some(Checked::Pinned) => "SHA-256 matches the pinned value",
        Some(Checked::Hub) => "SHA-256 matches the hub",
        Some(Checked::Length) => "only the length was checked",
        None => "downloaded by a different program",
    }
}

/// Returns the name of a model, followed by `(default)` if it is the default model.
fn titled(name: &str) -> String {
    if name == DEFAULT { format!("{name} (default)") } else { name.to_owned() }
}

/// Runs `turnwise model list`: lists the known and the installed models.
fn list_models(context: &Context<'_>) -> Result<()> {
    let places = context.places();
    let entries = list(&places)?;
    context.printer.results(&entries, |out| {
        let width = entries.iter().map(|e| titled(&e.name).chars().count()).max().unwrap_or(0);
        let languages = entries.iter().filter_map(|e| e.languages).map(str::len).max().unwrap_or(0);
        for entry in &entries {
            line(entry, width, languages, out)?;
        }
        writeln!(out, "{DIM}cache: {}; imports: {}{DIM:#}", places.cache.display(), places.imports.display())
    })
}

fn line(entry: &Entry, width: usize, languages: usize, out: &mut dyn Write) -> io::Result<()> {
    let style = if entry.here.is_some() { NAME } else { BOLD };
    let dim = entry.dim.map_or_else(|| "?".to_owned(), |dim| dim.to_string());
    let language = entry.languages.unwrap_or("");
    write!(out, "{style}{:width$}{style:#}  {dim:>4}  {language:languages$}  ", titled(&entry.name))?;
    match &entry.here {
        None => {
            let pin = if entry.pinned { "pinned" } else { "unpinned" };
            write!(out, "{:>9}  {:8}  {pin}", "", "missing")?;
        }
        Some(here) => match here.origin {
            Origin::Cache => {
                write!(out, "{:>9}  {:8}  {}", bytes(here.bytes), "in cache", checked(here.checked))?;
                if !entry.pinned && entry.languages.is_some() {
                    write!(out, ", unpinned")?;
                }
            }
            Origin::Folder | Origin::Imported => {
                write!(out, "{:>9}  {:8}", bytes(here.bytes), "imported")?;
            }
        },
    }
    match entry.about {
        Some(about) => writeln!(out, "  {DIM}{about}{DIM:#}"),
        None => writeln!(out),
    }
}
