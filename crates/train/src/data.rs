//! Tokenized dialogues, from which training examples are drawn.

use std::{borrow::Cow, collections::HashMap, mem, path::Path};

use rayon::prelude::*;

use crate::{objectives::TurnLocation, spool::DiskVec};
use turnwise_core::error::Result;
use turnwise_corpus::{Dialogue, Role};
use turnwise_encoder::{Sequence, folder::Tokenizer, selector::EOU};

/// Tokens of one turn, without special tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnTokens {
    /// Index of the speaker in the dialogue, counted from 0 in the order of the speakers' first turns.
    pub speaker: u32,
    /// Role of the speaker: 0 for the user, 1 for the agent. For any other role, or without a role, the value of
    /// `speaker`.
    pub role: u32,
    /// Token ids.
    pub ids: Vec<u32>,
}

/// Number of dialogues that are tokenized together, in parallel.
const BLOCK: usize = 1_024;

/// Tokenized dialogues for training.
#[derive(Default)]
pub struct TrainingSet {
    /// Turns of each dialogue. No turn is empty.
    dialogues: DiskVec<Vec<TurnTokens>>,
    /// Number of turns of each dialogue.
    turns: Vec<u32>,
    /// Index of each dialogue in the input. The input includes the skipped dialogues.
    input_indices: Vec<u32>,
    /// For each corpus, the index of its last dialogue in the input, plus 1.
    ends: Vec<usize>,
    /// Tokens at the start of every sequence: `[CLS]`, and the default prompt of the encoder if it has one.
    pub before: Vec<u32>,
    /// Tokens after every turn (`[SEP]`).
    pub after: Vec<u32>,
    /// The mask token (`[MASK]`), if the tokenizer has one.
    pub mask: Option<u32>,
    /// The token that ends an utterance (`[EOU]`), if the tokenizer has one.
    pub end_of_utterance: Option<u32>,
    /// Number of dialogues that were skipped because they have too few turns.
    pub left_out: usize,
    /// Number of turns without tokens. Such turns are skipped.
    pub blank: usize,
    /// Number of tokens in all turns, including those of skipped dialogues.
    pub tokens: u64,
    /// Number of unknown tokens (`[UNK]`) in all turns, including those of skipped dialogues.
    pub unknown: u64,
}

impl TrainingSet {
    /// Tokenizes dialogues. Drops turns without tokens, then merges consecutive turns of one speaker if `merge_turns`
    /// is true. Skips dialogues with fewer than `min_turns` remaining turns. Always skips dialogues without turns.
    ///
    /// The tokens are stored in a temporary file in `folder`, or in memory if `folder` is `None`.
    pub fn new(
        dialogues: &DiskVec<Dialogue>,
        tokenizer: &Tokenizer,
        merge_turns: bool,
        min_turns: usize,
        folder: Option<&Path>,
    ) -> Result<Self> {
        let mut set = TrainingSet {
            dialogues: DiskVec::new(folder)?,
            before: tokenizer.before().to_vec(),
            after: tokenizer.after().to_vec(),
            mask: tokenizer.specials().mask,
            end_of_utterance: tokenizer.id(EOU),
            ..TrainingSet::default()
        };
        let unknown = tokenizer.specials().unknown;
        for first in (0..dialogues.len()).step_by(BLOCK) {
            let block = first..dialogues.len().min(first + BLOCK);
            let read = block.clone().map(|n| dialogues.get(n)).collect::<Result<Vec<_>>>()?;
            let tokenized = read.par_iter().map(|dialogue| tokenize(dialogue, tokenizer, merge_turns));
            let tokenized = tokenized.collect::<Result<Vec<(Vec<TurnTokens>, usize)>>>()?;
            for (input_index, (turns, blank)) in block.zip(tokenized) {
                set.blank += blank;
                for id in turns.iter().flat_map(|turn| &turn.ids) {
                    set.tokens += 1;
                    set.unknown += u64::from(Some(*id) == unknown);
                }
                match turns.len() >= min_turns.max(1) {
                    true => set.push(input_index as u32, turns)?,
                    false => set.left_out += 1,
                }
            }
        }
        Ok(set)
    }

    /// Divides the dialogues into corpora. `ends` has, for each corpus, the index of its last dialogue in the input,
    /// plus 1.
    pub fn with_corpora(self, ends: &[usize]) -> Self {
        TrainingSet { ends: ends.to_vec(), ..self }
    }

    /// Number of corpora, at least 1.
    pub fn corpora(&self) -> usize {
        self.ends.len().max(1)
    }

    /// Returns the index of the corpus that a dialogue belongs to.
    pub fn corpus(&self, number: u32) -> usize {
        self.ends.partition_point(|end| *end <= self.input_index(number))
    }

    /// Creates a training set from tokenized dialogues.
    #[cfg(test)]
    pub fn of(
        dialogues: Vec<Vec<TurnTokens>>,
        before: Vec<u32>,
        after: Vec<u32>,
        folder: Option<&Path>,
    ) -> Self {
        let mut set = TrainingSet { before, after, ..TrainingSet::default() };
        set.dialogues = DiskVec::new(folder).unwrap();
        (0..).zip(dialogues).for_each(|(n, turns)| set.push(n, turns).unwrap());
        set
    }

