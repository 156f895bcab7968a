//! Metrics of the training steps.

use serde::{Deserialize, Serialize};

use super::lines::OfStep;

/// Metrics of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Number of steps taken, including this one.
    pub step: u64,
    /// Mean loss of the examples, before the update.
    pub loss: f64,
    /// Learning rate.
    pub learning_rate: f64,
    /// Gradient norm before clipping.
    pub gradient: f64,
    /// Number of examples.
    pub examples: usize,
    /// Number of tokens.
    pub tokens: usize,
    /// Duration in seconds.
    pub seconds: f64,
}

impl OfStep for Line {
    fn step(&self) -> u64 {
        self.step
    }
}
