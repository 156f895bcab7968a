//! `turnwise model import`: copies a model folder into the model store.

use crate::cli::prelude::*;
use turnwise_encoder::{folder::ModelFolder, hub::import::import};

pub(super) fn run(folder: &Path, name: Option<&str>, context: &Context<'_>) -> Result<()> {
    let imported = import(folder, name, &context.places(), &|copy| {
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
