//! Layers of a network as candle tensors. The trained tensors are candle variables, called parameters.

use candle_core::{DType, Device, Result as Candle, Tensor, Var};

use super::{DropoutConfig, Packed, Replaced, batch::Site};
use crate::{
    device,
    ops::{add_norm, attention, dropout, linear},
};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::network::{
    self, Embeddings, Linear, Network, Norm, NormKind, NormOrder, RelativeBias, Shape, Table,
};

/// Builder that creates tensors from the weights of a network, and collects the trained tensors as parameters.
pub(super) struct Maker<'a> {
    shape: &'a Shape,
    device: &'a Device,
    pub(super) parameters: Vec<Parameter>,
}

/// A transformer layer. Each pair of tensors is the weight and the bias of a linear layer.
pub(super) struct Layer {
    /// Query, key and value projections, concatenated.
    pub(super) projection: (Tensor, Tensor),
    pub(super) context: (Tensor, Tensor),
    pub(super) context_norm: Tensor,
    pub(super) inner: (Tensor, Tensor),
    pub(super) outer: (Tensor, Tensor),
    pub(super) outer_norm: Tensor,
}

/// Embedding tables of a network, with one row per index, and their layer normalization.
pub(super) struct Tables {
    words: Tensor,
    positions: Tensor,
    types: Option<Tensor>,
    turns: Option<Tensor>,
    roles: Option<Tensor>,
    pub(super) norm: Tensor,
}

impl<'a> Maker<'a> {
    pub(super) fn new(shape: &'a Shape, device: &'a Device) -> Self {
        Maker { shape, device, parameters: Vec::new() }
    }

    fn tensor(&mut self, name: String, numbers: Vec<f32>, shape: &[usize], trained: bool) -> Result<Tensor> {
        if !trained {
            return Tensor::from_vec(numbers, shape, self.device).map_err(device::error);
        }
        let decays = name.ends_with(WEIGHT) || name.ends_with(TABLE);
        let parameter = Parameter::new(name, numbers, shape, decays, self.device)?;
        let tensor = parameter.var.as_tensor().clone();
        self.parameters.push(parameter);
        Ok(tensor)
    }

    fn linear(&mut self, name: &str, parts: &[&Linear], trained: bool) -> Result<(Tensor, Tensor)> {
        let weight: Vec<f32> = parts.iter().flat_map(|l| l.weight.iter().copied()).collect();
        let bias: Vec<f32> = parts.iter().flat_map(|l| l.bias.iter().copied()).collect();
        let (outputs, inputs) = (bias.len(), weight.len() / bias.len().max(1));
        let weight = self.tensor(format!("{name}{WEIGHT}"), weight, &[outputs, inputs], trained)?;
        Ok((weight, self.tensor(format!("{name}{BIAS}"), bias, &[outputs], trained)?))
    }

    fn norm(&mut self, name: String, norm: &Norm, trained: bool) -> Result<Tensor> {
        let numbers = [norm.weight.as_slice(), &norm.bias].concat();
        self.tensor(name, numbers, &[2, self.shape.hidden], trained)
    }

    fn table(&mut self, name: &str, table: &Table, trained: bool) -> Result<Tensor> {
        self.tensor(
            format!("embeddings.{name}{TABLE}"),
            table.data.clone(),
            &[table.rows, self.shape.hidden],
            trained,
        )
    }

    pub(super) fn layer(&mut self, number: usize, layer: &network::Layer, trained: bool) -> Result<Layer> {
        let name = |part: &str| format!("layer.{number}.{part}");
        let projection = [&layer.query, &layer.key, &layer.value];
        let attention_norm = layer.attention_norm.as_ref().ok_or_else(not_trainable)?;
        Ok(Layer {
            projection: self.linear(&name("projection"), &projection, trained)?,
            context: self.linear(&name("context"), &[&layer.attention_output], trained)?,
            context_norm: self.norm(name("context_norm"), attention_norm, trained)?,
            inner: self.linear(&name("inner"), &[&layer.intermediate], trained)?,
            outer: self.linear(&name("outer"), &[&layer.output], trained)?,
            outer_norm: self.norm(name("outer_norm"), &layer.output_norm, trained)?,
        })
    }

