//! Tests of static embedding models, as sentence-transformers and model2vec write them.

use std::collections::HashMap;

use serde_json::json;

use crate::{
    DialogueMode, DialogueOptions, DialoguePooling, Encoder, TextOptions,
    folder::{Architecture, Step, tests::*},
    transformer::Settings,
};

const SENTENCE_TRANSFORMERS: &str = "sentence_transformers.models.";

/// Writes a tokenizer of words that adds special tokens to texts.
fn write_tokenizer(builder: &Builder, folder: &str) {
    let vocabulary: HashMap<&str, usize> =
        VOCABULARY.iter().enumerate().map(|(id, token)| (*token, id)).collect();
    builder.json(
        &format!("{folder}tokenizer.json"),
        &json!({
            "version": "1.0",
            "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
            "pre_tokenizer": { "type": "Whitespace" },
            "post_processor": { "type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2] },
        }),
    );
}

/// Writes a model of sentence-transformers.
fn sentence_transformers() -> Builder {
    let mut builder = Builder::empty(json!({}));
    builder.tensor("embedding.weight", &[VOCABULARY.len(), HIDDEN]);
    let static_embedding = format!("{SENTENCE_TRANSFORMERS}StaticEmbedding");
    builder.modules(&[("0_StaticEmbedding", &static_embedding)]);
    write_tokenizer(&builder, "0_StaticEmbedding/");
    let weights = builder.safetensors(|_| true);
    fs::write(builder.path().join("0_StaticEmbedding/model.safetensors"), weights).unwrap();
    builder
}

/// Writes a model of model2vec, with a table of 5 rows for all tokens, and a weight for each token.
fn model2vec(mapping: &[i64]) -> Builder {
    let mut builder = Builder::empty(json!({ "model_type": "model2vec", "normalize": true }));
    builder.tensor("embeddings", &[5, HIDDEN]);
    builder.tensor("weights", &[VOCABULARY.len()]);
    write_tokenizer(&builder, "");
    let tensors: Vec<(&str, Dtype, Vec<usize>, Vec<u8>)> = (builder.tensors.iter())
        .map(|(name, (dims, numbers))| (name.as_str(), Dtype::F32, dims.clone(), encode(numbers, Dtype::F32)))
        .chain([(
            "mapping",
            Dtype::I64,
            vec![mapping.len()],
            mapping.iter().flat_map(|row| row.to_le_bytes()).collect(),
        )])
        .collect();
    let views = (tensors.iter())
        .map(|(name, dtype, dims, bytes)| (*name, TensorView::new(*dtype, dims.clone(), bytes).unwrap()));
    fs::write(builder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap())
        .unwrap();
    builder.json("config.json", &builder.config);
    builder
}

fn rows(builder: &Builder) -> Vec<i64> {
    (0..builder.tensors["weights"].1.len() as i64).map(|token| token % 5).collect()
}

fn id(token: &str) -> usize {
    VOCABULARY.iter().position(|t| *t == token).unwrap()
}

/// Returns the mean of vectors.
fn mean(vectors: &[Vec<f32>]) -> Vec<f32> {
    (0..HIDDEN).map(|i| vectors.iter().map(|v| v[i]).sum::<f32>() / vectors.len() as f32).collect()
}

fn normalized(vector: &[f32]) -> Vec<f32> {
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.iter().map(|x| x / norm).collect()
}

#[track_caller]
fn assert_near(ours: &[f32], expected: &[f32]) {
    assert_eq!(ours.len(), expected.len());
    let farthest = ours.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(farthest < 1e-6, "{ours:?} instead of {expected:?}");
}

fn open_encoder(builder: &Builder) -> Box<dyn Encoder> {
    crate::open::open("static", &builder.path(), &Settings::default()).unwrap()
}

fn encode_texts(builder: &Builder, texts: &[&str]) -> Vec<Vec<f32>> {
    let encoded = open_encoder(builder).encode(texts, &TextOptions::default()).unwrap();
    encoded.vectors.rows().map(<[f32]>::to_vec).collect()
}

#[test]
fn the_vector_of_a_text_is_the_mean_of_its_tokens() {
    let builder = sentence_transformers();
    let vector = |token: &str| builder.tensors["embedding.weight"].1[id(token) * HIDDEN..][..HIDDEN].to_vec();
    let vectors = encode_texts(&builder, &["hello world", "hello nobody", ""]);
    assert_near(&vectors[0], &mean(&[vector("hello"), vector("world")]));
    // sentence-transformers keeps unknown tokens.
    assert_near(&vectors[1], &mean(&[vector("hello"), vector("[UNK]")]));
    assert_near(&vectors[2], &[0.0; HIDDEN]);

    let folder = ModelFolder::open(&builder.path()).unwrap();
    assert_eq!(folder.config().architecture, Architecture::Static);
    assert!(folder.notices().is_empty() && folder.tokenizer().unwrap().notices().is_empty());
    assert!(!folder.pipeline().normalizes());
    assert!(open_encoder(&builder).describe().starts_with("f32 on cpu"));
}

#[test]
fn dialogues_are_encoded_without_separators() {
    let builder = sentence_transformers();
    let mut dialogue = turnwise_corpus::Dialogue::new(turnwise_core::ids::DialogueId::new("d").unwrap());
    dialogue.push("", turnwise_corpus::Role::User, "hello world a");
    dialogue.push("", turnwise_corpus::Role::Agent, "b");
    let encode = |mode, pooling| {
        let options = DialogueOptions { mode, pooling, prompt: None };
        open_encoder(&builder).encode_dialogues(&[&dialogue], &options).unwrap().vectors.row(0).to_vec()
    };
    let texts = encode_texts(&builder, &["hello world a b", "hello world a", "b"]);
    assert_near(&encode(DialogueMode::Sequence, DialoguePooling::Mean), &texts[0]);
    assert_near(&encode(DialogueMode::Utterances, DialoguePooling::Mean), &mean(&texts[1..]));
    let sum: Vec<f32> = texts[1].iter().zip(&texts[2]).map(|(a, b)| a + b).collect();
    assert_near(&encode(DialogueMode::Sequence, DialoguePooling::Interlocutors), &sum);
}

#[test]
fn later_modules_prompts_and_truncation() {
    let builder = sentence_transformers();
    let plain = encode_texts(&builder, &["world", "hello world"]);
    let (first, second) =
        (format!("{SENTENCE_TRANSFORMERS}StaticEmbedding"), format!("{SENTENCE_TRANSFORMERS}Normalize"));
    builder.modules(&[("0_StaticEmbedding", &first), ("1_Normalize", &second)]);
    builder.json("config_sentence_transformers.json", &json!({ "prompts": { "query": "hello " } }));
    assert_near(&encode_texts(&builder, &["world"])[0], &normalized(&plain[0]));
    let options = TextOptions { prompt: Some("query".to_owned()) };
    let settings = Settings { dim: Some(3), ..Settings::default() };
    let encoder = crate::open::open("static", &builder.path(), &settings).unwrap();
    let encoded = encoder.encode(&["world"], &options).unwrap();
    assert_near(encoded.vectors.row(0), &normalized(&plain[1])[..3]);
}

#[test]
fn tokens_of_model2vec_share_rows_and_have_weights() {
    let all = rows(&model2vec(&[0; 20]));
    let builder = model2vec(&all);
    let vector = |token: &str| {
        let weight = builder.tensors["weights"].1[id(token)];
        let row = &builder.tensors["embeddings"].1[id(token) % 5 * HIDDEN..][..HIDDEN];
        row.iter().map(|x| x * weight).collect::<Vec<f32>>()
    };
    let vectors = encode_texts(&builder, &["hello world", "hello nobody", "nobody"]);
    assert_near(&vectors[0], &normalized(&mean(&[vector("hello"), vector("world")])));
    // model2vec removes unknown tokens.
    assert_near(&vectors[1], &normalized(&vector("hello")));
    assert_near(&vectors[2], &[0.0; HIDDEN]);

    // Newer versions also write the modules of sentence-transformers.
    let static_embedding = format!("{SENTENCE_TRANSFORMERS}StaticEmbedding");
    builder
        .modules(&[(".", &static_embedding), ("1_Normalize", &format!("{SENTENCE_TRANSFORMERS}Normalize"))]);
    assert_eq!(encode_texts(&builder, &["hello world", "hello nobody", "nobody"]), vectors);
    let folder = ModelFolder::open(&builder.path()).unwrap();
    assert!(matches!(folder.pipeline().steps[..], [Step::Normalize]));
    let fingerprint = folder.fingerprint().unwrap();
    let mut other = all;
    other[id("a")] = 0;
    let other = model2vec(&other);
    assert_ne!(ModelFolder::open(&other.path()).unwrap().fingerprint().unwrap(), fingerprint);
}

#[test]
fn damaged_tables_are_refused() {
    let refused = |builder: &Builder, parts: &[&str]| {
        let error = ModelFolder::open(&builder.path()).and_then(|f| f.tokenizer().map(drop)).unwrap_err();
        assert_eq!(error.class(), Class::Data, "{error}");
        parts
            .iter()
            .for_each(|part| assert!(error.to_string().contains(part), "`{part}` is not in `{error}`"));
    };
    refused(&model2vec(&[5; 20]), &["model.safetensors: the tensor `mapping` must have rows from 0 to 4"]);
    refused(&model2vec(&[-1; 20]), &["`mapping` must have rows from 0 to 4"]);
    refused(&model2vec(&[0; 19]), &["`weights` has the shape [20], but the configuration requires [19]"]);
    let builder = model2vec(&[0; 20]);
    let class = |name: &str| format!("{SENTENCE_TRANSFORMERS}{name}");
    builder.modules(&[("", &class("Transformer")), ("1_Pooling", &class("Pooling"))]);
    refused(
        &builder,
        &["config.json", "the model has static embeddings, but modules.json lists a Transformer"],
    );
    let write = |builder: &mut Builder, name: &str, dims: &[usize]| {
        builder.tensors.clear();
        builder.tensor(name, dims);
        fs::write(builder.path().join("0_StaticEmbedding/model.safetensors"), builder.safetensors(|_| true))
            .unwrap();
    };
    let mut builder = sentence_transformers();
    write(&mut builder, "embedding.weight", &[160]);
    refused(&builder, &["`embedding.weight` must be a matrix"]);
    write(&mut builder, "words.weight", &[20, 8]);
    refused(&builder, &["the tensor `embedding.weight` is missing"]);
    write(&mut builder, "embedding.weight", &[19, 8]);
    refused(&builder, &["the tokenizer has 20 tokens, but the model has only 19 word embeddings"]);
    builder.remove("0_StaticEmbedding/tokenizer.json");
    refused(&builder, &["0_StaticEmbedding contains no tokenizer.json"]);
}
