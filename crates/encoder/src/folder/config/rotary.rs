//! `config.json` of architectures with a rotary position embedding: ModernBERT, NomicBERT and GTE.

use serde_json::Value;
use turnwise_core::error::Result;

use super::{
    Architecture, Config, Object, Variant, WithoutBias, activation, check_heads, check_max_tokens, epsilon,
    refuse_code,
};
use crate::network::{Activation, NormOrder, Rotary, Shape};

/// Reads the configuration of a ModernBERT.
pub(super) fn modern_bert(file: &Object) -> Result<Config> {
    refuse_code(file)?;
    let (hidden, heads) = (file.size("hidden_size")?, file.size("num_attention_heads")?);
    check_heads(file, hidden, heads)?;
    let layers = file.size("num_hidden_layers")?;
    let max_tokens = file.positive("max_position_embeddings")?.unwrap_or(8192);
    let has_bias = |key| Ok::<_, turnwise_core::Error>(file.flag(key)?.unwrap_or(false));
    let (attention, feed_forward) = (has_bias("attention_bias")?, has_bias("mlp_bias")?);
    let window = file.count("local_attention")?.unwrap_or(128) / 2;
    let every = file.positive("global_attn_every_n_layers")?.unwrap_or(3);
    let global = global_layers(file, layers, |layer| layer.is_multiple_of(every))?;
    let windows = global.into_iter().map(|global| (!global).then_some(window));
    if let Some(scaling) = file.get("rope_scaling") {
        refuse_scaling(file, scaling)?;
    }
    let classifier_pools_all = match file.text("classifier_pooling")? {
        None | Some("cls") => false,
        Some("mean") => true,
        Some(other) => {
            return Err(file.wrong(format!("`classifier_pooling` is `{other}`, which is not supported")));
        }
    };
    if let Some(other) = file.text("classifier_activation")?.filter(|activation| *activation != "gelu") {
        return Err(file.wrong(format!("`classifier_activation` is `{other}`; only `gelu` is supported")));
    }
    let rotary = Rotary {
        max_tokens,
        base: base_of_layers(file, "full_attention", "global_rope_theta", 160_000.0)?,
        window_base: base_of_layers(file, "sliding_attention", "local_rope_theta", 10_000.0)?,
        divisor: 1.0,
    };
    Ok(Config {
        architecture: Architecture::ModernBert,
        shape: Shape {
            activation: activation(file, "hidden_activation")?,
            norm_epsilon: epsilon(file, "norm_eps", 1e-5)?,
            norm_order: NormOrder::Before,
            rotary: Some(checked(file, hidden / heads, rotary)?),
            ..Shape::bert(hidden, heads, file.size("intermediate_size")?)
        },
        layers,
        words: file.size("vocab_size")?,
        positions: max_tokens,
        types: 0,
        padding: file.count("pad_token_id")?.map(|n| n as u32),
        variant: Variant {
            without_bias: WithoutBias {
                norms: !has_bias("norm_bias")?,
                projections: !attention,
                attention_output: !attention,
                intermediate: !feed_forward,
                output: !feed_forward,
            },
            gated: true,
            first_norm_is_missing: true,
            final_norm: true,
            windows: windows.collect(),
            classifier_pools_all,
            ..Variant::default()
        },
    })
}

/// Returns the base of the angles in layers of a type. transformers 5 writes the bases by the type of the layer; older
/// versions write one key per type.
pub(super) fn base_of_layers(file: &Object, kind: &str, key: &str, default: f64) -> Result<f64> {
    let of_kind = file.get("rope_parameters").and_then(|all| all.get(kind));
    let of_kind = of_kind.filter(|parameters| !parameters.is_null());
    if let Some(parameters) = of_kind {
        refuse_scaling(file, parameters)?;
    }
    match of_kind.and_then(|parameters| parameters.get("rope_theta")).and_then(Value::as_f64) {
        Some(base) => Ok(base),
        None => Ok(file.number(key)?.unwrap_or(default)),
    }
}

