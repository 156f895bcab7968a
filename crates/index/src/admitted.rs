//! Set of the utterances or dialogues that a filter accepts. Used by dense and lexical search.

use crate::vectors::Kind;
use turnwise_core::{
    error::Result,
    ids::{Seq, TurnNo},
};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_store::Snapshot;

/// Set of the utterances or dialogues that a filter accepts. A dialogue is identified by its sequence number. A
/// replaced dialogue has a new number, so its old version is never in the set.
#[derive(Debug)]
pub struct Admitted {
    items: Items,
    count: u64,
}

#[derive(Debug)]
enum Items {
    /// Any number of items.
    Bits(Bits),
    /// Few items, sorted.
    Few(Vec<(Seq, Option<TurnNo>)>),
}

#[derive(Debug, Default)]
struct Bits {
    /// Sequence number of the first entry of `base`.
    first: u64,
    /// For each sequence number from `first` on, the index of its first bit in `bits`; [`NOTHING`] if it has no bits.
    base: Vec<u32>,
    /// One bit per dialogue; in a set of utterances, one bit per turn number, starting at turn 1.
    bits: Vec<u64>,
}

/// Entry of `base` for a sequence number that has no bits.
const NOTHING: u32 = u32::MAX;

impl Admitted {
    /// Builds the set by applying the filter to every record of a snapshot.
    pub fn by_records(snapshot: &Snapshot, filter: &Filter, kind: Kind) -> Result<Self> {
        let (mut accepted, mut spans) = (Vec::new(), Vec::new());
        let mut records = snapshot.records();
        while let Some(record) = records.next_record() {
            let record = record?;
            let dialogue: Dialogue = record.dialogue()?;
            spans.push((record.seq, span(kind, &dialogue)));
            admit(filter, kind, record.seq, &dialogue, &mut |seq, turn| accepted.push((seq, turn)));
        }
        let mut admitted = Admitted::over(spans);
        accepted.into_iter().for_each(|(seq, turn)| admitted.admit(seq, turn));
        Ok(admitted)
    }

    /// Creates a set of few items.
    pub(super) fn of_few(mut items: Vec<(Seq, Option<TurnNo>)>) -> Self {
        items.sort_unstable();
        items.dedup();
        Admitted { count: items.len() as u64, items: Items::Few(items) }
    }

    /// Returns the items of a set that was created by [`Admitted::of_few`], sorted.
    pub(super) fn few(&self) -> Option<&[(Seq, Option<TurnNo>)]> {
        match &self.items {
            Items::Few(items) => Some(items),
            Items::Bits(_) => None,
        }
    }

    /// Creates an empty set with bits for the dialogues in `spans`. Each item of `spans` is the sequence number of a
    /// dialogue and the number of bits that it needs (see [`span`]).
    pub(super) fn over(spans: impl IntoIterator<Item = (Seq, u32)> + Clone) -> Self {
        let numbers = || spans.clone().into_iter().map(|(seq, _)| seq.0);
        let (Some(first), Some(last)) = (numbers().min(), numbers().max()) else {
            return Admitted { items: Items::Bits(Bits::default()), count: 0 };
        };
        let mut base = vec![NOTHING; (last - first + 1) as usize];
        let mut bits = 0u32;
        for (seq, span) in spans {
            base[(seq.0 - first) as usize] = bits;
            bits += span;
        }
        let items = Items::Bits(Bits { first, base, bits: vec![0; (bits as usize).div_ceil(64)] });
        Admitted { items, count: 0 }
    }

    pub(super) fn admit(&mut self, seq: Seq, turn: Option<TurnNo>) {
        match &mut self.items {
            Items::Bits(bits) => self.count += u64::from(bits.insert(seq, turn)),
            Items::Few(few) => {
                if let Err(at) = few.binary_search(&(seq, turn)) {
                    few.insert(at, (seq, turn));
                    self.count += 1;
                }
            }
        }
    }

    /// Returns true if the turn, or the dialogue if `turn` is `None`, is in the set.
    pub fn holds(&self, seq: Seq, turn: Option<TurnNo>) -> bool {
        match &self.items {
            Items::Bits(bits) => bits.holds(seq, turn),
            Items::Few(few) => few.binary_search(&(seq, turn)).is_ok(),
        }
    }

    /// Number of utterances or dialogues in the set.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl Bits {
    fn bit(&self, seq: Seq, turn: Option<TurnNo>) -> Option<usize> {
        let at = usize::try_from(seq.0.checked_sub(self.first)?).ok()?;
        let base = self.base.get(at).filter(|base| **base != NOTHING)?;
        Some(*base as usize + turn.map_or(0, |turn| turn.0.saturating_sub(1) as usize))
    }

    /// Inserts an item. Returns whether it was not in the set before.
    fn insert(&mut self, seq: Seq, turn: Option<TurnNo>) -> bool {
        let Some(bit) = self.bit(seq, turn) else { return false };
        let Some(word) = self.bits.get_mut(bit / 64) else { return false };
        let is_new = *word >> (bit % 64) & 1 == 0;
        *word |= 1 << (bit % 64);
        is_new
    }

    fn holds(&self, seq: Seq, turn: Option<TurnNo>) -> bool {
        self.bit(seq, turn)
            .is_some_and(|bit| self.bits.get(bit / 64).is_some_and(|w| w >> (bit % 64) & 1 == 1))
    }
}

/// Returns the number of bits that a dialogue needs in an [`Admitted`] set: 1 in a set of dialogues, the last turn
/// number in a set of utterances.
pub(super) fn span(kind: Kind, dialogue: &Dialogue) -> u32 {
    match kind {
        Kind::Dialogues => 1,
        Kind::Utterances => dialogue.turns.last().map_or(0, |turn| turn.number.0),
    }
}

/// Calls `found` for each accepted item of a dialogue: its utterances or the dialogue itself, depending on `kind`.
pub(super) fn admit(
    filter: &Filter,
    kind: Kind,
    seq: Seq,
    dialogue: &Dialogue,
    found: &mut dyn FnMut(Seq, Option<TurnNo>),
) {
    match kind {
        Kind::Dialogues if filter.matches(dialogue) => found(seq, None),
        Kind::Dialogues => {}
        Kind::Utterances => {
            for turn in dialogue.turns.iter().filter(|turn| filter.matches_turn(dialogue, turn)) {
                found(seq, Some(turn.number));
            }
        }
    }
}
