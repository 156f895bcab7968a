//! Tests with a small network in a temporary folder. `tests/agreement` compares the default model with Python.

use serde_json::json;
use turnwise_core::{ids::DialogueId, vectors::cosine};
use turnwise_corpus::Role;

use crate::{
    CandleEngine, Device, Precision,
    cpu::{CpuEngine, SimdChoice},
    folder::tests::Builder,
    transformer::*,
};

const TEXTS: [&str; 5] = ["hello world", "", "a b c hello worlds !", "你好", "abc hello . world é"];

fn on_cpu(network: &Network, _: Fingerprint) -> Result<Box<dyn Backend>> {
    Ok(Box::new(CpuEngine::new(network, Precision::F32, SimdChoice::Auto)?))
}

fn with(settings: &Settings) -> Result<Transformer> {
    let mut builder = Builder::bert();
    Transformer::load("small", &builder.open()?, settings, &on_cpu)
}

fn tokens(tokens: Tokens) -> Settings {
    Settings { tokens, ..Settings::default() }
}

fn plain() -> Transformer {
    with(&Settings::default()).unwrap()
}

fn vectors(encoder: &Transformer, texts: &[&str]) -> Vectors {
    encoder.encode(texts, &TextOptions::default()).unwrap().vectors
}

fn dialogue(turns: &[(&str, &str)]) -> Dialogue {
    let mut dialogue = Dialogue::new(DialogueId::new("d").unwrap());
    for (speaker, text) in turns {
        dialogue.push(*speaker, Role::User, *text);
    }
    dialogue
}

fn of_dialogue(
    encoder: &Transformer,
    d: &Dialogue,
    mode: DialogueMode,
    pooling: DialoguePooling,
) -> Vec<f32> {
    let options = DialogueOptions { mode, pooling, prompt: None };
    encoder.encode_dialogues(&[d], &options).unwrap().vectors.row(0).to_vec()
}

#[track_caller]
fn assert_near(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 1e-5, "differs by {worst}");
}

#[test]
fn our_kernels_agree_with_candle() {
    let mut builder = Builder::bert();
    let folder = builder.open().unwrap();
    for layers in [Layers::Last, Layers::One(0), Layers::FirstLast(0.4, 0.6)] {
        for pooling in PoolingMode::ALL {
            let settings = tokens(Tokens { layers: Some(layers.clone()), pooling: Some(pooling), max: None });
            let ours = Transformer::load("small", &folder, &settings, &on_cpu).unwrap();
            let candle = Transformer::load("small", &folder, &settings, &|network, _| {
                Ok(Box::new(CandleEngine::new(network, Device::cpu(), Precision::F32)?))
            })
            .unwrap();
            assert_near(vectors(&ours, &TEXTS).flat(), vectors(&candle, &TEXTS).flat());
        }
    }
}

#[test]
fn vectors_do_not_depend_on_other_inputs() {
    let encoder = plain();
    let all = vectors(&encoder, &TEXTS);
    for (n, text) in TEXTS.iter().enumerate() {
        assert_near(vectors(&encoder, &[text]).row(0), all.row(n));
    }
}

#[test]
fn cut_texts_and_tokens_are_counted() {
    let settings = tokens(Tokens { max: Some(4), ..Tokens::default() });
    let encoded = with(&settings).unwrap().encode(&TEXTS, &TextOptions::default()).unwrap();
    assert!(encoded.spent.cut_texts >= 2 && encoded.spent.cut_tokens > encoded.spent.cut_texts);
    assert_eq!(plain().encode(&TEXTS, &TextOptions::default()).unwrap().spent.cut_texts, 0);
}

#[test]
fn one_turn_is_a_text_and_windows_are_one_vector() {
    let encoder = plain();
    let one = dialogue(&[("ann", "hello world")]);
    let sequence = of_dialogue(&encoder, &one, DialogueMode::Sequence, DialoguePooling::Mean);
    assert_near(&sequence, vectors(&encoder, &["hello world"]).row(0));
    let long =
        dialogue(&[("ann", "hello world a b c"), ("bo", "a b c hello world"), ("ann", "hello . ! a b c")]);
    let options = DialogueOptions::default();
    let encoded = encoder.encode_dialogues(&[&one, &long], &options).unwrap();
    assert_eq!((encoded.spent.windowed, encoded.vectors.len()), (1, 2));
    assert_near(encoded.vectors.row(0), &sequence);
}

