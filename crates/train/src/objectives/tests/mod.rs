//! Compares the loss of each objective with a direct implementation of its formula in f64, and its gradient with finite
//! differences.

mod more;
mod role_position;
pub(crate) mod selector;

use candle_core::{DType, Device, Tensor, Var};

use super::*;
use crate::{
    data::TurnTokens,
    ops::tests::numbers,
    teacher::{self, Teacher},
};
use turnwise_encoder::Vectors;

const WIDTH: usize = 6;

fn data() -> TrainingSet {
    of(dialogues())
}

fn of(dialogues: Vec<Vec<TurnTokens>>) -> TrainingSet {
    TrainingSet::of(dialogues, vec![1], vec![2], None)
}

fn dialogues() -> Vec<Vec<TurnTokens>> {
    let dialogue = |seed: u32, turns: u32| -> Vec<TurnTokens> {
        let turn = |t: u32| TurnTokens {
            speaker: t % 2,
            role: t % 2,
            ids: (0..1 + (seed * 3 + t * 5) % 4).map(|i| 10 + (seed * 31 + t * 7 + i) % 40).collect(),
        };
        (0..turns).map(turn).collect()
    };
    (0..6).map(|n| dialogue(n, 3 + n)).collect()
}

fn examples(objective: &dyn Objective, data: &TrainingSet, indices: &[usize]) -> Vec<(TurnLocation, Random)> {
    let all = objective.examples(data).unwrap();
    indices.iter().map(|n| (all[*n], Random::new(5, *n as u64))).collect()
}

