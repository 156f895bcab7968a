//! `turnwise model list`: lists the known and the installed models.

use crate::cli::{
    commands::model::{checked, titled},
    prelude::*,
};
use turnwise_encoder::hub::{
    Origin,
    list::{Entry, list},
};

pub(super) fn run(context: &Context<'_>) -> Result<()> {
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
