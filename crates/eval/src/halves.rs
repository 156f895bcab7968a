//! What an encoder is worth for some dialogues, told without labels: whether either half of a dialogue has the same
//! neighbours.
//!
//! The halves are every other exchange of two turns, so that both have all speakers and all of a dialogue's course. Who
//! is near one half among the first halves, and who is near the other among the second, is told by different words: what
//! both tell is what the dialogue is about. An encoder that only knows which half belongs to which gains nothing by it,
//! nor does one whose vectors all lie together.

use rayon::prelude::*;

use crate::rank::{Items, Pool};
use turnwise_corpus::Dialogue;
use turnwise_encoder::Vectors;
use turnwise_train::{neighbors, run::evaluations::FEWEST_ASIDE};

/// How many neighbours are looked at, and of how many dialogues one of them is.
const NEAR: usize = 10;
const SHARE: usize = 10;

/// How many neighbours of each of so many dialogues are looked at.
fn nearest_of(count: usize) -> usize {
    NEAR.min(count / SHARE)
}

/// What part of them two halves of so many dialogues share where anybody is as near as anybody.
pub fn by_chance(count: usize) -> f64 {
    nearest_of(count) as f64 / count.saturating_sub(1).max(1) as f64
}

/// Dialogues in halves.
pub struct Halves {
    /// The first halves, then the second ones.
    pool: Pool,
}

impl Halves {
    /// Parts dialogues. `None` where too few are there to be neighbours.
    pub fn new(dialogues: &[Dialogue]) -> Option<Self> {
        let parted: Vec<&Dialogue> = dialogues.iter().filter(|dialogue| can_be_parted(dialogue)).collect();
        if parted.len() < FEWEST_ASIDE {
            return None;
        }
        let half = |which: usize| parted.iter().map(move |dialogue| half_of(dialogue, which));
        Some(Halves { pool: Pool::of(Items::Dialogues(half(0).chain(half(1)).collect())) })
    }

    /// What there is to encode.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How many dialogues there are.
    pub fn len(&self) -> usize {
        self.pool.documents.len() / 2
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Of each dialogue, what part of one half's nearest are the other's, too; of vectors of length 1, a row a half.
    pub fn look(&self, vectors: &Vectors) -> Vec<f64> {
        let count = self.len();
        let nearest = nearest_of(count);
        let near = |n: usize, first: usize| {
            let row = vectors.row(first + n);
            let dot =
                |other: usize| row.iter().zip(vectors.row(first + other)).map(|(a, b)| a * b).sum::<f32>();
            let scores: Vec<f32> = (0..count).map(dot).collect();
            neighbors::best(&scores, n, nearest, f32::NEG_INFINITY)
        };
        let alike = |n: usize| {
            let (one, other) = (near(n, 0), near(n, count));
            one.iter().filter(|found| other.contains(found)).count() as f64 / nearest as f64
        };
        (0..count).into_par_iter().map(alike).collect()
    }
}

/// Whether each half has an exchange.
pub fn can_be_parted(dialogue: &Dialogue) -> bool {
    spoken(dialogue).nth(3).is_some()
}

/// The places of the turns that have words.
fn spoken(dialogue: &Dialogue) -> impl Iterator<Item = usize> {
    dialogue.turns.iter().enumerate().filter(|(_, turn)| !turn.text.trim().is_empty()).map(|(n, _)| n)
}

/// Every other exchange, from the first or from the second.
fn half_of(dialogue: &Dialogue, which: usize) -> Dialogue {
    let own = spoken(dialogue).enumerate().filter(|(n, _)| n / 2 % 2 == which).map(|(_, place)| place);
    Dialogue { turns: own.map(|place| dialogue.turns[place].clone()).collect(), ..dialogue.clone() }
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
    fn halves_are_every_other_exchange_of_what_is_said() {
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
    fn halves_that_lie_by_the_same_topic_are_alike_and_others_are_not() {
        let all: Vec<Dialogue> = (0..60).map(|n| dialogue(n, &["a", "b", "c", "d"])).collect();
        let halves = Halves::new(&all).unwrap();
        // Sixty dialogues on a circle: the second halves where the first are, or elsewhere.
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
        // Turned round, all lie as they did; shuffled by a step that 60 has no part of, nobody does.
        assert_eq!(at(|n| (n + 17) % 60), 1.0);
        assert!(at(|n| n * 23 % 60) < 0.2);
        assert_eq!((by_chance(61), by_chance(301)), (0.1, 10.0 / 300.0));
    }
}
