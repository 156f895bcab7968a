//! Quality of an encoder, measured without labels. Each dialogue is split into two halves, and the nearest neighbors of
//! both halves are compared. The score is the fraction of neighbors that both halves have in common.
//!
//! An exchange is two consecutive turns. The first half of a dialogue consists of its exchanges 1, 3, 5, …; the second
//! half consists of its exchanges 2, 4, 6, …. Both halves therefore come from the whole dialogue and usually contain
//! all speakers, but have no turns in common.
//!
//! A first half is compared with the first halves of the other dialogues, and a second half with their second halves.
//! If both searches find the same dialogues, the vectors represent the topic of the dialogue. The score is low for an
//! encoder that only recognizes that two halves belong to the same dialogue. It is also low for an encoder that gives
//! all dialogues almost the same vector.

use rayon::prelude::*;

use crate::{
    label_free::nearest,
    rank::{Items, Pool},
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::Vectors;

/// Maximum number of neighbors compared per dialogue. The number is also at most the number of dialogues / [`SHARE`].
const NEAR: usize = 10;
const SHARE: usize = 10;

/// Minimum number of held-out dialogues. With fewer, the score is not reliable.
pub const MIN_HELD_OUT: usize = 20;

/// Returns the number of neighbors to compare per dialogue, for `count` dialogues.
fn nearest_of(count: usize) -> usize {
    NEAR.min(count / SHARE)
}

/// Random baseline: expected fraction of shared neighbors for `count` dialogues with random neighbors.
pub fn by_chance(count: usize) -> f64 {
    nearest_of(count) as f64 / count.saturating_sub(1).max(1) as f64
}

/// Held-out dialogues, split into halves.
pub struct Halves {
    /// All first halves, followed by all second halves.
    pool: Pool,
}

impl Halves {
    /// Splits dialogues. Returns `None` if fewer than [`MIN_HELD_OUT`] of them can be split.
    pub fn new(dialogues: &[Dialogue]) -> Option<Self> {
        let split: Vec<&Dialogue> = dialogues.iter().filter(|dialogue| can_be_split(dialogue)).collect();
        if split.len() < MIN_HELD_OUT {
            return None;
        }
        let half = |which: usize| split.iter().map(move |dialogue| half_of(dialogue, which));
        Some(Halves { pool: Pool::of(Items::Dialogues(half(0).chain(half(1)).collect())) })
    }

    /// The halves to encode.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Number of dialogues.
    pub fn len(&self) -> usize {
        self.pool.documents.len() / 2
    }

    /// Returns true if there are no dialogues.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns, for each dialogue, the fraction of the nearest neighbors that both halves have in common. `vectors`
    /// has one row of length 1 per half, in the order of [`Halves::pool`].
    pub fn look(&self, vectors: &Vectors) -> Vec<f64> {
        let count = self.len();
        let compared = nearest_of(count);
        let shared = |n: usize| {
            let [one, other] = [0..count, count..2 * count].map(|half| nearest(vectors, half, n, compared));
            one.iter().filter(|found| other.contains(found)).count() as f64 / compared as f64
        };
        (0..count).into_par_iter().map(shared).collect()
    }
}

/// Returns true if a dialogue has enough turns with text for two halves: at least four.
pub fn can_be_split(dialogue: &Dialogue) -> bool {
    spoken(dialogue).nth(3).is_some()
}

/// Indices of the turns with text.
fn spoken(dialogue: &Dialogue) -> impl Iterator<Item = usize> {
    dialogue.turns.iter().enumerate().filter(|(_, turn)| !turn.text.trim().is_empty()).map(|(n, _)| n)
}

/// Half of a dialogue: every other pair of turns with text, from the first (`which` 0) or second pair (`which` 1).
fn half_of(dialogue: &Dialogue, which: usize) -> Dialogue {
    let own = spoken(dialogue).enumerate().filter(|(n, _)| n / 2 % 2 == which).map(|(_, turn)| turn);
    Dialogue { turns: own.map(|turn| dialogue.turns[turn].clone()).collect(), ..dialogue.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::Role;

    fn dialogue(n: usize, said: &[&str]) -> Dialogue {
        let mut dialogue = Dialogue::new(DialogueId::new(format!("d{n}")).unwrap());
        for text in said {
            dialogue.push("x", Role::User, *text);
        }
        dialogue
    }

    #[test]
    fn halves_are_every_other_exchange_of_turns_with_text() {
        let few: Vec<Dialogue> = (0..19).map(|n| dialogue(n, &["a", "b", "c", "d"])).collect();
        assert!(Halves::new(&few).is_none());
        let mut all: Vec<Dialogue> =
            (0..20).map(|n| dialogue(n, &["a", " ", "b", "c", "d", "e", "f", "g"])).collect();
        all.push(dialogue(20, &["a", "b", "c", ""]));
        let halves = Halves::new(&all).unwrap();
        assert_eq!((halves.len(), halves.is_empty()), (20, false));
        let Items::Dialogues(parts) = &halves.pool().documents else { panic!("no dialogues") };
        let said = |n: usize| parts[n].turns.iter().map(|turn| turn.text.as_str()).collect::<String>();
        assert_eq!((said(3), said(23)), ("abef".to_owned(), "cdg".to_owned()));
    }

    #[test]
    fn halves_share_neighbors_only_if_their_vectors_agree() {
        let all: Vec<Dialogue> = (0..60).map(|n| dialogue(n, &["a", "b", "c", "d"])).collect();
        let halves = Halves::new(&all).unwrap();
        // Sixty dialogues on a circle; `second` maps a first half's position to that of the second half.
        let at = |second: fn(usize) -> usize| {
            let mut vectors = Vectors::new(2);
            for place in (0..60).chain((0..60).map(second)) {
                let angle = place as f32 / 60.0 * std::f32::consts::TAU;
                vectors.push(&[angle.cos(), angle.sin()]);
            }
            let each = halves.look(&vectors);
            each.iter().sum::<f64>() / each.len() as f64
        };
        assert_eq!(at(|n| n), 1.0);
        // A rotation keeps all neighbors; a step that is coprime to 60 scatters them.
        assert_eq!(at(|n| (n + 17) % 60), 1.0);
        assert!(at(|n| n * 23 % 60) < 0.2);
        assert_eq!((by_chance(61), by_chance(301)), (0.1, 10.0 / 300.0));
    }
}
