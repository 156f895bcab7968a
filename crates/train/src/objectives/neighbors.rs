//! Neighbors: distills dialogue similarities from a teacher. The teacher is fitted on the same dialogues, without
//! labels.
//!
//! A batch holds some dialogues, a few neighbors of each, and random dialogues. For each dialogue, a softmax turns its
//! similarities to the rest of the batch into a distribution. The loss is the cross-entropy between the
//! distribution of the teacher and that of the encoder.
//!
//! No pair is labeled as negative: the teacher provides a similarity for every pair of dialogues.

use candle_core::{Result as Candle, Tensor};

use super::{
    Loss, Objective, ObjectiveBuilder, ObjectiveName, Prepared, TurnLocation,
    definition::{Definition, Sample, StepTraining},
    losses,
};
use crate::{data::TrainingSet, model::Packed, teacher::Teacher};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};

pub static NEIGHBORS: Definition = Definition {
    name: "neighbors",
    former_name: Some("neighbours"),
    about: "dialogues: reproduces the similarities of a teacher model, which is learned from the same dialogues",
    benchmark: "dialogues labeled.jsonl",
    sample: Sample::Dialogues,
    min_turns: 1,
    steps: Some(StepTraining {
        in_batch: true,
        pooled_loss: true,
        several_turns: true,
        steps: 150,
        per_corpus: true,
        warm_up: 10,
        max_tokens: 160,
        temperature: 0.1,
        auxiliary: &[(ObjectiveName::SelfDistillation, 40.0)],
        ..StepTraining::new(|given| {
            let (temperature, max_tokens) = (given.temperature(), given.max_tokens());
            ObjectiveBuilder::new(move |setup| {
                Ok(Neighbors { temperature, max_tokens, groups: setup.sources.teachers()? })
            })
        })
    }),
    ..Definition::DEFAULT
};

/// Maximum number of neighbors of a dialogue that are added to its batch.
const NEAR: usize = 3;
/// Lower bound on the confidence of a teacher, so that every corpus gets some training steps.
const MIN_CONFIDENCE: f64 = 0.05;

/// The objective `neighbors`: the encoder reproduces the dialogue similarities of a teacher.
pub struct Neighbors {
    /// Temperature τ of both distributions.
    pub temperature: f64,
    /// Maximum number of tokens of a dialogue; longer dialogues are truncated.
    pub max_tokens: usize,
    /// One group per corpus. A batch has dialogues of only one group, because a teacher knows only the similarities of
    /// its own dialogues.
    pub groups: Vec<Group>,
}

/// A teacher, and the training dialogues that it was fitted on.
pub struct Group {
    /// Teacher of the dialogues.
    pub teacher: Teacher,
    /// For each dialogue of the teacher, its index in the training set.
    pub known: Vec<u32>,
}

impl Neighbors {
    /// Returns the number of examples of each group per epoch.
    ///
    /// The number grows with the size of the group and with the confidence of its teacher. A teacher with low
    /// confidence would undo what the encoder learned from the other teachers.
    fn shares(&self) -> Vec<usize> {
        let known = |group: &Group| group.teacher.len() as f64;
        let weighted = |group: &Group| known(group) * group.teacher.agreement().max(MIN_CONFIDENCE).powf(1.5);
        let (all, weights): (f64, f64) =
            (self.groups.iter().map(known).sum(), self.groups.iter().map(weighted).sum());
        self.groups.iter().map(|group| (all * weighted(group) / weights).round() as usize).collect()
    }
}

impl Objective for Neighbors {
    fn definition(&self) -> &'static Definition {
        &NEIGHBORS
    }

    fn examples(&self, _: &TrainingSet) -> Result<Vec<TurnLocation>> {
        // Here, `dialogue` is the index of the dialogue in its group, and `turn` is the index of the group.
        let of_group = |((turn, group), count): ((u32, &Group), usize)| {
            let known = group.teacher.len();
            (0..count).map(move |n| TurnLocation { dialogue: (n * known / count) as u32, turn })
        };
        Ok((0..).zip(&self.groups).zip(self.shares()).flat_map(of_group).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        let size = examples.len();
        let Some((first, draw)) = examples.first().cloned() else {
            return Err(Error::Internal("the batch has no examples".to_owned()));
        };
        let Group { teacher, known } = &self.groups[first.turn as usize];
        let mut chosen: Vec<usize> = Vec::with_capacity(size);
        let mut add = |n: usize| {
            if chosen.len() < size && !chosen.contains(&n) {
                chosen.push(n);
            }
        };
        // Add the examples from the group of the first example, then random dialogues of this group until the batch is
        // full.
        let mut more = Random::new(draw.clone().bits(), 0);
        let more = (0..4 * size as u64)
            .map(|n| (more.below(teacher.len()), Random::new(draw.clone().bits(), 1 + n)));
        let given = examples.iter().filter(|(location, _)| location.turn == first.turn);
        let given = given.map(|(location, random)| (location.dialogue as usize, random.clone()));
        // Neighbors are added for a number of dialogues: at most a quarter of the batch size.
        let mut seeds = size / (1 + NEAR);
        for (own, mut random) in given.chain(more) {
            add(own);
            if seeds > 0 && !teacher.neighbors(own).is_empty() {
                seeds -= 1;
                let mut near = teacher.neighbors(own).to_vec();
                random.shuffle(&mut near);
                near.iter().take(NEAR).for_each(|n| add(*n as usize));
            }
        }
        if chosen.len() < 2 {
            return Err(Error::Internal("the batch has only one dialogue".to_owned()));
        }
        let count = chosen.len();
        // A dialogue is not compared with itself.
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let mask: Vec<f32> = pairs.clone().map(|(a, b)| if a == b { losses::MASKED } else { 0.0 }).collect();
        let targets = pairs.zip(&mask).map(|((a, b), mask)| teacher.cosine(chosen[a], chosen[b]) + mask);
        let targets = targets.collect();
        let locations = chosen.iter().map(|n| TurnLocation { dialogue: known[*n], turn: 0 });
        let sequences = locations.map(|location| data.sequence_from(location, self.max_tokens));
        let sequences = sequences.collect::<Result<_>>()?;
        let loss = Distillation { targets, mask, temperature: self.temperature };
        Ok(Prepared::new(&NEIGHBORS, sequences, count, loss))
    }
}

/// Loss of a batch of dialogues: cross-entropy between the similarities of the teacher and those of the encoder.
struct Distillation {
    /// Similarities of the dialogues according to the teacher, one row per dialogue.
    targets: Vec<f32>,
    /// Mask that is added to the scores of the encoder.
    mask: Vec<f32>,
    temperature: f64,
}

impl Loss for Distillation {
    fn compute(&self, packed: &Packed, means: &Tensor) -> Candle<Tensor> {
        let (means, count) = (losses::unit(means)?, packed.sequences.len());
        let scores = losses::scores(&means, &means, &self.mask)?;
        let targets = Tensor::from_slice(&self.targets, (count, count), means.device())?;
        let targets = losses::log_softmax(&targets.to_dtype(means.dtype())?, self.temperature)?.exp()?;
        (losses::log_softmax(&scores, self.temperature)? * targets)?.sum(1)?.mean_all()?.neg()
    }

    fn shape(&self, _: usize) -> serde_json::Value {
        serde_json::json!({ "taught": self.targets })
    }
}
