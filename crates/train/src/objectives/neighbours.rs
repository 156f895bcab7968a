//! Neighbours: distills dialogue similarities from a teacher. The teacher is fitted on the same dialogues, without
//! labels.
//!
//! A batch holds some dialogues, a few neighbors of each, and random others. For each dialogue, a softmax turns its
//! similarities to the rest of the batch into a distribution. The loss is the cross-entropy between the
//! distribution of the teacher and that of the encoder.
//!
//! No pair is labeled as negative: the teacher gives a similarity for every pair of dialogues.

use candle_core::{Result as Candle, Tensor};

use super::{
    Location, Objective, ObjectiveName, PooledLoss, Prepared,
    definition::{Definition, Frozen, Role, Sample, Settings, Setup, StepTraining, Steps, Training},
    losses,
};
use crate::{data::TrainingSet, model::Packed, run::evaluations::Selection, teacher::Teacher};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::Sequence;

/// Definition of `neighbours`.
pub static NEIGHBOURS: Definition = Definition {
    name: "neighbours",
    about: "dialogues: reproduces the similarities of a teacher model, which is learned from the same dialogues",
    benchmark: "dialogues labelled.jsonl",
    sample: Sample::Dialogues,
    held_out: true,
    select: Selection::LabelFree,
    role: Role::Both,
    min_turns: 1,
    training: Training::Steps(StepTraining {
        in_batch: true,
        pooled_loss: true,
        one_corpus: false,
        several_turns: true,
        merge_turns: false,
        steps: Steps::PerCorpus(150),
        warm_up: 10,
        batch: 32,
        learning_rate: 2e-5,
        max_tokens: 160,
        temperature: 0.1,
        frozen: Frozen::Half,
        auxiliary: &[(ObjectiveName::Keep, 40.0)],
        as_auxiliary: None,
        settings: |given| {
            Box::new(NeighboursSettings { temperature: given.temperature(), max_tokens: given.max_tokens() })
        },
    }),
};

/// Settings of `neighbours`.
#[derive(Debug)]
struct NeighboursSettings {
    temperature: f64,
    max_tokens: usize,
}

impl Settings for NeighboursSettings {
    fn create(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>> {
        let mut objective = Neighbours::new(setup.sources.teachers()?);
        (objective.temperature, objective.max_tokens) = (self.temperature, self.max_tokens);
        Ok(Box::new(objective))
    }
}

/// Number of neighbors of a dialogue that are added to its batch.
const NEAR: usize = 3;
/// Lower bound on the confidence of a teacher, so that every corpus gets some training steps.
const MIN_CONFIDENCE: f64 = 0.05;

/// The objective `neighbours`: the encoder reproduces the dialogue similarities of a teacher.
pub struct Neighbours {
    /// Temperature τ of both distributions.
    pub temperature: f64,
    /// Maximum number of tokens of a dialogue; longer dialogues are truncated.
    pub max_tokens: usize,
    groups: Vec<Group>,
}

/// A teacher, and the dialogues of the training set that it knows.
pub struct Group {
    /// Teacher of the dialogues.
    pub teacher: Teacher,
    /// Training set index of each dialogue of the teacher.
    pub known: Vec<u32>,
}

impl Neighbours {
    /// Creates the objective. All dialogues of a batch are of one group, because a teacher knows only its own
    /// dialogues.
    pub fn new(groups: Vec<Group>) -> Self {
        Neighbours { temperature: 0.1, max_tokens: 160, groups }
    }

    /// Number of examples of each group per epoch.
    ///
    /// The number grows with the size of the group and with the confidence of the teacher. A teacher with low
    /// confidence would undo what the encoder learned from the others.
    fn shares(&self) -> Vec<usize> {
        let known = |group: &Group| group.teacher.len() as f64;
        let weighted = |group: &Group| known(group) * group.teacher.weight().max(MIN_CONFIDENCE).powf(1.5);
        let (all, weights): (f64, f64) =
            (self.groups.iter().map(known).sum(), self.groups.iter().map(weighted).sum());
        self.groups.iter().map(|group| (all * weighted(group) / weights).round() as usize).collect()
    }

