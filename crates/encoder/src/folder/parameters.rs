//! All parameters of a network, in a fixed order and with BERT's names.

use crate::network::{Embeddings, Layer, Linear, Network, Norm, Shape, Table};
use turnwise_core::error::{Error, Result};

use super::config::Architecture;

/// Name and shape of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// BERT's name of the parameter.
    pub name: String,
    /// Shape: `[rows, columns]` for a matrix, `[length]` for a vector.
    pub dims: Vec<usize>,
}

/// Sizes of the embedding tables, and number of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Number of word embeddings.
    pub words: usize,
    /// Number of position embeddings.
    pub positions: usize,
    /// Number of segment embeddings.
    pub types: Option<usize>,
    /// Number of turn embeddings.
    pub turns: Option<usize>,
    /// Number of role embeddings.
    pub roles: Option<usize>,
    /// Number of layers.
    pub layers: usize,
}

const WORDS: &str = "embeddings.word_embeddings.weight";
const POSITIONS: &str = "embeddings.position_embeddings.weight";
const TYPES: &str = "embeddings.token_type_embeddings.weight";
/// Name of the turn embeddings, which are optional.
pub const TURNS: &str = "embeddings.turn_embeddings.weight";
/// Name of the role embeddings, which are optional.
pub const ROLES: &str = "embeddings.role_embeddings.weight";
const EMBEDDING_NORM: &str = "embeddings.LayerNorm";

const QUERY: &str = "attention.self.query";
const KEY: &str = "attention.self.key";
const VALUE: &str = "attention.self.value";
const ATTENTION_OUTPUT: &str = "attention.output.dense";
const ATTENTION_NORM: &str = "attention.output.LayerNorm";
const INTERMEDIATE: &str = "intermediate.dense";
const OUTPUT: &str = "output.dense";
const OUTPUT_NORM: &str = "output.LayerNorm";

/// DistilBERT's names of the submodules of a layer.
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

/// Name of a parameter in files of an architecture, without a prefix.
pub fn name_in(architecture: Architecture, name: &str) -> String {
    let distil = || {
        let (number, part) = name.strip_prefix("encoder.layer.")?.split_once('.')?;
        let (part, kind) = part.rsplit_once('.')?;
        let (_, own) = DISTIL.iter().find(|(common, _)| *common == part)?;
        Some(format!("transformer.layer.{number}.{own}.{kind}"))
    };
    match architecture {
        Architecture::DistilBert => distil().unwrap_or_else(|| name.to_owned()),
        _ => name.to_owned(),
    }
}

/// Lists all parameters of a network with these sizes.
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

type Take<'a> = dyn FnMut(&str) -> Result<Vec<f32>> + 'a;

/// Builds a network from parameters; `take` returns a parameter by name.
pub fn assemble(shape: &Shape, counts: &Counts, take: &mut Take) -> Result<Network> {
    let (h, i) = (shape.hidden, shape.intermediate);
    let layers = (0..counts.layers).map(|layer| {
        let mut linear = |name: &str, inputs: usize, outputs: usize| {
            let name = part(layer, name);
            let weight = take(&format!("{name}.weight"))?;
            Ok::<_, Error>(Linear { inputs, outputs, weight, bias: take(&format!("{name}.bias"))? })
        };
        Ok(Layer {
            query: linear(QUERY, h, h)?,
            key: linear(KEY, h, h)?,
            value: linear(VALUE, h, h)?,
            attention_output: linear(ATTENTION_OUTPUT, h, h)?,
            intermediate: linear(INTERMEDIATE, h, i)?,
            output: linear(OUTPUT, i, h)?,
            attention_norm: norm(&part(layer, ATTENTION_NORM), take)?,
            output_norm: norm(&part(layer, OUTPUT_NORM), take)?,
        })
    });
    let layers = layers.collect::<Result<_>>()?;
    let mut table = |name: &str, rows: usize| Ok::<_, Error>(Table { rows, data: take(name)? });
    Ok(Network {
        shape: shape.clone(),
        embeddings: Embeddings {
            words: table(WORDS, counts.words)?,
            positions: table(POSITIONS, counts.positions)?,
            types: counts.types.map(|rows| table(TYPES, rows)).transpose()?,
            turns: counts.turns.map(|rows| table(TURNS, rows)).transpose()?,
            roles: counts.roles.map(|rows| table(ROLES, rows)).transpose()?,
            norm: norm(EMBEDDING_NORM, take)?,
        },
        layers,
    })
}

fn norm(name: &str, take: &mut Take) -> Result<Norm> {
    Ok(Norm { weight: take(&format!("{name}.weight"))?, bias: take(&format!("{name}.bias"))? })
}

/// Returns the values of all parameters of a network, in the order of [`list`].
pub fn of(network: &Network) -> Vec<(Parameter, &[f32])> {
    let e = &network.embeddings;
    let rows = |table: &Option<Table>| table.as_ref().map(|t| t.rows);
    let counts = Counts {
        words: e.words.rows,
        positions: e.positions.rows,
        types: rows(&e.types),
        turns: rows(&e.turns),
        roles: rows(&e.roles),
        layers: network.layers.len(),
    };
    let tables = [Some(&e.words), Some(&e.positions), e.types.as_ref(), e.turns.as_ref(), e.roles.as_ref()];
    let norms = network.layers.iter().flat_map(|l| [&l.attention_norm, &l.output_norm]);
    let linears = network
        .layers
        .iter()
        .flat_map(|l| [&l.query, &l.key, &l.value, &l.attention_output, &l.intermediate, &l.output]);
    let numbers = (tables.into_iter().flatten().map(|t| &t.data[..]))
        .chain(std::iter::once(&e.norm).chain(norms).flat_map(|n| [&n.weight[..], &n.bias[..]]))
        .chain(linears.flat_map(|l| [&l.weight[..], &l.bias[..]]));
    list(&network.shape, &counts).into_iter().zip(numbers).collect()
}
