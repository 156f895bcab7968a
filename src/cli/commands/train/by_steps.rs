//! Training with gradient steps, optionally followed by learning a layer.

use std::path::Path;

use candle_core::DType;

use super::{
    Run,
    corpus::Read,
    evaluating::{EvaluationData, Evaluator},
    folder::RunFolder,
    objective, report,
    running::{Reached, Running},
    surroundings::Surroundings,
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
    recipe::{Recipe, ResolvedRecipe, StepSettings},
    run::card::Card,
    trainer::Trainer,
};

/// Memory limit for cached outputs of frozen layers, in bytes.
const CACHE_BYTES: usize = 1 << 30;
/// Warn below this number of dialogues.
const MIN_DIALOGUES: usize = 100;
/// Warn if more than one of N tokens is unknown.
const UNKNOWN_ONE_IN: u64 = 20;
/// Memory limit for freed tensors that are kept for reuse, in bytes.
const POOL_BYTES: usize = 2 << 30;

/// Trains on these devices and saves the model. Tokens are stored in a file in the folder `room`, or in memory.
pub(super) fn train(
    run: &Run<'_>,
    steps: &StepSettings,
    read: Read,
    eval_data: EvaluationData,
    devices: &[Device],
    room: Option<&Path>,
) -> Result<Reached> {
    let Run { recipe, start, folder: run_folder, of, context, .. } = *run;
    let folder = run_folder.with_separator(&start.folder, recipe, context)?;
    let tokenizer = folder.tokenizer()?;
    let prompt = folder.pipeline().prompts.text(None)?;
    let data = TrainingSet::new(&read.dialogues, &tokenizer, steps.preprocessing(recipe.min_turns), room)?;
    let data = data.behind(prompt, &tokenizer)?.of_corpora(&read.ends);
    if data.is_empty() && data.left_out > 0 {
        let least = recipe.min_turns;
        let those = counted(data.left_out as u64, "dialogue");
        let turns = counted(least as u64, "turn");
        return Err(Error::data(format!("every dialogue is shorter than {turns}: {those} skipped"))
            .with_hint(
                "use longer dialogues, or allow shorter ones with --min-turns N if the objective can learn from them",
            ));
    }
    report_data(&data, prompt, recipe, context);
    warn_about_data(&data, recipe, context);
    if !recipe.evaluates && !recipe.dev.is_empty() {
        context.printer.warn("the dev tasks are not evaluated, because --evaluate-every is 0");
    }
    let identity = identity(&recipe.file, &of.dialogues, &folder.fingerprint()?.to_string())?;
    let freezing = Freezing { layers: steps.frozen_layers, embeddings: false, memory: CACHE_BYTES };
    let on = |device: &Device| {
        let dtype = if device.is_cpu() { DType::F32 } else { DType::BF16 };
        Trainable::new(folder.network()?, freezing, device.inner(), dtype)
    };
    let (first, others) = devices.split_first().ok_or_else(|| Error::Internal("no device".to_owned()))?;
    let model = on(first)?;
    let others = others.iter().map(on).collect::<Result<Vec<Trainable>>>()?;
    let objective = objective::of((recipe, steps), &data, &read, &model, run.device, context)?;
    let named = (start.name.as_str(), &folder);
    let evaluator =
        Evaluator::new(recipe, (&read, run_folder.path()), eval_data, named, run.device, context)?;
    // The steps only need tokens. Keep the text only if a layer is learned.
    let read = steps.layer.is_some().then_some(read);
    memory::enable_block_cache(POOL_BYTES);
    let mut trainer =
        Trainer::new(&model, objective.as_ref(), &data, steps.plan(recipe.seed))?.beside(&others);
    let done = run_folder.load_checkpoint(&mut trainer, &identity, context)?;
    run_folder.begin(recipe, of)?;
    let mut reached = Running {
        model: &model,
        trainer: &mut trainer,
        recipe,
        settings: steps,
        folder: run_folder,
        evaluator: &evaluator,
        identity: &identity,
        context,
    }
    .steps(done)?;
    let network = model.network()?;
    let pipeline = RunFolder::pipeline_of_steps(&folder)?;
    let layered = read.map(|read| {
        Surroundings { run, folder: &folder }.append((&pipeline, &network), &read, &evaluator, &mut reached)
    });
    let trained = match layered {
        Some(Ok(layered)) => layered,
        // The trained steps must not be lost if the layer fails.
        Some(Err(Error::Data { message, .. })) => {
            context.printer.warn(format!("no layer was added to the trained model: {message}"));
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
        gains: report::of_card(&reached, recipe.seed),
        losses: reached.losses,
        layered: reached.learned.is_some(),
    };
    run_folder.save(&trained, &tokenizer, &network, &card)?;
    Ok(reached)
}

/// Warns about data from which little can be learned.
fn warn_about_data(data: &TrainingSet, recipe: &ResolvedRecipe, context: &Context<'_>) {
    if data.len() < MIN_DIALOGUES {
        context.printer.warn(format!(
            "training on only {}: too few to learn anything general; use at least a few hundred",
            counted(data.len() as u64, "dialogue")
        ));
    }
    if data.unknown * UNKNOWN_ONE_IN > data.tokens {
        context.printer.warn(format!(
            "{} of the {} tokens are unknown to {}, for example because of a different language or script: nothing is learned from \
             them; choose a model for this language with -m MODEL",
            grouped(data.unknown),
            grouped(data.tokens),
            recipe.model
        ));
    }
}

/// Hash of everything that the result of a run depends on.
fn identity(recipe: &Recipe, data: &str, model: &str) -> Result<String> {
    let bytes = serde_json::to_vec(&(recipe, data, model)).map_err(|e| Error::Internal(e.to_string()))?;
    Ok(blake3::hash(&bytes).to_hex()[..32].to_owned())
}

fn report_data(data: &TrainingSet, prompt: &str, recipe: &ResolvedRecipe, context: &Context<'_>) {
    let (dialogues, turns) = (data.len() as u64, data.turns() as u64);
    let too_short = match data.left_out {
        0 => String::new(),
        n => format!("; {} too short, skipped", grouped(n as u64)),
    };
    let blank = match data.blank {
        0 => String::new(),
        n => format!("; {} without text, skipped", counted(n as u64, "turn")),
    };
    let with_prompt = match prompt {
        "" => String::new(),
        prompt => format!(", with the prompt {prompt:?}"),
    };
    context.printer.say(format!(
        "{} from {} with {} and {}{with_prompt}{too_short}{blank}",
        recipe.objective.name(),
        recipe.model,
        counted(dialogues, "dialogue"),
        counted(turns, "turn"),
    ));
}
