//! Report at the end of a run.

use std::{io::Write, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    folder,
    running::{Reached, Spent},
};
use crate::cli::{
    Context,
    printer::{counted, grouped},
};
use turnwise_core::error::Result;
use turnwise_eval::{
    halves,
    significance::{DRAWS, randomization_test},
};
use turnwise_train::{
    recipe::ResolvedRecipe,
    run::{
        card::ScoreChange,
        evaluations::{Evaluation, Measured, NEARLY, Selection, main_values},
        learned::Learned,
    },
};

/// Significance level: larger p-values may be chance.
const SIGNIFICANCE: f64 = 0.05;

/// Name of the held-out evaluation among the dev tasks.
const ASIDE: (&str, &str) = ("aside", "halves");

/// Value of a dev task before and after training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Gain {
    pub(super) task: String,
    pub(super) measure: String,
    pub(super) start: f64,
    pub(super) kept: f64,
    /// P-value of the difference, by the paired randomization test; only for measures with per-query values.
    pub(super) p: Option<f64>,
    /// Number of paired values.
    #[serde(default)]
    pub(super) of: usize,
}

impl Gain {
    /// Describes the measure.
    pub(super) fn what(&self) -> String {
        match self.is_held_out() {
            true => format!(
                "neighbors shared by the halves of {} ({:.1} by chance)",
                counted(self.of as u64, "held-out dialogue"),
                100.0 * halves::by_chance(self.of)
            ),
            false => format!("{} {}", self.task, self.measure),
        }
    }

    /// Whether it was measured on held-out dialogues.
    fn is_held_out(&self) -> bool {
        (self.task.as_str(), self.measure.as_str()) == ASIDE
    }

    /// Whether the difference is significant.
    fn is_significant(&self) -> bool {
        self.p.is_some_and(|p| p < SIGNIFICANCE)
    }

    /// Whether it is a significant loss.
    fn is_loss(&self) -> bool {
        self.kept < self.start && self.is_significant()
    }

    /// Interprets the result on held-out dialogues.
    fn verdict(&self) -> &'static str {
        match (self.is_significant(), self.kept > self.start) {
            (true, true) => "significant: the halves agree better on which dialogues are similar",
            (true, false) => "significant: the halves agree less on which dialogues are similar",
            (false, _) => "not significant: these dialogues show neither a gain nor a loss",
        }
    }
}

/// Evaluation of the final model. If a layer was appended after training, the evaluation with that layer.
fn last(reached: &Reached) -> Option<&Evaluation> {
    match reached.learned {
        Some(_) => reached.evaluations.last(),
        None => reached.evaluations.iter().find(|e| e.step == reached.kept),
    }
}

/// Changes on held-out dialogues and on the dev tasks.
pub(super) fn gains(reached: &Reached, seed: u64) -> Vec<Gain> {
    let start = reached.evaluations.iter().find(|e| e.step == 0);
    let (Some(start), Some(kept)) = (start, last(reached)) else { return Vec::new() };
    let of = |kept: &Measured| {
        let start = start.dev.iter().find(|m| m.task == kept.task && m.measure == kept.measure)?;
        let paired = !kept.each.is_empty() && kept.each.len() == start.each.len();
        Some(Gain {
            task: kept.task.clone(),
            measure: kept.measure.clone(),
            start: start.value,
            kept: kept.value,
            p: paired.then(|| randomization_test(&start.each, &kept.each, DRAWS, seed)),
            of: if paired { kept.each.len() } else { 0 },
        })
    };
    let aside = start.aside.as_ref().zip(kept.aside.as_ref()).map(|(start, kept)| Gain {
        task: ASIDE.0.to_owned(),
        measure: ASIDE.1.to_owned(),
        start: start.value,
        kept: kept.value,
        p: Some(randomization_test(&start.each, &kept.each, DRAWS, seed)),
        of: kept.each.len(),
    });
    aside.into_iter().chain(main_values(kept).filter_map(of)).collect()
}

/// The same for the model card, with the agreement with words.
pub(super) fn of_card(reached: &Reached, seed: u64) -> Vec<ScoreChange> {
    let words = agreements(reached).map(|[start, kept]| ScoreChange {
        what: "agreement of neighbors with words".to_owned(),
        start,
        kept,
        p: None,
    });
    let gains = gains(reached, seed).into_iter();
    let gains = gains.map(|g| ScoreChange { what: g.what(), start: g.start, kept: g.kept, p: g.p });
    words.into_iter().chain(gains).collect()
}

/// Formats an evaluation as one line.
pub(super) fn measured(evaluation: &Evaluation) -> String {
    let aside =
        evaluation.aside.as_ref().map(|a| format!("neighbors shared by halves {:.1}%", 100.0 * a.value));
    let words = evaluation.agreement.map(|a| format!("agreement with words {:.1}%", 100.0 * a));
    let dev = main_values(evaluation).map(|m| format!("{} {} {:.2}", m.task, m.measure, 100.0 * m.value));
    aside.into_iter().chain(words).chain(dev).collect::<Vec<String>>().join(", ")
}

/// Share of the nearest neighbors by words that are also nearest neighbors by vectors, before and after training. `None`
/// if either was not measured.
pub(super) fn agreements(reached: &Reached) -> Option<[f64; 2]> {
    let start = reached.evaluations.iter().find(|e| e.step == 0)?;
    Some([start.agreement?, last(reached)?.agreement?])
}

