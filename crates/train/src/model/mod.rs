//! An encoder that can be trained: layers that stay as they are below, layers that change above.

mod batch;
mod buffer_pool;
mod frozen;
mod layers;
mod parameters;
mod pass;
#[cfg(test)]
mod tests;

pub use batch::{DropoutConfig, Packed};
pub use parameters::Parameter;

use candle_core::{DType, Device, Tensor};

use crate::{device, gradients::Gradients, ops::held};
use buffer_pool::BufferPool;
use frozen::Frozen;
use layers::{Layer, Maker, Tables};
use pass::{Embedded, Slopes, Through, With};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::Network;

/// What of a network is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freezing {
    /// So many layers stay as they are, from below; the embeddings with them.
    pub layers: usize,
    /// The embeddings stay as they are, even if no layer does.
    pub embeddings: bool,
    /// Bytes of what frozen layers give that may be kept.
    pub memory: usize,
}

/// A network with variables for parameters.
pub struct Trainable {
    /// As it was; what is not trained is taken from here.
    start: Network,
    bottom: Bottom,
    layers: Vec<Layer>,
    /// How many layers there are below.
    below: usize,
    parameters: Vec<Parameter>,
    device: Device,
    dtype: DType,
    /// Vectors of earlier passes.
    room: BufferPool,
}

/// Sequences that went through, and the way back.
pub struct Pass<'p> {
    /// The hidden states after the last layer, a row a token, in f32.
    pub states: Tensor,
    packed: &'p Packed,
    chance: Option<DropoutConfig>,
    way: Way,
}

/// The way back from the states to the parameters.
enum Way {
    /// What layers kept, from below, on the CPU.
    Kept(Option<Embedded>, Vec<Through>),
    /// States with their graph.
    Graph(Tensor),
}

/// What comes before the layers that are run with a graph.
enum Bottom {
    Frozen(Box<Frozen>),
    Tables(Box<Tables>),
}

