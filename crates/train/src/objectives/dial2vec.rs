//! dial2vec: what one interlocutor says must be like itself as seen from what the other answers, and less so where the
//! other's turns are exchanged for turns of other dialogues.
//!
//! `C = Eᵒᵗʰᵉʳ·Eᵒʷⁿᵀ`, zero where turns are further apart than the window; `Ẽ = C·Eᵒʷⁿ`, a mean over the other's tokens.
//! The mean goes inside: a token's weight is its product with the sum of the other's tokens in the turns near it. So the
//! matrix of tokens by tokens is never needed.

use std::{borrow::Cow, sync::Arc};

use candle_core::{Result as Candle, Tensor};

use super::{Objective, Place, Prepared, likeness};
use crate::{
    data::{Said, TrainingSet},
    model::Packed,
    ops::{Segments, pool},
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::{Part, Sequence};

/// dial2vec with its settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Dial2vec {
    /// Samples with another's turns exchanged.
    pub negatives: usize,
    /// τ.
    pub temperature: f64,
    /// Turns that are further apart do not match.
    pub window: usize,
    /// Tokens a dialogue may have; what is behind them is cut off.
    pub max_tokens: usize,
    /// As the released code has it: the first speaker's turns are always those that are kept, dialogues under five turns are
    /// left out, and the loss is divided by the number of samples once more.
    pub as_coded: bool,
    /// Rows of the model's tables of turns and roles, where it has them.
    pub tables: (Option<usize>, Option<usize>),
    /// Everything that is said in each part, of all dialogues.
    said: Vec<Vec<Place>>,
}

impl Dial2vec {
    /// With the paper's settings.
    pub fn new(data: &TrainingSet) -> Result<Self> {
        let mut said: Vec<Vec<Place>> = Vec::new();
        for dialogue in 0..data.len() as u32 {
            for (turn, uttered) in (0..).zip(data.dialogue(dialogue)?.iter()) {
                let part = uttered.part as usize;
                if said.len() <= part {
                    said.resize_with(part + 1, Vec::new);
                }
                said[part].push(Place { dialogue, turn });
            }
        }
        Ok(Dial2vec {
            negatives: 9,
            temperature: 0.2,
            window: 10,
            max_tokens: 512,
            as_coded: false,
            tables: (None, None),
            said,
        })
    }

