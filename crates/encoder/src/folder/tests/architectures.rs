//! Tests of architectures with rotary positions: ModernBERT, NomicBERT, GTE, Qwen3 and Gemma 3.

use serde_json::{Value, json};

use crate::{
    folder::{
        Architecture,
        tests::{opened::check_norm, *},
    },
    network::{Activation, Layer, Linear, Norm, NormKind, NormOrder},
};

/// Compares a linear layer with a part of a tensor that the builder generated.
fn check_part(linear: &Linear, name: &str, (part, parts): (usize, usize), has_bias: bool) {
    let of = |all: Vec<f32>| all[all.len() / parts * part..][..all.len() / parts].to_vec();
    let weight = numbers(&format!("{name}.weight"), parts * linear.outputs * linear.inputs);
    assert_eq!(linear.weight, of(weight), "{name}");
    let bias = match has_bias {
        true => of(numbers(&format!("{name}.bias"), parts * linear.outputs)),
        false => vec![0.0; linear.outputs],
    };
    assert_eq!(linear.bias, bias, "{name}");
}

/// Location of the parameters of a layer: queries, keys, values, attention output, intermediate, gate and output.
type Parts<'a> = [(&'a str, (usize, usize), bool); 7];

fn check_parts(layer: &Layer, prefix: &str, parts: Parts) {
    let gate = layer.gate.as_ref().unwrap();
    let linears = [
        &layer.query,
        &layer.key,
        &layer.value,
        &layer.attention_output,
        &layer.intermediate,
        gate,
        &layer.output,
    ];
    for (linear, (name, part, has_bias)) in linears.into_iter().zip(parts) {
        check_part(linear, &format!("{prefix}.{name}"), part, has_bias);
    }
}

const WHOLE: (usize, usize) = (0, 1);

#[test]
fn modern_bert() {
    for prefix in ["", "model."] {
        let mut builder = Builder::modern_bert();
        builder.tensor("head.dense.weight", &[HIDDEN, HIDDEN]);
        builder.rename(|name| format!("{prefix}{name}"));
        let folder = builder.open().unwrap();
        assert_eq!(
            (folder.config().architecture, folder.config().max_tokens()),
            (Architecture::ModernBert, 32)
        );
        let network = folder.network().unwrap();
        let e = &network.embeddings;
        assert_eq!(e.words.data, numbers("embeddings.tok_embeddings.weight", WORDS * HIDDEN));
        assert!(e.positions.is_none() && e.types.is_none());
        let norm = |norm: &Norm, name: &str| {
            assert_eq!(norm.weight, numbers(name, HIDDEN), "{name}");
            assert_eq!(norm.bias, [0.0; HIDDEN], "{name}");
        };
        norm(e.norm.as_ref().unwrap(), "embeddings.norm.weight");
        norm(network.final_norm.as_ref().unwrap(), "final_norm.weight");
        for (n, layer) in network.layers.iter().enumerate() {
            let prefix = format!("layers.{n}");
            assert_eq!(layer.attention_norm.is_some(), n > 0);
            if let Some(attention_norm) = &layer.attention_norm {
                norm(attention_norm, &format!("{prefix}.attn_norm.weight"));
            }
            norm(&layer.output_norm, &format!("{prefix}.mlp_norm.weight"));
            let parts = [
                ("attn.Wqkv", (0, 3), false),
                ("attn.Wqkv", (1, 3), false),
                ("attn.Wqkv", (2, 3), false),
                ("attn.Wo", WHOLE, false),
                ("mlp.Wi", (0, 2), false),
                ("mlp.Wi", (1, 2), false),
                ("mlp.Wo", WHOLE, false),
            ];
            check_parts(layer, &prefix, parts);
            // Every third layer is global, the first included.
            assert_eq!(layer.window, (n > 0).then_some(4));
        }
        let shape = network.shape;
        assert_eq!((shape.norm_order, shape.norm_epsilon), (NormOrder::Before, 1e-5));
        let rotary = shape.rotary.unwrap();
        assert_eq!((rotary.base, rotary.window_base, rotary.divisor), (160_000.0, 9000.0, 1.0));
    }
    // The keys of transformers 5.
    let mut builder = Builder::modern_bert();
    builder.set("layer_types", json!(["sliding_attention", "full_attention"]));
    builder.set(
        "rope_parameters",
        json!({ "full_attention": { "rope_type": "default", "rope_theta": 5000.0 }, "sliding_attention": null }),
    );
    let network = builder.open().unwrap().network().unwrap();
    assert_eq!(network.layers.iter().map(|layer| layer.window).collect::<Vec<_>>(), [Some(4), None]);
    assert_eq!(network.shape.rotary.unwrap().base, 5000.0);
}

