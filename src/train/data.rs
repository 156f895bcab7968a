//! Dialogues as tokens: what examples are drawn from.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::{
    corpus::{Dialogue, Role},
    encoder::{Sequence, folder::Tokenizer},
    error::Result,
};

/// A turn as tokens, without special ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Who speaks, counted in the order in which they first do.
    pub speaker: u32,
    /// The part they play: alike in all dialogues where roles are known, else the order of speaking.
    pub part: u32,
    /// The tokens.
    pub ids: Vec<u32>,
}

/// Which dialogues, and how they are prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preparing {
    /// Whether what one speaker says in consecutive turns becomes one.
    pub merged: bool,
    /// Dialogues with fewer turns are left out.
    pub turns: usize,
}

/// Dialogues to be trained on.
#[derive(Debug, Clone, Default)]
pub struct TrainingSet {
    /// Their turns; none is empty.
    pub dialogues: Vec<Vec<Said>>,
    /// In front of every sequence (`[CLS]`, and a prompt where the encoder has one unasked).
    pub before: Vec<u32>,
    /// Behind every turn (`[SEP]`).
    pub after: Vec<u32>,
    /// What hides a token (`[MASK]`), where the tokenizer has that.
    pub mask: Option<u32>,
    /// Which dialogue of those that were given each of them is.
    pub given: Vec<u32>,
    /// Dialogues that were too short.
    pub left_out: usize,
}

impl TrainingSet {
    /// Cuts dialogues into tokens.
    pub fn new(dialogues: &[Dialogue], tokenizer: &Tokenizer, preparing: Preparing) -> Result<Self> {
        let cut = |dialogue: &Dialogue| said(dialogue, tokenizer, preparing.merged);
        let cut: Vec<Vec<Said>> = dialogues.par_iter().map(cut).collect::<Result<_>>()?;
        let all = cut.len();
        let numbered = (0u32..).zip(cut).filter(|(_, d)| d.len() >= preparing.turns.max(1));
        let (given, kept): (Vec<u32>, Vec<Vec<Said>>) = numbered.unzip();
        Ok(TrainingSet {
            left_out: all - kept.len(),
            dialogues: kept,
            given,
            before: tokenizer.before().to_vec(),
            after: tokenizer.after().to_vec(),
            mask: tokenizer.mask(),
        })
    }

    /// With a prompt in front of every sequence: an encoder that is asked behind one has to be trained behind it.
    pub fn behind(mut self, prompt: &str, tokenizer: &Tokenizer) -> Result<Self> {
        self.before.extend(tokenizer.pieces(prompt)?);
        Ok(self)
    }

    /// How many turns there are.
    pub fn turns(&self) -> usize {
        self.dialogues.iter().map(Vec::len).sum()
    }

    /// The sequence of an utterance, of at most so many tokens.
    pub fn utterance(&self, ids: &[u32], most: usize) -> Sequence {
        let room = most.saturating_sub(self.before.len() + self.after.len()).max(1);
        let ids = &ids[..ids.len().min(room)];
        Sequence::new([self.before.as_slice(), ids, &self.after].concat())
    }
}

fn said(dialogue: &Dialogue, tokenizer: &Tokenizer, merged: bool) -> Result<Vec<Said>> {
    let mut known = HashMap::new();
    let mut all: Vec<Said> = Vec::with_capacity(dialogue.turns.len());
    for turn in &dialogue.turns {
        let next = known.len() as u32;
        let speaker = *known.entry(turn.who()).or_insert(next);
        let ids = tokenizer.pieces(&turn.text)?;
        if ids.is_empty() {
            continue;
        }
        match all.last_mut() {
            Some(last) if merged && last.speaker == speaker => last.ids.extend(ids),
            _ => all.push(Said { speaker, part: part(turn.role.as_ref(), speaker), ids }),
        }
    }
    Ok(all)
}

fn part(role: Option<&Role>, speaker: u32) -> u32 {
    match role {
        Some(Role::User) => 0,
        Some(Role::Agent) => 1,
        _ => speaker,
    }
}
