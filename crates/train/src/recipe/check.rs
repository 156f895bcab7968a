//! Validation of recipes.

use std::ops::RangeInclusive;

use super::{HeadKind, ObjectiveName, Recipe, SelectorRecipe, StepSettings};
use crate::{
    objectives::{
        Definition, Output,
        definition::{Role, StepTraining},
    },
    run::evaluations::{MIN_HELD_OUT, Selection},
};
use turnwise_core::error::{Error, Result};

/// Names of the settings that only some objectives use, separated by spaces.
const OBJECTIVE_SETTINGS: &str = "context aggregation hard_negatives window profile negatives selector";

/// Names of the settings that have an effect only if the objective has training steps, separated by spaces.
const STEP_SETTINGS: &str = "auxiliary selector steps batch parts learning_rate warm_up schedule weight_decay clip dropout \
    frozen_layers max_tokens temperature negatives hard_negatives aggregation window profile merge_turns \
    checkpoint_every evaluate_every select patience";

/// Returns the names of the settings that are not stored for an objective without training steps, because they have no
/// effect.
pub(crate) fn not_of_layers() -> impl Iterator<Item = &'static str> {
    // Keep `evaluate_every`: the value 0 disables the evaluation of the layer.
    STEP_SETTINGS.split_whitespace().filter(|name| *name != "evaluate_every")
}

/// Returns an error if the objective can only be auxiliary, or if dialogues are held out but never used.
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

