//! One step after the other.

mod devices;

use candle_core::{Tensor, Var};

use super::{
    data::TrainingSet,
    device,
    gradients::Gradients,
    model::{DropoutConfig, Packed, Parameter, Trainable},
    objectives::{Objective, means},
    optimizer::{self, AdamW},
    order::Order,
    schedule::Schedule,
};
use devices::Devices;

use turnwise_core::{
    error::{Error, Result},
    random::mixed,
};

/// How a run goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Examples a step.
    pub batch: usize,
    /// Parts that a step's examples are computed in, one after the other: less memory, the same step.
    pub parts: usize,
    /// The learning rate.
    pub rate: f64,
    /// How it goes.
    pub schedule: Schedule,
    /// The optimiser.
    pub optimizer: optimizer::Settings,
    /// Gradients that are longer are made as long.
    pub clip: Option<f64>,
    /// How much of hidden states and of attention is dropped.
    pub dropout: f32,
    /// Of everything that looks like chance.
    pub seed: u64,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stepped {
    /// Steps taken, this one included.
    pub step: u64,
    /// What the examples cost on average, before the step.
    pub loss: f64,
    /// The learning rate of the step.
    pub rate: f64,
    /// How long the gradient was.
    pub norm: f64,
    /// Examples.
    pub examples: usize,
    /// Tokens.
    pub tokens: usize,
}

/// A run.
pub struct Trainer<'a> {
    devices: Devices<'a>,
    objective: &'a dyn Objective,
    data: &'a TrainingSet,
    plan: Plan,
    order: Order,
    parameters: Vec<Parameter>,
    optimizer: AdamW,
}

impl<'a> Trainer<'a> {
    /// Begins.
    pub fn new(
        model: &'a Trainable,
        objective: &'a dyn Objective,
        data: &'a TrainingSet,
        plan: Plan,
    ) -> Result<Self> {
        let examples = objective.examples(data)?;
        if examples.is_empty() {
            return Err(Error::data(format!("the data hold no example for {}", objective.name())).with_hint(
                "it needs dialogues of several turns; `turnwise corpus stats` shows what there is",
            ));
        }
        let parameters = model.parameters().iter().chain(objective.heads()).cloned().collect::<Vec<_>>();
        let optimizer = AdamW::new(plan.optimizer, &parameters)?;
        let order = Order::new(examples, plan.seed);
        let order = match objective.apart() && data.corpora() > 1 {
            true => order.apart(plan.batch, |place| data.corpus(place.dialogue) as u32),
            false => order,
        };
        Ok(Trainer {
            devices: Devices { first: model, others: &[] },
            objective,
            data,
            order,
            plan,
            parameters,
            optimizer,
        })
    }

    /// Computes the states of sequences with these as well: the same encoder on other devices.
    pub fn beside(mut self, others: &'a [Trainable]) -> Self {
        self.devices.others = others;
        self
    }

    /// What is trained: the encoder's parameters, then the objective's own.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The optimiser.
    pub fn optimizer(&self) -> &AdamW {
        &self.optimizer
    }

    /// Goes on where a run was after so many steps.
    pub fn restore(&mut self, steps: u64, state: Vec<[Vec<f32>; 2]>) -> Result<()> {
        self.optimizer.restore(steps, state)
    }

    /// Examples an epoch.
    pub fn examples(&self) -> usize {
        self.order.len()
    }

    /// Takes a step. The first looks at every parameter's gradient; one that is not finite ends the run before anything
    /// is changed, in any step.
    pub fn step(&mut self) -> Result<Stepped> {
        let step = self.optimizer.steps();
        self.devices.follow()?;
        let Plan { batch, parts, rate, .. } = self.plan;
        let parts = parts.clamp(1, batch.max(1));
        let key = mixed(self.plan.seed, step);
        let (loss, tokens, gradients) = match parts > 1 && self.objective.whole() {
            true => self.cached(step, parts, key)?,
            false => self.in_parts(step, parts, key)?,
        };
        if step == 0 {
            gradients.audit(&self.parameters)?;
        }
        let norm = gradients.norm()?;
        if !loss.is_finite() || !norm.is_finite() {
            return Err(not_finite(step, loss));
        }
        let scale = match self.plan.clip {
            Some(most) if norm > most => most / norm,
            _ => 1.0,
        };
        let rate = rate * self.plan.schedule.factor(step);
        self.optimizer.step(&self.parameters, &gradients, rate, scale)?;
        Ok(Stepped { step: step + 1, loss, rate, norm, examples: batch, tokens })
    }

