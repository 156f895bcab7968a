//! What a run came to, for people and for programs.

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
    significance::{DRAWS, randomisation},
};
use turnwise_train::{
    recipe::{ObjectiveName, Recipe},
    run::{
        card::Gained,
        evaluations::{Evaluation, Measured, NEARLY, Selection, main_values},
        learned::Learned,
    },
};

/// What is more probable than this may be chance.
const BY_CHANCE: f64 = 0.05;

/// What dialogues that were kept aside are called among the dev tasks.
const ASIDE: (&str, &str) = ("aside", "halves");

/// What a dev task was worth at the start, and what it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Gain {
    pub(super) task: String,
    pub(super) measure: String,
    pub(super) start: f64,
    pub(super) kept: f64,
    /// How probable so great a difference is by chance, by the paired randomisation test; of what has a value a query.
    pub(super) p: Option<f64>,
    /// How many have such a value.
    #[serde(default)]
    pub(super) of: usize,
}

impl Gain {
    /// What it is of, in words.
    pub(super) fn what(&self) -> String {
        match self.is_aside() {
            true => format!(
                "neighbours shared by the halves of {} kept aside ({:.1} by chance)",
                counted(self.of as u64, "dialogue"),
                100.0 * halves::by_chance(self.of)
            ),
            false => format!("{} {}", self.task, self.measure),
        }
    }

    /// Whether it is told by dialogues that were kept aside.
    fn is_aside(&self) -> bool {
        (self.task.as_str(), self.measure.as_str()) == ASIDE
    }

    /// Whether chance does not explain it.
    fn is_sure(&self) -> bool {
        self.p.is_some_and(|p| p < BY_CHANCE)
    }

    /// Whether it is a loss that chance does not explain.
    fn is_loss(&self) -> bool {
        self.kept < self.start && self.is_sure()
    }

    /// What dialogues that were kept aside say of it, in words.
    fn verdict(&self) -> &'static str {
        match (self.is_sure(), self.kept > self.start) {
            (true, true) => "which is more than chance: the halves agree better on which dialogues are alike",
            (true, false) => "which is more than chance: the halves agree worse on which dialogues are alike",
            (false, _) => {
                "which is no more than chance: by these dialogues, nothing that could be told is gained or lost"
            }
        }
    }
}

/// What was measured of the model that came of it, with a layer that was put behind it.
fn last(reached: &Reached) -> Option<&Evaluation> {
    match reached.learned {
        Some(_) => reached.evaluations.last(),
        None => reached.evaluations.iter().find(|e| e.step == reached.kept),
    }
}

/// What was gained on dialogues that were kept aside, and on the dev tasks.
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
            of: if paired { kept.each.len() } else { 0 },
        })
    };
    let aside = start.aside.as_ref().zip(kept.aside.as_ref()).map(|(start, kept)| Gain {
        task: ASIDE.0.to_owned(),
        measure: ASIDE.1.to_owned(),
        start: start.value,
        kept: kept.value,
        p: Some(randomisation(&start.each, &kept.each, DRAWS, seed)),
        of: kept.each.len(),
    });
    aside.into_iter().chain(main_values(kept).filter_map(of)).collect()
}

/// The same as a model's card has it, with the agreement with words.
pub(super) fn of_card(reached: &Reached, seed: u64) -> Vec<Gained> {
    let words = agreements(reached).map(|[start, kept]| Gained {
        what: "agreement of neighbours with words".to_owned(),
        start,
        kept,
        p: None,
    });
    let gains = gains(reached, seed).into_iter();
    let gains = gains.map(|g| Gained { what: g.what(), start: g.start, kept: g.kept, p: g.p });
    words.into_iter().chain(gains).collect()
}

/// What was measured, in a line.
pub(super) fn measured(evaluation: &Evaluation) -> String {
    let aside =
        evaluation.aside.as_ref().map(|a| format!("neighbours shared by halves {:.1}%", 100.0 * a.value));
    let words = evaluation.agreement.map(|a| format!("agreement with words {:.1}%", 100.0 * a));
    let dev = main_values(evaluation).map(|m| format!("{} {} {:.2}", m.task, m.measure, 100.0 * m.value));
    aside.into_iter().chain(words).chain(dev).collect::<Vec<String>>().join(", ")
}

