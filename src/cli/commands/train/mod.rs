//! `turnwise train`: an encoder that has learned from dialogues.

mod corpus;
mod curves;
mod evaluating;
mod folder;
mod list;
mod many;
mod mined;
mod objective;
mod recipe;
mod running;
mod surroundings;
mod taught;
mod told;

use candle_core::DType;

use std::path::Path;

use crate::{
    cli::{
        Context,
        args::{ReadArgs, TrainArgs, TrainCommand, TrainRunArgs},
        memory,
        printer::{counted, grouped},
    },
    encoder::{
        Device,
        folder::{ModelFolder, PoolingMode, Step},
        statics,
    },
    error::{Error, Result},
    eval::data::hash_of_records,
    train::{
        data::TrainingSet,
        model::{Freezing, Trainable},
        recipe::{ObjectiveName, Recipe},
        run::card::Card,
        trainer::Trainer,
    },
};
use folder::RunFolder;
use running::Reached;

/// Bytes of what frozen layers give that may be kept.
const KEPT: usize = 1 << 30;
/// Bytes of dropped tensors that are kept for the next ones.
const DROPPED: usize = 2 << 30;

pub(crate) fn run(args: &TrainArgs, context: &Context<'_>) -> Result<()> {
    let (args, varied) = match &args.command {
        Some(TrainCommand::List(args)) => return list::run(args, context),
        Some(TrainCommand::Sweep(sweep)) => (&sweep.run, sweep.vary.as_slice()),
        None => (&args.run, &[][..]),
    };
    let recipe = recipe::of(args, context)?;
    if varied.is_empty() && args.seeds.is_none() {
        let (reached, recipe) = once(recipe, args, (args.output(), args.resume), context)?;
        return told::end(&reached, &recipe, &RunFolder::of(args.output()), context);
    }
    many::run(&recipe, varied, args, context)
}

