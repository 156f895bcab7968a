//! Parameters of encoders of the BERT family, and batches of token sequences, the input of an encoder. None of these
//! types depends on the file format of a model.

use std::sync::Arc;

/// Sizes of a network, and the settings in which encoders of the BERT family differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Width of a hidden state.
    pub hidden: usize,
    /// Number of attention heads, a divisor of `hidden`.
    pub heads: usize,
    /// Inner width of the feed-forward block.
    pub intermediate: usize,
    /// Activation function of the feed-forward block.
    pub activation: Activation,
    /// Epsilon that layer norms add to the variance.
    pub norm_epsilon: f32,
    /// Row of the position table for the first token of a sequence: 0 for BERT, and the id of the padding token plus 1
    /// for RoBERTa.
    pub first_position: usize,
}

impl Shape {
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
    /// Bias: one element per output.
    pub bias: Vec<f32>,
}

/// Parameters of a layer norm.
#[derive(Debug, Clone, PartialEq)]
pub struct Norm {
    /// Scale of each component.
    pub weight: Vec<f32>,
    /// Bias of each component.
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
    /// Position embeddings. The first token of a sequence uses row [`Shape::first_position`].
    pub positions: Table,
    /// Segment embeddings; `None` for DistilBERT, which has no segment embeddings.
    pub types: Option<Table>,
    /// Embeddings of the number of a turn in its dialogue, if the model was trained with turn embeddings.
    pub turns: Option<Table>,
    /// Embeddings of the speaker role, if the model was trained with role embeddings.
    pub roles: Option<Table>,
    /// Layer norm that is applied to the sum of the embeddings.
    pub norm: Norm,
}

impl Embeddings {
    /// Returns the required tables, then the optional tables that are present.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        let optional = [&self.types, &self.turns, &self.roles].into_iter().flatten();
        [&self.words, &self.positions].into_iter().chain(optional)
    }
}

/// One transformer layer (post-norm: the output of each sublayer is added to its input, and the sum is normalized).
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Query projection; the outputs of the heads are concatenated.
    pub query: Linear,
    /// Key projection.
    pub key: Linear,
    /// Value projection.
    pub value: Linear,
    /// Output projection of attention.
    pub attention_output: Linear,
    /// Layer norm after attention and its residual connection.
    pub attention_norm: Norm,
    /// First linear layer of the feed-forward block.
    pub intermediate: Linear,
    /// Second linear layer of the feed-forward block.
    pub output: Linear,
    /// Layer norm after the feed-forward block and its residual connection.
    pub output_norm: Norm,
}

/// Relative position bias of MPNet: numbers that are added to the attention scores of every layer, by head and by the
/// distance between the query and the key.
#[derive(Debug, Clone, PartialEq)]
pub struct RelativeBias {
    /// Number of heads.
    pub heads: usize,
    /// Elements of the table: a row for each of the [`RelativeBias::BUCKETS`] groups of distances, with an element for
    /// each head.
    pub data: Vec<f32>,
}

impl RelativeBias {
    /// Number of groups of distances: 16 for keys before the query or at the same position, and 16 for keys after it.
    pub const BUCKETS: usize = 32;

    /// Returns the row of the table for a distance: the position of the key minus that of the query.
    ///
    /// Distances below 8 have rows of their own. The others are grouped on a logarithmic scale, two rows for each power
    /// of two; all distances of 91 and more share a row.
    pub fn bucket(distance: isize) -> usize {
        const SIDE: usize = RelativeBias::BUCKETS / 2;
        const EXACT: usize = SIDE / 2;
        let n = distance.unsigned_abs();
        // EXACT + 2·log₂(n / EXACT), rounded down.
        let far = || EXACT + (n * n).ilog2() as usize - 2 * EXACT.ilog2() as usize;
        let row = if n < EXACT { n } else { far().min(SIDE - 1) };
        if distance > 0 { SIDE + row } else { row }
    }

    /// Returns the bias of a head at every distance, from `-(tokens - 1)` to `tokens - 1`.
    pub fn by_distance(&self, head: usize, tokens: usize) -> impl Iterator<Item = f32> {
        let most = tokens as isize - 1;
        (-most..=most).map(move |distance| self.data[Self::bucket(distance) * self.heads + head])
    }

