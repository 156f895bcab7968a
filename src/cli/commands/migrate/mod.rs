//! `turnwise migrate`: an index into a Milvus, and back.

#[cfg(feature = "milvus")]
mod back;
#[cfg(feature = "milvus")]
mod content;
#[cfg(feature = "milvus")]
mod report;
#[cfg(feature = "milvus")]
mod samples;
#[cfg(feature = "milvus")]
mod there;

use crate::cli::{Context, args::MigrateArgs};
#[cfg(feature = "milvus")]
use turnwise_core::error::Error;
use turnwise_core::error::Result;

#[cfg(feature = "milvus")]
pub(super) fn run(args: &MigrateArgs, context: &Context<'_>) -> Result<()> {
    use turnwise_milvus::Target;

    match (&context.settings.engine, Target::is_address(&args.to)) {
        (None, true) => there::run(args, context).map_err(gone_on_with),
        (Some(_), false) => back::run(args, context).map_err(gone_on_with),
        // What looks like an address is told what is wrong with it.
        (None, false) if args.to.contains(":/") => args.to.parse::<Target>().map(drop),
        (None, false) => Err(Error::Input {
            message: format!("both {} and the index are on this machine", args.to),
            hint: Some("`turnwise backup` and `turnwise restore` copy an index".to_owned()),
        }),
        (Some(from), true) => Err(Error::Input {
            message: format!("from {from} to {} there is no direct way", args.to),
            hint: Some("move it to an index, and that to the other address".to_owned()),
        }),
    }
}

#[cfg(not(feature = "milvus"))]
pub(super) fn run(_: &MigrateArgs, context: &Context<'_>) -> Result<()> {
    match context.far()? {}
}

/// A server that went away is met in the middle.
#[cfg(feature = "milvus")]
fn gone_on_with(e: Error) -> Error {
    match (&e, e.hint()) {
        (Error::Unavailable { .. }, Some(hint)) => {
            e.with_hint(format!("{hint} What was moved stays, unseen; the same command goes on from there"))
        }
        _ => e,
    }
}

#[cfg(feature = "milvus")]
fn stop_if_asked() -> Result<()> {
    match crate::cli::signals::stopped() {
        true => Err(Error::Interrupted {
            hint: Some("what was moved stays, unseen; the same command goes on from there".to_owned()),
        }),
        false => Ok(()),
    }
}
