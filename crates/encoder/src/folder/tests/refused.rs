//! Tests of invalid models: unsupported settings that would change the vectors, invalid files, and weights that are
//! missing, damaged or mismatched.

use std::fs;

use safetensors::Dtype;
use serde_json::{Value, json};
use turnwise_core::error::Class;

use crate::folder::{
    ModelFolder,
    tests::{opened::shard, *},
};

#[track_caller]
fn refuses(key: &str, value: Value, parts: &[&str]) -> String {
    let mut builder = Builder::bert();
    builder.set(key, value);
    builder.refused(parts)
}

#[test]
fn no_folder_and_no_model() {
    let mut builder = Builder::bert();
    builder.finish();
    let open = |name: &str| ModelFolder::open(&builder.path().join(name)).unwrap_err();
    let error = open("nowhere");
    assert_eq!((error.class(), error.to_string().ends_with("does not exist")), (Class::Input, true));
    let error = open("config.json");
    assert_eq!((error.class(), error.to_string().contains("is a file")), (Class::Input, true));
    builder.remove("config.json");
    let error = open("");
    assert_eq!((error.class(), error.to_string().contains("config.json is missing")), (Class::Input, true));
    assert!(error.hint().is_some());
}

#[test]
fn other_architectures() {
    for name in ["deberta-v2", "electra", "albert", "xlm-roberta-xl", "t5"] {
        let hint =
            refuses("model_type", json!(name), &[&format!("the architecture `{name}` is not supported")]);
        assert!(
            hint.contains(
                "bert, roberta, xlm-roberta, camembert, distilbert, mpnet, modernbert, nomic_bert, gte, new, jina_bert, qwen3, gemma3_text"
            ),
            "{hint}"
        );
    }
    let mut builder = Builder::mpnet();
    builder.set("relative_attention_num_buckets", json!(64));
    builder.refused(&["`relative_attention_num_buckets` is 64; only 32 is supported"]);
    let mut builder = Builder::mpnet();
    builder.tensors.remove("encoder.relative_attention_bias.weight");
    builder.refused(&["the tensor `encoder.relative_attention_bias.weight` is missing"]);
    let mut builder = Builder::bert();
    builder.set("model_type", Value::Null);
    builder.set("architectures", json!(["BertGenerationEncoder"]));
    builder.refused(&["`BertGenerationEncoder` is not supported"]);
    builder.json("config.json", &json!({ "hidden_size": 8 }));
    builder.refused(&["no architecture"]);
}

#[test]
fn unsupported_variants() {
    refuses("hidden_act", json!("tanh"), &["activation `tanh`"]);
    refuses("position_embedding_type", json!("relative_key_query"), &["`relative_key_query`"]);
    refuses("is_decoder", json!(true), &["`is_decoder`"]);
    refuses("add_cross_attention", json!(true), &["`add_cross_attention`"]);
    refuses("embedding_size", json!(4), &["`embedding_size` is 4"]);
    refuses("head_dim", json!(16), &["`head_dim` is 16"]);
    refuses("quantization_config", json!({ "bits": 4 }), &["`quantization_config`"]);
    refuses("pruned_heads", json!({ "0": [1] }), &["`pruned_heads`"]);
    refuses(
        "auto_map",
        json!({ "AutoModel": "modeling_x.X" }),
        &["the model uses its own code", "modeling_x.X"],
    );
    let mut builder = Builder::bert();
    builder.json("adapter_config.json", &json!({}));
    builder.refused(&["adapter"]);
    // Keys with empty or default values are accepted.
    for (key, value) in [
        ("is_decoder", json!(false)),
        ("embedding_size", json!(HIDDEN)),
        ("pruned_heads", json!({})),
        ("quantization_config", Value::Null),
        ("adapters", json!({ "adapters": {}, "config_map": {} })),
    ] {
        let mut builder = Builder::bert();
        builder.set(key, value);
        builder.open().unwrap();
    }
}

