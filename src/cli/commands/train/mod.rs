//! `turnwise train`: an encoder that has learned from dialogues.

mod corpus;
mod folder;
mod recipe;
mod taught;

use std::time::Instant;

use candle_core::DType;

use crate::{
    cli::{
        Context,
        args::TrainArgs,
        memory,
        printer::{bytes, counted, grouped},
        progress::Progress,
        signals,
    },
    encoder::{Device, Network, folder::ModelFolder, statics},
    error::{Error, Result},
    eval::ann::own_bytes,
    train::{
        data::TrainingSet,
        model::{Freezing, Trainable},
        objectives::{Dial2vec, DialogueCse, Objective, SimCse, Turns},
        recipe::{Aggregation, ObjectiveName, Profile, Recipe},
        run::{card::Card, checkpoint, metrics},
        trainer::{Stepped, Trainer},
    },
};
use folder::RunFolder;

/// Bytes of what frozen layers give that may be kept.
const KEPT: usize = 1 << 30;
/// Bytes of dropped tensors that are kept for the next ones.
const DROPPED: usize = 2 << 30;

pub(crate) fn run(args: &TrainArgs, context: &Context<'_>) -> Result<()> {
    let mut recipe = recipe::of(args, context)?;
    let found = context.model(&recipe.model)?;
    if statics::is_static(&found.path) {
        return Err(Error::input(format!(
            "{} is a static encoder, which has no layers to train",
            found.name
        ))
        .with_hint("begin with a transformer, such as all-MiniLM-L6-v2"));
    }
    let folder = ModelFolder::open(&found.path)?;
    recipe.complete(folder.config().layers, folder.max_tokens())?;
    let run_folder = RunFolder::new(&args.output, args.resume)?;
    let device = Device::open(args.device)?;
    let dialogues = corpus::read(&recipe.corpus, &args.read, context)?;
    let hash = crate::eval::data::hash_of_dialogues(&dialogues)?;
    let tokenizer = folder.tokenizer()?;
    let data = TrainingSet::new(&dialogues, &tokenizer, recipe.preparing())?;
    tell_of(&data, &recipe, context);
    let identity = identity(&recipe, &hash, &folder.fingerprint()?.to_string())?;
    let network = folder.network()?;
    let objective: Box<dyn Objective> = match recipe.objective {
        ObjectiveName::Neighbours => {
            Box::new(taught::objective(&recipe, &data, &dialogues, args.device, context)?)
        }
        _ => objective(&recipe, &data, &network, &device)?,
    };
    drop(dialogues);
    let freezing = Freezing { layers: recipe.frozen_layers.unwrap_or(0), embeddings: false, memory: KEPT };
    let dtype = if device.is_cpu() { DType::F32 } else { DType::BF16 };
    let model = Trainable::new(network, freezing, device.inner(), dtype)?;
    memory::keep_large_blocks(DROPPED);
    let mut trainer = Trainer::new(&model, objective.as_ref(), &data, recipe.plan())?;
    let done = match args.resume {
        true => run_folder.go_on(&mut trainer, &identity, context)?,
        false => 0,
    };
    // Only now: another run's recipe stays as it is where going on was refused.
    run_folder.begin(&recipe, &hash)?;
    let reached = steps(&mut trainer, &recipe, &run_folder, done, &identity, context)?;
    let network = model.network()?;
    let card = Card {
        recipe: &recipe,
        base: &found.name,
        seen: (data.dialogues.len(), data.turns()),
        data: &hash,
        losses: reached.losses,
    };
    run_folder.save_model(&folder, &tokenizer, &network, &card)?;
    tell_end(&reached, &recipe, &run_folder, context)
}

/// What a run hangs on, as a hash.
fn identity(recipe: &Recipe, data: &str, model: &str) -> Result<String> {
    let bytes = serde_json::to_vec(&(recipe, data, model)).map_err(|e| Error::Internal(e.to_string()))?;
    Ok(blake3::hash(&bytes).to_hex()[..32].to_owned())
}

fn objective(
    recipe: &Recipe,
    data: &TrainingSet,
    network: &Network,
    device: &Device,
) -> Result<Box<dyn Objective>> {
    let Recipe { temperature, max_tokens, .. } = *recipe;
    Ok(match recipe.objective {
        ObjectiveName::Dialoguecse => {
            let turns = match recipe.aggregation.unwrap_or_default() {
                Aggregation::I1 => Turns::Weighted,
                Aggregation::I2 => Turns::Mean,
            };
            let mut made = DialogueCse::new(turns, network.shape.hidden, recipe.seed, device.inner())?;
            made.context = recipe.context.unwrap_or(made.context);
            made.negatives = recipe.negatives.unwrap_or(made.negatives);
            (made.temperature, made.max_tokens) = (temperature, max_tokens);
            Box::new(made)
        }
        ObjectiveName::Dial2vec => {
            let mut made = Dial2vec::new(data);
            made.window = recipe.window.unwrap_or(made.window);
            made.negatives = recipe.negatives.unwrap_or(made.negatives);
            made.as_coded = recipe.profile == Some(Profile::Code);
            (made.temperature, made.max_tokens) = (temperature, max_tokens);
            let rows = |table: &Option<crate::encoder::network::Table>| table.as_ref().map(|t| t.rows);
            made.tables = (rows(&network.embeddings.turns), rows(&network.embeddings.roles));
            Box::new(made)
        }
        ObjectiveName::Simcse => Box::new(SimCse { temperature, max_tokens }),
        ObjectiveName::Neighbours => {
            return Err(Error::Internal("an objective without its teacher".to_owned()));
        }
    })
}

