//! Tests of response selection, of the baselines from the papers, of MLM, and of auxiliary objectives.

use super::*;
use crate::model::{Freezing, Trainable};
use turnwise_encoder::{
    Network,
    folder::MlmHead,
    network::{Norm, Shape},
};

/// Returns `f(W·x + b)`. The two parameters in `heads` are `W` and `b`.
fn through(heads: &[Parameter], x: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    let of = |p: &Parameter| p.numbers().unwrap().into_iter().map(f64::from).collect::<Vec<_>>();
    let (weight, bias) = (of(&heads[0]), of(&heads[1]));
    bias.iter().enumerate().map(|(o, b)| f(dot(&weight[o * x.len()..(o + 1) * x.len()], x) + b)).collect()
}

#[test]
fn responses_and_siamese_networks_equal_their_formulas() {
    let mut dialogues = dialogues();
    // Identical responses are not negatives of each other.
    dialogues[5][1] = dialogues[4][1].clone();
    let data = of(dialogues.clone());
    for matching in [Matching::Cosine, Matching::Layer, Matching::Perceptron] {
        let mut objective = ResponseSelection::new(matching, WIDTH, 7, &Device::Cpu).unwrap();
        // Move the activations away from the kink of ReLU, which a finite difference could cross.
        let biases = objective.heads.iter().filter(|head| head.name.ends_with("0.bias"));
        biases.for_each(|bias| bias.set(vec![1.0; WIDTH]).unwrap());
        (objective.temperature, objective.context) = (0.5, 2);
        let locations =
            [(4, 1), (5, 1), (5, 4), (2, 3)].map(|(dialogue, turn)| TurnLocation { dialogue, turn });
        let mut drawn = locations.map(|location| (location, Random::new(1, 1)));
        let prepared = objective.prepare(&data, &mut drawn).unwrap();
        let packed = &prepared.packed;
        // The response is the fifth turn. Its context is the two turns before it, each followed by a separator.
        let before: Vec<u32> =
            dialogues[5][2..4].iter().flat_map(|s| s.ids.iter().copied().chain([2])).collect();
        assert_eq!(packed.sequences[2].ids, [&[1][..], &before].concat());
        assert_eq!(packed.sequences[6], data.utterance(&dialogues[5][4].ids, 64));
        let (loss, states) = checked(&prepared, objective.heads());
        let of = |n: usize| mean(&states[packed.rows(n)]);
        let heads = objective.heads();
        let score = |context: usize, response: usize| {
            let (context, response) = (of(context), of(4 + response));
            match matching {
                Matching::Cosine => cosine(&context, &response),
                Matching::Layer => {
                    dot(&context, &through(heads, &response, f64::tanh)) / (WIDTH as f64).sqrt()
                }
                Matching::Perceptron => {
                    let two = |heads: &[Parameter], x: &[f64]| {
                        through(&heads[2..], &through(heads, x, |v| v.max(0.0)), |v| v)
                    };
                    cosine(&two(heads, &context), &two(&heads[4..], &response))
                }
            }
        };
        let loss_of = |own: usize, score: &dyn Fn(usize) -> f64| {
            let others = (0..4).filter(|n| *n != own && !(own < 2 && *n < 2));
            nt_xent(&std::iter::once(own).chain(others).map(score).collect::<Vec<f64>>(), 0.5)
        };
        let forward: f64 = (0..4).map(|n| loss_of(n, &|r| score(n, r))).sum::<f64>() / 4.0;
        let reverse: f64 = (0..4).map(|n| loss_of(n, &|c| score(c, n))).sum::<f64>() / 4.0;
        let expected = if matching == Matching::Cosine { f64::midpoint(forward, reverse) } else { forward };
        assert!((loss - expected).abs() < 1e-4, "{matching:?}: {loss} {expected}");
    }
}

/// Creates a network with hidden size `WIDTH` and a vocabulary of 50 words.
pub(super) fn trainable(frozen: usize) -> Trainable {
    let shape = Shape { norm_epsilon: 1e-6, ..Shape::bert(WIDTH, 2, 8) };
    let freezing = Freezing { layers: frozen, embeddings: frozen > 0, memory: Some(1 << 20) };
    Trainable::new(Network::random(shape, 2, 50, 64, 3), freezing, &Device::Cpu, DType::F32).unwrap()
}

