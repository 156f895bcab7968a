//! Hard negatives: responses that are near the true one, by meaning or by words, and were said elsewhere.
//!
//! What is too near may be as true as the true one. So nothing counts as wrong whose cosine with it is above a bound, nor
//! what is among its nearest while it is among that one's nearest, too: such pairs mostly say the same.

use std::collections::HashMap;

use crate::{
    data::TrainingSet,
    model::Trainable,
    neighbors,
    objectives::{Place, unit_means},
};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::{Sequence, Vectors};

/// Utterances that are encoded before it is told how many are.
const CHUNK: usize = 1_024;

/// How they are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Near ones that are looked at, by vectors.
    pub near: usize,
    /// The same by words.
    pub by_words: usize,
    /// What is as near as this may be true.
    pub bound: f32,
    /// Among how many nearest both must be of each other to be taken for the same.
    pub mutual: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { near: 20, by_words: 10, bound: 0.6, mutual: 5 }
    }
}

/// Hard negatives for some utterances, and where each of those is said.
pub struct Hard {
    numbers: HashMap<Vec<u32>, u32>,
    places: Vec<Place>,
    near: Vec<Vec<u32>>,
}

impl Hard {
    /// Finds them among what is said at these places, each text once, by the vectors of a model that has not been trained
    /// yet and by words. `told` hears how many are encoded.
    pub fn mine(
        model: &Trainable,
        data: &TrainingSet,
        chosen: &[Place],
        max_tokens: usize,
        settings: Settings,
        told: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Self> {
        let (mut numbers, mut places, mut said) = (HashMap::new(), Vec::new(), Vec::new());
        for place in chosen {
            let ids = data.said(*place)?;
            if !numbers.contains_key(&ids) {
                numbers.insert(ids.clone(), places.len() as u32);
                places.push(*place);
                said.push(ids);
            }
        }
        let mut vectors = Vectors::new(model.width());
        for chunk in said.chunks(CHUNK) {
            let sequences: Vec<Sequence> = chunk.iter().map(|ids| data.utterance(ids, max_tokens)).collect();
            unit_means(model, &sequences)?.rows().for_each(|row| vectors.push(row));
            told(vectors.len())?;
        }
        let nearest = neighbors::nearest_of_many(&vectors, settings.near)?;
        let same = neighbors::mutual_of(&nearest, settings.mutual);
        let by_words = neighbors::words::nearest(&said, settings.by_words);
        let wrong = |own: usize, other: u32| {
            !same[own].contains(&other) && cosine(&vectors, own, other as usize) < settings.bound
        };
        let of = |own: usize| -> Vec<u32> {
            let near = nearest[own].iter().chain(&by_words[own]).copied();
            let mut found: Vec<u32> = near.filter(|other| wrong(own, *other)).collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        let near = (0..places.len()).map(of).collect();
        Ok(Hard { numbers, places, near })
    }

    /// How many texts have some.
    pub fn len(&self) -> usize {
        self.near.iter().filter(|near| !near.is_empty()).count()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One for what is said in a dialogue, said in another, if there is any.
    pub fn draw(&self, said: &[u32], dialogue: u32, random: &mut Random) -> Option<Place> {
        let near = &self.near[*self.numbers.get(said)? as usize];
        let places = near.iter().map(|n| self.places[*n as usize]);
        let elsewhere: Vec<Place> = places.filter(|place| place.dialogue != dialogue).collect();
        (!elsewhere.is_empty()).then(|| elsewhere[random.below(elsewhere.len())])
    }
}

fn cosine(vectors: &Vectors, a: usize, b: usize) -> f32 {
    vectors.row(a).iter().zip(vectors.row(b)).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{data::Said, model::Freezing};
    use turnwise_encoder::{Network, testing::small_shape};

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
        let settings = Settings { bound: 0.99, ..Settings::default() };
        let mut told = 0;
        let mut mine = |settings| {
            Hard::mine(&model, &data, &chosen, 16, settings, &mut |done| {
                told = done;
                Ok(())
            })
            .unwrap()
        };
        let hard = mine(settings);
        assert!(!hard.is_empty());
        let mut random = Random::new(1, 1);
        let ids = |p: Place| data.said(p).unwrap();
        for place in &chosen {
            for _ in 0..20 {
                let Some(drawn) = hard.draw(&ids(*place), place.dialogue, &mut random) else { break };
                assert!(drawn.dialogue != place.dialogue && ids(drawn) != ids(*place));
            }
        }
        // What was not looked at has none.
        assert_eq!(hard.draw(&[59], 0, &mut random), None);
        // With a bound below all cosines nothing is wrong any more.
        assert!(mine(Settings { bound: -1.0, ..Settings::default() }).is_empty());
        assert_eq!(told, 13);
    }
}
