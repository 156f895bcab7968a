//! Pipelines: pooling modes in old and new files, dense layers, prompts and lengths.

use std::fs;

use serde_json::{Value, json};

use crate::folder::{Dense, DenseActivation, PoolingMode, Step, tests::builder::*};

const T: (&str, &str) = ("", "sentence_transformers.models.Transformer");
const P: (&str, &str) = ("1_Pooling", "sentence_transformers.models.Pooling");
const N: (&str, &str) = ("2_Normalize", "sentence_transformers.models.Normalize");

fn pooled(config: Value) -> Builder {
    let builder = Builder::bert();
    builder.modules(&[T, P]);
    builder.json("1_Pooling/config.json", &config);
    builder
}

fn modes(config: Value) -> Vec<PoolingMode> {
    pooled(config).open().unwrap().pipeline().pooling.modes.clone()
}

#[test]
fn without_modules_mean_pooling_is_used_with_a_notice() {
    let folder = Builder::bert().open().unwrap();
    assert_eq!(folder.pipeline().pooling.modes, [PoolingMode::Mean]);
    assert!(folder.pipeline().steps.is_empty() && !folder.pipeline().normalizes());
    assert!(folder.notices()[0].contains("mean pooling"));
}

#[test]
fn poolings() {
    use PoolingMode::*;
    // Flags of old files, in the order of sentence-transformers, not in that of the keys.
    assert_eq!(modes(json!({ "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false })), [Cls]);
    assert_eq!(
        modes(json!({ "pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true })),
        [Cls, Mean]
    );
    assert_eq!(
        modes(json!({ "pooling_mode_weightedmean_tokens": true, "pooling_mode_max_tokens": true,
                      "pooling_mode_mean_sqrt_len_tokens": true, "pooling_mode_lasttoken": true })),
        [Max, MeanSqrtLen, WeightedMean, LastToken]
    );
    assert_eq!(modes(json!({ "pooling_mode_mean_tokens": false })), [Mean]);
    // The key of new files has precedence, and can give an order.
    assert_eq!(modes(json!({ "pooling_mode": "lasttoken", "pooling_mode_cls_token": true })), [LastToken]);
    assert_eq!(modes(json!({ "pooling_mode": ["mean", "cls"], "embedding_dimension": 8 })), [Mean, Cls]);
    let folder = pooled(json!({ "pooling_mode": ["mean", "cls"], "include_prompt": false })).open().unwrap();
    assert_eq!(folder.dim(), 2 * HIDDEN);
    assert!(!folder.pipeline().pooling.include_prompt);

    pooled(json!({ "pooling_mode": "median" })).refused(&["the pooling `median`"]);
    pooled(json!({ "pooling_mode_new_thing": true })).refused(&["`pooling_mode_new_thing`"]);
    pooled(json!({ "pooling_mode": 3 })).refused(&["`pooling_mode`"]);
    pooled(json!({ "word_embedding_dimension": 9 })).refused(&["is 9", "hidden size of the network is 8"]);
}

#[test]
fn the_module_paths_of_all_versions() {
    let builder = &mut Builder::bert();
    builder.modules(&[
        ("", "sentence_transformers.base.modules.transformer.Transformer"),
        ("1_Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling"),
        ("2_Normalize", "sentence_transformers.base.modules.normalize.Normalize"),
    ]);
    builder.json("1_Pooling/config.json", &json!({ "embedding_dimension": 8, "pooling_mode": "cls" }));
    let folder = builder.open().unwrap();
    assert_eq!(folder.pipeline().pooling.modes, [PoolingMode::Cls]);
    // No folder 2_Normalize was written.
    assert!(folder.pipeline().normalizes());
}

#[test]
fn the_network_can_be_in_a_subfolder() {
    let mut builder = Builder::bert();
    builder.finish();
    let inner = builder.path().join("0_Transformer");
    fs::create_dir(&inner).unwrap();
    for file in ["config.json", "model.safetensors", "vocab.txt"] {
        fs::rename(builder.path().join(file), inner.join(file)).unwrap();
    }
    builder.modules(&[("0_Transformer", T.1), P]);
    builder.json("1_Pooling/config.json", &json!({}));
    builder.json("0_Transformer/sentence_bert_config.json", &json!({ "max_seq_length": 7 }));
    let folder = builder.open().unwrap();
    assert_eq!(folder.max_tokens(), 7);
    assert_eq!(folder.tokenizer().unwrap().max_tokens(), 7);
    folder.network().unwrap();
}

/// A folder with a dense layer. Its weights are written with a second builder.
fn with_dense(config: Value, bias: bool) -> Builder {
    let builder = pooled(json!({}));
    builder.modules(&[T, P, ("2_Dense", "sentence_transformers.models.Dense"), N]);
    builder.json("2_Dense/config.json", &config);
    let mut dense = Builder::bert();
    dense.tensor("linear.weight", &[3, HIDDEN]);
    if bias {
        dense.tensor("linear.bias", &[3]);
    }
    let bytes = dense.safetensors(|name| name.starts_with("linear"));
    fs::write(builder.path().join("2_Dense/model.safetensors"), bytes).unwrap();
    builder
}

#[test]
fn dense_layers() {
    let class = |name: &str| json!({ "in_features": 8, "out_features": 3, "bias": true, "activation_function": name });
    for (name, activation) in [
        ("torch.nn.modules.activation.Tanh", DenseActivation::Tanh),
        ("torch.nn.modules.linear.Identity", DenseActivation::Identity),
        ("torch.nn.modules.activation.ReLU", DenseActivation::Relu),
        ("torch.nn.modules.activation.GELU", DenseActivation::Gelu),
        ("torch.nn.modules.activation.Sigmoid", DenseActivation::Sigmoid),
        ("torch.nn.modules.activation.SiLU", DenseActivation::Silu),
    ] {
        let folder = with_dense(class(name), true).open().unwrap();
        let expected = Dense {
            inputs: 8,
            outputs: 3,
            weight: numbers("linear.weight", 24),
            bias: Some(numbers("linear.bias", 3)),
            activation,
        };
        assert_eq!(folder.pipeline().steps, [Step::Dense(expected), Step::Normalize]);
        assert_eq!(folder.dim(), 3);
    }
    let folder =
        with_dense(json!({ "in_features": 8, "out_features": 3, "bias": false }), false).open().unwrap();
    let Step::Dense(dense) = &folder.pipeline().steps[0] else { unreachable!() };
    assert_eq!((&dense.bias, dense.activation), (&None, DenseActivation::Tanh));

    with_dense(class("torch.nn.modules.activation.Hardswish"), true).refused(&["Hardswish"]);
    with_dense(class("my_code.Tanh"), true).refused(&["`my_code.Tanh`"]);
    with_dense(json!({ "in_features": 16, "out_features": 3 }), true)
        .refused(&["`in_features` is 16", "8 dimensions"]);
    with_dense(json!({ "in_features": 8, "out_features": 4 }), true).refused(&["linear.", "[3", "[4"]);
    with_dense(json!({ "in_features": 8, "out_features": 3 }), false).refused(&["`linear.bias` is missing"]);
    with_dense(json!({ "in_features": 8, "out_features": 3, "use_residual": true }), true)
        .refused(&["residual"]);
    let tokens = json!({ "in_features": 8, "out_features": 3, "module_input_name": "token_embeddings" });
    with_dense(tokens, true).refused(&["token_embeddings"]);
    let mut builder = with_dense(class("torch.nn.modules.activation.Tanh"), true);
    fs::rename(
        builder.path().join("2_Dense/model.safetensors"),
        builder.path().join("2_Dense/pytorch_model.bin"),
    )
    .unwrap();
    builder.refused(&["2_Dense", "a pickle"]);
}

#[test]
fn prompts_and_the_rest() {
    let mut builder = Builder::bert();
    builder.json(
        "config_sentence_transformers.json",
        &json!({ "prompts": { "query": "query: ", "passage": "passage: ", "none": null },
                 "default_prompt_name": "passage", "similarity_fn_name": "dot", "truncate_dim": 4 }),
    );
    let folder = builder.open().unwrap();
    let pipeline = folder.pipeline();
    let prompt = |name| pipeline.prompts.text(name).unwrap();
    assert_eq!((prompt(Some("query")), prompt(None), prompt(Some("none"))), ("query: ", "passage: ", ""));
    // sentence-transformers always defines these two.
    assert_eq!(prompt(Some("document")), "");
    let error = pipeline.prompts.text(Some("pasage")).unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean `passage`?"));
    assert_eq!(
        (pipeline.similarity.as_deref(), pipeline.truncate_dim, folder.dim()),
        (Some("dot"), Some(4), 4)
    );
    assert_eq!(Builder::bert().open().unwrap().pipeline().prompts.text(None).unwrap(), "");
}

#[test]
fn the_maximum_length_is_that_of_sentence_transformers() {
    let length = |sentence: Value, tokenizer: Value| {
        let mut builder = Builder::bert();
        builder.sentence(&sentence);
        builder.json("tokenizer_config.json", &tokenizer);
        let folder = builder.open().unwrap();
        (folder.max_tokens(), folder.notices().iter().any(|n| n.contains("positions")))
    };
    let none = || json!({});
    assert_eq!(length(none(), none()), (POSITIONS, false));
    assert_eq!(length(none(), json!({ "model_max_length": 9 })), (9, false));
    assert_eq!(length(none(), json!({ "model_max_length": 512 })), (POSITIONS, false));
    assert_eq!(length(none(), json!({ "model_max_length": 1e30 })), (POSITIONS, false));
    assert_eq!(length(json!({ "max_seq_length": 12 }), json!({ "model_max_length": 9 })), (12, false));
    assert_eq!(length(json!({ "max_seq_length": null }), json!({ "model_max_length": 9 })), (9, false));
    // More tokens than positions: sentence-transformers would fail on a long text.
    assert_eq!(length(json!({ "max_seq_length": 99 }), none()), (POSITIONS, true));
    let folder = Builder::roberta().open().unwrap();
    assert_eq!(folder.max_tokens(), POSITIONS - 2);
    // Without modules.json, sentence_bert_config.json is ignored.
    let mut builder = Builder::bert();
    builder.json("sentence_bert_config.json", &json!({ "max_seq_length": 5 }));
    assert_eq!(builder.open().unwrap().max_tokens(), POSITIONS);
}
