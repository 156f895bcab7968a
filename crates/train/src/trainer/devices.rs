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
    model::{DropoutConfig, OfStates, Packed, Parameter, Pass, PassInput, Replaced, Trainable},
    objectives::Utterances,
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
        let own = self.on_each(self.shares(packed, None, dropout)?, |model, share: Share| {
            model.states(&share.packed, share.dropout.as_ref())
        });
        self.gathered(own?.iter())
    }

    /// Computes the loss and its gradients with respect to `parameters`.
    ///
    /// The function `loss` computes the loss from the hidden states. `parameters` contains the parameters of the
    /// encoder, followed by those of the objective's own layers. `fixed` are input vectors that are not trained.
    pub(super) fn backward(
        &self,
        packed: &Packed,
        fixed: Option<&Replaced>,
        dropout: Option<&DropoutConfig>,
        parameters: &[Parameter],
        loss: impl Fn(&Tensor) -> Candle<Tensor>,
    ) -> Result<(f64, Gradients)> {
        let input = PassInput { packed, replaced: fixed, first: false };
        let (value, gradients, _) = self.backward_to_vectors(&input, None, dropout, parameters, loss)?;
        Ok((value, gradients))
    }

    /// Computes the loss and its gradients with respect to `parameters` and to the vectors of utterances, if there are
    /// any. The vectors are inputs of the network, or of the loss, or of both.
    fn backward_to_vectors(
        &self,
        input: &PassInput<'_>,
        vectors: Option<&Var>,
        dropout: Option<&DropoutConfig>,
        parameters: &[Parameter],
        loss: impl Fn(&Tensor) -> Candle<Tensor>,
    ) -> Result<(f64, Gradients, Option<Tensor>)> {
        let shares = self.shares(input.packed, input.replaced, dropout)?;
        let passes = self.forward(&shares, false)?;
        let states = self.gathered(passes.iter().map(|pass| &pass.states))?;
        let found = differentiate(&states, vectors, parameters, loss).map_err(device::error)?;
        let mut gradients = found.gradients;
        // The encoder's parameters come first. The states do not depend on the objective's parameters.
        let (own, through_network) = self.back(passes, &shares, &OfStates::of_last(found.of_x))?;
        gradients.add(own)?;
        let of_vectors = added(found.of_vectors, through_network).map_err(device::error)?;
        Ok((found.loss, gradients, of_vectors))
    }

    /// Computes the loss of a batch with utterances that are encoded before, and its gradients with respect to
    /// `parameters`. The function `loss` computes the loss from the hidden states and from the vectors of the utterances.
    ///
    /// A first pass encodes the utterances. The gradient of the loss flows back through both passes.
    pub(super) fn backward_through_utterances(
        &self,
        packed: &Packed,
        utterances: &Utterances,
        dropout: Option<&DropoutConfig>,
        parameters: &[Parameter],
        loss: impl Fn(&Tensor, &Tensor) -> Candle<Tensor>,
    ) -> Result<(f64, Gradients)> {
        let own_dropout = dropout.map(|c| DropoutConfig { key: hash64(c.key, UTTERANCES), ..*c });
        let shares = self.shares(&utterances.packed, None, own_dropout.as_ref())?;
        let passes = self.forward(&shares, utterances.need_first_layer())?;
        let first: Vec<&Tensor> = passes.iter().filter_map(|pass| pass.first.as_ref()).collect();
        let first = match first.is_empty() {
            true => None,
            false => Some(Var::from_tensor(&self.gathered(first.into_iter())?).map_err(device::error)?),
        };
        let last = self.gathered(passes.iter().map(|pass| &pass.states))?;
        let last = Var::from_tensor(&last).map_err(device::error)?;
        let graph = utterances.vectors(first.as_deref(), &last).map_err(device::error)?;
        let vectors = Var::from_tensor(&graph.detach()).map_err(device::error)?;
        let replaced = Replaced { places: utterances.places.clone(), vectors: vectors.as_tensor().clone() };
        let replaced = Some(&replaced).filter(|replaced| !replaced.places.is_empty());
        let input = PassInput { packed, replaced, first: false };
        let (value, mut gradients, of_vectors) =
            self.backward_to_vectors(&input, Some(&vectors), dropout, parameters, |states| {
                loss(states, &vectors)
            })?;
        let of_vectors =
            of_vectors.ok_or_else(|| Error::Internal("the vectors have no gradient".to_owned()))?;
        let of_states = || {
            let mut store = (graph * of_vectors)?.sum_all()?.backward()?;
            let last = store.remove(&last).map_or_else(|| last.zeros_like(), Ok)?;
            Ok(OfStates { last, first: first.as_ref().and_then(|first| store.remove(first)) })
        };
        let (own, _) = self.back(passes, &shares, &of_states().map_err(device::error)?)?;
        gradients.add(own)?;
        Ok((value, gradients))
    }

    /// Runs the forward pass of every share. If `first` is true, also returns the states of the first layer.
    fn forward<'s>(&self, shares: &'s [Share<'s>], first: bool) -> Result<Vec<Pass<'s>>> {
        self.on_each(shares.iter().collect(), |model, share: &Share| {
            let input = PassInput { packed: &share.packed, replaced: share.replaced.as_ref(), first };
            model.run(input, share.dropout.as_ref())
        })
    }

    /// Runs the backward pass of every share. Returns the sums of the gradients of the encoder's parameters and of the
    /// input vectors.
    fn back(
        &self,
        passes: Vec<Pass<'_>>,
        shares: &[Share<'_>],
        of_states: &OfStates,
    ) -> Result<(Gradients, Option<Tensor>)> {
        let passes = passes.into_iter().zip(shares).collect();
        let each = self.on_each(passes, |model, (pass, share): (Pass, &Share)| {
            let own =
                |of: &Tensor| of.narrow(0, share.rows.start, share.rows.len())?.to_device(model.device());
            let of_states = || {
                let first = of_states.first.as_ref().map(own).transpose()?;
                Ok(OfStates { last: own(&of_states.last)?, first })
            };
            let (gradients, of_vectors) = model.backward(pass, &of_states().map_err(device::error)?)?;
            let moved = || {
                let to = self.first.device();
                Ok((gradients.on(to)?, of_vectors.map(|of| of.to_device(to)).transpose()?))
            };
            moved().map_err(device::error)
        })?;
        let mut each = each.into_iter();
        let (mut gradients, mut of_vectors) =
            each.next().ok_or_else(|| Error::Internal("the batch has no sequences".to_owned()))?;
        for (more, more_of_vectors) in each {
            gradients.add(more)?;
            of_vectors = added(of_vectors, more_of_vectors).map_err(device::error)?;
        }
        Ok((gradients, of_vectors))
    }

    /// Splits a batch into shares, one per device.
    fn shares<'p>(
        &self,
        packed: &'p Packed,
        replaced: Option<&Replaced>,
        dropout: Option<&DropoutConfig>,
    ) -> Result<Vec<Share<'p>>> {
        let ranges = split(packed, 1 + self.others.len());
        let models = std::iter::once(self.first).chain(self.others);
        let replaced_in = |range: &Range<usize>, model: &Trainable| {
            let Some(Replaced { places, vectors }) = replaced else { return Ok(None) };
            let (start, end) = (packed.starts[range.start] as u32, packed.starts[range.end] as u32);
            let own = places.iter().filter(|(row, _)| (start..end).contains(row));
            let places = own.map(|(row, vector)| (row - start, *vector)).collect();
            let vectors = vectors.to_device(model.device()).map_err(device::error)?;
            Ok::<_, Error>(Some(Replaced { places, vectors }))
        };
        let share = |(range, model): (Range<usize>, &Trainable)| {
            Ok(Share {
                rows: packed.starts[range.start]..packed.starts[range.end],
                replaced: replaced_in(&range, model)?,
                dropout: dropout.map(|c| match range.start {
                    0 => *c,
                    first => DropoutConfig { key: hash64(c.key, first as u64), ..*c },
                }),
                packed: match range.len() == packed.sequences.len() {
                    true => Cow::Borrowed(packed),
                    false => Cow::Owned(Packed::new(packed.sequences[range].to_vec())),
                },
            })
        };
        ranges.into_iter().zip(models).map(share).collect()
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

/// A loss and its gradients.
pub(super) struct Differentiated {
    pub(super) loss: f64,
    /// Gradient with respect to the input of the loss.
    pub(super) of_x: Tensor,
    /// Gradient with respect to the vectors of utterances, if the loss depends on them.
    of_vectors: Option<Tensor>,
    /// Gradients of the parameters.
    pub(super) gradients: Gradients,
}

/// Computes the loss for the input `x`, and its gradients.
pub(super) fn differentiate(
    x: &Tensor,
    vectors: Option<&Var>,
    parameters: &[Parameter],
    loss: impl Fn(&Tensor) -> Candle<Tensor>,
) -> Candle<Differentiated> {
    let x = Var::from_tensor(x)?;
    let loss = loss(&x)?;
    let mut store = loss.backward()?;
    Ok(Differentiated {
        loss: f64::from(loss.to_scalar::<f32>()?),
        of_x: store.remove(&x).ok_or(candle_core::Error::Msg("no gradient".to_owned()))?,
        of_vectors: vectors.and_then(|vectors| store.remove(vectors)),
        gradients: Gradients::take(&mut store, parameters),
    })
}

/// Adds two gradients, of which each can be missing.
fn added(a: Option<Tensor>, b: Option<Tensor>) -> Candle<Option<Tensor>> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(Some((a + b)?)),
        (a, b) => Ok(a.or(b)),
    }
}

/// Part of a batch that one device computes: some of the sequences of the batch.
struct Share<'p> {
    packed: Cow<'p, Packed>,
    /// Row range of this share in the whole batch.
    rows: Range<usize>,
    replaced: Option<Replaced>,
    dropout: Option<DropoutConfig>,
}

/// Random stream of the dropout masks for the utterances whose vectors are inputs of a batch.
const UTTERANCES: u64 = u64::MAX;

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
