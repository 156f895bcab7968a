//! Reads the tensors of a folder into a [`Network`]. The parameters have a fixed order (see [`list`]) and BERT's names.
//! The names that other architectures use are translated (module `names`).

use rayon::prelude::*;
use turnwise_core::error::Result;

use crate::{
    folder::{
        config::{Config, Variant},
        names::{
            ATTENTION_NORM, ATTENTION_OUTPUT, EMBEDDING_NORM, FINAL_NORM, GATE, HEAD_NORMS, INTERMEDIATE,
            KEY, Names, OUTPUT, OUTPUT_NORM, POSITIONS, QUERY, RELATIVE_BIAS, RESULT_NORMS, ROLES, Source,
            TURNS, TYPES, VALUE, WORDS,
        },
        weights::{Tensor, Weights},
    },
    network::{Embeddings, Layer, Linear, Network, Norm, RelativeBias, Shape, Table},
};

/// Parameters of a network, with their names in the weight files. The shapes of the parameters have been checked.
#[derive(Debug, Default)]
pub struct Layout {
    counts: Counts,
    /// Prefix of the names of the tensors in the files, such as `bert.`.
    pub prefix: String,
    /// Parameters in the order of [`list`], with their locations in the files.
    parameters: Vec<(Parameter, Source)>,
    /// Notices about unused tensors.
    pub notices: Vec<String>,
}

impl Layout {
    /// Finds every parameter required by the configuration. Fails if a parameter is missing or has the wrong shape, or
    /// if the weights contain an unknown tensor that would change the vectors.
    pub fn find(config: &Config, weights: &Weights) -> Result<Self> {
        let names = Names::new(config.architecture, weights)?;
        let mut layout = Layout::with_names(config, weights, &names)?;
        layout.notices = names.unused(config, &layout.parameters)?;
        Ok(layout)
    }

    /// Finds the parameters of a second network of the same shape, whose tensors have names with this prefix.
    pub fn at(config: &Config, weights: &Weights, prefix: &str) -> Result<Self> {
        Layout::with_names(config, weights, &Names::at(config.architecture, weights, prefix.to_owned()))
    }

    fn with_names(config: &Config, weights: &Weights, names: &Names<'_>) -> Result<Self> {
        let rows = |name: &str| {
            let tensor = weights.get(&names.in_file(name).tensor)?;
            tensor.dims().first().copied()
        };
        let counts = Counts {
            words: config.words,
            positions: (config.shape.rotary.is_none() && config.shape.linear_bias.is_none())
                .then_some(config.positions),
            types: (config.types > 0).then_some(config.types),
            turns: rows(TURNS),
            roles: rows(ROLES),
            has_relative_bias: config.architecture.has_relative_bias(),
            layers: config.layers,
        };
        let parameters: Vec<_> = list(&config.shape, &counts, &config.variant)
            .into_iter()
            .map(|parameter| {
                let source = names.in_file(&parameter.name);
                source.read(weights, &parameter)?;
                Ok((parameter, source))
            })
            .collect::<Result<_>>()?;
        Ok(Layout { counts, prefix: names.prefix.clone(), parameters, notices: Vec::new() })
    }

    /// Reads the network. Fails if a value is not finite.
    pub fn read(&self, config: &Config, weights: &Weights) -> Result<Network> {
        let values = self.parameters.par_iter().map(|(p, source)| source.read(weights, p)?.numbers());
        let values = values.collect::<Result<Vec<_>>>()?;
        Ok(assemble(&config.shape, &self.counts, &config.variant, values))
    }

    /// Returns all parameters with their tensors, in the order of [`list`].
    pub fn tensors<'a>(&'a self, weights: &'a Weights) -> Result<Vec<(&'a Parameter, Tensor<'a>)>> {
        self.parameters.iter().map(|(p, source)| Ok((p, source.read(weights, p)?))).collect()
    }
}

/// Name and shape of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// BERT's name of the parameter.
    pub name: String,
    /// Shape: `[rows, columns]` for a matrix, `[length]` for a vector.
    pub dims: Vec<usize>,
}