impl Trainable {
    /// Makes variables of what is to be trained. `dtype` is what is computed in; parameters are f32.
    pub fn new(network: Network, freezing: Freezing, on: &Device, dtype: DType) -> Result<Self> {
        let count = network.layers.len();
        if freezing.layers >= count {
            return Err(Error::Input {
                message: format!("{} layers cannot stay as they are: the model has {count}", freezing.layers),
                hint: Some(format!("leave at least one to be trained: 0 to {}", count - 1)),
            });
        }
        let fixed = freezing.embeddings || freezing.layers > 0;
        let mut make = Maker::new(&network.shape, on);
        // On a GPU frozen layers are run there, as the others are, of tensors that no graph is kept of.
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
            parameters,
            device: on.clone(),
            dtype,
            room: BufferPool::default(),
        })
    }

    /// What is trained.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The width of a hidden state.
    pub fn width(&self) -> usize {
        self.start.shape.hidden
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The network that training began with.
    pub fn start(&self) -> &Network {
        &self.start
    }

    /// Sends sequences through. On the CPU layers keep what the way back needs; elsewhere a graph does.
    pub fn run<'p>(&self, packed: &'p Packed, chance: Option<&DropoutConfig>) -> Result<Pass<'p>> {
        let chance = chance.copied();
        if !self.device.is_cpu() || self.dtype != DType::F32 {
            let states = self.graph(packed, chance.as_ref())?;
            return Ok(Pass { states: states.detach(), packed, chance, way: Way::Graph(states) });
        }
        let with = self.with(packed, chance.as_ref());
        let (mut x, embedded) = match &self.bottom {
            Bottom::Frozen(frozen) => {
                let mut states = self.room.take(packed.tokens() * self.width());
                frozen.states(packed, &mut states)?;
                (states, None)
            }
            Bottom::Tables(tables) => {
                let (x, embedded) = pass::embed(tables, &with).map_err(device::error)?;
                (x, Some(embedded))
            }
        };
        let mut kept = Vec::with_capacity(self.layers.len());
        for (n, layer) in self.layers.iter().enumerate() {
            let (out, through) = pass::forward(layer, self.number(n), x, &with).map_err(device::error)?;
            kept.push(through);
            x = out;
        }
        let states = Tensor::from_vec(x, (packed.tokens(), self.width()), &self.device);
        let (states, way) = (states.map_err(device::error)?, Way::Kept(embedded, kept));
        Ok(Pass { states, packed, chance, way })
    }

    /// From what is asked of the states to what is asked of the parameters.
    pub fn back(&self, pass: Pass<'_>, of_states: &Tensor) -> Result<Gradients> {
        let (embedded, kept) = match pass.way {
            Way::Graph(states) => {
                let back = || (states * of_states)?.sum_all()?.backward();
                return Ok(Gradients::take(&mut back().map_err(device::error)?, &self.parameters));
            }
            Way::Kept(embedded, kept) => (embedded, kept),
        };
        let with = self.with(pass.packed, pass.chance.as_ref());
        let back = || {
            let of_states = of_states.contiguous()?;
            let mut gradient = self.room.take(of_states.elem_count());
            gradient.copy_from_slice(held(&of_states).get()?);
            let mut slopes = Slopes::new();
            for ((n, layer), through) in self.layers.iter().enumerate().zip(kept).rev() {
                gradient = pass::backward(layer, self.number(n), through, gradient, &with, &mut slopes)?;
            }
            match (&self.bottom, embedded) {
                (Bottom::Tables(tables), Some(embedded)) => {
                    pass::embed_backward(tables, embedded, gradient, &with, &mut slopes)?;
                }
                _ => self.room.give([gradient]),
            }
            Ok(slopes)
        };
        let mut slopes = back().map_err(device::error)?;
        Ok(Gradients::of(self.parameters.iter().map(|p| slopes.remove(&p.var.id()))))
    }

    /// The states alone.
    pub fn states(&self, packed: &Packed, chance: Option<&DropoutConfig>) -> Result<Tensor> {
        let Pass { states, way, .. } = self.run(packed, chance)?;
        if let Way::Kept(embedded, kept) = way {
            self.room.give(embedded.into_iter().flat_map(Embedded::vectors));
            self.room.give(kept.into_iter().flat_map(Through::vectors));
        }
        Ok(states)
    }

    /// The states with their graph.
    fn graph(&self, packed: &Packed, chance: Option<&DropoutConfig>) -> Result<Tensor> {
        let mut x = match &self.bottom {
            Bottom::Frozen(frozen) => {
                let mut states = vec![0.0; packed.tokens() * self.width()];
                frozen.states(packed, &mut states)?;
                Tensor::from_vec(states, (packed.tokens(), self.width()), &self.device)
                    .map_err(device::error)?
            }
            Bottom::Tables(tables) => {
                tables.embed(packed, &self.start.shape, chance, self.dtype).map_err(device::error)?
            }
        };
        for (n, layer) in self.layers.iter().enumerate() {
            x = layer
                .run(&x, packed, &self.start.shape, self.number(n), chance, self.dtype)
                .map_err(device::error)?;
        }
        x.to_dtype(DType::F32).map_err(device::error)
    }

    /// The number of a trained layer, by which chance knows it.
    fn number(&self, n: usize) -> usize {
        self.below + n + 1
    }

    fn with<'a>(&'a self, packed: &'a Packed, chance: Option<&'a DropoutConfig>) -> With<'a> {
        With { shape: &self.start.shape, packed, chance, room: &self.room }
    }

    /// The network as it is now.
    pub fn network(&self) -> Result<Network> {
        let mut network = self.start.clone();
        for parameter in &self.parameters {
            layers::put(&mut network, &parameter.name, &parameter.numbers()?)?;
        }
        Ok(network)
    }
}