    fn sample(&self, data: &TrainingSet, turns: &[(Cow<'_, [u32]>, usize)]) -> (Sequence, Vec<Turn>) {
        let mut sequence = Sequence::new(data.before.clone());
        let filled = |rows: Option<usize>| rows.map(|_| vec![0; data.before.len()]);
        sequence.turns = filled(self.tables.0);
        sequence.roles = filled(self.tables.1);
        sequence.positions = self.tables.0.map(|_| (0..data.before.len() as u32).collect());
        let mut spans = Vec::with_capacity(turns.len());
        for (n, (ids, side)) in turns.iter().enumerate() {
            let start = sequence.len();
            let room = self.max_tokens.saturating_sub(start);
            let ids = ids.iter().chain(&data.after).take(room).copied();
            sequence.ids.extend(ids);
            let length = sequence.ids.len() - start;
            if length == 0 {
                break;
            }
            let fill = |column: &mut Option<Vec<u32>>, value: usize, rows: Option<usize>| {
                if let Some(column) = column {
                    column.resize(start + length, value.min(rows.unwrap_or(1).saturating_sub(1)) as u32);
                }
            };
            fill(&mut sequence.turns, n, self.tables.0);
            fill(&mut sequence.roles, *side, self.tables.1);
            if let Some(positions) = &mut sequence.positions {
                positions.extend(0..length as u32);
            }
            spans.push(Turn { rows: start..start + length, side: *side, number: n });
        }
        (sequence, spans)
    }
}

impl Objective for Dial2vec {
    fn name(&self) -> &'static str {
        "dial2vec"
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Place>> {
        let two = |d: &[Said]| d.iter().any(|said| said.speaker != d[0].speaker);
        let least = if self.as_coded { 5 } else { 2 };
        let mut fit = Vec::new();
        for (dialogue, turns) in (0..).zip(data.turns_each()) {
            if *turns >= least && two(&data.dialogue(dialogue)?) {
                fit.push(Place { dialogue, turn: 0 });
            }
        }
        Ok(fit)
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        let (mut sequences, mut turns) = (Vec::new(), Vec::new());
        let count = examples.len();
        for (place, random) in examples {
            let dialogue = data.dialogue(place.dialogue)?;
            let speakers = dialogue.iter().map(|s| s.speaker).max().unwrap_or(0) + 1;
            // One of them against the rest.
            let kept = if self.as_coded { 0 } else { random.below(speakers as usize) as u32 };
            let side = |said: &Said| usize::from(said.speaker != kept);
            for sample in 0..=self.negatives {
                let mut drawn = Vec::with_capacity(dialogue.len());
                for said in dialogue.iter() {
                    let ids = match sample > 0 && said.speaker != kept {
                        false => Cow::Borrowed(said.ids.as_slice()),
                        true => {
                            let pool = &self.said[said.part as usize];
                            let place = pool[random.below(pool.len())];
                            Cow::Owned(data.said(place)?)
                        }
                    };
                    drawn.push((ids, side(said)));
                }
                let (sequence, spans) = self.sample(data, &drawn);
                sequences.push(sequence);
                turns.push(spans);
            }
        }
        if count == 0 {
            return Err(Error::Internal("a batch of no dialogues".to_owned()));
        }
        let samples = 1 + self.negatives;
        Ok(Box::new(Matched {
            packed: Packed::new(sequences),
            turns,
            samples,
            window: self.window,
            temperature: self.temperature,
            factor: if self.as_coded { 1.0 / samples as f64 } else { 1.0 },
        }))
    }
}

/// A turn in a sequence.
#[derive(Debug, Clone)]
struct Turn {
    rows: std::ops::Range<usize>,
    side: usize,
    number: usize,
}

/// Dialogues, each followed by its samples with turns exchanged.
struct Matched {
    packed: Packed,
    turns: Vec<Vec<Turn>>,
    samples: usize,
    window: usize,
    temperature: f64,
    factor: f64,
}

impl Matched {
    /// What is summed over: tokens to turns, turns to what a turn is matched with, tokens to sides.
    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for (n, turns) in self.turns.iter().enumerate() {
            let (first_row, first_turn) = (self.packed.starts[n], sums.turns.len());
            for (t, turn) in turns.iter().enumerate() {
                let rows = turn.rows.start + first_row..turn.rows.end + first_row;
                sums.of_token.extend(rows.clone().map(|_| (first_turn + t) as u32));
                sums.rows.extend(rows.clone().map(|r| r as u32));
                sums.turns.push(vec![Part { rows, weight: 1.0 }]);
                let near = turns.iter().enumerate().filter(|(_, other)| {
                    other.side != turn.side && other.number.abs_diff(turn.number) <= self.window
                });
                let near = near.map(|(o, _)| first_turn + o..first_turn + o + 1);
                sums.near.push(near.map(|rows| Part { rows, weight: 1.0 }).collect());
            }
            for side in [0, 1] {
                let own = turns.iter().enumerate().filter(|(_, t)| t.side == side);
                let tokens: usize = own.clone().map(|(_, t)| t.rows.len()).sum();
                let weight = 1.0 / tokens.max(1) as f32;
                sums.sides.push(
                    own.map(|(t, _)| Part { rows: first_turn + t..first_turn + t + 1, weight }).collect(),
                );
            }
        }
        sums
    }
}

#[derive(Default)]
struct Sums {
    turns: Vec<Vec<Part>>,
    near: Vec<Vec<Part>>,
    /// For each sample, each side's turns.
    sides: Vec<Vec<Part>>,
    rows: Vec<u32>,
    of_token: Vec<u32>,
}

impl Prepared for Matched {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.turns.len() / self.samples
    }

    fn shape(&self) -> serde_json::Value {
        let spans = |t: &Turn| (t.rows.start, t.rows.end, t.side, t.number);
        let turns: Vec<Vec<_>> = self.turns.iter().map(|t| t.iter().map(spans).collect()).collect();
        serde_json::json!({ "samples": self.samples, "window": self.window, "turns": turns })
    }

    fn loss(&self, states: &Tensor) -> Candle<Tensor> {
        let sums = self.sums();
        let segments = |parts: &Vec<Vec<Part>>| Arc::new(Segments::new(parts.clone()));
        let indices = |rows: &[u32]| Tensor::from_slice(rows, rows.len(), states.device());
        let turns = pool(states, &segments(&sums.turns))?;
        let near = pool(&turns, &segments(&sums.near))?;
        let tokens = states.index_select(&indices(&sums.rows)?, 0)?;
        let with = near.index_select(&indices(&sums.of_token)?, 0)?;
        let matched = tokens.broadcast_mul(&(&tokens * &with)?.sum_keepdim(1)?)?;
        // The tokens of turns lie one behind the other here.
        let mut start = 0;
        let seen: Vec<Vec<Part>> = sums
            .turns
            .iter()
            .map(|parts| {
                let rows = start..start + parts[0].rows.len();
                start = rows.end;
                vec![Part { rows, weight: 1.0 }]
            })
            .collect();
        let seen = pool(&matched, &segments(&seen))?;
        let sides = segments(&sums.sides);
        let (own, seen) = (pool(&turns, &sides)?, pool(&seen, &sides)?);
        // A row a dialogue and side, a column a sample.
        let scores = likeness::cosines(&own, &seen)?.reshape((self.count(), self.samples, 2))?;
        let scores = scores.transpose(1, 2)?.contiguous()?.reshape((2 * self.count(), self.samples))?;
        // A sum over the two sides, a mean over dialogues.
        likeness::first_of(&scores, self.temperature)? * (2.0 * self.factor)
    }
}
