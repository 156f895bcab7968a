//! `turnwise model`: lists, downloads, imports, fits and measures models.

mod bench;
mod fit;
mod import;
mod info;
mod list;
mod pull;

pub(super) use pull::fetch;

use crate::cli::{Context, args::ModelCommand};
use turnwise_core::error::Result;
use turnwise_encoder::hub::{Checked, known::DEFAULT};

pub(super) fn run(command: ModelCommand, context: &Context<'_>) -> Result<()> {
    match command {
        ModelCommand::List => list::run(context),
        ModelCommand::Pull(args) => pull::run(&args, context),
        ModelCommand::Import { folder, name } => import::run(&folder, name.as_deref(), context),
        ModelCommand::Fit(args) => fit::run(&args, context),
        ModelCommand::Bench(args) => bench::run(&args, context),
        ModelCommand::Info { model } => info::run(&model, context),
    }
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

/// Name of a model, with a mark if it is the default model.
fn titled(name: &str) -> String {
    if name == DEFAULT { format!("{name} (default)") } else { name.to_owned() }
}
