//! Networks of a selector: the network that reads pairs, and a separate network for sentence vectors if the selector has one.

use std::sync::atomic::AtomicUsize;

use turnwise_core::error::Result;

use super::{SentenceSettings, Utterance};
use crate::{
    Backend, DeviceChoice, Network, Part, Precision, Reduction, Vectors, open,
    transformer::{Item, run_items},
};

/// Runs a network of a selector on a device.
pub struct Engine {
    pub(super) backend: Box<dyn Backend>,
    /// Number of layers of the network.
    pub(super) layers: usize,
    /// Maximum number of tokens per batch. It is reduced when the device runs out of memory.
    pub(super) budget: AtomicUsize,
}

impl Engine {
    /// Loads a network on a device. `None` selects the fastest 16-bit precision.
    pub fn new(network: &Network, device: DeviceChoice, precision: Option<Precision>) -> Result<Self> {
        let backend = open::selector_engine(network, device, precision)?;
        Ok(Engine { layers: network.layers.len(), budget: AtomicUsize::new(backend.best_batch()), backend })
    }

    /// Runs the network and computes a weighted sum of states per item.
    pub(super) fn run(&self, items: &[Item], inputs: usize, layers: &[(usize, f32)]) -> Result<Vectors> {
        run_items(self.backend.as_ref(), &self.budget, layers, &[Reduction::Sum], items, inputs)
    }

    /// Returns the vectors of texts that are encoded separately: the context turns, for example.
    pub fn sentence_vectors(&self, settings: &SentenceSettings, turns: &[Utterance]) -> Result<Vectors> {
        let inputs = turns.len();
        // One pass suffices if both layers have the same terms, up to a factor.
        let mut sum = Vectors::zeros(inputs, self.backend.hidden());
        let passes = match settings.layer_weights() {
            Some(weights) => {
                let layers: Vec<(usize, f32)> = [(1, weights[0]), (self.layers, weights[1])]
                    .into_iter()
                    .filter(|(_, weight)| *weight != 0.0)
                    .collect();
                let unweighted: Vec<Vec<Part>> = turns
                    .iter()
                    .map(|turn| {
                        let (terms, weight) = match weights[0] != 0.0 {
                            true => (&turn.terms[0], weights[0]),
                            false => (&turn.terms[1], weights[1]),
                        };
                        terms
                            .iter()
                            .map(|t| Part { weight: t.weight / weight, rows: t.rows.clone() })
                            .collect()
                    })
                    .collect();
                vec![(merged(layers), unweighted)]
            }
            None => (0..2)
                .map(|n| {
                    let layer = if n == 0 { 1 } else { self.layers };
                    (vec![(layer, 1.0)], turns.iter().map(|turn| turn.terms[n].clone()).collect())
                })
                .collect(),
        };
        for (layers, terms) in passes {
            let items: Vec<Item> = turns
                .iter()
                .zip(terms)
                .enumerate()
                .map(|(n, (turn, terms))| Item {
                    input: n,
                    sequence: turn.sequence.clone(),
                    pools: vec![terms],
                })
                .collect();
            let vectors = self.run(&items, inputs, &layers)?;
            for n in 0..inputs {
                sum.row_mut(n).iter_mut().zip(vectors.row(n)).for_each(|(sum, more)| *sum += more);
            }
        }
        Ok(sum)
    }
}

/// Adds up the weights of equal layers. A network with one layer has the same first and last layer.
fn merged(layers: Vec<(usize, f32)>) -> Vec<(usize, f32)> {
    let mut merged: Vec<(usize, f32)> = Vec::new();
    for (layer, weight) in layers {
        match merged.last_mut() {
            Some((last, sum)) if *last == layer => *sum += weight,
            _ => merged.push((layer, weight)),
        }
    }
    merged
}
