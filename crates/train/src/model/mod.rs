//! Trainable encoder: frozen lower layers and trained upper layers.

mod batch;
pub(crate) mod cache;
mod frozen;
mod layers;
mod pass;
#[cfg(test)]
mod tests;

pub use batch::{DropoutConfig, Packed, Replaced};
pub use layers::Parameter;

use candle_core::{DType, Device, Tensor, Var};

use crate::{device, gradients::Gradients, ops::values_of};
use frozen::Frozen;
use layers::{Layer, Maker, Tables, score_bias};
use pass::{BufferPool, GradientMap, PassConfig, SavedEmbeddings, SavedLayer};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{Network, network::RelativeBias};
use turnwise_kernels::DistanceBias;

/// Settings of the frozen layers of a network, which are not trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freezing {
    /// Number of frozen layers, counted from the embeddings upward. If it is above 0, the embeddings are frozen, too. A
    /// relative position bias is frozen with the embeddings.
    pub layers: usize,
    /// True to freeze the embeddings even if no layer is frozen.
    pub embeddings: bool,
    /// Maximum size of the cache for the outputs of the frozen layers, in bytes. `None` disables the inference engine
    /// and its cache for these layers, so that gradients can flow through them to the input vectors.
    pub memory: Option<usize>,
}

impl Freezing {
    fn fixes_embeddings(&self) -> bool {
        self.embeddings || self.layers > 0
    }
}

/// A network with trained upper layers. The lower layers can be frozen.
pub struct Trainable {
    /// The original network. It provides all weights that are not trained.
    start: Network,
    bottom: Bottom,
    /// Table of the relative position bias, which all layers share; `None` if the network has none.
    relative_bias: Option<Tensor>,
    layers: Vec<Layer>,
    /// Number of transformer layers in `bottom`.
    below: usize,
    freezing: Freezing,
    parameters: Vec<Parameter>,
    device: Device,
    dtype: DType,
    /// Buffers that are reused between passes.
    buffers: BufferPool,
}

/// Result of the forward pass of a batch, with the data for the backward pass.
pub struct Pass<'p> {
    /// Hidden states after the last layer in f32, one row per token.
    pub states: Tensor,
    /// Hidden states after the first layer in f32, if they were requested.
    pub first: Option<Tensor>,
    packed: &'p Packed,
    replaced: Option<&'p Replaced>,
    dropout: Option<DropoutConfig>,
    backward_data: BackwardData,
}

/// Data of a forward pass that its backward pass needs.
enum BackwardData {
    /// Saved activations of the embedding layer (`None` if it is frozen) and of each trained layer. This variant is
    /// used on the CPU in f32.
    Saved(Option<SavedEmbeddings>, Vec<SavedLayer>),
    /// Hidden states with candle's autograd graph. This variant is used in all other cases.
    Graph(Graph),
}

/// Hidden states with candle's autograd graph.
struct Graph {
    states: Tensor,
    /// Hidden states after the first layer, if they were requested.
    first: Option<Tensor>,
    /// The input vectors, if the pass has any.
    vectors: Option<Var>,
}

/// Input of a forward pass.
#[derive(Clone, Copy)]
pub struct PassInput<'p> {
    /// The batch.
    pub packed: &'p Packed,
    /// Input vectors that replace word embeddings.
    pub replaced: Option<&'p Replaced>,
    /// True to return the hidden states after the first layer, too.
    pub first: bool,
}

/// Gradient of the loss with respect to the results of a forward pass.
pub struct OfStates {
    /// Gradient of the hidden states after the last layer.
    pub last: Tensor,
    /// Gradient of the hidden states after the first layer, without the part that comes from the layers above it.
    pub first: Option<Tensor>,
}

impl<'p> PassInput<'p> {
    /// Creates the input of a pass whose inputs are only tokens, and whose result is only the last layer.
    pub fn new(packed: &'p Packed) -> Self {
        PassInput { packed, replaced: None, first: false }
    }
}

impl OfStates {
    /// Creates the gradient of a pass whose first layer is only an input of the next layer.
    pub fn of_last(last: Tensor) -> Self {
        OfStates { last, first: None }
    }
}

