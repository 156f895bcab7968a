//! Training loop: computes the steps of a run.

mod devices;

use std::ops::Range;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::{
    data::TrainingSet,
    device,
    gradients::Gradients,
    model::{DropoutConfig, Packed, Parameter, Trainable},
    objectives::{Objective, TurnLocation, means},
    optimizer::Schedule,
    optimizer::{self, AdamW},
    order::Order,
};
use devices::{Devices, Differentiated, differentiate};
use turnwise_core::{
    error::{Error, Result},
    random::{Random, hash64},
};

/// Settings of the training loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Batch size: number of examples per step.
    pub batch: usize,
    /// Number of micro-batches per step. More micro-batches need less memory. Compared with one large batch, the
    /// gradients differ only by dropout and rounding.
    pub parts: usize,
    /// Peak learning rate.
    pub rate: f64,
    /// Learning rate schedule.
    pub schedule: Schedule,
    /// Optimizer settings.
    pub optimizer: optimizer::Settings,
    /// Maximum gradient norm; `None` disables clipping.
    pub clip: Option<f64>,
    /// Dropout probability of hidden states and attention weights.
    pub dropout: f32,
    /// Random seed.
    pub seed: u64,
}

/// Result of a training step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Number of steps taken, including this one.
    pub step: u64,
    /// Mean loss of the examples, before the update.
    pub loss: f64,
    /// Learning rate of the step.
    #[serde(rename = "learning_rate")]
    pub rate: f64,
    /// Gradient norm before clipping.
    #[serde(rename = "gradient")]
    pub norm: f64,
    /// Number of examples in the batch.
    pub examples: usize,
    /// Number of tokens in the batch.
    pub tokens: usize,
}

/// Trainer of a model on one objective.
pub struct Trainer<'a> {
    devices: Devices<'a>,
    objective: &'a dyn Objective,
    data: &'a TrainingSet,
    plan: Plan,
    order: Order,
    parameters: Vec<Parameter>,
    /// The optimizer, which also counts the steps.
    pub optimizer: AdamW,
}

