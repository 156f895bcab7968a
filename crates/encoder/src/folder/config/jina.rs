//! `config.json` of JinaBERT, such as jina-embeddings-v2.

use turnwise_core::error::Result;

use super::{Architecture, Config, Object, Variant, WithoutBias, check_heads, check_max_tokens, epsilon};
use crate::network::{Activation, LinearBias, Shape};

/// Reads the configuration of a JinaBERT.
pub(super) fn jina_bert(file: &Object) -> Result<Config> {
    let (hidden, heads) = (file.size("hidden_size")?, file.size("num_attention_heads")?);
    check_heads(file, hidden, heads)?;
    let activation = match file.text("feed_forward_type")? {
        Some("geglu") => Activation::Gelu,
        Some("reglu") => Activation::Relu,
        other => {
            return Err(file
                .wrong(format!("`feed_forward_type` is {other:?}, which is not supported"))
                .with_hint("supported: geglu, reglu"));
        }
    };
    let max_tokens = file.positive("max_position_embeddings")?.unwrap_or(8192);
    check_max_tokens(file, max_tokens)?;
    Ok(Config {
        architecture: Architecture::JinaBert,
        shape: Shape {
            activation,
            norm_epsilon: epsilon(file, "layer_norm_eps", 1e-12)?,
            linear_bias: Some(LinearBias { max_tokens }),
            ..Shape::bert(hidden, heads, file.size("intermediate_size")?)
        },
        layers: file.size("num_hidden_layers")?,
        words: file.size("vocab_size")?,
        positions: max_tokens,
        types: file.count("type_vocab_size")?.unwrap_or(2),
        padding: file.count("pad_token_id")?.map(|n| n as u32),
        variant: Variant {
            without_bias: WithoutBias { intermediate: true, ..WithoutBias::default() },
            gated: true,
            ..Variant::default()
        },
    })
}
