//! Hard negatives: responses from other dialogues that are similar to the true response, by embedding or by BM25.
//!
//! A response that is too similar may also be correct (a false negative). Two kinds of candidates are therefore
//! excluded: those with a cosine similarity at or above a bound, and mutual nearest neighbors of the response.

use std::collections::HashMap;

use super::{TurnLocation, losses::unit_means};
use crate::{data::TrainingSet, model::Trainable, neighbors};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::{Sequence, Vectors};

/// Number of utterances that are encoded between two progress reports.
const CHUNK: usize = 1_024;

/// Settings of hard negative mining.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MiningSettings {
    /// Number of candidates per utterance from the embedding search.
    pub near: usize,
    /// Number of candidates per utterance from BM25.
    pub bm25: usize,
    /// Candidates with at least this cosine similarity are excluded as possible false negatives.
    pub bound: f32,
    /// Number of nearest neighbors per utterance that are checked for paraphrases. Two utterances that are among each
    /// other's neighbors count as paraphrases and are not negatives of each other.
    pub mutual: usize,
}

impl Default for MiningSettings {
    fn default() -> Self {
        MiningSettings { near: 20, bm25: 10, bound: 0.6, mutual: 5 }
    }
}

/// Hard negatives of each distinct utterance text.
pub struct HardNegatives {
    /// Index of each distinct text, by its token ids.
    numbers: HashMap<Vec<u32>, u32>,
    /// Location of the first occurrence of each text.
    locations: Vec<TurnLocation>,
    /// Hard negatives of each text, as text indices.
    near: Vec<Vec<u32>>,
}

impl HardNegatives {
    /// Mines hard negatives among the distinct texts of the utterances at the `chosen` locations.
    ///
    /// The candidates are the nearest texts by embedding and by BM25. `progress` receives the number of encoded texts.
    pub fn mine(
        model: &Trainable,
        data: &TrainingSet,
        chosen: &[TurnLocation],
        max_tokens: usize,
        settings: MiningSettings,
        progress: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Self> {
        let (mut numbers, mut locations, mut texts) = (HashMap::new(), Vec::new(), Vec::new());
        for location in chosen {
            let ids = data.token_ids(*location)?;
            if !numbers.contains_key(&ids) {
                numbers.insert(ids.clone(), locations.len() as u32);
                locations.push(*location);
                texts.push(ids);
            }
        }
        let mut vectors = Vectors::new(model.width());
        for chunk in texts.chunks(CHUNK) {
            let sequences: Vec<Sequence> = chunk.iter().map(|ids| data.utterance(ids, max_tokens)).collect();
            unit_means(model, &sequences)?.rows().for_each(|row| vectors.push(row));
            progress(vectors.len())?;
        }
        let nearest = neighbors::nearest_of_many(&vectors, settings.near)?;
        let paraphrases = neighbors::mutual_of(&nearest, settings.mutual);
        let by_bm25 = neighbors::nearest_by_bm25(&texts, settings.bm25);
        let is_negative = |own: usize, other: u32| {
            !paraphrases[own].contains(&other) && cosine(&vectors, own, other as usize) < settings.bound
        };
        let negatives = |own: usize| -> Vec<u32> {
            let candidates = nearest[own].iter().chain(&by_bm25[own]).copied();
            let mut found: Vec<u32> = candidates.filter(|other| is_negative(own, *other)).collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        let near = (0..locations.len()).map(negatives).collect();
        Ok(HardNegatives { numbers, locations, near })
    }

    /// Number of texts with at least one hard negative.
    pub fn count(&self) -> usize {
        self.near.iter().filter(|near| !near.is_empty()).count()
    }

    /// Draws a hard negative for the utterance with the token ids `ids` in `dialogue`. The negative is from a different
    /// dialogue. Returns `None` if there is no such negative.
    pub fn draw(&self, ids: &[u32], dialogue: u32, random: &mut Random) -> Option<TurnLocation> {
        let near = &self.near[*self.numbers.get(ids)? as usize];
        let locations = near.iter().map(|n| self.locations[*n as usize]);
        let elsewhere: Vec<TurnLocation> =
            locations.filter(|location| location.dialogue != dialogue).collect();
        (!elsewhere.is_empty()).then(|| elsewhere[random.below(elsewhere.len())])
    }
}

fn cosine(vectors: &Vectors, a: usize, b: usize) -> f32 {
    vectors.row(a).iter().zip(vectors.row(b)).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{data::TurnTokens, model::Freezing};
    use turnwise_encoder::{Network, testing::small_shape};

    #[test]
    fn possible_false_negatives_are_excluded() {
        let turn = |ids: &[u32]| TurnTokens { speaker: 0, role: 0, ids: ids.to_vec() };
        // All dialogues share one turn; the other turn of each dialogue is unique.
        let dialogues = (0..12).map(|n| vec![turn(&[10, 11, 12]), turn(&[10, 20 + n, 30 + n])]).collect();
        let data = TrainingSet::of(dialogues, vec![1], vec![2], None);
        let network = Network::random(small_shape(), 2, 60, 64, 3);
        let freezing = Freezing { layers: 0, embeddings: false, memory: Some(0) };
        let model =
            Trainable::new(network, freezing, &candle_core::Device::Cpu, candle_core::DType::F32).unwrap();
        let chosen: Vec<TurnLocation> =
            (0..24).map(|n| TurnLocation { dialogue: n / 2, turn: n % 2 }).collect();
        let settings = MiningSettings { bound: 0.99, ..MiningSettings::default() };
        let mut encoded = 0;
        let mut mine = |settings| {
            HardNegatives::mine(&model, &data, &chosen, 16, settings, &mut |done| {
                encoded = done;
                Ok(())
            })
            .unwrap()
        };
        let hard = mine(settings);
        assert!(hard.count() > 0);
        let mut random = Random::new(1, 1);
        let ids = |p: TurnLocation| data.token_ids(p).unwrap();
        for location in &chosen {
            for _ in 0..20 {
                let Some(drawn) = hard.draw(&ids(*location), location.dialogue, &mut random) else { break };
                assert!(drawn.dialogue != location.dialogue && ids(drawn) != ids(*location));
            }
        }
        // A text that was not in the input has no negatives.
        assert_eq!(hard.draw(&[59], 0, &mut random), None);
        // A bound below every cosine excludes all candidates.
        assert_eq!(mine(MiningSettings { bound: -1.0, ..MiningSettings::default() }).count(), 0);
        assert_eq!(encoded, 13);
    }
}
