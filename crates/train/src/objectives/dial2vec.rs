//! dial2vec: contrastive learning of dialogue embeddings.
//!
//! The self-representation of each interlocutor (speaker) is compared with its cross-representation. In negative
//! samples, turns of other dialogues replace the turns of the other interlocutor.
//!
//! The matching matrix is `C = Eᵒᵗʰᵉʳ·Eᵒʷⁿᵀ`, with zeros where two turns are more than a window apart. The
//! cross-representation is `Ẽ = C·Eᵒʷⁿ`, averaged over the tokens of the other interlocutor.
//!
//! The mean is moved inside the product: the weight of a token is its dot product with the sum of the other
//! interlocutor's tokens in the window. The token-by-token matrix is therefore never computed.

use std::{borrow::Cow, str::FromStr, sync::Arc};

use candle_core::{Result as Candle, Tensor};
use serde::{Deserialize, Serialize};

use super::{
    Location, Objective, Prepared,
    definition::{Definition, Frozen, Role, Sample, Settings, Setup, StepTraining, Steps, Training},
    losses,
};
use crate::{
    data::{TrainingSet, TurnTokens},
    model::Packed,
    ops::{Segments, pool},
    run::evaluations::Selection,
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::{Part, Sequence, network::Table};

/// Definition of `dial2vec`.
pub static DIAL2VEC: Definition = Definition {
    name: "dial2vec",
    about: "dialogues: the turns of a speaker match those of the other speaker (dial2vec)",
    benchmark: "dialogues labelled.jsonl",
    sample: Sample::Dialogues,
    held_out: true,
    select: Selection::LabelFree,
    role: Role::Both,
    min_turns: 2,
    training: Training::Steps(StepTraining {
        in_batch: false,
        pooled_loss: false,
        one_corpus: false,
        several_turns: true,
        merge_turns: false,
        steps: Steps::Total(300),
        warm_up: 0,
        batch: 5,
        learning_rate: 1e-5,
        max_tokens: 512,
        temperature: 0.2,
        frozen: Frozen::Half,
        auxiliary: &[],
        // As an auxiliary objective, it must not dominate the training time.
        as_auxiliary: Some((4, 160)),
        settings: |given| {
            let negatives = if given.is_auxiliary() { 4 } else { 9 };
            Box::new(Dial2vecSettings {
                negatives: given.negatives(negatives),
                window: given.window(10),
                profile: given.profile(),
                temperature: given.temperature(),
                max_tokens: given.max_tokens(),
            })
        },
    }),
};

/// Variant of dial2vec. The paper and its released code differ in details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// As described in the paper.
    #[default]
    Paper,
    /// As implemented in the released code.
    Code,
}

impl FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "paper" => Ok(Profile::Paper),
            "code" => Ok(Profile::Code),
            _ => Err(Error::unknown_name("profile", text, ["paper", "code"])),
        }
    }
}

/// Settings of dial2vec.
#[derive(Debug)]
struct Dial2vecSettings {
    negatives: usize,
    window: usize,
    profile: Profile,
    temperature: f64,
    max_tokens: usize,
}