/// Checks the auxiliary objectives and their weights, and that `--select dev` has evaluations to choose from.
pub(super) fn auxiliary(recipe: &Recipe) -> Result<()> {
    let name = recipe.objective.name();
    for (other, weight) in recipe.auxiliary.iter().flatten() {
        if *other == recipe.objective || other.definition().role == Role::Main {
            return Err(Error::input(format!("{} cannot be combined with {name}", other.name()))
                .with_hint("remove it from --auxiliary"));
        }
        if !(0.0..=1e6).contains(weight) {
            let message = format!("the weight of {} in --auxiliary cannot be {weight}", other.name());
            return Err(Error::input(message).with_hint("use a number from 0 to 1000000, such as 0.5"));
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
    if recipe.strength.is_none() || recipe.layer {
        return Ok(());
    }
    let name = recipe.objective.name();
    Err(Error::input(format!("{name} has no layer that the context weight could apply to"))
        .with_hint("append a layer with --context-layer, or omit --context-weight"))
}

/// Rejects settings of sentence vectors if the context turns are tokens, and a head if no selector is trained.
pub(super) fn selector(recipe: &Recipe) -> Result<()> {
    let Definition { name, output, .. } = recipe.objective.definition();
    if *output != Output::Selector && recipe.selector.is_some_and(|selector| selector.head.is_some()) {
        return Err(Error::input(format!("`{name}` trains no selector, so it has no head"))
            .with_hint("omit --head, or train a selector (`turnwise train selector`)"));
    }
    if *output != Output::Selector && recipe.selector.is_some_and(|selector| selector.frozen == Some(true)) {
        return Err(Error::input(format!("`{name}` trains the sentence vectors, so they cannot be frozen"))
            .with_hint("omit --frozen-sentences, or train a selector (`turnwise train selector`)"));
    }
    match recipe.selector.as_ref().and_then(SelectorRecipe::unused) {
        None => Ok(()),
        Some(name) => Err(Error::input(format!("{name} has no effect: the history consists of tokens"))
            .with_hint(format!("add --history sentences, or omit {}", option(name)))),
    }
}

/// Returns the names of the settings that the recipe sets and that only some objectives use.
pub(super) fn of_objectives(recipe: &Recipe) -> Result<Vec<&'static str>> {
    changed(recipe, OBJECTIVE_SETTINGS)
}

/// Rejects settings that were given but that the objective does not use.
pub(super) fn none_foreign(objective: &str, mut given: Vec<&str>, used: &[&str]) -> Result<()> {
    given.retain(|name| !used.contains(name));
    none_of_these(objective, &given, "")
}

/// Checks the values of the settings for training with gradient steps.
pub(super) fn steps(recipe: &Recipe, training: &StepTraining, settings: &StepSettings) -> Result<()> {
    let plan = &settings.plan;
    let (steps, batch, parts) = (plan.schedule.steps as f64, plan.batch as f64, plan.parts as f64);
    let max_tokens = recipe.max_tokens.unwrap_or(training.max_tokens);
    let temperature = recipe.temperature.unwrap_or(training.temperature);
    let negatives = |count: Option<usize>| count.unwrap_or(0) as f64;
    // With auxiliary objectives, micro-batches need a loss that depends only on pooled embeddings.
    let in_micro_batches = settings.auxiliary.is_empty() || {
        let is_independent = |objective: ObjectiveName| {
            objective
                .definition()
                .steps
                .as_ref()
                .is_some_and(|training| training.pooled_loss && !training.in_batch)
        };
        let mut auxiliary = settings.auxiliary.iter();
        training.in_batch && auxiliary.all(|auxiliary| is_independent(auxiliary.objective))
    };
    // Only pooled losses that compare the examples of a batch can be computed in micro-batches.
    let selector = recipe.selector.unwrap_or_default().settings(max_tokens);
    let compares =
        recipe.objective.definition().output == Output::Selector && selector.head == HeadKind::Matching;
    let max_parts = if in_micro_batches && !compares { batch } else { 1.0 };
    let min_batch = if training.in_batch { 2.0 } else { 1.0 };
    let has_dev = recipe.select != Some(Selection::Dev) || !recipe.dev.is_empty();
    all_of_these(&[
        strength_in_range(recipe),
        within("steps", steps, 1.0..=1e12, "a number from 1"),
        within("batch", batch, 1.0..=1e6, "a number from 1"),
        within("parts", parts, 1.0..=batch, "a number from 1 to the batch size"),
        within("learning_rate", plan.rate, 1e-12..=1.0, "a number above 0, up to 1, such as 2e-5"),
        within("weight_decay", recipe.weight_decay, 0.0..=1.0, "a number from 0 to 1"),
        within("clip", recipe.clip, 0.0..=1e12, "a number from 0 (0 disables clipping)"),
        within("dropout", recipe.dropout, 0.0..=0.9, "a number from 0 to 0.9"),
        within("max_tokens", max_tokens as f64, 4.0..=1e6, "a number from 4"),
        within("temperature", temperature, 1e-4..=1e4, "a number above 0, such as 0.1"),
        from_one("negatives", recipe.negatives),
        within(
            "hard_negatives",
            negatives(recipe.hard_negatives),
            0.0..=negatives(recipe.negatives),
            "at most the number of negatives",
        ),
        from_one("context", recipe.context),
        from_one("dialogues", recipe.dialogues),
        held_out(recipe),
        within("checkpoint_every", recipe.checkpoint_every as f64, 1.0..=f64::MAX, "a number from 1"),
        (has_dev, "select", "dev".to_owned(), "dev only together with --dev TASK:PATH"),
        within("warm_up", plan.schedule.warm_up as f64, 0.0..=steps, "at most the number of steps"),
        within("batch", batch, min_batch..=1e6, "at least 2: the objective compares the examples of a batch"),
        within("parts", parts, 1.0..=max_parts, "only 1 for this objective or combination of objectives"),
    ])
}

/// Rejects settings that have no effect without training steps, and checks the values of all other settings.
pub(super) fn closed_form(recipe: &Recipe) -> Result<()> {
    let name = recipe.objective.name();
    if recipe.layer {
        return Err(Error::input(format!("{name} already learns a layer: --context-layer has no effect"))
            .with_hint("omit --context-layer"));
    }
    let mut foreign = changed(recipe, STEP_SETTINGS)?;
    foreign.retain(|setting| match *setting {
        "warm_up" => recipe.warm_up != Some(0),
        "evaluate_every" => recipe.evaluate_every != Some(0),
        "select" => recipe.select != Some(recipe.objective.definition().select),
        _ => true,
    });
    none_of_these(name, &foreign, &format!(": {name} learns one layer without training steps"))?;
    all_of_these(&[
        from_one("context", recipe.context),
        from_one("dialogues", recipe.dialogues),
        held_out(recipe),
        strength_in_range(recipe),
    ])
}

/// Returns the names of the settings that differ from the defaults of a new recipe. Checks only the settings in
/// `names`, a list separated by spaces.
fn changed(recipe: &Recipe, names: &'static str) -> Result<Vec<&'static str>> {
    let values = |recipe: &Recipe| {
        serde_json::to_value(recipe).map_err(|e| Error::Internal(format!("the recipe cannot be stored: {e}")))
    };
    let given = values(recipe)?;
    let defaults = values(&Recipe::new(recipe.objective, String::new(), Vec::new()))?;
    let is_changed = |name: &&str| {
        let stored = Recipe::stored_name(name);
        given.get(stored) != defaults.get(stored)
    };
    Ok(names.split_whitespace().filter(is_changed).collect())
}

/// A checked setting: whether its value is valid, its name, its value, and a description of valid values.
type Check = (bool, &'static str, String, &'static str);

fn within(name: &'static str, value: f64, range: RangeInclusive<f64>, valid: &'static str) -> Check {
    (range.contains(&value), name, value.to_string(), valid)
}

fn from_one(name: &'static str, value: Option<usize>) -> Check {
    within(name, value.map_or(1.0, |value| value as f64), 1.0..=f64::MAX, "a number from 1")
}

fn strength_in_range(recipe: &Recipe) -> Check {
    within("strength", recipe.strength.unwrap_or(0.0), 0.0..=1.0, "a number from 0 to 1")
}

fn held_out(recipe: &Recipe) -> Check {
    let count = recipe.held_out.unwrap_or(0);
    let is_valid = count == 0 || (MIN_HELD_OUT..=10_000).contains(&count);
    (is_valid, "held_out", count.to_string(), "0, or a number from 20 to 10000")
}

/// Returns the command-line option of a setting. Three options have other names than the settings in recipe files.
fn option(name: &str) -> String {
    let name = match name {
        "layer" => "context-layer",
        "parts" => "micro-batches",
        "strength" => "context-weight",
        "selector" => "history (and the other options of selectors)",
        "pooling" => "sentence-pooling",
        "own_segment" => "sentence-segment",
        "frozen" => "frozen-sentences",
        _ => name,
    };
    format!("--{}", name.replace('_', "-"))
}

/// Returns an error if `foreign`, the list of settings that do not apply to the objective, is not empty.
fn none_of_these(objective: &str, foreign: &[&str], why: &str) -> Result<()> {
    if foreign.is_empty() {
        return Ok(());
    }
    let options: Vec<String> = foreign.iter().map(|name| option(name)).collect();
    let settings = if foreign.len() == 1 { "setting" } else { "settings" };
    Err(Error::input(format!("`{objective}` does not use the {settings} {}", foreign.join(", ")))
        .with_hint(format!("omit {}{why}", options.join(" and "))))
}

/// Returns an error for the first invalid setting.
fn all_of_these(checks: &[Check]) -> Result<()> {
    match checks.iter().find(|(is_valid, ..)| !is_valid) {
        Some((_, name, value, valid)) => Err(Error::input(format!("{name} cannot be {value}"))
            .with_hint(format!("{} takes {valid}", option(name)))),
        None => Ok(()),
    }
}
