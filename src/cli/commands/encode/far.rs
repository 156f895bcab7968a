//! `turnwise encode --engine ADDRESS`: the dialogues in a Milvus get vectors by another encoder, in a generation beside the one
//! in use. That is searched until the new one is complete; then the name stands for the new one, in one step.

use crate::cli::{Context, args::EncodeArgs};
use turnwise_core::error::Result;

#[cfg(not(feature = "milvus"))]
pub(super) fn run(_: &EncodeArgs, context: &Context<'_>) -> Result<()> {
    match context.far()? {}
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
    use turnwise_store::{Prepared, Put, ingest::DialogueSink};

    /// After so many walks over all dialogues those that came meanwhile are left to another run.
    const WALKS: usize = 4;

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
        /// Dialogues that got vectors now.
        encoded: u64,
        dialogues: u64,
        turns: u64,
        seconds: f64,
    }

    pub(super) fn run(args: &EncodeArgs, context: &Context<'_>) -> Result<()> {
        if args.of.is_some() {
            return Err(Error::Input {
                message: "--of is for an index: in Milvus utterances and dialogues have vectors, or neither"
                    .to_owned(),
                hint: Some("leave it out".to_owned()),
            });
        }
        let target = context.far()?;
        let there = Walk::over(&target)?.manifest().clone();
        let choice = choice(args, there.recipe.as_ref());
        let settings = args.encoder.settings(choice.precision, choice.tokens.clone());
        let encoder: Arc<dyn Encoder> = Arc::from(encoders::open(context, &choice.model, &settings)?);
        let recipe = choice.recipe(encoder.as_ref());
        if let Some(before) = &there.recipe {
            let conflict = before.conflict(&recipe, true);
            if conflict.is_none() && !args.replace {
                let mut home = MilvusWriter::open(&target)?;
                if before.model != recipe.model {
                    home.set_model(&recipe.model)?;
                    context
                        .printer
                        .say(format!("the model of {target} is looked for as {} from now on", recipe.model));
                }
                let totals = home.totals()?;
                let done = Encoded::of(&target, &there, encoder.as_ref(), &recipe, (0, 0.0), totals);
                return context.printer.result(&done, |out| done.write(out));
            }
            if let (Some(what), false) = (conflict, args.replace) {
                return Err(Error::Input {
                    message: format!("{target} holds {what}"),
                    hint: Some(
                        "--replace makes all of them anew; the old ones stay in use until that is done"
                            .to_owned(),
                    ),
                });
            }
        }
        let giver = Box::new(Encoding::new(encoder.clone(), &recipe)) as Box<dyn VectorSource>;
        let analyzer = there.terms_by()?;
        let mut home =
            MilvusWriter::anew(&target, analyzer, Some(recipe.clone()), Some(giver), Unfinished::GoOn)?;
        let begun = std::time::Instant::now();
        let encoded = fill(&mut home, &target, &there, context)?;
        home.settle()?;
        home.finish()?;
        let seconds = begun.elapsed().as_secs_f64();
        let now = home.made().clone();
        let done = Encoded::of(&target, &now, encoder.as_ref(), &recipe, (encoded, seconds), home.totals()?);
        context.printer.result(&done, |out| done.write(out))
    }

    /// As the arguments say, and where they name no model, by the one that was there.
    fn choice(args: &EncodeArgs, before: Option<&Recipe>) -> Choice {
        let mut choice = Choice::of(args, None);
        if let (None, Some(before)) = (&args.encoder.model, before) {
            choice.model.clone_from(&before.model);
        }
        choice
    }

    /// Walks over all dialogues until a walk finds nothing new.
    fn fill(
        home: &mut MilvusWriter,
        target: &Target,
        there: &Manifest,
        context: &Context<'_>,
    ) -> Result<u64> {
        let mut encoded = 0;
        for walks in 1..=WALKS {
            let (new, seen) = walk(home, target, there, context)?;
            encoded += new;
            if new == 0 {
                remove_others(home, &seen)?;
                return Ok(encoded);
            }
            if walks == WALKS {
                remove_others(home, &seen)?;
                context.printer.warn(format!(
                    "{} still came while the vectors were made: ingest what comes from now on again",
                    counted(new, "dialogue")
                ));
            }
        }
        Ok(encoded)
    }

    /// Takes in what is not there yet; gives how many dialogues that were, and all that were seen.
    fn walk(
        home: &mut MilvusWriter,
        target: &Target,
        there: &Manifest,
        context: &Context<'_>,
    ) -> Result<(u64, HashSet<IdKey>)> {
        let mut walk = Walk::over(target)?.without_vectors();
        if walk.manifest().generation != there.generation {
            return Err(Error::Unavailable {
                message: format!("{target} stands for another generation now: somebody else encodes it, too"),
                hint: Some("look with `turnwise search`, and try again if need be".to_owned()),
            });
        }
        let mut progress = ProgressBar::new(context.printer, "encoding", "dialogues", Some(walk.dialogues()));
        let (mut new, mut seen) = (0, HashSet::new());
        while let Some((_, part)) = walk.next_part()? {
            if signals::stopped() {
                let hint = "what was encoded stays; run the same command again to go on".to_owned();
                return Err(Error::Interrupted { hint: Some(hint) });
            }
            let prepared: Vec<Prepared> =
                part.iter().map(|moved| Prepared::new(&moved.dialogue)).collect::<Result<_>>()?;
            let keys: Vec<IdKey> = prepared.iter().map(|prepared| prepared.id).collect();
            home.ahead(&keys)?;
            for prepared in &prepared {
                new += u64::from(home.put(prepared)? != Put::Unchanged);
            }
            home.commit(None)?;
            seen.extend(keys);
            progress.set(seen.len() as u64, seen.len() as u64);
        }
        Ok((new, seen))
    }

    /// Removes what an earlier try has left and nobody has any more.
    fn remove_others(home: &mut MilvusWriter, seen: &HashSet<IdKey>) -> Result<()> {
        if home.totals()?.dialogues == seen.len() as u64 {
            return Ok(());
        }
        let mut others: Vec<DialogueId> = Vec::new();
        let mut walk = home.walk()?.without_vectors();
        while let Some((_, part)) = walk.next_part()? {
            let ids = part.into_iter().map(|moved| moved.dialogue.id);
            others.extend(ids.filter(|id| !seen.contains(&id.key())));
        }
        home.delete(&others).map(drop)
    }

    impl Encoded {
        fn of(
            target: &Target,
            manifest: &Manifest,
            encoder: &dyn Encoder,
            recipe: &Recipe,
            (encoded, seconds): (u64, f64),
            totals: turnwise_store::frame::Totals,
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
                "{} stands for its generation {} now: {} with {}, vectors of {} numbers by {}",
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