/// How much neighbours agreed with words at the start, and do now.
pub(super) fn agreements(reached: &Reached) -> Option<[f64; 2]> {
    let start = reached.evaluations.iter().find(|e| e.step == 0)?;
    Some([start.agreement?, last(reached)?.agreement?])
}

/// What was learned without steps, in words.
fn words(learned: &Learned) -> String {
    format!(
        "a layer by what is said around {}: {} of {} directions tell more of it than chance does, the first with a correlation \
         of {:.2} (chance {:.2})",
        counted(learned.utterances, "utterance"),
        learned.telling(),
        learned.told.len(),
        learned.told.first().unwrap_or(&0.0),
        learned.by_chance
    )
}

pub(super) fn end(reached: &Reached, recipe: &Recipe, output: &Path, context: &Context<'_>) -> Result<()> {
    let Reached { losses, spent: Spent { seconds, examples, tokens }, .. } = *reached;
    let (first, last) = losses.unwrap_or((f64::NAN, f64::NAN));
    let model = folder::model_in(output);
    let gains = gains(reached, recipe.seed);
    let agreements = agreements(reached);
    let by_steps = recipe.objective != ObjectiveName::Surroundings;
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
        let early = match reached.steps < recipe.steps {
            true => format!(" of {}, then it gained no more", grouped(recipe.steps)),
            false => String::new(),
        };
        if by_steps {
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
                true => " (which the layer is not for)",
                false => "",
            };
            let (start, kept) = (100.0 * start, 100.0 * kept);
            writeln!(out, "agreement of neighbours with words: {start:.1}% → {kept:.1}%{tells}")?;
        }
        for gain in &gains {
            let p = gain.p.map_or_else(String::new, |p| format!(" (p {p:.4})"));
            writeln!(out, "{}: {:.2} → {:.2}{p}", gain.what(), 100.0 * gain.start, 100.0 * gain.kept)?;
            if gain.is_aside() {
                writeln!(out, "  {}", gain.verdict())?;
            }
        }
        let how = match recipe.select {
            Selection::LabelFree if gains.iter().any(Gain::is_aside) => " (by the dialogues kept aside)",
            Selection::LabelFree => " (by the agreement with words)",
            Selection::Dev => " (by the labels of the dev tasks)",
            Selection::Last => "",
        };
        match reached.evaluations.is_empty() || !by_steps {
            true => writeln!(out, "the model is {}", model.display()),
            false => {
                writeln!(out, "the model is {}, of step {}{how}", model.display(), grouped(reached.kept))
            }
        }
    })?;
    warn_of_losses(&gains, reached.learned.is_some(), context);
    // Words are the weaker witness, heard where the better one has nothing good to say.
    let is_better = gains.iter().any(|gain| gain.is_aside() && gain.is_sure() && gain.kept > gain.start);
    if let Some([start, kept]) = agreements
        && kept < start - NEARLY
        && reached.learned.is_none()
        && !is_better
    {
        context.printer.warn(format!(
            "neighbours agree less with words than they did ({:.1}% → {:.1}%): measure it with labels before you rely on it, beside {}",
            100.0 * start,
            100.0 * kept,
            recipe.model
        ));
    }
    if recipe.dev.is_empty() {
        context.printer.suggest(format!(
            "labels tell what it gained for what you need: turnwise bench {} -r model:{} -r model:{}, or --dev while it learns",
            recipe.objective.bench(),
            recipe.model,
            model.display()
        ));
    }
    Ok(())
}

/// Tells what labels say was lost, and what helps.
pub(super) fn warn_of_losses(gains: &[Gain], layered: bool, context: &Context<'_>) {
    let lost: Vec<String> = gains
        .iter()
        .filter(|gain| gain.is_loss())
        .map(|g| format!("{} {:.2} → {:.2}", g.what(), 100.0 * g.start, 100.0 * g.kept))
        .collect();
    if lost.is_empty() {
        return;
    }
    context.printer.warn(format!("it lost by more than chance: {}", lost.join(", ")));
    context.printer.hint(match layered {
        true => "a layer is for dialogues like those that it was learned from; --strength 0.2 changes less elsewhere",
        false => {
            "a greater weight of `keep` (--beside keep=N) or a smaller --learning-rate keeps more of what the encoder knew"
        }
    });
}