#[test]
fn self_distillation_equals_its_formula() {
    let data = data();
    let model = trainable(0);
    let objective = SelfDistillation::new(&model, &data, 16, 3).unwrap();
    let prepared = objective.prepare(&data, &mut examples(&objective, &data, &[0, 4, 9])).unwrap();
    let packed = &prepared.packed;
    // For the untrained model, the loss is 0.
    let now = model.states(packed, None).unwrap();
    assert!(prepared.loss(&now, None).unwrap().to_scalar::<f32>().unwrap().abs() < 1e-5);
    let (loss, states) = checked(&prepared, &[]);
    let start = rows(&now);
    let distance = |n: usize| 1.0 - cosine(&mean(&states[packed.rows(n)]), &mean(&start[packed.rows(n)]));
    assert!((loss - (0..3).map(distance).sum::<f64>() / 3.0).abs() < 1e-5, "{loss}");
}

#[test]
fn mlm_equals_its_formula() {
    assert!(Mlm::new(&trainable(0), None, None, 1).is_err());
    check_mlm(None);
}

#[test]
fn mlm_continues_the_prediction_head_of_the_checkpoint() {
    let numbers = |seed: f32, count: usize| (0..count).map(|n| (n as f32 * seed).sin()).collect::<Vec<f32>>();
    let norm = Norm { weight: numbers(0.3, WIDTH), bias: numbers(0.5, WIDTH) };
    // The last five words were added to the vocabulary later.
    let head = MlmHead {
        weight: numbers(0.7, WIDTH * WIDTH),
        bias: numbers(0.9, WIDTH),
        norm,
        output_bias: numbers(1.1, 45),
    };
    let heads = check_mlm(Some(head.clone()));
    assert_eq!(heads[..2], [head.weight, head.bias]);
    assert_eq!(heads[2], [head.norm.weight, head.norm.bias].concat());
    assert_eq!(heads[3], [head.output_bias, vec![0.0; 5]].concat());
}

