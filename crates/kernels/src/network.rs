//! The parameters of an encoder of the BERT family, as plain numbers, whatever file and naming they came from.

/// How large a network is and which variant of the family.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// The width of a hidden state.
    pub hidden: usize,
    /// Attention heads; they divide `hidden`.
    pub heads: usize,
    /// The width between the two products of the feed-forward part.
    pub intermediate: usize,
    /// What stands between them.
    pub activation: Activation,
    /// The number added to the variance in layer norms.
    pub norm_epsilon: f32,
    /// The position of a sequence's first token (RoBERTa counts from the padding id + 1).
    pub first_position: usize,
}

impl Shape {
    /// The rows of the table of positions that the tokens of a sequence take. Where positions count from the padding,
    /// the padding itself has the row in front of the first and is not counted, even where it is part of a text.
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

/// The function between the two products of the feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x·Φ(x)`, exact.
    Gelu,
    /// `x·Φ(x)` by the tanh approximation (`gelu_new`, `gelu_pytorch_tanh`).
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
}

/// `y = W·x + b`.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// Width of `x`.
    pub inputs: usize,
    /// Width of `y`.
    pub outputs: usize,
    /// `outputs` rows of `inputs`.
    pub weight: Vec<f32>,
    /// One number an output.
    pub bias: Vec<f32>,
}

/// Layer norm.
#[derive(Debug, Clone, PartialEq)]
pub struct Norm {
    /// The factors.
    pub weight: Vec<f32>,
    /// The summands.
    pub bias: Vec<f32>,
}

/// A table of rows of the hidden width.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// How many.
    pub rows: usize,
    /// `rows` rows.
    pub data: Vec<f32>,
}

/// What becomes of a token before the first layer: the sum of these, normed.
#[derive(Debug, Clone, PartialEq)]
pub struct Embeddings {
    /// By token id.
    pub words: Table,
    /// By position, [`Shape::first_position`] rows in front of the first used one.
    pub positions: Table,
    /// By segment; absent in DistilBERT.
    pub types: Option<Table>,
    /// By turn of the dialogue, where the model was trained with it.
    pub turns: Option<Table>,
    /// By role of the speaker, likewise.
    pub roles: Option<Table>,
    /// The norm of the sum.
    pub norm: Norm,
}

/// One layer (post-norm: each half adds to its input, then norms).
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Queries, heads side by side.
    pub query: Linear,
    /// Keys.
    pub key: Linear,
    /// Values.
    pub value: Linear,
    /// After the heads.
    pub attention_output: Linear,
    /// After attention and its input.
    pub attention_norm: Norm,
    /// Up.
    pub intermediate: Linear,
    /// Down.
    pub output: Linear,
    /// After feed-forward and its input.
    pub output_norm: Norm,
}

/// An encoder's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Sizes and variant.
    pub shape: Shape,
    /// In front of the layers.
    pub embeddings: Embeddings,
    /// From the bottom up.
    pub layers: Vec<Layer>,
}

impl Network {
    /// How many tokens a sequence may have.
    pub fn max_tokens(&self) -> usize {
        self.embeddings.positions.rows.saturating_sub(self.shape.first_position)
    }

    /// How many numbers it holds.
    pub fn parameters(&self) -> usize {
        let linear = |l: &Linear| l.weight.len() + l.bias.len();
        let norm = |n: &Norm| n.weight.len() + n.bias.len();
        let table = |t: &Table| t.data.len();
        let e = &self.embeddings;
        let tables =
            [Some(&e.words), Some(&e.positions), e.types.as_ref(), e.turns.as_ref(), e.roles.as_ref()];
        let layers = self.layers.iter().map(|l| {
            [&l.query, &l.key, &l.value, &l.attention_output, &l.intermediate, &l.output]
                .map(linear)
                .iter()
                .sum::<usize>()
                + norm(&l.attention_norm)
                + norm(&l.output_norm)
        });
        tables.into_iter().flatten().map(table).sum::<usize>() + norm(&e.norm) + layers.sum::<usize>()
    }

    /// A small network of numbers that are drawn from a seed: for tests, benchmarks and examples.
    pub fn random(shape: Shape, layers: usize, vocabulary: usize, positions: usize, seed: u64) -> Self {
        // SplitMix64: four lines, and the same numbers everywhere.
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
            // Outputs keep the size of inputs, so that activations look like a real model's.
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
        Network { shape, embeddings, layers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_within_a_text_is_not_counted_where_positions_count_from_it() {
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
    fn a_drawn_network_has_the_size_it_says() {
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