/// Lower part of the network: frozen layers that run on the inference engine, or embedding tables.
enum Bottom {
    Frozen(Box<Frozen>),
    Tables(Box<Tables>),
}

impl Trainable {
    /// Creates f32 variables for the trained parameters. The computation uses `dtype`. Returns an error if all layers
    /// are frozen.
    pub fn new(network: Network, freezing: Freezing, on: &Device, dtype: DType) -> Result<Self> {
        let count = network.layers.len();
        if freezing.layers >= count {
            return Err(Error::Input {
                message: format!("cannot freeze {} layers: the model has {count}", freezing.layers),
                hint: Some(format!("at least one layer must be trained: freeze 0 to {}", count - 1)),
            });
        }
        layers::check(&network)?;
        let fixed = freezing.fixes_embeddings();
        let mut make = Maker::new(&network.shape, on);
        // On a GPU, candle also runs the frozen layers, without gradients.
        let cache = freezing.memory.filter(|_| fixed && on.is_cpu() && dtype == DType::F32);
        let bottom = match cache {
            Some(memory) => Bottom::Frozen(Box::new(Frozen::new(&network, freezing.layers, memory)?)),
            None => Bottom::Tables(Box::new(make.tables(&network.embeddings, !fixed)?)),
        };
        let relative_bias = network.relative_bias.as_ref();
        let relative_bias = relative_bias.map(|bias| make.relative_bias(bias, !fixed)).transpose()?;
        let below = if cache.is_some() { freezing.layers } else { 0 };
        let layers = network.layers.iter().enumerate().skip(below);
        let layers: Vec<Layer> =
            layers.map(|(n, layer)| make.layer(n, layer, n >= freezing.layers)).collect::<Result<_>>()?;
        let parameters = make.parameters;
        Ok(Trainable {
            start: network,
            bottom,
            relative_bias,
            layers,
            below,
            freezing,
            parameters,
            device: on.clone(),
            dtype,
            buffers: BufferPool::default(),
        })
    }

    /// Parameters that are trained, without those of frozen layers.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Number of elements of a hidden state.
    pub fn width(&self) -> usize {
        self.start.shape.hidden
    }

    /// Device of the trained layers.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The original network, before training.
    pub fn start(&self) -> &Network {
        &self.start
    }

