//! `turnwise corpus convert` and `turnwise corpus export`, and functions that pass the dialogues of files to a
//! callback.

use std::collections::HashSet;

use crate::cli::{
    args::{InputArgs, ReadArgs, WriteArgs},
    commands,
    prelude::*,
};
use turnwise_corpus::output::Output;
use turnwise_corpus::{
    Dialogue,
    clean::{Cleaned, Cleaning},
    reader::{Problems, ReadEvent},
    writers::Writer,
};
use turnwise_store::Manifest;

pub(super) fn run(
    input: &InputArgs,
    cleaning: &Cleaning,
    write: &WriteArgs,
    context: &Context<'_>,
) -> Result<()> {
    let mut out = Output::create(&write.output)?;
    let mut writer = Writer::new(write.to);
    let mut cleaned = Cleaned::default();
    let (mut written, mut left_out) = (0u64, 0u64);
    let mut texts = HashSet::new();
    let problems = each_dialogue(&input.paths, &input.read, "converting", context, &mut |mut dialogue| {
        let kept = cleaning.apply(&mut dialogue, &mut cleaned)
            && (!cleaning.dedupe || texts.insert(dialogue.text_key()))
            && write.filter.as_ref().is_none_or(|f| f.matches(&dialogue));
        if !kept {
            left_out += 1;
            return Ok(());
        }
        written += 1;
        out.with(|out| writer.write(out, &dialogue))
    })?;
    out.finish()?;
    let mut parts = vec![format!("{} written", counted(written, "dialogue"))];
    if left_out > 0 {
        parts.push(format!("{} skipped", grouped(left_out)));
    }
    if problems.rejected > 0 {
        parts.push(format!("{} rejected", grouped(problems.rejected)));
    }
    context.printer.say(parts.join(", "));
    problems.into_result()
}

/// Runs `turnwise corpus export`: writes the dialogues of an index to a file.
pub(super) fn export(write: &WriteArgs, context: &Context<'_>) -> Result<()> {
    let snapshot = context.snapshot()?;
    let mut out = Output::create(&write.output)?;
    let mut writer = Writer::new(write.to);
    let total = Some(snapshot.totals().dialogues);
    let mut progress = ProgressBar::new(context.printer, "exporting", "dialogues", total);
    let (mut seen, mut written) = (0, 0);
    for dialogue in snapshot.dialogues() {
        signals::check()?;
        let dialogue = dialogue?;
        seen += 1;
        if write.filter.as_ref().is_none_or(|f| f.matches(&dialogue)) {
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

/// Passes each dialogue of the files and folders to `f`. If `paths` is empty, passes each dialogue of the index of
/// `-i`.
pub(super) fn each_dialogue_or_stored(
    paths: &[PathBuf],
    read: &ReadArgs,
    what: &'static str,
    context: &Context<'_>,
    f: &mut dyn FnMut(Dialogue) -> Result<()>,
) -> Result<Problems> {
    if !paths.is_empty() {
        return each_dialogue(paths, read, what, context, f);
    }
    for dialogue in context.snapshot()?.dialogues() {
        signals::check()?;
        f(dialogue?)?;
    }
    Ok(Problems::default())
}

/// Passes each dialogue of the files and folders to `f`. Prints the first rejected records as warnings. Returns an
/// error if the limit of rejected records is exceeded.
pub(super) fn each_dialogue(
    paths: &[PathBuf],
    read: &ReadArgs,
    what: &'static str,
    context: &Context<'_>,
    f: &mut dyn FnMut(Dialogue) -> Result<()>,
) -> Result<Problems> {
    for name in paths.iter().filter(|path| !path.exists()).filter_map(|path| path.to_str()) {
        if Manifest::exists(&context.folder_of(name)) {
            return Err(Error::input(format!("`{name}` is an index, but this command reads files"))
                .with_hint(format!(
                    "write its dialogues to a file first: turnwise corpus export -i {name} -o {name}.jsonl"
                )));
        }
    }
    let mut progress: Option<ProgressBar<'_>> = None;
    let mut rejected = 0u64;
    let mut event = |event: ReadEvent<'_>| match event {
        ReadEvent::Found(plan) => {
            for path in &plan.unrecognized {
                context.printer.detail(format!("not recognized: {}", path.display()));
            }
            if !plan.unrecognized.is_empty() {
                let files = counted(plan.unrecognized.len() as u64, "file");
                context.printer.warn(format!("{files} not recognized and skipped (-v lists them)"));
            }
            Ok(())
        }
        ReadEvent::Read { bytes, total, records } => {
            signals::check()?;
            let bar =
                progress.get_or_insert_with(|| ProgressBar::new(context.printer, what, "dialogues", total));
            if records > 0 && records.is_multiple_of(64) {
                bar.set(bytes, records);
            }
            Ok(())
        }
        ReadEvent::Rejected(reject) => {
            rejected += 1;
            if rejected <= 5 {
                context.printer.warn(format!("rejected: {reject}"));
            }
            Ok(())
        }
    };
    commands::reader(read, context)?.each_dialogue(paths, &mut event, f)
}
