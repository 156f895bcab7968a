//! Each objective against its formula written out, tokens by tokens, in 64 bits; and its gradient against differences.

use candle_core::{DType, Device, Tensor, Var};

use super::*;
use crate::{
    encoder::{
        Network, Vectors,
        network::{Activation, Shape},
    },
    train::{
        data::Said,
        model::{Freezing, Trainable},
        ops::tests::numbers,
        teacher::{self, Teacher},
    },
};

const WIDTH: usize = 6;

fn data() -> TrainingSet {
    let dialogue = |seed: u32, turns: u32| -> Vec<Said> {
        let turn = |t: u32| Said {
            speaker: t % 2,
            part: t % 2,
            ids: (0..1 + (seed * 3 + t * 5) % 4).map(|i| 10 + (seed * 31 + t * 7 + i) % 40).collect(),
        };
        (0..turns).map(turn).collect()
    };
    let dialogues = (0..6).map(|n| dialogue(n, 3 + n)).collect();
    TrainingSet { dialogues, before: vec![1], after: vec![2], ..TrainingSet::default() }
}

fn examples(objective: &dyn Objective, data: &TrainingSet, places: &[usize]) -> Vec<(Place, Random)> {
    let all = objective.examples(data);
    places.iter().map(|n| (all[*n], Random::new(5, *n as u64))).collect()
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

/// `left · rightᵀ · right`, each score through `f(i, j)`.
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

fn nt_xent(likenesses: &[f64], temperature: f64) -> f64 {
    let sum: f64 = likenesses.iter().map(|l| (l / temperature).exp()).sum();
    -((likenesses[0] / temperature).exp() / sum).ln()
}

/// The loss, after its gradient was compared with differences.
fn checked(prepared: &dyn Prepared, heads: &[Parameter]) -> (f64, Vec<Vec<f64>>) {
    let start = numbers((prepared.packed().tokens(), WIDTH), 3);
    let states = Var::from_tensor(&start).unwrap();
    let loss = prepared.loss(&states).unwrap();
    let gradients = loss.backward().unwrap();
    // In 64 bits, where a small step can be told.
    let at =
        |t: &Tensor| prepared.loss(&t.to_dtype(DType::F64).unwrap()).unwrap().to_scalar::<f64>().unwrap();
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
        // A variable is f32: a step that it can tell.
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
fn dialoguecse_is_its_formula() {
    let data = data();
    for turns in [Turns::Mean, Turns::Weighted] {
        let mut objective = DialogueCse::new(turns, WIDTH, 7, &Device::Cpu).unwrap();
        objective.negatives = 2;
        let prepared = objective.prepare(&data, &mut examples(&objective, &data, &[0, 5, 11])).unwrap();
        let (loss, states) = checked(prepared.as_ref(), objective.heads());
        let packed = prepared.packed();
        let of = |n: usize| states[packed.rows(n)].to_vec();
        let (mut sequence, mut sum) = (0, 0.0);
        for n in [0, 5, 11] {
            let place = objective.examples(&data)[n];
            let contexts = 3.min(data.dialogues[place.dialogue as usize].len() - 1);
            let likenesses: Vec<f64> = (0..3)
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
            sum += nt_xent(&likenesses, 0.1);
            sequence += contexts + 3;
        }
        assert_eq!(sequence, packed.sequences.len());
        assert!((loss - sum / 3.0).abs() < 1e-4 * loss.abs().max(1.0), "{turns:?}: {loss} {}", sum / 3.0);
    }
}

/// What the turns count.
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
fn dial2vec_is_its_formula() {
    let data = data();
    for (window, as_coded, max_tokens) in [(10, false, 512), (1, false, 512), (10, true, 512), (2, false, 14)]
    {
        let mut objective = Dial2vec::new(&data);
        (objective.negatives, objective.window) = (2, window);
        (objective.as_coded, objective.max_tokens) = (as_coded, max_tokens);
        let mut examples = examples(&objective, &data, &[0, 3]);
        let kept: Vec<u32> = examples
            .iter()
            .map(|(_, random)| if as_coded { 0 } else { random.clone().below(2) as u32 })
            .collect();
        let dialogues: Vec<&Vec<Said>> =
            examples.iter().map(|(p, _)| &data.dialogues[p.dialogue as usize]).collect();
        let prepared = objective.prepare(&data, &mut examples).unwrap();
        let (loss, states) = checked(prepared.as_ref(), &[]);
        let packed = prepared.packed();
        let mut sum = 0.0;
        for (n, dialogue) in dialogues.iter().enumerate() {
            let mut likenesses = [Vec::new(), Vec::new()];
            for sample in 0..3 {
                let sequence = &packed.sequences[3 * n + sample];
                let states = &states[packed.rows(3 * n + sample)];
                // Which turn a token is of: separators end turns.
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
                    likenesses[usize::from(side)].push(cosine(&mean(&own), &mean(&seen)));
                }
            }
            sum += likenesses.iter().map(|l| nt_xent(l, 0.2)).sum::<f64>();
        }
        let expected = sum / 2.0 * if as_coded { 1.0 / 3.0 } else { 1.0 };
        assert!((loss - expected).abs() < 2e-4 * loss.abs().max(1.0), "{window}: {loss} {expected}");
    }
}

#[test]
fn the_other_speaker_says_what_was_said_in_that_part() {
    let data = data();
    let objective = Dial2vec::new(&data);
    let mut examples = examples(&objective, &data, &[4]);
    let kept = examples[0].1.clone().below(2) as u32;
    let dialogue = &data.dialogues[examples[0].0.dialogue as usize];
    let prepared = objective.prepare(&data, &mut examples).unwrap();
    for sequence in &prepared.packed().sequences[1..] {
        let turns: Vec<&[u32]> = sequence.ids[1..].split(|id| *id == 2).take(dialogue.len()).collect();
        for (said, ids) in dialogue.iter().zip(turns) {
            match said.speaker == kept {
                true => assert_eq!(said.ids, ids),
                false => {
                    assert!(data.dialogues.iter().flatten().any(|s| s.part == said.part && s.ids == ids))
                }
            }
        }
    }
}

#[test]
fn simcse_is_its_formula_and_leaves_out_what_is_said_twice() {
    let mut data = data();
    data.dialogues[0][1] = data.dialogues[0][0].clone();
    let objective = SimCse { temperature: 0.5, max_tokens: 32 };
    let prepared = objective.prepare(&data, &mut examples(&objective, &data, &[0, 1, 7])).unwrap();
    let (loss, states) = checked(prepared.as_ref(), &[]);
    let packed = prepared.packed();
    let of = |n: usize| mean(&states[packed.rows(n)]);
    let row = |a: usize| {
        let mut likenesses = vec![cosine(&of(a), &of(a + 3))];
        // The first two are the same utterance.
        let others = (0..3).filter(|b| *b != a && a.max(*b) == 2);
        likenesses.extend(others.map(|b| cosine(&of(a), &of(b + 3))));
        nt_xent(&likenesses, 0.5)
    };
    let expected = (0..3).map(row).sum::<f64>() / 3.0;
    assert!((loss - expected).abs() < 1e-4, "{loss} {expected}");
}

/// A teacher of twelve dialogues, two of a kind.
fn teacher() -> Teacher {
    let view = |dim: usize, seed: u64| {
        let mut vectors = Vectors::new(dim);
        let noise: Vec<Vec<f32>> = numbers((40, dim), seed).to_vec2().unwrap();
        for (n, noise) in noise.iter().enumerate() {
            let row =
                noise.iter().enumerate().map(|(c, v)| 0.3 * v + if c == n / 2 % dim { 1.0 } else { 0.0 });
            vectors.push(&row.collect::<Vec<f32>>());
        }
        vectors
    };
    Teacher::learn(&view(20, 1), &view(20, 2), teacher::Settings { axes: 10, ..teacher::Settings::default() })
        .unwrap()
}

#[test]
fn neighbours_is_its_formula() {
    let mut data = data();
    data.dialogues = (0..40).map(|n| data.dialogues[n % 6].clone()).collect();
    let known: Vec<u32> = (0..40).rev().collect();
    let (mut objective, taught) = (Neighbours::new(vec![Group { teacher: teacher(), known }]), teacher());
    (objective.temperature, objective.max_tokens) = (0.3, 9);
    let prepared =
        objective.prepare(&data, &mut examples(&objective, &data, &[3, 8, 20, 31, 7, 2, 9, 11])).unwrap();
    let (loss, states) = checked(prepared.as_ref(), &[]);
    let packed = prepared.packed();
    // The first is followed by what is near it, and nobody comes twice.
    let near = taught.neighbours(3);
    assert!(!near.is_empty() && packed.sequences.len() == 8);
    let shape = prepared.shape();
    let given: Vec<f64> = shape["taught"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let likest = near.iter().map(|n| f64::from(taught.likeness(3, *n as usize))).fold(f64::MIN, f64::max);
    assert!(
        given[1..8]
            .iter()
            .any(|v| near.iter().any(|n| (v - f64::from(taught.likeness(3, *n as usize))).abs() < 1e-6))
    );
    assert!(given[1..8].iter().all(|v| *v <= likest + 1e-6));
    // The sequence is the dialogue that has this number, its turns each closed, cut off.
    let whole: Vec<u32> = data.dialogues[36].iter().flat_map(|s| s.ids.iter().copied().chain([2])).collect();
    assert_eq!(packed.sequences[0].ids, [&[1][..], &whole].concat()[..9]);
    let means: Vec<Vec<f64>> = (0..8).map(|n| mean(&states[packed.rows(n)])).collect();
    let mut sum = 0.0;
    for a in 0..8 {
        let shares = |score: &dyn Fn(usize) -> f64| {
            let powers: Vec<f64> =
                (0..8).map(|b| if a == b { 0.0 } else { (score(b) / 0.3).exp() }).collect();
            let all: f64 = powers.iter().sum();
            powers.into_iter().map(move |p| p / all).collect::<Vec<f64>>()
        };
        let (teacher, own) = (shares(&|b| given[a * 8 + b]), shares(&|b| cosine(&means[a], &means[b])));
        sum -= teacher.iter().zip(&own).filter(|(t, _)| **t > 0.0).map(|(t, o)| t * o.ln()).sum::<f64>();
    }
    assert!((loss - sum / 8.0).abs() < 1e-4, "{loss} {}", sum / 8.0);
}

/// `f(W·x + b)` for a head's two parameters.
fn through(heads: &[Parameter], x: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    let of = |p: &Parameter| p.numbers().unwrap().into_iter().map(f64::from).collect::<Vec<_>>();
    let (weight, bias) = (of(&heads[0]), of(&heads[1]));
    bias.iter().enumerate().map(|(o, b)| f(dot(&weight[o * x.len()..(o + 1) * x.len()], x) + b)).collect()
}

#[test]
fn responses_and_siamese_networks_are_their_formulas() {
    let mut data = data();
    // Said twice: no wrong response to the other's context.
    data.dialogues[5][1] = data.dialogues[4][1].clone();
    for matching in [Matching::Cosine, Matching::Layer, Matching::Perceptron] {
        let mut objective = NextTurn::new(matching, WIDTH, 7, &Device::Cpu).unwrap();
        // Away from the bend of ReLU, which a step would cross.
        let biases = objective.heads.iter().filter(|head| head.name.ends_with("0.bias"));
        biases.for_each(|bias| bias.set(vec![1.0; WIDTH]).unwrap());
        (objective.temperature, objective.context) = (0.5, 2);
        let places = [(4, 1), (5, 1), (5, 4), (2, 3)].map(|(dialogue, turn)| Place { dialogue, turn });
        let mut drawn = places.map(|place| (place, Random::new(1, 1)));
        let prepared = objective.prepare(&data, &mut drawn).unwrap();
        let packed = prepared.packed();
        // The two turns before the fifth, each closed; the fifth.
        let before: Vec<u32> =
            data.dialogues[5][2..4].iter().flat_map(|s| s.ids.iter().copied().chain([2])).collect();
        assert_eq!(packed.sequences[2].ids, [&[1][..], &before].concat());
        assert_eq!(packed.sequences[6], data.utterance(&data.dialogues[5][4].ids, 64));
        let (loss, states) = checked(prepared.as_ref(), objective.heads());
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
        let asked = |own: usize, score: &dyn Fn(usize) -> f64| {
            let others = (0..4).filter(|n| *n != own && !(own < 2 && *n < 2));
            nt_xent(&std::iter::once(own).chain(others).map(score).collect::<Vec<f64>>(), 0.5)
        };
        let there: f64 = (0..4).map(|n| asked(n, &|r| score(n, r))).sum::<f64>() / 4.0;
        let back: f64 = (0..4).map(|n| asked(n, &|c| score(c, n))).sum::<f64>() / 4.0;
        let expected = if matching == Matching::Cosine { f64::midpoint(there, back) } else { there };
        assert!((loss - expected).abs() < 1e-4, "{matching:?}: {loss} {expected}");
    }
}

/// A network as wide as the tests' states, of 50 words.
fn trainable(frozen: usize) -> Trainable {
    let shape = Shape {
        hidden: WIDTH,
        heads: 2,
        intermediate: 8,
        activation: Activation::Gelu,
        norm_epsilon: 1e-6,
        first_position: 0,
    };
    let freezing = Freezing { layers: frozen, embeddings: frozen > 0, memory: 1 << 20 };
    Trainable::new(Network::random(shape, 2, 50, 64, 3), freezing, &Device::Cpu, DType::F32).unwrap()
}

#[test]
fn keep_costs_what_has_turned_away() {
    let data = data();
    let model = trainable(0);
    let keep = Keep::new(&model, &data, 16, 3).unwrap();
    let prepared = keep.prepare(&data, &mut examples(&keep, &data, &[0, 4, 9])).unwrap();
    let packed = prepared.packed();
    // As it is, nothing has.
    let now = model.states(packed, None).unwrap();
    assert!(prepared.loss(&now).unwrap().to_scalar::<f32>().unwrap().abs() < 1e-5);
    let (loss, states) = checked(prepared.as_ref(), &[]);
    let start = rows(&now);
    let turned = |n: usize| 1.0 - cosine(&mean(&states[packed.rows(n)]), &mean(&start[packed.rows(n)]));
    assert!((loss - (0..3).map(turned).sum::<f64>() / 3.0).abs() < 1e-5, "{loss}");
}

#[test]
fn words_that_are_hidden_are_asked_about() {
    let mut data = data();
    data.mask = Some(3);
    let model = trainable(0);
    assert!(Words::new(&model, None, 1).is_err());
    let words = Words::new(&model, data.mask, 1).unwrap();
    let mut drawn = examples(&words, &data, &(0..20).collect::<Vec<_>>());
    let prepared = words.prepare(&data, &mut drawn).unwrap();
    let (packed, shape) = (prepared.packed(), prepared.shape());
    let list = |name: &str| {
        shape[name].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let (asked, right, weights) = (list("rows"), list("words"), list("weights"));
    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-6);
    let now: Vec<u32> = packed.sequences.iter().flat_map(|s| s.ids.clone()).collect();
    let hidden = asked.iter().filter(|row| now[**row as usize] == 3).count();
    assert!(hidden * 2 > asked.len() && hidden < asked.len(), "{hidden} of {}", asked.len());
    // What is not asked about is what was said, and a special token is never asked about.
    for (n, (place, _)) in drawn.iter().enumerate() {
        let turns = &data.dialogues[place.dialogue as usize][place.turn as usize..];
        let said = [1].into_iter().chain(turns.iter().flat_map(|s| s.ids.iter().copied().chain([2])));
        for (row, (id, said)) in packed.rows(n).zip(packed.sequences[n].ids.iter().zip(said)) {
            match asked.iter().position(|a| *a as usize == row) {
                Some(at) => assert!(right[at] == f64::from(said) && said > 2),
                None => assert_eq!(*id, said),
            }
        }
    }
    let (loss, states) = checked(prepared.as_ref(), words.heads());
    let table = &model.start().embeddings.words.data;
    let of = |n: usize| words.heads()[n].numbers().unwrap().into_iter().map(f64::from).collect::<Vec<f64>>();
    let (norm, bias) = (of(2), of(3));
    let mut expected = 0.0;
    for ((row, word), weight) in asked.iter().zip(&right).zip(&weights) {
        let erf = |x: f64| {
            // Abramowitz and Stegun 7.1.26 is not exact enough: the series is.
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
}

#[test]
fn the_table_of_words_is_trained_where_the_embeddings_are() {
    let mut data = data();
    data.mask = Some(3);
    for (frozen, trained) in [(0, true), (1, false)] {
        let model = trainable(frozen);
        let words = Words::new(&model, data.mask, 1).unwrap();
        let prepared = words.prepare(&data, &mut examples(&words, &data, &[0, 1])).unwrap();
        let states = Tensor::zeros((prepared.packed().tokens(), WIDTH), DType::F32, &Device::Cpu).unwrap();
        let store = prepared.loss(&(states + 0.5).unwrap()).unwrap().backward().unwrap();
        let table = model.parameters().iter().find(|p| p.name.starts_with("embeddings.words"));
        assert_eq!(table.is_some_and(|p| store.get(&p.var).is_some()), trained);
    }
}

#[test]
fn relevance_is_told_from_the_first_token() {
    let data = data();
    let relevance = Relevance::new(WIDTH, 3, &Device::Cpu).unwrap();
    let mut drawn = examples(&relevance, &data, &(0..20).collect::<Vec<_>>());
    let prepared = relevance.prepare(&data, &mut drawn).unwrap();
    let (packed, shape) = (prepared.packed(), prepared.shape());
    let classes: Vec<usize> =
        shape["classes"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect();
    assert!((0..3).all(|class| classes.contains(&class)), "{classes:?}");
    for (n, (place, _)) in drawn.iter().enumerate() {
        let dialogue = &data.dialogues[place.dialogue as usize];
        let ids = &packed.sequences[n].ids;
        let response = ids[..ids.len() - 1].rsplit(|id| *id == 2).next().unwrap();
        let own = dialogue.iter().any(|said| said.ids == response);
        match classes[n] {
            0 => assert_eq!(response, dialogue[place.turn as usize].ids),
            1 => assert!(own),
            _ => assert!(data.dialogues.iter().flatten().any(|said| said.ids == response)),
        }
    }
    let (loss, states) = checked(prepared.as_ref(), relevance.heads());
    let cost = |n: usize| {
        let scores = through(relevance.heads(), &states[packed.starts[n]], |v| v);
        -(scores[classes[n]].exp() / scores.iter().map(|s| s.exp()).sum::<f64>()).ln()
    };
    let expected = (0..20).map(cost).sum::<f64>() / 20.0;
    assert!((loss - expected).abs() < 1e-4, "{loss} {expected}");
}

#[test]
fn objectives_together_cost_their_weighed_sum() {
    let data = data();
    let simcse = || Box::new(SimCse { temperature: 0.5, max_tokens: 32 });
    let next = || Box::new(NextTurn::new(Matching::Cosine, WIDTH, 7, &Device::Cpu).unwrap());
    let beside = vec![Beside { objective: next(), weight: 0.25, batch: 5 }];
    let together = Together::new(simcse(), beside, &data).unwrap();
    let mut drawn = examples(&together, &data, &[3, 8, 12]);
    let prepared = together.prepare(&data, &mut drawn).unwrap();
    let packed = prepared.packed();
    assert_eq!((prepared.count(), packed.sequences.len()), (3, 6 + 10));
    let (loss, _) = checked(prepared.as_ref(), &[]);
    let means = numbers((packed.tokens(), WIDTH), 3);
    let by_means = prepared.by_means().unwrap().loss_of(&likeness::means(&means, packed).unwrap()).unwrap();
    assert!((loss - f64::from(by_means.to_scalar::<f32>().unwrap())).abs() < 1e-5);
    let alone = simcse().prepare(&data, &mut examples(&together, &data, &[3, 8, 12])).unwrap();
    let rows = alone.packed().tokens();
    let first = alone.loss(&means.narrow(0, 0, rows).unwrap()).unwrap().to_scalar::<f32>().unwrap();
    // The others are drawn by the first example, and again the same.
    let again = together.prepare(&data, &mut examples(&together, &data, &[3, 8, 12])).unwrap();
    assert_eq!(again.packed().sequences, packed.sequences);
    assert!(loss > f64::from(first) && loss < f64::from(first) + 0.25 * 20.0);
}

#[test]
fn context_is_what_is_nearest_on_both_sides() {
    let data = data();
    let objective = DialogueCse::new(Turns::Mean, WIDTH, 7, &Device::Cpu).unwrap();
    // The third turn of the last dialogue: two before it, one behind it.
    let place = Place { dialogue: 5, turn: 2 };
    let prepared = objective.prepare(&data, &mut [(place, Random::new(1, 1))]).unwrap();
    let said = |t: usize| data.utterance(&data.dialogues[5][t].ids, 50);
    let got = &prepared.packed().sequences;
    assert_eq!(got[..4], [said(0), said(1), said(3), said(2)]);
    assert_eq!(got.len(), 3 + 10);
}