    pub(super) fn relative_bias(&mut self, bias: &RelativeBias, trained: bool) -> Result<Tensor> {
        let shape = [RelativeBias::BUCKETS, bias.heads];
        self.tensor(format!("{RELATIVE_BIAS}{TABLE}"), bias.data.clone(), &shape, trained)
    }

    pub(super) fn tables(&mut self, e: &Embeddings, trained: bool) -> Result<Tables> {
        let mut table = |name: &str, table: &Table| self.table(name, table, trained);
        Ok(Tables {
            types: e.types.as_ref().map(|types| table("types", types)).transpose()?,
            turns: e.turns.as_ref().map(|turns| table("turns", turns)).transpose()?,
            roles: e.roles.as_ref().map(|roles| table("roles", roles)).transpose()?,
            words: table("words", &e.words)?,
            positions: table("positions", e.positions.as_ref().ok_or_else(not_trainable)?)?,
            norm: self.norm(
                "embeddings.norm".to_owned(),
                e.norm.as_ref().ok_or_else(not_trainable)?,
                trained,
            )?,
        })
    }
}

/// Returns an error if the network has parts that cannot be trained.
pub(super) fn check(network: &Network) -> Result<()> {
    let of_bert = |layer: &network::Layer| {
        layer.attention_norm.is_some()
            && layer.gate.is_none()
            && layer.window.is_none()
            && layer.head_norms.is_none()
            && layer.result_norms.is_none()
    };
    let shape = &network.shape;
    let fits = shape.rotary.is_none()
        && shape.linear_bias.is_none()
        && !shape.causal
        && shape.key_heads == shape.heads
        && shape.heads * shape.head_size == shape.hidden
        && shape.norm_kind == NormKind::Layer
        && shape.norm_order == NormOrder::After
        && network.final_norm.is_none()
        && network.layers.iter().all(of_bert);
    if fits { Ok(()) } else { Err(not_trainable()) }
}

fn not_trainable() -> Error {
    Error::Internal("the network has parts that cannot be trained".to_owned())
}

const WEIGHT: &str = ".weight";
const BIAS: &str = ".bias";
const TABLE: &str = ".table";
const RELATIVE_BIAS: &str = "relative_bias";

/// Writes the values of a parameter into a network. Returns an error if the network has no parameter with this name and
/// this number of values.
pub(super) fn put(network: &mut Network, name: &str, numbers: &[f32]) -> Result<()> {
    let fits = |targets: &Vec<&mut Vec<f32>>| {
        targets.iter().map(|target| target.len()).sum::<usize>() == numbers.len()
    };
    let targets = targets(network, name).filter(fits).ok_or_else(|| {
        Error::Internal(format!("the network has no parameter `{name}` with {} values", numbers.len()))
    })?;
    let mut rest = numbers;
    for target in targets {
        let (own, more) = rest.split_at(target.len());
        target.copy_from_slice(own);
        rest = more;
    }
    Ok(())
}

