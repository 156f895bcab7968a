//! Tests of valid models: architectures, tensor names, data types, pooling modes in old and new files, dense layers,
//! prompts and lengths.

use std::fs;

use safetensors::Dtype;
use serde_json::{Value, json};

use crate::{
    Network,
    folder::{Architecture, Dense, DenseActivation, PoolingMode, Step, tests::*},
    network::{Activation, Linear, Norm},
};

pub fn check_norm(norm: &Norm, name: &str) {
    assert_eq!(norm.weight, numbers(&format!("{name}.weight"), HIDDEN), "{name}");
    assert_eq!(norm.bias, numbers(&format!("{name}.bias"), HIDDEN), "{name}");
}

/// Compares embeddings and layers with the values that the builder generated from the parameter names.
fn check(network: &Network, layers: &str, names: &[(&str, &[usize])]) {
    let e = &network.embeddings;
    assert_eq!(e.words.data, numbers("embeddings.word_embeddings.weight", WORDS * HIDDEN));
    let positions = e.positions.as_ref().unwrap();
    assert_eq!(positions.data, numbers("embeddings.position_embeddings.weight", POSITIONS * HIDDEN));
    assert_eq!((e.words.rows, positions.rows, network.layers.len()), (WORDS, POSITIONS, LAYERS));
    check_norm(e.norm.as_ref().unwrap(), "embeddings.LayerNorm");
    for (n, layer) in network.layers.iter().enumerate() {
        let name = |part: usize| format!("{layers}.{n}.{}", names[part].0);
        let linear = |linear: &Linear, part: usize| {
            let (name, dims) = (name(part), names[part].1);
            assert_eq!([linear.outputs, linear.inputs], dims, "{name}");
            assert_eq!(linear.weight, numbers(&format!("{name}.weight"), dims[0] * dims[1]), "{name}");
            assert_eq!(linear.bias, numbers(&format!("{name}.bias"), dims[0]), "{name}");
        };
        linear(&layer.query, 0);
        linear(&layer.key, 1);
        linear(&layer.value, 2);
        linear(&layer.attention_output, 3);
        check_norm(layer.attention_norm.as_ref().unwrap(), &name(4));
        linear(&layer.intermediate, 5);
        linear(&layer.output, 6);
        check_norm(&layer.output_norm, &name(7));
    }
}

fn check_bert(builder: &mut Builder) {
    let network = builder.open().unwrap().network().unwrap();
    check(&network, "encoder.layer", &BERT_LAYER);
    let types = network.embeddings.types.unwrap();
    assert_eq!(types.data, numbers("embeddings.token_type_embeddings.weight", 2 * HIDDEN));
}

#[test]
fn bert() {
    let mut builder = Builder::bert();
    check_bert(&mut builder);
    let folder = builder.open().unwrap();
    assert_eq!(folder.config().architecture, Architecture::Bert);
    assert_eq!((folder.pipeline().max_tokens, folder.dim()), (POSITIONS, HIDDEN));
    assert_eq!(super::super::name_of(folder.path()), "model");
    let shape = folder.network().unwrap().shape;
    assert_eq!((shape.heads, shape.first_position, shape.norm_epsilon), (2, 0, 1e-12));
    assert_eq!(shape.activation, Activation::Gelu);
}

#[test]
fn wrappers_and_old_names() {
    for prefix in ["bert.", "model.", "0.auto_model.", "auto_model.", "module.bert."] {
        let mut builder = Builder::bert();
        builder.rename(|name| format!("{prefix}{name}"));
        check_bert(&mut builder);
    }
    let mut builder = Builder::bert();
    builder.rename(|n| {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    });
    check_bert(&mut builder);
}

#[test]
fn half_precision_and_shards() {
    for dtype in [Dtype::F16, Dtype::BF16] {
        let mut builder = Builder::bert();
        builder.dtype = dtype;
        check_bert(&mut builder);
    }
    let mut builder = Builder::bert();
    shard(&mut builder);
    check_bert(&mut builder);
}