/// A run, and its recipe with all that was not given.
fn once(
    mut recipe: Recipe,
    args: &TrainRunArgs,
    (output, resume): (&Path, bool),
    context: &Context<'_>,
) -> Result<(Reached, Recipe)> {
    let found = context.model(&recipe.model).map_err(|e| match Recipe::that_leaves(&recipe.model) {
        None => e,
        Some(name) => Error::input(format!("the model that this begins with is not there: {}", recipe.model))
            .with_hint(format!("make it first: `turnwise train {name} -o runs/{name}`")),
    })?;
    if statics::is_static(&found.path) {
        return Err(Error::input(format!(
            "{} is a static encoder, which has no layers to train",
            found.name
        ))
        .with_hint("begin with a transformer, such as all-MiniLM-L6-v2"));
    }
    let folder = ModelFolder::open(&found.path)?;
    let by_steps = recipe.objective != ObjectiveName::Surroundings;
    if by_steps {
        means_only(&folder, &found.name, context)?;
    }
    recipe.complete(folder.config().layers, folder.max_tokens())?;
    let (choice, more) = args.devices()?;
    let device = Device::open(choice)?;
    let more = more.iter().map(|choice| Device::open(*choice)).collect::<Result<Vec<Device>>>()?;
    let run_folder = RunFolder::new(output, resume)?;
    let reading = ReadArgs { strip_nicks: recipe.strip_nicks, ..args.read.clone() };
    let disk = room_of(output);
    let room = (!args.in_memory).then_some(disk);
    let mut read = corpus::read(&recipe.corpus, &reading, room, context)?;
    let tasks = evaluating::tasks(&recipe, &reading, context)?;
    match read.leave_out(evaluating::dialogues_of(&tasks))? as u64 {
        0 => {}
        n => {
            let those = counted(n, "dialogue");
            context.printer.say(format!("not trained on, for a dev task has the same: {those}"));
        }
    }
    if let Some(count) = recipe.dialogues {
        read.keep(count, recipe.seed);
    }
    let dialogues = &read.dialogues;
    let hash = hash_of_records((0..dialogues.len()).map(|n| dialogues.bytes(n)))?;
    if !by_steps {
        only_one(&more)?;
        let layer = surroundings::Surroundings {
            recipe: &recipe,
            name: &found.name,
            folder: &folder,
            device: choice,
            run_folder: &run_folder,
            context,
        };
        let reached = layer.run(&read, disk, tasks, &hash)?;
        return Ok((reached, recipe));
    }
    let folder = run_folder.divided(folder, &recipe, context)?;
    let tokenizer = folder.tokenizer()?;
    let prompt = folder.pipeline().prompts.text(None)?;
    let data = TrainingSet::new(dialogues, &tokenizer, recipe.preparing(), room)?;
    let data = data.behind(prompt, &tokenizer)?.of_corpora(&read.ends);
    tell_of(&data, prompt, &recipe, context);
    let identity = identity(&recipe, &hash, &folder.fingerprint()?.to_string())?;
    let freezing = Freezing { layers: recipe.frozen_layers.unwrap_or(0), embeddings: false, memory: KEPT };
    let on = |device: &Device| {
        let dtype = if device.is_cpu() { DType::F32 } else { DType::BF16 };
        Trainable::new(folder.network()?, freezing, device.inner(), dtype)
    };
    let model = on(&device)?;
    let others = more.iter().map(on).collect::<Result<Vec<Trainable>>>()?;
    let objective = objective::of(&recipe, &data, &read, (&model, folder.max_tokens()), choice, context)?;
    let evaluator =
        evaluating::Evaluator::new(&recipe, (&read, disk), tasks, (&found.name, &folder), choice, context)?;
    // What the steps need of it is tokens by now.
    let read = recipe.layer.then_some(read);
    memory::keep_large_blocks(DROPPED);
    let mut trainer = Trainer::new(&model, objective.as_ref(), &data, recipe.plan())?.beside(&others);
    let done = match resume {
        true => run_folder.go_on(&mut trainer, &identity, context)?,
        false => 0,
    };
    // Only now: another run's recipe stays as it is where going on was refused.
    run_folder.begin(&recipe, &hash)?;
    let mut reached = running::Running {
        model: &model,
        trainer: &mut trainer,
        recipe: &recipe,
        folder: &run_folder,
        evaluator: &evaluator,
        identity: &identity,
        context,
    }
    .steps(done)?;
    let network = model.network()?;
    let pipeline = RunFolder::pipeline_of_steps(&folder)?;
    let layered = read.map(|read| {
        let (name, folder, device, run_folder) = (&found.name, &folder, choice, &run_folder);
        let layer = surroundings::Surroundings { recipe: &recipe, name, folder, device, run_folder, context };
        layer.behind((&pipeline, &network), &read, &evaluator, &mut reached)
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
        recipe: &recipe,
        base: &found.name,
        seen: (data.len(), data.turns()),
        data: &hash,
        kept: reached.kept,
        gains: told::gains(&reached, recipe.seed).into_iter().map(told::Gain::of_card).collect(),
        losses: reached.losses,
    };
    run_folder.save(&trained, &tokenizer, &network, &card)?;
    drop(trainer);
    Ok((reached, recipe))
}

/// Refuses several devices, where there are no steps to share.
fn only_one(more: &[Device]) -> Result<()> {
    match more.is_empty() {
        true => Ok(()),
        false => Err(Error::input("surroundings has no steps that several devices could share")
            .with_hint("name one: --device")),
    }
}

/// A folder on the disk that the run's folder is on, or will be: what cannot be trained leaves none.
fn room_of(output: &Path) -> &Path {
    let there = |folder: &&Path| folder.is_dir();
    output.ancestors().find(there).unwrap_or(Path::new("."))
}

/// Refuses a model whose vectors are more than a mean of its tokens, and tells where the mean takes the place of something
/// else: what is trained is the mean.
fn means_only(folder: &ModelFolder, name: &str, context: &Context<'_>) -> Result<()> {
    let pipeline = folder.pipeline();
    if pipeline.steps.iter().any(|step| matches!(step, Step::Dense(_))) {
        return Err(Error::input(format!(
            "{name} has a dense layer behind its tokens, which is not trained here"
        ))
        .with_hint("begin with a model whose vectors are the mean of its tokens, such as all-MiniLM-L6-v2"));
    }
    if pipeline.pooling.modes != [PoolingMode::Mean] {
        let modes: Vec<&str> = pipeline.pooling.modes.iter().map(|mode| mode.name()).collect();
        context.printer.warn(format!(
            "{name} pools its tokens by {}; it is trained, and saved, to pool by their mean",
            modes.join(" and ")
        ));
    }
    Ok(())
}

/// What a run hangs on, as a hash.
fn identity(recipe: &Recipe, data: &str, model: &str) -> Result<String> {
    let bytes = serde_json::to_vec(&(recipe, data, model)).map_err(|e| Error::Internal(e.to_string()))?;
    Ok(blake3::hash(&bytes).to_hex()[..32].to_owned())
}

fn tell_of(data: &TrainingSet, prompt: &str, recipe: &Recipe, context: &Context<'_>) {
    let (dialogues, turns) = (data.len() as u64, data.turns() as u64);
    let left_out = match data.left_out {
        0 => String::new(),
        n => format!("; {} too short, left out", grouped(n as u64)),
    };
    let behind = match prompt {
        "" => String::new(),
        prompt => format!(", behind its prompt {prompt:?}"),
    };
    context.printer.say(format!(
        "{} from {} with {} and {}{behind}{left_out}",
        recipe.objective.name(),
        recipe.model,
        counted(dialogues, "dialogue"),
        counted(turns, "turn"),
    ));
}
