//! How the learning rate goes over the steps.

use std::{f64::consts::PI, str::FromStr};

use serde::{Deserialize, Serialize};

use turnwise_core::error::{Error, Result};

/// The shape of what follows the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// It stays.
    Constant,
    /// It falls to 0 in a line.
    #[default]
    Linear,
    /// It falls to 0 along half a cosine.
    Cosine,
}

impl FromStr for Shape {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "constant" => Ok(Shape::Constant),
            "linear" => Ok(Shape::Linear),
            "cosine" => Ok(Shape::Cosine),
            _ => Err(Error::unknown_name("schedule", text, ["constant", "linear", "cosine"])),
        }
    }
}

/// A schedule over a known number of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// After the warm-up.
    pub shape: Shape,
    /// Steps in which the rate grows from 0.
    pub warm_up: u64,
    /// Steps in all.
    pub steps: u64,
}

impl Schedule {
    /// What the learning rate is multiplied by in a step, counted from 0. It is never 0 in a step that is taken.
    pub fn factor(&self, step: u64) -> f64 {
        if step < self.warm_up {
            return (step + 1) as f64 / (self.warm_up + 1) as f64;
        }
        let length = self.steps.saturating_sub(self.warm_up).max(1) as f64;
        let gone = ((step - self.warm_up) as f64 / length).min(1.0);
        match self.shape {
            Shape::Constant => 1.0,
            Shape::Linear => 1.0 - gone,
            Shape::Cosine => 0.5 * (1.0 + (PI * gone).cos()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_grow_and_fall() {
        let of = |shape| {
            let schedule = Schedule { shape, warm_up: 3, steps: 7 };
            (0..7).map(|step| (schedule.factor(step) * 1000.0).round() / 1000.0).collect::<Vec<_>>()
        };
        assert_eq!(of(Shape::Constant), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(of(Shape::Linear), [0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25]);
        assert_eq!(of(Shape::Cosine), [0.25, 0.5, 0.75, 1.0, 0.854, 0.5, 0.146]);
        assert_eq!(Schedule { shape: Shape::Linear, warm_up: 0, steps: 1 }.factor(0), 1.0);
        assert!("step".parse::<Shape>().is_err());
    }
}
