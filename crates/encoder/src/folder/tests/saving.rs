//! Tests that a model is unchanged after it is saved and opened again.

use std::fs;

use serde_json::json;
use turnwise_core::error::Class;

use crate::{
    folder::{Architecture, ModelFolder, Pipeline, PoolingMode, SavedModel, Step, save, tests::*},
    network::Activation,
};

/// Opens a model, changes its pipeline, saves it, opens the saved model, and compares both models.
fn round_trip(builder: &mut Builder, change: impl Fn(&mut Pipeline)) -> ModelFolder {
    let folder = builder.open().unwrap();
    let (network, tokenizer) = (folder.network().unwrap(), folder.tokenizer().unwrap());
    let mut pipeline = folder.pipeline().clone();
    change(&mut pipeline);
    let path = builder.path().with_file_name("saved");
    let _ = fs::remove_dir_all(&path);
    let model = SavedModel {
        network: &network,
        architecture: folder.config().architecture,
        pipeline: &pipeline,
        tokenizer: &tokenizer,
        base: Some("base"),
        pooler: None,
    };
    save(&path, &model).unwrap();
    let again = ModelFolder::open(&path).unwrap();
    assert_eq!(again.network().unwrap(), network);
    assert_eq!(again.pipeline(), &pipeline);
    assert_eq!(again.config().architecture, folder.config().architecture);
    let read = again.tokenizer().unwrap();
    assert_eq!(read.to_json().unwrap(), tokenizer.to_json().unwrap());
    assert_eq!((read.before(), read.after()), (tokenizer.before(), tokenizer.after()));
    assert_eq!(read.specials(), tokenizer.specials());
    if &pipeline == folder.pipeline() {
        assert_eq!(again.fingerprint().unwrap(), folder.fingerprint().unwrap());
    }
    assert_eq!(again.notices(), [""; 0]);
    again
}

#[test]
fn every_architecture() {
    round_trip(&mut Builder::bert(), |_| {});
    round_trip(&mut Builder::distilbert(), |_| {});
    round_trip(&mut Builder::mpnet(), |_| {});
    for kind in [Architecture::Roberta, Architecture::XlmRoberta, Architecture::Camembert] {
        let mut builder = Builder::roberta();
        builder.set("model_type", json!(kind.name()));
        builder.json("tokenizer_config.json", &json!({ "tokenizer_class": "RobertaTokenizer" }));
        round_trip(&mut builder, |_| {});
    }
}

#[test]
fn settings_survive() {
    let mut builder = Builder::bert();
    builder.set("hidden_act", json!("gelu_fast"));
    builder.set("layer_norm_eps", json!(1e-7));
    builder.tensor("embeddings.turn_embeddings.weight", &[5, HIDDEN]);
    builder.tensor("embeddings.role_embeddings.weight", &[3, HIDDEN]);
    builder.sentence(&json!({ "max_seq_length": 6, "do_lower_case": true }));
    builder.json(
        "tokenizer_config.json",
        &json!({ "do_lower_case": false, "truncation_side": "left", "mask_token": "[MASK]" }),
    );
    builder.json(
        "config_sentence_transformers.json",
        &json!({ "prompts": { "query": "q: " }, "default_prompt_name": "query", "similarity_fn_name": "dot", "truncate_dim": 5 }),
    );
    let saved = round_trip(&mut builder, |_| {});
    let shape = saved.network().unwrap().shape;
    assert_eq!((shape.activation, shape.norm_epsilon), (Activation::GeluTanh, 1e-7));
    assert_eq!(saved.pipeline().max_tokens, 6);
    let config = fs::read_to_string(saved.path().join("config.json")).unwrap();
    assert!(config.contains("1e-7"), "{config}");
}

#[test]
fn pipelines_survive() {
    use crate::folder::{Dense, DenseActivation};
    let dense = |bias: Option<Vec<f32>>, activation| {
        Step::Dense(Dense { inputs: HIDDEN, outputs: HIDDEN, weight: numbers("dense", 64), bias, activation })
    };
    round_trip(&mut Builder::bert(), |p| {
        p.steps = vec![
            Step::Normalize,
            dense(Some(numbers("bias", HIDDEN)), DenseActivation::Silu),
            dense(None, DenseActivation::Identity),
            Step::Normalize,
        ];
    });
    for modes in [
        vec![PoolingMode::Cls],
        vec![PoolingMode::Max, PoolingMode::WeightedMean],
        vec![PoolingMode::Mean, PoolingMode::Cls],
    ] {
        let saved = round_trip(&mut Builder::bert(), |p| {
            p.pooling.modes = modes.clone();
            p.pooling.include_prompt = false;
        });
        assert_eq!(saved.dim(), modes.len() * HIDDEN);
    }
}

