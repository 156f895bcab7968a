//! An encoder that can be trained: layers that stay as they are below, layers that change above.

mod batch;
mod frozen;
mod layers;
mod parameters;
#[cfg(test)]
mod tests;

pub use batch::{Chance, Packed};
pub use parameters::Parameter;

use candle_core::{DType, Device, Tensor};

use crate::{
    encoder::Network,
    error::{Error, Result},
    train::device,
};
use frozen::Frozen;
use layers::{Layer, Maker, Tables};

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
        Ok(Trainable { start: network, bottom, layers, below, parameters, device: on.clone(), dtype })
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

    /// The hidden states after the last layer, a row a token, in f32.
    pub fn states(&self, packed: &Packed, chance: Option<&Chance>) -> Result<Tensor> {
        let mut x = match &self.bottom {
            Bottom::Frozen(frozen) => {
                let states = frozen.states(packed)?;
                Tensor::from_vec(states, (packed.tokens(), self.width()), &self.device)
                    .map_err(device::error)?
            }
            Bottom::Tables(tables) => {
                tables.embed(packed, &self.start.shape, chance, self.dtype).map_err(device::error)?
            }
        };
        for (n, layer) in self.layers.iter().enumerate() {
            let number = self.below + n + 1;
            x = layer
                .run(&x, packed, &self.start.shape, number, chance, self.dtype)
                .map_err(device::error)?;
        }
        x.to_dtype(DType::F32).map_err(device::error)
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
