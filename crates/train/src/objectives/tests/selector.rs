//! Tests of the objectives that read a context and a response together.

use turnwise_encoder::{
    Network,
    selector::{
        Divider, Frame, HeadActivation, HeadKind, History, Layout, LayoutTokens, Scales, SelectorSettings,
        SentencePooling, SentenceSettings,
    },
};

use super::{more::trainable, *};
use crate::objectives::selector::start_heads;

const CLS: u32 = 1;
const SEP: u32 = 2;
const EOU: u32 = 4;

/// Returns a layout with the special tokens of the test data.
pub(crate) fn layout(max_tokens: usize, sentences: Option<SentenceSettings>) -> Layout {
    let history = if sentences.is_some() { History::Sentences } else { History::Tokens };
    let head = if sentences.is_some() { HeadKind::Cls } else { HeadKind::Pooler };
    let settings = SelectorSettings { history, max_tokens, divider: Divider::Eou, head, sentences };
    let (before, between, after) = (vec![CLS], vec![SEP], vec![SEP]);
    Layout::with_tokens(settings, LayoutTokens { before, between, after, eou: Some(EOU), segments: 2 })
}

fn selector(max_tokens: usize, sentences: Option<SentenceSettings>) -> Selector {
    selector_of_width(WIDTH, max_tokens, sentences)
}

/// Returns a selector for a network of the given width.
pub(crate) fn selector_of_width(
    width: usize,
    max_tokens: usize,
    sentences: Option<SentenceSettings>,
) -> Selector {
    selector_with(layout(max_tokens, sentences), width)
}

/// Returns a selector for a network of the given width, with the head `matching`.
pub(crate) fn matching_selector(
    width: usize,
    max_tokens: usize,
    sentences: Option<SentenceSettings>,
) -> Selector {
    let plain = layout(max_tokens, sentences);
    let settings = SelectorSettings { head: HeadKind::Matching, ..*plain.settings() };
    selector_with(Layout::with_tokens(settings, plain.special_tokens().clone()), width)
}

/// Returns a selector with frozen sentence vectors, which `network` computes. The cache has `memory` bytes.
pub(crate) fn frozen_selector(network: &Network, max_tokens: usize, memory: usize) -> Selector {
    let sentences = SentenceSettings { frozen: true, ..SentenceSettings::default() };
    let frozen = Some(FrozenSentences::new(network, sentences, memory).unwrap());
    Selector { frozen, ..selector_of_width(network.shape.hidden, max_tokens, Some(sentences)) }
}

fn selector_with(layout: Layout, width: usize) -> Selector {
    let heads = start_heads(width, layout.settings(), None, &Device::Cpu, 3).unwrap();
    Selector { layout, negatives: 2, hard: None, heads, activation: HeadActivation::Tanh, frozen: None }
}

