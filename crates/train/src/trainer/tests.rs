//! Tests with complete runs of a small network.

use candle_core::{DType, Device};

use super::*;
use crate::{
    data::TurnTokens,
    model::Freezing,
    objectives::{
        Aggregation, Dial2vec, DialogueCse, Matching, Mlm, PostTraining, Relevance, ResponseSelection,
        RolePosition, SimCse,
        tests::selector::{frozen_selector, layout, matching_selector, selector_of_width},
    },
    optimizer,
};
use turnwise_encoder::{Network, selector::SentenceSettings, testing::small_shape};

fn network() -> Network {
    Network::random(small_shape(), 2, 60, 64, 3)
}

/// Returns dialogues about ten topics, so that the objectives can learn something.
fn data() -> TrainingSet {
    data_in(None)
}

fn data_in(folder: Option<&std::path::Path>) -> TrainingSet {
    let turn = |dialogue: u32, turn: u32| TurnTokens {
        speaker: turn % 2,
        role: turn % 2,
        ids: (0..4).map(|i| 10 + (dialogue % 10) * 5 + (dialogue * 3 + turn * 2 + i * 7) % 5).collect(),
    };
    let dialogues = (0..30).map(|d| (0..5).map(|t| turn(d, t)).collect()).collect();
    TrainingSet::of(dialogues, vec![1], vec![2], folder)
}

fn plan(dropout: f32, parts: usize) -> Plan {
    Plan {
        batch: 8,
        parts,
        rate: 2e-3,
        schedule: Schedule { shape: optimizer::Shape::Linear, warm_up: 2, steps: 40 },
        optimizer: optimizer::Settings::default(),
        clip: Some(1.0),
        dropout,
        seed: 11,
    }
}

fn trainable(layers: usize) -> Trainable {
    let freezing = Freezing { layers, embeddings: layers > 0, memory: Some(1 << 20) };
    Trainable::new(network(), freezing, &Device::Cpu, DType::F32).unwrap()
}

/// Creates a trainable network. Gradients can flow through its frozen layers if the objective needs that.
fn trainable_for(objective: &dyn Objective, layers: usize) -> Trainable {
    let has_vectors = objective.selector().unwrap().is_some_and(|(settings, _)| settings.sentences.is_some());
    match has_vectors {
        true => through(layers),
        false => trainable(layers),
    }
}

fn through(layers: usize) -> Trainable {
    let freezing = Freezing { layers, embeddings: layers > 0, memory: None };
    Trainable::new(network(), freezing, &Device::Cpu, DType::F32).unwrap()
}

fn relevance() -> Relevance {
    Relevance::new(3, layout(32, None), 24, None, 1, &Device::Cpu).unwrap()
}

fn objectives(data: &TrainingSet) -> Vec<Box<dyn Objective>> {
    let mut dial2vec = Dial2vec::new(data).unwrap();
    dial2vec.negatives = 3;
    vec![
        Box::new(DialogueCse::new(Aggregation::I2, 24, 1, &Device::Cpu).unwrap()),
        Box::new(DialogueCse::new(Aggregation::I1, 24, 1, &Device::Cpu).unwrap()),
        Box::new(dial2vec),
        Box::new(SimCse { temperature: 0.05, max_tokens: 32 }),
        Box::new(ResponseSelection::new(Matching::Cosine, 24, 1, &Device::Cpu).unwrap()),
        Box::new(ResponseSelection::new(Matching::Layer, 24, 1, &Device::Cpu).unwrap()),
        Box::new(ResponseSelection::new(Matching::Perceptron, 24, 1, &Device::Cpu).unwrap()),
        Box::new(Mlm::new(&trainable(1), Some(3), None, 1).unwrap()),
        Box::new(relevance()),
        Box::new(RolePosition::new(&trainable(0), data, 16, 1).unwrap()),
        Box::new(PostTraining::new(relevance(), Mlm::new(&trainable(1), Some(3), None, 1).unwrap())),
        Box::new(selector_of_width(24, 32, None)),
        Box::new(selector_of_width(24, 32, Some(SentenceSettings::default()))),
        Box::new(frozen_selector(&network(), 32, 1 << 12)),
        Box::new(matching_selector(24, 32, None)),
        Box::new(matching_selector(24, 32, Some(SentenceSettings::default()))),
    ]
}

