//! Validation of recipes.

use super::{ObjectiveName, Recipe, StepSettings};
use crate::{
    objectives::definition::{Role, StepTraining},
    run::evaluations::{MIN_HELD_OUT, Selection},
};
use turnwise_core::error::{Error, Result};

/// Checks that the objective can be the main one, and that held-out dialogues are used.
pub(super) fn role(recipe: &Recipe) -> Result<()> {
    let definition = recipe.objective.definition();
    if definition.role == Role::Auxiliary {
        let name = definition.name;
        return Err(Error::input(format!("{name} cannot be the only objective"))
            .with_hint(format!("add it to another objective: --auxiliary {name}=1")));
    }
    if recipe.evaluate_every == Some(0) && recipe.held_out.is_some_and(|count| count > 0) {
        return Err(Error::input("held-out dialogues are never used with --evaluate-every 0")
            .with_hint("omit --evaluate-every 0 or --held-out"));
    }
    Ok(())
}

/// Checks the auxiliary objectives and their weights.
pub(super) fn auxiliary(recipe: &Recipe) -> Result<()> {
    let name = recipe.objective.name();
    for (other, weight) in recipe.auxiliary.iter().flatten() {
        if *other == recipe.objective || other.definition().role == Role::Main {
            return Err(Error::input(format!("{} cannot be combined with {name}", other.name()))
                .with_hint("remove it from --auxiliary"));
        }
        if !(weight.is_finite() && (0.0..=1e6).contains(weight)) {
            return Err(Error::input(format!(
                "the weight of {} in --auxiliary cannot be {weight}",
                other.name()
            ))
            .with_hint("use a number from 0 to 1000000, such as 0.5"));
        }
    }
    if recipe.select == Some(Selection::Dev) && recipe.evaluate_every == Some(0) {
        return Err(Error::input("--select dev has no evaluations to choose from with --evaluate-every 0")
            .with_hint("omit --evaluate-every 0 or --select dev"));
    }
    Ok(())
}

/// Rejects the setting `strength` if no layer is learned.
pub(super) fn strength(recipe: &Recipe) -> Result<()> {
    match recipe.strength.is_some() && !recipe.layer {
        true => Err(Error::input(format!(
            "{} has no strength: it is a setting of the layer",
            recipe.objective.name()
        ))
        .with_hint("append a layer with --context-layer, or omit --context-weight")),
        false => Ok(()),
    }
}