#[test]
fn unsupported_rotary_positions() {
    #[track_caller]
    fn refuses(mut builder: Builder, key: &str, value: Value, parts: &[&str]) {
        builder.set(key, value);
        builder.refused(parts);
    }
    let yarn = json!({ "rope_type": "yarn", "factor": 4.0 });
    refuses(Builder::modern_bert(), "rope_scaling", yarn.clone(), &["`yarn`"]);
    let by_layer = json!({ "full_attention": yarn });
    refuses(Builder::modern_bert(), "rope_parameters", by_layer, &["`yarn`"]);
    refuses(Builder::modern_bert(), "layer_types", json!(["full_attention"]), &["must have 2 elements"]);
    refuses(
        Builder::modern_bert(),
        "layer_types",
        json!(["full_attention", "chunked_attention"]),
        &["`layer_types`", "chunked_attention"],
    );
    refuses(Builder::modern_bert(), "global_rope_theta", json!(0.5), &["must be at least 1"]);
    refuses(Builder::modern_bert(), "norm_bias", json!(true), &["`embeddings.norm.bias` is missing"]);
    refuses(Builder::modern_bert(), "auto_map", json!({ "AutoModel": "x.X" }), &["its own code"]);
    for key in ["prenorm", "parallel_block", "use_rms_norm", "rotary_emb_interleaved", "causal"] {
        refuses(Builder::nomic_bert(true), key, json!(true), &[&format!("`{key}` is true")]);
    }
    refuses(Builder::nomic_bert(true), "rotary_scaling_factor", json!(2), &["`rotary_scaling_factor` is 2"]);
    refuses(Builder::nomic_bert(true), "rotary_emb_fraction", json!(0.5), &["only 1 is supported"]);
    refuses(Builder::nomic_bert(true), "moe_every_n_layers", json!(2), &["experts"]);
    refuses(Builder::nomic_bert(true), "activation_function", json!("gelu"), &["`gelu`"]);
    refuses(Builder::nomic_bert(false), "rope_parameters", yarn, &["`yarn`"]);
    refuses(
        Builder::gte(),
        "rope_scaling",
        json!({ "factor": 2.0, "type": "linear" }),
        &["only the type `ntk`"],
    );
    refuses(Builder::gte(), "logn_attention_scale", json!(true), &["`logn_attention_scale` is true"]);
    refuses(Builder::gte(), "pack_qkv", json!(false), &["`pack_qkv` is false"]);
    refuses(Builder::gte(), "layer_norm_type", json!("rms_norm"), &["`rms_norm`"]);
    refuses(Builder::gte(), "position_embedding_type", json!("absolute"), &["`absolute`", "use `rope`"]);
    for builder in [Builder::modern_bert(), Builder::gte(), Builder::jina_bert(), Builder::decoder(true)] {
        refuses(builder, "max_position_embeddings", json!(1u64 << 40), &["at most 1048576 are supported"]);
    }
    let yarn = json!({ "rope_type": "yarn", "factor": 4.0 });
    refuses(Builder::decoder(false), "rope_scaling", yarn, &["`yarn`"]);
    refuses(Builder::decoder(false), "use_sliding_window", json!(true), &["`use_sliding_window`"]);
    refuses(
        Builder::decoder(false),
        "num_key_value_heads",
        json!(4),
        &["not divisible by `num_key_value_heads`, 4"],
    );
    refuses(Builder::decoder(false), "head_dim", json!(7), &["the size of a head is 7, but must be even"]);
    refuses(Builder::decoder(true), "query_pre_attn_scalar", json!(5), &["`query_pre_attn_scalar` is 5"]);
    refuses(
        Builder::decoder(true),
        "attn_logit_softcapping",
        json!(50.0),
        &["`attn_logit_softcapping` is 50"],
    );
    refuses(
        Builder::jina_bert(),
        "feed_forward_type",
        json!("original"),
        &["`feed_forward_type`", "original"],
    );
    let mut builder = Builder::modern_bert();
    builder.tensor("layers.1.attn.extra.weight", &[HIDDEN]);
    builder.refused(&["`layers.1.attn.extra.weight`"]);
}

#[test]
fn invalid_sizes() {
    refuses("num_attention_heads", json!(3), &["heads 3", "8"]);
    refuses("num_attention_heads", json!(0), &["`num_attention_heads` is 0"]);
    refuses("hidden_size", Value::Null, &["`hidden_size` is missing"]);
    refuses("hidden_size", json!("8"), &["`hidden_size` must be a whole number, but is \"8\""]);
    refuses("hidden_size", json!(-8), &["`hidden_size` must be a whole number"]);
    refuses("max_position_embeddings", json!(0), &["is too small"]);
    refuses("layer_norm_eps", json!(0.0), &["layer_norm_eps"]);
    refuses("type_vocab_size", json!(3), &["token_type_embeddings", "[2, 8]", "[3, 8]"]);
    // Huge sizes must not overflow.
    refuses("vocab_size", json!(u64::MAX), &["word_embeddings"]);
}