#[test]
fn the_loss_of_every_objective_decreases() {
    let data = data();
    for objective in objectives(&data) {
        let model = trainable(0);
        // The losses of these objectives depend on single tokens, which learn slowly at first.
        let (steps, dropout) = match objective.definition().name {
            "relevance" | "post-training" | "selector" => (400, 0.0),
            _ => (100, 0.1),
        };
        let mut plan = plan(dropout, 1);
        plan.schedule.steps = steps;
        let mut trainer = Trainer::new(&model, objective.as_ref(), &data, plan).unwrap();
        let losses: Vec<f64> = (0..steps).map(|_| trainer.step().unwrap().loss).collect();
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let (first, last) = (mean(&losses[..8]), mean(&losses[losses.len() - 8..]));
        assert!(last < 0.95 * first, "{}: {first} {last}", objective.definition().name);
    }
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_run() {
    let data = data();
    for objective in objectives(&data) {
        let numbers = |trainer: &Trainer| -> Vec<Vec<f32>> {
            trainer.parameters().iter().map(|p| p.numbers().unwrap()).collect()
        };
        let heads: Vec<Vec<f32>> = objective.heads().iter().map(|h| h.numbers().unwrap()).collect();
        let model = trainable_for(objective.as_ref(), 1);
        let mut whole = Trainer::new(&model, objective.as_ref(), &data, plan(0.1, 1)).unwrap();
        for _ in 0..6 {
            whole.step().unwrap();
        }
        let (middle, state) = (numbers(&whole), whole.optimizer.state().unwrap());
        let rest: Vec<StepResult> = (0..6).map(|_| whole.step().unwrap()).collect();
        let end = numbers(&whole);
        // Both trainers share the parameters of the objective, so reset these parameters, too.
        let model = trainable_for(objective.as_ref(), 1);
        let mut again = Trainer::new(&model, objective.as_ref(), &data, plan(0.1, 1)).unwrap();
        again.parameters().iter().zip(middle).for_each(|(p, numbers)| p.set(numbers).unwrap());
        again.optimizer.restore(6, state).unwrap();
        let resumed: Vec<StepResult> = (0..6).map(|_| again.step().unwrap()).collect();
        assert_eq!(resumed, rest, "{}", objective.definition().name);
        assert_eq!(numbers(&again), end, "{}", objective.definition().name);
        objective.heads().iter().zip(heads).for_each(|(h, numbers)| h.set(numbers).unwrap());
    }
}

fn is_pooled(objective: &dyn Objective) -> bool {
    objective.definition().steps.as_ref().is_some_and(|steps| steps.pooled_loss)
}

#[test]
fn parts_and_devices_do_not_change_the_step() {
    let data = data();
    for objective in objectives(&data) {
        let before: Vec<Vec<f32>> = objective.heads().iter().map(|h| h.numbers().unwrap()).collect();
        let run = |parts, devices: usize| {
            objective.heads().iter().zip(&before).for_each(|(h, numbers)| h.set(numbers.clone()).unwrap());
            let (model, others) = (trainable(0), (1..devices).map(|_| trainable(0)).collect::<Vec<_>>());
            // Micro-batches and devices change the order of summation. A large epsilon suppresses the rounding errors
            // of tiny gradients in the update.
            let mut plan = plan(0.0, parts);
            plan.optimizer.epsilon = 1e-3;
            let trainer = Trainer::new(&model, objective.as_ref(), &data, plan).unwrap();
            let mut trainer = trainer.with_devices(&others);
            let losses: Vec<f64> = (0..5).map(|_| trainer.step().unwrap().loss).collect();
            let heads: Vec<f32> = objective.heads().iter().flat_map(|h| h.numbers().unwrap()).collect();
            (losses, [model.network().unwrap().layers[0].query.weight.clone(), heads].concat())
        };
        let whole = run(1, 1);
        let in_parts = |parts: usize| parts == 1 || !objective.in_batch() || is_pooled(objective.as_ref());
        for (parts, devices) in [(3, 1), (1, 3), (2, 2)].into_iter().filter(|(parts, _)| in_parts(*parts)) {
            let other = run(parts, devices);
            let name = format!("{}, {parts} parts, {devices} devices", objective.definition().name);
            assert!(
                whole.0.iter().zip(&other.0).all(|(a, b)| (a - b).abs() < 1e-4),
                "{name}: {:?} {:?}",
                whole.0,
                other.0
            );
            let far = whole.1.iter().zip(&other.1).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far < 2e-4, "{name}: {far}");
        }
    }
}

#[test]
fn a_step_with_a_loss_that_is_not_finite_changes_nothing() {
    let data = data();
    let mut objective = DialogueCse::new(Aggregation::I2, 24, 1, &Device::Cpu).unwrap();
    objective.temperature = 1e-42;
    let model = trainable(0);
    let mut trainer = Trainer::new(&model, &objective, &data, plan(0.0, 1)).unwrap();
    let error = trainer.step().unwrap_err();
    assert!(error.to_string().contains("finite"), "{error}");
    assert_eq!(model.network().unwrap(), network());
}

