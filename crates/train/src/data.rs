//! Dialogues as tokens: what examples are drawn from.

use std::{borrow::Cow, collections::HashMap, mem, path::Path};

use rayon::prelude::*;

use crate::{objectives::Place, spool::DiskVec};
use turnwise_core::error::Result;
use turnwise_corpus::{Dialogue, Role};
use turnwise_encoder::{Sequence, folder::Tokenizer};

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

/// Dialogues that are cut into tokens together.
const TOGETHER: usize = 1_024;

/// Dialogues to be trained on.
#[derive(Default)]
pub struct TrainingSet {
    /// Their turns; none is empty.
    dialogues: DiskVec<Vec<Said>>,
    /// How many each has.
    turns: Vec<u32>,
    /// Which dialogue of those that were given each of them is.
    given: Vec<u32>,
    /// Where each corpus of those that were given ends.
    ends: Vec<usize>,
    /// In front of every sequence (`[CLS]`, and a prompt where the encoder has one unasked).
    pub before: Vec<u32>,
    /// Behind every turn (`[SEP]`).
    pub after: Vec<u32>,
    /// What hides a token (`[MASK]`), where the tokenizer has that.
    pub mask: Option<u32>,
    /// Dialogues that were too short.
    pub left_out: usize,
    /// Turns without a word, which are left out.
    pub blank: usize,
    /// Tokens of all turns.
    pub tokens: u64,
    /// Those of them that stand for what the tokenizer does not know.
    pub unknown: u64,
}

impl TrainingSet {
    /// Cuts dialogues into tokens, which are held in memory, or in a file beside what is in this folder.
    pub fn new(
        dialogues: &DiskVec<Dialogue>,
        tokenizer: &Tokenizer,
        preparing: Preparing,
        folder: Option<&Path>,
    ) -> Result<Self> {
        let mut set = TrainingSet {
            dialogues: DiskVec::new(folder)?,
            before: tokenizer.before().to_vec(),
            after: tokenizer.after().to_vec(),
            mask: tokenizer.mask(),
            ..TrainingSet::default()
        };
        let unknown = tokenizer.unknown();
        for first in (0..dialogues.len()).step_by(TOGETHER) {
            let some = first..dialogues.len().min(first + TOGETHER);
            let read = some.clone().map(|n| dialogues.get(n)).collect::<Result<Vec<_>>>()?;
            let cut = read.par_iter().map(|dialogue| said(dialogue, tokenizer, preparing.merged));
            let cut = cut.collect::<Result<Vec<(Vec<Said>, usize)>>>()?;
            for (given, (turns, blank)) in some.zip(cut) {
                set.blank += blank;
                for id in turns.iter().flat_map(|said| &said.ids) {
                    set.tokens += 1;
                    set.unknown += u64::from(Some(*id) == unknown);
                }
                match turns.len() >= preparing.turns.max(1) {
                    true => set.push(given as u32, turns)?,
                    false => set.left_out += 1,
                }
            }
        }
        Ok(set)
    }

    /// Says where each corpus ends among the dialogues that were given.
    pub fn of_corpora(self, ends: &[usize]) -> Self {
        TrainingSet { ends: ends.to_vec(), ..self }
    }

    /// How many corpora there are.
    pub fn corpora(&self) -> usize {
        self.ends.len().max(1)
    }

    /// Which corpus a dialogue is of.
    pub fn corpus(&self, number: u32) -> usize {
        self.ends.partition_point(|end| *end <= self.given(number))
    }

    /// Of dialogues that are tokens already.
    #[cfg(test)]
    pub fn of(dialogues: Vec<Vec<Said>>, before: Vec<u32>, after: Vec<u32>, folder: Option<&Path>) -> Self {
        let mut set = TrainingSet { before, after, ..TrainingSet::default() };
        set.dialogues = DiskVec::new(folder).unwrap();
        (0..).zip(dialogues).for_each(|(n, turns)| set.push(n, turns).unwrap());
        set
    }

    fn push(&mut self, given: u32, turns: Vec<Said>) -> Result<()> {
        self.given.push(given);
        self.turns.push(turns.len() as u32);
        self.dialogues.push(turns)
    }

    /// How many dialogues there are.
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The turns of a dialogue.
    pub fn dialogue(&self, number: u32) -> Result<Cow<'_, Vec<Said>>> {
        self.dialogues.get(number as usize)
    }

    /// The tokens of a turn.
    pub fn said(&self, place: Place) -> Result<Vec<u32>> {
        let mut dialogue = self.dialogue(place.dialogue)?;
        Ok(match &mut dialogue {
            Cow::Borrowed(turns) => turns[place.turn as usize].ids.clone(),
            Cow::Owned(turns) => mem::take(&mut turns[place.turn as usize].ids),
        })
    }

    /// How many turns each dialogue has.
    pub fn turns_each(&self) -> &[u32] {
        &self.turns
    }

    /// How many turns there are.
    pub fn turns(&self) -> usize {
        self.turns.iter().map(|turns| *turns as usize).sum()
    }

    /// Which dialogue of those that were given one of them is.
    pub fn given(&self, number: u32) -> usize {
        self.given[number as usize] as usize
    }

    /// With a prompt in front of every sequence: an encoder that is asked behind one has to be trained behind it.
    pub fn behind(mut self, prompt: &str, tokenizer: &Tokenizer) -> Result<Self> {
        self.before.extend(tokenizer.pieces(prompt)?);
        Ok(self)
    }

    /// The sequence of an utterance, of at most so many tokens.
    pub fn utterance(&self, ids: &[u32], most: usize) -> Sequence {
        let room = most.saturating_sub(self.before.len() + self.after.len()).max(1);
        let ids = &ids[..ids.len().min(room)];
        Sequence::new([self.before.as_slice(), ids, &self.after].concat())
    }
}

/// The turns of a dialogue, and how many of them have not a word.
fn said(dialogue: &Dialogue, tokenizer: &Tokenizer, merged: bool) -> Result<(Vec<Said>, usize)> {
    let (mut known, mut blank) = (HashMap::new(), 0);
    let mut all: Vec<Said> = Vec::with_capacity(dialogue.turns.len());
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
            _ => all.push(Said { speaker, part: part(turn.role.as_ref(), speaker), ids }),
        }
    }
    Ok((all, blank))
}

fn part(role: Option<&Role>, speaker: u32) -> u32 {
    match role {
        Some(Role::User) => 0,
        Some(Role::Agent) => 1,
        _ => speaker,
    }
}
