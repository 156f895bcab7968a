//! Evaluations during a run, and the selection of the best step.

use serde::{Deserialize, Serialize};

use turnwise_core::named_enum;
use turnwise_core::stats::mean_and_deviation;
pub use turnwise_eval::halves::MIN_HELD_OUT;

/// Result of an evaluation of the model after a step. Step 0 is the base model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Number of steps taken.
    pub step: u64,
    /// True if a `context-cca` layer was appended to the model before the evaluation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub layer: bool,
    /// Scores on the labeled dev tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dev: Vec<Measured>,
    /// Label-free score on the held-out dialogues; `None` if no dialogues are held out.
    #[serde(default, rename = "aside", skip_serializing_if = "Option::is_none")]
    pub held_out: Option<HeldOut>,
    /// Fraction of the ten nearest neighbors by BM25 that are also among the ten nearest by vectors. `None` if the
    /// sample is too small.
    pub agreement: Option<f64>,
    /// Mean squared distance between the vectors of BM25 neighbors; `None` if `agreement` is `None`.
    pub alignment: Option<f64>,
    /// Logarithm of the mean of e^(−2 · squared distance) over all pairs of vectors; `None` if `agreement` is `None`.
    pub uniformity: Option<f64>,
    /// Duration of the evaluation in seconds.
    pub seconds: f64,
}

impl Evaluation {
    /// Position on the step axis of the curves. An evaluation of the model with its
    /// appended layer is placed one step after the last step.
    pub fn position(&self) -> u64 {
        self.step + u64::from(self.layer)
    }
}

/// Value of one measure on a dev task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The task, as given in the recipe.
    pub task: String,
    /// Name of the measure.
    pub measure: String,
    /// Value of the measure, as a fraction, not in percent.
    pub value: f64,
    /// Value of each query, for significance tests; empty if the task has no per-query values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<f64>,
}

/// Label-free score on held-out dialogues. For encoders, each dialogue is split into two halves, and its score is the
/// overlap between the nearest neighbors of the halves. For selectors, the score is that of response selection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// Mean score over the dialogues.
    pub value: f64,
    /// Score of each dialogue, or of each response selection sample.
    pub each: Vec<f64>,
    /// What the score measures.
    #[serde(default, skip_serializing_if = "HeldOutMeasure::is_halves")]
    pub measure: HeldOutMeasure,
}

/// Measure of the label-free score on held-out dialogues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldOutMeasure {
    /// Overlap between the nearest neighbors of the halves of a dialogue.
    #[default]
    Halves,
    /// Whether the true next turn ranks first among the candidate responses (R@1).
    Responses,
}

impl HeldOutMeasure {
    fn is_halves(&self) -> bool {
        *self == HeldOutMeasure::Halves
    }
}

impl HeldOut {
    /// Creates the score from one score per dialogue or sample.
    pub fn new(each: Vec<f64>, measure: HeldOutMeasure) -> Self {
        HeldOut { value: mean_and_deviation(&each).0, each, measure }
    }

    /// Returns the standard error of the mean difference between two scores of the same dialogues.
    fn standard_error(&self, other: &HeldOut) -> f64 {
        let differences: Vec<f64> = self.each.iter().zip(&other.each).map(|(a, b)| a - b).collect();
        let (_, deviation) = mean_and_deviation(&differences);
        deviation / (differences.len().max(1) as f64).sqrt()
    }
}

named_enum! {
    /// Criterion that selects the step of the saved model.
    pub enum Selection: "selection" {
        /// The best label-free score on held-out dialogues. Without held-out dialogues, the best agreement with BM25
        /// neighbors.
        #[default]
        LabelFree = "label-free",
        /// The best mean score on the labeled dev tasks, as in the code of the papers.
        Dev = "dev",
        /// The last step, without comparing scores.
        Last = "last",
    }
}

/// Tolerance for label-free scores: a score that is below the best score by at most this value counts as equal to the
/// best score. For held-out dialogues, a difference of at most one standard error counts as equal, too.
pub const NEARLY: f64 = 0.005;

impl Selection {
    /// Returns the score of an evaluation (higher is better), or `None` if the evaluation has no score for this
    /// criterion.
    pub fn score(self, evaluation: &Evaluation) -> Option<f64> {
        match self {
            Selection::LabelFree => {
                evaluation.held_out.as_ref().map(|held_out| held_out.value).or(evaluation.agreement)
            }
            Selection::Dev => {
                let main: Vec<f64> = main_values(evaluation).map(|m| m.value).collect();
                (!main.is_empty()).then(|| main.iter().sum::<f64>() / main.len() as f64)
            }
            Selection::Last => None,
        }
    }

