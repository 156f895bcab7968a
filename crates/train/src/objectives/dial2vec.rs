//! dial2vec: contrastive learning of dialogue embeddings.
//!
//! The self-representation of each interlocutor (speaker) is compared with its cross-representation. In negative
//! samples, random turns with the same role replace the turns of the other interlocutor.
//!
//! `Eᵒʷⁿ` and `Eᵒᵗʰᵉʳ` are the token embeddings of the two interlocutors. The matching matrix is `C = Eᵒᵗʰᵉʳ·Eᵒʷⁿᵀ`,
//! with zeros where two turns are more than a window apart. The cross-representation is `Ẽ = C·Eᵒʷⁿ`, averaged over the
//! tokens of the other interlocutor.
//!
//! The mean over the tokens is moved inside the product: the weight of a token is its dot product with the sum of the
//! other interlocutor's tokens in the window. The token-by-token matrix is therefore never computed.

use std::{borrow::Cow, ops::Range};

use candle_core::{Result as Candle, Tensor};

use super::{
    Loss, Objective, ObjectiveBuilder, Prepared, TurnLocation,
    definition::{Definition, Sample, StepTraining},
    losses,
};
use crate::{
    data::{TrainingSet, TurnTokens},
    model::Packed,
    ops::pool,
};
use turnwise_core::{error::Result, named_enum, random::Random};
use turnwise_encoder::{Part, Sequence, network::Table};

pub static DIAL2VEC: Definition = Definition {
    name: "dial2vec",
    about: "dialogues: the turns of a speaker match those of the other speaker (dial2vec)",
    benchmark: "dialogues labeled.jsonl",
    sample: Sample::Dialogues,
    steps: Some(StepTraining {
        several_turns: true,
        batch: 5,
        learning_rate: 1e-5,
        max_tokens: 512,
        temperature: 0.2,
        // As an auxiliary objective, it must not dominate the training time.
        as_auxiliary: Some((4, 160)),
        ..StepTraining::new(|given| {
            let default_negatives = if given.is_auxiliary() { 4 } else { 9 };
            let (negatives, window) = (given.negatives(default_negatives), given.window(10));
            let as_coded = given.profile() == Profile::Code;
            let (temperature, max_tokens) = (given.temperature(), given.max_tokens());
            ObjectiveBuilder::new(move |setup| {
                let rows = |table: &Option<Table>| table.as_ref().map(|table| table.rows);
                let embeddings = &setup.model.start().embeddings;
                let tables = (rows(&embeddings.turns), rows(&embeddings.roles));
                let objective = Dial2vec::new(setup.data)?;
                Ok(Dial2vec { negatives, temperature, window, max_tokens, as_coded, tables, ..objective })
            })
        })
    }),
    ..Definition::DEFAULT
};

named_enum! {
    /// Variant of dial2vec. The paper and its released code differ in details.
    pub enum Profile: "profile" {
        /// As described in the paper.
        #[default]
        Paper = "paper",
        /// As implemented in the released code.
        Code = "code",
    }
}

/// The dial2vec objective.
#[derive(Debug, Clone, PartialEq)]
pub struct Dial2vec {
    /// Number of negative samples per dialogue.
    pub negatives: usize,
    /// Temperature τ of the softmax.
    pub temperature: f64,
    /// Window size w, in turns. Turns that are further apart are not matched.
    pub window: usize,
    /// Maximum number of tokens of a dialogue; longer dialogues are truncated.
    pub max_tokens: usize,
    /// True to follow the released code instead of the paper. Negative samples then always keep the turns of the first
    /// speaker, and dialogues with fewer than five turns are skipped. The loss is also divided by the number of
    /// samples.
    pub as_coded: bool,
    /// Number of rows of the turn embedding table and of the role embedding table. `None` for a table that the model
    /// does not have.
    pub tables: (Option<usize>, Option<usize>),
    /// Locations of all turns by role, from which negative turns are drawn.
    turns_by_role: Vec<Vec<TurnLocation>>,
}

impl Dial2vec {
    /// Creates the objective with the settings of the paper.
    pub fn new(data: &TrainingSet) -> Result<Self> {
        let mut turns_by_role: Vec<Vec<TurnLocation>> = Vec::new();
        for number in 0..data.len() as u32 {
            for (n, turn) in (0..).zip(data.dialogue(number)?.iter()) {
                let role = turn.role as usize;
                if turns_by_role.len() <= role {
                    turns_by_role.resize_with(role + 1, Vec::new);
                }
                turns_by_role[role].push(TurnLocation { dialogue: number, turn: n });
            }
        }
        Ok(Dial2vec {
            negatives: 9,
            temperature: 0.2,
            window: 10,
            max_tokens: 512,
            as_coded: false,
            tables: (None, None),
            turns_by_role,
        })
    }

