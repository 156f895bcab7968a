//! One step on several devices.
//!
//! Each device has the encoder, and computes the hidden states of some of the sequences. They come together on the first,
//! where they are compared with each other and what they cost is computed, as of any step; what the cost asks of each
//! state goes back to the device that it came from, and the gradients come from there. So no objective knows of devices,
//! and examples that are compared with each other still are, however many devices they were computed on.

use std::ops::Range;

use candle_core::{Result as Candle, Tensor, Var};

use crate::{
    error::{Error, Result},
    random::mixed,
    train::{
        device,
        gradients::Gradients,
        model::{Chance, Packed, Parameter, Trainable},
    },
};

/// The same encoder on each device.
pub(super) struct Devices<'a> {
    /// Where the parameters are changed.
    pub(super) first: &'a Trainable,
    /// What follows it.
    pub(super) others: &'a [Trainable],
}

impl Devices<'_> {
    /// Gives the others the parameters of the first.
    pub(super) fn follow(&self) -> Result<()> {
        for other in self.others {
            for (from, to) in self.first.parameters().iter().zip(other.parameters()) {
                let copy = || to.var.set(&from.var.to_device(other.device())?);
                copy().map_err(device::error)?;
            }
        }
        Ok(())
    }

    /// The states of sequences on the first device, with their graph only where there is no other device.
    pub(super) fn states(&self, packed: &Packed, chance: Option<&Chance>) -> Result<Tensor> {
        if self.others.is_empty() {
            return self.first.states(packed, chance);
        }
        self.gathered(&self.each(packed, chance)?)
    }

    /// What `cost` makes of the states, and the gradients of `parameters`: those of the first encoder, and those that
    /// `cost` has beside.
    pub(super) fn back(
        &self,
        packed: &Packed,
        chance: Option<&Chance>,
        parameters: &[Parameter],
        cost: impl Fn(&Tensor) -> Candle<Tensor>,
    ) -> Result<(f64, Gradients)> {
        let value = |cost: &Tensor| -> Candle<f64> { Ok(f64::from(cost.to_scalar::<f32>()?)) };
        if self.others.is_empty() {
            let states = self.first.states(packed, chance)?;
            let back = || {
                let cost = cost(&states)?;
                let mut store = cost.backward()?;
                Ok((value(&cost)?, Gradients::take(&mut store, parameters)))
            };
            return back().map_err(device::error);
        }
        let own = self.each(packed, chance)?;
        let states = self.gathered(&own)?;
        let asked = || {
            let states = Var::from_tensor(&states)?;
            let cost = cost(&states)?;
            let mut store = cost.backward()?;
            let of_states = store.remove(&states).ok_or(candle_core::Error::Msg("no gradient".to_owned()))?;
            Ok((value(&cost)?, of_states, Gradients::take(&mut store, parameters)))
        };
        let (value, of_states, mut gradients) = asked().map_err(device::error)?;
        for more in self.on_each(&own, |model, own| {
            let Own { rows, states } = own;
            let back = || {
                let asked = of_states.narrow(0, rows.start, rows.len())?.to_device(model.device())?;
                let mut store = (states * asked)?.sum_all()?.backward()?;
                Gradients::take(&mut store, model.parameters()).on(self.first.device())
            };
            back().map_err(device::error)
        })? {
            // The first parameters are the encoder's; what stands behind them has no part in the states.
            gradients.add(more)?;
        }
        Ok((value, gradients))
    }

    /// The states of each device's sequences, there and with their graph.
    fn each(&self, packed: &Packed, chance: Option<&Chance>) -> Result<Vec<Own>> {
        let ranges = shares(packed, 1 + self.others.len());
        self.on_each(&ranges, |model, range| {
            let rows = packed.starts[range.start]..packed.starts[range.end];
            let sequences = Packed::new(packed.sequences[range.clone()].to_vec());
            let chance = chance.map(|c| Chance { key: mixed(c.key, range.start as u64), ..*c });
            Ok(Own { rows, states: model.states(&sequences, chance.as_ref())? })
        })
    }

    fn gathered(&self, own: &[Own]) -> Result<Tensor> {
        let gather = || {
            let there = own.iter().map(|own| own.states.detach().to_device(self.first.device()));
            Tensor::cat(&there.collect::<Candle<Vec<Tensor>>>()?, 0)
        };
        gather().map_err(device::error)
    }

    /// Does something on each device at the same time; a share for which there is none comes to nothing.
    fn on_each<T: Sync, R: Send>(
        &self,
        shares: &[T],
        f: impl Fn(&Trainable, &T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let models = std::iter::once(self.first).chain(self.others);
        std::thread::scope(|scope| {
            let running: Vec<_> =
                models.zip(shares).map(|(model, share)| scope.spawn(|| f(model, share))).collect();
            let done = running.into_iter().map(|thread| {
                thread.join().map_err(|_| Error::Internal("a device's thread ended early".to_owned()))?
            });
            done.collect()
        })
    }
}

/// What one device computed.
struct Own {
    /// Of all rows, its own.
    rows: Range<usize>,
    states: Tensor,
}

/// Cuts sequences into parts of about as many tokens, one for each device; fewer, where there are fewer sequences.
fn shares(packed: &Packed, devices: usize) -> Vec<Range<usize>> {
    let (count, tokens) = (packed.sequences.len(), packed.tokens());
    let devices = devices.min(count).max(1);
    let mut begin = 0;
    (1..=devices)
        .map(|n| {
            // Everyone has a sequence, and leaves one to each that comes after.
            let wanted = packed.starts.partition_point(|start| *start < tokens * n / devices);
            let end = wanted.clamp(begin + 1, count - (devices - n));
            let range = begin..if n == devices { count } else { end };
            begin = end;
            range
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::Sequence;

    #[test]
    fn everyone_has_about_as_many_tokens() {
        let packed =
            |lengths: &[usize]| Packed::new(lengths.iter().map(|n| Sequence::new(vec![1; *n])).collect());
        assert_eq!(shares(&packed(&[4, 4, 4, 4]), 2), [0..2, 2..4]);
        assert_eq!(shares(&packed(&[20, 1, 1, 1]), 2), [0..1, 1..4]);
        assert_eq!(shares(&packed(&[1, 1, 1, 20]), 3), [0..2, 2..3, 3..4]);
        assert_eq!(shares(&packed(&[3, 3]), 5), [0..1, 1..2]);
    }
}