/// Returns the weight vectors of the network that together form the parameter `name`, in order. Returns `None` if the
/// network has no such parameter.
fn targets<'n>(network: &'n mut Network, name: &str) -> Option<Vec<&'n mut Vec<f32>>> {
    if let Some(name) = name.strip_prefix("embeddings.") {
        let e = &mut network.embeddings;
        let table = match name {
            "norm" => {
                let norm = e.norm.as_mut()?;
                return Some(vec![&mut norm.weight, &mut norm.bias]);
            }
            "words.table" => &mut e.words,
            "positions.table" => e.positions.as_mut()?,
            "types.table" => e.types.as_mut()?,
            "turns.table" => e.turns.as_mut()?,
            "roles.table" => e.roles.as_mut()?,
            _ => return None,
        };
        return Some(vec![&mut table.data]);
    }
    if name.strip_suffix(TABLE) == Some(RELATIVE_BIAS) {
        return Some(vec![&mut network.relative_bias.as_mut()?.data]);
    }
    let (number, part) = name.strip_prefix("layer.")?.split_once('.')?;
    let layer = network.layers.get_mut(number.parse::<usize>().ok()?)?;
    Some(match part {
        "projection.weight" => {
            vec![&mut layer.query.weight, &mut layer.key.weight, &mut layer.value.weight]
        }
        "projection.bias" => vec![&mut layer.query.bias, &mut layer.key.bias, &mut layer.value.bias],
        "context.weight" => vec![&mut layer.attention_output.weight],
        "context.bias" => vec![&mut layer.attention_output.bias],
        "context_norm" => {
            let norm = layer.attention_norm.as_mut()?;
            vec![&mut norm.weight, &mut norm.bias]
        }
        "inner.weight" => vec![&mut layer.intermediate.weight],
        "inner.bias" => vec![&mut layer.intermediate.bias],
        "outer.weight" => vec![&mut layer.output.weight],
        "outer.bias" => vec![&mut layer.output.bias],
        "outer_norm" => vec![&mut layer.output_norm.weight, &mut layer.output_norm.bias],
        _ => return None,
    })
}

/// Returns the relative position bias for sequences of at most `tokens` tokens, with the shape (1, heads, tokens, tokens).
pub(super) fn score_bias(table: &Tensor, tokens: usize) -> Candle<Tensor> {
    let (buckets, heads) = table.dims2()?;
    debug_assert_eq!(buckets, RelativeBias::BUCKETS);
    let distances = (0..tokens as isize).flat_map(|query| (0..tokens as isize).map(move |key| key - query));
    let rows: Vec<u32> = distances.map(|distance| RelativeBias::bucket(distance) as u32).collect();
    let rows = Tensor::from_vec(rows, tokens * tokens, table.device())?;
    let bias = table.index_select(&rows, 0)?.reshape((tokens, tokens, heads))?;
    bias.permute((2, 0, 1))?.unsqueeze(0)?.contiguous()
}

impl Layer {
    /// Runs the layer on candle tensors, so that candle records the autograd graph. `bias` is the result of
    /// [`score_bias`].
    pub(super) fn run(
        &self,
        (x, bias): (&Tensor, Option<&Tensor>),
        packed: &Packed,
        shape: &Shape,
        number: usize,
        dropout_config: Option<&DropoutConfig>,
        dtype: DType,
    ) -> Candle<Tensor> {
        let dropped = |site: Site| dropout_config.and_then(|c| c.at(number, site));
        let linear = |x: &Tensor, (weight, bias): &(Tensor, Tensor), activation| {
            linear(x, &weight.to_dtype(dtype)?, &bias.to_dtype(dtype)?, activation)
        };
        let norm = |x: &Tensor, y: &Tensor, norm: &Tensor, site: Site| {
            add_norm(x, y, &norm.to_dtype(dtype)?, shape.norm_epsilon, dropped(site))
        };
        let projected = linear(x, &self.projection, None)?;
        let bias = bias.map(|bias| bias.to_dtype(dtype)).transpose()?;
        let context =
            attention(&projected, &packed.lengths, shape.heads, bias.as_ref(), dropped(Site::Attention))?;
        let context = linear(&context, &self.context, None)?;
        let x = norm(x, &context, &self.context_norm, Site::Context)?;
        let inner = linear(&x, &self.inner, Some(shape.activation))?;
        let outer = linear(&inner, &self.outer, None)?;
        norm(&x, &outer, &self.outer_norm, Site::Feed)
    }
}