#[test]
fn nomic_bert() {
    // The keys of its own code, and those of the `transformers` library.
    for own in [true, false] {
        let mut builder = Builder::nomic_bert(own);
        let network = builder.open().unwrap().network().unwrap();
        check_norm(network.embeddings.norm.as_ref().unwrap(), "emb_ln");
        assert!(network.embeddings.positions.is_none() && network.final_norm.is_none());
        for (n, layer) in network.layers.iter().enumerate() {
            let prefix = format!("encoder.layers.{n}");
            check_norm(layer.attention_norm.as_ref().unwrap(), &format!("{prefix}.norm1"));
            check_norm(&layer.output_norm, &format!("{prefix}.norm2"));
            let parts = [
                ("attn.Wqkv", (0, 3), false),
                ("attn.Wqkv", (1, 3), false),
                ("attn.Wqkv", (2, 3), false),
                ("attn.out_proj", WHOLE, false),
                ("mlp.fc12", WHOLE, false),
                ("mlp.fc11", WHOLE, false),
                ("mlp.fc2", WHOLE, false),
            ];
            check_parts(layer, &prefix, parts);
            assert_eq!(layer.window, None);
        }
        let shape = &network.shape;
        assert_eq!((shape.activation, shape.norm_order), (Activation::Silu, NormOrder::After));
        assert_eq!((network.max_tokens(), shape.rotary.unwrap().base), (32, 1000.0));
    }
}

#[test]
fn gte() {
    for (kind, architecture) in [("gte", Architecture::Gte), ("new", Architecture::New)] {
        let mut builder = Builder::gte();
        builder.set("model_type", json!(kind));
        builder.set("auto_map", json!({ "AutoModel": "new-impl--modeling.NewModel" }));
        builder.rename(|name| format!("new.{name}"));
        let folder = builder.open().unwrap();
        assert_eq!(folder.config().architecture, architecture);
        let network = folder.network().unwrap();
        check_norm(network.embeddings.norm.as_ref().unwrap(), "embeddings.LayerNorm");
        assert!(network.embeddings.types.is_none());
        for (n, layer) in network.layers.iter().enumerate() {
            let prefix = format!("encoder.layer.{n}");
            check_norm(layer.attention_norm.as_ref().unwrap(), &format!("{prefix}.attn_ln"));
            check_norm(&layer.output_norm, &format!("{prefix}.mlp_ln"));
            let parts = [
                ("attention.qkv_proj", (0, 3), true),
                ("attention.qkv_proj", (1, 3), true),
                ("attention.qkv_proj", (2, 3), true),
                ("attention.o_proj", WHOLE, true),
                ("mlp.up_gate_proj", (1, 2), false),
                ("mlp.up_gate_proj", (0, 2), false),
                ("mlp.down_proj", WHOLE, true),
            ];
            check_parts(layer, &prefix, parts);
        }
        // Scaled by NTK: a larger base, and all angles divided by factor^(2 / head size).
        let rotary = network.shape.rotary.unwrap();
        assert_eq!((rotary.base, rotary.divisor), (1_000_000.0, 2f64.powf(0.5)));
    }
}

#[test]
fn jina_bert() {
    let mut builder = Builder::jina_bert();
    let folder = builder.open().unwrap();
    assert_eq!(folder.config().architecture, Architecture::JinaBert);
    let network = folder.network().unwrap();
    check_norm(network.embeddings.norm.as_ref().unwrap(), "embeddings.LayerNorm");
    assert!(network.embeddings.positions.is_none());
    for (n, layer) in network.layers.iter().enumerate() {
        let prefix = format!("encoder.layer.{n}");
        check_norm(layer.attention_norm.as_ref().unwrap(), &format!("{prefix}.attention.output.LayerNorm"));
        check_norm(&layer.output_norm, &format!("{prefix}.mlp.layernorm"));
        let parts = [
            ("attention.self.query", WHOLE, true),
            ("attention.self.key", WHOLE, true),
            ("attention.self.value", WHOLE, true),
            ("attention.output.dense", WHOLE, true),
            ("mlp.gated_layers", (0, 2), false),
            ("mlp.gated_layers", (1, 2), false),
            ("mlp.wo", WHOLE, true),
        ];
        check_parts(layer, &prefix, parts);
    }
    assert_eq!((network.max_tokens(), network.shape.linear_bias.unwrap().max_tokens), (32, 32));
}

