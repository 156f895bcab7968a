//! Places: classifies utterances by speaker role and position in the dialogue.
//!
//! The dialogue act of an utterance (question, answer, agreement, thanks) correlates with its speaker and its
//! position: customers speak first, agents ask questions, and thanks come last. A class (a "place") is a pair of
//! speaker role and position.
//!
//! The prototype of a class is the direction from the mean of all utterances to the mean of the class, in the
//! embeddings of the untrained encoder. The loss is the cross-entropy over the cosine similarities with the
//! prototypes. It groups utterances by dialogue act and ignores their topic; a second objective such as `keep` can
//! preserve the topic.

use candle_core::{Result as Candle, Tensor};

use super::{
    Location, Objective, PooledLoss, Prepared,
    definition::{Definition, Frozen, Role, Sample, Settings, Setup, StepTraining, Steps, Training},
    losses,
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

/// Definition of `places`.
pub static PLACES: Definition = Definition {
    name: "places",
    about: "utterances: those with similar dialogue acts (question, thanks) get similar vectors",
    benchmark: "sr select.txt",
    sample: Sample::Utterances,
    held_out: false,
    // The label-free criterion measures topics, not dialogue acts.
    select: Selection::Last,
    role: Role::Both,
    min_turns: 2,
    training: Training::Steps(StepTraining {
        in_batch: false,
        pooled_loss: true,
        one_corpus: false,
        several_turns: false,
        merge_turns: false,
        steps: Steps::Total(200),
        warm_up: 20,
        batch: 64,
        learning_rate: 1e-4,
        max_tokens: 64,
        temperature: 0.2,
        frozen: Frozen::Half,
        auxiliary: &[],
        as_auxiliary: None,
        settings: |given| {
            Box::new(PlacesSettings { temperature: given.temperature(), max_tokens: given.max_tokens() })
        },
    }),
};

/// Settings of `places`.
#[derive(Debug)]
struct PlacesSettings {
    temperature: f64,
    max_tokens: usize,
}

impl Settings for PlacesSettings {
    fn create(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>> {
        let mut objective = Places::new(setup.model, setup.data, self.max_tokens, setup.seed)?;
        objective.temperature = self.temperature;
        Ok(Box::new(objective))
    }
}

/// Maximum number of utterances for the prototypes.
const MOST: usize = 16_384;
/// Number of speaker roles: user, agent, others.
const ROLES: u32 = 3;
/// Number of positions in a dialogue: first, second, last, second to last, middle.
const POSITIONS: u32 = 5;

/// Number of classes.
const CLASSES: usize = (ROLES * POSITIONS) as usize;

/// The objective `places`: utterances are classified by speaker role and position, with fixed class prototypes.
pub struct Places {
    /// Temperature τ of the softmax.
    pub temperature: f64,
    /// Maximum number of tokens of an utterance.
    pub max_tokens: usize,
    /// Prototype of each class, a unit vector; zeros if the class has no utterances.
    prototypes: Vec<f32>,
    /// Logarithm of the prior probability of each class.
    log_priors: [f32; CLASSES],
}

impl Places {
    /// Computes the prototypes with the untrained model, from a random sample of utterances.
    pub fn new(model: &Trainable, data: &TrainingSet, max_tokens: usize, seed: u64) -> Result<Self> {
        let mut chosen = super::every_turn(data);
        Random::new(seed, 3).shuffle(&mut chosen);
        chosen.truncate(MOST);
        let width = model.width();
        let mut places = Places {
            temperature: 0.2,
            max_tokens,
            prototypes: vec![0.0; CLASSES * width],
            log_priors: [0.0; CLASSES],
        };
        let (sequences, classes) = places.utterances(data, chosen.iter().copied())?;
        let vectors = losses::unit_means(model, &sequences)?;
        let mut counts = [0usize; CLASSES];
        let mut total = vec![0f32; width];
        for (row, class) in vectors.rows().zip(&classes) {
            let class = *class as usize;
            counts[class] += 1;
            let sum = &mut places.prototypes[class * width..][..width];
            sum.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
            total.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
        }
        let all = classes.len().max(1) as f32;
        for ((prototype, count), log_prior) in
            places.prototypes.chunks_exact_mut(width).zip(counts).zip(&mut places.log_priors)
        {
            // Add-one smoothing: the other utterances may contain classes that the sample lacks.
            *log_prior = ((count + 1) as f32 / (all + CLASSES as f32)).ln();
            if count > 0 {
                prototype.iter_mut().zip(&total).for_each(|(p, t)| *p = *p / count as f32 - t / all);
                normalize(prototype);
            }
        }
        Ok(places)
    }

    /// Returns the sequences and the classes of utterances.
    fn utterances(
        &self,
        data: &TrainingSet,
        locations: impl Iterator<Item = Location>,
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

/// Returns the class of a turn. In short dialogues, "first" and "second" take precedence over "last".
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

impl Objective for Places {
    fn definition(&self) -> &'static Definition {
        &PLACES
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Location>> {
        Ok(super::every_turn(data))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>> {
        let (sequences, classes) = self.utterances(data, examples.iter().map(|(location, _)| *location))?;
        Ok(Box::new(Placed {
            packed: Packed::new(sequences),
            classes,
            prototypes: self.prototypes.clone(),
            log_priors: self.log_priors,
            temperature: self.temperature,
        }))
    }
}

/// Batch of utterances with their classes.
struct Placed {
    packed: Packed,
    classes: Vec<u32>,
    prototypes: Vec<f32>,
    log_priors: [f32; CLASSES],
    temperature: f64,
}

impl Prepared for Placed {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.classes.len()
    }

    fn shape(&self) -> serde_json::Value {
        serde_json::json!({
            "classes": self.classes, "directions": self.prototypes, "parts": self.log_priors,
        })
    }

    fn pooled_loss(&self) -> Option<&dyn PooledLoss> {
        Some(self)
    }
}

impl PooledLoss for Placed {
    fn loss_of(&self, means: &Tensor) -> Candle<Tensor> {
        let (on, width) = (means.device(), means.dim(1)?);
        let tensor = |numbers: &[f32], shape: (usize, usize)| {
            Tensor::from_slice(numbers, shape, on)?.to_dtype(means.dtype())
        };
        let prototypes = tensor(&self.prototypes, (CLASSES, width))?;
        let scores = (losses::unit(means)?.matmul(&prototypes.t()?)? / self.temperature)?;
        let scores = scores.broadcast_add(&tensor(&self.log_priors, (1, CLASSES))?)?;
        let classes = Tensor::from_slice(&self.classes, (self.classes.len(), 1), on)?;
        losses::log_softmax(&scores, 1.0)?.gather(&classes, 1)?.mean_all()?.neg()
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
        // The second role has its own classes; all further roles share theirs.
        assert_eq!(class(1, 5, 6), POSITIONS + 2);
        assert_eq!((class(2, 0, 6), class(9, 0, 6)), (2 * POSITIONS, 2 * POSITIONS));
    }
}