    /// Returns the evaluation of the best trained step, or `None` if no evaluation has a score.
    ///
    /// With labels, the best step is the first one with the highest score. Without labels, it is the last step with
    /// nearly the highest score: small differences are noise, and later steps have learned more.
    pub fn best(self, evaluations: &[Evaluation]) -> Option<&Evaluation> {
        let trained = || evaluations.iter().filter(|e| e.step > 0 && !e.layer);
        let mut best: Option<(&Evaluation, f64)> = None;
        for evaluation in trained() {
            if let Some(score) = self.score(evaluation)
                && best.is_none_or(|(_, highest)| score > highest)
            {
                best = Some((evaluation, score));
            }
        }
        let (best, highest) = best?;
        if self != Selection::LabelFree {
            return Some(best);
        }
        let nearly_best = |e: &&Evaluation| {
            let both = e.held_out.as_ref().zip(best.held_out.as_ref());
            let error = both.map_or(0.0, |(a, b)| a.standard_error(b));
            self.score(e).is_some_and(|score| score >= highest - NEARLY.max(error))
        };
        trained().rfind(nearly_best)
    }

    /// Returns the number of evaluations after the best step, for early stopping; 0 without a best step.
    pub fn since_best(self, evaluations: &[Evaluation]) -> usize {
        let Some(best) = self.best(evaluations) else { return 0 };
        evaluations.iter().filter(|e| e.step > best.step).count()
    }
}

/// Returns the main measure of each task: the first measure listed for the task.
pub fn main_values(evaluation: &Evaluation) -> impl Iterator<Item = &Measured> {
    let dev = &evaluation.dev;
    let is_first = move |n: &usize| !dev[..*n].iter().any(|before| before.task == dev[*n].task);
    (0..dev.len()).filter(is_first).map(move |n| &dev[n])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(step: u64, agreement: f64, map: f64) -> Evaluation {
        let of = |measure: &str, value| Measured {
            task: "sr:x".to_owned(),
            measure: measure.to_owned(),
            value,
            each: Vec::new(),
        };
        Evaluation {
            step,
            layer: false,
            dev: vec![of("MAP", map), of("MRR", 0.0)],
            held_out: None,
            agreement: Some(agreement),
            alignment: None,
            uniformity: None,
            seconds: 0.0,
        }
    }

    #[test]
    fn the_best_step_is_never_the_start() {
        let all = [at(0, 0.9, 0.9), at(10, 0.5, 0.2), at(20, 0.7, 0.1), at(30, 0.699, 0.3), at(40, 0.6, 0.3)];
        assert_eq!(Selection::LabelFree.best(&all).unwrap().step, 30);
        assert_eq!(Selection::LabelFree.best(&all[..3]).unwrap().step, 20);
        assert_eq!(Selection::Dev.best(&all).unwrap().step, 30);
        assert_eq!(Selection::Last.best(&all), None);
        assert_eq!(Selection::LabelFree.since_best(&all), 1);
        assert_eq!(Selection::LabelFree.since_best(&all[..1]), 0);
        assert_eq!(main_values(&all[0]).count(), 1);
    }

    #[test]
    fn held_out_dialogues_take_precedence_over_agreement() {
        let with = |step: u64, agreement: f64, each: [f64; 4]| Evaluation {
            held_out: Some(HeldOut::new(each.to_vec(), HeldOutMeasure::Halves)),
            ..at(step, agreement, 0.0)
        };
        // The score of step 30 is lower than that of step 20 by 0.25, which is within the standard error. The score of
        // step 40 is lower by 0.5, with a standard error of 0.
        let all = [
            with(10, 0.9, [0.0, 0.2, 0.1, 0.1]),
            with(20, 0.1, [0.5, 1.0, 1.0, 1.0]),
            with(30, 0.1, [0.5, 1.0, 1.0, 0.0]),
            with(40, 0.5, [0.0, 0.5, 0.5, 0.5]),
        ];
        assert_eq!(Selection::LabelFree.best(&all[..2]).unwrap().step, 20);
        assert_eq!(Selection::LabelFree.best(&all).unwrap().step, 30);
    }
}