/// Rejects settings that were given but that the objective does not use.
pub(super) fn none_foreign(
    objective: &str,
    given: &[(&'static str, bool)],
    read: &[&'static str],
) -> Result<()> {
    let foreign: Vec<(bool, &str)> =
        given.iter().map(|(name, given)| (*given && !read.contains(name), *name)).collect();
    none_of_these(objective, &foreign, "")
}

/// Checks the values of the settings for training with gradient steps.
pub(super) fn steps(recipe: &Recipe, training: &StepTraining, settings: &StepSettings) -> Result<()> {
    let StepSettings { steps, batch, parts, learning_rate, warm_up, .. } = *settings;
    let max_tokens = recipe.max_tokens.unwrap_or(training.max_tokens);
    let temperature = recipe.temperature.unwrap_or(training.temperature);
    // With auxiliary objectives, micro-batches need a loss that depends only on pooled embeddings.
    let in_micro_batches = settings.auxiliary.is_empty() || {
        let is_independent = |objective: ObjectiveName| {
            objective.definition().steps().is_some_and(|training| training.pooled_loss && !training.in_batch)
        };
        let mut auxiliary = settings.auxiliary.iter();
        training.in_batch && auxiliary.all(|auxiliary| is_independent(auxiliary.objective))
    };
    let fits = |min: f64, value: f64, max: f64| value.is_finite() && value >= min && value <= max;
    let whole = |min: f64, value: usize, max: f64| fits(min, value as f64, max);
    all_of_these(&[
        valid_strength(recipe.strength),
        (fits(1.0, steps as f64, 1e12), "steps", steps.to_string(), "a number from 1"),
        (whole(1.0, batch, 1e6), "batch", batch.to_string(), "a number from 1"),
        (whole(1.0, parts, batch as f64), "parts", parts.to_string(), "a number from 1 to the batch size"),
        (
            fits(1e-12, learning_rate, 1.0),
            "learning_rate",
            learning_rate.to_string(),
            "a number above 0, up to 1, such as 2e-5",
        ),
        (
            fits(0.0, recipe.weight_decay, 1.0),
            "weight_decay",
            recipe.weight_decay.to_string(),
            "a number from 0 to 1",
        ),
        (
            fits(0.0, recipe.clip, 1e12),
            "clip",
            recipe.clip.to_string(),
            "a number from 0 (0 disables clipping)",
        ),
        (fits(0.0, recipe.dropout, 0.9), "dropout", recipe.dropout.to_string(), "a number from 0 to 0.9"),
        (whole(4.0, max_tokens, 1e6), "max_tokens", max_tokens.to_string(), "a number from 4"),
        (
            fits(1e-4, temperature, 1e4),
            "temperature",
            temperature.to_string(),
            "a number above 0, such as 0.1",
        ),
        from_one("negatives", recipe.negatives),
        (
            recipe.hard_negatives.is_none_or(|hard| recipe.negatives.is_some_and(|all| hard <= all)),
            "hard_negatives",
            recipe.hard_negatives.unwrap_or(0).to_string(),
            "at most the number of negatives",
        ),
        from_one("context", recipe.context),
        from_one("dialogues", recipe.dialogues),
        held_out(recipe.held_out),
        (recipe.checkpoint_every > 0, "checkpoint_every", "0".to_owned(), "a number from 1"),
        (
            recipe.select != Some(Selection::Dev) || !recipe.dev.is_empty(),
            "select",
            "dev".to_owned(),
            "dev only together with --dev TASK:PATH",
        ),
        (warm_up <= steps, "warm_up", warm_up.to_string(), "at most the number of steps"),
        (
            !training.in_batch || batch > 1,
            "batch",
            batch.to_string(),
            "at least 2: the objective compares the examples of a batch",
        ),
        (
            parts == 1 || in_micro_batches,
            "parts",
            parts.to_string(),
            "only 1 for this combination of objectives",
        ),
    ])
}

/// Rejects settings that have no effect on a layer in closed form.
pub(super) fn closed_form(recipe: &Recipe) -> Result<()> {
    let name = recipe.objective.name();
    let usual = Recipe::new(recipe.objective, String::new(), Vec::new());
    if recipe.layer {
        return Err(Error::input(format!("{name} already learns a layer: --context-layer has no effect"))
            .with_hint("omit --context-layer"));
    }
    none_of_these(
        name,
        &[
            (recipe.auxiliary.is_some(), "auxiliary"),
            (recipe.steps.is_some(), "steps"),
            (recipe.batch.is_some(), "batch"),
            (recipe.parts != usual.parts, "parts"),
            (recipe.learning_rate.is_some(), "learning_rate"),
            (recipe.warm_up.is_some_and(|steps| steps != 0), "warm_up"),
            (recipe.schedule != usual.schedule, "schedule"),
            (recipe.weight_decay != usual.weight_decay, "weight_decay"),
            (recipe.clip != usual.clip, "clip"),
            (recipe.dropout != usual.dropout, "dropout"),
            (recipe.frozen_layers.is_some(), "frozen_layers"),
            (recipe.max_tokens.is_some(), "max_tokens"),
            (recipe.temperature.is_some(), "temperature"),
            (recipe.negatives.is_some(), "negatives"),
            (recipe.hard_negatives.is_some(), "hard_negatives"),
            (recipe.aggregation.is_some(), "aggregation"),
            (recipe.window.is_some(), "window"),
            (recipe.profile.is_some(), "profile"),
            (recipe.merge_turns.is_some(), "merge_turns"),
            (recipe.checkpoint_every != usual.checkpoint_every, "checkpoint_every"),
            (recipe.evaluate_every.is_some_and(|every| every != 0), "evaluate_every"),
            (recipe.select.is_some_and(|select| select != recipe.objective.definition().select), "select"),
            (recipe.patience != usual.patience, "patience"),
        ],
        &format!(": {name} learns one layer without training steps"),
    )?;
    all_of_these(&[
        from_one("context", recipe.context),
        from_one("dialogues", recipe.dialogues),
        held_out(recipe.held_out),
        valid_strength(recipe.strength),
    ])
}

/// A checked setting: whether its value is valid, its name, its value, and a description of valid values.
type Number = (bool, &'static str, String, &'static str);

fn valid_strength(given: Option<f64>) -> Number {
    let given = given.unwrap_or(0.0);
    ((0.0..=1.0).contains(&given), "strength", given.to_string(), "a number from 0 to 1")
}

fn held_out(given: Option<usize>) -> Number {
    let given = given.unwrap_or(0);
    let valid = "0, or a number from 20 to 10000";
    (given == 0 || (MIN_HELD_OUT..=10_000).contains(&given), "held_out", given.to_string(), valid)
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
