//! Parameters of transformer encoders, and batches of token sequences, the input of an encoder. None of these types
//! depends on the file format of a model.

mod batch;
mod positions;

pub use batch::{Batch, InputVectors, Sequence};
pub use positions::{LinearBias, RelativeBias, Rotary};

/// Sizes of a network, and the settings in which encoders differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Width of a hidden state.
    pub hidden: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Width of the queries, keys and values of a head.
    pub head_size: usize,
    /// Number of heads of the keys and values, a divisor of `heads`. Groups of query heads share a key head if it is
    /// smaller (grouped-query attention).
    pub key_heads: usize,
    /// Inner width of the feed-forward block.
    pub intermediate: usize,
    /// Activation function of the feed-forward block.
    pub activation: Activation,
    /// Epsilon that layer norms add to the variance.
    pub norm_epsilon: f32,
    /// Row of the position table for the first token of a sequence: 0 for BERT, and the id of the padding token plus 1
    /// for RoBERTa.
    pub first_position: usize,
    /// Location of the norms.
    pub norm_order: NormOrder,
    /// Kind of the norms.
    pub norm_kind: NormKind,
    /// True if a token attends only to itself and to the tokens before it.
    pub causal: bool,
    /// Rotary position embedding; `None` for networks that have none.
    pub rotary: Option<Rotary>,
    /// Linear bias of the attention scores; `None` for networks that have none.
    pub linear_bias: Option<LinearBias>,
}

/// Kind of the norms of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// Layer norm: subtracts the mean and divides by the standard deviation.
    Layer,
    /// RMS norm: divides by the root of the mean square.
    Rms,
}

/// Location of the norms of a transformer layer, which consists of two sublayers: attention and the feed-forward
/// block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormOrder {
    /// The output of a sublayer is added to its input, and the sum is normalized, as in BERT (post-norm).
    After,
    /// The input of a sublayer is normalized. Its output is added to the input before the norm (pre-norm).
    Before,
}

impl Shape {
    /// Returns a shape with the settings of BERT. Panics if `heads` is 0.
    pub const fn bert(hidden: usize, heads: usize, intermediate: usize) -> Self {
        Shape {
            hidden,
            heads,
            head_size: hidden / heads,
            key_heads: heads,
            intermediate,
            activation: Activation::Gelu,
            norm_epsilon: 1e-12,
            first_position: 0,
            norm_order: NormOrder::After,
            norm_kind: NormKind::Layer,
            causal: false,
            rotary: None,
            linear_bias: None,
        }
    }

    /// Returns the row of the position table for each token of a sequence.
    ///
    /// If `first_position` is not 0 (RoBERTa), tokens with the id `first_position - 1` are padding. A padding token
    /// uses row `first_position - 1`, and the positions of the other tokens do not count it.
    pub fn positions(&self, ids: &[u32]) -> impl Iterator<Item = usize> {
        let padding = self.first_position.checked_sub(1);
        let mut next = self.first_position;
        ids.iter().map(move |id| match padding {
            Some(padding) if *id as usize == padding => padding,
            _ => {
                next += 1;
                next - 1
            }
        })
    }
}

/// Activation function of the feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// GELU: `x·Φ(x)`, where Φ is the standard normal distribution function.
    Gelu,
    /// GELU by the tanh approximation (`gelu_new` and `gelu_pytorch_tanh` in transformers).
    GeluTanh,
    /// ReLU: `max(x, 0)`.
    Relu,
    /// SiLU: `x / (1 + e⁻ˣ)`, also called swish.
    Silu,
}

impl Activation {
    /// All activation functions.
    pub const ALL: [Activation; 4] =
        [Activation::Gelu, Activation::GeluTanh, Activation::Relu, Activation::Silu];
}

/// Linear layer, `y = W·x + b`.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// Width of `x`.
    pub inputs: usize,
    /// Width of `y`.
    pub outputs: usize,
    /// Weight matrix: `outputs` rows of `inputs` elements.
    pub weight: Vec<f32>,
    /// Bias: one element per output. It is 0 if the model has no bias.
    pub bias: Vec<f32>,
}

/// Parameters of a norm.
#[derive(Debug, Clone, PartialEq)]
pub struct Norm {
    /// Scale of each component.
    pub weight: Vec<f32>,
    /// Bias of each component. It is 0 if the model has no bias.
    pub bias: Vec<f32>,
}

