//! Neighbours: dialogues should be as like each other as a teacher says they are, who learned it from the dialogues alone.
//!
//! A batch holds some dialogues, a few neighbours of each, and others by chance. For each of them the likenesses to the rest
//! become a distribution, the teacher's and the encoder's, and the second is drawn to the first. No two dialogues are ever
//! said to be unlike: what is near by chance stays as near as the teacher has it.

use candle_core::{Result as Candle, Tensor};

use super::{Objective, Place, PooledLoss, Prepared, likeness};
use crate::{data::TrainingSet, model::Packed, teacher::Teacher};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::Sequence;

/// Neighbours of a dialogue that come into a batch with it.
const WITH: usize = 3;
/// How sure of a dialogue a teacher is at least, so that every corpus is heard.
const LEAST: f64 = 0.05;

/// The objective with its settings.
pub struct Neighbours {
    /// τ, of both distributions.
    pub temperature: f64,
    /// Tokens a dialogue may have; what is behind them is cut off.
    pub max_tokens: usize,
    groups: Vec<Group>,
}

/// Dialogues that belong together, and who knows them.
pub struct Group {
    /// Who says how like each other they are.
    pub teacher: Teacher,
    /// The number in the data of each dialogue that the teacher knows.
    pub known: Vec<u32>,
}

impl Neighbours {
    /// Taught by these. A batch is of one group: what a teacher knows of its own says nothing of others.
    pub fn new(groups: Vec<Group>) -> Self {
        Neighbours { temperature: 0.1, max_tokens: 160, groups }
    }

    /// How often each teacher is asked in an epoch: the more dialogues it knows and the surer it is of a pair, that is,
    /// that two dialogues are each what it takes them for. One that is not sure draws the encoder away from what others
    /// teach.
    fn shares(&self) -> Vec<usize> {
        let known = |group: &Group| group.teacher.len() as f64;
        let sure = |group: &Group| known(group) * group.teacher.weight().max(LEAST).powf(1.5);
        let (all, surely): (f64, f64) =
            (self.groups.iter().map(known).sum(), self.groups.iter().map(sure).sum());
        self.groups.iter().map(|group| (all * sure(group) / surely).round() as usize).collect()
    }

    fn sequence(&self, data: &TrainingSet, dialogue: u32) -> Result<Sequence> {
        let turns = data.dialogue(dialogue)?;
        let said = turns.iter().flat_map(|said| said.ids.iter().chain(&data.after));
        Ok(Sequence::new(data.before.iter().chain(said).take(self.max_tokens).copied().collect()))
    }
}

impl Objective for Neighbours {
    fn name(&self) -> &'static str {
        "neighbours"
    }

    fn whole(&self) -> bool {
        true
    }

    fn examples(&self, _: &TrainingSet) -> Result<Vec<Place>> {
        // A place is of a dialogue as its teacher counts them, and of the teacher.
        let of = |((turn, group), often): ((u32, &Group), usize)| {
            let known = group.teacher.len();
            (0..often).map(move |n| Place { dialogue: (n * known / often) as u32, turn })
        };
        Ok((0..).zip(&self.groups).zip(self.shares()).flat_map(of).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        let size = examples.len();
        let Some((first, draw)) = examples.first().cloned() else {
            return Err(Error::Internal("a batch without examples".to_owned()));
        };
        let Group { teacher, known } = &self.groups[first.turn as usize];
        let mut chosen: Vec<usize> = Vec::with_capacity(size);
        let mut add = |n: usize| {
            if chosen.len() < size && !chosen.contains(&n) {
                chosen.push(n);
            }
        };
        // Examples of the first one's group, then as many more of it as a batch holds.
        let mut more = Random::new(draw.clone().bits(), 0);
        let more = (0..4 * size as u64)
            .map(|n| (more.below(teacher.len()), Random::new(draw.clone().bits(), 1 + n)));
        let given = examples.iter().filter(|(place, _)| place.turn == first.turn);
        let given = given.map(|(place, random)| (place.dialogue as usize, random.clone()));
        // A quarter with their neighbours; the rest as they come.
        let mut seeds = size / (1 + WITH);
        for (own, mut random) in given.chain(more) {
            add(own);
            if seeds > 0 && !teacher.neighbours(own).is_empty() {
                seeds -= 1;
                let mut near = teacher.neighbours(own).to_vec();
                random.shuffle(&mut near);
                near.iter().take(WITH).for_each(|n| add(*n as usize));
            }
        }
        if chosen.len() < 2 {
            return Err(Error::Internal("a batch of one dialogue".to_owned()));
        }
        let count = chosen.len();
        let own = |a, b| if a == b { likeness::NEVER } else { 0.0 };
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let taught = pairs.clone().map(|(a, b)| teacher.likeness(chosen[a], chosen[b]) + own(a, b)).collect();
        let masked = pairs.map(|(a, b)| own(a, b)).collect();
        let sequences = chosen.iter().map(|n| self.sequence(data, known[*n])).collect::<Result<_>>()?;
        Ok(Box::new(Taught { packed: Packed::new(sequences), taught, masked, temperature: self.temperature }))
    }
}

/// Dialogues, and how like each other they should be.
struct Taught {
    packed: Packed,
    taught: Vec<f32>,
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
        let taught = likeness::log_shares(&taught.to_dtype(means.dtype())?, self.temperature)?.exp()?;
        (likeness::log_shares(&scores, self.temperature)? * taught)?.sum(1)?.mean_all()?.neg()
    }
}