/// Returns for each layer whether its tokens attend to all tokens. `usual` is used if the file has no list of the types.
pub(super) fn global_layers(
    file: &Object,
    layers: usize,
    usual: impl Fn(usize) -> bool,
) -> Result<Vec<bool>> {
    let Some(kinds) = file.get("layer_types") else {
        return Ok((0..layers).map(usual).collect());
    };
    let global = |kind: &Value| match kind.as_str() {
        Some("full_attention") => Ok(true),
        Some("sliding_attention") => Ok(false),
        _ => Err(file.wrong(format!("`layer_types` contains {kind}, which is not supported"))),
    };
    let kinds = kinds.as_array().map(Vec::as_slice).unwrap_or_default();
    if kinds.len() != layers {
        return Err(file.wrong(format!("`layer_types` must have {layers} elements, one for each layer")));
    }
    kinds.iter().map(global).collect()
}

/// Reads the configuration of a NomicBERT, with the keys of its own code or with those of the `transformers` library.
pub(super) fn nomic_bert(file: &Object) -> Result<Config> {
    let size = |own: &str, common: &str| match file.get(own).is_some() {
        true => file.size(own),
        false => file.size(common),
    };
    for key in [
        "prenorm",
        "parallel_block",
        "use_rms_norm",
        "rotary_emb_interleaved",
        "causal",
        "scale_attn_by_inverse_layer_idx",
    ] {
        if file.flag(key)?.unwrap_or(false) {
            return Err(file.wrong(format!("`{key}` is true, which is not supported")));
        }
    }
    for key in ["rotary_scaling_factor", "rotary_emb_scale_base"] {
        if let Some(value) = file.get(key) {
            return Err(file.wrong(format!("`{key}` is {value}, which is not supported")));
        }
    }
    if file.count("moe_every_n_layers")?.is_some_and(|n| n > 0) {
        return Err(file.wrong("mixtures of experts are not supported"));
    }
    if let Some(fraction) = file.number("rotary_emb_fraction")?.filter(|fraction| *fraction != 1.0) {
        return Err(file.wrong(format!("`rotary_emb_fraction` is {fraction}; only 1 is supported")));
    }
    let (hidden, heads) = (size("n_embd", "hidden_size")?, size("n_head", "num_attention_heads")?);
    check_heads(file, hidden, heads)?;
    let activation = match file.text("activation_function")? {
        None => match file.get("hidden_act") {
            None => Activation::Silu,
            Some(_) => activation(file, "hidden_act")?,
        },
        Some("swiglu") => Activation::Silu,
        Some("geglu") => Activation::Gelu,
        Some(other) => {
            return Err(file
                .wrong(format!("the activation function `{other}` is not supported"))
                .with_hint("supported: swiglu, geglu"));
        }
    };
    let max_tokens = size("n_positions", "max_position_embeddings")?;
    let base = match file.number("rotary_emb_base")? {
        Some(base) => base,
        None => rope_base(file, 1000.0)?,
    };
    let has_bias = |key| Ok::<_, turnwise_core::Error>(file.flag(key)?.unwrap_or(false));
    let projections = has_bias("qkv_proj_bias")?;
    let epsilon_key = match file.get("layer_norm_epsilon") {
        Some(_) => "layer_norm_epsilon",
        None => "layer_norm_eps",
    };
    let rotary = Rotary { max_tokens, base, window_base: base, divisor: 1.0 };
    Ok(Config {
        architecture: Architecture::NomicBert,
        shape: Shape {
            activation,
            norm_epsilon: epsilon(file, epsilon_key, 1e-12)?,
            rotary: Some(checked(file, hidden / heads, rotary)?),
            ..Shape::bert(hidden, heads, size("n_inner", "intermediate_size")?)
        },
        layers: size("n_layer", "num_hidden_layers")?,
        words: file.size("vocab_size")?,
        positions: max_tokens,
        types: file.count("type_vocab_size")?.unwrap_or(2),
        padding: file.count("pad_token_id")?.map(|n| n as u32),
        variant: Variant {
            without_bias: WithoutBias {
                norms: false,
                projections: !projections,
                attention_output: !projections,
                intermediate: !has_bias("mlp_fc1_bias")?,
                output: !has_bias("mlp_fc2_bias")?,
            },
            gated: true,
            ..Variant::default()
        },
    })
}

