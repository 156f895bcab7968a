//! `turnwise corpus export`.

use std::path::Path;

use crate::{
    cli::{Context, output::Output, printer::counted, progress::Progress, signals},
    corpus::{
        filter::Filter,
        writers::{Target, Writer},
    },
    error::{Error, Result},
};

pub(super) fn run(
    output: &Path,
    target: Target,
    filter: Option<&Filter>,
    context: &Context<'_>,
) -> Result<()> {
    let snapshot = context.snapshot()?;
    let mut out = Output::create(output)?;
    let mut writer = Writer::new(target);
    let mut progress =
        Progress::new(context.printer, "exporting", "dialogues", Some(snapshot.totals().dialogues));
    let (mut seen, mut written) = (0, 0);
    for dialogue in snapshot.dialogues() {
        if signals::stopped() {
            return Err(Error::Interrupted { hint: None });
        }
        let dialogue = dialogue?;
        seen += 1;
        if filter.is_none_or(|f| f.matches(&dialogue)) {
            written += 1;
            out.with(|out| writer.write(out, &dialogue))?;
        }
        progress.set(seen, seen);
    }
    drop(progress);
    out.finish()?;
    context.printer.say(format!("{} written", counted(written, "dialogue")));
    Ok(())
}