/// Embedding table. The width of a row is the hidden width of the network.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Number of rows.
    pub rows: usize,
    /// Elements of all rows, row by row.
    pub data: Vec<f32>,
}

/// Embedding tables. The input of the first layer is the sum of a token's embeddings, normalized.
#[derive(Debug, Clone, PartialEq)]
pub struct Embeddings {
    /// Word embeddings, by token id.
    pub words: Table,
    /// Position embeddings. The first token of a sequence uses row [`Shape::first_position`]. `None` for networks with a
    /// rotary position embedding or a linear bias.
    pub positions: Option<Table>,
    /// Segment embeddings; `None` for DistilBERT, which has no segment embeddings.
    pub types: Option<Table>,
    /// Embeddings of the number of a turn in its dialogue, if the model was trained with turn embeddings.
    pub turns: Option<Table>,
    /// Embeddings of the speaker role, if the model was trained with role embeddings.
    pub roles: Option<Table>,
    /// Norm that is applied to the sum of the embeddings; `None` for networks that have none.
    pub norm: Option<Norm>,
}

impl Embeddings {
    /// Returns the word embeddings, then the optional tables that are present.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        let optional = [&self.positions, &self.types, &self.turns, &self.roles].into_iter().flatten();
        std::iter::once(&self.words).chain(optional)
    }
}

/// One transformer layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Query projection; the outputs of the heads are concatenated.
    pub query: Linear,
    /// Key projection.
    pub key: Linear,
    /// Value projection.
    pub value: Linear,
    /// Norms of the queries and of the keys of each head; `None` for networks that have none.
    pub head_norms: Option<[Norm; 2]>,
    /// Output projection of attention.
    pub attention_output: Linear,
    /// Norm of attention (see [`NormOrder`]). `None` for the first layer of ModernBERT, whose input is already
    /// normalized.
    pub attention_norm: Option<Norm>,
    /// First linear layer of the feed-forward block. The activation function is applied to its output.
    pub intermediate: Linear,
    /// Linear layer whose output is multiplied by the activations of `intermediate` (gated linear unit); `None` in a
    /// feed-forward block without a gate.
    pub gate: Option<Linear>,
    /// Last linear layer of the feed-forward block.
    pub output: Linear,
    /// Norm of the feed-forward block (see [`NormOrder`]).
    pub output_norm: Norm,
    /// Norms of the outputs of attention and of the feed-forward block, applied before the outputs are added to their
    /// inputs. Only Gemma has them.
    pub result_norms: Option<[Norm; 2]>,
    /// If this is set, a token attends only to the tokens whose distance is at most this number.
    pub window: Option<usize>,
}

impl Layer {
    /// Returns the norms of hidden states, which are all norms except those of heads.
    pub(crate) fn norms_of_states(&self) -> impl Iterator<Item = &Norm> {
        self.attention_norm.iter().chain([&self.output_norm]).chain(self.result_norms.iter().flatten())
    }
}

/// Parameters of an encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Sizes and settings.
    pub shape: Shape,
    /// Embedding tables.
    pub embeddings: Embeddings,
    /// Relative position bias; `None` for all architectures except MPNet.
    pub relative_bias: Option<RelativeBias>,
    /// Transformer layers, from the input to the output.
    pub layers: Vec<Layer>,
    /// Norm after the last layer; `None` for networks that have none.
    pub final_norm: Option<Norm>,
}

impl Network {
    /// Adds segment embeddings until there are at least `rows`. Each new row is a copy of the first one. Returns true if
    /// rows were added; a network without segment embeddings gets none.
    pub fn add_segments(&mut self, rows: usize) -> bool {
        let Some(types) = &mut self.embeddings.types else { return false };
        let missing = rows.saturating_sub(types.rows);
        for _ in 0..missing {
            types.data.extend_from_within(..self.shape.hidden);
        }
        types.rows += missing;
        missing > 0
    }