#[test]
fn data_without_examples_is_an_error() {
    let data = TrainingSet::of(vec![], vec![1], vec![2], None);
    let model = trainable(0);
    let error = Trainer::new(&model, &SimCse { temperature: 0.05, max_tokens: 32 }, &data, plan(0.0, 1))
        .err()
        .unwrap();
    assert!(error.to_string().contains("simcse"), "{error}");
}

/// Trains for 12 steps. Returns the bit patterns of the losses, and the final parameters.
fn run(data: &TrainingSet, objective: &dyn Objective) -> (Vec<u64>, Vec<Vec<f32>>) {
    let model = trainable_for(objective, 1);
    let mut trainer = Trainer::new(&model, objective, data, plan(0.1, 1)).unwrap();
    let losses = (0..12).map(|_| trainer.step().unwrap().loss.to_bits()).collect();
    (losses, trainer.parameters().iter().map(|p| p.numbers().unwrap()).collect())
}

#[test]
fn training_from_a_file_equals_training_from_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, file) = (data(), data_in(Some(folder.path())));
    for (of_memory, of_file) in objectives(&memory).into_iter().zip(objectives(&file)) {
        assert_eq!(
            run(&memory, of_memory.as_ref()),
            run(&file, of_file.as_ref()),
            "{}",
            of_file.definition().name
        );
    }
}

#[test]
fn frozen_sentence_vectors_are_those_of_the_network_before_training() {
    let data = data();
    let losses = |objective: &dyn Objective| -> Vec<f64> {
        let model = through(0);
        let mut trainer = Trainer::new(&model, objective, &data, plan(0.0, 1)).unwrap();
        (0..3).map(|_| trainer.step().unwrap().loss).collect()
    };
    let trained = losses(&selector_of_width(24, 32, Some(SentenceSettings::default())));
    let frozen = losses(&frozen_selector(&network(), 32, 1 << 20));
    assert!(
        (trained[0] - frozen[0]).abs() < 1e-5 && (trained[2] - frozen[2]).abs() > 1e-5,
        "{trained:?} {frozen:?}"
    );
    // Without a cache, the vectors are the same.
    assert_eq!(losses(&frozen_selector(&network(), 32, 0)), frozen);
}

#[test]
fn the_gradient_through_sentence_vectors_equals_finite_differences() {
    let data = data();
    let sentences = |first_weight| Some(SentenceSettings { first_weight, ..SentenceSettings::default() });
    let cases = [
        (0, selector_of_width(24, 32, sentences(0.4))),
        (0, selector_of_width(24, 32, sentences(1.0))),
        (1, selector_of_width(24, 32, sentences(0.4))),
        (0, matching_selector(24, 32, sentences(0.4))),
        (1, matching_selector(24, 32, None)),
    ];
    for (case, (layers, objective)) in cases.into_iter().enumerate() {
        let examples = objective.examples(&data).unwrap();
        let drawn = |at: usize| (examples[at], Random::new(5, at as u64));
        let prepared = objective.prepare(&data, &mut [drawn(3), drawn(50), drawn(77)]).unwrap();
        let utterances = prepared.utterances.as_ref().unwrap();
        let model = through(layers);
        let devices = Devices { first: &model, others: &[] };
        let parameters: Vec<Parameter> =
            model.parameters().iter().chain(objective.heads()).cloned().collect();
        let run = || {
            devices
                .backward_through_utterances(
                    &prepared.packed,
                    utterances,
                    None,
                    &parameters,
                    |states, vectors| prepared.loss(states, Some(vectors)),
                )
                .unwrap()
        };
        let (_, gradients) = run();
        gradients.audit(&parameters).unwrap();
        // The numeric derivative in the direction of the gradient of each parameter is the norm of the gradient.
        for (parameter, gradient) in parameters.iter().zip(gradients.each()) {
            let gradient: Vec<f32> = gradient.unwrap().flatten_all().unwrap().to_vec1().unwrap();
            let norm = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            let before = parameter.numbers().unwrap();
            let step = 4e-3;
            let loss = |by: f64| {
                let moved = before.iter().zip(&gradient);
                let moved = moved.map(|(x, g)| (f64::from(*x) + by * f64::from(*g) / norm) as f32);
                parameter.set(moved.collect()).unwrap();
                run().0
            };
            let difference = (loss(step) - loss(-step)) / (2.0 * step);
            parameter.set(before.clone()).unwrap();
            let close = (difference - norm).abs() < 0.02 * norm + 2e-4;
            assert!(close, "case {case}, {}: {norm} {difference}", parameter.name);
        }
    }
}