/// Reads the configuration of a GTE model.
pub(super) fn gte(file: &Object, architecture: Architecture) -> Result<Config> {
    let (hidden, heads) = (file.size("hidden_size")?, file.size("num_attention_heads")?);
    check_heads(file, hidden, heads)?;
    for key in ["logn_attention_scale", "pack_qkv"] {
        // The key `pack_qkv` says how the projections are stored. All published models store them together.
        let usual = key == "pack_qkv";
        if file.flag(key)?.is_some_and(|value| value != usual) {
            return Err(file.wrong(format!("`{key}` is {}, which is not supported", !usual)));
        }
    }
    if let Some(kind) = file.text("layer_norm_type")?.filter(|kind| *kind != "layer_norm") {
        return Err(file.wrong(format!("the norm `{kind}` is not supported; use `layer_norm`")));
    }
    let max_tokens = file.positive("max_position_embeddings")?.unwrap_or(8192);
    let (base, divisor) = match file.get("rope_scaling") {
        None => (rope_base(file, 160_000.0)?, 1.0),
        Some(scaling) => {
            let factor = scaling.get("factor").and_then(Value::as_f64).filter(|factor| *factor >= 1.0);
            let kind = scaling.get("type").or_else(|| scaling.get("rope_type")).and_then(Value::as_str);
            let (Some("ntk"), Some(factor)) = (kind, factor) else {
                return Err(
                    file.wrong(format!("`rope_scaling` is {scaling}; only the type `ntk` is supported"))
                );
            };
            // The head size is even, as checked below.
            let divisor = factor.powf(2.0 / (hidden / heads) as f64);
            (file.number("rope_theta")?.unwrap_or(10_000.0) * factor, divisor)
        }
    };
    let rotary = Rotary { max_tokens, base, window_base: base, divisor };
    Ok(Config {
        architecture,
        shape: Shape {
            activation: activation(file, "hidden_act")?,
            norm_epsilon: epsilon(file, "layer_norm_eps", 1e-12)?,
            rotary: Some(checked(file, hidden / heads, rotary)?),
            ..Shape::bert(hidden, heads, file.size("intermediate_size")?)
        },
        layers: file.size("num_hidden_layers")?,
        words: file.size("vocab_size")?,
        positions: max_tokens,
        types: file.count("type_vocab_size")?.unwrap_or(1),
        padding: file.count("pad_token_id")?.map(|n| n as u32),
        variant: Variant {
            without_bias: WithoutBias { intermediate: true, ..WithoutBias::default() },
            gated: true,
            ..Variant::default()
        },
    })
}

/// Returns the base of the angles: from `rope_parameters` (transformers 5) or `rope_theta`.
pub(super) fn rope_base(file: &Object, default: f64) -> Result<f64> {
    if let Some(parameters) = file.get("rope_parameters") {
        refuse_scaling(file, parameters)?;
        if let Some(base) = parameters.get("rope_theta").and_then(Value::as_f64) {
            return Ok(base);
        }
    }
    Ok(file.number("rope_theta")?.unwrap_or(default))
}

/// Returns an error if the angles are scaled.
pub(super) fn refuse_scaling(file: &Object, parameters: &Value) -> Result<()> {
    let kind = parameters.get("rope_type").or_else(|| parameters.get("type")).and_then(Value::as_str);
    match kind {
        None | Some("default") => Ok(()),
        Some(kind) => Err(file.wrong(format!("the rotary position embedding `{kind}` is not supported"))),
    }
}

/// Returns the rotary position embedding. Fails if the size of a head is odd, or a base or the maximum number of tokens is
/// not valid.
pub(super) fn checked(file: &Object, head_size: usize, rotary: Rotary) -> Result<Rotary> {
    check_max_tokens(file, rotary.max_tokens)?;
    let valid = |base: f64| base.is_finite() && base >= 1.0;
    if !head_size.is_multiple_of(2) {
        return Err(file.wrong(format!("the size of a head is {head_size}, but must be even")));
    }
    if !valid(rotary.base) || !valid(rotary.window_base) {
        return Err(file.wrong("the base of the rotary position embedding must be at least 1"));
    }
    Ok(rotary)
}