impl Settings for Dial2vecSettings {
    fn create(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>> {
        let mut objective = Dial2vec::new(setup.data)?;
        (objective.negatives, objective.window) = (self.negatives, self.window);
        (objective.temperature, objective.max_tokens) = (self.temperature, self.max_tokens);
        objective.as_coded = self.profile == Profile::Code;
        let rows = |table: &Option<Table>| table.as_ref().map(|table| table.rows);
        let embeddings = &setup.model.start().embeddings;
        objective.tables = (rows(&embeddings.turns), rows(&embeddings.roles));
        Ok(Box::new(objective))
    }
}

/// The dial2vec objective.
#[derive(Debug, Clone, PartialEq)]
pub struct Dial2vec {
    /// Number of negative samples per dialogue.
    pub negatives: usize,
    /// Temperature τ of the softmax.
    pub temperature: f64,
    /// Window size w: turns that are further apart do not match.
    pub window: usize,
    /// Maximum number of tokens of a dialogue; longer dialogues are truncated.
    pub max_tokens: usize,
    /// Follows the released code instead of the paper.
    ///
    /// The kept speaker is always the first one, dialogues with fewer than five turns are skipped, and the loss is
    /// also divided by the number of samples.
    pub as_coded: bool,
    /// Number of rows of the model's turn and role embeddings, if it has them.
    pub tables: (Option<usize>, Option<usize>),
    /// Locations of all turns by role, from which negative turns are drawn.
    turns_by_role: Vec<Vec<Location>>,
}

impl Dial2vec {
    /// Creates the objective with the settings of the paper.
    pub fn new(data: &TrainingSet) -> Result<Self> {
        let mut turns_by_role: Vec<Vec<Location>> = Vec::new();
        for number in 0..data.len() as u32 {
            for (n, turn) in (0..).zip(data.dialogue(number)?.iter()) {
                let role = turn.role as usize;
                if turns_by_role.len() <= role {
                    turns_by_role.resize_with(role + 1, Vec::new);
                }
                turns_by_role[role].push(Location { dialogue: number, turn: n });
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

    /// Builds the sequence of one sample. Each entry of `turns` holds the token ids and the side: 0 for the kept
    /// speaker, 1 for the others.
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

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Location>> {
        let two_speakers = |d: &[TurnTokens]| d.iter().any(|turn| turn.speaker != d[0].speaker);
        let min_turns = if self.as_coded { 5 } else { 2 };
        let mut examples = Vec::new();
        for (dialogue, turns) in (0..).zip(data.turns_each()) {
            if *turns >= min_turns && two_speakers(&data.dialogue(dialogue)?) {
                examples.push(Location { dialogue, turn: 0 });
            }
        }
        Ok(examples)
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>> {
        let (mut sequences, mut turns) = (Vec::new(), Vec::new());
        let count = examples.len();
        for (location, random) in examples {
            let dialogue = data.dialogue(location.dialogue)?;
            let speakers = dialogue.iter().map(|s| s.speaker).max().unwrap_or(0) + 1;
            // With more than two speakers, one speaker is compared with the rest.
            let kept = if self.as_coded { 0 } else { random.below(speakers as usize) as u32 };
            let side = |turn: &TurnTokens| usize::from(turn.speaker != kept);
            for sample in 0..=self.negatives {
                let mut drawn = Vec::with_capacity(dialogue.len());
                for turn in dialogue.iter() {
                    let ids = match sample > 0 && turn.speaker != kept {
                        false => Cow::Borrowed(turn.ids.as_slice()),
                        true => {
                            let pool = &self.turns_by_role[turn.role as usize];
                            let location = pool[random.below(pool.len())];
                            Cow::Owned(data.token_ids(location)?)
                        }
                    };
                    drawn.push((ids, side(turn)));
                }
                let (sequence, spans) = self.sample(data, &drawn);
                sequences.push(sequence);
                turns.push(spans);
            }
        }
        if count == 0 {
            return Err(Error::Internal("the batch has no dialogues".to_owned()));
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

/// A turn in a sequence: row range, side, and turn number in the dialogue.
#[derive(Debug, Clone)]
struct Turn {
    rows: std::ops::Range<usize>,
    side: usize,
    number: usize,
}

/// Batch of dialogues, each followed by its negative samples.
struct Matched {
    packed: Packed,
    turns: Vec<Vec<Turn>>,
    samples: usize,
    window: usize,
    temperature: f64,
    factor: f64,
}

impl Matched {
    /// Returns the terms of all weighted sums: over tokens per turn, matching turns per turn, and turns per side.
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
    /// For each turn, the sum over its tokens.
    turns: Vec<Vec<Part>>,
    /// For each turn, the sum over the turns of the other side in the window.
    near: Vec<Vec<Part>>,
    /// For each sample and side, the mean over the tokens of this side, as a weighted sum of turns.
    sides: Vec<Vec<Part>>,
    /// Row of each token.
    rows: Vec<u32>,
    /// Turn of each token.
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
        // In `matched`, the tokens of all turns are contiguous.
        let mut start = 0;
        let cross: Vec<Vec<Part>> = sums
            .turns
            .iter()
            .map(|parts| {
                let rows = start..start + parts[0].rows.len();
                start = rows.end;
                vec![Part { rows, weight: 1.0 }]
            })
            .collect();
        let cross = pool(&matched, &segments(&cross))?;
        let sides = segments(&sums.sides);
        let (own, cross) = (pool(&turns, &sides)?, pool(&cross, &sides)?);
        // One row per dialogue and side, one column per sample.
        let scores = losses::cosines(&own, &cross)?.reshape((self.count(), self.samples, 2))?;
        let scores = scores.transpose(1, 2)?.contiguous()?.reshape((2 * self.count(), self.samples))?;
        // Sum over the two sides, mean over the dialogues.
        losses::nt_xent_first(&scores, self.temperature)? * (2.0 * self.factor)
    }
}