fn list(shape: &serde_json::Value, name: &str) -> Vec<f64> {
    shape[name].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// Mean binary cross-entropy of outputs, directly from its formula.
fn bce(outputs: &[f64], labels: &[f64]) -> f64 {
    let cost = |(x, y): (&f64, &f64)| {
        let p = 1.0 / (1.0 + (-x).exp());
        -(y * p.ln() + (1.0 - y) * (1.0 - p).ln())
    };
    outputs.iter().zip(labels).map(cost).sum::<f64>() / outputs.len() as f64
}

fn linear(heads: &[Parameter], x: &[f64], at: usize) -> Vec<f64> {
    let weight = heads[at].numbers().unwrap();
    let bias = heads[at + 1].numbers().unwrap();
    let row = |n: usize| -> f64 {
        let weights = weight[n * x.len()..].iter().zip(x);
        weights.map(|(w, x)| f64::from(*w) * x).sum::<f64>() + f64::from(bias[n])
    };
    (0..bias.len()).map(row).collect()
}

#[test]
fn a_selector_of_tokens_equals_its_formula() {
    let data = data();
    let selector = selector(40, None);
    let mut drawn = examples(&selector, &data, &[0, 5, 9, 14]);
    let prepared = selector.prepare(&data, &mut drawn).unwrap();
    assert_eq!((prepared.count, prepared.packed.sequences.len()), (4, 12));
    assert!(prepared.utterances.is_none());
    let labels = list(&prepared.shape(), "labels");
    for (n, (location, _)) in drawn.iter().enumerate() {
        let dialogue = data.dialogue(location.dialogue).unwrap();
        let turn = location.turn as usize;
        for (m, sequence) in prepared.packed.sequences[3 * n..3 * n + 3].iter().enumerate() {
            let split = sequence.ids.iter().position(|id| *id == SEP).unwrap();
            let context: Vec<u32> =
                dialogue[..turn].iter().flat_map(|t| t.ids.iter().copied().chain([EOU])).collect();
            assert_eq!(sequence.ids[1..split], context);
            let types = sequence.types.as_ref().unwrap();
            assert!(types[..=split].iter().all(|t| *t == 0) && types[split + 1..].iter().all(|t| *t == 1));
            let response = &sequence.ids[split + 1..sequence.len() - 1];
            assert_eq!(labels[3 * n + m] == 1.0, response == dialogue[turn].ids);
            assert_eq!(m == 0, labels[3 * n + m] == 1.0);
        }
    }
    let (loss, states) = checked(&prepared, &selector.heads);
    let output = |n: usize| {
        let hidden = linear(&selector.heads, &states[prepared.packed.starts[n]], 0);
        let hidden: Vec<f64> = hidden.into_iter().map(f64::tanh).collect();
        linear(&selector.heads, &hidden, 2)[0]
    };
    let outputs: Vec<f64> = (0..12).map(output).collect();
    assert!((loss - bce(&outputs, &labels)).abs() < 1e-5, "{loss}");
}

#[test]
fn a_selector_of_sentences_reads_one_vector_per_turn() {
    let data = data();
    let sentences = SentenceSettings { max_tokens: 4, first_weight: 0.25, ..SentenceSettings::default() };
    // At most 16 inputs: the longest contexts lose turns.
    let selector = selector(16, Some(sentences));
    let all = selector.examples(&data).unwrap();
    let longest = all.iter().position(|l| l.turn == 7).unwrap();
    let mut drawn = examples(&selector, &data, &[0, 5, longest]);
    let prepared = selector.prepare(&data, &mut drawn).unwrap();
    let utterances = prepared.utterances.as_ref().unwrap();
    for (row, utterance) in &utterances.places {
        let n = prepared.packed.starts.partition_point(|start| *start <= *row as usize) - 1;
        let location = drawn[n / 3].0;
        let dialogue = data.dialogue(location.dialogue).unwrap();
        // The turns of a sequence are the last turns of its context, in order.
        let own: Vec<u32> = utterances
            .places
            .iter()
            .filter(|(row, _)| prepared.packed.rows(n).contains(&(*row as usize)))
            .map(|(_, utterance)| *utterance)
            .collect();
        let place = own.iter().position(|u| u == utterance).unwrap();
        let turn = location.turn as usize - own.len() + place;
        let ids = &dialogue[turn].ids;
        let kept = &ids[..ids.len().min(2)];
        assert_eq!(utterances.packed.sequences[*utterance as usize].ids, [&[CLS], kept, &[SEP]].concat());
        assert_eq!(prepared.packed.sequences[n].ids[*row as usize - prepared.packed.starts[n] + 1], EOU);
    }
    assert!(prepared.packed.sequences.iter().all(|s| s.len() <= 16));
    // The pairs of a context share its vectors.
    let distinct: std::collections::HashSet<u32> = utterances.places.iter().map(|(_, u)| *u).collect();
    // A long response takes the place of turns, here of one.
    assert_eq!(distinct.len() + 1, utterances.packed.sequences.len());
    let length = utterances.packed.sequences[0].len() as f32;
    let [first, last] = &utterances.terms;
    assert_eq!(first[0], [Part { rows: 0..length as usize, weight: 0.25 / length }]);
    assert_eq!(last[0], [Part { rows: 0..length as usize, weight: 0.75 / length }]);
    let (rows, width) = (utterances.packed.tokens(), 2);
    let states = numbers((rows, width), 7);
    let vectors =
        utterances.vectors(Some(&states), &(&states * 10.0).unwrap()).unwrap().to_vec2::<f32>().unwrap();
    let states = states.to_vec2::<f32>().unwrap();
    for (n, vector) in vectors.iter().enumerate() {
        let own = &states[utterances.packed.rows(n)];
        let mean = own.iter().map(|row| row[0]).sum::<f32>() / own.len() as f32;
        assert!((vector[0] - (0.25 + 7.5) * mean).abs() < 1e-5, "{n}");
    }
    let (loss, states) = checked(&prepared, &selector.heads);
    let output = |n: usize| linear(&selector.heads, &states[prepared.packed.starts[n]], 0)[0];
    let outputs: Vec<f64> = (0..9).map(output).collect();
    assert!((loss - bce(&outputs, &list(&prepared.shape(), "labels"))).abs() < 1e-5, "{loss}");
}

#[test]
fn the_head_matching_adds_the_scaled_similarities_of_vectors_that_are_encoded_separately() {
    let data = data();
    for sentences in [None, Some(SentenceSettings::default())] {
        let selector = matching_selector(WIDTH, 40, sentences);
        let mut drawn = examples(&selector, &data, &[0, 5, 9]);
        let prepared = selector.prepare(&data, &mut drawn).unwrap();
        let utterances = prepared.utterances.as_ref().unwrap();
        let alone = &utterances.packed.sequences;
        let states = numbers((prepared.packed.tokens(), WIDTH), 3);
        let vectors = numbers((alone.len() + utterances.tokens.len(), WIDTH), 4);
        let rows = |t: &Tensor| -> Vec<Vec<f64>> { t.to_dtype(DType::F64).unwrap().to_vec2().unwrap() };
        let (state_rows, vector_rows) = (rows(&states), rows(&vectors));
        let similarity = |turns: &std::ops::Range<usize>, text: usize| {
            let cosines = turns.clone().map(|turn| cosine(&vector_rows[turn], &vector_rows[text]));
            0.05 * cosines.map(|cosine| (cosine / 0.05).exp()).sum::<f64>().ln()
        };
        // Words of the texts that need them. Their vectors follow those of the texts.
        let mut words = vec![Vec::new(); alone.len()];
        for (n, row) in utterances.tokens.iter().enumerate() {
            let text = utterances.packed.starts.partition_point(|start| *start <= *row as usize) - 1;
            assert!(![CLS, SEP].contains(&alone[text].ids[*row as usize - utterances.packed.starts[text]]));
            words[text].push(&vector_rows[alone.len() + n]);
        }
        let of_tokens = |context: usize, text: usize| {
            let best = |word: &&Vec<f64>| {
                let powers = words[context].iter().map(|other| (cosine(word, other) / 0.05).exp());
                0.05 * powers.sum::<f64>().ln()
            };
            words[text].iter().map(best).sum::<f64>() / words[text].len() as f64
        };
        // Texts: all turns of a short dialogue, two negatives, and the context as one text. Every turn is a reply, because
        // the speakers alternate.
        let (mut at, mut own, mut queries) = (0, Vec::new(), Vec::new());
        let (mut contexts, mut dialogue_of) = (Vec::new(), Vec::new());
        for (location, _) in &drawn {
            let dialogue = data.dialogue(location.dialogue).unwrap();
            for (turn, text) in dialogue.iter().zip(&alone[at..]) {
                assert_eq!(text.ids, [&[CLS], turn.ids.as_slice(), &[SEP]].concat());
            }
            queries.extend((1..dialogue.len()).map(|turn| (at..at + turn, at + turn)));
            let (turn, end) = (location.turn as usize, at + dialogue.len());
            own.extend([at + turn, end, end + 1].map(|text| (at..at + turn, end + 2, text)));
            dialogue_of.extend(dialogue.iter().map(|_| Some(location.dialogue)));
            dialogue_of.extend([None, None]);
            contexts.push(end + 2);
            dialogue_of.push(None);
            let before = dialogue[..turn].iter().map(|turn| turn.ids.as_slice()).collect::<Vec<_>>();
            assert_eq!(alone[end + 2].ids, [&[CLS], before.join(&SEP).as_slice(), &[SEP]].concat());
            assert_eq!(words[end + 2].len(), before.concat().len());
            assert_eq!(words[at + turn].len(), dialogue[turn].ids.len());
            at = end + 3;
        }
        assert_eq!(at, alone.len());
        let (_, head) = selector.selector().unwrap().unwrap();
        assert_eq!(head.scales.map(Scales::values), Some([10.0; 3]));
        let scaled = |(turns, context, text): &(std::ops::Range<usize>, usize, usize)| {
            let of_context = cosine(&vector_rows[*context], &vector_rows[*text]);
            10.0 * (similarity(turns, *text) + of_context + of_tokens(*context, *text))
        };
        let output = |n: usize| {
            let state = &state_rows[prepared.packed.starts[n]];
            let of_first = linear(&selector.heads, state, 0)[0];
            let of_head: Vec<f32> = state.iter().map(|x| *x as f32).collect();
            assert!((f64::from(head.score(&of_head)) - of_first).abs() < 1e-4);
            of_first + scaled(&own[n])
        };
        let outputs: Vec<f64> = (0..9).map(output).collect();
        let in_batch = |truth: usize, texts: &[usize], score: &dyn Fn(usize) -> f64| {
            let is_negative = |text: &usize| {
                dialogue_of[*text] != dialogue_of[truth]
                    && alone[*text].ids != alone[truth].ids
                    && !contexts.contains(text)
            };
            let others: f64 =
                texts.iter().filter(|text| is_negative(text)).map(|text| score(*text).exp()).sum();
            -(score(truth).exp() / (score(truth).exp() + others)).ln()
        };
        let texts: Vec<usize> = (0..alone.len()).collect();
        let of_turns =
            queries.iter().map(|(turns, truth)| in_batch(*truth, &texts, &|n| similarity(turns, n) / 0.05));
        let responses: Vec<usize> = own.iter().map(|(_, _, text)| *text).collect();
        let of_sums = own.iter().step_by(3).map(|(turns, context, truth)| {
            in_batch(*truth, &responses, &|text| scaled(&(turns.clone(), *context, text)))
        });
        let labels = list(&prepared.shape(), "labels");
        let among = |n: usize| {
            let candidates = (3 * n..3 * n + 3).filter(|m| *m == 3 * n || labels[*m] == 0.0);
            candidates.map(|m| outputs[m].exp()).sum::<f64>().ln() - outputs[3 * n]
        };
        let expected = bce(&outputs, &labels)
            + (0..3).map(among).sum::<f64>() / 3.0
            + of_turns.sum::<f64>() / queries.len() as f64
            + of_sums.sum::<f64>() / 3.0;
        let loss = prepared.loss(&states, Some(&vectors)).unwrap().to_scalar::<f32>().unwrap();
        assert!((f64::from(loss) - expected).abs() < 2e-4, "{loss} {expected}");
    }
}

#[test]
fn a_response_has_another_speaker_than_the_turn_before_it() {
    let with_speakers = |speakers: &[u32]| -> Vec<TurnTokens> {
        speakers.iter().map(|speaker| TurnTokens { speaker: *speaker, role: 0, ids: vec![10] }).collect()
    };
    let locations = |dialogues: &[&[u32]]| -> Vec<(u32, u32)> {
        let data = of(dialogues.iter().map(|speakers| with_speakers(speakers)).collect());
        let examples = selector(40, None).examples(&data).unwrap();
        examples.iter().map(|location| (location.dialogue, location.turn)).collect()
    };
    assert_eq!(locations(&[&[0, 0, 1, 1, 0], &[0], &[0, 0], &[0, 1]]), [(0, 2), (0, 4), (3, 1)]);
    // Without any speakers, all next turns are examples.
    assert_eq!(locations(&[&[0, 0, 0], &[0]]), [(0, 1), (0, 2)]);
}

#[test]
fn turns_have_the_frames_and_the_weights_of_the_settings() {
    let of = |frame: Frame, pooling: SentencePooling, special: Option<f32>| {
        let settings = SentenceSettings {
            frame,
            pooling,
            first_weight: 0.5,
            special_first_weight: special,
            max_tokens: 5,
            ..SentenceSettings::default()
        };
        let utterance = layout(16, Some(settings)).utterance(&[10, 11, 12, 13, 14, 15]);
        (utterance.sequence.ids, utterance.terms)
    };
    let part = |rows: std::ops::Range<usize>, weight: f32| Part { rows, weight };
    let (ids, terms) = of(Frame::ClsSep, SentencePooling::Mean, None);
    assert_eq!(ids, [CLS, 10, 11, 12, SEP]);
    assert_eq!(terms, [[part(0..5, 0.1)], [part(0..5, 0.1)]]);
    assert_eq!(of(Frame::ClsEou, SentencePooling::Mean, None).0, [CLS, 10, 11, 12, EOU]);
    assert_eq!(of(Frame::Eou, SentencePooling::Mean, None).0, [10, 11, 12, 13, EOU]);
    assert_eq!(of(Frame::None, SentencePooling::Mean, None).0, [10, 11, 12, 13, 14]);
    let (_, terms) = of(Frame::ClsSep, SentencePooling::Cls, None);
    assert_eq!(terms, [[part(0..1, 0.5)], [part(0..1, 0.5)]]);
    // Special tokens only from the last layer, words from both.
    let (_, [first, last]) = of(Frame::ClsSep, SentencePooling::Mean, Some(0.0));
    assert_eq!(first, [part(1..4, 0.1)]);
    assert_eq!(last, [part(0..1, 0.2), part(1..4, 0.1), part(4..5, 0.2)]);
}

#[test]
fn relevance_equals_its_formula() {
    let data = data();
    let relevance = Relevance::new(3, layout(40, None), WIDTH, None, 3, &Device::Cpu).unwrap();
    let mut drawn = examples(&relevance, &data, &(0..20).collect::<Vec<_>>());
    let prepared = relevance.prepare(&data, &mut drawn).unwrap();
    let classes = list(&prepared.shape(), "classes");
    assert!((0..3).all(|class| classes.contains(&f64::from(class))), "{classes:?}");
    for (n, (location, _)) in drawn.iter().enumerate() {
        let dialogue = data.dialogue(location.dialogue).unwrap();
        let ids = &prepared.packed.sequences[n].ids;
        let response = ids[..ids.len() - 1].rsplit(|id| *id == SEP).next().unwrap();
        match classes[n] as usize {
            0 => assert_eq!(response, dialogue[location.turn as usize].ids),
            1 => assert!(dialogue.iter().any(|turn| turn.ids == response)),
            _ => assert!(dialogues().iter().flatten().any(|turn| turn.ids == response)),
        }
        let turn = location.turn as usize;
        let turns = ids.iter().filter(|id| **id == EOU).count();
        assert_eq!(turns, turn.min(3));
    }
    let (loss, states) = checked(&prepared, relevance.heads());
    let cost = |n: usize| {
        let hidden = linear(relevance.heads(), &states[prepared.packed.starts[n]], 0);
        let hidden: Vec<f64> = hidden.into_iter().map(f64::tanh).collect();
        let scores = linear(relevance.heads(), &hidden, 2);
        -(scores[classes[n] as usize].exp() / scores.iter().map(|s| s.exp()).sum::<f64>()).ln()
    };
    let expected = (0..20).map(cost).sum::<f64>() / 20.0;
    assert!((loss - expected).abs() < 1e-4, "{loss} {expected}");
}

#[test]
fn relevance_reads_sentence_vectors() {
    let data = data();
    let sentences = SentenceSettings { max_tokens: 12, ..SentenceSettings::default() };
    let relevance = Relevance::new(3, layout(40, Some(sentences)), WIDTH, None, 3, &Device::Cpu).unwrap();
    let mut drawn = examples(&relevance, &data, &(0..20).collect::<Vec<_>>());
    let prepared = relevance.prepare(&data, &mut drawn).unwrap();
    let utterances = prepared.utterances.as_ref().unwrap();
    let mut places = utterances.places.iter();
    for (n, (location, _)) in drawn.iter().enumerate() {
        // One vector per turn of the context, each followed by [EOU].
        let (dialogue, turn) = (data.dialogue(location.dialogue).unwrap(), location.turn as usize);
        let start = prepared.packed.starts[n];
        for (m, own) in dialogue[turn.saturating_sub(3)..turn].iter().enumerate() {
            let (row, utterance) = *places.next().unwrap();
            assert_eq!(row as usize, start + 1 + 2 * m);
            assert_eq!(prepared.packed.sequences[n].ids[2 + 2 * m], EOU);
            let ids = &utterances.packed.sequences[utterance as usize].ids;
            assert_eq!(*ids, [&[CLS], own.ids.as_slice(), &[SEP]].concat());
        }
    }
    assert!(places.next().is_none());
    let (loss, _) = checked(&prepared, relevance.heads());
    assert!(loss.is_finite() && loss > 0.5, "{loss}");
}

#[test]
fn post_training_masks_the_sequences_that_relevance_classifies() {
    let mut data = data();
    (data.mask, data.end_of_utterance) = (Some(3), Some(EOU));
    let model = trainable(0);
    let relevance = || Relevance::new(3, layout(40, None), WIDTH, None, 3, &Device::Cpu).unwrap();
    let post_training = PostTraining::new(relevance(), Mlm::new(&model, data.mask, None, 1).unwrap());
    let indices: Vec<usize> = (0..20).collect();
    let mut drawn = examples(&post_training, &data, &indices);
    let prepared = post_training.prepare(&data, &mut drawn).unwrap();
    let plain = relevance().prepare(&data, &mut examples(&post_training, &data, &indices)).unwrap();
    let shape = prepared.shape();
    assert_eq!(shape["relevance"], plain.shape());
    let (rows, targets) = (list(&shape["masked"], "rows"), list(&shape["masked"], "words"));
    let ids = |packed: &Packed| packed.sequences.iter().flat_map(|s| s.ids.clone()).collect::<Vec<u32>>();
    let (masked, original) = (ids(&prepared.packed), ids(&plain.packed));
    for row in 0..original.len() {
        match rows.iter().position(|r| *r as usize == row) {
            Some(at) => assert!(targets[at] == f64::from(original[row]) && original[row] > EOU),
            None => assert_eq!(masked[row], original[row]),
        }
    }
    assert!(masked.iter().filter(|id| **id == 3).count() > 10);
    let types = |packed: &Packed| packed.sequences.iter().map(|s| s.types.clone()).collect::<Vec<_>>();
    assert_eq!(types(&prepared.packed), types(&plain.packed));
    let (loss, _) = checked(&prepared, post_training.heads());
    let states = numbers((prepared.packed.tokens(), WIDTH), 3);
    let of_relevance = plain.loss(&states, None).unwrap().to_scalar::<f32>().unwrap();
    assert!(loss > f64::from(of_relevance) + 0.5, "{loss} {of_relevance}");
}
