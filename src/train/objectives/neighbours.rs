//! Neighbours: dialogues should be as like each other as a teacher says they are, who learned it from the dialogues alone.
//!
//! A batch holds some dialogues, a few neighbours of each, and others by chance. For each of them the likenesses to the rest
//! become a distribution, the teacher's and the encoder's, and the second is drawn to the first. No two dialogues are ever
//! said to be unlike: what is near by chance stays as near as the teacher has it.

use std::sync::Arc;

use candle_core::{Result as Candle, Tensor};

use super::{Objective, Place, Prepared, likeness};
use crate::{
    encoder::Sequence,
    error::{Error, Result},
    random::Random,
    train::{
        data::TrainingSet,
        model::Packed,
        ops::{Segments, pool},
        teacher::Teacher,
    },
};

/// Neighbours of a dialogue that come into a batch with it.
const WITH: usize = 3;
/// Added to the likeness of a dialogue to itself, which is not asked about.
const NEVER: f32 = -1e4;

/// The objective with its settings.
pub struct Neighbours {
    /// τ, of both distributions.
    pub temperature: f64,
    /// Tokens a dialogue may have; what is behind them is cut off.
    pub max_tokens: usize,
    teacher: Teacher,
    /// The number in the data of each dialogue that the teacher knows.
    known: Vec<u32>,
}

impl Neighbours {
    /// Taught by one who knows these dialogues of the data, by their numbers.
    pub fn new(teacher: Teacher, known: Vec<u32>) -> Self {
        Neighbours { temperature: 0.1, max_tokens: 160, teacher, known }
    }

    fn sequence(&self, data: &TrainingSet, dialogue: usize) -> Sequence {
        let turns = data.dialogues[self.known[dialogue] as usize].iter();
        let said = turns.flat_map(|said| said.ids.iter().chain(&data.after));
        Sequence::new(data.before.iter().chain(said).take(self.max_tokens).copied().collect())
    }
}

impl Objective for Neighbours {
    fn name(&self) -> &'static str {
        "neighbours"
    }

    fn whole(&self) -> bool {
        true
    }

    fn examples(&self, _: &TrainingSet) -> Vec<Place> {
        // A place is of a dialogue as the teacher counts them.
        (0..self.teacher.len() as u32).map(|n| Place { dialogue: n, turn: 0 }).collect()
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        let size = examples.len();
        let mut chosen: Vec<usize> = Vec::with_capacity(size);
        let mut add = |n: usize| {
            if chosen.len() < size && !chosen.contains(&n) {
                chosen.push(n);
            }
        };
        // A quarter with their neighbours; the rest as they come.
        let mut seeds = size / (1 + WITH);
        for (place, random) in examples.iter_mut() {
            let own = place.dialogue as usize;
            add(own);
            if seeds > 0 && !self.teacher.neighbours(own).is_empty() {
                seeds -= 1;
                let mut near = self.teacher.neighbours(own).to_vec();
                random.shuffle(&mut near);
                near.iter().take(WITH).for_each(|n| add(*n as usize));
            }
        }
        if chosen.len() < 2 {
            return Err(Error::Internal("a batch of one dialogue".to_owned()));
        }
        let count = chosen.len();
        let own = |a, b| if a == b { NEVER } else { 0.0 };
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let taught =
            pairs.clone().map(|(a, b)| self.teacher.likeness(chosen[a], chosen[b]) + own(a, b)).collect();
        let masked = pairs.map(|(a, b)| own(a, b)).collect();
        let sequences = chosen.iter().map(|n| self.sequence(data, *n)).collect();
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

    fn loss(&self, states: &Tensor) -> Candle<Tensor> {
        let count = self.count();
        let mean = |n| self.packed.mean(n, 1.0);
        let means = pool(states, &Arc::new(Segments::new((0..count).map(mean).collect())))?;
        let means = likeness::unit(&means)?;
        let square = |numbers: &[f32]| {
            Tensor::from_slice(numbers, (count, count), states.device())?.to_dtype(states.dtype())
        };
        let scores = (means.matmul(&means.t()?)? + square(&self.masked)?)?;
        let taught = (likeness::log_shares(&square(&self.taught)?, self.temperature)?).exp()?;
        (likeness::log_shares(&scores, self.temperature)? * taught)?.sum(1)?.mean_all()?.neg()
    }
}
