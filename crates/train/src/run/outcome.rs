//! Result of a run: steps, losses, and the scores before and after training.

use serde::{Deserialize, Serialize};

use super::{
    evaluations::{Evaluation, HeldOutMeasure, Measured, main_values},
    folder::{EVALUATIONS, LAYER, METRICS, RunFolder},
    layer::Learned,
    lines::{self, Line},
};
use crate::recipe::ResolvedRecipe;
use turnwise_core::{error::Result, numbers::counted};
use turnwise_eval::{
    halves,
    significance::{DRAWS, randomization_test},
};

/// Significance level: differences with a smaller p-value count as significant.
const SIGNIFICANCE: f64 = 0.05;

/// Task name of the held-out evaluation in a [`Gain`].
const HELD_OUT: &str = "aside";
/// Measure name of the held-out evaluation of an encoder in a [`Gain`].
const HALVES: &str = "halves";
/// Measure name of the held-out evaluation of a selector in a [`Gain`].
const RESPONSES: &str = "R@1";

/// Result of a training run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of steps taken; fewer than requested if the run stopped early.
    pub steps: u64,
    /// Step of the saved model.
    pub kept: u64,
    /// Mean losses over the first and the last tenth of the steps; `None` without steps.
    pub losses: Option<(f64, f64)>,
    /// Statistics of the learned layer; `None` if no layer was learned.
    pub learned: Option<Learned>,
    /// All evaluations of the run, in the order of their steps.
    pub evaluations: Vec<Evaluation>,
    /// Time and data of the steps, including those before a resume.
    pub spent: Spent,
}

/// Time and amount of data that the steps of a run took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    /// Duration of the steps in seconds.
    pub seconds: f64,
    /// Number of training examples.
    pub examples: u64,
    /// Number of tokens in all batches.
    pub tokens: u64,
}

impl Spent {
    /// Adds up the time and the data of these steps.
    pub(super) fn of(steps: &[Line]) -> Self {
        Spent {
            seconds: steps.iter().map(|line| line.seconds).sum(),
            examples: steps.iter().map(|line| line.result.examples as u64).sum(),
            tokens: steps.iter().map(|line| line.result.tokens as u64).sum(),
        }
    }
}

impl Outcome {
    /// Reads the result of a finished run from its files.
    pub(super) fn read(folder: &RunFolder, recipe: &ResolvedRecipe) -> Result<Self> {
        let metrics: Vec<Line> = match recipe.steps {
            Some(_) => lines::read(&folder.join(METRICS))?,
            None => Vec::new(),
        };
        let evaluations: Vec<Evaluation> = lines::read(&folder.join(EVALUATIONS))?;
        let steps = metrics.last().map_or(0, |line| line.result.step);
        let kept = recipe.select.best(&evaluations).map_or(steps, |best| best.step);
        let learned = Learned::read(&folder.join(LAYER))?;
        let (losses, spent) = (losses(&metrics), Spent::of(&metrics));
        Ok(Outcome { steps, kept, losses, learned, evaluations, spent })
    }

    /// Evaluation of the saved model, which includes the layer if one was learned.
    fn last(&self) -> Option<&Evaluation> {
        match self.learned {
            Some(_) => self.evaluations.last(),
            None => self.evaluations.iter().find(|e| e.step == self.kept),
        }
    }

    /// Returns the score changes on held-out dialogues and on the dev tasks, from the base model to the saved model.
    ///
    /// `seed` is the seed of the significance tests. The list is empty if one of these models was not evaluated.
    pub fn gains(&self, seed: u64) -> Vec<Gain> {
        let start = self.evaluations.iter().find(|e| e.step == 0);
        let (Some(start), Some(kept)) = (start, self.last()) else { return Vec::new() };
        let gain = |kept: &Measured| {
            let start = start.dev.iter().find(|m| m.task == kept.task && m.measure == kept.measure)?;
            let paired = !kept.each.is_empty() && kept.each.len() == start.each.len();
            Some(Gain {
                task: kept.task.clone(),
                measure: kept.measure.clone(),
                start: start.value,
                kept: kept.value,
                p: paired.then(|| randomization_test(&start.each, &kept.each, DRAWS, seed)),
                pairs: if paired { kept.each.len() } else { 0 },
            })
        };
        let held_out = start.held_out.as_ref().zip(kept.held_out.as_ref()).map(|(start, kept)| Gain {
            task: HELD_OUT.to_owned(),
            measure: match kept.measure {
                HeldOutMeasure::Halves => HALVES,
                HeldOutMeasure::Responses => RESPONSES,
            }
            .to_owned(),
            start: start.value,
            kept: kept.value,
            p: Some(randomization_test(&start.each, &kept.each, DRAWS, seed)),
            pairs: kept.each.len(),
        });
        held_out.into_iter().chain(main_values(kept).filter_map(gain)).collect()
    }