    /// Builds the sequence of one sample, and returns it with its turns. Each entry of `turns` has the token ids and
    /// the side of a turn; for the side, see [`Turn`].
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
    fn definition(&self) -> &'static Definition {
        &DIAL2VEC
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        let two_speakers = |d: &[TurnTokens]| d.iter().any(|turn| turn.speaker != d[0].speaker);
        let min_turns = if self.as_coded { 5 } else { 2 };
        let mut examples = Vec::new();
        for (dialogue, turns) in (0..).zip(data.turn_counts()) {
            if *turns >= min_turns && two_speakers(&data.dialogue(dialogue)?) {
                examples.push(TurnLocation { dialogue, turn: 0 });
            }
        }
        Ok(examples)
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        let (mut sequences, mut turns) = (Vec::new(), Vec::new());
        for (location, random) in &mut *examples {
            let dialogue = data.dialogue(location.dialogue)?;
            let speakers = dialogue.iter().map(|turn| turn.speaker).max().unwrap_or(0) + 1;
            // With more than two speakers, one speaker is compared with the rest.
            let kept = if self.as_coded { 0 } else { random.below(speakers as usize) as u32 };
            for sample in 0..=self.negatives {
                let mut drawn = Vec::with_capacity(dialogue.len());
                for turn in dialogue.iter() {
                    let is_kept = turn.speaker == kept;
                    let ids = match sample == 0 || is_kept {
                        true => Cow::Borrowed(turn.ids.as_slice()),
                        false => {
                            let pool = &self.turns_by_role[turn.role as usize];
                            Cow::Owned(data.token_ids(pool[random.below(pool.len())])?)
                        }
                    };
                    drawn.push((ids, usize::from(!is_kept)));
                }
                let (sequence, spans) = self.sample(data, &drawn);
                sequences.push(sequence);
                turns.push(spans);
            }
        }
        let samples = 1 + self.negatives;
        let loss = Matched {
            turns,
            samples,
            window: self.window,
            temperature: self.temperature,
            factor: if self.as_coded { 1.0 / samples as f64 } else { 1.0 },
        };
        Ok(Prepared::new(&DIAL2VEC, sequences, examples.len(), loss))
    }
}

/// A turn in a sequence.
#[derive(Debug, Clone)]
struct Turn {
    /// Rows of the turn's tokens, counted from the start of the sequence.
    rows: Range<usize>,
    /// 0 for the speaker whose turns are the same in all samples, 1 for the other speakers.
    side: usize,
    /// Index of the turn in the dialogue.
    number: usize,
}

/// Loss of a batch of dialogues, each followed by its negative samples.
struct Matched {
    /// Turns of each sequence.
    turns: Vec<Vec<Turn>>,
    /// Number of sequences per dialogue.
    samples: usize,
    window: usize,
    temperature: f64,
    /// Factor of the loss: 1 as in the paper, or 1 divided by the number of samples as in the released code.
    factor: f64,
}

impl Matched {
    /// Returns the terms of all weighted sums that the loss needs.
    fn sums(&self, packed: &Packed) -> Sums {
        let mut sums = Sums::default();
        for (n, turns) in self.turns.iter().enumerate() {
            let (first_row, first_turn) = (packed.starts[n], sums.turns.len());
            let row_of = |turn: usize| first_turn + turn..first_turn + turn + 1;
            for (t, turn) in turns.iter().enumerate() {
                let rows = turn.rows.start + first_row..turn.rows.end + first_row;
                sums.of_token.extend(rows.clone().map(|_| (first_turn + t) as u32));
                sums.rows.extend(rows.clone().map(|r| r as u32));
                sums.turns.push(vec![Part { rows, weight: 1.0 }]);
                let near = turns.iter().enumerate().filter(|(_, other)| {
                    other.side != turn.side && other.number.abs_diff(turn.number) <= self.window
                });
                sums.near.push(near.map(|(o, _)| Part { rows: row_of(o), weight: 1.0 }).collect());
            }
            for side in [0, 1] {
                let own = turns.iter().enumerate().filter(|(_, t)| t.side == side);
                let tokens: usize = own.clone().map(|(_, t)| t.rows.len()).sum();
                let weight = 1.0 / tokens.max(1) as f32;
                sums.sides.push(own.map(|(t, _)| Part { rows: row_of(t), weight }).collect());
            }
        }
        sums
    }
}

#[derive(Default)]
struct Sums {
    /// For each turn, the sum over its tokens.
    turns: Vec<Vec<Part>>,
    /// For each turn, the sum over the turns of the other side that are within the window.
    near: Vec<Vec<Part>>,
    /// For each sample and side, the mean over the tokens of this side, as a weighted sum of turns.
    sides: Vec<Vec<Part>>,
    /// Row of each token in the hidden states.
    rows: Vec<u32>,
    /// Index of the turn that each token belongs to.
    of_token: Vec<u32>,
}

impl Loss for Matched {
    fn compute(&self, packed: &Packed, states: &Tensor) -> Candle<Tensor> {
        let sums = self.sums(packed);
        let tokens = states.index_select(&losses::indices(&sums.rows, states)?, 0)?;
        // In `matched`, the tokens of all turns are contiguous.
        let mut start = 0;
        let contiguous = |parts: &Vec<Part>| {
            let rows = start..start + parts[0].rows.len();
            start = rows.end;
            vec![Part { rows, weight: 1.0 }]
        };
        let turns_of_matched = sums.turns.iter().map(contiguous).collect();
        let turns = pool(states, sums.turns)?;
        let near = pool(&turns, sums.near)?;
        let near_token = near.index_select(&losses::indices(&sums.of_token, states)?, 0)?;
        let matched = tokens.broadcast_mul(&(&tokens * &near_token)?.sum_keepdim(1)?)?;
        let cross = pool(&matched, turns_of_matched)?;
        let (own, cross) = (pool(&turns, sums.sides.clone())?, pool(&cross, sums.sides)?);
        // One row per dialogue and side, one column per sample.
        let count = self.turns.len() / self.samples;
        let scores = losses::cosines(&own, &cross)?.reshape((count, self.samples, 2))?;
        let scores = scores.transpose(1, 2)?.contiguous()?.reshape((2 * count, self.samples))?;
        // Sum over the two sides, mean over the dialogues.
        losses::nt_xent_first(&scores, self.temperature)? * (2.0 * self.factor)
    }

    fn shape(&self, _: usize) -> serde_json::Value {
        let spans = |t: &Turn| (t.rows.start, t.rows.end, t.side, t.number);
        let turns: Vec<Vec<_>> = self.turns.iter().map(|t| t.iter().map(spans).collect()).collect();
        serde_json::json!({ "samples": self.samples, "window": self.window, "turns": turns })
    }
}