impl<'a> Trainer<'a> {
    /// Creates a trainer at step 0. Returns an error if the data has no examples for the objective.
    pub fn new(
        model: &'a Trainable,
        objective: &'a dyn Objective,
        data: &'a TrainingSet,
        plan: Plan,
    ) -> Result<Self> {
        let examples = objective.examples(data)?;
        if examples.is_empty() {
            return Err(Error::data(format!("the data has no examples for {}", objective.definition().name)).with_hint(
                "dialogues with several turns are needed; `turnwise corpus stats` shows the lengths of the dialogues",
            ));
        }
        let parameters = model.parameters().iter().chain(objective.heads()).cloned().collect::<Vec<_>>();
        let optimizer = AdamW::new(plan.optimizer, &parameters)?;
        let order = Order::new(examples, plan.seed);
        let order = match objective.definition().steps.as_ref().is_some_and(|steps| steps.one_corpus)
            && data.corpora() > 1
        {
            true => order.by_corpus(plan.batch, |location| data.corpus(location.dialogue) as u32),
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

    /// Adds copies of the encoder on other devices. Each device computes a share of every batch.
    pub fn with_devices(mut self, others: &'a [Trainable]) -> Self {
        self.devices.others = others;
        self
    }

    /// Trained parameters: first those of the encoder, then those of the objective.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Runs one training step.
    ///
    /// Returns an error and changes no parameter if the loss or the gradient norm is not finite. The first step also
    /// returns an error if the gradient of a parameter is missing or zero.
    pub fn step(&mut self) -> Result<StepResult> {
        let step = self.optimizer.steps();
        self.devices.synchronize()?;
        let Plan { batch, parts, rate, .. } = self.plan;
        let parts = parts.clamp(1, batch.max(1));
        let key = hash64(self.plan.seed, step);
        let (loss, tokens, gradients) = match parts > 1 && self.objective.in_batch() {
            true => self.cached(step, parts, key)?,
            false => self.accumulated(step, parts, key)?,
        };
        if step == 0 {
            gradients.audit(&self.parameters)?;
        }
        let norm = gradients.norm()?;
        if !loss.is_finite() || !norm.is_finite() {
            let message =
                format!("stopped before step {}: the loss ({loss}) or the gradient is not finite", step + 1);
            return Err(Error::data(message)
                .with_hint("try a lower learning rate; the weights of the previous step are unchanged"));
        }
        let scale = match self.plan.clip {
            Some(most) if norm > most => most / norm,
            _ => 1.0,
        };
        let rate = rate * self.plan.schedule.factor(step);
        self.optimizer.step(&self.parameters, &gradients, rate, scale)?;
        Ok(StepResult { step: step + 1, loss, rate, norm, examples: batch, tokens })
    }

    /// Returns the batch of the next step as JSON, for debugging: the locations of the examples, the token ids of the
    /// sequences, and the other inputs of the loss.
    pub fn next_batch(&mut self) -> Result<serde_json::Value> {
        let step = self.optimizer.steps();
        let mut examples = self.examples(step, 0..self.plan.batch);
        let locations: Vec<[u32; 2]> = examples.iter().map(|(p, _)| [p.dialogue, p.turn]).collect();
        let prepared = self.objective.prepare(self.data, &mut examples)?;
        let sequences: Vec<&[u32]> = prepared.packed.sequences.iter().map(|s| s.ids.as_slice()).collect();
        Ok(serde_json::json!({
            "step": step + 1, "examples": locations, "sequences": sequences, "shape": prepared.shape(),
        }))
    }

    /// Returns the examples at the positions `range` in the batch of a step. Each example has its own random number
    /// generator.
    fn examples(&mut self, step: u64, range: Range<usize>) -> Vec<(TurnLocation, Random)> {
        let first = step * self.plan.batch as u64;
        range.map(|n| self.order.at(first + n as u64)).collect()
    }

    /// Computes the gradients of a step by accumulation over micro-batches. Returns the loss, the token count and the
    /// gradients.
    fn accumulated(&mut self, step: u64, parts: usize, key: u64) -> Result<(f64, usize, Gradients)> {
        let batch = self.plan.batch;
        let (mut loss, mut tokens, mut gradients) = (0.0, 0, None::<Gradients>);
        for part in 0..parts {
            let mut examples = self.examples(step, batch * part / parts..batch * (part + 1) / parts);
            let prepared = self.objective.prepare(self.data, &mut examples)?;
            tokens += prepared.packed.tokens();
            // Weight of the micro-batch in the mean loss of the step.
            let share = prepared.count as f64 / batch as f64;
            let dropout = self.dropout(hash64(key, part as u64));
            let (packed, dropout) = (&prepared.packed, dropout.as_ref());
            let (part_loss, own) = match &prepared.utterances {
                Some(utterances) => {
                    tokens += utterances.packed.tokens();
                    self.devices.backward_through_utterances(
                        packed,
                        utterances,
                        dropout,
                        &self.parameters,
                        |states, vectors| prepared.loss(states, Some(vectors))? * share,
                    )?
                }
                None => {
                    let fixed = prepared.fixed.as_ref();
                    self.devices.backward(packed, fixed, dropout, &self.parameters, |states| {
                        prepared.loss(states, None)? * share
                    })?
                }
            };
            loss += part_loss;
            match &mut gradients {
                None => gradients = Some(own),
                Some(sum) => sum.add(own)?,
            }
        }
        let gradients = gradients.ok_or_else(|| Error::Internal("the step has no examples".to_owned()))?;
        Ok((loss, tokens, gradients))
    }

    /// Computes the gradients of a step with in-batch negatives, in micro-batches (GradCache). Returns the loss, the
    /// token count and the gradients.
    ///
    /// The first pass computes the embeddings of all sequences, one micro-batch at a time, without an autograd graph.
    /// Next, the gradients of the loss with respect to the embeddings are computed. The second pass computes each
    /// micro-batch again and backpropagates these gradients. Only one micro-batch at a time needs memory for its graph.
    /// The gradients equal those of the whole batch.
    fn cached(&mut self, step: u64, parts: usize, key: u64) -> Result<(f64, usize, Gradients)> {
        let batch = self.plan.batch;
        let mut examples = self.examples(step, 0..batch);
        let prepared = self.objective.prepare(self.data, &mut examples)?;
        if !prepared.is_pooled {
            let name = self.objective.definition().name;
            return Err(Error::input(format!("{name} does not support --micro-batches above 1"))
                .with_hint("omit --micro-batches"));
        }
        let share = prepared.count as f64 / batch as f64;
        let sequences = &prepared.packed.sequences;
        let count = sequences.len();
        let micro_batches: Vec<Packed> = (0..parts)
            .map(|part| Packed::new(sequences[count * part / parts..count * (part + 1) / parts].to_vec()))
            .filter(|packed| !packed.sequences.is_empty())
            .collect();
        let dropout = |part: usize| self.dropout(hash64(key, part as u64));
        let embeddings = micro_batches.iter().enumerate().map(|(part, packed)| {
            let states = self.devices.states(packed, dropout(part).as_ref())?;
            Ok(means(&states, packed).map_err(device::error)?.detach())
        });
        let embeddings = embeddings.collect::<Result<Vec<Tensor>>>()?;
        let embeddings = Tensor::cat(&embeddings, 0).map_err(device::error)?;
        let Differentiated { loss, of_x: of_means, mut gradients, .. } =
            differentiate(&embeddings, None, &self.parameters, |means| prepared.pooled_loss(means)? * share)
                .map_err(device::error)?;
        let mut row = 0;
        for (part, packed) in micro_batches.iter().enumerate() {
            let rows = packed.sequences.len();
            let (_, own) =
                self.devices.backward(packed, None, dropout(part).as_ref(), &self.parameters, |states| {
                    (means(states, packed)? * of_means.narrow(0, row, rows)?)?.sum_all()
                })?;
            gradients.add(own)?;
            row += rows;
        }
        Ok((loss, prepared.packed.tokens(), gradients))
    }

    fn dropout(&self, key: u64) -> Option<DropoutConfig> {
        let probability = self.plan.dropout;
        (probability > 0.0).then_some(DropoutConfig { probability, key })
    }
}

#[cfg(test)]
mod tests;
