//! Exports the batches of a training run, and measures turnwise's time per step, for `benchmarks/train/peers.py`.
//!
//! * `cargo bench --bench train -- dump CORPUS FILE --model FOLDER` writes the batches to a JSON file, for training in
//!   other programs.
//! * `cargo bench --bench train -- time CORPUS --model FOLDER` trains. It prints a JSON line per step: the loss,
//!   the gradient norm, the number of tokens, and the wall-clock and CPU time in seconds. `--device cuda` trains on a
//!   GPU, and `--precision bf16` computes in bf16 [default: f32].
//!
//! Options of both, with their defaults: `--steps 5`, `--frozen 0` (number of frozen layers), `--dropout 0.1`,
//! `--objective dialoguecse`, and `--dialogues 400` (the number of dialogues to read).

#![allow(clippy::print_stdout)]

use std::{collections::BTreeMap, env, error::Error, fs, path::PathBuf, time::Instant};

use candle_core::DType;
use turnwise_corpus::{Dialogue, formats::ReadOptions, walk};
use turnwise_encoder::{Device, DeviceChoice, folder::ModelFolder};
use turnwise_train::{
    data::TrainingSet,
    model::{Freezing, Trainable},
    objectives::{Group, HardNegatives, Objective, Setup, Sources, TurnLocation},
    optimizer,
    order::Order,
    recipe::{ObjectiveName, Recipe, StepSettings},
    trainer::{Plan, Trainer},
};

/// The allocator of the program turnwise. Training allocates and frees large tensors in every step.
#[global_allocator]
static ALLOCATOR: turnwise_memory::Memory = turnwise_memory::Memory;

type Anyhow<T> = Result<T, Box<dyn Error>>;

fn main() -> Anyhow<()> {
    let args: Vec<String> = env::args().skip(1).filter(|a| a != "--bench").collect();
    let option = |name: &str| args.iter().position(|a| a == name).and_then(|n| args.get(n + 1)).cloned();
    let (Some(what), Some(corpus), Some(model)) = (args.first(), args.get(1), option("--model")) else {
        println!("nothing to do; benchmarks/train/peers.py shows how to run this");
        return Ok(());
    };
    let number = |name: &str, default: usize| option(name).map_or(Ok(default), |n| n.parse());
    let objective: ObjectiveName = option("--objective").as_deref().unwrap_or("dialoguecse").parse()?;
    let folder = ModelFolder::open(&PathBuf::from(model))?;
    let mut recipe = Recipe::new(objective, String::new(), vec![corpus.into()]);
    recipe.frozen_layers = Some(number("--frozen", 0)?);
    recipe.dropout = option("--dropout").map_or(Ok(0.1), |p| p.parse())?;
    recipe.steps = Some(number("--steps", 5)? as u64);
    recipe.clip = 0.0;
    recipe.auxiliary = Some(BTreeMap::new());
    let recipe = recipe.resolve(folder.config().layers, folder.pipeline().max_tokens)?;
    let steps = recipe.steps.as_ref().ok_or("the objective has no steps")?;
    let tokenizer = folder.tokenizer()?;
    let data = TrainingSet::new(
        &dialogues(corpus, number("--dialogues", 400)?)?.into(),
        &tokenizer,
        steps.merge_turns,
        recipe.min_turns,
        None,
    )?;
    let network = folder.network()?;
    let freezing = Freezing { layers: steps.frozen_layers, embeddings: false, memory: Some(1 << 30) };
    let device = Device::open(option("--device").map_or(Ok(DeviceChoice::Cpu), |d| d.parse())?)?;
    let dtype = if option("--precision").as_deref() == Some("bf16") { DType::BF16 } else { DType::F32 };
    let model = Trainable::new(network, freezing, device.inner(), dtype)?;
    let (seed, sources) = (recipe.file.seed, &NoSources);
    let goal = steps.create(&Setup {
        model: &model,
        data: &data,
        seed,
        sources,
        folder: &folder,
        selector: None,
        tokenizer: &tokenizer,
    })?;
    match what.as_str() {
        "dump" => {
            let file = args.get(2).ok_or("the output file is missing")?;
            dump(goal.as_ref(), &data, steps, file)
        }
        _ => time(goal.as_ref(), &data, steps, &model),
    }
}

/// Sources that return an error if an objective requests teachers or hard negatives.
struct NoSources;

impl Sources for NoSources {
    fn teachers(&self) -> turnwise_core::Result<Vec<Group>> {
        Err(turnwise_core::Error::input("this benchmark cannot fit teachers"))
    }

    fn hard_negatives(&self, _: Vec<TurnLocation>, _: usize) -> turnwise_core::Result<HardNegatives> {
        Err(turnwise_core::Error::input("this benchmark cannot mine hard negatives"))
    }
}

fn dialogues(path: &str, limit: usize) -> Anyhow<Vec<Dialogue>> {
    let plan = walk::plan(&[PathBuf::from(path)], None)?;
    let mut all = Vec::new();
    for source in plan.sources {
        for item in source.read(&ReadOptions::default())? {
            if let Ok(dialogue) = item {
                all.push(dialogue);
            }
            if all.len() == limit {
                return Ok(all);
            }
        }
    }
    Ok(all)
}

fn dump(goal: &dyn Objective, data: &TrainingSet, settings: &StepSettings, file: &str) -> Anyhow<()> {
    let mut order = Order::new(goal.examples(data)?, settings.plan.seed);
    let mut batches = Vec::new();
    let batch = settings.plan.batch as u64;
    for step in 0..settings.plan.schedule.steps {
        let first = step * batch;
        let mut examples: Vec<_> = (0..batch).map(|n| order.at(first + n)).collect();
        let prepared = goal.prepare(data, &mut examples)?;
        let sequences: Vec<&[u32]> = prepared.packed.sequences.iter().map(|s| s.ids.as_slice()).collect();
        batches.push(serde_json::json!({ "sequences": sequences, "shape": prepared.shape() }));
    }
    fs::write(file, serde_json::to_vec(&batches)?)?;
    Ok(())
}

fn time(goal: &dyn Objective, data: &TrainingSet, settings: &StepSettings, model: &Trainable) -> Anyhow<()> {
    // The program's training runs also enable this cache.
    turnwise_memory::enable_block_cache(2 << 30);
    let plan = Plan { optimizer: optimizer::Settings::default(), ..settings.plan };
    let mut trainer = Trainer::new(model, goal, data, plan)?;
    for _ in 0..settings.plan.schedule.steps {
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        let stepped = trainer.step()?;
        let line = serde_json::json!({
            "loss": stepped.loss, "gradient": stepped.norm, "tokens": stepped.tokens,
            "seconds": begun.elapsed().as_secs_f64(), "cpu": cpu_seconds() - cpu,
        });
        println!("{line}");
    }
    Ok(())
}

/// Returns the CPU seconds of this process, or 0 if they cannot be read.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<i64> =
        stat.rsplit(") ").next().unwrap_or_default().split(' ').filter_map(|f| f.parse().ok()).collect();
    // The user and system time, in hundredths of a second. The indices skip the process state, which is not a number.
    fields.get(10).zip(fields.get(11)).map_or(0.0, |(user, system)| (user + system) as f64 / 100.0)
}
