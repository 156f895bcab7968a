//! Architectures, tensor names and data types: every parameter is read correctly.

use std::fs;

use safetensors::Dtype;
use serde_json::json;

use crate::{
    Network,
    folder::{Architecture, tests::builder::*},
    network::{Activation, Linear, Norm},
};

fn check_norm(norm: &Norm, name: &str) {
    assert_eq!(norm.weight, numbers(&format!("{name}.weight"), HIDDEN), "{name}");
    assert_eq!(norm.bias, numbers(&format!("{name}.bias"), HIDDEN), "{name}");
}

/// Compares every parameter with the values generated from the parameter name.
fn check(network: &Network, layers: &str, names: &[(&str, &[usize])]) {
    let e = &network.embeddings;
    assert_eq!(e.words.data, numbers("embeddings.word_embeddings.weight", WORDS * HIDDEN));
    assert_eq!(e.positions.data, numbers("embeddings.position_embeddings.weight", POSITIONS * HIDDEN));
    assert_eq!((e.words.rows, e.positions.rows, network.layers.len()), (WORDS, POSITIONS, LAYERS));
    check_norm(&e.norm, "embeddings.LayerNorm");
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
        check_norm(&layer.attention_norm, &name(4));
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
    assert_eq!(folder.architecture(), Architecture::Bert);
    assert_eq!((folder.max_tokens(), folder.dim()), (POSITIONS, HIDDEN));
    assert_eq!(folder.name(), "model");
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

/// Replaces the weight file by two shards.
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
        assert_eq!(folder.architecture(), architecture);
        let network = folder.network().unwrap();
        assert_eq!((network.shape.first_position, network.max_tokens()), (2, POSITIONS - 2));
        assert_eq!(folder.max_tokens(), POSITIONS - 2);
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
fn old_files_name_only_a_class() {
    let mut builder = Builder::bert();
    builder.set("model_type", json!(null));
    builder.set("architectures", json!(["BertForMaskedLM"]));
    assert_eq!(builder.open().unwrap().architecture(), Architecture::Bert);
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
