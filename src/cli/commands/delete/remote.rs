//! `turnwise delete --engine ADDRESS`: deletes dialogues from Milvus.

use crate::cli::{Context, args::DeleteArgs};
use turnwise_core::error::Result;

#[cfg(feature = "milvus")]
pub(super) fn delete(args: &DeleteArgs, context: &Context<'_>) -> Result<()> {
    use crate::cli::printer::counted;
    use turnwise_core::{error::Error, ids::DialogueId};
    use turnwise_milvus::MilvusWriter;

    if args.purge {
        return Err(Error::Input {
            message: "--purge works only with an index on this machine".to_owned(),
            hint: Some(
                "remove --purge: Milvus frees the space of deleted dialogues automatically".to_owned(),
            ),
        });
    }
    let target = context.milvus_target()?;
    let ids: Vec<DialogueId> =
        args.ids.iter().map(|id| DialogueId::new(id.as_str())).collect::<Result<_>>()?;
    let mut sink = MilvusWriter::open(&target)?;
    let deleted = match (&args.filter, args.dry_run) {
        (Some(filter), false) => sink.delete_matching(filter)?,
        (Some(filter), true) => sink.count_matching(filter)?,
        (None, false) => sink.delete(&ids)?,
        (None, true) => sink.count_existing(&ids)?,
    };
    let done =
        serde_json::json!({ "index": target.to_string(), "deleted": deleted, "dry_run": args.dry_run });
    let what = if args.dry_run { "would be deleted" } else { "deleted" };
    context.printer.result(&done, |out| writeln!(out, "{} {what}", counted(deleted, "dialogue")))?;
    match ids.len() as u64 - deleted.min(ids.len() as u64) {
        n if n > 0 && args.filter.is_none() => {
            Err(Error::input(format!("{target} has none of the {} named", counted(n, "dialogue"))))
        }
        _ => Ok(()),
    }
}

#[cfg(not(feature = "milvus"))]
pub(super) fn delete(_: &DeleteArgs, context: &Context<'_>) -> Result<()> {
    match context.milvus_target()? {}
}