    /// The examples of the next step as they would be computed, for people: what of the data they are, their tokens, and what
    /// of those is what.
    pub fn next_batch(&mut self) -> Result<serde_json::Value> {
        let (step, batch) = (self.optimizer.steps(), self.plan.batch as u64);
        let mut examples: Vec<_> = (0..batch).map(|n| self.order.at(step * batch + n)).collect();
        let places: Vec<[u32; 2]> = examples.iter().map(|(p, _)| [p.dialogue, p.turn]).collect();
        let prepared = self.objective.prepare(self.data, &mut examples)?;
        let sequences: Vec<&[u32]> = prepared.packed().sequences.iter().map(|s| s.ids.as_slice()).collect();
        Ok(serde_json::json!({
            "step": step + 1, "examples": places, "sequences": sequences, "shape": prepared.shape(),
        }))
    }

    /// The examples of a step, part by part: what they cost, their tokens, their gradients.
    fn in_parts(&mut self, step: u64, parts: usize, key: u64) -> Result<(f64, usize, Gradients)> {
        let batch = self.plan.batch;
        let (mut loss, mut tokens, mut gradients) = (0.0, 0, None::<Gradients>);
        for part in 0..parts {
            let range = batch * part / parts..batch * (part + 1) / parts;
            let first = step * batch as u64;
            let mut examples: Vec<_> = range.map(|n| self.order.at(first + n as u64)).collect();
            let prepared = self.objective.prepare(self.data, &mut examples)?;
            tokens += prepared.packed().tokens();
            // What a part counts in the mean of the step.
            let share = prepared.count() as f64 / batch as f64;
            let chance = self.chance(mixed(key, part as u64));
            let (cost, own) =
                self.devices.back(prepared.packed(), chance.as_ref(), &self.parameters, |states| {
                    prepared.loss(states)? * share
                })?;
            loss += cost;
            match &mut gradients {
                None => gradients = Some(own),
                Some(sum) => sum.add(own)?,
            }
        }
        let gradients = gradients.ok_or_else(|| Error::Internal("a step without examples".to_owned()))?;
        Ok((loss, tokens, gradients))
    }

    /// The same where examples are compared with each other (GradCache): the means of all sequences are computed part by
    /// part and kept without their graph; what the loss asks of each mean is then taken back through its part, computed
    /// again. The memory is that of a part, the gradients are those of the whole.
    fn cached(&mut self, step: u64, parts: usize, key: u64) -> Result<(f64, usize, Gradients)> {
        let batch = self.plan.batch as u64;
        let mut examples: Vec<_> = (0..batch).map(|n| self.order.at(step * batch + n)).collect();
        let prepared = self.objective.prepare(self.data, &mut examples)?;
        let pooled_loss = prepared.pooled_loss().ok_or_else(|| {
            Error::input(format!("the examples of {} cannot be computed in parts", self.objective.name()))
                .with_hint("leave --parts out")
        })?;
        let share = prepared.count() as f64 / batch as f64;
        let sequences = &prepared.packed().sequences;
        let count = sequences.len();
        let cut: Vec<Packed> = (0..parts)
            .map(|part| Packed::new(sequences[count * part / parts..count * (part + 1) / parts].to_vec()))
            .filter(|packed| !packed.sequences.is_empty())
            .collect();
        let chance = |part: usize| self.chance(mixed(key, part as u64));
        let kept = cut.iter().enumerate().map(|(part, packed)| {
            let states = self.devices.states(packed, chance(part).as_ref())?;
            Ok(means(&states, packed).map_err(device::error)?.detach())
        });
        let kept = kept.collect::<Result<Vec<Tensor>>>()?;
        let asked = || -> candle_core::Result<_> {
            let all = Var::from_tensor(&Tensor::cat(&kept, 0)?)?;
            let loss: Tensor = (pooled_loss.loss_of(&all)? * share)?;
            let mut store = loss.backward()?;
            let of_means = store.remove(&all).ok_or(candle_core::Error::Msg("no gradient".to_owned()))?;
            Ok((f64::from(loss.to_scalar::<f32>()?), of_means, Gradients::take(&mut store, &self.parameters)))
        };
        let (loss, of_means, mut gradients) = asked().map_err(device::error)?;
        let mut row = 0;
        for (part, packed) in cut.iter().enumerate() {
            let rows = packed.sequences.len();
            let (_, own) = self.devices.back(packed, chance(part).as_ref(), &self.parameters, |states| {
                (means(states, packed)? * of_means.narrow(0, row, rows)?)?.sum_all()
            })?;
            gradients.add(own)?;
            row += rows;
        }
        Ok((loss, prepared.packed().tokens(), gradients))
    }

    fn chance(&self, key: u64) -> Option<DropoutConfig> {
        let dropout = self.plan.dropout;
        (dropout > 0.0).then_some(DropoutConfig { hidden: dropout, attention: dropout, key })
    }
}

fn not_finite(step: u64, loss: f64) -> Error {
    Error::data(format!("step {} was not taken: its loss is {loss}, or its gradient is not finite", step + 1))
        .with_hint("try a smaller learning rate; the weights are those of the step before")
}

#[cfg(test)]
mod tests;
