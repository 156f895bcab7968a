//! Quality of an encoder, measured without labels. Each dialogue is split into two halves, and the nearest neighbors of
//! the two halves are compared. The score is the fraction of neighbors that both halves have in common.
//!
//! An exchange is two consecutive turns. The first half of a dialogue consists of its exchanges 1, 3, 5, …; the second
//! half consists of its exchanges 2, 4, 6, …. Both halves therefore come from the whole dialogue and usually contain
//! all speakers, but have no turns in common.
//!
//! The neighbors of a first half are searched among the first halves of the other dialogues. The neighbors of a second
//! half are searched among the second halves of the other dialogues. If both searches find the same dialogues, the
//! vectors represent the topic of the dialogue. The score is low for an encoder that only recognizes that two halves
//! belong to the same dialogue. It is also low if almost all dialogues have the same vector.

use rayon::prelude::*;

use crate::{
    label_free::nearest,
    rank::{Items, Pool},
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::Vectors;

/// Number of neighbors that are compared per dialogue. With few dialogues, fewer neighbors are compared: the number of
/// dialogues divided by [`SHARE`].
const NEAR: usize = 10;
const SHARE: usize = 10;

/// Minimum number of held-out dialogues. With fewer dialogues, the score is not reliable.
pub const MIN_HELD_OUT: usize = 20;

/// Returns the number of neighbors to compare per dialogue, for `count` dialogues.
fn nearest_of(count: usize) -> usize {
    NEAR.min(count / SHARE)
}

/// Returns the random baseline for `count` dialogues: the expected fraction of shared neighbors if all neighbors are
/// random.
pub fn by_chance(count: usize) -> f64 {
    nearest_of(count) as f64 / count.saturating_sub(1).max(1) as f64
}

/// Held-out dialogues that are split into halves.
pub struct Halves {
    /// All first halves of the dialogues, followed by all second halves in the same order.
    pool: Pool,
}

impl Halves {
    /// Splits dialogues into halves. Returns `None` if fewer than [`MIN_HELD_OUT`] dialogues can be split.
    pub fn new(dialogues: &[Dialogue]) -> Option<Self> {
        let split: Vec<&Dialogue> = dialogues.iter().filter(|dialogue| can_be_split(dialogue)).collect();
        if split.len() < MIN_HELD_OUT {
            return None;
        }
        let half = |which: usize| split.iter().map(move |dialogue| half_of(dialogue, which));
        Some(Halves { pool: Pool::of(Items::Dialogues(half(0).chain(half(1)).collect())) })
    }

    /// Returns the halves to encode.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the number of dialogues that were split.
    pub fn len(&self) -> usize {
        self.pool.documents.len() / 2
    }

    /// Returns whether there are no dialogues.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns for each dialogue the fraction of nearest neighbors that both halves have in common. `vectors` contains
    /// one unit vector per half, in the order of [`Halves::pool`].
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

/// Returns whether a dialogue can be split into halves, that is, has at least four turns with text.
pub fn can_be_split(dialogue: &Dialogue) -> bool {
    spoken(dialogue).nth(3).is_some()
}

/// Returns the indices of the turns that have text.
fn spoken(dialogue: &Dialogue) -> impl Iterator<Item = usize> {
    dialogue.turns.iter().enumerate().filter(|(_, turn)| !turn.text.trim().is_empty()).map(|(n, _)| n)
}

/// Returns a half of a dialogue: every other exchange, that is, every other pair of turns with text. Starts with the
/// first exchange if `which` is 0, and with the second exchange if `which` is 1.
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
        // The vectors of sixty dialogues are on a circle. `second` maps the position of a first half to the position of
        // the second half.
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
        // A rotation of the second halves keeps all neighbors. Multiplication by a number that is coprime to 60
        // scatters them.
        assert_eq!(at(|n| (n + 17) % 60), 1.0);
        assert!(at(|n| n * 23 % 60) < 0.2);
        assert_eq!((by_chance(61), by_chance(301)), (0.1, 10.0 / 300.0));
    }
}