#[test]
fn a_fingerprint_depends_only_on_what_changes_vectors() {
    let of = |change: &dyn Fn(&mut Builder)| {
        let mut builder = Builder::bert();
        change(&mut builder);
        builder.open().unwrap().fingerprint().unwrap()
    };
    let plain = of(&|_| {});
    let same: [&dyn Fn(&mut Builder); 5] = [
        &|b| b.dtype = safetensors::Dtype::F16,
        &|b| b.rename(|name| format!("bert.{name}")),
        &|b| b.tensor("pooler.dense.bias", &[4]),
        &|b| b.write("README.md", "words"),
        &super::opened::shard,
    ];
    for (n, change) in same.iter().enumerate() {
        assert_eq!(of(*change), plain, "change {n} changes no vector");
    }
    let other: [&dyn Fn(&mut Builder); 9] = [
        &|b| b.tensors.get_mut("encoder.layer.1.output.dense.bias").unwrap().1[3] += 0.5,
        &|b| b.set("layer_norm_eps", json!(1e-5)),
        &|b| b.set("hidden_act", json!("relu")),
        &|b| b.set("num_attention_heads", json!(4)),
        &|b| b.set("num_hidden_layers", json!(1)),
        &|b| b.sentence(&json!({ "max_seq_length": 9 })),
        &|b| b.json("tokenizer_config.json", &json!({ "do_lower_case": false })),
        &|b| b.json("config_sentence_transformers.json", &json!({ "prompts": { "query": "q: " } })),
        &|b| b.json("config_sentence_transformers.json", &json!({ "truncate_dim": 4 })),
    ];
    let mut seen = vec![plain];
    for (n, change) in other.iter().enumerate() {
        let fingerprint = of(*change);
        assert!(!seen.contains(&fingerprint), "change {n} changes vectors");
        seen.push(fingerprint);
    }
}

#[test]
fn unreadable_models_are_not_saved() {
    let mut builder = Builder::bert();
    let folder = builder.open().unwrap();
    let (mut network, tokenizer) = (folder.network().unwrap(), folder.tokenizer().unwrap());
    let path = builder.path().with_file_name("saved");
    let write = |network: &_, architecture| {
        let pipeline = folder.pipeline();
        save(
            &path,
            &SavedModel { network, architecture, pipeline, tokenizer: &tokenizer, base: None, pooler: None },
        )
    };
    assert_eq!(write(&network, Architecture::Roberta).unwrap_err().class(), Class::Internal);
    assert_eq!(write(&network, Architecture::DistilBert).unwrap_err().class(), Class::Internal);
    network.layers[1].query.weight[3] = f32::NAN;
    let error = write(&network, Architecture::Bert).unwrap_err();
    assert!(error.to_string().contains("encoder.layer.1.attention.self.query.weight"), "{error}");
    network.layers[1].query.weight.pop();
    network.layers[1].query.weight[3] = 0.0;
    assert_eq!(write(&network, Architecture::Bert).unwrap_err().class(), Class::Internal);
    assert!(!path.exists() && !path.with_file_name("saved.tmp").exists());
    network.layers[1].query.weight.push(0.0);
    // Saving to an empty folder works, even after an interrupted save. Saving never overwrites files.
    fs::create_dir(&path).unwrap();
    fs::create_dir(path.with_file_name("saved.tmp")).unwrap();
    fs::write(path.with_file_name("saved.tmp").join("left"), "").unwrap();
    write(&network, Architecture::Bert).unwrap();
    assert!(!path.with_file_name("saved.tmp").exists() && !path.join("left").exists());
    let error = write(&network, Architecture::Bert).unwrap_err();
    assert_eq!(error.class(), Class::Input);
    assert!(error.to_string().contains("already exists"), "{error}");
}
