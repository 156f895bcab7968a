//! What a run comes to, step by step.

use serde::{Deserialize, Serialize};

use super::lines::OfStep;

/// A step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Steps taken, this one included.
    pub step: u64,
    /// What the examples cost on average, before the step.
    pub loss: f64,
    /// The learning rate.
    pub learning_rate: f64,
    /// How long the gradient was.
    pub gradient: f64,
    /// Examples.
    pub examples: usize,
    /// Tokens.
    pub tokens: usize,
    /// Seconds that the step took.
    pub seconds: f64,
}

impl OfStep for Line {
    fn step(&self) -> u64 {
        self.step
    }
}