#[test]
fn invalid_json() {
    for file in ["config.json", "modules.json", "sentence_bert_config.json", "tokenizer_config.json"] {
        let mut builder = Builder::bert();
        builder.sentence(&json!({}));
        builder.finish();
        let begin = if file == "modules.json" { "[\n" } else { "{\n\"a\": 1," };
        builder.write(file, &format!("{begin}\n  oh\n"));
        builder.refused(&[&format!("{file}:3"), "invalid JSON"]);
    }
    let mut builder = Builder::bert();
    builder.finish();
    builder.write("config.json", "[]");
    builder.refused(&["config.json", "one JSON object"]);
}

#[test]
fn unsupported_modules() {
    const T: (&str, &str) = ("", "sentence_transformers.models.Transformer");
    const P: (&str, &str) = ("1_Pooling", "sentence_transformers.models.Pooling");
    for (modules, part) in [
        (vec![T, P, ("2", "sentence_transformers.models.LSTM")], "`sentence_transformers.models.LSTM`"),
        (vec![T, P, ("2", "my_code.Dense")], "`my_code.Dense`"),
        (vec![("", "sentence_transformers.models.StaticEmbedding"), P], "more than one network or Pooling"),
        (vec![T], "order of the modules is not supported"),
        (vec![P, T], "order of the modules is not supported"),
        (vec![], "order of the modules is not supported"),
        (vec![T, P, P], "more than one"),
        (vec![T, ("../elsewhere", P.1)], "is outside the folder"),
        (vec![T, ("/etc", P.1)], "is outside the folder"),
        (vec![T, P], "1_Pooling/config.json is missing"),
    ] {
        let mut builder = Builder::bert();
        builder.modules(&modules);
        builder.refused(&[part]);
    }
}

#[test]
fn settings_of_sentence_transformers() {
    let with = |file: &str, value: Value, part: &str| {
        let mut builder = Builder::bert();
        builder.sentence(&json!({}));
        builder.json(file, &value);
        builder.refused(&[file, part]);
    };
    let file = "sentence_bert_config.json";
    with(file, json!({ "max_seq_length": 0 }), "`max_seq_length` is 0");
    with(file, json!({ "transformer_task": "fill-mask" }), "`transformer_task`");
    with(file, json!({ "query_length": 32 }), "`query_length`");
    with(file, json!({ "model_args": { "attn_implementation": "x" } }), "`model_args`");
    let file = "config_sentence_transformers.json";
    with(file, json!({ "model_type": "SparseEncoder" }), "SparseEncoder");
    with(file, json!({ "truncate_dim": 0 }), "`truncate_dim` is 0");
    with(file, json!({ "prompts": { "a": 1 } }), "the prompt `a`");
    with(file, json!({ "default_prompt_name": "passage" }), "this prompt does not exist");
}

const FILE: &str = "model.safetensors";

#[test]
fn only_an_export() {
    for file in ["model.onnx", "onnx/model_quantized.onnx"] {
        let mut builder = Builder::bert();
        builder.finish();
        builder.remove("model.safetensors");
        builder.write(file, "exported");
        let hint = builder.refused(&["has weights only in ONNX format", file]);
        assert!(hint.contains("the model from which it was exported"), "{hint}");
    }
}

#[test]
fn only_a_pickle() {
    for file in ["pytorch_model.bin", "epoch=3.ckpt", "weights.pt"] {
        let mut builder = Builder::bert();
        builder.finish();
        builder.remove(FILE);
        builder.write(file, "never read");
        builder.write("training_args.bin", "a pickle that holds no weights");
        let hint = builder.refused(&[file, "can run arbitrary code"]);
        assert!(hint.contains("with Python: "), "{hint}");
    }
}

#[test]
fn missing() {
    let mut builder = Builder::bert();
    builder.finish();
    builder.remove(FILE);
    builder.refused(&["contains no model.safetensors"]);
}

#[test]
fn truncated() {
    let mut builder = Builder::bert();
    builder.finish();
    let path = builder.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 100]).unwrap();
    builder.refused(&["is truncated", &whole.len().to_string(), &(whole.len() - 100).to_string()]);
    fs::write(&path, &whole[..50]).unwrap();
    builder.refused(&["the header should have", "has 50"]);
    for short in [0, 5] {
        fs::write(&path, &whole[..short]).unwrap();
        builder.refused(&[&format!("has only {short} bytes")]);
    }
    fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
    builder.refused(&["is too long"]);
}