    fn sequence(&self, data: &TrainingSet, dialogue: u32) -> Result<Sequence> {
        let turns = data.dialogue(dialogue)?;
        let tokens = turns.iter().flat_map(|turn| turn.ids.iter().chain(&data.after));
        Ok(Sequence::new(data.before.iter().chain(tokens).take(self.max_tokens).copied().collect()))
    }
}

impl Objective for Neighbours {
    fn definition(&self) -> &'static Definition {
        &NEIGHBOURS
    }

    fn examples(&self, _: &TrainingSet) -> Result<Vec<Location>> {
        // Here, `dialogue` is the index of the dialogue in its group, and `turn` is the index of the group.
        let of_group = |((turn, group), count): ((u32, &Group), usize)| {
            let known = group.teacher.len();
            (0..count).map(move |n| Location { dialogue: (n * known / count) as u32, turn })
        };
        Ok((0..).zip(&self.groups).zip(self.shares()).flat_map(of_group).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>> {
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
        // Examples of the first example's group, then random dialogues of this group until the batch is full.
        let mut more = Random::new(draw.clone().bits(), 0);
        let more = (0..4 * size as u64)
            .map(|n| (more.below(teacher.len()), Random::new(draw.clone().bits(), 1 + n)));
        let given = examples.iter().filter(|(location, _)| location.turn == first.turn);
        let given = given.map(|(location, random)| (location.dialogue as usize, random.clone()));
        // A quarter of the batch are dialogues whose neighbors are added, too.
        let mut seeds = size / (1 + NEAR);
        for (own, mut random) in given.chain(more) {
            add(own);
            if seeds > 0 && !teacher.neighbours(own).is_empty() {
                seeds -= 1;
                let mut near = teacher.neighbours(own).to_vec();
                random.shuffle(&mut near);
                near.iter().take(NEAR).for_each(|n| add(*n as usize));
            }
        }
        if chosen.len() < 2 {
            return Err(Error::Internal("the batch has only one dialogue".to_owned()));
        }
        let count = chosen.len();
        // A dialogue is not compared with itself.
        let mask = |a, b| if a == b { losses::MASKED } else { 0.0 };
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let taught =
            pairs.clone().map(|(a, b)| teacher.likeness(chosen[a], chosen[b]) + mask(a, b)).collect();
        let masked = pairs.map(|(a, b)| mask(a, b)).collect();
        let sequences = chosen.iter().map(|n| self.sequence(data, known[*n])).collect::<Result<_>>()?;
        Ok(Box::new(Taught { packed: Packed::new(sequences), taught, masked, temperature: self.temperature }))
    }
}

/// Batch of dialogues with the similarities of the teacher.
struct Taught {
    packed: Packed,
    /// Similarities of the dialogues according to the teacher, one row per dialogue.
    taught: Vec<f32>,
    /// Mask that is added to the scores of the encoder.
    masked: Vec<f32>,
    temperature: f64,
}

impl Prepared for Taught {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.packed.sequences.len()
    }

    fn shape(&self) -> serde_json::Value {
        serde_json::json!({ "taught": self.taught })
    }

    fn pooled_loss(&self) -> Option<&dyn PooledLoss> {
        Some(self)
    }
}

impl PooledLoss for Taught {
    fn loss_of(&self, means: &Tensor) -> Candle<Tensor> {
        let (means, count) = (losses::unit(means)?, self.count());
        let scores = losses::scores(&means, &means, &self.masked)?;
        let taught = Tensor::from_slice(&self.taught, (count, count), means.device())?;
        let taught = losses::log_softmax(&taught.to_dtype(means.dtype())?, self.temperature)?.exp()?;
        (losses::log_softmax(&scores, self.temperature)? * taught)?.sum(1)?.mean_all()?.neg()
    }
}
