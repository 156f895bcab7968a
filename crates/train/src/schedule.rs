//! Learning rate schedules.

use std::f64::consts::PI;

use crate::named_enum;

named_enum! {
    /// Shape of the schedule after the warm-up.
    pub enum Shape: "schedule" {
        /// Constant learning rate.
        Constant = "constant",
        /// Linear decay to 0.
        #[default]
        Linear = "linear",
        /// Cosine decay to 0.
        Cosine = "cosine",
    }
}

/// Learning rate schedule over a known number of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Shape after the warm-up.
    pub shape: Shape,
    /// Number of warm-up steps, in which the rate grows linearly.
    pub warm_up: u64,
    /// Total number of steps.
    pub steps: u64,
}

impl Schedule {
    /// Returns the factor for the learning rate in a step, counted from 0. It is above 0 for every step below `steps`.
    pub fn factor(&self, step: u64) -> f64 {
        if step < self.warm_up {
            return (step + 1) as f64 / (self.warm_up + 1) as f64;
        }
        let length = self.steps.saturating_sub(self.warm_up).max(1) as f64;
        let progress = ((step - self.warm_up) as f64 / length).min(1.0);
        match self.shape {
            Shape::Constant => 1.0,
            Shape::Linear => 1.0 - progress,
            Shape::Cosine => 0.5 * (1.0 + (PI * progress).cos()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_of_each_shape() {
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