/// Checks the loss of the masked language model with a prediction head. Returns the parameters of the head.
fn check_mlm(head: Option<MlmHead>) -> Vec<Vec<f32>> {
    let mut data = data();
    data.mask = Some(3);
    let model = trainable(0);
    let words = Mlm::new(&model, data.mask, head, 1).unwrap();
    let mut drawn = examples(&words, &data, &(0..20).collect::<Vec<_>>());
    let prepared = words.prepare(&data, &mut drawn).unwrap();
    let (packed, shape) = (&prepared.packed, prepared.shape());
    let list = |name: &str| {
        shape[name].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let (predicted, right, weights) = (list("rows"), list("words"), list("weights"));
    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-6);
    let now: Vec<u32> = packed.sequences.iter().flat_map(|s| s.ids.clone()).collect();
    let masked = predicted.iter().filter(|row| now[**row as usize] == 3).count();
    assert!(masked * 2 > predicted.len() && masked < predicted.len(), "{masked} of {}", predicted.len());
    // Other tokens are unchanged, and special tokens are never predicted.
    for (n, (location, _)) in drawn.iter().enumerate() {
        let turns = &dialogues()[location.dialogue as usize][location.turn as usize..];
        let original = [1].into_iter().chain(turns.iter().flat_map(|s| s.ids.iter().copied().chain([2])));
        for (row, (id, original)) in packed.rows(n).zip(packed.sequences[n].ids.iter().zip(original)) {
            match predicted.iter().position(|p| *p as usize == row) {
                Some(at) => assert!(right[at] == f64::from(original) && original > 2),
                None => assert_eq!(*id, original),
            }
        }
    }
    let (loss, states) = checked(&prepared, words.heads());
    let table = &model.start().embeddings.words.data;
    let of = |n: usize| words.heads()[n].numbers().unwrap().into_iter().map(f64::from).collect::<Vec<f64>>();
    let (norm, bias) = (of(2), of(3));
    let mut expected = 0.0;
    for ((row, word), weight) in predicted.iter().zip(&right).zip(&weights) {
        let erf = |x: f64| {
            // Use the power series of erf: approximation 7.1.26 of Abramowitz and Stegun is not accurate enough.
            let term = |n: i32, t: f64| {
                -t * x * x * (2.0 * f64::from(n) + 1.0) / (f64::from(n + 1) * (2.0 * f64::from(n) + 3.0))
            };
            let (mut sum, mut t) = (0.0, x);
            for n in 0..60 {
                sum += t;
                t = term(n, t);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        };
        let gelu = |v: f64| v * 0.5 * (1.0 + erf(v / std::f64::consts::SQRT_2));
        let x = through(words.heads(), &states[*row as usize], gelu);
        let middle = x.iter().sum::<f64>() / WIDTH as f64;
        let spread = (x.iter().map(|v| (v - middle).powi(2)).sum::<f64>() / WIDTH as f64 + 1e-6).sqrt();
        let x: Vec<f64> = (0..WIDTH).map(|n| (x[n] - middle) / spread * norm[n] + norm[WIDTH + n]).collect();
        let scores: Vec<f64> = (0..50)
            .map(|w| (0..WIDTH).map(|n| x[n] * f64::from(table[w * WIDTH + n])).sum::<f64>() + bias[w])
            .collect();
        let all: f64 = scores.iter().map(|s| s.exp()).sum();
        expected -= weight * (scores[*word as usize].exp() / all).ln();
    }
    assert!((loss - expected).abs() < 1e-4, "{loss} {expected}");
    words.heads().iter().map(|head| head.numbers().unwrap()).collect()
}

#[test]
fn the_output_embedding_is_trained_with_the_embeddings() {
    let mut data = data();
    data.mask = Some(3);
    for (frozen, trained) in [(0, true), (1, false)] {
        let model = trainable(frozen);
        let words = Mlm::new(&model, data.mask, None, 1).unwrap();
        let prepared = words.prepare(&data, &mut examples(&words, &data, &[0, 1])).unwrap();
        let states = Tensor::zeros((prepared.packed.tokens(), WIDTH), DType::F32, &Device::Cpu).unwrap();
        let store = prepared.loss(&(states + 0.5).unwrap(), None).unwrap().backward().unwrap();
        let table = model.parameters().iter().find(|p| p.name.starts_with("embeddings.words"));
        assert_eq!(table.is_some_and(|p| store.get(&p.var).is_some()), trained);
    }
}

#[test]
fn combined_objectives_have_a_weighted_loss() {
    let data = data();
    let simcse = || Box::new(SimCse { temperature: 0.5, max_tokens: 32 });
    let next = || Box::new(ResponseSelection::new(Matching::Cosine, WIDTH, 7, &Device::Cpu).unwrap());
    let beside = vec![Auxiliary { objective: next(), weight: 0.25, batch: 5 }];
    let together = MultiTask::new(simcse(), beside, &data).unwrap();
    let mut drawn = examples(&together, &data, &[3, 8, 12]);
    let prepared = together.prepare(&data, &mut drawn).unwrap();
    let packed = &prepared.packed;
    assert_eq!((prepared.count, packed.sequences.len()), (3, 6 + 10));
    let (loss, _) = checked(&prepared, &[]);
    let means = numbers((packed.tokens(), WIDTH), 3);
    let pooled_loss = prepared.pooled_loss(&losses::means(&means, packed).unwrap()).unwrap();
    assert!((loss - f64::from(pooled_loss.to_scalar::<f32>().unwrap())).abs() < 1e-5);
    let alone = simcse().prepare(&data, &mut examples(&together, &data, &[3, 8, 12])).unwrap();
    let rows = alone.packed.tokens();
    let first = alone.loss(&means.narrow(0, 0, rows).unwrap(), None).unwrap().to_scalar::<f32>().unwrap();
    // The examples of the auxiliary objective depend only on the first example of the main objective.
    let again = together.prepare(&data, &mut examples(&together, &data, &[3, 8, 12])).unwrap();
    assert_eq!(again.packed.sequences, packed.sequences);
    assert!(loss > f64::from(first) && loss < f64::from(first) + 0.25 * 20.0);
}
