//! Validation of recipes.

use super::{ObjectiveName, Recipe};
use crate::run::evaluations::{MIN_HELD_OUT, Selection};
use turnwise_core::error::{Error, Result};

impl Recipe {
    /// Rejects invalid settings, and settings that have no effect for the objective.
    pub(super) fn check(&self) -> Result<()> {
        use ObjectiveName as O;
        let name = self.objective.name();
        let refuse = |what: &str, hint: &str| {
            Err(Error::Input { message: what.to_owned(), hint: Some(hint.to_owned()) })
        };
        // Objectives that compare the examples of a batch with each other.
        let in_batch =
            matches!(self.objective, O::Simcse | O::Neighbours | O::Responses | O::SiameseS | O::SiameseM);
        // Objectives that predict tokens or classes and have no negatives.
        let classifies = matches!(self.objective, O::Places | O::Words | O::Relevance);
        if self.objective == O::Keep {
            return refuse(
                "keep cannot be the only objective",
                "add it to another objective: --beside keep=1",
            );
        }
        if self.evaluate_every == Some(0) && self.aside.is_some_and(|aside| aside > 0) {
            return refuse(
                "held-out dialogues are never used with --evaluate-every 0",
                "omit --evaluate-every 0 or --held-out",
            );
        }
        if self.objective == O::Surroundings {
            return self.check_surroundings();
        }
        let beside = self.beside.iter().flatten();
        for (other, weight) in beside.clone() {
            if *other == self.objective || matches!(other, O::Joint | O::Surroundings) {
                return refuse(
                    &format!("{} cannot be combined with {name}", other.name()),
                    "remove it from --beside",
                );
            }
            if !(weight.is_finite() && (0.0..=1e6).contains(weight)) {
                return refuse(
                    &format!("the weight of {} in `beside` cannot be {weight}", other.name()),
                    "use a number from 0 to 1000000, such as 0.5",
                );
            }
        }
        let several = beside.count() > 0;
        if self.select == Selection::Dev && self.evaluate_every == Some(0) {
            return refuse(
                "--select dev has no evaluations to choose from with --evaluate-every 0",
                "omit --evaluate-every 0 or --select dev",
            );
        }
        let by_turns = matches!(self.objective, O::Dialoguecse | O::Joint);
        let by_context =
            by_turns || matches!(self.objective, O::Responses | O::SiameseS | O::SiameseM | O::Relevance);
        if self.strength.is_some() && !self.layer {
            return refuse(
                &format!("{name} has no strength: it is a setting of the layer"),
                "append a layer with --layer, or omit --strength",
            );
        }
        none_of_these(
            name,
            &[
                (self.context.is_some() && !by_context, "context"),
                (self.aggregation.is_some() && !by_turns, "aggregation"),
                (self.hard_negatives.is_some() && !by_turns, "hard_negatives"),
                (self.window.is_some() && self.objective != O::Dial2vec, "window"),
                (self.profile.is_some() && self.objective != O::Dial2vec, "profile"),
                (self.negatives.is_some() && (in_batch || classifies), "negatives"),
            ],
            "",
        )?;
        let fits = |min: f64, value: f64, max: f64| value.is_finite() && value >= min && value <= max;
        let whole = |min: f64, value: usize, max: f64| fits(min, value as f64, max);
        all_of_these(&[
            strength(self.strength),
            (fits(1.0, self.steps as f64, 1e12), "steps", self.steps.to_string(), "a number from 1"),
            (whole(1.0, self.batch, 1e6), "batch", self.batch.to_string(), "a number from 1"),
            (
                whole(1.0, self.parts, self.batch as f64),
                "parts",
                self.parts.to_string(),
                "a number from 1 to the batch size",
            ),
            (
                fits(1e-12, self.learning_rate, 1.0),
                "learning_rate",
                self.learning_rate.to_string(),
                "a number above 0, up to 1, such as 2e-5",
            ),
            (
                fits(0.0, self.weight_decay, 1.0),
                "weight_decay",
                self.weight_decay.to_string(),
                "a number from 0 to 1",
            ),
            (
                fits(0.0, self.clip, 1e12),
                "clip",
                self.clip.to_string(),
                "a number from 0 (0 disables clipping)",
            ),
            (fits(0.0, self.dropout, 0.9), "dropout", self.dropout.to_string(), "a number from 0 to 0.9"),
            (whole(4.0, self.max_tokens, 1e6), "max_tokens", self.max_tokens.to_string(), "a number from 4"),
            (
                fits(1e-4, self.temperature, 1e4),
                "temperature",
                self.temperature.to_string(),
                "a number above 0, such as 0.1",
            ),
            from_one("negatives", self.negatives),
            (
                self.hard_negatives.is_none_or(|hard| self.negatives.is_some_and(|all| hard <= all)),
                "hard_negatives",
                self.hard_negatives.unwrap_or(0).to_string(),
                "at most the number of negatives",
            ),
            from_one("context", self.context),
            from_one("dialogues", self.dialogues),
            aside(self.aside),
            (self.checkpoint_every > 0, "checkpoint_every", "0".to_owned(), "a number from 1"),
            (
                self.select != Selection::Dev || !self.dev.is_empty(),
                "select",
                "dev".to_owned(),
                "dev only together with --dev TASK:PATH",
            ),
            (self.warm_up <= self.steps, "warm_up", self.warm_up.to_string(), "at most the number of steps"),
            (
                !in_batch || self.batch > 1,
                "batch",
                self.batch.to_string(),
                "at least 2: the objective compares the examples of a batch",
            ),
            (
                !several || self.parts == 1 || in_batch && self.beside().all(|(other, _)| other == O::Keep),
                "parts",
                self.parts.to_string(),
                "only 1 for this combination of objectives",
            ),
        ])
    }

