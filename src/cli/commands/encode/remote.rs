//! `turnwise encode --engine ADDRESS`: re-encodes the dialogues in Milvus with a different encoder. The new
//! vectors go to a new generation. Searches use the old generation until the new one is complete; then the name
//! switches to it in one step.

use crate::cli::{Context, args::EncodeArgs};
use turnwise_core::error::Result;

#[cfg(not(feature = "milvus"))]
pub(super) fn run(_: &EncodeArgs, context: &Context<'_>) -> Result<()> {
    match context.milvus_target()? {}
}

#[cfg(feature = "milvus")]
pub(super) fn run(args: &EncodeArgs, context: &Context<'_>) -> Result<()> {
    again::run(args, context)
}

#[cfg(feature = "milvus")]
mod again {
    use std::{
        collections::HashSet,
        io::{self, Write},
        sync::Arc,
    };

    use serde::Serialize;

    use super::super::Choice;
    use crate::cli::{
        Context,
        args::EncodeArgs,
        encoders,
        printer::{BOLD, DIM, counted},
        progress::ProgressBar,
        signals,
    };
    use turnwise_core::{
        error::{Error, Result},
        ids::{DialogueId, IdKey},
    };
    use turnwise_encoder::Encoder;
    use turnwise_index::vectors::Recipe;
    use turnwise_milvus::{Encoding, Manifest, MilvusWriter, Target, Unfinished, VectorSource, Walk};
    use turnwise_store::{Prepared, PutOutcome, ingest::DialogueSink};

