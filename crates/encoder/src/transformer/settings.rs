//! Settings that override the configuration of a transformer model.

use serde::{Deserialize, Serialize};

use crate::{DeviceChoice, Precision, folder::PoolingMode};

/// Settings of a transformer. By default, the model's own settings are used.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// Device to run on.
    pub device: DeviceChoice,
    /// Numeric precision. `None` selects the fastest one with a small loss of quality; see [`crate::open`].
    pub precision: Option<Precision>,
    /// Layers, pooling and maximum number of tokens.
    pub tokens: Tokens,
    /// True to L2-normalize the vectors even if the model does not.
    pub normalize: bool,
    /// Number of dimensions to keep; `None` uses the model's setting. Useful for models that were trained for
    /// truncation (Matryoshka).
    pub dim: Option<usize>,
}

/// Pooling, layers and maximum number of tokens. `None` selects the model's own setting.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tokens {
    /// Pooling mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pooling: Option<PoolingMode>,
    /// Layers to pool, with their weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<Layers>,
    /// Maximum number of tokens per text or window of a dialogue, within the model's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<usize>,
}

impl Tokens {
    /// Returns these settings. A setting that is `None` is taken from `others`.
    pub fn or(self, others: &Tokens) -> Self {
        Tokens {
            pooling: self.pooling.or(others.pooling),
            layers: self.layers.or_else(|| others.layers.clone()),
            max: self.max.or(others.max),
        }
    }
}

impl std::fmt::Display for Tokens {
    /// Formats the settings that are not `None`. The text is empty if all settings are `None`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let settings = [
            self.pooling.map(|mode| format!("{} pooling", mode.name())),
            self.layers.as_ref().map(|layers| format!("layers {layers}")),
            self.max.map(|max| format!("at most {max} tokens")),
        ];
        f.write_str(&settings.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// Layers to pool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Layers {
    /// The last layer.
    #[default]
    Last,
    /// The layer with this number; 0 means the embeddings.
    One(usize),
    /// Weighted sum of the first layer (not the embeddings) and the last layer.
    FirstLast(f32, f32),
}

impl Layers {
    /// Returns the layers in ascending order, with their weights. `count` is the number of layers of the network.
    /// Returns `None` if a layer does not exist.
    pub(super) fn weights(&self, count: usize) -> Option<Vec<(usize, f32)>> {
        match *self {
            Layers::Last => Some(vec![(count, 1.0)]),
            Layers::One(layer) => (layer <= count).then(|| vec![(layer, 1.0)]),
            Layers::FirstLast(first, last) if count > 1 => Some(vec![(1, first), (count, last)]),
            Layers::FirstLast(first, last) => Some(vec![(count, first + last)]),
        }
    }
}

impl std::str::FromStr for Layers {
    type Err = turnwise_core::Error;

    /// Parses `last`, `first-last`, `first-last=0.4,0.6` or a number.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            turnwise_core::Error::input(format!("invalid layers `{text}`"))
                .with_hint("use last, a number (0 is the embeddings), or first-last=0.4,0.6")
        };
        match text {
            "last" => return Ok(Layers::Last),
            "first-last" => return Ok(Layers::FirstLast(0.5, 0.5)),
            _ => {}
        }
        if let Some(weights) = text.strip_prefix("first-last=") {
            let number = |t: &str| t.trim().parse::<f32>().ok().filter(|n| n.is_finite());
            let pair = weights.split_once(',').and_then(|(a, b)| Some((number(a)?, number(b)?)));
            // If both weights were zero, every vector would be zero.
            let (first, last) = pair.filter(|pair| *pair != (0.0, 0.0)).ok_or_else(wrong)?;
            return Ok(Layers::FirstLast(first, last));
        }
        text.parse().map(Layers::One).map_err(|_| wrong())
    }
}

impl TryFrom<String> for Layers {
    type Error = turnwise_core::Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Layers> for String {
    fn from(layers: Layers) -> Self {
        layers.to_string()
    }
}

impl std::fmt::Display for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Layers::Last => f.write_str("last"),
            Layers::One(layer) => write!(f, "{layer}"),
            Layers::FirstLast(first, last) => write!(f, "first-last={first},{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_parsed_as_they_are_printed() {
        for text in ["last", "0", "6", "first-last=0.4,0.6"] {
            assert_eq!(text.parse::<Layers>().unwrap().to_string(), text);
        }
        assert_eq!("first-last".parse::<Layers>().unwrap(), Layers::FirstLast(0.5, 0.5));
        for text in ["", "-1", "first-last=1", "first-last=a,b", "first-last=0,0", "all"] {
            assert!(text.parse::<Layers>().is_err(), "{text}");
        }
        assert_eq!(Layers::One(7).weights(6), None);
        assert_eq!(Layers::FirstLast(0.25, 0.75).weights(6), Some(vec![(1, 0.25), (6, 0.75)]));
        assert_eq!(Layers::FirstLast(0.25, 0.75).weights(1), Some(vec![(1, 1.0)]));
    }
}