/// Replaces the weight file with two files, one for the embeddings and one for the layers, and their index.
pub fn shard(builder: &mut Builder) {
    builder.finish();
    builder.remove("model.safetensors");
    let shard = |name: &str| match name.starts_with("embeddings") {
        true => "model-00001-of-00002.safetensors",
        false => "model-00002-of-00002.safetensors",
    };
    for file in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
        fs::write(builder.path().join(file), builder.safetensors(|name| shard(name) == file)).unwrap();
    }
    let map: serde_json::Map<_, _> = builder.tensors.keys().map(|n| (n.clone(), json!(shard(n)))).collect();
    builder.json("model.safetensors.index.json", &json!({ "metadata": {}, "weight_map": map }));
}

#[test]
fn roberta_positions_start_after_the_padding_id() {
    for (kind, architecture) in [
        ("roberta", Architecture::Roberta),
        ("xlm-roberta", Architecture::XlmRoberta),
        ("camembert", Architecture::Camembert),
    ] {
        let mut builder = Builder::roberta();
        builder.set("model_type", json!(kind));
        builder.json("tokenizer_config.json", &json!({ "tokenizer_class": "RobertaTokenizer" }));
        builder.rename(|name| format!("roberta.{name}"));
        check_bert(&mut builder);
        let folder = builder.open().unwrap();
        assert_eq!(folder.config().architecture, architecture);
        let network = folder.network().unwrap();
        assert_eq!((network.shape.first_position, network.max_tokens()), (2, POSITIONS - 2));
        assert_eq!(folder.pipeline().max_tokens, POSITIONS - 2);
        assert_eq!(network.shape.norm_epsilon, 1e-5);
    }
}

#[test]
fn distilbert() {
    for prefix in ["", "distilbert."] {
        let mut builder = Builder::distilbert();
        builder.set("activation", json!("relu"));
        builder.rename(|name| format!("{prefix}{name}"));
        let network = builder.open().unwrap().network().unwrap();
        check(&network, "transformer.layer", &DISTIL_LAYER);
        assert!(network.embeddings.types.is_none());
        assert_eq!((network.shape.activation, network.shape.norm_epsilon), (Activation::Relu, 1e-12));
    }
}

#[test]
fn mpnet() {
    for prefix in ["", "mpnet."] {
        let mut builder = Builder::mpnet();
        builder.rename(|name| format!("{prefix}{name}"));
        let folder = builder.open().unwrap();
        let network = folder.network().unwrap();
        check(&network, "encoder.layer", &MPNET_LAYER);
        assert!(network.embeddings.types.is_none());
        let bias = network.relative_bias.unwrap();
        assert_eq!((bias.heads, bias.data), (2, numbers("encoder.relative_attention_bias.weight", 64)));
        assert_eq!((network.shape.first_position, folder.config().max_tokens()), (2, POSITIONS - 2));
        // WordPiece as in BERT, with the special tokens of RoBERTa. Unknown words have a token of their own.
        let tokenizer = folder.tokenizer().unwrap();
        assert_eq!(tokenizer.encode("Hello worlds nothing").unwrap().ids, [0, 5, 6, 7, 4, 2]);
    }
}

#[test]
fn old_files_name_only_a_class() {
    let mut builder = Builder::bert();
    builder.set("model_type", json!(null));
    builder.set("architectures", json!(["BertForMaskedLM"]));
    assert_eq!(builder.open().unwrap().config().architecture, Architecture::Bert);
}

#[test]
fn activations() {
    for (name, activation) in [
        ("gelu", Activation::Gelu),
        ("gelu_new", Activation::GeluTanh),
        ("gelu_pytorch_tanh", Activation::GeluTanh),
        ("gelu_fast", Activation::GeluTanh),
        ("relu", Activation::Relu),
    ] {
        let mut builder = Builder::bert();
        builder.set("hidden_act", json!(name));
        assert_eq!(builder.open().unwrap().config().shape.activation, activation);
    }
}