/// Describes the learned layer.
fn words(learned: &Learned) -> String {
    format!(
        "learned a layer from the contexts of {}: {} of {} directions correlate more than by chance, the first with a correlation \
         of {:.2} (chance {:.2})",
        counted(learned.utterances, "utterance"),
        learned.telling(),
        learned.told.len(),
        learned.told.first().unwrap_or(&0.0),
        learned.by_chance
    )
}

pub(super) fn end(
    reached: &Reached,
    recipe: &ResolvedRecipe,
    output: &Path,
    context: &Context<'_>,
) -> Result<()> {
    let Reached { losses, spent: Spent { seconds, examples, tokens }, .. } = *reached;
    let (first, last) = losses.unwrap_or((f64::NAN, f64::NAN));
    let model = folder::model_in(output);
    let gains = gains(reached, recipe.seed);
    let agreements = agreements(reached);
    let planned = recipe.steps().map(|settings| settings.steps);
    let result = serde_json::json!({
        "model": model, "steps": reached.steps, "kept": reached.kept,
        "loss": { "first": first, "last": last },
        "agreement": agreements.map(|[start, kept]| serde_json::json!({ "start": start, "kept": kept })),
        "dev": gains, "seconds": seconds, "examples": examples, "tokens": tokens,
        "layer": reached.learned,
    });
    let took = |out: &mut dyn Write, seconds: f64, examples: u64, tokens: u64| {
        let rate = |n: u64| grouped((n as f64 / seconds.max(1e-3)) as u64);
        writeln!(out, "{seconds:.0} s, {} examples/s, {} tokens/s", rate(examples), rate(tokens))
    };
    context.printer.result(&result, |out| {
        if let Some(planned) = planned {
            let early = match reached.steps < planned {
                true => format!(" of {} (stopped early: no more gain)", grouped(planned)),
                false => String::new(),
            };
            writeln!(out, "{}{early}, loss {first:.4} → {last:.4}", counted(reached.steps, "step"))?;
        }
        if examples > 0 {
            took(out, seconds, examples, tokens)?;
        }
        if let Some(learned) = &reached.learned {
            writeln!(out, "{}", words(learned))?;
            took(out, learned.seconds, learned.utterances, learned.tokens)?;
        }
        if let Some([start, kept]) = agreements {
            let tells = match reached.learned.is_some() {
                true => " (not a goal of the layer)",
                false => "",
            };
            let (start, kept) = (100.0 * start, 100.0 * kept);
            writeln!(out, "agreement of neighbors with words: {start:.1}% → {kept:.1}%{tells}")?;
        }
        for gain in &gains {
            let p = gain.p.map_or_else(String::new, |p| format!(" (p {p:.4})"));
            writeln!(out, "{}: {:.2} → {:.2}{p}", gain.what(), 100.0 * gain.start, 100.0 * gain.kept)?;
            if gain.is_held_out() {
                writeln!(out, "  {}", gain.verdict())?;
            }
        }
        let how = match recipe.select {
            Selection::LabelFree if gains.iter().any(Gain::is_held_out) => {
                " (selected by the held-out dialogues)"
            }
            Selection::LabelFree => " (selected by the agreement with words)",
            Selection::Dev => " (selected by the dev tasks)",
            Selection::Last => "",
        };
        match reached.evaluations.is_empty() || planned.is_none() {
            true => writeln!(out, "saved the model in {}", model.display()),
            false => {
                writeln!(
                    out,
                    "saved the model of step {1} in {0}{how}",
                    model.display(),
                    grouped(reached.kept)
                )
            }
        }
    })?;
    warn_of_losses(&gains, reached.learned.is_some(), context);
    // The agreement with words is the weaker measure; it is only used if the held-out dialogues show no gain.
    let is_better =
        gains.iter().any(|gain| gain.is_held_out() && gain.is_significant() && gain.kept > gain.start);
    if let Some([start, kept]) = agreements
        && kept < start - NEARLY
        && reached.learned.is_none()
        && !is_better
    {
        context.printer.warn(format!(
            "neighbors agree less with words than before ({:.1}% → {:.1}%): compare it with {} on labeled data before you use it",
            100.0 * start,
            100.0 * kept,
            recipe.model
        ));
    }
    if recipe.dev.is_empty() {
        context.printer.suggest(format!(
            "measure the gain on labeled data: turnwise bench {} -r model:{} -r model:{}, or use --dev during training",
            recipe.objective.definition().benchmark,
            recipe.model,
            model.display()
        ));
    }
    Ok(())
}

/// Warns about significant losses and suggests options.
pub(super) fn warn_of_losses(gains: &[Gain], layered: bool, context: &Context<'_>) {
    let lost: Vec<String> = gains
        .iter()
        .filter(|gain| gain.is_loss())
        .map(|g| format!("{} {:.2} → {:.2}", g.what(), 100.0 * g.start, 100.0 * g.kept))
        .collect();
    if lost.is_empty() {
        return;
    }
    context.printer.warn(format!("significant losses: {}", lost.join(", ")));
    context.printer.hint(match layered {
        true => "a layer fits dialogues similar to its training data; --strength 0.2 changes others less",
        false => {
            "a larger weight of `keep` (--auxiliary keep=N) or a smaller --learning-rate preserves more of the encoder"
        }
    });
}
