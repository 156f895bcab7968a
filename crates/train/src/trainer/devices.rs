//! One step on several devices.
//!
//! Each device has the encoder, and computes the hidden states of some of the sequences. They come together on the first,
//! where they are compared with each other and what they cost is computed, as of any step; what the cost asks of each
//! state goes back to the device that it came from, and the gradients come from there. So no objective knows of devices,
//! and examples that are compared with each other still are, however many devices they were computed on.

use std::{borrow::Cow, ops::Range};

use candle_core::{Result as Candle, Tensor, Var};

use crate::{
    device,
    gradients::Gradients,
    model::{DropoutConfig, Packed, Parameter, Pass, Trainable},
};
use turnwise_core::{
    error::{Error, Result},
    random::mixed,
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

    /// The states of sequences on the first device.
    pub(super) fn states(&self, packed: &Packed, chance: Option<&DropoutConfig>) -> Result<Tensor> {
        let own = self.on_each(self.shares(packed, chance), |model, share: Share| {
            model.states(&share.packed, share.chance.as_ref())
        });
        self.gathered(own?.iter())
    }

    /// What `cost` makes of the states, and the gradients of `parameters`: those of the encoder, and those that `cost` has
    /// beside.
    pub(super) fn back(
        &self,
        packed: &Packed,
        chance: Option<&DropoutConfig>,
        parameters: &[Parameter],
        cost: impl Fn(&Tensor) -> Candle<Tensor>,
    ) -> Result<(f64, Gradients)> {
        let shares = self.shares(packed, chance);
        let passes = self.on_each(shares.iter().collect(), |model, share: &Share| {
            model.run(&share.packed, share.chance.as_ref())
        })?;
        let states = self.gathered(passes.iter().map(|pass| &pass.states))?;
        let asked = || {
            let states = Var::from_tensor(&states)?;
            let cost = cost(&states)?;
            let mut store = cost.backward()?;
            let of_states = store.remove(&states).ok_or(candle_core::Error::Msg("no gradient".to_owned()))?;
            let value = f64::from(cost.to_scalar::<f32>()?);
            Ok((value, of_states, Gradients::take(&mut store, parameters)))
        };
        let (value, of_states, mut gradients) = asked().map_err(device::error)?;
        let passes = passes.into_iter().zip(&shares).collect();
        for own in self.on_each(passes, |model, (pass, share): (Pass, &Share)| {
            let asked = of_states.narrow(0, share.rows.start, share.rows.len());
            let asked = asked.and_then(|asked| asked.to_device(model.device())).map_err(device::error)?;
            model.back(pass, &asked)?.on(self.first.device()).map_err(device::error)
        })? {
            // The first parameters are the encoder's; what stands behind them has no part in the states.
            gradients.add(own)?;
        }
        Ok((value, gradients))
    }

    /// What each device computes.
    fn shares<'p>(&self, packed: &'p Packed, chance: Option<&DropoutConfig>) -> Vec<Share<'p>> {
        let ranges = cut(packed, 1 + self.others.len());
        let share = |range: Range<usize>| Share {
            rows: packed.starts[range.start]..packed.starts[range.end],
            chance: chance.map(|c| match range.start {
                0 => *c,
                first => DropoutConfig { key: mixed(c.key, first as u64), ..*c },
            }),
            packed: match range.len() == packed.sequences.len() {
                true => Cow::Borrowed(packed),
                false => Cow::Owned(Packed::new(packed.sequences[range].to_vec())),
            },
        };
        ranges.into_iter().map(share).collect()
    }

    fn gathered<'t>(&self, states: impl Iterator<Item = &'t Tensor>) -> Result<Tensor> {
        let there = states.map(|states| states.to_device(self.first.device()));
        let gather = || match there.collect::<Candle<Vec<Tensor>>>()?.as_slice() {
            [all] => Ok(all.clone()),
            some => Tensor::cat(some, 0),
        };
        gather().map_err(device::error)
    }

    /// Does something with each device's share at the same time.
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
                thread.join().map_err(|_| Error::Internal("a device's thread ended early".to_owned()))?
            });
            done.collect()
        })
    }
}

/// What one device computes.
struct Share<'p> {
    packed: Cow<'p, Packed>,
    /// Of the rows of all, its own.
    rows: Range<usize>,
    chance: Option<DropoutConfig>,
}

/// Cuts sequences into parts of about as many tokens, one for each device; fewer, where there are fewer sequences.
fn cut(packed: &Packed, devices: usize) -> Vec<Range<usize>> {
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
    use turnwise_encoder::Sequence;

    #[test]
    fn everyone_has_about_as_many_tokens() {
        let packed =
            |lengths: &[usize]| Packed::new(lengths.iter().map(|n| Sequence::new(vec![1; *n])).collect());
        assert_eq!(cut(&packed(&[4, 4, 4, 4]), 2), [0..2, 2..4]);
        assert_eq!(cut(&packed(&[20, 1, 1, 1]), 2), [0..1, 1..4]);
        assert_eq!(cut(&packed(&[1, 1, 1, 20]), 3), [0..2, 2..3, 3..4]);
        assert_eq!(cut(&packed(&[3, 3]), 5), [0..1, 1..2]);
    }
}
