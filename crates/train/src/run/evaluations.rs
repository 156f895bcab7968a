//! What the model of a run is worth at some of its steps, and which of them is to be its end.

use serde::{Deserialize, Serialize};

use super::lines::OfStep;
use turnwise_core::stats::mean_and_deviation;

/// What was measured after so many steps; 0 is the model that training began with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Steps taken.
    pub step: u64,
    /// Whether it is of the layer that was put behind what is kept of those steps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub layer: bool,
    /// On tasks with labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dev: Vec<Measured>,
    /// Without labels: of dialogues that are not trained on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<Aside>,
    /// Without labels: the part of the ten nearest by words that are among the ten nearest by vectors.
    pub agreement: Option<f64>,
    /// The mean squared distance of two that are near by words.
    pub alignment: Option<f64>,
    /// The logarithm of the mean of e^(−2 · squared distance) over all pairs.
    pub uniformity: Option<f64>,
    /// Seconds that it took.
    pub seconds: f64,
}

impl Evaluation {
    /// Where it stands in a run: what a layer is worth comes after the last step.
    pub fn place(&self) -> u64 {
        self.step + u64::from(self.layer)
    }
}

impl OfStep for Evaluation {
    fn step(&self) -> u64 {
        self.place()
    }
}

/// A number that a task gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The task, as it was asked for.
    pub task: String,
    /// The measure.
    pub measure: String,
    /// Its value.
    pub value: f64,
    /// Of each query, where that is told: what significance is computed of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<f64>,
}

/// Fewer dialogues that are kept aside tell nothing.
pub const FEWEST_ASIDE: usize = 20;

/// What part of its nearest either half of a dialogue has alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Aside {
    /// The mean.
    pub value: f64,
    /// Of each dialogue.
    pub each: Vec<f64>,
}

impl Aside {
    /// Of what it is for each dialogue.
    pub fn of(each: Vec<f64>) -> Self {
        Aside { value: mean_and_deviation(&each).0, each }
    }

    /// The standard error of what is between this and another.
    fn error(&self, other: &Aside) -> f64 {
        let apart: Vec<f64> = self.each.iter().zip(&other.each).map(|(a, b)| a - b).collect();
        let (_, deviation) = mean_and_deviation(&apart);
        deviation / (apart.len().max(1) as f64).sqrt()
    }
}

/// By what the step is chosen whose model is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// Without labels: by the dialogues that were kept aside, or else where neighbours agree most with words.
    #[default]
    LabelFree,
    /// By the labels of the dev tasks, as the papers' code does.
    Dev,
    /// The last step, whatever it is worth.
    Last,
}

impl std::str::FromStr for Selection {
    type Err = turnwise_core::error::Error;

    fn from_str(text: &str) -> turnwise_core::error::Result<Self> {
        match text {
            "label-free" => Ok(Selection::LabelFree),
            "dev" => Ok(Selection::Dev),
            "last" => Ok(Selection::Last),
            _ => Err(turnwise_core::error::Error::unknown_name(
                "selection",
                text,
                ["label-free", "dev", "last"],
            )),
        }
    }
}

/// By how much agreement may be less than the most and tell nothing. Of dialogues that were kept aside a standard error, too,
/// tells nothing.
pub const NEARLY: f64 = 0.005;

impl Selection {
    /// What an evaluation is worth, where it can be told: the greater, the better.
    pub fn worth(self, evaluation: &Evaluation) -> Option<f64> {
        match self {
            Selection::LabelFree => {
                evaluation.aside.as_ref().map(|aside| aside.value).or(evaluation.agreement)
            }
            Selection::Dev => {
                let main: Vec<f64> = main_values(evaluation).map(|m| m.value).collect();
                (!main.is_empty()).then(|| main.iter().sum::<f64>() / main.len() as f64)
            }
            Selection::Last => None,
        }
    }

    /// The best of a run's trained steps. By labels the first of those that are worth the same; without them the last of
    /// those that are nearly worth it: so little is told by chance, and later steps have learned more.
    pub fn best(self, evaluations: &[Evaluation]) -> Option<&Evaluation> {
        let trained = || evaluations.iter().filter(|e| e.step > 0 && !e.layer);
        let mut best: Option<(&Evaluation, f64)> = None;
        for evaluation in trained() {
            if let Some(worth) = self.worth(evaluation)
                && best.is_none_or(|(_, most)| worth > most)
            {
                best = Some((evaluation, worth));
            }
        }
        let (best, most) = best?;
        let nearly = |e: &Evaluation| {
            let by_chance = e.aside.as_ref().zip(best.aside.as_ref()).map_or(0.0, |(a, b)| a.error(b));
            self.worth(e).is_some_and(|worth| worth >= most - NEARLY.max(by_chance))
        };
        match self {
            Selection::LabelFree => trained().rfind(|e| nearly(e)),
            Selection::Dev | Selection::Last => Some(best),
        }
    }

    /// How many evaluations there were since the best.
    pub fn since_best(self, evaluations: &[Evaluation]) -> usize {
        let Some(best) = self.best(evaluations) else { return 0 };
        evaluations.iter().filter(|e| e.step > best.step).count()
    }
}

/// The first number of each task: the one that it is known by.
pub fn main_values(evaluation: &Evaluation) -> impl Iterator<Item = &Measured> {
    let first = |(n, m): (usize, &&Measured)| !evaluation.dev[..n].iter().any(|before| before.task == m.task);
    let mut all: Vec<&Measured> = evaluation.dev.iter().collect();
    let kept: Vec<bool> = all.iter().enumerate().map(first).collect();
    let mut kept = kept.into_iter();
    all.retain(|_| kept.next().unwrap_or(false));
    all.into_iter()
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
            aside: None,
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
    fn dialogues_that_were_kept_aside_choose_before_words_do() {
        let with = |step: u64, agreement: f64, each: [f64; 4]| Evaluation {
            aside: Some(Aside::of(each.to_vec())),
            ..at(step, agreement, 0.0)
        };
        // The third is less by a fourth, with an error of as much; the fourth by a half, with none.
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