    fn push(&mut self, input_index: u32, turns: Vec<TurnTokens>) -> Result<()> {
        self.input_indices.push(input_index);
        self.turns.push(turns.len() as u32);
        self.dialogues.push(turns)
    }

    /// Number of dialogues.
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    /// Returns true if there are no dialogues.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Returns the turns of a dialogue. Returns an error if the dialogue does not exist or cannot be read from disk.
    pub fn dialogue(&self, number: u32) -> Result<Cow<'_, Vec<TurnTokens>>> {
        self.dialogues.get(number as usize)
    }

    /// Returns the token ids of a turn.
    pub fn token_ids(&self, location: TurnLocation) -> Result<Vec<u32>> {
        let mut dialogue = self.dialogue(location.dialogue)?;
        Ok(match &mut dialogue {
            Cow::Borrowed(turns) => turns[location.turn as usize].ids.clone(),
            Cow::Owned(turns) => mem::take(&mut turns[location.turn as usize].ids),
        })
    }

    /// Number of turns of each dialogue.
    pub fn turn_counts(&self) -> &[u32] {
        &self.turns
    }

    /// Total number of turns.
    pub fn turns(&self) -> usize {
        self.turns.iter().map(|turns| *turns as usize).sum()
    }

    /// Returns the index of a dialogue in the input. The input includes the skipped dialogues.
    pub fn input_index(&self, number: u32) -> usize {
        self.input_indices[number as usize] as usize
    }

    /// Adds a prompt to the start of every sequence, after `[CLS]`. Training uses the default prompt of the encoder.
    pub fn with_prompt(mut self, prompt: &str, tokenizer: &Tokenizer) -> Result<Self> {
        self.before.extend(tokenizer.pieces(prompt)?);
        Ok(self)
    }

    /// Returns the tokens that the sequences contain in addition to the tokens of the turns.
    pub fn specials(&self) -> Vec<u32> {
        self.before.iter().chain(&self.after).copied().chain(self.end_of_utterance).collect()
    }

    /// Returns the input sequence of the turn at a location, truncated to `max_tokens` tokens.
    pub fn utterance_at(&self, location: TurnLocation, max_tokens: usize) -> Result<Sequence> {
        Ok(self.utterance(&self.token_ids(location)?, max_tokens))
    }

    /// Returns the input sequence of a turn and all later turns of its dialogue, truncated to `max_tokens` tokens.
    pub fn sequence_from(&self, location: TurnLocation, max_tokens: usize) -> Result<Sequence> {
        let turns = self.dialogue(location.dialogue)?;
        let tokens =
            turns[location.turn as usize..].iter().flat_map(|turn| turn.ids.iter().chain(&self.after));
        Ok(Sequence::new(self.before.iter().chain(tokens).take(max_tokens).copied().collect()))
    }

    /// Concatenates the tokens of consecutive turns, with a separator after each turn. Returns at most the last `count`
    /// tokens.
    pub fn last_tokens(&self, turns: &[TurnTokens], count: usize) -> Vec<u32> {
        let mut ids: Vec<u32> =
            turns.iter().flat_map(|turn| turn.ids.iter().chain(&self.after)).copied().collect();
        ids.drain(..ids.len().saturating_sub(count));
        ids
    }

    /// Returns the input sequence of an utterance, truncated to `max_tokens` tokens. Keeps at least one token of the
    /// utterance.
    pub fn utterance(&self, ids: &[u32], max_tokens: usize) -> Sequence {
        let room = max_tokens.saturating_sub(self.before.len() + self.after.len()).max(1);
        let ids = &ids[..ids.len().min(room)];
        Sequence::new([self.before.as_slice(), ids, &self.after].concat())
    }
}

/// Returns the tokenized turns of a dialogue and the number of turns without tokens.
fn tokenize(dialogue: &Dialogue, tokenizer: &Tokenizer, merged: bool) -> Result<(Vec<TurnTokens>, usize)> {
    let (mut known, mut blank) = (HashMap::new(), 0);
    let mut all: Vec<TurnTokens> = Vec::with_capacity(dialogue.turns.len());
    for turn in &dialogue.turns {
        let next = known.len() as u32;
        let speaker = *known.entry(turn.who()).or_insert(next);
        let ids = tokenizer.pieces(&turn.text)?;
        if ids.is_empty() {
            blank += 1;
            continue;
        }
        match all.last_mut() {
            Some(last) if merged && last.speaker == speaker => last.ids.extend(ids),
            _ => all.push(TurnTokens { speaker, role: role_number(turn.role.as_ref(), speaker), ids }),
        }
    }
    Ok((all, blank))
}

fn role_number(role: Option<&Role>, speaker: u32) -> u32 {
    match role {
        Some(Role::User) => 0,
        Some(Role::Agent) => 1,
        _ => speaker,
    }
}
