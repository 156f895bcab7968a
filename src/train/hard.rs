//! Hard negatives: responses that are near the true one, by meaning or by words, and were said elsewhere.
//!
//! What is too near may be as true as the true one. So nothing counts as wrong whose cosine with it is above a bound, nor
//! what is among its nearest while it is among that one's nearest, too: such pairs mostly say the same.

use std::collections::HashMap;

use crate::{
    encoder::{Sequence, Vectors},
    error::{Error, Result},
    random::Random,
    train::{
        data::TrainingSet,
        model::Trainable,
        objectives::{Place, unit_means},
        teacher::near,
    },
};

/// How they are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Near ones that are looked at, by vectors; by words it is as many as are given.
    pub near: usize,
    /// What is as near as this may be true.
    pub bound: f32,
    /// Among how many nearest both must be of each other to be taken for the same.
    pub mutual: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { near: 20, bound: 0.8, mutual: 5 }
    }
}

/// Hard negatives for some utterances.
pub struct Hard {
    near: HashMap<Place, Vec<Place>>,
}

impl Hard {
    /// Finds them among these utterances, by the vectors of a model that has not been trained yet, and by lists of who is
    /// near whom by words.
    pub fn mine(
        model: &Trainable,
        data: &TrainingSet,
        chosen: &[Place],
        by_words: &[Vec<u32>],
        max_tokens: usize,
        settings: Settings,
    ) -> Result<Self> {
        if by_words.len() != chosen.len() {
            return Err(Error::Internal("words of other utterances".to_owned()));
        }
        let said = chosen.iter().map(|place| data.said(*place)).collect::<Result<Vec<Vec<u32>>>>()?;
        let sequences: Vec<Sequence> = said.iter().map(|ids| data.utterance(ids, max_tokens)).collect();
        let vectors = unit_means(model, &sequences)?;
        let nearest = near::nearest(&vectors, settings.near);
        let same = near::mutual(&vectors, settings.mutual);
        let wrong = |own: usize, other: u32| {
            let (a, b) = (&chosen[own], &chosen[other as usize]);
            a.dialogue != b.dialogue
                && said[own] != said[other as usize]
                && !same[own].contains(&other)
                && cosine(&vectors, own, other as usize) < settings.bound
        };
        let of = |(own, place): (usize, &Place)| {
            let mut found: Vec<u32> =
                nearest[own].iter().chain(&by_words[own]).copied().filter(|n| wrong(own, *n)).collect();
            found.sort_unstable();
            found.dedup();
            (*place, found.into_iter().map(|n| chosen[n as usize]).collect::<Vec<Place>>())
        };
        let near = chosen.iter().enumerate().map(of).filter(|(_, found)| !found.is_empty()).collect();
        Ok(Hard { near })
    }

    /// How many utterances have some.
    pub fn len(&self) -> usize {
        self.near.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.near.is_empty()
    }

    /// One for an utterance, if it has any.
    pub fn draw(&self, place: Place, random: &mut Random) -> Option<Place> {
        let found = self.near.get(&place)?;
        Some(found[random.below(found.len())])
    }
}

fn cosine(vectors: &Vectors, a: usize, b: usize) -> f32 {
    vectors.row(a).iter().zip(vectors.row(b)).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        encoder::{Network, testing::small_shape},
        train::{data::Said, model::Freezing},
    };

    #[test]
    fn what_may_be_true_is_no_hard_negative() {
        let said = |ids: &[u32]| Said { speaker: 0, part: 0, ids: ids.to_vec() };
        // The same three tokens in many dialogues; each dialogue says something of its own, too.
        let dialogues = (0..12).map(|n| vec![said(&[10, 11, 12]), said(&[10, 20 + n, 30 + n])]).collect();
        let data = TrainingSet::of(dialogues, vec![1], vec![2], None);
        let network = Network::random(small_shape(), 2, 60, 64, 3);
        let freezing = Freezing { layers: 0, embeddings: false, memory: 0 };
        let model =
            Trainable::new(network, freezing, &candle_core::Device::Cpu, candle_core::DType::F32).unwrap();
        let chosen: Vec<Place> = (0..24).map(|n| Place { dialogue: n / 2, turn: n % 2 }).collect();
        let by_words: Vec<Vec<u32>> = (0..24).map(|n| vec![(n + 5) % 24]).collect();
        let settings = Settings { bound: 0.99, ..Settings::default() };
        let hard = Hard::mine(&model, &data, &chosen, &by_words, 16, settings).unwrap();
        assert!(!hard.is_empty());
        let mut random = Random::new(1, 1);
        let ids = |p: Place| data.said(p).unwrap();
        for place in &chosen {
            for _ in 0..20 {
                let Some(drawn) = hard.draw(*place, &mut random) else { break };
                assert!(drawn.dialogue != place.dialogue && ids(drawn) != ids(*place));
            }
        }
        // With a bound below all cosines nothing is wrong any more.
        let settings = Settings { bound: -1.0, ..Settings::default() };
        assert!(Hard::mine(&model, &data, &chosen, &by_words, 16, settings).unwrap().is_empty());
    }
}
