//! Random ranker, as a baseline.

use super::{Pool, Progress, Ranker, Scorer};
use turnwise_core::{error::Result, random::hash64};

/// Random scores from a seed.
#[derive(Debug, Clone, Copy)]
pub struct RandomBaseline {
    /// Random seed.
    pub seed: u64,
}

impl Ranker for RandomBaseline {
    fn name(&self) -> String {
        "random order".to_owned()
    }

    fn identity(&self) -> String {
        format!("random/{}", self.seed)
    }

    fn prepare<'a>(&'a self, _: &'a Pool, _: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        Ok(Box::new(*self))
    }
}

impl Scorer for RandomBaseline {
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        let seed = hash64(self.seed, query as u64);
        scores.clear();
        // An f32 represents integers of up to 24 bits exactly.
        scores.extend(documents.iter().map(|document| (hash64(seed, u64::from(*document)) >> 40) as f32));
        Ok(())
    }
}