/// Number of rows of each embedding table, and number of layers. `None` means that the network does not have the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub words: usize,
    pub positions: Option<usize>,
    pub types: Option<usize>,
    pub turns: Option<usize>,
    pub roles: Option<usize>,
    pub has_relative_bias: bool,
    pub layers: usize,
}

/// Returns the names and shapes of all parameters of a network with the given sizes, in a fixed order.
pub fn list(shape: &Shape, counts: &Counts, variant: &Variant) -> Vec<Parameter> {
    let mut all = Vec::new();
    let mut list = |name: String, dims: Vec<usize>| all.push(Parameter { name, dims });
    let h = shape.hidden;
    let tables = [
        (WORDS, Some(counts.words)),
        (POSITIONS, counts.positions),
        (TYPES, counts.types),
        (TURNS, counts.turns),
        (ROLES, counts.roles),
    ];
    for (name, rows) in tables {
        if let Some(rows) = rows {
            list(name.to_owned(), vec![rows, h]);
        }
    }
    if counts.has_relative_bias {
        list(RELATIVE_BIAS.to_owned(), vec![RelativeBias::BUCKETS, shape.heads]);
    }
    let mut norm = |name: String, width: usize| {
        list(format!("{name}.weight"), vec![width]);
        if !variant.without_bias.norms {
            list(format!("{name}.bias"), vec![width]);
        }
    };
    if !variant.embedding_norm_is_missing {
        norm(EMBEDDING_NORM.to_owned(), h);
    }
    for layer in 0..counts.layers {
        if has_attention_norm(variant, layer) {
            norm(part(layer, ATTENTION_NORM), h);
        }
        norm(part(layer, OUTPUT_NORM), h);
        if variant.head_norms {
            HEAD_NORMS.into_iter().for_each(|name| norm(part(layer, name), shape.head_size));
        }
        if variant.result_norms {
            RESULT_NORMS.into_iter().for_each(|name| norm(part(layer, name), h));
        }
    }
    if variant.final_norm {
        norm(FINAL_NORM.to_owned(), h);
    }
    for layer in 0..counts.layers {
        for linear in linears(shape, variant).into_iter().chain(gate(shape, variant)) {
            let name = part(layer, linear.name);
            list(format!("{name}.weight"), vec![linear.outputs, linear.inputs]);
            if linear.has_bias {
                list(format!("{name}.bias"), vec![linear.outputs]);
            }
        }
    }
    all
}

/// A linear layer of a transformer layer.
struct LinearLayer {
    name: &'static str,
    inputs: usize,
    outputs: usize,
    has_bias: bool,
}

/// Returns the linear layers of a transformer layer, without the gate.
fn linears(shape: &Shape, variant: &Variant) -> [LinearLayer; 6] {
    let (h, i, without) = (shape.hidden, shape.intermediate, variant.without_bias);
    let (queries, keys) = (shape.heads * shape.head_size, shape.key_heads * shape.head_size);
    let all = [
        (QUERY, h, queries, !without.projections),
        (KEY, h, keys, !without.projections),
        (VALUE, h, keys, !without.projections),
        (ATTENTION_OUTPUT, queries, h, !without.attention_output),
        (INTERMEDIATE, h, i, !without.intermediate),
        (OUTPUT, i, h, !without.output),
    ];
    all.map(|(name, inputs, outputs, has_bias)| LinearLayer { name, inputs, outputs, has_bias })
}

/// Returns the gate of a feed-forward block; `None` if the variant has none.
fn gate(shape: &Shape, variant: &Variant) -> Option<LinearLayer> {
    variant.gated.then_some(LinearLayer {
        name: GATE,
        inputs: shape.hidden,
        outputs: shape.intermediate,
        has_bias: !variant.without_bias.intermediate,
    })
}

fn has_attention_norm(variant: &Variant, layer: usize) -> bool {
    layer > 0 || !variant.first_norm_is_missing
}

fn part(layer: usize, name: &str) -> String {
    format!("encoder.layer.{layer}.{name}")
}

