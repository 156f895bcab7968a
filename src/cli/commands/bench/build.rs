//! `turnwise bench build`: the sets of the tasks.

use super::each_dialogue;
use crate::{
    cli::{Context, args::BuildCommand, output::Output, printer::counted, watching::Watching},
    error::Result,
    eval::{
        build::{Selection, response_set, retrieval_set},
        data,
    },
};

pub(super) fn run(command: &BuildCommand, context: &Context<'_>) -> Result<()> {
    let seed = context.settings.seed;
    match command {
        BuildCommand::Sr { labelled, output, recipe, terms } => {
            let sentences = data::labelled(labelled)?;
            let set =
                retrieval_set(sentences, (*recipe).into(), *terms, seed, &Watching::new(context.printer))?;
            let mut out = Output::create(output)?;
            out.with(|out| set.write(out))?;
            out.finish()?;
            context.printer.say(format!("{} written", counted(set.sentences.len() as u64, "sentence")));
            match set.without_positive() {
                0 => {}
                n => context
                    .printer
                    .warn(format!("{} without a positive candidate", counted(n as u64, "sentence"))),
            }
        }
        BuildCommand::Response { paths, read, output, of, context: before, strip_names } => {
            let mut dialogues = Vec::new();
            let problems = each_dialogue(paths, read, "reading", context, &mut |dialogue| {
                dialogues.push(dialogue);
                Ok(())
            })?;
            problems.into_result()?;
            let wanted = Selection { of: *of, context: *before, strip_names: *strip_names, seed };
            let set = response_set(&dialogues, wanted)?;
            let mut out = Output::create(output)?;
            out.with(|out| set.write(out))?;
            out.finish()?;
            context.printer.say(format!("{} written", counted(set.len() as u64, "sample")));
            if set.leaks > 0 && !strip_names {
                context.printer.warn(format!(
                    "{} of them can be told by the name of a speaker; --strip-names takes names out",
                    counted(set.leaks as u64, "response")
                ));
            }
        }
    }
    Ok(())
}