fn tell_of(data: &TrainingSet, recipe: &Recipe, context: &Context<'_>) {
    let (dialogues, turns) = (data.dialogues.len() as u64, data.turns() as u64);
    let left_out = match data.left_out {
        0 => String::new(),
        n => format!("; {} too short, left out", grouped(n as u64)),
    };
    context.printer.say(format!(
        "{} from {} with {} and {}{left_out}",
        recipe.objective.name(),
        recipe.model,
        counted(dialogues, "dialogue"),
        counted(turns, "turn"),
    ));
}

/// What came of the steps.
struct Reached {
    /// The mean losses of the first and the last steps.
    losses: Option<(f64, f64)>,
    seconds: f64,
    examples: u64,
    tokens: u64,
}

/// Takes the steps that are left.
fn steps(
    trainer: &mut Trainer,
    recipe: &Recipe,
    folder: &RunFolder,
    done: u64,
    identity: &str,
    context: &Context<'_>,
) -> Result<Reached> {
    let mut metrics = metrics::Metrics::open(&folder.metrics(), done)?;
    let mut progress = Progress::new(context.printer, "training", "examples", Some(recipe.steps - done));
    let begun = Instant::now();
    let (mut examples, mut tokens, mut smooth) = (0, 0, None);
    for step in done..recipe.steps {
        let started = Instant::now();
        let stepped = match trainer.step() {
            Ok(stepped) => stepped,
            Err(e) => return Err(folder.stopped_by(e, step, trainer)),
        };
        let seconds = started.elapsed().as_secs_f64();
        metrics.add(&line(&stepped, seconds))?;
        examples += stepped.examples as u64;
        tokens += stepped.tokens as u64;
        let smoothed = smooth.map_or(stepped.loss, |s: f64| 0.9 * s + 0.1 * stepped.loss);
        smooth = Some(smoothed);
        let rate = tokens as f64 / begun.elapsed().as_secs_f64().max(1e-3);
        let memory = own_bytes().map_or_else(String::new, |own| format!(", {}", bytes(own)));
        let rate = grouped(rate as u64);
        progress.set_more(format!("step {}, loss {smoothed:.4}, {rate} tokens/s{memory}", step + 1));
        progress.set(step + 1 - done, examples);
        let last = step + 1 == recipe.steps;
        if last || (step + 1).is_multiple_of(recipe.checkpoint_every) || signals::stopped() {
            checkpoint::save(&folder.checkpoints(), trainer, identity)?;
            checkpoint::prune(&folder.checkpoints(), folder::CHECKPOINTS)?;
        }
        if signals::stopped() && !last {
            return Err(Error::Interrupted {
                hint: Some(format!(
                    "{} of {} steps are kept; the same command with --resume goes on",
                    grouped(step + 1),
                    grouped(recipe.steps)
                )),
            });
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Reached { losses: losses(&metrics::read(&folder.metrics())?), seconds, examples, tokens })
}

fn line(stepped: &Stepped, seconds: f64) -> metrics::Line {
    metrics::Line {
        step: stepped.step,
        loss: stepped.loss,
        learning_rate: stepped.rate,
        gradient: stepped.norm,
        examples: stepped.examples,
        tokens: stepped.tokens,
        seconds,
    }
}

/// The mean over a tenth of the run at its beginning and at its end.
fn losses(lines: &[metrics::Line]) -> Option<(f64, f64)> {
    let part = (lines.len() / 10).max(1);
    let mean = |lines: &[metrics::Line]| lines.iter().map(|l| l.loss).sum::<f64>() / lines.len() as f64;
    (!lines.is_empty()).then(|| (mean(&lines[..part]), mean(&lines[lines.len() - part..])))
}

fn tell_end(reached: &Reached, recipe: &Recipe, folder: &RunFolder, context: &Context<'_>) -> Result<()> {
    let Reached { losses, seconds, examples, tokens } = *reached;
    let (first, last) = losses.unwrap_or((f64::NAN, f64::NAN));
    let model = folder.model();
    let rate = |n: u64| grouped((n as f64 / seconds.max(1e-3)) as u64);
    let result = serde_json::json!({
        "model": model, "steps": recipe.steps, "loss": { "first": first, "last": last },
        "seconds": seconds, "examples": examples, "tokens": tokens,
    });
    context.printer.result(&result, |out| {
        writeln!(out, "{} steps, loss {first:.4} → {last:.4}", grouped(recipe.steps))?;
        if examples > 0 {
            writeln!(out, "{seconds:.0} s, {} examples/s, {} tokens/s", rate(examples), rate(tokens))?;
        }
        writeln!(out, "the model is {}", model.display())
    })?;
    context.printer.hint(format!(
        "a loss tells nothing of use; compare: turnwise bench … -r model -r model:{}",
        model.display()
    ));
    Ok(())
}
