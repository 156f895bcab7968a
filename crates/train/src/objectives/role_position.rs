//! Role and position: classifies utterances by speaker role and position in the dialogue.
//!
//! The dialogue act of an utterance (question, answer, agreement, thanks) correlates with its speaker and its position.
//! For example, customers speak first, and thanks come last. A class is a pair of speaker role and position.
//!
//! The prototype of a class is the direction from the mean of all utterances to the mean of the class, in the
//! embeddings of the untrained encoder. The score of a class is the cosine similarity with its prototype, divided by
//! the temperature, plus the log prior of the class. The loss is the cross-entropy over these scores. Training groups
//! utterances by dialogue act and ignores the topic; a second objective such as `self-distillation` can preserve the
//! topic.

use candle_core::{Result as Candle, Tensor};

use super::{
    Loss, Objective, ObjectiveBuilder, Prepared, TurnLocation,
    definition::{Definition, StepTraining},
    losses, turns_of,
};
use crate::{
    data::TrainingSet,
    model::{Packed, Trainable},
    run::evaluations::Selection,
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
    vectors::normalize,
};
use turnwise_encoder::Sequence;

pub static ROLE_POSITION: Definition = Definition {
    name: "role-position",
    former_name: Some("places"),
    about: "utterances: predicts the speaker's role and the position in the dialogue, so that similar dialogue acts (question, thanks) get similar vectors",
    held_out: false,
    // The label-free criterion measures topics, not dialogue acts.
    select: Selection::Last,
    steps: Some(StepTraining {
        pooled_loss: true,
        steps: 200,
        warm_up: 20,
        batch: 64,
        learning_rate: 1e-4,
        temperature: 0.2,
        ..StepTraining::new(|given| {
            let (temperature, max_tokens) = (given.temperature(), given.max_tokens());
            ObjectiveBuilder::new(move |setup| {
                let objective = RolePosition::new(setup.model, setup.data, max_tokens, setup.seed)?;
                Ok(RolePosition { temperature, ..objective })
            })
        })
    }),
    ..Definition::DEFAULT
};

/// Maximum number of utterances from which the prototypes are computed.
const MAX_UTTERANCES: usize = 16_384;
/// Number of speaker roles: user, agent, others.
const ROLES: u32 = 3;
/// Number of positions in a dialogue: first, second, last, second to last, middle.
const POSITIONS: u32 = 5;

const CLASSES: usize = (ROLES * POSITIONS) as usize;

/// The objective `role-position`: utterances are classified by speaker role and position, with fixed class prototypes.
pub struct RolePosition {
    /// Temperature τ of the softmax.
    pub temperature: f64,
    /// Maximum number of tokens of an utterance.
    pub max_tokens: usize,
    /// Prototypes of all classes, concatenated. A prototype is a unit vector, or zero if the class has no utterances.
    prototypes: Vec<f32>,
    /// Logarithm of the prior probability of each class.
    log_priors: [f32; CLASSES],
}

impl RolePosition {
    /// Computes the prototypes with the untrained model, from a random sample of utterances.
    pub fn new(model: &Trainable, data: &TrainingSet, max_tokens: usize, seed: u64) -> Result<Self> {
        let mut chosen = turns_of(data, 2);
        Random::new(seed, 3).shuffle(&mut chosen);
        chosen.truncate(MAX_UTTERANCES);
        let width = model.width();
        let mut objective = RolePosition {
            temperature: 0.2,
            max_tokens,
            prototypes: vec![0.0; CLASSES * width],
            log_priors: [0.0; CLASSES],
        };
        let (sequences, classes) = objective.utterances(data, chosen.iter().copied())?;
        let vectors = losses::unit_means(model, &sequences)?;
        let mut counts = [0usize; CLASSES];
        let mut total = vec![0f32; width];
        for (row, class) in vectors.rows().zip(&classes) {
            let class = *class as usize;
            counts[class] += 1;
            let sum = &mut objective.prototypes[class * width..][..width];
            sum.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
            total.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
        }
        let all = classes.len().max(1) as f32;
        for ((prototype, count), log_prior) in
            objective.prototypes.chunks_exact_mut(width).zip(counts).zip(&mut objective.log_priors)
        {
            // Add-one smoothing: the training examples may contain classes that the sample lacks.
            *log_prior = ((count + 1) as f32 / (all + CLASSES as f32)).ln();
            if count > 0 {
                prototype.iter_mut().zip(&total).for_each(|(p, t)| *p = *p / count as f32 - t / all);
                normalize(prototype);
            }
        }
        Ok(objective)
    }