fn rows(states: &Tensor) -> Vec<Vec<f64>> {
    let rows: Vec<Vec<f32>> = states.to_vec2().unwrap();
    rows.into_iter().map(|r| r.into_iter().map(f64::from).collect()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn mean<'a>(rows: impl IntoIterator<Item = &'a Vec<f64>>) -> Vec<f64> {
    let mut sum = [0.0; WIDTH];
    let mut count = 0.0;
    for row in rows {
        sum.iter_mut().zip(row).for_each(|(s, v)| *s += v);
        count += 1.0;
    }
    sum.iter().map(|s| s / count).collect()
}

/// Returns `f(left · rightᵀ) · right`. The function `f(i, j, score)` is applied to each element of `left · rightᵀ`.
fn matched(left: &[Vec<f64>], right: &[Vec<f64>], f: impl Fn(usize, usize, f64) -> f64) -> Vec<Vec<f64>> {
    let of = |i: usize| {
        let mut sum = vec![0.0; WIDTH];
        for (j, row) in right.iter().enumerate() {
            let weight = f(i, j, dot(&left[i], row));
            sum.iter_mut().zip(row).for_each(|(s, v)| *s += weight * v);
        }
        sum
    };
    (0..left.len()).map(of).collect()
}

fn nt_xent(similarities: &[f64], temperature: f64) -> f64 {
    let sum: f64 = similarities.iter().map(|l| (l / temperature).exp()).sum();
    -((similarities[0] / temperature).exp() / sum).ln()
}

/// Compares the gradient of the loss with finite differences. Returns the loss and the random hidden states that it was
/// computed from.
fn checked(prepared: &Prepared, heads: &[Parameter]) -> (f64, Vec<Vec<f64>>) {
    let start = numbers((prepared.packed.tokens(), WIDTH), 3);
    let states = Var::from_tensor(&start).unwrap();
    let loss = prepared.loss(&states, None).unwrap();
    let gradients = loss.backward().unwrap();
    // Compute in f64, so that a small step is not lost to rounding.
    let at = |t: &Tensor| {
        prepared.loss(&t.to_dtype(DType::F64).unwrap(), None).unwrap().to_scalar::<f64>().unwrap()
    };
    let compared = |var: &Var, set: &dyn Fn(&Tensor) -> f64, step: f64| {
        let gradient: Vec<f32> = gradients.get(var).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        let numbers: Vec<f64> = var.flatten_all().unwrap().to_dtype(DType::F64).unwrap().to_vec1().unwrap();
        for i in (0..numbers.len()).step_by(1 + numbers.len() / 40) {
            let moved = |by: f64| {
                let mut moved = numbers.clone();
                moved[i] += by;
                set(&Tensor::from_vec(moved, var.shape(), &Device::Cpu).unwrap())
            };
            let difference = (moved(step) - moved(-step)) / (2.0 * step);
            let near = 1e-4 * difference.abs().max(1.0);
            assert!((f64::from(gradient[i]) - difference).abs() < near, "{i}: {} {difference}", gradient[i]);
        }
    };
    compared(&states, &at, 1e-6);
    for head in heads {
        // Variables are f32, so they need a larger step.
        let before = head.numbers().unwrap();
        let set = |t: &Tensor| {
            head.var.set(&t.to_dtype(DType::F32).unwrap()).unwrap();
            at(&start)
        };
        compared(&head.var, &set, 1.0 / 1024.0);
        head.set(before).unwrap();
    }
    (f64::from(loss.to_scalar::<f32>().unwrap()), rows(&start))
}

#[test]
fn dialoguecse_equals_its_formula() {
    let data = data();
    for turns in [Aggregation::I2, Aggregation::I1] {
        let mut objective = DialogueCse::new(turns, WIDTH, 7, &Device::Cpu).unwrap();
        objective.negatives = 2;
        let prepared = objective.prepare(&data, &mut examples(&objective, &data, &[0, 5, 11])).unwrap();
        let (loss, states) = checked(&prepared, objective.heads());
        let packed = &prepared.packed;
        let of = |n: usize| states[packed.rows(n)].to_vec();
        let (mut sequence, mut sum) = (0, 0.0);
        for n in [0, 5, 11] {
            let location = objective.examples(&data).unwrap()[n];
            let contexts = 3.min(data.dialogue(location.dialogue).unwrap().len() - 1);
            let similarities: Vec<f64> = (0..3)
                .map(|candidate| {
                    let response = of(sequence + contexts + candidate);
                    let refined: Vec<Vec<f64>> = (0..contexts)
                        .map(|turn| {
                            let scale = (WIDTH as f64).sqrt();
                            mean(&matched(&of(sequence + turn), &response, |_, _, m| m / scale))
                        })
                        .collect();
                    let weights = weights(&refined, objective.heads());
                    let mut seen = vec![0.0; WIDTH];
                    for (weight, refined) in weights.iter().zip(&refined) {
                        seen.iter_mut().zip(refined).for_each(|(s, v)| *s += weight * v);
                    }
                    cosine(&mean(&response), &seen)
                })
                .collect();
            sum += nt_xent(&similarities, 0.1);
            sequence += contexts + 3;
        }
        assert_eq!(sequence, packed.sequences.len());
        assert!((loss - sum / 3.0).abs() < 1e-4 * loss.abs().max(1.0), "{turns:?}: {loss} {}", sum / 3.0);
    }
}

/// Computes the weights of the context turns with the aggregation network. If `heads` is empty, the weights are equal.
fn weights(refined: &[Vec<f64>], heads: &[Parameter]) -> Vec<f64> {
    let [inner, bias, outer] = heads else { return vec![1.0 / refined.len() as f64; refined.len()] };
    let of = |p: &Parameter| p.numbers().unwrap().into_iter().map(f64::from).collect::<Vec<_>>();
    let (inner, bias, outer) = (of(inner), of(bias), of(outer));
    let score = |x: &Vec<f64>| {
        let hidden: Vec<f64> =
            (0..WIDTH).map(|o| (dot(&inner[o * WIDTH..(o + 1) * WIDTH], x) + bias[o]).max(0.0)).collect();
        dot(&outer, &hidden).exp()
    };
    let scores: Vec<f64> = refined.iter().map(score).collect();
    let sum: f64 = scores.iter().sum();
    scores.iter().map(|s| s / sum).collect()
}

#[test]
fn dial2vec_equals_its_formula() {
    let data = data();
    for (window, as_coded, max_tokens) in [(10, false, 512), (1, false, 512), (10, true, 512), (2, false, 14)]
    {
        let mut objective = Dial2vec::new(&data).unwrap();
        (objective.negatives, objective.window) = (2, window);
        (objective.as_coded, objective.max_tokens) = (as_coded, max_tokens);
        let mut examples = examples(&objective, &data, &[0, 3]);
        let kept: Vec<u32> = examples
            .iter()
            .map(|(_, random)| if as_coded { 0 } else { random.clone().below(2) as u32 })
            .collect();
        let dialogues: Vec<Vec<TurnTokens>> =
            examples.iter().map(|(p, _)| data.dialogue(p.dialogue).unwrap().into_owned()).collect();
        let prepared = objective.prepare(&data, &mut examples).unwrap();
        let (loss, states) = checked(&prepared, &[]);
        let packed = &prepared.packed;
        let mut sum = 0.0;
        for (n, dialogue) in dialogues.iter().enumerate() {
            let mut similarities = [Vec::new(), Vec::new()];
            for sample in 0..3 {
                let sequence = &packed.sequences[3 * n + sample];
                let states = &states[packed.rows(3 * n + sample)];
                // Compute the turn of each token. A separator ends a turn.
                let mut turn = 0;
                let turns: Vec<usize> = sequence.ids[1..]
                    .iter()
                    .map(|id| {
                        turn += usize::from(*id == 2);
                        turn - usize::from(*id == 2)
                    })
                    .collect();
                let of = |side: bool| -> (Vec<Vec<f64>>, Vec<usize>) {
                    let own =
                        turns.iter().enumerate().filter(|(_, t)| (dialogue[**t].speaker != kept[n]) == side);
                    own.map(|(i, t)| (states[i + 1].clone(), *t)).unzip()
                };
                for side in [false, true] {
                    let ((own, own_turns), (other, other_turns)) = (of(side), of(!side));
                    let seen = matched(&other, &own, |i, j, c| {
                        if other_turns[i].abs_diff(own_turns[j]) > window { 0.0 } else { c }
                    });
                    similarities[usize::from(side)].push(cosine(&mean(&own), &mean(&seen)));
                }
            }
            sum += similarities.iter().map(|l| nt_xent(l, 0.2)).sum::<f64>();
        }
        let expected = sum / 2.0 * if as_coded { 1.0 / 3.0 } else { 1.0 };
        assert!((loss - expected).abs() < 2e-4 * loss.abs().max(1.0), "{window}: {loss} {expected}");
    }
}

#[test]
fn negative_turns_come_from_the_same_role() {
    let data = data();
    let objective = Dial2vec::new(&data).unwrap();
    let mut examples = examples(&objective, &data, &[4]);
    let kept = examples[0].1.clone().below(2) as u32;
    let dialogue = data.dialogue(examples[0].0.dialogue).unwrap();
    let prepared = objective.prepare(&data, &mut examples).unwrap();
    for sequence in &prepared.packed.sequences[1..] {
        let turns: Vec<&[u32]> = sequence.ids[1..].split(|id| *id == 2).take(dialogue.len()).collect();
        for (turn, ids) in dialogue.iter().zip(turns) {
            match turn.speaker == kept {
                true => assert_eq!(turn.ids, ids),
                false => {
                    assert!(dialogues().iter().flatten().any(|t| t.role == turn.role && t.ids == ids))
                }
            }
        }
    }
}

#[test]
fn simcse_equals_its_formula_and_ignores_duplicates() {
    let mut dialogues = dialogues();
    dialogues[0][1] = dialogues[0][0].clone();
    let data = of(dialogues);
    let objective = SimCse { temperature: 0.5, max_tokens: 32 };
    let prepared = objective.prepare(&data, &mut examples(&objective, &data, &[0, 1, 7])).unwrap();
    let (loss, states) = checked(&prepared, &[]);
    let packed = &prepared.packed;
    let of = |n: usize| mean(&states[packed.rows(n)]);
    let row = |a: usize| {
        let mut similarities = vec![cosine(&of(a), &of(a + 3))];
        // The first two utterances are the same.
        let others = (0..3).filter(|b| *b != a && a.max(*b) == 2);
        similarities.extend(others.map(|b| cosine(&of(a), &of(b + 3))));
        nt_xent(&similarities, 0.5)
    };
    let expected = (0..3).map(row).sum::<f64>() / 3.0;
    assert!((loss - expected).abs() < 1e-4, "{loss} {expected}");
}

/// Creates a teacher of forty dialogues, with two dialogues per topic and moderate noise.
fn teacher() -> Teacher {
    noisy_teacher([1, 2], 0.3)
}

/// Creates a teacher of forty dialogues. `level` is the amount of noise in the two views.
fn noisy_teacher(seeds: [u64; 2], level: f32) -> Teacher {
    let view = |dim: usize, seed: u64| {
        let mut vectors = Vectors::new(dim);
        let noise: Vec<Vec<f32>> = numbers((40, dim), seed).to_vec2().unwrap();
        for (n, noise) in noise.iter().enumerate() {
            let row =
                noise.iter().enumerate().map(|(c, v)| level * v + if c == n / 2 % dim { 1.0 } else { 0.0 });
            vectors.push(&row.collect::<Vec<f32>>());
        }
        vectors
    };
    let [meaning, words] = seeds.map(|seed| view(20, seed));
    Teacher::learn(&meaning, &words, teacher::Settings { axes: 10, ..teacher::Settings::default() }).unwrap()
}

fn neighbors(groups: Vec<Group>) -> Neighbors {
    Neighbors { temperature: 0.1, max_tokens: 160, groups }
}

#[test]
fn a_confident_teacher_gets_more_examples() {
    let group = |teacher| Group { teacher, known: (0..40).collect() };
    let (sure, unsure) = (noisy_teacher([1, 2], 0.1), noisy_teacher([3, 4], 30.0));
    let [often, seldom] = [&sure, &unsure].map(|teacher| teacher.agreement().max(0.05).powf(1.5));
    assert!(often > 2.0 * seldom, "{often} {seldom}");
    let objective = neighbors(vec![group(sure), group(unsure)]);
    let locations = objective.examples(&data()).unwrap();
    let of =
        |turn: u32| locations.iter().filter(|p| p.turn == turn).map(|p| p.dialogue).collect::<Vec<u32>>();
    let (first, second) = (of(0), of(1));
    assert_eq!(first.len(), (80.0 * often / (often + seldom)).round() as usize);
    assert_eq!(first.len() + second.len(), 80);
    // The group of the confident teacher has each dialogue once or twice. The other group has evenly spaced dialogues.
    assert!((0..40).all(|d| (1..=2).contains(&first.iter().filter(|p| **p == d).count())), "{first:?}");
    let steps: Vec<u32> = second.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(steps.iter().max().unwrap() - steps.iter().min().unwrap() <= 1, "{second:?}");
    // With a single teacher, each dialogue is exactly one example.
    let alone = neighbors(vec![group(noisy_teacher([1, 2], 0.1))]).examples(&data()).unwrap();
    assert!((0..40).eq(alone.iter().map(|p| p.dialogue)));
}

#[test]
fn neighbors_equals_its_formula() {
    let data = of((0..40).map(|n| dialogues()[n % 6].clone()).collect());
    let known: Vec<u32> = (0..40).rev().collect();
    let (mut objective, taught) = (neighbors(vec![Group { teacher: teacher(), known }]), teacher());
    (objective.temperature, objective.max_tokens) = (0.3, 9);
    let prepared =
        objective.prepare(&data, &mut examples(&objective, &data, &[3, 8, 20, 31, 7, 2, 9, 11])).unwrap();
    let (loss, states) = checked(&prepared, &[]);
    let packed = &prepared.packed;
    // The batch contains neighbors of the first dialogue, and no dialogue twice.
    let near = taught.neighbors(3);
    assert!(!near.is_empty() && packed.sequences.len() == 8);
    let shape = prepared.shape();
    let given: Vec<f64> = shape["taught"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let highest = near.iter().map(|n| f64::from(taught.cosine(3, *n as usize))).fold(f64::MIN, f64::max);
    assert!(
        given[1..8]
            .iter()
            .any(|v| near.iter().any(|n| (v - f64::from(taught.cosine(3, *n as usize))).abs() < 1e-6))
    );
    assert!(given[1..8].iter().all(|v| *v <= highest + 1e-6));
    // The first sequence is dialogue 36, with a separator after each turn, truncated to 9 tokens.
    let whole: Vec<u32> =
        data.dialogue(36).unwrap().iter().flat_map(|s| s.ids.iter().copied().chain([2])).collect();
    assert_eq!(packed.sequences[0].ids, [&[1][..], &whole].concat()[..9]);
    let means: Vec<Vec<f64>> = (0..8).map(|n| mean(&states[packed.rows(n)])).collect();
    let mut sum = 0.0;
    for a in 0..8 {
        let softmax = |score: &dyn Fn(usize) -> f64| {
            let powers: Vec<f64> =
                (0..8).map(|b| if a == b { 0.0 } else { (score(b) / 0.3).exp() }).collect();
            let all: f64 = powers.iter().sum();
            powers.into_iter().map(move |p| p / all).collect::<Vec<f64>>()
        };
        let (teacher, own) = (softmax(&|b| given[a * 8 + b]), softmax(&|b| cosine(&means[a], &means[b])));
        sum -= teacher.iter().zip(&own).filter(|(t, _)| **t > 0.0).map(|(t, o)| t * o.ln()).sum::<f64>();
    }
    assert!((loss - sum / 8.0).abs() < 1e-4, "{loss} {}", sum / 8.0);
}

#[test]
fn a_negative_never_has_the_text_of_the_response() {
    let turn = |id: u32| TurnTokens { speaker: 0, role: 0, ids: vec![id] };
    // The second dialogue repeats the response two hundred times, and only its last turn is different.
    let repeated: Vec<TurnTokens> = (0..200).map(|_| turn(10)).chain([turn(11)]).collect();
    let data = of(vec![vec![turn(10), turn(12)], repeated]);
    let objective = DialogueCse::new(Aggregation::I2, WIDTH, 7, &Device::Cpu).unwrap();
    let prepared = objective.prepare(&data, &mut [(TurnLocation::default(), Random::new(1, 1))]).unwrap();
    // The sequences are one context turn, the response, and nine negatives.
    assert_eq!(prepared.packed.sequences[1].ids, [1, 10, 2]);
    assert!(prepared.packed.sequences[2..].iter().all(|negative| negative.ids == [1, 11, 2]));
    let same = of(vec![vec![turn(10); 2], vec![turn(10); 2]]);
    assert!(objective.prepare(&same, &mut [(TurnLocation::default(), Random::new(1, 1))]).is_err());
}

#[test]
fn the_context_is_the_nearest_turns_on_both_sides() {
    let data = data();
    let objective = DialogueCse::new(Aggregation::I2, WIDTH, 7, &Device::Cpu).unwrap();
    // The response is the third turn of the last dialogue. Its context is the two turns before it and the turn after
    // it.
    let location = TurnLocation { dialogue: 5, turn: 2 };
    let prepared = objective.prepare(&data, &mut [(location, Random::new(1, 1))]).unwrap();
    let turn = |t: usize| data.utterance(&dialogues()[5][t].ids, 50);
    let got = &prepared.packed.sequences;
    assert_eq!(got[..4], [turn(0), turn(1), turn(3), turn(2)]);
    assert_eq!(got.len(), 3 + 10);
}
