//! Reads the tensors of a folder into a [`Network`]. The parameters have a fixed order (see [`list`]) and BERT's names.
//! The names that other architectures use are translated.

use std::collections::{BTreeMap, HashSet};

use rayon::prelude::*;
use turnwise_core::error::{Error, Result};

use crate::{
    folder::{
        config::{Architecture, Config},
        weights::{Tensor, Weights},
    },
    network::{Embeddings, Layer, Linear, Network, Norm, RelativeBias, Shape, Table},
};

/// Parameters of a network, with their names in the weight files. The shapes of the parameters have been checked.
#[derive(Debug)]
pub struct Layout {
    counts: Counts,
    /// Prefix of the names of the tensors in the files, such as `bert.`.
    pub prefix: String,
    /// Parameters in the order of [`list`], with their names in the files.
    parameters: Vec<(Parameter, String)>,
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
            let tensor = weights.get(&names.in_file(name))?;
            tensor.dims().first().copied()
        };
        let counts = Counts {
            words: config.words,
            positions: config.positions,
            types: (config.types > 0).then_some(config.types),
            turns: rows(TURNS),
            roles: rows(ROLES),
            has_relative_bias: config.architecture.has_relative_bias(),
            layers: config.layers,
        };
        let parameters: Vec<_> = list(&config.shape, &counts)
            .into_iter()
            .map(|parameter| {
                let name = names.in_file(&parameter.name);
                weights.expect(&name, &parameter.dims)?;
                Ok((parameter, name))
            })
            .collect::<Result<_>>()?;
        Ok(Layout { counts, prefix: names.prefix.clone(), parameters, notices: Vec::new() })
    }

    /// Reads the network. Fails if a value is not finite.
    pub fn read(&self, config: &Config, weights: &Weights) -> Result<Network> {
        let values = self.parameters.par_iter().map(|(p, name)| weights.expect(name, &p.dims)?.numbers());
        Ok(assemble(&config.shape, &self.counts, values.collect::<Result<_>>()?))
    }

    /// Returns all parameters with their tensors, in the order of [`list`].
    pub fn tensors<'a>(&'a self, weights: &'a Weights) -> Result<Vec<(&'a Parameter, Tensor<'a>)>> {
        self.parameters.iter().map(|(p, name)| Ok((p, weights.expect(name, &p.dims)?))).collect()
    }
}

/// Parameter names in the weight files of a model.
struct Names<'a> {
    architecture: Architecture,
    prefix: String,
    /// Maps a name without prefix to the name in the file. In the names without prefix, `gamma` and `beta` of a norm
    /// are replaced with `weight` and `bias`.
    names_in_file: BTreeMap<String, &'a str>,
}

/// Possible components of the prefix of parameter names, such as `bert` in `bert.encoder`. A class that wraps the
/// network, such as a task head, adds a component.
const WRAPPERS: [&str; 11] = [
    "bert",
    "roberta",
    "xlm_roberta",
    "camembert",
    "distilbert",
    "mpnet",
    "model",
    "auto_model",
    "module",
    "encoder_model",
    "0",
];

impl<'a> Names<'a> {
    fn new(architecture: Architecture, weights: &'a Weights) -> Result<Self> {
        let known = |prefix: &str| {
            prefix.is_empty() || prefix.trim_end_matches('.').split('.').all(|p| WRAPPERS.contains(&p))
        };
        let found: Vec<&str> =
            weights.names().filter_map(|n| n.strip_suffix(WORDS)).filter(|prefix| known(prefix)).collect();
        let prefix = match found[..] {
            [prefix] => prefix.to_owned(),
            // The tensor is missing. `Weights::expect` reports this later, with the most similar name.
            [] => String::new(),
            [first, second, ..] => {
                return Err(Error::data(format!(
                    "the weights contain two networks, with `{first}{WORDS}` and `{second}{WORDS}`"
                ))
                .with_hint("save only the network that encodes texts"));
            }
        };
        Ok(Names::at(architecture, weights, prefix))
    }

    /// Collects the names of the tensors that start with a prefix.
    fn at(architecture: Architecture, weights: &'a Weights, prefix: String) -> Self {
        let names_in_file = weights.names().filter_map(|name| {
            let bare = name.strip_prefix(prefix.as_str())?;
            let bare = bare.replace("LayerNorm.gamma", "LayerNorm.weight");
            Some((bare.replace("LayerNorm.beta", "LayerNorm.bias"), name))
        });
        Names { architecture, names_in_file: names_in_file.collect(), prefix }
    }

