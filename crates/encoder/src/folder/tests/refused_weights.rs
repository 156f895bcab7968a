//! Missing, damaged or mismatched weights, each with its own error.

use std::fs;

use safetensors::Dtype;
use serde_json::json;

use super::{architectures::shard, builder::*};

const FILE: &str = "model.safetensors";

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
        // It can still open (for example with a changed name of an unused tensor), but must not panic.
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
