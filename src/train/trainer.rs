//! One step after the other.

use candle_core::Tensor;

use super::{
    data::TrainingSet,
    device,
    gradients::Gradients,
    model::{Chance, Parameter, Trainable},
    objectives::{Objective, Prepared},
    optimizer::{self, AdamW},
    order::Order,
    schedule::Schedule,
};
use crate::{
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
    model: &'a Trainable,
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
        let examples = objective.examples(data);
        if examples.is_empty() {
            return Err(Error::data(format!("the data hold no example for {}", objective.name())).with_hint(
                "it needs dialogues of several turns; `turnwise corpus stats` shows what there is",
            ));
        }
        let parameters = model.parameters().iter().chain(objective.heads()).cloned().collect::<Vec<_>>();
        let optimizer = AdamW::new(plan.optimizer, &parameters)?;
        Ok(Trainer {
            model,
            objective,
            data,
            order: Order::new(examples, plan.seed),
            plan,
            parameters,
            optimizer,
        })
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
        let Plan { batch, parts, rate, .. } = self.plan;
        let parts = parts.clamp(1, batch.max(1));
        let (mut loss, mut tokens, mut gradients) = (0.0, 0, None::<Gradients>);
        for part in 0..parts {
            let range = batch * part / parts..batch * (part + 1) / parts;
            let first = step * batch as u64;
            let mut examples: Vec<_> = range.map(|n| self.order.at(first + n as u64)).collect();
            let prepared = self.objective.prepare(self.data, &mut examples)?;
            tokens += prepared.packed().tokens();
            let key = mixed(mixed(self.plan.seed, step), part as u64);
            // What a part counts in the mean of the step.
            let share = prepared.count() as f64 / batch as f64;
            let (cost, own) = self.part(prepared.as_ref(), key, share)?;
            loss += cost;
            match &mut gradients {
                None => gradients = Some(own),
                Some(sum) => sum.add(own)?,
            }
        }
        let gradients = gradients.ok_or_else(|| Error::Internal("a step without examples".to_owned()))?;
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

    /// What a part of the examples costs, and its gradients, both as a share of the step's.
    fn part(&self, prepared: &dyn Prepared, key: u64, share: f64) -> Result<(f64, Gradients)> {
        let chance = Chance { hidden: self.plan.dropout, attention: self.plan.dropout, key };
        let chance = (self.plan.dropout > 0.0).then_some(&chance);
        let states = self.model.states(prepared.packed(), chance)?;
        let back = || {
            let loss: Tensor = (prepared.loss(&states)? * share)?;
            let gradients = loss.backward()?;
            Ok((f64::from(loss.to_scalar::<f32>()?), gradients))
        };
        let (loss, mut gradients) = back().map_err(device::error)?;
        Ok((loss, Gradients::take(&mut gradients, &self.parameters)))
    }
}

fn not_finite(step: u64, loss: f64) -> Error {
    Error::data(format!("step {} was not taken: its loss is {loss}, or its gradient is not finite", step + 1))
        .with_hint("try a smaller learning rate; the weights are those of the step before")
}

#[cfg(test)]
mod tests;