    /// Runs the forward pass.
    ///
    /// On the CPU in f32, the layers save their activations for the backward pass. Otherwise, candle records an
    /// autograd graph.
    pub fn run<'p>(&self, input: PassInput<'p>, dropout: Option<&DropoutConfig>) -> Result<Pass<'p>> {
        let PassInput { packed, replaced, first: wants_first } = input;
        let dropout = dropout.copied();
        if !self.device.is_cpu() || self.dtype != DType::F32 {
            let graph = self.graph(input, dropout.as_ref())?;
            return Ok(Pass {
                states: graph.states.detach(),
                first: graph.first.as_ref().map(Tensor::detach),
                packed,
                replaced,
                dropout,
                backward_data: BackwardData::Graph(graph),
            });
        }
        let bias = self.distance_bias(packed)?;
        let config = |dropout| self.config(packed, bias.as_ref(), dropout);
        let (mut x, embedded) = match &self.bottom {
            Bottom::Frozen(frozen) => {
                if replaced.is_some() || wants_first {
                    return Err(Error::Internal("the frozen layers take only tokens".to_owned()));
                }
                let mut states = self.buffers.take(packed.tokens() * self.width());
                frozen.states(packed, &mut states)?;
                (states, None)
            }
            Bottom::Tables(tables) => {
                let config = config(self.embedding_dropout(dropout.as_ref()));
                let (x, embedded) = pass::embed(tables, replaced, &config).map_err(device::error)?;
                (x, Some(embedded))
            }
        };
        let tensor = |rows| {
            Tensor::from_vec(rows, (packed.tokens(), self.width()), &self.device).map_err(device::error)
        };
        let (mut saved, mut first) = (Vec::with_capacity(self.layers.len()), None);
        for (n, layer) in self.layers.iter().enumerate() {
            let config = config(dropout.as_ref().filter(|_| self.is_trained(n)));
            let (out, activations) =
                pass::forward(layer, self.number(n), x, &config).map_err(device::error)?;
            saved.push(activations);
            x = out;
            if wants_first && self.number(n) == 1 {
                first = Some(tensor(x.clone())?);
            }
        }
        let backward_data = BackwardData::Saved(embedded, saved);
        Ok(Pass { states: tensor(x)?, first, packed, replaced, dropout, backward_data })
    }

    /// Runs the backward pass. Returns the gradients of the parameters, and the gradient of the input vectors if the
    /// pass has any.
    pub fn backward(&self, pass: Pass<'_>, of_states: &OfStates) -> Result<(Gradients, Option<Tensor>)> {
        let (embedded, saved) = match pass.backward_data {
            BackwardData::Graph(graph) => {
                let backward = || {
                    let mut sum = (graph.states * &of_states.last)?.sum_all()?;
                    if let (Some(first), Some(of_first)) = (graph.first, &of_states.first) {
                        sum = (sum + (first * of_first)?.sum_all()?)?;
                    }
                    let mut store = sum.backward()?;
                    let of_vectors = graph.vectors.and_then(|vectors| store.remove(&vectors));
                    Ok((Gradients::take(&mut store, &self.parameters), of_vectors))
                };
                return backward().map_err(device::error);
            }
            BackwardData::Saved(embedded, saved) => (embedded, saved),
        };
        let bias = self.distance_bias(pass.packed)?;
        let config = |dropout| self.config(pass.packed, bias.as_ref(), dropout);
        let backward = || {
            let of_last = of_states.last.contiguous()?;
            let mut gradient = self.buffers.take(of_last.elem_count());
            gradient.copy_from_slice(values_of(&of_last).get()?);
            let (mut gradients, mut of_vectors) = (GradientMap::new(), None);
            let trained_bias = self.relative_bias.as_ref().filter(|_| !self.freezing.fixes_embeddings());
            let mut of_bias = trained_bias.map(|table| vec![0.0; table.elem_count()]);
            for ((n, layer), saved) in self.layers.iter().enumerate().zip(saved).rev() {
                if let Some(of_first) = of_states.first.as_ref().filter(|_| self.number(n) == 1) {
                    let of_first = of_first.contiguous()?;
                    let of_first = values_of(&of_first);
                    gradient.iter_mut().zip(of_first.get()?).for_each(|(sum, more)| *sum += more);
                }
                let config = config(pass.dropout.as_ref().filter(|_| self.is_trained(n)));
                let layer = (layer, self.number(n));
                let of_bias = of_bias.as_deref_mut();
                gradient = pass::backward(layer, saved, gradient, &config, &mut gradients, of_bias)?;
            }
            if let (Some(table), Some(of_bias)) = (trained_bias, of_bias) {
                pass::store(&mut gradients, table, of_bias)?;
            }
            match (&self.bottom, embedded) {
                (Bottom::Tables(tables), Some(embedded)) => {
                    let config = config(self.embedding_dropout(pass.dropout.as_ref()));
                    of_vectors = pass::embed_backward(
                        tables,
                        embedded,
                        pass.replaced,
                        gradient,
                        &config,
                        &mut gradients,
                    )?;
                }
                _ => self.buffers.give([gradient]),
            }
            Ok((gradients, of_vectors))
        };
        let (mut gradients, of_vectors) = backward().map_err(device::error)?;
        let gradients = Gradients::of(self.parameters.iter().map(|p| gradients.remove(&p.var.id())));
        Ok((gradients, of_vectors))
    }

    /// Runs the forward pass and returns only the hidden states.
    pub fn states(&self, packed: &Packed, dropout: Option<&DropoutConfig>) -> Result<Tensor> {
        let Pass { states, backward_data, .. } = self.run(PassInput::new(packed), dropout)?;
        if let BackwardData::Saved(embedded, saved) = backward_data {
            self.buffers.give(embedded.into_iter().flat_map(SavedEmbeddings::vectors));
            self.buffers.give(saved.into_iter().flat_map(SavedLayer::vectors));
        }
        Ok(states)
    }

    /// Runs the forward pass, and records an autograd graph. Frozen layers run without dropout.
    fn graph(&self, input: PassInput<'_>, dropout: Option<&DropoutConfig>) -> Result<Graph> {
        let PassInput { packed, replaced, first: wants_first } = input;
        let vectors = replaced.map(|replaced| Var::from_tensor(&replaced.vectors)).transpose();
        let (vectors, mut first) = (vectors.map_err(device::error)?, None);
        let mut x = match &self.bottom {
            Bottom::Frozen(frozen) => {
                let mut states = vec![0.0; packed.tokens() * self.width()];
                frozen.states(packed, &mut states)?;
                Tensor::from_vec(states, (packed.tokens(), self.width()), &self.device)
                    .map_err(device::error)?
            }
            Bottom::Tables(tables) => {
                let dropout = self.embedding_dropout(dropout);
                let replaced = replaced.zip(vectors.as_ref()).map(|(replaced, vectors)| Replaced {
                    places: replaced.places.clone(),
                    vectors: vectors.as_tensor().clone(),
                });
                tables
                    .embed(packed, replaced.as_ref(), &self.start.shape, dropout, self.dtype)
                    .map_err(device::error)?
            }
        };
        let longest = packed.lengths.iter().copied().max().unwrap_or(0);
        let bias = self.relative_bias.as_ref().map(|table| score_bias(table, longest));
        let bias = bias.transpose().map_err(device::error)?;
        for (n, layer) in self.layers.iter().enumerate() {
            let dropout = dropout.filter(|_| self.is_trained(n));
            x = layer
                .run((&x, bias.as_ref()), packed, &self.start.shape, self.number(n), dropout, self.dtype)
                .map_err(device::error)?;
            if wants_first && self.number(n) == 1 {
                first = Some(x.to_dtype(DType::F32).map_err(device::error)?);
            }
        }
        Ok(Graph { states: x.to_dtype(DType::F32).map_err(device::error)?, first, vectors })
    }

    /// Returns the dropout of the embedding layer. Dropout is applied only if the embeddings are trained.
    fn embedding_dropout<'d>(&self, dropout: Option<&'d DropoutConfig>) -> Option<&'d DropoutConfig> {
        dropout.filter(|_| !self.freezing.fixes_embeddings())
    }

    /// Returns true if `layers[n]` is trained. Dropout is applied only to trained layers.
    fn is_trained(&self, n: usize) -> bool {
        self.below + n >= self.freezing.layers
    }

    /// Returns the index of `layers[n]` in the whole network. The embedding layer has index 0. The dropout seed of a
    /// layer is derived from this index.
    fn number(&self, n: usize) -> usize {
        self.below + n + 1
    }

    fn config<'a>(
        &'a self,
        packed: &'a Packed,
        bias: Option<&'a DistanceBias>,
        dropout: Option<&'a DropoutConfig>,
    ) -> PassConfig<'a> {
        PassConfig { shape: &self.start.shape, packed, bias, dropout, buffers: &self.buffers }
    }

    /// Returns the current relative position bias, for the sequences of a batch.
    fn distance_bias(&self, packed: &Packed) -> Result<Option<DistanceBias>> {
        let Some(table) = &self.relative_bias else { return Ok(None) };
        let longest = packed.lengths.iter().copied().max().unwrap_or(0);
        let table = values_of(table);
        let data = table.get().map_err(device::error)?.to_vec();
        let bias = RelativeBias { heads: self.start.shape.heads, data };
        Ok(Some(DistanceBias::new(&bias, longest)))
    }

    /// Returns the network with the current parameters.
    pub fn network(&self) -> Result<Network> {
        let mut network = self.start.clone();
        for parameter in &self.parameters {
            layers::put(&mut network, &parameter.name, &parameter.numbers()?)?;
        }
        Ok(network)
    }
}
