//! Unsupported settings that would change the vectors, and invalid files.

use serde_json::{Value, json};

use super::builder::*;
use crate::folder::ModelFolder;
use turnwise_core::error::Class;

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
    for name in
        ["mpnet", "deberta-v2", "nomic_bert", "modernbert", "electra", "albert", "xlm-roberta-xl", "t5"]
    {
        let hint =
            refuses("model_type", json!(name), &[&format!("the architecture `{name}` is not supported")]);
        assert!(hint.contains("bert, roberta, xlm-roberta, camembert, distilbert"), "{hint}");
    }
    let mut builder = Builder::bert();
    builder.set("model_type", Value::Null);
    builder.set("architectures", json!(["BertGenerationEncoder"]));
    builder.refused(&["`BertGenerationEncoder` is not supported"]);
    builder.json("config.json", &json!({ "hidden_size": 8 }));
    builder.refused(&["no architecture"]);
}

#[test]
fn unsupported_variants() {
    refuses("hidden_act", json!("silu"), &["activation `silu`"]);
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
        (vec![("", "sentence_transformers.models.StaticEmbedding")], "StaticEmbedding"),
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