    /// Largest number of passes over all dialogues. The new generation lacks dialogues that are added later; a warning
    /// says to ingest them again.
    const MAX_PASSES: usize = 4;

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
            return Err(Error::Input {
                message: "--of works only with an index: in Milvus, utterances and dialogues always both have vectors"
                    .to_owned(),
                hint: Some("remove it".to_owned()),
            });
        }
        let target = context.milvus_target()?;
        let there = Walk::over(&target)?.manifest().clone();
        let choice = choice(args, there.recipe.as_ref());
        let settings = args.encoder.settings(choice.precision, choice.tokens.clone());
        let encoder: Arc<dyn Encoder> = Arc::from(encoders::open(context, &choice.model, &settings)?);
        let recipe = choice.recipe(encoder.as_ref());
        if let Some(before) = &there.recipe {
            let conflict = before.conflict(&recipe, true);
            if conflict.is_none() && !args.replace {
                let mut sink = MilvusWriter::open(&target)?;
                if before.model != recipe.model {
                    sink.set_model(&recipe.model)?;
                    context
                        .printer
                        .say(format!("the model of {target} is now registered as {}", recipe.model));
                }
                let totals = sink.totals()?;
                let done = Encoded::of(&target, &there, encoder.as_ref(), &recipe, (0, 0.0), totals);
                return context.printer.result(&done, |out| done.write(out));
            }
            if let (Some(what), false) = (conflict, args.replace) {
                return Err(Error::Input {
                    message: format!("{target} has {what}"),
                    hint: Some(
                        "--replace encodes everything again; the old vectors stay in use until then"
                            .to_owned(),
                    ),
                });
            }
        }
        let source = Box::new(Encoding::new(encoder.clone(), &recipe)) as Box<dyn VectorSource>;
        let analyzer = there.terms_by()?;
        let mut sink = MilvusWriter::new_generation(
            &target,
            analyzer,
            Some(recipe.clone()),
            Some(source),
            Unfinished::Continue,
        )?;
        let begun = std::time::Instant::now();
        let encoded = fill(&mut sink, &target, &there, context)?;
        sink.flush()?;
        sink.finish()?;
        let seconds = begun.elapsed().as_secs_f64();
        let now = sink.manifest().clone();
        let done = Encoded::of(&target, &now, encoder.as_ref(), &recipe, (encoded, seconds), sink.totals()?);
        context.printer.result(&done, |out| done.write(out))
    }

    /// Encoding options from the command line. Without a model, the current model is used.
    fn choice(args: &EncodeArgs, before: Option<&Recipe>) -> Choice {
        let mut choice = Choice::of(args, None);
        if let (None, Some(before)) = (&args.encoder.model, before) {
            choice.model.clone_from(&before.model);
        }
        choice
    }

    /// Repeats passes over all dialogues until a pass finds nothing new, at most [`MAX_PASSES`] times.
    fn fill(
        sink: &mut MilvusWriter,
        target: &Target,
        there: &Manifest,
        context: &Context<'_>,
    ) -> Result<u64> {
        let mut encoded = 0;
        for walks in 1..=MAX_PASSES {
            let (new, seen) = walk(sink, target, there, context)?;
            encoded += new;
            if new == 0 {
                remove_others(sink, &seen)?;
                return Ok(encoded);
            }
            if walks == MAX_PASSES {
                remove_others(sink, &seen)?;
                context.printer.warn(format!(
                    "{} were added during the last pass; if more are added before the switch, ingest them again",
                    counted(new, "dialogue")
                ));
            }
        }
        Ok(encoded)
    }

    /// Encodes new dialogues in one pass. Returns their number and the keys of all dialogues seen.
    fn walk(
        sink: &mut MilvusWriter,
        target: &Target,
        there: &Manifest,
        context: &Context<'_>,
    ) -> Result<(u64, HashSet<IdKey>)> {
        let mut walk = Walk::over(target)?.without_vectors();
        if walk.manifest().generation != there.generation {
            return Err(Error::Unavailable {
                message: format!(
                    "{target} now points to a different generation: a different process is encoding it, too"
                ),
                hint: Some("check with `turnwise search` and try again if necessary".to_owned()),
            });
        }
        let mut progress = ProgressBar::new(context.printer, "encoding", "dialogues", Some(walk.dialogues()));
        let (mut new, mut seen) = (0, HashSet::new());
        while let Some((_, part)) = walk.next_part()? {
            if signals::stopped() {
                let hint =
                    "the vectors made so far are kept; run the same command again to continue".to_owned();
                return Err(Error::Interrupted { hint: Some(hint) });
            }
            let prepared: Vec<Prepared> =
                part.iter().map(|moved| Prepared::new(&moved.dialogue)).collect::<Result<_>>()?;
            let keys: Vec<IdKey> = prepared.iter().map(|prepared| prepared.id).collect();
            sink.prefetch(&keys)?;
            for prepared in &prepared {
                new += u64::from(sink.put(prepared)? != PutOutcome::Unchanged);
            }
            sink.commit(None)?;
            seen.extend(keys);
            progress.set(seen.len() as u64, seen.len() as u64);
        }
        Ok((new, seen))
    }

    /// Removes leftovers of an earlier run that no longer exist in the current generation.
    fn remove_others(sink: &mut MilvusWriter, seen: &HashSet<IdKey>) -> Result<()> {
        if sink.totals()?.dialogues == seen.len() as u64 {
            return Ok(());
        }
        let mut others: Vec<DialogueId> = Vec::new();
        let mut walk = sink.walk()?.without_vectors();
        while let Some((_, part)) = walk.next_part()? {
            let ids = part.into_iter().map(|moved| moved.dialogue.id);
            others.extend(ids.filter(|id| !seen.contains(&id.key())));
        }
        sink.delete(&others).map(drop)
    }

    impl Encoded {
        fn of(
            target: &Target,
            manifest: &Manifest,
            encoder: &dyn Encoder,
            recipe: &Recipe,
            (encoded, seconds): (u64, f64),
            totals: turnwise_store::Totals,
        ) -> Self {
            Encoded {
                schema: "turnwise/encode-engine/1",
                engine: target.to_string(),
                generation: manifest.generation,
                model: recipe.model.clone(),
                encoder: encoder.name().to_owned(),
                fingerprint: encoder.fingerprint().to_string(),
                runs: encoder.describe(),
                dim: encoder.dim(),
                encoded,
                dialogues: totals.dialogues,
                turns: totals.turns,
                seconds,
            }
        }

        fn write(&self, out: &mut dyn Write) -> io::Result<()> {
            if self.encoded == 0 {
                return writeln!(out, "{} is up to date", self.engine);
            }
            writeln!(
                out,
                "{BOLD}{}{BOLD:#} encoded in {:.1} s {DIM}({}){DIM:#}",
                counted(self.encoded, "dialogue"),
                self.seconds,
                self.runs
            )?;
            writeln!(
                out,
                "{} now uses generation {}: {} with {}, vectors with {} dimensions by {}",
                self.engine,
                self.generation,
                counted(self.dialogues, "dialogue"),
                counted(self.turns, "turn"),
                self.dim,
                self.encoder
            )
        }
    }
}