    /// Fraction of the nearest neighbors by BM25 that are also nearest neighbors by vectors, before and after training.
    /// `None` if the fraction before or after training was not measured.
    pub fn agreements(&self) -> Option<[f64; 2]> {
        let start = self.evaluations.iter().find(|e| e.step == 0)?;
        Some([start.agreement?, self.last()?.agreement?])
    }
}

/// Mean losses over the first and the last tenth of the steps; `None` without steps.
pub(super) fn losses(lines: &[Line]) -> Option<(f64, f64)> {
    let part = (lines.len() / 10).max(1);
    let mean = |lines: &[Line]| lines.iter().map(|line| line.result.loss).sum::<f64>() / lines.len() as f64;
    (!lines.is_empty()).then(|| (mean(&lines[..part]), mean(&lines[lines.len() - part..])))
}

/// Score on a dev task or on the held-out dialogues, before and after training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The task, as given in the recipe; `aside` for held-out dialogues.
    pub task: String,
    /// Name of the measure.
    pub measure: String,
    /// Value of the base model, as a fraction, not in percent.
    pub start: f64,
    /// Value of the saved model, as a fraction, not in percent.
    pub kept: f64,
    /// P-value of the difference, by the paired randomization test; `None` for measures without per-query values.
    pub p: Option<f64>,
    /// Number of paired per-query values; 0 if there are none.
    #[serde(default, rename = "of")]
    pub pairs: usize,
}

impl Gain {
    /// Returns a description of the measure for tables.
    pub fn description(&self) -> String {
        match self.is_held_out() {
            true if self.measure == RESPONSES => {
                format!("R@1 of ten responses to {}", counted(self.pairs as u64, "held-out context"))
            }
            true => format!(
                "neighbors shared by the halves of {} ({:.1} by chance)",
                counted(self.pairs as u64, "held-out dialogue"),
                100.0 * halves::by_chance(self.pairs)
            ),
            false => format!("{} {}", self.task, self.measure),
        }
    }

    /// Returns true for the label-free score on held-out dialogues.
    pub fn is_held_out(&self) -> bool {
        self.task == HELD_OUT && [HALVES, RESPONSES].contains(&self.measure.as_str())
    }

    /// Returns true if the difference is statistically significant.
    pub fn is_significant(&self) -> bool {
        self.p.is_some_and(|p| p < SIGNIFICANCE)
    }

    /// Returns true if the saved model is significantly worse than the base model.
    pub fn is_loss(&self) -> bool {
        self.kept < self.start && self.is_significant()
    }

    /// Returns an interpretation of the score change on held-out dialogues.
    pub fn verdict(&self) -> &'static str {
        if self.measure == RESPONSES {
            return match (self.is_significant(), self.kept > self.start) {
                (true, true) => {
                    "significant: the selector finds the next turn more often than before training"
                }
                (true, false) => {
                    "significant: the selector finds the next turn less often than before training"
                }
                (false, _) => "not significant: these dialogues show neither a gain nor a loss",
            };
        }
        match (self.is_significant(), self.kept > self.start) {
            (true, true) => "significant: the halves agree better on which dialogues are similar",
            (true, false) => "significant: the halves agree less on which dialogues are similar",
            (false, _) => "not significant: these dialogues show neither a gain nor a loss",
        }
    }
}

/// Formats an evaluation as one line.
pub(super) fn evaluation_line(evaluation: &Evaluation) -> String {
    let held_out = evaluation.held_out.as_ref().map(|held_out| match held_out.measure {
        HeldOutMeasure::Halves => format!("neighbors shared by halves {:.1}%", 100.0 * held_out.value),
        HeldOutMeasure::Responses => format!("R@1 of held-out contexts {:.1}%", 100.0 * held_out.value),
    });
    let words = evaluation.agreement.map(|a| format!("agreement with words {:.1}%", 100.0 * a));
    let dev = main_values(evaluation).map(|m| format!("{} {} {:.2}", m.task, m.measure, 100.0 * m.value));
    held_out.into_iter().chain(words).chain(dev).collect::<Vec<String>>().join(", ")
}
