//! `turnwise migrate`: copies an index to Milvus, or back.

#[cfg(feature = "milvus")]
mod content;
#[cfg(feature = "milvus")]
mod from_milvus;
#[cfg(feature = "milvus")]
mod report;
#[cfg(feature = "milvus")]
mod samples;
#[cfg(feature = "milvus")]
mod to_milvus;

use crate::cli::{Context, args::MigrateArgs};
#[cfg(feature = "milvus")]
use turnwise_core::error::Error;
use turnwise_core::error::Result;

#[cfg(feature = "milvus")]
pub(super) fn run(args: &MigrateArgs, context: &Context<'_>) -> Result<()> {
    use turnwise_milvus::Target;

    match (&context.settings.engine, Target::is_address(&args.to)) {
        (None, true) => to_milvus::run(args, context).map_err(resumable),
        (Some(_), false) => from_milvus::run(args, context).map_err(resumable),
        // A malformed address gets the error of the address parser.
        (None, false) if args.to.contains(":/") => args.to.parse::<Target>().map(drop),
        (None, false) => Err(Error::Input {
            message: format!("both {} and the index are on this machine", args.to),
            hint: Some("`turnwise backup` and `turnwise restore` copy an index".to_owned()),
        }),
        (Some(from), true) => Err(Error::Input {
            message: format!("cannot migrate directly from {from} to {}", args.to),
            hint: Some("migrate to an index first, then from there to the other address".to_owned()),
        }),
    }
}

#[cfg(not(feature = "milvus"))]
pub(super) fn run(_: &MigrateArgs, context: &Context<'_>) -> Result<()> {
    match context.milvus_target()? {}
}

/// Adds to an error of the connection that the migration can be resumed.
#[cfg(feature = "milvus")]
fn resumable(e: Error) -> Error {
    match (&e, e.hint()) {
        (Error::Unavailable { .. }, Some(hint)) => e.with_hint(format!(
            "{hint} The copied data are kept, but not visible yet; run the same command again to continue"
        )),
        _ => e,
    }
}

#[cfg(feature = "milvus")]
fn stop_if_asked() -> Result<()> {
    match crate::cli::signals::stopped() {
        true => Err(Error::Interrupted {
            hint: Some(
                "the copied data are kept, but not visible yet; run the same command again to continue"
                    .to_owned(),
            ),
        }),
        false => Ok(()),
    }
}