#[test]
fn a_damaged_header() {
    let mut builder = Builder::bert();
    builder.finish();
    let path = builder.path().join(FILE);
    let mut bytes = fs::read(&path).unwrap();
    bytes[9] = b'!';
    fs::write(&path, &bytes).unwrap();
    builder.refused(&["the header is damaged"]);
    fs::write(&path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n").unwrap();
    let hint = builder.refused(&["Git LFS pointer"]);
    assert!(hint.contains("git lfs pull"));
}

#[test]
fn a_damaged_header_never_panics() {
    let mut builder = Builder::bert();
    builder.finish();
    let path = builder.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    for at in 0..400 {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x15;
        fs::write(&path, &bytes).unwrap();
        // The model may still open, for example if only the name of an unused tensor has changed. It must not panic.
        let _ = builder.open().and_then(|f| f.network());
    }
}

#[test]
fn unsupported_number_types() {
    let mut builder = Builder::bert();
    builder.dtype = Dtype::F64;
    builder.refused(&["the type F64", "embeddings."]);
    let mut builder = Builder::bert();
    builder.finish();
    let path = builder.path().join(FILE);
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(5).position(|w| w == b"\"F32\"").unwrap();
    let mut bytes = bytes;
    bytes[at + 1..at + 4].copy_from_slice(b"F99");
    fs::write(&path, &bytes).unwrap();
    builder.refused(&["unknown type `F99`"]);
}

#[test]
fn a_missing_tensor() {
    let mut builder = Builder::bert();
    builder.rename(|name| name.replace("layer.1.output.dense.weight", "layer.1.output.dence.weight"));
    let hint = builder.refused(&["`encoder.layer.1.output.dense.weight` is missing"]);
    assert!(hint.contains("encoder.layer.1.output.dence.weight"), "{hint}");
}

#[test]
fn a_shape_that_does_not_fit() {
    let mut builder = Builder::bert();
    builder.set("intermediate_size", json!(16));
    builder.refused(&["encoder.layer.0.intermediate.dense.weight", "[12, 8]", "[16, 8]"]);
    let mut builder = Builder::bert();
    builder.set("vocab_size", json!(WORDS + 1));
    builder.refused(&["word_embeddings", "[24, 8]", "[25, 8]"]);
    let mut builder = Builder::bert();
    builder.set("num_hidden_layers", json!(3));
    builder.refused(&["encoder.layer.2.", "is missing"]);
    let mut builder = Builder::bert();
    builder.tensor("embeddings.turn_embeddings.weight", &[5, HIDDEN + 1]);
    builder.refused(&["turn_embeddings", "[5, 9]", "[5, 8]"]);
}

#[test]
fn numbers_that_are_not_finite() {
    for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let mut builder = Builder::bert();
            builder.dtype = dtype;
            let name = "encoder.layer.1.intermediate.dense.weight";
            builder.tensors.get_mut(name).unwrap().1[2 * HIDDEN + 3] = value;
            builder.refused(&[name, shown, "row 2, column 3"]);
        }
    }
    let mut builder = Builder::bert();
    builder.tensors.get_mut("embeddings.LayerNorm.bias").unwrap().1[5] = f32::NAN;
    builder.refused(&["embeddings.LayerNorm.bias", "index 5"]);
}

#[test]
fn shards() {
    let mut builder = Builder::bert();
    shard(&mut builder);
    builder.remove("model-00002-of-00002.safetensors");
    builder.refused(&["the shard `model-00002-of-00002.safetensors` with"]);
    for outside in ["../secret.safetensors", "pytorch_model-00001-of-00002.bin"] {
        let map = json!({ "weight_map": { "embeddings.word_embeddings.weight": outside } });
        builder.json("model.safetensors.index.json", &map);
        builder.refused(&["is not in a safetensors file of the same folder"]);
    }
    let map = json!({ "weight_map": { "pooler.dense.weight": "model-00001-of-00002.safetensors" } });
    builder.json("model.safetensors.index.json", &map);
    builder.refused(&["`pooler.dense.weight` is not in `model-00001-of-00002.safetensors`"]);
}

#[test]
fn unexpected_tensors() {
    let mut builder = Builder::bert();
    builder.tensor("encoder.layer.0.attention.self.distance_embedding.weight", &[35, 4]);
    builder.refused(&["distance_embedding", "does not support", "`bert`"]);
    let mut builder = Builder::bert();
    for name in ["embeddings.word_embeddings.weight", "embeddings.position_ids"] {
        builder.tensor(&format!("model.{name}"), &[WORDS, HIDDEN]);
    }
    builder.refused(&["two networks"]);
}