#[test]
fn interlocutors_are_the_sum_of_each_ones_mean() {
    let encoder = plain();
    let d = dialogue(&[("ann", "hello"), ("bo", "world a"), ("ann", "c"), ("cy", "你好")]);
    let said = vectors(&encoder, &["hello", "world a", "c", "你好"]);
    let sum: Vec<f32> =
        (0..8).map(|i| (said.row(0)[i] + said.row(2)[i]) / 2.0 + said.row(1)[i] + said.row(3)[i]).collect();
    let found = of_dialogue(&encoder, &d, DialogueMode::Utterances, DialoguePooling::Interlocutors);
    assert!((cosine(&found, &sum) - 1.0).abs() < 1e-5);
    let all: Vec<f32> = (0..8).map(|i| said.rows().map(|row| row[i]).sum::<f32>() / 4.0).collect();
    let mean = of_dialogue(&encoder, &d, DialogueMode::Utterances, DialoguePooling::Mean);
    assert_near(&mean, &all);
    assert!(mean.iter().zip(&sum).any(|(a, b)| (a - b).abs() > 1e-3));
}

#[test]
fn first_speaker_and_other_speakers_are_pooled_separately() {
    let encoder = plain();
    let d = dialogue(&[("ann", "hello"), ("bo", "world a"), ("ann", "c"), ("cy", "你好")]);
    let said = vectors(&encoder, &["hello", "world a", "c", "你好"]);
    let half = |a: usize, b: usize| -> Vec<f32> {
        (0..8).map(|i| (said.row(a)[i] + said.row(b)[i]) / 2.0).collect()
    };
    let of = |mode, pooling| of_dialogue(&encoder, &d, mode, pooling);
    assert_near(&of(DialogueMode::Utterances, DialoguePooling::FirstSpeaker), &half(0, 2));
    assert_near(&of(DialogueMode::Utterances, DialoguePooling::OtherSpeakers), &half(1, 3));
    // With two speakers, the sum of both vectors equals interlocutor-level pooling, in one sequence and in several
    // windows.
    for d in [
        dialogue(&[("ann", "hello"), ("bo", "world a"), ("ann", "c")]),
        dialogue(&[("ann", "hello world a b c"), ("bo", "a b c hello world"), ("ann", "hello . ! a b c")]),
    ] {
        let of = |pooling| of_dialogue(&encoder, &d, DialogueMode::Sequence, pooling);
        let (first, others) = (of(DialoguePooling::FirstSpeaker), of(DialoguePooling::OtherSpeakers));
        let sum: Vec<f32> = first.iter().zip(&others).map(|(a, b)| a + b).collect();
        assert_near(&of(DialoguePooling::Interlocutors), &sum);
        assert!(first.iter().zip(&others).any(|(a, b)| (a - b).abs() > 1e-3));
    }
    // This dialogue has no other speakers, so the vector is zero.
    let alone = dialogue(&[("ann", "hello")]);
    let others = of_dialogue(&encoder, &alone, DialogueMode::Sequence, DialoguePooling::OtherSpeakers);
    assert!(others.iter().all(|v| *v == 0.0), "{others:?}");
}

