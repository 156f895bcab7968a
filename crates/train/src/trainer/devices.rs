//! Data parallelism: one step on several devices.
//!
//! Each device has a copy of the encoder and computes the hidden states of some sequences. The first device gathers the
//! states and computes the loss over the whole batch. Each device then receives the gradients of its states for the
//! backward pass, and the first device adds up the parameter gradients.
//!
//! Objectives therefore need no code for several devices, and in-batch negatives come from all devices.

use std::{borrow::Cow, ops::Range};

use candle_core::{Result as Candle, Tensor, Var};

use crate::{
    device,
    gradients::Gradients,
    model::{DropoutConfig, Packed, Parameter, Pass, Trainable},
};
use turnwise_core::{
    error::{Error, Result},
    random::hash64,
};

/// Copies of the encoder on several devices.
pub(super) struct Devices<'a> {
    /// The encoder that the optimizer updates.
    pub(super) first: &'a Trainable,
    /// Copies of the encoder on other devices. They receive the parameters of `first` before each step.
    pub(super) others: &'a [Trainable],
}

impl Devices<'_> {
    /// Copies the parameters of the first device to the others.
    pub(super) fn synchronize(&self) -> Result<()> {
        for other in self.others {
            for (from, to) in self.first.parameters().iter().zip(other.parameters()) {
                let copy = || to.var.set(&from.var.to_device(other.device())?);
                copy().map_err(device::error)?;
            }
        }
        Ok(())
    }

    /// Computes the hidden states of sequences and gathers them on the first device.
    pub(super) fn states(&self, packed: &Packed, dropout: Option<&DropoutConfig>) -> Result<Tensor> {
        let own = self.on_each(self.shares(packed, dropout), |model, share: Share| {
            model.states(&share.packed, share.dropout.as_ref())
        });
        self.gathered(own?.iter())
    }

    /// Computes the loss and its gradients with respect to `parameters`.
    ///
    /// The function `loss` computes the loss from the hidden states. `parameters` contains the parameters of the
    /// encoder, followed by those of the objective's own layers.
    pub(super) fn backward(
        &self,
        packed: &Packed,
        dropout: Option<&DropoutConfig>,
        parameters: &[Parameter],
        loss: impl Fn(&Tensor) -> Candle<Tensor>,
    ) -> Result<(f64, Gradients)> {
        let shares = self.shares(packed, dropout);
        let passes = self.on_each(shares.iter().collect(), |model, share: &Share| {
            model.run(&share.packed, share.dropout.as_ref())
        })?;
        let states = self.gathered(passes.iter().map(|pass| &pass.states))?;
        let (value, of_states, mut gradients) =
            differentiate(&states, parameters, loss).map_err(device::error)?;
        let passes = passes.into_iter().zip(&shares).collect();
        for own in self.on_each(passes, |model, (pass, share): (Pass, &Share)| {
            let own = of_states.narrow(0, share.rows.start, share.rows.len());
            let own = own.and_then(|own| own.to_device(model.device())).map_err(device::error)?;
            model.backward(pass, &own)?.on(self.first.device()).map_err(device::error)
        })? {
            // The encoder's parameters come first. `own` has no gradients for the objective's parameters, because the
            // states do not depend on them.
            gradients.add(own)?;
        }
        Ok((value, gradients))
    }

    /// Splits a batch into shares, one per device.
    fn shares<'p>(&self, packed: &'p Packed, dropout: Option<&DropoutConfig>) -> Vec<Share<'p>> {
        let ranges = split(packed, 1 + self.others.len());
        let share = |range: Range<usize>| Share {
            rows: packed.starts[range.start]..packed.starts[range.end],
            dropout: dropout.map(|c| match range.start {
                0 => *c,
                first => DropoutConfig { key: hash64(c.key, first as u64), ..*c },
            }),
            packed: match range.len() == packed.sequences.len() {
                true => Cow::Borrowed(packed),
                false => Cow::Owned(Packed::new(packed.sequences[range].to_vec())),
            },
        };
        ranges.into_iter().map(share).collect()
    }

    fn gathered<'t>(&self, states: impl Iterator<Item = &'t Tensor>) -> Result<Tensor> {
        let moved = states.map(|states| states.to_device(self.first.device()));
        let gather = || match moved.collect::<Candle<Vec<Tensor>>>()?.as_slice() {
            [all] => Ok(all.clone()),
            some => Tensor::cat(some, 0),
        };
        gather().map_err(device::error)
    }

    /// Calls `f` for each device, with the device's encoder and share. The calls run in parallel.
    fn on_each<T: Send, R: Send>(
        &self,
        shares: Vec<T>,
        f: impl Fn(&Trainable, T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let work: Vec<(&Trainable, T)> = std::iter::once(self.first).chain(self.others).zip(shares).collect();
        if work.len() < 2 {
            return work.into_iter().map(|(model, share)| f(model, share)).collect();
        }
        let f = &f;
        std::thread::scope(|scope| {
            let running: Vec<_> =
                work.into_iter().map(|(model, share)| scope.spawn(move || f(model, share))).collect();
            let done = running.into_iter().map(|thread| {
                thread.join().map_err(|_| Error::Internal("the thread of a device panicked".to_owned()))?
            });
            done.collect()
        })
    }
}

/// Computes the loss for the input `x`. Returns the loss, its gradient with respect to `x`, and the gradients of the
/// parameters.
pub(super) fn differentiate(
    x: &Tensor,
    parameters: &[Parameter],
    loss: impl Fn(&Tensor) -> Candle<Tensor>,
) -> Candle<(f64, Tensor, Gradients)> {
    let x = Var::from_tensor(x)?;
    let loss = loss(&x)?;
    let mut store = loss.backward()?;
    let of_x = store.remove(&x).ok_or(candle_core::Error::Msg("no gradient".to_owned()))?;
    Ok((f64::from(loss.to_scalar::<f32>()?), of_x, Gradients::take(&mut store, parameters)))
}

/// Part of a batch that one device computes: some of the sequences of the batch.
struct Share<'p> {
    packed: Cow<'p, Packed>,
    /// Row range of this share in the whole batch.
    rows: Range<usize>,
    dropout: Option<DropoutConfig>,
}

/// Splits sequences into one range per device, with about the same number of tokens.
///
/// There are fewer ranges if there are fewer sequences than devices.
fn split(packed: &Packed, devices: usize) -> Vec<Range<usize>> {
    let (count, tokens) = (packed.sequences.len(), packed.tokens());
    let devices = devices.min(count).max(1);
    let mut begin = 0;
    (1..=devices)
        .map(|n| {
            // Each device gets at least one sequence.
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
    use turnwise_encoder::Sequence;

    #[test]
    fn all_devices_have_about_the_same_number_of_tokens() {
        let packed =
            |lengths: &[usize]| Packed::new(lengths.iter().map(|n| Sequence::new(vec![1; *n])).collect());
        assert_eq!(split(&packed(&[4, 4, 4, 4]), 2), [0..2, 2..4]);
        assert_eq!(split(&packed(&[20, 1, 1, 1]), 2), [0..1, 1..4]);
        assert_eq!(split(&packed(&[1, 1, 1, 20]), 3), [0..2, 2..3, 3..4]);
        assert_eq!(split(&packed(&[3, 3]), 5), [0..1, 1..2]);
    }
}