    /// Rejects settings that do not apply to `surroundings`, which learns a layer without training steps.
    fn check_surroundings(&self) -> Result<()> {
        let usual = Recipe::new(self.objective, String::new(), Vec::new());
        if self.layer {
            return Err(Error::input("surroundings already learns a layer: --layer has no effect")
                .with_hint("omit --layer"));
        }
        none_of_these(
            "surroundings",
            &[
                (self.beside.is_some(), "beside"),
                (self.steps != 0, "steps"),
                (self.batch != 0, "batch"),
                (self.parts != usual.parts, "parts"),
                (self.learning_rate != 0.0, "learning_rate"),
                (self.warm_up != 0, "warm_up"),
                (self.schedule != usual.schedule, "schedule"),
                (self.weight_decay != usual.weight_decay, "weight_decay"),
                (self.clip != usual.clip, "clip"),
                (self.dropout != usual.dropout, "dropout"),
                (self.frozen_layers.is_some(), "frozen_layers"),
                (self.max_tokens != 0, "max_tokens"),
                (self.temperature != 0.0, "temperature"),
                (self.negatives.is_some(), "negatives"),
                (self.hard_negatives.is_some(), "hard_negatives"),
                (self.aggregation.is_some(), "aggregation"),
                (self.window.is_some(), "window"),
                (self.profile.is_some(), "profile"),
                (self.merge_turns.is_some(), "merge_turns"),
                (self.checkpoint_every != usual.checkpoint_every, "checkpoint_every"),
                (self.evaluate_every.is_some_and(|every| every != 0), "evaluate_every"),
                (self.select != usual.select, "select"),
                (self.patience != usual.patience, "patience"),
            ],
            ": surroundings learns one layer without training steps",
        )?;
        all_of_these(&[
            from_one("context", self.context),
            from_one("dialogues", self.dialogues),
            aside(self.aside),
            strength(self.strength),
        ])
    }
}

/// Validation of a setting: true if the value is valid, the name, the value, and a description of valid values.
type Number = (bool, &'static str, String, &'static str);

fn strength(given: Option<f64>) -> Number {
    let given = given.unwrap_or(0.0);
    ((0.0..=1.0).contains(&given), "strength", given.to_string(), "a number from 0 to 1")
}

fn aside(given: Option<usize>) -> Number {
    let given = given.unwrap_or(0);
    let valid = "0, or a number from 20 to 10000";
    (given == 0 || (MIN_HELD_OUT..=10_000).contains(&given), "aside", given.to_string(), valid)
}

fn from_one(name: &'static str, given: Option<usize>) -> Number {
    (given != Some(0), name, "0".to_owned(), "a number from 1")
}

/// Returns the command-line option of a setting.
fn option(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

/// Rejects settings that do not apply to the objective.
fn none_of_these(objective: &str, given: &[(bool, &str)], why: &str) -> Result<()> {
    let foreign: Vec<&str> = given.iter().filter(|(given, _)| *given).map(|(_, name)| *name).collect();
    if foreign.is_empty() {
        return Ok(());
    }
    let options: Vec<String> = foreign.iter().map(|name| option(name)).collect();
    Err(Error::input(format!("{objective} has no {}", foreign.join(", no ")))
        .with_hint(format!("omit {}{why}", options.join(" and "))))
}

/// Returns an error for the first invalid setting.
fn all_of_these(numbers: &[Number]) -> Result<()> {
    match numbers.iter().find(|(fits, ..)| !fits) {
        Some((_, name, value, valid)) => Err(Error::input(format!("{name} cannot be {value}"))
            .with_hint(format!("{} takes {valid}", option(name)))),
        None => Ok(()),
    }
}
