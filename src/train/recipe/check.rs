//! What a recipe cannot be.

use super::{ObjectiveName, Recipe};
use crate::{
    error::{Error, Result},
    train::run::evaluations::Selection,
};

impl Recipe {
    /// Refuses what cannot be, and what would be asked for in vain.
    pub(super) fn check(&self) -> Result<()> {
        use ObjectiveName as O;
        let name = self.objective.name();
        let refuse = |what: &str, hint: &str| {
            Err(Error::Input { message: what.to_owned(), hint: Some(hint.to_owned()) })
        };
        // There the other examples of a step are what one is compared with.
        let in_batch =
            matches!(self.objective, O::Simcse | O::Neighbours | O::Responses | O::SiameseS | O::SiameseM);
        // There tokens or classes are told, whose likeness nobody asks about.
        let told = matches!(self.objective, O::Words | O::Relevance);
        if self.objective == O::Keep {
            return refuse(
                "keep trains for nothing alone",
                "put it beside another objective: --beside keep=1",
            );
        }
        if self.objective == O::Surroundings {
            return self.check_surroundings();
        }
        let beside = self.beside.iter().flatten();
        for (other, weight) in beside.clone() {
            if *other == self.objective || matches!(other, O::Neighbours | O::Joint | O::Surroundings) {
                return refuse(&format!("{} cannot stand beside {name}", other.name()), "leave it out");
            }
            if !(weight.is_finite() && (0.0..=1e6).contains(weight)) {
                return refuse("a weight in `beside` cannot be what it is", "a number from 0, such as 0.5");
            }
        }
        let several = beside.count() > 0;
        let by_turns = matches!(self.objective, O::Dialoguecse | O::Joint);
        let foreign = [
            (
                self.context.is_some()
                    && !matches!(
                        self.objective,
                        O::Dialoguecse | O::Joint | O::Responses | O::SiameseS | O::SiameseM | O::Relevance
                    ),
                "context",
            ),
            (self.aggregation.is_some() && !by_turns, "aggregation"),
            (self.hard_negatives.is_some() && !by_turns, "hard_negatives"),
            (self.strength.is_some() && !self.layer, "strength"),
            (self.window.is_some() && self.objective != O::Dial2vec, "window"),
            (self.profile.is_some() && self.objective != O::Dial2vec, "profile"),
            (self.negatives.is_some() && (in_batch || told), "negatives"),
        ];
        if let Some((_, what)) = foreign.iter().find(|(given, _)| *given) {
            return refuse(&format!("{name} has no {what}"), "leave it out");
        }
        let fits = |least: f64, value: f64, most: f64| value.is_finite() && value >= least && value <= most;
        let numbers = [
            (self.strength.is_none_or(|p| fits(0.0, p, 1.0)), "strength", "a number from 0 to 1"),
            (fits(1.0, self.steps as f64, 1e12), "steps", "a number from 1"),
            (fits(1.0, self.batch as f64, 1e6), "batch", "a number from 1"),
            (
                fits(1.0, self.parts as f64, self.batch as f64),
                "parts",
                "a number from 1 to that of the batch",
            ),
            (fits(1e-12, self.learning_rate, 1.0), "learning_rate", "a number above 0, such as 2e-5"),
            (fits(0.0, self.weight_decay, 1.0), "weight_decay", "a number from 0 to 1"),
            (fits(0.0, self.clip, 1e12), "clip", "a number from 0 (never)"),
            (fits(0.0, self.dropout, 0.9), "dropout", "a number from 0 to 0.9"),
            (fits(4.0, self.max_tokens as f64, 1e6), "max_tokens", "a number from 4"),
            (fits(1e-4, self.temperature, 1e4), "temperature", "a number above 0, such as 0.1"),
            (self.negatives != Some(0), "negatives", "a number from 1"),
            (
                self.hard_negatives.is_none_or(|hard| self.negatives.is_some_and(|all| hard <= all)),
                "hard_negatives",
                "at most as many as there are negatives",
            ),
            (self.context != Some(0), "context", "a number from 1"),
            (self.dialogues != Some(0), "dialogues", "a number from 1"),
            (self.checkpoint_every > 0, "checkpoint_every", "a number from 1"),
            (
                self.select != Selection::Dev || !self.dev.is_empty(),
                "select",
                "with --dev TASK:PATH, whose labels it chooses by",
            ),
            (self.warm_up <= self.steps, "warm_up", "at most as many as there are steps"),
            (!in_batch || self.batch > 1, "batch", "at least 2: they are compared with each other"),
            (
                !several || self.parts == 1 || in_batch && self.beside().all(|(other, _)| other == O::Keep),
                "parts",
                "1, with such objectives beside each other",
            ),
        ];
        match numbers.iter().find(|(fits, ..)| !fits) {
            Some((_, what, hint)) => refuse(&format!("{what} cannot be what it is"), hint),
            None => Ok(()),
        }
    }
    /// The same for what is learned without steps.
    fn check_surroundings(&self) -> Result<()> {
        let usual = Recipe::new(self.objective, String::new(), Vec::new());
        let foreign = [
            (self.layer, "layer but its own"),
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
            (self.evaluate_every.is_some_and(|every| every != 0), "evaluate_every but 0"),
            (self.select != usual.select, "select"),
            (self.patience != usual.patience, "patience"),
        ];
        if let Some((_, what)) = foreign.iter().find(|(given, _)| *given) {
            return Err(Error::input(format!("surroundings has no {what}"))
                .with_hint("leave it out: it is one layer, learned without steps"));
        }
        let numbers = [
            (self.context != Some(0), "context", "a number from 1"),
            (self.dialogues != Some(0), "dialogues", "a number from 1"),
            (self.strength.is_none_or(|p| (0.0..=1.0).contains(&p)), "strength", "a number from 0 to 1"),
        ];
        match numbers.iter().find(|(fits, ..)| !fits) {
            Some((_, what, hint)) => {
                Err(Error::input(format!("{what} cannot be what it is")).with_hint(*hint))
            }
            None => Ok(()),
        }
    }
}