    /// Returns the name of a parameter in the file, or the expected name if the tensor is missing.
    fn in_file(&self, name: &str) -> String {
        let own = name_in(self.architecture, name);
        let found = self.names_in_file.get(&own).map(|name| (*name).to_owned());
        found.unwrap_or_else(|| format!("{}{own}", self.prefix))
    }

    /// Checks the tensors that are not parameters of the network. Ignores heads and poolers, because they do not affect
    /// the vectors. Fails if the embeddings or layers contain an unknown tensor. Returns a notice if there are extra
    /// layers.
    fn unused(&self, config: &Config, used: &[(Parameter, String)]) -> Result<Vec<String>> {
        let used: HashSet<&str> = used.iter().map(|(_, name)| name.as_str()).collect();
        let layer = match self.architecture {
            Architecture::DistilBert => "transformer.layer.",
            _ => "encoder.layer.",
        };
        let mut above = 0;
        for (bare, name) in self.names_in_file.iter().filter(|(_, name)| !used.contains(*name)) {
            let inside = ["embeddings.", "encoder.", "transformer."].iter().any(|p| bare.starts_with(p));
            let buffer = ["position_ids", "token_type_ids"].iter().any(|b| bare.ends_with(b));
            let number = bare.strip_prefix(layer).and_then(|r| r.split('.').next()?.parse::<usize>().ok());
            match number {
                Some(number) if number >= config.layers => above = above.max(number + 1),
                _ if inside && !buffer => {
                    return Err(Error::data(format!(
                        "the weights contain `{name}`, which the architecture `{}` does not support",
                        self.architecture.name()
                    ))
                    .with_hint("without this tensor the vectors would be wrong; use a different model"));
                }
                _ => {}
            }
        }
        let layers = config.layers;
        let ignored = format!(
            "the weights have {above} layers, but config.json has {layers}; the last ones are ignored"
        );
        Ok(if above > 0 { vec![ignored] } else { Vec::new() })
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub words: usize,
    pub positions: usize,
    pub types: Option<usize>,
    pub turns: Option<usize>,
    pub roles: Option<usize>,
    pub has_relative_bias: bool,
    pub layers: usize,
}

const WORDS: &str = "embeddings.word_embeddings.weight";
const POSITIONS: &str = "embeddings.position_embeddings.weight";
const TYPES: &str = "embeddings.token_type_embeddings.weight";
/// Name of the turn embeddings, which only some models have.
const TURNS: &str = "embeddings.turn_embeddings.weight";
/// Name of the role embeddings, which only some models have.
const ROLES: &str = "embeddings.role_embeddings.weight";
const EMBEDDING_NORM: &str = "embeddings.LayerNorm";
/// Name of the table of the relative position bias, which only MPNet has.
const RELATIVE_BIAS: &str = "encoder.relative_attention_bias.weight";

const QUERY: &str = "attention.self.query";
const KEY: &str = "attention.self.key";
const VALUE: &str = "attention.self.value";
const ATTENTION_OUTPUT: &str = "attention.output.dense";
const ATTENTION_NORM: &str = "attention.output.LayerNorm";
const INTERMEDIATE: &str = "intermediate.dense";
const OUTPUT: &str = "output.dense";
const OUTPUT_NORM: &str = "output.LayerNorm";

/// Names of the submodules of a layer that MPNet calls differently, as pairs of BERT's name and MPNet's name.
const MPNET: [(&str, &str); 5] = [
    (QUERY, "attention.attn.q"),
    (KEY, "attention.attn.k"),
    (VALUE, "attention.attn.v"),
    (ATTENTION_OUTPUT, "attention.attn.o"),
    (ATTENTION_NORM, "attention.LayerNorm"),
];

/// Names of the submodules of a layer, as pairs of BERT's name and DistilBERT's name.
const DISTIL: [(&str, &str); 8] = [
    (QUERY, "attention.q_lin"),
    (KEY, "attention.k_lin"),
    (VALUE, "attention.v_lin"),
    (ATTENTION_OUTPUT, "attention.out_lin"),
    (ATTENTION_NORM, "sa_layer_norm"),
    (INTERMEDIATE, "ffn.lin1"),
    (OUTPUT, "ffn.lin2"),
    (OUTPUT_NORM, "output_layer_norm"),
];

/// Translates BERT's name of a parameter to the name that an architecture uses, without prefix.
pub fn name_in(architecture: Architecture, name: &str) -> String {
    let in_layer = |layer: &str, names: &[(&str, &str)]| {
        let (number, part) = name.strip_prefix("encoder.layer.")?.split_once('.')?;
        let (part, kind) = part.rsplit_once('.')?;
        let (_, own) = names.iter().find(|(common, _)| *common == part)?;
        Some(format!("{layer}.{number}.{own}.{kind}"))
    };
    let own = match architecture {
        Architecture::DistilBert => in_layer("transformer.layer", &DISTIL),
        Architecture::MpNet => in_layer("encoder.layer", &MPNET),
        _ => None,
    };
    own.unwrap_or_else(|| name.to_owned())
}

/// Returns the names and shapes of all parameters of a network with the given sizes, in a fixed order.
pub fn list(shape: &Shape, counts: &Counts) -> Vec<Parameter> {
    let mut all = Vec::new();
    let mut list = |name: String, dims: Vec<usize>| all.push(Parameter { name, dims });
    let h = shape.hidden;
    let tables = [
        (WORDS, Some(counts.words)),
        (POSITIONS, Some(counts.positions)),
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
    let mut norm = |name: String| {
        list(format!("{name}.weight"), vec![h]);
        list(format!("{name}.bias"), vec![h]);
    };
    norm(EMBEDDING_NORM.to_owned());
    for layer in 0..counts.layers {
        norm(part(layer, ATTENTION_NORM));
        norm(part(layer, OUTPUT_NORM));
    }
    for layer in 0..counts.layers {
        for (name, inputs, outputs) in linears(shape) {
            let name = part(layer, name);
            list(format!("{name}.weight"), vec![outputs, inputs]);
            list(format!("{name}.bias"), vec![outputs]);
        }
    }
    all
}

fn linears(shape: &Shape) -> [(&'static str, usize, usize); 6] {
    let (h, i) = (shape.hidden, shape.intermediate);
    [
        (QUERY, h, h),
        (KEY, h, h),
        (VALUE, h, h),
        (ATTENTION_OUTPUT, h, h),
        (INTERMEDIATE, h, i),
        (OUTPUT, i, h),
    ]
}

fn part(layer: usize, name: &str) -> String {
    format!("encoder.layer.{layer}.{name}")
}

/// Builds a network from the values of all parameters, in the order of [`list`].
fn assemble(shape: &Shape, counts: &Counts, values: Vec<Vec<f32>>) -> Network {
    let mut values = values.into_iter();
    let mut next = || values.next().unwrap_or_default();
    let mut table = |rows| Table { rows, data: next() };
    let (words, positions) = (table(counts.words), table(counts.positions));
    let [types, turns, roles] = [counts.types, counts.turns, counts.roles].map(|rows| rows.map(&mut table));
    let heads = shape.heads;
    let relative_bias = counts.has_relative_bias.then(|| RelativeBias { heads, data: next() });
    let mut norm = || Norm { weight: next(), bias: next() };
    let embeddings = Embeddings { words, positions, types, turns, roles, norm: norm() };
    let norms: Vec<_> = (0..counts.layers).map(|_| (norm(), norm())).collect();
    let mut linear = |(_, inputs, outputs)| Linear { inputs, outputs, weight: next(), bias: next() };
    let layers = norms.into_iter().map(|(attention_norm, output_norm)| {
        let [query, key, value, attention_output, intermediate, output] = linears(shape).map(&mut linear);
        Layer { query, key, value, attention_output, intermediate, output, attention_norm, output_norm }
    });
    Network { shape: shape.clone(), embeddings, relative_bias, layers: layers.collect() }
}

/// Returns all parameters of a network with their values, in the order of [`list`].
pub fn parameters(network: &Network) -> Vec<(Parameter, &[f32])> {
    let e = &network.embeddings;
    let rows = |table: &Option<Table>| table.as_ref().map(|t| t.rows);
    let counts = Counts {
        words: e.words.rows,
        positions: e.positions.rows,
        types: rows(&e.types),
        turns: rows(&e.turns),
        roles: rows(&e.roles),
        has_relative_bias: network.relative_bias.is_some(),
        layers: network.layers.len(),
    };
    let tables = [Some(&e.words), Some(&e.positions), e.types.as_ref(), e.turns.as_ref(), e.roles.as_ref()];
    let norms = network.layers.iter().flat_map(|l| [&l.attention_norm, &l.output_norm]);
    let linears = network
        .layers
        .iter()
        .flat_map(|l| [&l.query, &l.key, &l.value, &l.attention_output, &l.intermediate, &l.output]);
    let numbers = (tables.into_iter().flatten().map(|t| &t.data[..]))
        .chain(network.relative_bias.iter().map(|bias| &bias.data[..]))
        .chain(std::iter::once(&e.norm).chain(norms).flat_map(|n| [&n.weight[..], &n.bias[..]]))
        .chain(linears.flat_map(|l| [&l.weight[..], &l.bias[..]]));
    list(&network.shape, &counts).into_iter().zip(numbers).collect()
}