    /// Returns the maximum number of tokens in a sequence. A network without layers and positions has no limit.
    pub fn max_tokens(&self) -> usize {
        let of_table = || self.embeddings.positions.as_ref().map_or(0, |table| table.rows);
        if self.layers.is_empty() && self.embeddings.positions.is_none() {
            return usize::MAX;
        }
        match (self.shape.rotary, self.shape.linear_bias) {
            (Some(rotary), _) => rotary.max_tokens,
            (None, Some(bias)) => bias.max_tokens,
            (None, None) => of_table().saturating_sub(self.shape.first_position),
        }
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> usize {
        let linear = |l: &Linear| l.weight.len() + l.bias.len();
        let norm = |n: &Norm| n.weight.len() + n.bias.len();
        let e = &self.embeddings;
        let layers = self.layers.iter().map(|l| {
            let linears = [&l.query, &l.key, &l.value, &l.attention_output, &l.intermediate, &l.output];
            linears.into_iter().chain(&l.gate).map(linear).sum::<usize>()
                + l.norms_of_states().chain(l.head_norms.iter().flatten()).map(norm).sum::<usize>()
        });
        let tables = e.tables().map(|table| table.data.len()).sum::<usize>();
        let bias = self.relative_bias.as_ref().map_or(0, |bias| bias.data.len());
        let norms = e.norm.iter().chain(&self.final_norm).map(norm).sum::<usize>();
        tables + norms + bias + layers.sum::<usize>()
    }

    /// Creates a network with pseudo-random weights from a seed, for tests, benchmarks and examples. A network with a
    /// rotary position embedding or a linear bias gets gates. A network whose norms are before the sublayers gets a final norm, but no
    /// norm of attention in the first layer, as ModernBERT.
    pub fn random(shape: Shape, layers: usize, vocabulary: usize, positions: usize, seed: u64) -> Self {
        // SplitMix64 needs little code, and it generates the same numbers on every platform.
        let mut state = seed;
        let mut next = move || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let mut draw = |n: usize, scale: f32| -> Vec<f32> { (0..n).map(|_| next() * scale).collect() };
        let (h, queries, keys) =
            (shape.hidden, shape.heads * shape.head_size, shape.key_heads * shape.head_size);
        let mut linear = |inputs: usize, outputs: usize| Linear {
            inputs,
            outputs,
            // This scale keeps the outputs about as large as the inputs, as in a real model.
            weight: draw(inputs * outputs, 2.0 * (3.0 / inputs as f32).sqrt()),
            bias: draw(outputs, 0.2),
        };
        let before = shape.norm_order == NormOrder::Before;
        let has_table = shape.rotary.is_none() && shape.linear_bias.is_none();
        let mut parts = Vec::with_capacity(layers);
        for _ in 0..layers {
            parts.push((
                [linear(h, queries), linear(h, keys), linear(h, keys), linear(queries, h)],
                [linear(h, shape.intermediate), linear(shape.intermediate, h)],
                (!has_table).then(|| linear(h, shape.intermediate)),
            ));
        }
        let mut norm =
            || Norm { weight: draw(h, 0.5).into_iter().map(|w| w + 1.0).collect(), bias: draw(h, 0.2) };
        let layers = parts
            .into_iter()
            .enumerate()
            .map(|(number, ([query, key, value, attention_output], [intermediate, output], gate))| Layer {
                query,
                key,
                value,
                head_norms: None,
                attention_output,
                attention_norm: (number > 0 || !before).then(&mut norm),
                intermediate,
                gate,
                output,
                output_norm: norm(),
                result_norms: None,
                window: None,
            })
            .collect();
        let embedding_norm = norm();
        let final_norm = before.then(&mut norm);
        let mut table = |rows: usize| Table { rows, data: draw(rows * h, 1.0) };
        let embeddings = Embeddings {
            words: table(vocabulary),
            positions: has_table.then(|| table(positions + shape.first_position)),
            types: Some(table(2)),
            turns: None,
            roles: None,
            norm: Some(embedding_norm),
        };
        Network { shape, embeddings, relative_bias: None, layers, final_norm }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_inside_a_text_is_not_counted_when_positions_start_after_the_padding_id() {
        let mut shape = Shape { first_position: 2, ..Shape::bert(8, 2, 16) };
        let positions = |shape: &Shape| shape.positions(&[0, 1, 7, 1, 9]).collect::<Vec<_>>();
        assert_eq!(positions(&shape), [2, 1, 3, 1, 4]);
        shape.first_position = 0;
        assert_eq!(positions(&shape), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_random_network_has_the_requested_size() {
        let shape = Shape::bert(8, 2, 16);
        let network = Network::random(shape.clone(), 2, 10, 5, 7);
        let layer = 4 * (8 * 8 + 8) + (8 * 16 + 16) + (16 * 8 + 8) + 4 * 8;
        assert_eq!(network.parameters(), (10 + 5 + 2) * 8 + 16 + 2 * layer);
        assert_eq!(network.max_tokens(), 5);
        assert_eq!(network, Network::random(shape, 2, 10, 5, 7));
    }
}
