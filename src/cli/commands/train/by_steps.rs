//! A run that learns step by step, with a layer behind what they leave where one is asked for.

use std::path::Path;

use candle_core::DType;

use super::{
    Run,
    corpus::Read,
    evaluating::{Evaluator, Witnesses},
    folder::RunFolder,
    objective,
    running::{Reached, Running},
    surroundings::Surroundings,
    told,
};
use crate::cli::{
    Context,
    printer::{counted, grouped},
};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{Device, folder::ModelFolder};
use turnwise_memory as memory;
use turnwise_train::{
    data::TrainingSet,
    model::{Freezing, Trainable},
    recipe::Recipe,
    run::card::Card,
    trainer::Trainer,
};

/// Bytes of what frozen layers give that may be kept.
const KEPT: usize = 1 << 30;
/// Fewer dialogues are too few to learn from.
const FEW: usize = 100;
/// One token of so many may be unknown.
const UNKNOWN: u64 = 20;
/// Bytes of dropped tensors that are kept for the next ones.
const DROPPED: usize = 2 << 30;

/// Trains on these devices, and saves what comes of it. Tokens lie in a file on the disk of `room`, or in memory.
pub(super) fn train(
    run: &Run<'_>,
    read: Read,
    witnesses: Witnesses,
    devices: &[Device],
    room: Option<&Path>,
) -> Result<Reached> {
    let Run { recipe, start, folder: run_folder, of, context, .. } = *run;
    let folder = run_folder.divided(&start.folder, recipe, context)?;
    let tokenizer = folder.tokenizer()?;
    let prompt = folder.pipeline().prompts.text(None)?;
    let data = TrainingSet::new(&read.dialogues, &tokenizer, recipe.preparing(), room)?;
    let data = data.behind(prompt, &tokenizer)?.of_corpora(&read.ends);
    if data.is_empty() && data.left_out > 0 {
        let least = recipe.min_turns.unwrap_or(1);
        let those = counted(data.left_out as u64, "dialogue");
        let turns = counted(least as u64, "turn");
        return Err(Error::data(format!("every dialogue is shorter than {turns}: {those} left out"))
            .with_hint(
                "give longer ones; --min-turns N takes shorter ones, where the objective can learn from them",
            ));
    }
    tell_of(&data, prompt, recipe, context);
    warn_of(&data, recipe, context);
    if recipe.evaluate_every == Some(0) && !recipe.dev.is_empty() {
        context.printer.warn("the dev tasks are not looked at: --evaluate-every is 0");
    }
    let identity = identity(recipe, &of.dialogues, &folder.fingerprint()?.to_string())?;
    let freezing = Freezing { layers: recipe.frozen_layers.unwrap_or(0), embeddings: false, memory: KEPT };
    let on = |device: &Device| {
        let dtype = if device.is_cpu() { DType::F32 } else { DType::BF16 };
        Trainable::new(folder.network()?, freezing, device.inner(), dtype)
    };
    let (first, others) = devices.split_first().ok_or_else(|| Error::Internal("no device".to_owned()))?;
    let model = on(first)?;
    let others = others.iter().map(on).collect::<Result<Vec<Trainable>>>()?;
    let objective = objective::of(recipe, &data, &read, (&model, folder.max_tokens()), run.device, context)?;
    let named = (start.name.as_str(), &folder);
    let evaluator =
        Evaluator::new(recipe, (&read, run_folder.path()), witnesses, named, run.device, context)?;
    // What the steps need of it is tokens by now.
    let read = recipe.layer.then_some(read);
    memory::keep_large_blocks(DROPPED);
    let mut trainer = Trainer::new(&model, objective.as_ref(), &data, recipe.plan())?.beside(&others);
    let done = run_folder.go_on(&mut trainer, &identity, context)?;
    run_folder.begin(recipe, of)?;
    let mut reached = Running {
        model: &model,
        trainer: &mut trainer,
        recipe,
        folder: run_folder,
        evaluator: &evaluator,
        identity: &identity,
        context,
    }
    .steps(done)?;
    let network = model.network()?;
    let pipeline = RunFolder::pipeline_of_steps(&folder)?;
    let layered = read.map(|read| {
        Surroundings { run, folder: &folder }.behind((&pipeline, &network), &read, &evaluator, &mut reached)
    });
    let trained = match layered {
        Some(Ok(layered)) => layered,
        // The steps were taken and are not lost for it.
        Some(Err(Error::Data { message, .. })) => {
            context.printer.warn(format!("no layer stands behind what was trained: {message}"));
            ModelFolder::open(folder.path())?.with_pipeline(pipeline)
        }
        Some(Err(e)) => return Err(e),
        None => ModelFolder::open(folder.path())?.with_pipeline(pipeline),
    };
    let card = Card {
        recipe,
        base: &start.name,
        repository: start.repository.as_deref(),
        seen: (data.len(), data.turns()),
        data: &of.dialogues,
        kept: reached.kept,
        gains: told::of_card(&reached, recipe.seed),
        losses: reached.losses,
        layered: reached.learned.is_some(),
    };
    run_folder.save(&trained, &tokenizer, &network, &card)?;
    Ok(reached)
}

/// Tells what makes it improbable that anything is gained.
fn warn_of(data: &TrainingSet, recipe: &Recipe, context: &Context<'_>) {
    if data.len() < FEW {
        context.printer.warn(format!(
            "{} to learn from: what so few have in common is chance; it takes hundreds to gain what holds for others",
            counted(data.len() as u64, "dialogue")
        ));
    }
    if data.unknown * UNKNOWN > data.tokens {
        context.printer.warn(format!(
            "{} of the {} tokens are of words that {} does not know, as those of another language or script: it learns nothing of \
             them; -m MODEL begins with one that knows them",
            grouped(data.unknown),
            grouped(data.tokens),
            recipe.model
        ));
    }
}

/// What a run hangs on, as a hash.
fn identity(recipe: &Recipe, data: &str, model: &str) -> Result<String> {
    let bytes = serde_json::to_vec(&(recipe, data, model)).map_err(|e| Error::Internal(e.to_string()))?;
    Ok(blake3::hash(&bytes).to_hex()[..32].to_owned())
}

fn tell_of(data: &TrainingSet, prompt: &str, recipe: &Recipe, context: &Context<'_>) {
    let (dialogues, turns) = (data.len() as u64, data.turns() as u64);
    let too_short = match data.left_out {
        0 => String::new(),
        n => format!("; {} too short, left out", grouped(n as u64)),
    };
    let blank = match data.blank {
        0 => String::new(),
        n => format!("; {} without a word, left out", counted(n as u64, "turn")),
    };
    let behind = match prompt {
        "" => String::new(),
        prompt => format!(", behind its prompt {prompt:?}"),
    };
    context.printer.say(format!(
        "{} from {} with {} and {}{behind}{too_short}{blank}",
        recipe.objective.name(),
        recipe.model,
        counted(dialogues, "dialogue"),
        counted(turns, "turn"),
    ));
}