/// Builds a network from the values of all parameters, in the order of [`list`].
fn assemble(shape: &Shape, counts: &Counts, variant: &Variant, values: Vec<Vec<f32>>) -> Network {
    let mut values = values.into_iter();
    let mut next = || values.next().unwrap_or_default();
    let mut table = |rows| Table { rows, data: next() };
    let mut words = table(counts.words);
    if variant.scaled_words {
        let factor = (shape.hidden as f32).sqrt();
        words.data.iter_mut().for_each(|x| *x *= factor);
    }
    let [positions, types, turns, roles] =
        [counts.positions, counts.types, counts.turns, counts.roles].map(|rows| rows.map(&mut table));
    let heads = shape.heads;
    let relative_bias = counts.has_relative_bias.then(|| RelativeBias { heads, data: next() });
    let mut norm = || {
        let mut weight = next();
        if variant.norms_add_one {
            weight.iter_mut().for_each(|x| *x += 1.0);
        }
        let bias = if variant.without_bias.norms { vec![0.0; weight.len()] } else { next() };
        Norm { weight, bias }
    };
    let embedding_norm = (!variant.embedding_norm_is_missing).then(&mut norm);
    let embeddings = Embeddings { words, positions, types, turns, roles, norm: embedding_norm };
    let norms: Vec<_> = (0..counts.layers)
        .map(|layer| {
            let (attention, output) = (has_attention_norm(variant, layer).then(&mut norm), norm());
            let head_norms = variant.head_norms.then(|| [norm(), norm()]);
            (attention, output, head_norms, variant.result_norms.then(|| [norm(), norm()]))
        })
        .collect();
    let final_norm = variant.final_norm.then(&mut norm);
    let mut linear = |LinearLayer { inputs, outputs, has_bias, .. }| {
        let weight = next();
        let bias = if has_bias { next() } else { vec![0.0; outputs] };
        Linear { inputs, outputs, weight, bias }
    };
    let layers = norms.into_iter().enumerate().map(|(number, norms)| {
        let (attention_norm, output_norm, head_norms, result_norms) = norms;
        let [query, key, value, attention_output, intermediate, output] =
            linears(shape, variant).map(&mut linear);
        let gate = gate(shape, variant).map(&mut linear);
        let window = variant.windows.get(number).copied().flatten();
        Layer {
            query,
            key,
            value,
            head_norms,
            attention_output,
            attention_norm,
            intermediate,
            gate,
            output,
            output_norm,
            result_norms,
            window,
        }
    });
    Network { shape: shape.clone(), embeddings, relative_bias, layers: layers.collect(), final_norm }
}

/// Returns all parameters of a trainable network with their values, in the order of [`list`].
pub fn parameters(network: &Network) -> Vec<(Parameter, &[f32])> {
    let e = &network.embeddings;
    let rows = |table: &Option<Table>| table.as_ref().map(|t| t.rows);
    let counts = Counts {
        words: e.words.rows,
        positions: rows(&e.positions),
        types: rows(&e.types),
        turns: rows(&e.turns),
        roles: rows(&e.roles),
        has_relative_bias: network.relative_bias.is_some(),
        layers: network.layers.len(),
    };
    let tables = [&e.positions, &e.types, &e.turns, &e.roles].into_iter().flatten();
    let norms = network.layers.iter().flat_map(|l| l.attention_norm.iter().chain([&l.output_norm]));
    let linears = network
        .layers
        .iter()
        .flat_map(|l| [&l.query, &l.key, &l.value, &l.attention_output, &l.intermediate, &l.output]);
    let numbers = (std::iter::once(&e.words).chain(tables).map(|t| &t.data[..]))
        .chain(network.relative_bias.iter().map(|bias| &bias.data[..]))
        .chain(e.norm.iter().chain(norms).flat_map(|n| [&n.weight[..], &n.bias[..]]))
        .chain(linears.flat_map(|l| [&l.weight[..], &l.bias[..]]));
    list(&network.shape, &counts, &Variant::default()).into_iter().zip(numbers).collect()
}
