//! Prints the results of training runs.

use crate::cli::prelude::*;
use turnwise_eval::significance::mean_and_deviation;
use turnwise_train::{
    objectives::{Definition, Output},
    recipe::{Recipe, ResolvedRecipe},
    run::{
        FinishedRun, Gain, Outcome, RUNS, Spent,
        evaluations::{NEARLY, Selection},
        layer::Learned,
        model_in,
    },
};

/// Returns a one-sentence description of the linear layer that was learned from contexts.
fn describe_layer(learned: &Learned) -> String {
    let utterances = counted(learned.utterances, "utterance");
    let (telling, all) = (learned.above_baseline(), learned.correlations.len());
    let (first, chance) = (learned.correlations.first().unwrap_or(&0.0), learned.baseline);
    format!(
        "learned a layer from the contexts of {utterances}: {telling} of {all} directions correlate more than by chance, the \
         first with a correlation of {first:.2} (chance {chance:.2})"
    )
}

/// Prints the result of one run, warnings about lower scores, and a suggestion for the next step.
pub(super) fn end(
    outcome: &Outcome,
    recipe: &ResolvedRecipe,
    output: &Path,
    context: &Context<'_>,
) -> Result<()> {
    let Outcome { losses, spent: Spent { seconds, examples, tokens }, .. } = *outcome;
    let (first, last) = losses.unwrap_or((f64::NAN, f64::NAN));
    let model = model_in(output);
    let gains = outcome.gains(recipe.file.seed);
    let agreements = outcome.agreements();
    let planned = recipe.steps.as_ref().map(|settings| settings.plan.schedule.steps);
    let result = serde_json::json!({
        "model": model, "steps": outcome.steps, "kept": outcome.kept,
        "loss": { "first": first, "last": last },
        "agreement": agreements.map(|[start, kept]| serde_json::json!({ "start": start, "kept": kept })),
        "dev": gains, "seconds": seconds, "examples": examples, "tokens": tokens,
        "layer": outcome.learned,
    });
    let evaluated: f64 = outcome.evaluations.iter().map(|evaluation| evaluation.seconds).sum();
    let write_speed = |out: &mut dyn Write, seconds: f64, examples: u64, tokens: u64| {
        let (examples, tokens) = (rate(examples, seconds), rate(tokens, seconds));
        writeln!(out, "{seconds:.0} s, {examples} examples/s, {tokens} tokens/s")
    };
    context.printer.result(&result, |out| {
        if let Some(planned) = planned {
            let early = match outcome.steps < planned {
                true => format!(" of {} (stopped early: no more gain)", grouped(planned)),
                false => String::new(),
            };
            writeln!(out, "{}{early}, loss {first:.4} → {last:.4}", counted(outcome.steps, "step"))?;
        }
        if examples > 0 {
            write_speed(out, seconds, examples, tokens)?;
            if evaluated >= 1.0 {
                writeln!(out, "{evaluated:.0} s for evaluations")?;
            }
        }
        if let Some(learned) = &outcome.learned {
            writeln!(out, "{}", describe_layer(learned))?;
            write_speed(out, learned.seconds, learned.utterances, learned.tokens)?;
        }
        if let Some([start, kept]) = agreements {
            let note = if outcome.learned.is_some() { " (not a goal of the layer)" } else { "" };
            let (start, kept) = (100.0 * start, 100.0 * kept);
            writeln!(out, "agreement of neighbors with words: {start:.1}% → {kept:.1}%{note}")?;
        }
        for gain in &gains {
            let p = gain.p.map_or_else(String::new, |p| format!(" (p {p:.4})"));
            writeln!(out, "{}: {:.2} → {:.2}{p}", gain.description(), 100.0 * gain.start, 100.0 * gain.kept)?;
            if gain.is_held_out() {
                writeln!(out, "  {}", gain.verdict())?;
            }
        }
        let how = match recipe.select {
            Selection::LabelFree if gains.iter().any(Gain::is_held_out) => {
                " (selected by the held-out dialogues)"
            }
            Selection::LabelFree if agreements.is_some() => " (selected by the agreement with words)",
            Selection::LabelFree => "",
            Selection::Dev => " (selected by the dev tasks)",
            Selection::Last => "",
        };
        let (model, step) = (model.display(), grouped(outcome.kept));
        match outcome.evaluations.is_empty() || planned.is_none() {
            true => writeln!(out, "saved the model in {model}"),
            false => writeln!(out, "saved the model of step {step} in {model}{how}"),
        }
    })?;
    warn_of_losses(&gains, hint_about_losses(&recipe.file, outcome.learned.is_some()), context);
    // The agreement with BM25 is the weaker measure. It matters only if the held-out dialogues show no gain.
    let is_better =
        gains.iter().any(|gain| gain.is_held_out() && gain.is_significant() && gain.kept > gain.start);
    if let Some([start, kept]) = agreements
        && kept < start - NEARLY
        && outcome.learned.is_none()
        && !is_better
    {
        context.printer.warn(format!(
            "neighbors agree less with words than before ({:.1}% → {:.1}%): compare it with {} on labeled data before you use it",
            100.0 * start,
            100.0 * kept,
            recipe.file.model
        ));
    }
    if recipe.file.dev.is_empty() {
        let Definition { benchmark, output, .. } = recipe.file.objective.definition();
        let kind = if *output == Output::Selector { "selector" } else { "model" };
        // Samples of response selection need no labels. They are made from dialogues.
        let how = match benchmark.strip_prefix("response ") {
            Some(file) => format!("other dialogues: turnwise bench build response DIALOGUES -o {file}, then"),
            None => "labeled data:".to_owned(),
        };
        context.printer.suggest(format!(
            "measure the gain on {how} turnwise bench {benchmark} -r model:{} -r {kind}:{}, or use --dev during training",
            recipe.file.model,
            model.display()
        ));
    }
    Ok(())
}

