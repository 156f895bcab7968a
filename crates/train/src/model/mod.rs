//! Trainable encoder: frozen lower layers and trained upper layers.

mod batch;
mod frozen;
mod layers;
mod pass;
#[cfg(test)]
mod tests;

pub use batch::{DropoutConfig, Packed};
pub use layers::Parameter;

use candle_core::{DType, Device, Tensor};

use crate::{device, gradients::Gradients, ops::values_of};
use frozen::Frozen;
use layers::{Layer, Maker, Tables};
use pass::{BufferPool, GradientMap, PassConfig, SavedEmbeddings, SavedLayer};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::Network;

/// Settings of the frozen layers of a network, which are not trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freezing {
    /// Number of frozen layers, counted from the embeddings upward. If it is above 0, the embeddings are frozen, too.
    pub layers: usize,
    /// True to freeze the embeddings even if no layer is frozen.
    pub embeddings: bool,
    /// Maximum size of the cache for the outputs of the frozen layers, in bytes.
    pub memory: usize,
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
    packed: &'p Packed,
    dropout: Option<DropoutConfig>,
    backward_data: BackwardData,
}

/// Data of a forward pass that its backward pass needs.
enum BackwardData {
    /// Saved activations of the embedding layer (`None` if it is frozen) and of each trained layer. This variant is
    /// used on the CPU in f32.
    Saved(Option<SavedEmbeddings>, Vec<SavedLayer>),
    /// Hidden states with candle's autograd graph. This variant is used in all other cases.
    Graph(Tensor),
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
        let fixed = freezing.fixes_embeddings();
        let mut make = Maker::new(&network.shape, on);
        // On a GPU, candle also runs the frozen layers, without gradients.
        let by_engine = fixed && on.is_cpu() && dtype == DType::F32;
        let bottom = match by_engine {
            true => Bottom::Frozen(Box::new(Frozen::new(&network, freezing.layers, freezing.memory)?)),
            false => Bottom::Tables(Box::new(make.tables(&network.embeddings, !fixed)?)),
        };
        let below = if by_engine { freezing.layers } else { 0 };
        let layers = network.layers.iter().enumerate().skip(below);
        let layers: Vec<Layer> =
            layers.map(|(n, layer)| make.layer(n, layer, n >= freezing.layers)).collect::<Result<_>>()?;
        let parameters = make.parameters;
        Ok(Trainable {
            start: network,
            bottom,
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
    pub fn run<'p>(&self, packed: &'p Packed, dropout: Option<&DropoutConfig>) -> Result<Pass<'p>> {
        let dropout = dropout.copied();
        if !self.device.is_cpu() || self.dtype != DType::F32 {
            let states = self.graph(packed, dropout.as_ref())?;
            return Ok(Pass {
                states: states.detach(),
                packed,
                dropout,
                backward_data: BackwardData::Graph(states),
            });
        }
        let config = self.config(packed, dropout.as_ref());
        let (mut x, embedded) = match &self.bottom {
            Bottom::Frozen(frozen) => {
                let mut states = self.buffers.take(packed.tokens() * self.width());
                frozen.states(packed, &mut states)?;
                (states, None)
            }
            Bottom::Tables(tables) => {
                let (x, embedded) = pass::embed(tables, &config).map_err(device::error)?;
                (x, Some(embedded))
            }
        };
        let mut saved = Vec::with_capacity(self.layers.len());
        for (n, layer) in self.layers.iter().enumerate() {
            let (out, activations) =
                pass::forward(layer, self.number(n), x, &config).map_err(device::error)?;
            saved.push(activations);
            x = out;
        }
        let states = Tensor::from_vec(x, (packed.tokens(), self.width()), &self.device);
        let (states, backward_data) = (states.map_err(device::error)?, BackwardData::Saved(embedded, saved));
        Ok(Pass { states, packed, dropout, backward_data })
    }

    /// Runs the backward pass, and returns the gradients of the parameters. `of_states` is the gradient of the loss
    /// with respect to the hidden states.
    pub fn backward(&self, pass: Pass<'_>, of_states: &Tensor) -> Result<Gradients> {
        let (embedded, saved) = match pass.backward_data {
            BackwardData::Graph(states) => {
                let backward = || (states * of_states)?.sum_all()?.backward();
                return Ok(Gradients::take(&mut backward().map_err(device::error)?, &self.parameters));
            }
            BackwardData::Saved(embedded, saved) => (embedded, saved),
        };
        let config = self.config(pass.packed, pass.dropout.as_ref());
        let backward = || {
            let of_states = of_states.contiguous()?;
            let mut gradient = self.buffers.take(of_states.elem_count());
            gradient.copy_from_slice(values_of(&of_states).get()?);
            let mut gradients = GradientMap::new();
            for ((n, layer), saved) in self.layers.iter().enumerate().zip(saved).rev() {
                gradient = pass::backward(layer, self.number(n), saved, gradient, &config, &mut gradients)?;
            }
            match (&self.bottom, embedded) {
                (Bottom::Tables(tables), Some(embedded)) => {
                    pass::embed_backward(tables, embedded, gradient, &config, &mut gradients)?;
                }
                _ => self.buffers.give([gradient]),
            }
            Ok(gradients)
        };
        let mut gradients = backward().map_err(device::error)?;
        Ok(Gradients::of(self.parameters.iter().map(|p| gradients.remove(&p.var.id()))))
    }

    /// Runs the forward pass and returns only the hidden states.
    pub fn states(&self, packed: &Packed, dropout: Option<&DropoutConfig>) -> Result<Tensor> {
        let Pass { states, backward_data, .. } = self.run(packed, dropout)?;
        if let BackwardData::Saved(embedded, saved) = backward_data {
            self.buffers.give(embedded.into_iter().flat_map(SavedEmbeddings::vectors));
            self.buffers.give(saved.into_iter().flat_map(SavedLayer::vectors));
        }
        Ok(states)
    }

    /// Runs the forward pass, and records an autograd graph. Frozen layers run without dropout.
    fn graph(&self, packed: &Packed, dropout: Option<&DropoutConfig>) -> Result<Tensor> {
        let mut x = match &self.bottom {
            Bottom::Frozen(frozen) => {
                let mut states = vec![0.0; packed.tokens() * self.width()];
                frozen.states(packed, &mut states)?;
                Tensor::from_vec(states, (packed.tokens(), self.width()), &self.device)
                    .map_err(device::error)?
            }
            Bottom::Tables(tables) => {
                let dropout = dropout.filter(|_| !self.freezing.fixes_embeddings());
                tables.embed(packed, &self.start.shape, dropout, self.dtype).map_err(device::error)?
            }
        };
        for (n, layer) in self.layers.iter().enumerate() {
            let dropout = dropout.filter(|_| self.below + n >= self.freezing.layers);
            x = layer
                .run(&x, packed, &self.start.shape, self.number(n), dropout, self.dtype)
                .map_err(device::error)?;
        }
        x.to_dtype(DType::F32).map_err(device::error)
    }

    /// Returns the index of `layers[n]` in the whole network. The embedding layer has index 0. The dropout seed of a
    /// layer is derived from this index.
    fn number(&self, n: usize) -> usize {
        self.below + n + 1
    }

    fn config<'a>(&'a self, packed: &'a Packed, dropout: Option<&'a DropoutConfig>) -> PassConfig<'a> {
        PassConfig { shape: &self.start.shape, packed, dropout, buffers: &self.buffers }
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