#[test]
fn decoders() {
    for (gemma, prefix) in [(false, ""), (false, "model."), (true, "")] {
        let mut builder = Builder::decoder(gemma);
        // The output layer of a language model does not affect the vectors.
        builder.tensors.insert("lm_head.weight".to_owned(), (vec![WORDS, HIDDEN], vec![0.0; WORDS * HIDDEN]));
        builder.rename(|name| match name.starts_with("lm_head") {
            true => name.to_owned(),
            false => format!("{prefix}{name}"),
        });
        let folder = builder.open().unwrap();
        let network = folder.network().unwrap();
        let (scale, add) = if gemma { ((HIDDEN as f32).sqrt(), 1.0) } else { (1.0, 0.0) };
        let norm = |norm: &Norm, name: &str| {
            let weight: Vec<f32> = numbers(name, norm.weight.len()).iter().map(|x| x + add).collect();
            assert_eq!((&norm.weight, norm.bias.iter().all(|x| *x == 0.0)), (&weight, true), "{name}");
        };
        let words = numbers("embed_tokens.weight", WORDS * HIDDEN);
        assert_eq!(network.embeddings.words.data, words.iter().map(|x| x * scale).collect::<Vec<_>>());
        assert!(network.embeddings.norm.is_none() && network.embeddings.positions.is_none());
        norm(network.final_norm.as_ref().unwrap(), "norm.weight");
        for (n, layer) in network.layers.iter().enumerate() {
            let prefix = format!("layers.{n}");
            let parts = [
                ("self_attn.q_proj", WHOLE, false),
                ("self_attn.k_proj", WHOLE, false),
                ("self_attn.v_proj", WHOLE, false),
                ("self_attn.o_proj", WHOLE, false),
                ("mlp.gate_proj", WHOLE, false),
                ("mlp.up_proj", WHOLE, false),
                ("mlp.down_proj", WHOLE, false),
            ];
            check_parts(layer, &prefix, parts);
            let of_head = layer.head_norms.as_ref().unwrap();
            norm(&of_head[0], &format!("{prefix}.self_attn.q_norm.weight"));
            norm(&of_head[1], &format!("{prefix}.self_attn.k_norm.weight"));
            norm(layer.attention_norm.as_ref().unwrap(), &format!("{prefix}.input_layernorm.weight"));
            match &layer.result_norms {
                None => norm(&layer.output_norm, &format!("{prefix}.post_attention_layernorm.weight")),
                Some([attention, output]) => {
                    norm(attention, &format!("{prefix}.post_attention_layernorm.weight"));
                    norm(&layer.output_norm, &format!("{prefix}.pre_feedforward_layernorm.weight"));
                    norm(output, &format!("{prefix}.post_feedforward_layernorm.weight"));
                }
            }
            // The first layer of this Gemma has a window.
            assert_eq!((layer.result_norms.is_some(), layer.window), (gemma, (gemma && n == 0).then_some(3)));
        }
        let shape = network.shape;
        assert_eq!((shape.heads, shape.key_heads, shape.head_size, shape.causal), (2, 1, 6, !gemma));
        assert_eq!((shape.norm_kind, shape.norm_order), (NormKind::Rms, NormOrder::Before));
        let rotary = shape.rotary.unwrap();
        assert_eq!(
            (rotary.base, rotary.window_base),
            (1_000_000.0, if gemma { 10_000.0 } else { 1_000_000.0 })
        );
        assert!(!folder.config().architecture.is_trainable());
    }
}

#[test]
fn fingerprints_depend_on_rotary_positions_and_windows() {
    let fingerprint = |key: &str, value: Value| {
        let mut builder = Builder::modern_bert();
        builder.set(key, value);
        builder.open().unwrap().fingerprint().unwrap()
    };
    let all = [
        fingerprint("local_attention", json!(8)),
        fingerprint("local_attention", json!(10)),
        fingerprint("global_rope_theta", json!(5000.0)),
        fingerprint("local_rope_theta", json!(5000.0)),
        fingerprint("global_attn_every_n_layers", json!(1)),
    ];
    for (n, one) in all.iter().enumerate() {
        assert!(all[n + 1..].iter().all(|other| one != other), "{n}");
    }
    assert_eq!(all[0], fingerprint("pad_token_id", json!(0)));
}