/// Returns what can prevent lower scores after training. `has_layer` is true if a linear layer was learned.
pub(super) fn hint_about_losses(recipe: &Recipe, has_layer: bool) -> &'static str {
    match (recipe.objective.definition().output, has_layer) {
        (Output::Selector, _) => {
            "the first values are those of the base model's vectors; the heads `cls` and `pooler` do not start from these \
             vectors and need more steps and dialogues than the default head, `matching`"
        }
        (Output::Encoder, true) => {
            "a layer fits dialogues similar to its training data; --context-weight 0.2 changes others less"
        }
        (Output::Encoder, false) => {
            "a larger weight of `self-distillation` (--auxiliary self-distillation=N) or a smaller --learning-rate preserves \
             more of the encoder"
        }
    }
}

/// Warns about scores that training made significantly lower. `hint` is what can prevent this.
pub(super) fn warn_of_losses(gains: &[Gain], hint: &str, context: &Context<'_>) {
    let lost: Vec<String> = gains
        .iter()
        .filter(|gain| gain.is_loss())
        .map(|g| format!("{} {:.2} → {:.2}", g.description(), 100.0 * g.start, 100.0 * g.kept))
        .collect();
    if lost.is_empty() {
        return;
    }
    context.printer.warn(format!("significant losses: {}", lost.join(", ")));
    context.printer.hint(hint);
}

/// Prints the results of a sweep: for each combination of settings, the means over the seeds.
pub(super) fn sweep(ended: &[FinishedRun], output: &Path, context: &Context<'_>) -> Result<()> {
    context.printer.result(&ended, |out| {
        let mut settings: Vec<&str> = Vec::new();
        for one in ended {
            if !settings.contains(&one.settings.as_str()) {
                settings.push(&one.settings);
            }
        }
        for setting in settings {
            let own: Vec<&FinishedRun> = ended.iter().filter(|e| e.settings == setting).collect();
            let name = if setting.is_empty() { "all seeds" } else { setting };
            writeln!(out, "{name} ({})", counted(own.len() as u64, "run"))?;
            let losses: Vec<[f64; 2]> = own.iter().filter_map(|e| e.loss).collect();
            if !losses.is_empty() {
                let mean = |n: usize| losses.iter().map(|both| both[n]).sum::<f64>() / losses.len() as f64;
                writeln!(out, "  loss: {:.4} → {:.4}", mean(0), mean(1))?;
            }
            let agreement: Vec<[f64; 2]> = own.iter().filter_map(|e| e.agreement).collect();
            if !agreement.is_empty() {
                let line = mean_change(agreement.iter().map(|[start, kept]| (*start, *kept)));
                writeln!(out, "  agreement with words: {line}")?;
            }
            for (n, gain) in own.first().map_or(&[][..], |e| &e.dev).iter().enumerate() {
                let line = mean_change(own.iter().filter_map(|e| e.dev.get(n)).map(|g| (g.start, g.kept)));
                let worst = own.iter().filter_map(|e| e.dev.get(n)?.p).reduce(f64::max);
                let of_several = if own.len() > 1 { " at most" } else { "" };
                let worst = worst.map_or_else(String::new, |p| format!(" (p {p:.4}{of_several})"));
                writeln!(out, "  {}: {line}{worst}", gain.description())?;
            }
        }
        writeln!(out, "all results are in {}", output.join(RUNS).display())
    })
}

/// Formats the mean of a measure in percent, before and after training. With several runs, adds the standard deviation
/// of the values after training.
fn mean_change(values: impl Iterator<Item = (f64, f64)>) -> String {
    let (start, kept): (Vec<f64>, Vec<f64>) = values.unzip();
    let several = kept.len() > 1;
    let ((start, _), (kept, deviation)) = (mean_and_deviation(&start), mean_and_deviation(&kept));
    let deviation = if several { format!(" ± {:.2}", 100.0 * deviation) } else { String::new() };
    format!("{:.2} → {:.2}{deviation}", 100.0 * start, 100.0 * kept)
}
