//! `turnwise corpus split`: splits dialogues into parts such as train and test.

use std::collections::BTreeMap;

use crate::cli::{args::ReadArgs, commands::convert, prelude::*};
use turnwise_corpus::output::Output;
use turnwise_corpus::{
    Dialogue,
    split::Parts,
    writers::{ExportFormat, Writer},
};

struct Part {
    name: String,
    path: PathBuf,
    out: Output,
    count: u64,
}

pub(super) fn run(
    paths: &[PathBuf],
    read: &ReadArgs,
    parts: &Parts,
    folder: &Path,
    context: &Context<'_>,
) -> Result<()> {
    let mut outputs = Vec::new();
    for name in parts.names() {
        let path = folder.join(format!("{name}.jsonl"));
        outputs.push(Part { name: name.to_owned(), out: Output::create(&path)?, path, count: 0 });
    }
    let seed = context.settings.seed;
    let mut give = |dialogue: Dialogue| {
        let part = &mut outputs[parts.part_of(&dialogue.id, seed)];
        part.count += 1;
        part.out.with(|out| Writer::new(ExportFormat::Jsonl).write(out, &dialogue))
    };
    let problems = convert::each_dialogue_or_stored(paths, read, "splitting", context, &mut give)?;
    let mut counts = BTreeMap::new();
    let mut lines = Vec::new();
    for part in outputs {
        part.out.finish()?;
        lines.push(format!("{:>12}  {}", grouped(part.count), part.path.display()));
        counts.insert(part.name, part.count);
    }
    context.printer.result(&counts, |out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))?;
    problems.into_result()
}
