//! `turnwise encode --engine ADDRESS`: encodes all dialogues of a Milvus collection again.

use std::sync::Arc;

use super::{Before, Choice};
use crate::cli::{args::EncodeArgs, encoders, prelude::*, progress::TaskProgress};
use turnwise_encoder::Encoder;
use turnwise_index::vectors::Recipe;
use turnwise_milvus::{MilvusWriter, Target, Walk};
use turnwise_shards::reencode_milvus::{Reencoded, reencode};

#[derive(Serialize)]
struct Encoded {
    schema: &'static str,
    engine: String,
    generation: u64,
    model: String,
    encoder: String,
    fingerprint: String,
    runs: String,
    dim: usize,
    /// Number of dialogues encoded in this run.
    encoded: u64,
    dialogues: u64,
    turns: u64,
    seconds: f64,
}

pub(super) fn run(args: &EncodeArgs, context: &Context<'_>) -> Result<()> {
    if args.of.is_some() {
        return Err(Error::input(
            "--of works only with an index: in Milvus, utterances and dialogues always both have vectors",
        )
        .with_hint("remove it"));
    }
    let target = context.milvus_target()?;
    let there = Walk::over(&target)?.manifest().clone();
    // Every dialogue and every utterance in Milvus has a vector.
    let before = there.recipe.as_ref().map(|recipe| Before { recipe, units: (true, true) });
    let choice = Choice::of(args, before);
    let settings = args.encoder.settings(choice.precision, choice.tokens.clone());
    let encoder: Arc<dyn Encoder> = Arc::from(encoders::open(context, &choice.model, &settings)?);
    let recipe = choice.recipe(encoder.as_ref());
    if let Some(before) = &there.recipe {
        let conflict = before.conflict(&recipe, true);
        if conflict.is_none() && !args.replace {
            let mut sink = MilvusWriter::open(&target)?;
            if before.model != recipe.model {
                sink.set_model(&recipe.model)?;
                context.printer.say(format!("the model of {target} is now registered as {}", recipe.model));
            }
            let nothing =
                Reencoded { encoded: 0, generation: there.generation, totals: sink.totals()?, seconds: 0.0 };
            let done = Encoded::of(&target, encoder.as_ref(), &recipe, &nothing);
            return context.printer.result(&done, |out| done.write(out));
        }
        if let (Some(what), false) = (conflict, args.replace) {
            return Err(Error::input(format!("{target} has {what}"))
                .with_hint("--replace encodes everything again; the old vectors stay in use until then"));
        }
    }
    let progress = TaskProgress::new(context.printer);
    let done = reencode(&target, &there, encoder.clone(), &recipe, &progress)?;
    let done = Encoded::of(&target, encoder.as_ref(), &recipe, &done);
    context.printer.result(&done, |out| done.write(out))
}

impl Encoded {
    fn of(target: &Target, encoder: &dyn Encoder, recipe: &Recipe, done: &Reencoded) -> Self {
        Encoded {
            schema: "turnwise/encode-engine/1",
            engine: target.to_string(),
            generation: done.generation,
            model: recipe.model.clone(),
            encoder: encoder.name().to_owned(),
            fingerprint: encoder.fingerprint().to_string(),
            runs: encoder.describe(),
            dim: encoder.dim(),
            encoded: done.encoded,
            dialogues: done.totals.dialogues,
            turns: done.totals.turns,
            seconds: done.seconds,
        }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.encoded == 0 {
            return writeln!(out, "{} is up to date", self.engine);
        }
        let (encoded, seconds, runs) = (counted(self.encoded, "dialogue"), self.seconds, &self.runs);
        writeln!(out, "{BOLD}{encoded}{BOLD:#} encoded in {seconds:.1} s {DIM}({runs}){DIM:#}")?;
        let Encoded { engine, generation, dim, encoder, .. } = self;
        let totals = totals(self.dialogues, self.turns);
        writeln!(
            out,
            "{engine} now uses generation {generation}: {totals}, vectors with {dim} dimensions by {encoder}"
        )
    }
}
