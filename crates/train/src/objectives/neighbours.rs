//! Neighbours: distills the similarities of dialogues from a teacher, which was learned from the dialogues without
//! labels.
//!
//! A batch holds some dialogues, a few neighbors of each, and random others. For each dialogue, a softmax turns its
//! similarities to the rest of the batch into a distribution. The loss is the cross-entropy between the
//! distribution of the teacher and that of the encoder.
//!
//! No pair is labeled as negative: the teacher gives a similarity for every pair of dialogues.

use candle_core::{Result as Candle, Tensor};

use super::{Location, Objective, PooledLoss, Prepared, likeness};
use crate::{data::TrainingSet, model::Packed, teacher::Teacher};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::Sequence;

/// Number of neighbors of a dialogue that are added to its batch.
const NEIGHBOURS: usize = 3;
/// Minimum confidence of a teacher. With it, every corpus gets some training steps.
const MIN_CONFIDENCE: f64 = 0.05;

/// The neighbours objective.
pub struct Neighbours {
    /// Temperature τ of both distributions.
    pub temperature: f64,
    /// Maximum number of tokens of a dialogue; longer dialogues are truncated.
    pub max_tokens: usize,
    groups: Vec<Group>,
}

/// A corpus with its teacher.
pub struct Group {
    /// Teacher of the dialogues.
    pub teacher: Teacher,
    /// Index in the training set of each dialogue of the teacher.
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
    fn name(&self) -> &'static str {
        "neighbours"
    }

    fn in_batch(&self) -> bool {
        true
    }

    fn examples(&self, _: &TrainingSet) -> Result<Vec<Location>> {
        // `dialogue` holds the number of the dialogue in its group, and `turn` the number of the group.
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
        // A quarter of the batch brings its neighbors along.
        let mut seeds = size / (1 + NEIGHBOURS);
        for (own, mut random) in given.chain(more) {
            add(own);
            if seeds > 0 && !teacher.neighbours(own).is_empty() {
                seeds -= 1;
                let mut near = teacher.neighbours(own).to_vec();
                random.shuffle(&mut near);
                near.iter().take(NEIGHBOURS).for_each(|n| add(*n as usize));
            }
        }
        if chosen.len() < 2 {
            return Err(Error::Internal("the batch has only one dialogue".to_owned()));
        }
        let count = chosen.len();
        // A dialogue is not compared with itself.
        let mask = |a, b| if a == b { likeness::MASKED } else { 0.0 };
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
        let (means, count) = (likeness::unit(means)?, self.count());
        let scores = likeness::scores(&means, &means, &self.masked)?;
        let taught = Tensor::from_slice(&self.taught, (count, count), means.device())?;
        let taught = likeness::log_softmax(&taught.to_dtype(means.dtype())?, self.temperature)?.exp()?;
        (likeness::log_softmax(&scores, self.temperature)? * taught)?.sum(1)?.mean_all()?.neg()
    }
}