#[test]
fn vectors_are_truncated_and_normalized_on_request() {
    let settings = Settings { dim: Some(3), normalize: true, ..Settings::default() };
    let cut = vectors(&with(&settings).unwrap(), &TEXTS);
    let whole = vectors(&plain(), &TEXTS);
    for (cut, whole) in cut.rows().zip(whole.rows()) {
        assert!((cosine(cut, &whole[..3]) - 1.0).abs() < 1e-5);
        assert!((cut.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5);
    }
    let says = |settings: &Settings| with(settings).unwrap().normalizes();
    assert!(says(&settings) && !says(&Settings { dim: Some(3), ..Settings::default() }));
}

#[test]
fn unsupported_settings_are_reported() {
    let message = |settings: Settings| with(&settings).err().unwrap().to_string();
    let no_layer = tokens(Tokens { layers: Some(Layers::One(3)), ..Tokens::default() });
    assert_eq!(message(no_layer), "small has no layer 3");
    let too_wide = Settings { dim: Some(9), ..Settings::default() };
    assert_eq!(message(too_wide), "small does not support vectors of 9 dimensions");
    let too_long = tokens(Tokens { max: Some(19), ..Tokens::default() });
    assert_eq!(message(too_long), "small does not support a maximum of 19 tokens");
    let unknown = TextOptions { prompt: Some("querry".to_owned()) };
    assert_eq!(plain().encode(&["a"], &unknown).err().unwrap().hint().unwrap(), "did you mean `query`?");
}

#[test]
fn settings_that_change_vectors_change_the_fingerprint() {
    let of = |settings: Settings| with(&settings).unwrap().fingerprint();
    let base = of(Settings::default());
    assert_eq!(base, of(Settings { precision: Some(Precision::Int8), ..Settings::default() }));
    assert_eq!(base, of(tokens(Tokens { layers: Some(Layers::Last), ..Tokens::default() })));
    let others = [
        tokens(Tokens { pooling: Some(PoolingMode::Max), ..Tokens::default() }),
        tokens(Tokens { layers: Some(Layers::One(1)), ..Tokens::default() }),
        Settings { dim: Some(4), ..Settings::default() },
        tokens(Tokens { max: Some(9), ..Tokens::default() }),
        Settings { normalize: true, ..Settings::default() },
    ];
    let mut seen = vec![base];
    for settings in others {
        let fingerprint = of(settings);
        assert!(!seen.contains(&fingerprint));
        seen.push(fingerprint);
    }
}

/// Returns the mean of the token vectors of each text, after the model's final steps.
fn pooled_by_hand(encoder: &Transformer, tokens: &[TokenVectors]) -> Vectors {
    let mut means = Vectors::zeros(tokens.len(), 8);
    for (n, text) in tokens.iter().enumerate() {
        for row in text.vectors.rows() {
            let count = text.vectors.len() as f32;
            means.row_mut(n).iter_mut().zip(row).for_each(|(m, v)| *m += v / count);
        }
    }
    encoder.finish(means).unwrap()
}

/// Creates a model with a prompt. `include_prompt` determines whether the prompt tokens are pooled.
fn with_prompt(include_prompt: bool, settings: &Settings) -> Transformer {
    let mut builder = Builder::bert();
    builder.json("config_sentence_transformers.json", &json!({ "prompts": { "query": "hello: " } }));
    let library = "sentence_transformers.models.";
    builder.modules(&[("", &format!("{library}Transformer")), ("1_Pooling", &format!("{library}Pooling"))]);
    let pooling = json!({ "pooling_mode": "mean", "include_prompt": include_prompt });
    builder.json("1_Pooling/config.json", &pooling);
    Transformer::load("small", &builder.open().unwrap(), settings, &on_cpu).unwrap()
}

#[test]
fn token_ids_are_cut_at_the_same_end_as_texts() {
    for (side, kept) in [("left", "hello world"), ("right", "a b")] {
        let mut builder = Builder::bert();
        builder.json("tokenizer_config.json", &json!({ "truncation_side": side }));
        let settings = tokens(Tokens { max: Some(4), ..Tokens::default() });
        let encoder = Transformer::load("small", &builder.open().unwrap(), &settings, &on_cpu).unwrap();
        let ids = encoder.tokenizer.pieces("a b c hello world").unwrap();
        let encoded = encoder.encode_ids(&[&ids], &TextOptions::default()).unwrap();
        assert_eq!((encoded.spent.cut_texts, encoded.spent.cut_tokens), (1, 3));
        assert_near(encoded.vectors.flat(), vectors(&encoder, &["a b c hello world"]).flat());
        assert_near(encoded.vectors.flat(), vectors(&encoder, &[kept]).flat());
    }
}

#[test]
fn the_prompt_of_a_dialogue_is_pooled_only_if_the_model_pools_prompts() {
    let prompt = Some("query".to_owned());
    let one = dialogue(&[("ann", "world a b")]);
    for include_prompt in [true, false] {
        let encoder = with_prompt(include_prompt, &Settings::default());
        let text = encoder.encode(&["world a b"], &TextOptions { prompt: prompt.clone() }).unwrap();
        let options = DialogueOptions { prompt: prompt.clone(), ..DialogueOptions::default() };
        let whole = encoder.encode_dialogues(&[&one], &options).unwrap();
        assert_near(whole.vectors.flat(), text.vectors.flat());
        let speakers = DialogueOptions { pooling: DialoguePooling::Interlocutors, ..options };
        let speakers = encoder.encode_dialogues(&[&one], &speakers).unwrap();
        // Only the special tokens before the first turn belong to no speaker. They are pooled only if the prompt is
        // pooled.
        let differences =
            speakers.vectors.flat().iter().zip(whole.vectors.flat()).map(|(a, b)| (a - b).abs());
        assert_eq!(differences.fold(0.0, f32::max) < 1e-5, !include_prompt);
    }
}

#[test]
fn the_mean_of_the_tokens_is_the_text() {
    let first_last = Settings {
        tokens: Tokens { layers: Some(Layers::FirstLast(0.4, 0.6)), max: Some(6), ..Tokens::default() },
        normalize: true,
        dim: Some(5),
        ..Settings::default()
    };
    for (settings, include_prompt) in [(Settings::default(), true), (first_last, false)] {
        let encoder = with_prompt(include_prompt, &settings);
        for prompt in [None, Some("query".to_owned())] {
            let options = TextOptions { prompt };
            let encoded = encoder.encode(&TEXTS, &options).unwrap();
            let tokens = encoder.encode_tokens(&TEXTS, &options).unwrap();
            assert_near(pooled_by_hand(&encoder, &tokens).flat(), encoded.vectors.flat());
            assert_eq!(tokens.iter().map(|t| t.cut as u64).sum::<u64>(), encoded.spent.cut_tokens);
        }
    }
}

#[test]
fn token_vectors_do_not_depend_on_other_inputs_or_the_backend() {
    let encoder = plain();
    let all = encoder.encode_tokens(&TEXTS, &TextOptions::default()).unwrap();
    let mut builder = Builder::bert();
    let candle = Transformer::load("small", &builder.open().unwrap(), &Settings::default(), &|network, _| {
        Ok(Box::new(CandleEngine::new(network, Device::cpu(), Precision::F32)?))
    });
    let on_candle = candle.unwrap().encode_tokens(&TEXTS, &TextOptions::default()).unwrap();
    for (n, text) in TEXTS.iter().enumerate() {
        let alone = encoder.encode_tokens(&[text], &TextOptions::default()).unwrap().remove(0);
        assert_near(alone.vectors.flat(), all[n].vectors.flat());
        assert_near(on_candle[n].vectors.flat(), all[n].vectors.flat());
        assert_eq!((alone.ranges, alone.cut), (all[n].ranges.clone(), 0));
    }
    assert!(encoder.encode_tokens(&[], &TextOptions::default()).unwrap().is_empty());
}

#[test]
fn static_embeddings_of_tokens_ignore_the_other_tokens() {
    let encoder = with_prompt(true, &Settings::default());
    let embed = |text: &str| encoder.embed_tokens(&[text]).unwrap().remove(0);
    let (hello, other) = (embed("hello world"), embed("hello a b c"));
    // The special token and the first word are at the same positions of both texts.
    let rows = 2 * hello.vectors.dim();
    assert_eq!(hello.vectors.flat()[..rows], other.vectors.flat()[..rows]);
    let at_zero = Settings {
        tokens: Tokens { layers: Some(Layers::One(0)), ..Tokens::default() },
        ..Settings::default()
    };
    let expected =
        with_prompt(true, &at_zero).encode_tokens(&["hello world"], &TextOptions::default()).unwrap();
    assert_eq!(hello, expected[0]);
    // In the last layer, the vectors of both words differ.
    let encoded = encoder.encode_tokens(&["hello world", "hello a b c"], &TextOptions::default()).unwrap();
    assert_ne!(encoded[0].vectors.row(1), encoded[1].vectors.row(1));
}

#[test]
fn tokens_have_byte_ranges_in_the_text() {
    let said = |include_prompt: bool, prompt: Option<&str>| -> Vec<Vec<&str>> {
        let options = TextOptions { prompt: prompt.map(str::to_owned) };
        let encoder = with_prompt(include_prompt, &Settings::default());
        let of = |(text, t): (&&'static str, TokenVectors)| {
            assert_eq!(t.ranges.len(), t.vectors.len());
            t.ranges.iter().map(|range| &text[range.clone()]).collect()
        };
        TEXTS.iter().zip(encoder.encode_tokens(&TEXTS, &options).unwrap()).map(of).collect()
    };
    let bare = said(true, None);
    assert_eq!(bare[0], ["", "hello", "world", ""]);
    assert_eq!(bare[1], ["", ""]);
    assert_eq!(bare[2], ["", "a", "b", "c", "hello", "world", "s", "!", ""]);
    assert_eq!(bare[3], ["", "你", "好", ""]);
    // Tokens of the prompt have empty ranges, and appear only if the prompt is pooled.
    assert_eq!(said(true, Some("query"))[0], ["", "", "", "hello", "world", ""]);
    assert_eq!(said(false, Some("query"))[0], ["hello", "world", ""]);
}
