//! Configuration files of a saved model. Where versions of sentence-transformers differ, the older format is
//! written, which new versions also read.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::{
    config::Architecture,
    pipeline::{Pipeline, Pooling, PoolingMode, Step},
    save::{SavedModel, check},
};
use crate::network::Activation;
use turnwise_core::error::Result;

/// Returns all text files with their paths in the folder.
pub fn texts(model: &SavedModel) -> Result<Vec<(PathBuf, String)>> {
    check(model.network, model.architecture)?;
    let mut files = Vec::new();
    let mut add = |path: PathBuf, value: Value| {
        // The alternate format of `Value` is indented JSON.
        files.push((path, format!("{value:#}\n")));
    };
    add("config.json".into(), config(model));
    add("modules.json".into(), modules(model.pipeline));
    add("1_Pooling/config.json".into(), pooling(&model.pipeline.pooling, model.network.shape.hidden));
    for (folder, step) in step_folders(model.pipeline) {
        if let Step::Dense(dense) = step {
            let config = json!({
                "in_features": dense.inputs,
                "out_features": dense.outputs,
                "bias": dense.bias.is_some(),
                "activation_function": dense.activation.class(),
            });
            add(folder.join("config.json"), config);
        }
    }
    add(
        "sentence_bert_config.json".into(),
        json!({ "max_seq_length": model.pipeline.max_tokens, "do_lower_case": model.tokenizer.lowercase }),
    );
    add("config_sentence_transformers.json".into(), sentence_transformers(model));
    add("tokenizer_config.json".into(), tokenizer(model));
    files.push(("tokenizer.json".into(), model.tokenizer.to_json()?));
    Ok(files)
}

/// Folders of the steps after pooling.
pub fn step_folders(pipeline: &Pipeline) -> impl Iterator<Item = (PathBuf, &Step)> {
    (2..).zip(&pipeline.steps).map(|(n, step)| (PathBuf::from(format!("{n}_{}", kind(step))), step))
}

fn kind(step: &Step) -> &'static str {
    match step {
        Step::Dense(_) => "Dense",
        Step::Normalize => "Normalize",
    }
}

fn config(model: &SavedModel) -> Value {
    let (network, architecture) = (model.network, model.architecture);
    let (shape, embeddings) = (&network.shape, &network.embeddings);
    let activation = match shape.activation {
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_new",
        Activation::Relu => "relu",
    };
    let padding = match architecture.counts_from_padding() {
        true => Some(shape.first_position - 1),
        false => model.tokenizer.pad().map(|id| id as usize),
    };
    let mut config = json!({
        "model_type": architecture.name(),
        "architectures": [architecture.class()],
        "vocab_size": embeddings.words.rows,
        "max_position_embeddings": embeddings.positions.rows,
        "pad_token_id": padding.unwrap_or(0),
    });
    let sizes = match architecture {
        Architecture::DistilBert => json!({
            "dim": shape.hidden,
            "n_layers": network.layers.len(),
            "n_heads": shape.heads,
            "hidden_dim": shape.intermediate,
            "activation": activation,
        }),
        _ => json!({
            "hidden_size": shape.hidden,
            "num_hidden_layers": network.layers.len(),
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.intermediate,
            "hidden_act": activation,
            "layer_norm_eps": decimal(shape.norm_epsilon),
            "type_vocab_size": embeddings.types.as_ref().map(|t| t.rows),
            "position_embedding_type": "absolute",
        }),
    };
    join(&mut config, sizes);
    config
}

/// Converts an f32 to the f64 with the same shortest decimal form: 1e-12, not 9.999999960041972e-13.
fn decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

fn join(value: &mut Value, more: Value) {
    if let (Value::Object(value), Value::Object(more)) = (value, more) {
        value.extend(more);
    }
}

fn modules(pipeline: &Pipeline) -> Value {
    let entry = |n: usize, path: String, kind: &str| {
        let class = format!("sentence_transformers.models.{kind}");
        json!({ "idx": n, "name": n.to_string(), "path": path, "type": class })
    };
    let fixed = [entry(0, String::new(), "Transformer"), entry(1, "1_Pooling".to_owned(), "Pooling")];
    let steps = (2..)
        .zip(step_folders(pipeline))
        .map(|(n, (folder, step))| entry(n, folder.display().to_string(), kind(step)));
    fixed.into_iter().chain(steps).collect()
}

fn pooling(pooling: &Pooling, hidden: usize) -> Value {
    let mut config = json!({
        "word_embedding_dimension": hidden,
        "include_prompt": pooling.include_prompt,
    });
    // Flags cannot give an order. Only new versions support a list.
    let in_order: Vec<_> = PoolingMode::ALL.into_iter().filter(|m| pooling.modes.contains(m)).collect();
    let modes = match in_order == pooling.modes {
        true => {
            PoolingMode::ALL.iter().map(|m| (m.flag().to_owned(), json!(pooling.modes.contains(m)))).collect()
        }
        false => {
            let names: Vec<_> = pooling.modes.iter().map(|m| m.name()).collect();
            Map::from_iter([("pooling_mode".to_owned(), json!(names))])
        }
    };
    join(&mut config, Value::Object(modes));
    config
}

fn sentence_transformers(model: &SavedModel) -> Value {
    let pipeline = model.pipeline;
    let mut config = json!({
        "__version__": { "turnwise": env!("CARGO_PKG_VERSION") },
        "prompts": pipeline.prompts.texts,
        "default_prompt_name": pipeline.prompts.default,
    });
    if let Some(similarity) = &pipeline.similarity {
        config["similarity_fn_name"] = json!(similarity);
    }
    if let Some(dim) = pipeline.truncate_dim {
        config["truncate_dim"] = json!(dim);
    }
    if let Some(base) = model.base {
        config["turnwise"] = json!({ "base": base });
    }
    config
}

/// Returns the tokenizer configuration. Its class only reads `tokenizer.json`, which already includes the effects of
/// older settings and classes.
fn tokenizer(model: &SavedModel) -> Value {
    let tokenizer = model.tokenizer;
    let mut settings = tokenizer.settings.clone();
    for done in
        ["do_lower_case", "strip_accents", "tokenize_chinese_chars", "do_basic_tokenize", "never_split"]
    {
        settings.remove(done);
    }
    let inputs = match model.architecture {
        Architecture::Bert => json!(["input_ids", "token_type_ids", "attention_mask"]),
        _ => json!(["input_ids", "attention_mask"]),
    };
    let side = if tokenizer.cut_front { "left" } else { "right" };
    let own = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": inputs,
        "model_max_length": model.pipeline.max_tokens,
        "truncation_side": side,
    });
    let mut settings = Value::Object(settings);
    join(&mut settings, own);
    settings
}
