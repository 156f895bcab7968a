//! `config.json` of decoders that compute embeddings: Qwen3 and Gemma 3.

use turnwise_core::error::Result;

use super::{
    Architecture, Config, Object, Variant, WithoutBias, activation, epsilon, refuse_code,
    rotary::{base_of_layers, checked, global_layers, refuse_scaling, rope_base},
};
use crate::network::{NormKind, NormOrder, Rotary, Shape};

/// Reads the configuration of a Qwen3.
pub(super) fn qwen3(file: &Object) -> Result<Config> {
    let max_tokens = file.positive("max_position_embeddings")?.unwrap_or(32_768);
    if file.flag("use_sliding_window")?.unwrap_or(false) {
        return Err(file.wrong("`use_sliding_window` is true, which is not supported"));
    }
    if let Some(scaling) = file.get("rope_scaling") {
        refuse_scaling(file, scaling)?;
    }
    let base = rope_base(file, 10_000.0)?;
    let config = decoder(
        file,
        Architecture::Qwen3,
        "hidden_act",
        Rotary { max_tokens, base, window_base: base, divisor: 1.0 },
    )?;
    let global = global_layers(file, config.layers, |_| true)?;
    if global.contains(&false) {
        return Err(file.wrong("`layer_types` contains sliding_attention, which is not supported for qwen3"));
    }
    Ok(Config { shape: Shape { causal: true, ..config.shape }, ..config })
}

/// Reads the configuration of a Gemma 3 for texts.
pub(super) fn gemma3(file: &Object) -> Result<Config> {
    let max_tokens = file.positive("max_position_embeddings")?.unwrap_or(131_072);
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if let Some(value) = file.get(key) {
            return Err(file.wrong(format!("`{key}` is {value}, which is not supported")));
        }
    }
    if let Some(scaling) = file.get("rope_scaling") {
        refuse_scaling(file, scaling)?;
    }
    let rotary = Rotary {
        max_tokens,
        base: base_of_layers(file, "full_attention", "rope_theta", 1_000_000.0)?,
        window_base: base_of_layers(file, "sliding_attention", "rope_local_base_freq", 10_000.0)?,
        divisor: 1.0,
    };
    let mut config = decoder(file, Architecture::Gemma3, "hidden_activation", rotary)?;
    let scalar = file.number("query_pre_attn_scalar")?.unwrap_or(256.0);
    if scalar != config.shape.head_size as f64 {
        return Err(file.wrong(format!(
            "`query_pre_attn_scalar` is {scalar}; only the size of a head, {}, is supported",
            config.shape.head_size
        )));
    }
    let causal = !file.flag("use_bidirectional_attention")?.unwrap_or(false);
    // Of a causal window, the token itself is a part. A window in both directions is divided in two.
    let size = file.positive("sliding_window")?.unwrap_or(4096);
    let window = if causal { size - 1 } else { size / 2 };
    let pattern =
        file.positive("sliding_window_pattern")?.or(file.positive("_sliding_window_pattern")?).unwrap_or(6);
    let global = global_layers(file, config.layers, |layer| (layer + 1).is_multiple_of(pattern))?;
    config.shape.causal = causal;
    config.variant.windows = global.into_iter().map(|global| (!global).then_some(window)).collect();
    config.variant.result_norms = true;
    config.variant.norms_add_one = true;
    config.variant.scaled_words = true;
    Ok(config)
}

/// Reads what the decoders have in common. `activation_key` is the key of the activation function.
fn decoder(
    file: &Object,
    architecture: Architecture,
    activation_key: &str,
    rotary: Rotary,
) -> Result<Config> {
    refuse_code(file)?;
    let heads = file.size("num_attention_heads")?;
    let key_heads = file.positive("num_key_value_heads")?.unwrap_or(heads);
    if !heads.is_multiple_of(key_heads) {
        return Err(file.wrong(format!(
            "the number of heads, {heads}, is not divisible by `num_key_value_heads`, {key_heads}"
        )));
    }
    let usual = if architecture == Architecture::Gemma3 { 256 } else { 128 };
    let head_size = file.positive("head_dim")?.unwrap_or(usual);
    let has_bias = file.flag("attention_bias")?.unwrap_or(false);
    Ok(Config {
        architecture,
        shape: Shape {
            hidden: file.size("hidden_size")?,
            heads,
            head_size,
            key_heads,
            intermediate: file.size("intermediate_size")?,
            activation: activation(file, activation_key)?,
            norm_epsilon: epsilon(file, "rms_norm_eps", 1e-6)?,
            first_position: 0,
            norm_order: NormOrder::Before,
            norm_kind: NormKind::Rms,
            causal: false,
            rotary: Some(checked(file, head_size, rotary)?),
            linear_bias: None,
        },
        layers: file.size("num_hidden_layers")?,
        words: file.size("vocab_size")?,
        positions: rotary.max_tokens,
        types: 0,
        padding: file.count("pad_token_id")?.map(|n| n as u32),
        variant: Variant {
            without_bias: WithoutBias {
                norms: true,
                projections: !has_bias,
                attention_output: !has_bias,
                intermediate: true,
                output: true,
            },
            gated: true,
            embedding_norm_is_missing: true,
            head_norms: true,
            final_norm: true,
            ..Variant::default()
        },
    })
}
