//! `turnwise model import`: copies a model folder into the model store.

use crate::cli::prelude::*;
use turnwise_encoder::{folder::ModelFolder, hub::import::import};

pub(super) fn run(folder: &Path, name: Option<&str>, context: &Context<'_>) -> Result<()> {
    let imported = import(folder, name, &context.places(), &|copy| {
        let model = ModelFolder::open(copy)?;
        model.network().and_then(|_| model.tokenizer()).map(drop)
    })?;
    context.printer.result(&imported, |out| {
        let files = counted(imported.files.len() as u64, "file");
        writeln!(
            out,
            "imported {} to {} ({files}, {})",
            imported.name,
            imported.path.display(),
            bytes(imported.bytes)
        )?;
        match imported.left_out.len() as u64 {
            0 => Ok(()),
            n => writeln!(
                out,
                "{} that no encoder uses skipped, such as {}",
                counted(n, "file"),
                imported.left_out[0]
            ),
        }
    })
}
