//! Biases of attention scores by distance, in the order in which attention reads them.

use crate::network::{LinearBias, Network, RelativeBias};

/// Biases of the attention scores of all heads by the distance between key and query, for sequences up to a maximum length.
#[derive(Debug, Clone)]
pub struct DistanceBias {
    /// Maximum number of tokens of a sequence.
    tokens: usize,
    /// Number of elements of a head.
    stride: usize,
    /// For each head, the bias at every distance, from `-(tokens - 1)` to `tokens - 1`, followed by zeros.
    data: Vec<f32>,
}

/// Number of zeros after the elements of a head. Kernels compute scores in blocks, so they read beyond the last key.
const SPARE: usize = 64;

impl DistanceBias {
    /// Computes the biases for sequences of at most `tokens` tokens.
    pub fn new(bias: &RelativeBias, tokens: usize) -> Self {
        DistanceBias::by_head(bias.heads, tokens, |head| bias.by_distance(head, tokens))
    }

    /// Computes the biases of a network; `None` if it has none.
    pub(crate) fn of(network: &Network) -> Option<Self> {
        let (tokens, heads) = (network.max_tokens(), network.shape.heads);
        match (&network.relative_bias, network.shape.linear_bias) {
            (Some(bias), _) => Some(DistanceBias::new(bias, tokens)),
            (None, Some(_)) => {
                let slopes = LinearBias::slopes(heads);
                Some(DistanceBias::by_head(heads, tokens, |head| {
                    LinearBias::by_distance(slopes[head], tokens)
                }))
            }
            (None, None) => None,
        }
    }

    /// Collects the biases of each head, in the order of their distances.
    fn by_head<I: Iterator<Item = f32>>(heads: usize, tokens: usize, biases: impl Fn(usize) -> I) -> Self {
        let stride = 2 * tokens + SPARE;
        let mut data = vec![0.0; heads * stride];
        for (head, elements) in data.chunks_exact_mut(stride).enumerate() {
            elements.iter_mut().zip(biases(head)).for_each(|(to, from)| *to = from);
        }
        DistanceBias { tokens, stride, data }
    }

    /// Returns true if there are biases for this number of heads and for sequences of this length.
    pub(crate) fn fits(&self, heads: usize, tokens: usize) -> bool {
        tokens <= self.tokens && self.data.len() == heads * self.stride
    }

    /// Returns the index of the bias of a head for a query and the first key. The biases for the next keys follow. Those
    /// for the next query start one element before.
    fn index(&self, head: usize, query: usize) -> usize {
        assert!(query < self.tokens, "the sequence is too long");
        head * self.stride + self.tokens - 1 - query
    }

    /// Returns the address of the bias of a head for a query and the first key. At least [`SPARE`] elements follow the
    /// bias for the last key.
    pub(super) fn first(&self, head: usize, query: usize) -> *const f32 {
        self.data.as_ptr().wrapping_add(self.index(head, query))
    }

    /// Returns the biases of a head for a query and the first `keys` keys.
    pub(crate) fn row(&self, head: usize, query: usize, keys: usize) -> &[f32] {
        &self.data[self.index(head, query)..][..keys]
    }
}
