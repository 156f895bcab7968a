//! What a run came to, for people and for programs.

use serde::Serialize;

use super::{folder::RunFolder, running::Reached};
use crate::{
    cli::{
        Context,
        printer::{counted, grouped},
    },
    error::Result,
    eval::significance::{DRAWS, randomisation},
    train::{
        recipe::Recipe,
        run::evaluations::{Evaluation, Measured, NEARLY, Selection, main_values},
    },
};

/// What a dev task was worth at the start, and what it is now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Gain {
    pub(super) task: String,
    pub(super) measure: String,
    pub(super) start: f64,
    pub(super) kept: f64,
    /// How probable so great a difference is by chance, by the paired randomisation test; of what has a value a query.
    pub(super) p: Option<f64>,
}

impl Gain {
    /// As a model's card tells it.
    pub(super) fn of_card(self) -> (String, String, [f64; 2]) {
        (self.task, self.measure, [self.start, self.kept])
    }
}

/// What was measured of the model that came of it, with a layer that was put behind it.
fn last(reached: &Reached) -> Option<&Evaluation> {
    let step = if reached.learned.is_some() { reached.evaluations.last()?.step } else { reached.kept };
    reached.evaluations.iter().find(|e| e.step == step)
}

/// What was gained on the dev tasks.
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
            p: paired.then(|| randomisation(&start.each, &kept.each, DRAWS, seed)),
        })
    };
    main_values(kept).filter_map(of).collect()
}

/// What was measured, in a line.
pub(super) fn measured(evaluation: &Evaluation) -> String {
    let words = evaluation.agreement.map(|a| format!("agreement with words {:.1}%", 100.0 * a));
    let dev = main_values(evaluation).map(|m| format!("{} {} {:.1}", m.task, m.measure, 100.0 * m.value));
    words.into_iter().chain(dev).collect::<Vec<String>>().join(", ")
}

/// How much neighbours agreed with words at the start, and do now.
pub(super) fn agreements(reached: &Reached) -> Option<[f64; 2]> {
    let start = reached.evaluations.iter().find(|e| e.step == 0)?;
    Some([start.agreement?, last(reached)?.agreement?])
}

pub(super) fn end(
    reached: &Reached,
    recipe: &Recipe,
    folder: &RunFolder,
    context: &Context<'_>,
) -> Result<()> {
    let Reached { losses, seconds, examples, tokens, .. } = *reached;
    let (first, last) = losses.unwrap_or((f64::NAN, f64::NAN));
    let model = folder.model();
    let rate = |n: u64| grouped((n as f64 / seconds.max(1e-3)) as u64);
    let gains = gains(reached, recipe.seed);
    let agreements = agreements(reached);
    let result = serde_json::json!({
        "model": model, "steps": reached.steps, "kept": reached.kept,
        "loss": { "first": first, "last": last },
        "agreement": agreements.map(|[start, kept]| serde_json::json!({ "start": start, "kept": kept })),
        "dev": gains, "seconds": seconds, "examples": examples, "tokens": tokens,
    });
    context.printer.result(&result, |out| {
        let early = match reached.steps < recipe.steps {
            true => format!(" of {}, then it gained no more", grouped(recipe.steps)),
            false => String::new(),
        };
        if losses.is_some() || reached.learned.is_none() {
            writeln!(out, "{}{early}, loss {first:.4} → {last:.4}", counted(reached.steps, "step"))?;
        }
        if let Some(learned) = &reached.learned {
            writeln!(out, "{learned}")?;
        }
        if examples > 0 {
            writeln!(out, "{seconds:.0} s, {} examples/s, {} tokens/s", rate(examples), rate(tokens))?;
        }
        if let Some([start, kept]) = agreements {
            writeln!(
                out,
                "agreement of neighbours with words: {:.1}% → {:.1}%",
                100.0 * start,
                100.0 * kept
            )?;
        }
        for Gain { task, measure, start, kept, p } in &gains {
            let p = p.map_or_else(String::new, |p| format!(" (p {p:.4})"));
            writeln!(out, "{task} {measure}: {:.1} → {:.1}{p}", 100.0 * start, 100.0 * kept)?;
        }
        let how = match recipe.select {
            Selection::LabelFree => " (by the agreement with words)",
            Selection::Dev => " (by the labels of the dev tasks)",
            Selection::Last => "",
        };
        match reached.evaluations.is_empty() || losses.is_none() {
            true => writeln!(out, "the model is {}", model.display()),
            false => {
                writeln!(out, "the model is {}, of step {}{how}", model.display(), grouped(reached.kept))
            }
        }
    })?;
    if let Some([start, kept]) = agreements
        && kept < start - NEARLY
    {
        context.printer.warn(format!(
            "neighbours agree less with words than they did: measure it with labels before you rely on it, beside {}",
            recipe.model
        ));
    }
    if gains.is_empty() {
        context.printer.hint(format!(
            "what it gained, labels tell: turnwise bench … -r model -r model:{}, or --dev while it learns",
            model.display()
        ));
    }
    Ok(())
}