    /// Adds the gradient of the bias of a head at every distance (see [`RelativeBias::by_distance`]) to the gradient of
    /// the table.
    pub fn add_gradient(of_table: &mut [f32], head: usize, by_distance: &[f32]) {
        let heads = of_table.len() / Self::BUCKETS;
        let most = by_distance.len() as isize / 2;
        for (distance, gradient) in (-most..=most).zip(by_distance) {
            of_table[Self::bucket(distance) * heads + head] += gradient;
        }
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

    /// Returns the maximum number of tokens in a sequence.
    pub fn max_tokens(&self) -> usize {
        self.embeddings.positions.rows.saturating_sub(self.shape.first_position)
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> usize {
        let linear = |l: &Linear| l.weight.len() + l.bias.len();
        let norm = |n: &Norm| n.weight.len() + n.bias.len();
        let e = &self.embeddings;
        let layers = self.layers.iter().map(|l| {
            [&l.query, &l.key, &l.value, &l.attention_output, &l.intermediate, &l.output]
                .map(linear)
                .iter()
                .sum::<usize>()
                + norm(&l.attention_norm)
                + norm(&l.output_norm)
        });
        let tables = e.tables().map(|table| table.data.len()).sum::<usize>();
        let bias = self.relative_bias.as_ref().map_or(0, |bias| bias.data.len());
        tables + norm(&e.norm) + bias + layers.sum::<usize>()
    }

    /// Creates a network with pseudo-random weights from a seed, for tests, benchmarks and examples.
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
        let h = shape.hidden;
        let mut linear = |inputs: usize, outputs: usize| Linear {
            inputs,
            outputs,
            // This scale keeps the outputs about as large as the inputs, as in a real model.
            weight: draw(inputs * outputs, 2.0 * (3.0 / inputs as f32).sqrt()),
            bias: draw(outputs, 0.2),
        };
        let mut parts = Vec::with_capacity(layers);
        for _ in 0..layers {
            parts.push((
                [linear(h, h), linear(h, h), linear(h, h), linear(h, h)],
                [linear(h, shape.intermediate), linear(shape.intermediate, h)],
            ));
        }
        let mut norm =
            || Norm { weight: draw(h, 0.5).into_iter().map(|w| w + 1.0).collect(), bias: draw(h, 0.2) };
        let layers = parts
            .into_iter()
            .map(|([query, key, value, attention_output], [intermediate, output])| Layer {
                query,
                key,
                value,
                attention_output,
                attention_norm: norm(),
                intermediate,
                output,
                output_norm: norm(),
            })
            .collect();
        let embedding_norm = norm();
        let mut table = |rows: usize| Table { rows, data: draw(rows * h, 1.0) };
        let embeddings = Embeddings {
            words: table(vocabulary),
            positions: table(positions + shape.first_position),
            types: Some(table(2)),
            turns: None,
            roles: None,
            norm: embedding_norm,
        };
        Network { shape, embeddings, relative_bias: None, layers }
    }
}

/// Tokens of one text or dialogue, the input of a network.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sequence {
    /// Token ids, special tokens included.
    pub ids: Vec<u32>,
    /// Segment id of each token. `None` means that all ids are 0.
    pub types: Option<Vec<u32>>,
    /// Position of each token, counted from 0; [`Shape::first_position`] is added to it. If this field is `None`, the
    /// positions come from [`Shape::positions`].
    pub positions: Option<Vec<u32>>,
    /// Turn number of each token, for networks with turn embeddings. `None` means that all numbers are 0.
    pub turns: Option<Vec<u32>>,
    /// Speaker role id of each token, for networks with role embeddings. `None` means that all ids are 0.
    pub roles: Option<Vec<u32>>,
    /// Vectors that replace the word embeddings of some tokens, for networks that read the vectors of whole utterances.
    pub vectors: Option<InputVectors>,
}

/// Vectors that replace the word embeddings of some tokens of a sequence. The embeddings of the position and of the
/// segment are added to them, as to word embeddings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InputVectors {
    /// Index of each replaced token in the sequence, in ascending order.
    pub tokens: Vec<u32>,
    /// The vectors, one after the other. Sequences with the same history share them.
    pub elements: Arc<[f32]>,
}

impl Sequence {
    /// Creates a sequence from token ids. The other fields are `None`.
    pub fn new(ids: Vec<u32>) -> Self {
        Sequence { ids, ..Sequence::default() }
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if the sequence has no tokens.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Sequences that a network processes in one call, and the number of threads.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The sequences. None of them may be empty: running a batch with an empty sequence returns an error.
    pub sequences: &'a [&'a Sequence],
    /// Maximum number of threads that share the work. If there are at least as many batches as threads, one thread per
    /// batch is fastest. For a single query, use all threads.
    pub threads: usize,
}

impl<'a> Batch<'a> {
    /// Creates a batch that is computed on one thread.
    pub fn new(sequences: &'a [&'a Sequence]) -> Self {
        Batch { sequences, threads: 1 }
    }

    /// Returns the number of tokens in all sequences.
    pub fn tokens(&self) -> usize {
        self.sequences.iter().map(|s| s.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_inside_a_text_is_not_counted_when_positions_start_after_the_padding_id() {
        let mut shape = Shape {
            hidden: 8,
            heads: 2,
            intermediate: 16,
            activation: Activation::Gelu,
            norm_epsilon: 1e-12,
            first_position: 2,
        };
        let positions = |shape: &Shape| shape.positions(&[0, 1, 7, 1, 9]).collect::<Vec<_>>();
        assert_eq!(positions(&shape), [2, 1, 3, 1, 4]);
        shape.first_position = 0;
        assert_eq!(positions(&shape), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn distances_are_grouped_as_by_mpnet() {
        // From `MPNetEncoder.relative_position_bucket` of transformers.
        let far = [8, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128, 511];
        let rows = [8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 15, 15];
        for (distance, row) in (0..8).zip(0..8).chain(far.into_iter().zip(rows)) {
            assert_eq!(RelativeBias::bucket(-distance), row, "{distance}");
            assert_eq!(RelativeBias::bucket(distance), row + if distance > 0 { 16 } else { 0 }, "{distance}");
        }
        let bias = RelativeBias { heads: 2, data: (0..64).map(|i| i as f32).collect() };
        let of_second_head: Vec<f32> = bias.by_distance(1, 3).collect();
        assert_eq!(of_second_head, [2, 1, 0, 17, 18].map(|row| (2 * row + 1) as f32));
    }

    #[test]
    fn a_random_network_has_the_requested_size() {
        let shape = Shape {
            hidden: 8,
            heads: 2,
            intermediate: 16,
            activation: Activation::Gelu,
            norm_epsilon: 1e-12,
            first_position: 0,
        };
        let network = Network::random(shape.clone(), 2, 10, 5, 7);
        let layer = 4 * (8 * 8 + 8) + (8 * 16 + 16) + (16 * 8 + 8) + 4 * 8;
        assert_eq!(network.parameters(), (10 + 5 + 2) * 8 + 16 + 2 * layer);
        assert_eq!(network.max_tokens(), 5);
        assert_eq!(network, Network::random(shape, 2, 10, 5, 7));
    }
}
