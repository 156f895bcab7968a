//! Tests of `model list`, `model import` and `model info`.

use std::fs;

use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

use crate::{
    hub::{WEIGHTS, model},
    support::{SAMPLES, Turnwise},
};

fn with_model() -> Turnwise {
    let t = Turnwise::new();
    for (name, bytes) in model() {
        t.write(&format!("mine/{name}"), bytes);
    }
    t
}

#[test]
fn the_list_shows_built_in_names_and_installed_models() {
    let t = with_model();
    let text = t.ok("model list");
    assert!(text.contains("all-MiniLM-L6-v2 (default)") && text.contains("missing   pinned"), "{text}");
    assert!(text.contains("bge-small-zh-v1.5") && text.contains("missing   unpinned"), "{text}");
    t.ok("model import mine");
    let text = t.ok("model list");
    assert!(text.lines().any(|l| l.starts_with("mine ") && l.contains("imported")), "{text}");
    let list = t.json("model list");
    let mine = list.as_array().unwrap().iter().find(|m| m["name"] == "mine").unwrap();
    assert_eq!(
        (&mine["dim"], &mine["origin"], &mine["pinned"]),
        (&json!(4), &json!("imported"), &json!(false))
    );
    assert_eq!(list[0]["aliases"], json!(["default"]));
}

#[test]
fn an_imported_model_is_used_by_its_name() {
    let t = with_model();
    let out = t.ok("model import mine --name ours");
    assert!(
        out.starts_with("imported ours to ") && out.contains(".local/share/turnwise/models/ours"),
        "{out}"
    );
    assert!(out.contains("2 files that no encoder uses skipped, such as README.md"), "{out}");
    fs::remove_dir_all(t.path("mine")).unwrap();
    assert_eq!(t.json("model info ours")["origin"], "imported");
    t.write("turnwise.toml", "models_dir = \"shelf\"\n");
    t.run("model info ours").says(2, &["unknown model `ours`"]);
}

#[test]
fn an_import_refuses_a_folder_that_cannot_be_opened() {
    let t = with_model();
    t.run("model import mine --name default")
        .says(2, &["`default` is the name of a built-in model", "--name"]);
    t.run("model import none").says(2, &["none"]);
    let mut weights = fs::read(t.path(&format!("mine/{WEIGHTS}"))).unwrap();
    let end = weights.len();
    weights[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    t.write(&format!("mine/{WEIGHTS}"), &weights);
    assert_eq!(t.run("model import mine").code, 3);
    t.write(&format!("mine/{WEIGHTS}"), &weights[..end - 1]);
    assert_eq!(t.run("model import mine").code, 3);
    fs::remove_file(t.path(&format!("mine/{WEIGHTS}"))).unwrap();
    t.run("model import mine").says(3, &["has weights only as a pickle (pytorch_model.bin)"]);
    assert!(t.ok("model list --format json").contains("all-MiniLM"));
    t.run("model info mine").says(2, &["unknown model `mine`", "hint: to use the folder mine, write ./mine"]);
}

#[test]
fn info_shows_the_parts_of_a_model() {
    let t = with_model();
    let text = t.ok("model info ./mine");
    for part in [
        "bert: 1 layers of width 4 with 2 heads",
        "4 dimensions: mean pooling, then normalize",
        "max tokens    12",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let info = t.json("model info ./mine");
    let layer = 4 * (4 * 4 + 4) + (4 * 8 + 8) + (8 * 4 + 4) + 4 * 4;
    assert_eq!(info["parameters"], (6 + 16 + 2) * 4 + 2 * 4 + layer);
    assert_eq!((&info["vocabulary"], &info["fingerprint"].as_str().unwrap().len()), (&json!(6), &32));
    let text = t.ok(&format!("model info {}", t.model()));
    for part in ["encoder       TF-IDF + SVD", "vectors       16 dimensions", "file          turnwise.json"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    t.run("model info").says(
        2,
        &["the model `all-MiniLM-L6-v2` is not in the cache", "turnwise model pull all-MiniLM-L6-v2"],
    );
    t.run("model info all-minilm-l6-v1").says(2, &["did you mean `all-MiniLM-L6-v2`?"]);
}

#[test]
fn a_model_that_can_only_encode_cannot_be_trained() {
    let t = with_model();
    let config = json!({
        "model_type": "nomic_bert", "n_embd": 4, "n_head": 2, "n_layer": 1, "n_inner": 8, "n_positions": 16,
        "activation_function": "swiglu", "rotary_emb_base": 1000, "vocab_size": 6, "type_vocab_size": 2,
    });
    t.write("mine/config.json", config.to_string());
    let tensors = [
        ("embeddings.word_embeddings.weight", vec![6, 4]),
        ("embeddings.token_type_embeddings.weight", vec![2, 4]),
        ("emb_ln.weight", vec![4]),
        ("emb_ln.bias", vec![4]),
        ("encoder.layers.0.attn.Wqkv.weight", vec![12, 4]),
        ("encoder.layers.0.attn.out_proj.weight", vec![4, 4]),
        ("encoder.layers.0.mlp.fc11.weight", vec![8, 4]),
        ("encoder.layers.0.mlp.fc12.weight", vec![8, 4]),
        ("encoder.layers.0.mlp.fc2.weight", vec![4, 8]),
        ("encoder.layers.0.norm1.weight", vec![4]),
        ("encoder.layers.0.norm1.bias", vec![4]),
        ("encoder.layers.0.norm2.weight", vec![4]),
        ("encoder.layers.0.norm2.bias", vec![4]),
    ];
    let bytes = |shape: &Vec<usize>| -> Vec<u8> {
        let count = shape.iter().product::<usize>();
        (0..count).flat_map(|n| ((n * 7 % 5) as f32 / 4.0 - 0.4).to_le_bytes()).collect()
    };
    let tensors: Vec<_> = tensors.iter().map(|(name, shape)| (*name, shape, bytes(shape))).collect();
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| (*name, TensorView::new(Dtype::F32, (*shape).clone(), bytes).unwrap()));
    t.write(&format!("mine/{WEIGHTS}"), safetensors::serialize(views, None).unwrap());

    assert!(t.ok("model info ./mine").contains("nomic_bert: 1 layers of width 4"));
    t.write("text.txt", "hello\nhello hello\n");
    t.ok("embed text.txt --model ./mine -o vectors.jsonl");
    assert_eq!(t.read("vectors.jsonl").lines().count(), 2);
    let refused = ["./mine has the architecture nomic_bert, which cannot be trained", "bert, roberta"];
    t.run(&format!("train simcse --corpus {SAMPLES} -m ./mine -o run")).says(2, &refused);
}