impl Tables {
    /// Returns the embedding tables, word embeddings first, each with the row index of every token.
    pub(super) fn rows(&self, packed: &Packed, shape: &Shape) -> Vec<(&Tensor, Vec<u32>)> {
        let ids = packed.sequences.iter().flat_map(|s| s.ids.iter().copied()).collect();
        let first = shape.first_position as u32;
        let positions = packed.sequences.iter().flat_map(|s| -> Vec<u32> {
            match &s.positions {
                Some(given) => given.iter().map(|p| p + first).collect(),
                None => shape.positions(&s.ids).map(|p| p as u32).collect(),
            }
        });
        let mut all = vec![(&self.words, ids), (&self.positions, positions.collect())];
        for (table, column) in [(&self.types, 0), (&self.turns, 1), (&self.roles, 2)] {
            let Some(table) = table else { continue };
            let rows = packed.sequences.iter().flat_map(|s| {
                let given = [&s.types, &s.turns, &s.roles][column];
                given.clone().unwrap_or_else(|| vec![0; s.len()])
            });
            all.push((table, rows.collect()));
        }
        all
    }

    /// Runs the embedding layer on candle tensors, so that candle records the autograd graph.
    pub(super) fn embed(
        &self,
        packed: &Packed,
        replaced: Option<&Replaced>,
        shape: &Shape,
        dropout_config: Option<&DropoutConfig>,
        dtype: DType,
    ) -> Candle<Tensor> {
        let pick = |(table, rows): (&Tensor, Vec<u32>)| {
            let count = rows.len();
            table.index_select(&Tensor::from_vec(rows, count, table.device())?, 0)
        };
        let mut tables = self.rows(packed, shape);
        let extended;
        if let (Some(Replaced { places, vectors }), Some((words, rows))) = (replaced, tables.first_mut()) {
            // Append the input vectors to the word embeddings, so that both get their gradients.
            let count = words.dim(0)? as u32;
            places.iter().for_each(|(row, vector)| rows[*row as usize] = count + vector);
            extended = Tensor::cat(&[*words, vectors], 0)?;
            *words = &extended;
        }
        let mut rows = tables.into_iter().map(pick);
        let none = || candle_core::Error::Msg("an embedding table is missing".to_owned());
        let (x, mut more) = (rows.next().ok_or_else(none)??, rows.next().ok_or_else(none)??);
        for rows in rows {
            more = (more + rows?)?;
        }
        let x = add_norm(
            &x.to_dtype(dtype)?,
            &more.to_dtype(dtype)?,
            &self.norm.to_dtype(dtype)?,
            shape.norm_epsilon,
            None,
        )?;
        dropout(&x, dropout_config.and_then(|c| c.at(0, Site::Feed)))
    }
}

/// A named trainable tensor. It is always f32, even if the computation uses a different type.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Name in error messages and checkpoints.
    pub name: String,
    /// candle variable with the current values.
    pub var: Var,
    /// True if weight decay applies: for weights and embeddings, not for biases and layer normalization.
    pub decays: bool,
    /// Factor of the learning rate.
    pub rate: f64,
}

impl Parameter {
    /// Creates a parameter with initial values.
    pub fn new(
        name: impl Into<String>,
        numbers: Vec<f32>,
        shape: &[usize],
        decays: bool,
        on: &Device,
    ) -> Result<Self> {
        let tensor = Tensor::from_vec(numbers, shape, on).map_err(device::error)?;
        let var = Var::from_tensor(&tensor).map_err(device::error)?;
        Ok(Parameter { name: name.into(), var, decays, rate: 1.0 })
    }

    /// Multiplies the learning rate of the parameter by a factor.
    pub fn with_rate(self, rate: f64) -> Self {
        Parameter { rate, ..self }
    }

    /// Returns a copy of the values on the CPU.
    pub fn numbers(&self) -> Result<Vec<f32>> {
        let read = || self.var.flatten_all()?.to_dtype(DType::F32)?.to_vec1();
        read().map_err(device::error)
    }

    /// Replaces the values. Returns an error if the number of values is wrong.
    pub fn set(&self, numbers: Vec<f32>) -> Result<()> {
        if numbers.len() != self.var.elem_count() {
            return Err(Error::data(format!(
                "{} values for the parameter `{}`, which has {}",
                numbers.len(),
                self.name,
                self.var.elem_count()
            )));
        }
        let set = || self.var.set(&Tensor::from_vec(numbers, self.var.shape(), self.var.device())?);
        set().map_err(device::error)
    }
}