    /// Returns the sequences and the classes of utterances.
    fn utterances(
        &self,
        data: &TrainingSet,
        locations: impl Iterator<Item = TurnLocation>,
    ) -> Result<(Vec<Sequence>, Vec<u32>)> {
        let (mut sequences, mut classes) = (Vec::new(), Vec::new());
        for location in locations {
            let dialogue = data.dialogue(location.dialogue)?;
            let turn = dialogue
                .get(location.turn as usize)
                .ok_or_else(|| Error::Internal(format!("the dialogue has no turn {}", location.turn)))?;
            classes.push(class(turn.role, location.turn, dialogue.len() as u32));
            sequences.push(data.utterance(&turn.ids, self.max_tokens));
        }
        Ok((sequences, classes))
    }
}

/// Returns the class of a turn. In a short dialogue, the positions "first" and "second" take precedence over "last" and
/// "second to last".
fn class(role: u32, turn: u32, turns: u32) -> u32 {
    let position = match (turn, turns - turn) {
        (0, _) => 0,
        (1, _) => 1,
        (_, 1) => 2,
        (_, 2) => 3,
        _ => 4,
    };
    role.min(ROLES - 1) * POSITIONS + position
}

impl Objective for RolePosition {
    fn definition(&self) -> &'static Definition {
        &ROLE_POSITION
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        Ok(turns_of(data, 2))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        let (sequences, classes) = self.utterances(data, examples.iter().map(|(location, _)| *location))?;
        let loss = Classification {
            classes,
            prototypes: self.prototypes.clone(),
            log_priors: self.log_priors,
            temperature: self.temperature,
        };
        Ok(Prepared::new(&ROLE_POSITION, sequences, examples.len(), loss))
    }
}

/// Loss of a batch of utterances: cross-entropy of their classes.
struct Classification {
    classes: Vec<u32>,
    prototypes: Vec<f32>,
    log_priors: [f32; CLASSES],
    temperature: f64,
}

impl Loss for Classification {
    fn compute(&self, _: &Packed, means: &Tensor) -> Candle<Tensor> {
        let tensor = |numbers: &[f32], shape: (usize, usize)| {
            Tensor::from_slice(numbers, shape, means.device())?.to_dtype(means.dtype())
        };
        let prototypes = tensor(&self.prototypes, (CLASSES, means.dim(1)?))?;
        let scores = (losses::unit(means)?.matmul(&prototypes.t()?)? / self.temperature)?;
        let scores = scores.broadcast_add(&tensor(&self.log_priors, (1, CLASSES))?)?;
        losses::cross_entropy(&scores, &self.classes)
    }

    fn shape(&self, _: usize) -> serde_json::Value {
        serde_json::json!({
            "classes": self.classes, "directions": self.prototypes, "parts": self.log_priors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_a_role_and_a_position() {
        let classes = |turns: u32| -> Vec<u32> { (0..turns).map(|turn| class(0, turn, turns)).collect() };
        assert_eq!(classes(2), [0, 1]);
        assert_eq!(classes(3), [0, 1, 2]);
        assert_eq!(classes(6), [0, 1, 4, 4, 3, 2]);
        // The second role has its own classes. All roles after it share the same classes.
        assert_eq!(class(1, 5, 6), POSITIONS + 2);
        assert_eq!((class(2, 0, 6), class(9, 0, 6)), (2 * POSITIONS, 2 * POSITIONS));
    }
}