#[test]
fn tables_of_turns_and_roles() {
    let mut builder = Builder::bert();
    builder.tensor("embeddings.turn_embeddings.weight", &[5, HIDDEN]);
    builder.tensor("embeddings.role_embeddings.weight", &[3, HIDDEN]);
    let embeddings = builder.open().unwrap().network().unwrap().embeddings;
    let (turns, roles) = (embeddings.turns.unwrap(), embeddings.roles.unwrap());
    assert_eq!((turns.rows, roles.rows), (5, 3));
    assert_eq!(roles.data, numbers("embeddings.role_embeddings.weight", 3 * HIDDEN));
}

#[test]
fn extra_layers_are_reported() {
    let mut builder = Builder::bert();
    builder.set("num_hidden_layers", json!(1));
    let folder = builder.open().unwrap();
    assert_eq!(folder.network().unwrap().layers.len(), 1);
    assert!(folder.notices().iter().any(|n| n.contains("have 2 layers")), "{:?}", folder.notices());
}

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
    // Old files enable modes with flags. The modes have the order of sentence-transformers, not the order of the keys.
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
    // `pooling_mode`, the key of new files, takes precedence over flags and determines the order.
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
    // The model opens although the folder 2_Normalize does not exist.
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
    assert_eq!(folder.pipeline().max_tokens, 7);
    assert_eq!(folder.tokenizer().unwrap().max_tokens(), 7);
    folder.network().unwrap();
}

/// Returns a model with a dense layer. `config` is the configuration of the layer. If `bias` is true, the weight file
/// contains a bias.
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
    // sentence-transformers always defines the prompts `query` and `document`.
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
        (folder.pipeline().max_tokens, folder.notices().iter().any(|n| n.contains("positions")))
    };
    let none = || json!({});
    assert_eq!(length(none(), none()), (POSITIONS, false));
    assert_eq!(length(none(), json!({ "model_max_length": 9 })), (9, false));
    assert_eq!(length(none(), json!({ "model_max_length": 512 })), (POSITIONS, false));
    assert_eq!(length(none(), json!({ "model_max_length": 1e30 })), (POSITIONS, false));
    assert_eq!(length(json!({ "max_seq_length": 12 }), json!({ "model_max_length": 9 })), (12, false));
    assert_eq!(length(json!({ "max_seq_length": null }), json!({ "model_max_length": 9 })), (9, false));
    // The limit exceeds the number of positions, so sentence-transformers would fail on a long text.
    assert_eq!(length(json!({ "max_seq_length": 99 }), none()), (POSITIONS, true));
    let folder = Builder::roberta().open().unwrap();
    assert_eq!(folder.pipeline().max_tokens, POSITIONS - 2);
    // Without modules.json, sentence_bert_config.json is ignored.
    let mut builder = Builder::bert();
    builder.json("sentence_bert_config.json", &json!({ "max_seq_length": 5 }));
    assert_eq!(builder.open().unwrap().pipeline().max_tokens, POSITIONS);
}

#[test]
fn the_prediction_head_of_the_checkpoint_is_read() {
    assert_eq!(Builder::bert().open().unwrap().mlm_head().unwrap(), None);
    let parts = [("dense.weight", vec![HIDDEN, HIDDEN]), ("dense.bias", vec![HIDDEN])];
    // Old checkpoints have other names for the layer normalization.
    for [scale, shift] in [["weight", "bias"], ["gamma", "beta"]] {
        let mut builder = Builder::bert();
        let name = |part: &str| format!("cls.predictions.transform.{part}");
        for (part, dims) in &parts {
            builder.tensor(&name(part), dims);
        }
        let [scale, shift] = [scale, shift].map(|part| name(&format!("LayerNorm.{part}")));
        builder.tensor(&scale, &[HIDDEN]);
        builder.tensor(&shift, &[HIDDEN]);
        builder.tensor("cls.predictions.bias", &[WORDS]);
        let head = builder.open().unwrap().mlm_head().unwrap().unwrap();
        assert_eq!(head.weight, numbers(&name("dense.weight"), HIDDEN * HIDDEN));
        assert_eq!(head.bias, numbers(&name("dense.bias"), HIDDEN));
        assert_eq!(head.norm.weight, numbers(&scale, HIDDEN));
        assert_eq!(head.norm.bias, numbers(&shift, HIDDEN));
        assert_eq!(head.output_bias, numbers("cls.predictions.bias", WORDS));
    }
}
