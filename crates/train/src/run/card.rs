//! Model card: the `README.md` in the folder of a trained model.

use super::{Gain, evaluations::Selection};
use crate::{
    objectives::Output,
    recipe::{ResolvedRecipe, SelectorRecipe},
};

/// Facts of a run for the model card.
pub(super) struct Card<'a> {
    pub(super) recipe: &'a ResolvedRecipe,
    pub(super) base: &'a str,
    /// Repository of the base model on the Hugging Face Hub, if it has one.
    pub(super) repository: Option<&'a str>,
    /// Number of training dialogues, and number of turns in these dialogues.
    pub(super) seen: (usize, usize),
    /// Hash of the training dialogues.
    pub(super) data: &'a str,
    /// Step of the saved model.
    pub(super) kept: u64,
    /// Fraction of BM25 neighbors that are also neighbors by vectors, before and after training.
    pub(super) agreements: Option<[f64; 2]>,
    /// Score changes on held-out dialogues and dev tasks.
    pub(super) gains: Vec<Gain>,
    /// Mean loss over the first and over the last tenth of the steps.
    pub(super) losses: Option<(f64, f64)>,
    /// True if a `context-cca` layer was appended.
    pub(super) layered: bool,
}

impl Card<'_> {
    /// Returns the card as Markdown.
    pub(super) fn text(&self) -> String {
        let Card { recipe, base, seen: (dialogues, turns), data, losses, kept, .. } = self;
        let loss = losses.map_or_else(String::new, |(first, last)| {
            format!(
                " The loss went from {first:.4} (mean over the first tenth of the steps) to {last:.4} (mean over the last \
                 tenth); a lower loss does not imply a better model."
            )
        });
        let objective = recipe.file.objective.definition();
        let selected = match recipe.select {
            // Without a score, there was nothing to select by.
            Selection::LabelFree
                if self.agreements.is_none() && !self.gains.iter().any(Gain::is_held_out) =>
            {
                ""
            }
            Selection::LabelFree => ", selected without labels",
            Selection::Dev => ", selected by the labels of the tasks below",
            Selection::Last => "",
        };
        let steps = recipe.steps.as_ref().map(|settings| {
            format!(
                "{} steps of {} examples, learning rate {}, frozen layers: {}. This is the model of step {kept}{selected}",
                settings.plan.schedule.steps, settings.plan.batch, settings.plan.rate, settings.frozen_layers
            )
        });
        let layer = recipe.layer.filter(|_| self.layered).map(|layer| {
            format!(
                "an appended linear layer, which gives similar vectors to utterances that occur in similar contexts (context turns on \
                 each side: {}; strength: {})",
                layer.context, layer.strength
            )
        });
        let how = match (steps, layer) {
            (Some(steps), Some(layer)) => format!("{steps}. The model ends with {layer}"),
            (steps, layer) => steps.or(layer).unwrap_or_default(),
        };
        let base_model =
            self.repository.map_or_else(String::new, |repository| format!("base_model: {repository}\n"));
        let version = env!("CARGO_PKG_VERSION");
        if objective.output == Output::Selector {
            return format!(
                "---\nlibrary_name: turnwise\npipeline_tag: text-ranking\n{base_model}tags:\n- turnwise\n---\n\n# {base}, trained to \
                 select responses\n\nTrained by turnwise {version} on {dialogues} dialogues with {turns} turns, without labels, with the \
                 objective `{}`: {how}.{loss}\n{gains}\nHash of the dialogues: `{data}`. A selector that suits these dialogues may not \
                 suit others. Compare it with {base} on your own data before you use it:\n\n    turnwise bench {} -r model:{} -r \
                 selector:FOLDER\n\nUse it to suggest replies:\n\n    turnwise respond -i INDEX --context FILE --selector FOLDER\n\n\
                 {loads}The license of {base} also applies to this model.\n",
                objective.name,
                objective.benchmark,
                recipe.file.model,
                gains = self.gains_table(),
                loads = match recipe.file.selector.is_some_and(SelectorRecipe::is_cross_encoder) {
                    false => "",
                    true => {
                        "It also works with sentence-transformers (`CrossEncoder(\"FOLDER\")`); in the context, every turn ends with \
                         `[EOU]`. "
                    }
                },
            );
        }
        format!(
            "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n{base_model}tags:\n- \
             sentence-transformers\n- turnwise\n---\n\n# {base}, trained on dialogues\n\nTrained by turnwise {version} on \
             {dialogues} dialogues with {turns} turns, without labels, with the objective `{objective}`: {how}.{loss}\n{gains}\nHash of the dialogues: \
             `{data}`. A model that suits these dialogues may not suit others. Compare it with {base} on your own data before \
             you use it:\n\n    turnwise bench {bench} -r model:{start} -r model:FOLDER\n\nThe model works with \
             turnwise (`--model FOLDER`) and with sentence-transformers (`SentenceTransformer(\"FOLDER\")`). The license of \
             {base} also applies to this model.\n",
            bench = objective.benchmark,
            objective = objective.name,
            start = recipe.file.model,
            gains = self.gains_table(),
        )
    }

    /// Returns the scores as a Markdown table; empty without scores.
    fn gains_table(&self) -> String {
        let row = |measure: &str, [start, kept]: [f64; 2], p: Option<f64>| {
            let p = p.map_or_else(String::new, |p| format!("{p:.4}"));
            format!("| {measure} | {:.1} | {:.1} | {p} |\n", 100.0 * start, 100.0 * kept)
        };
        let agreement = self.agreements.map(|both| row("agreement of neighbors with words", both, None));
        let gains = self.gains.iter().map(|gain| row(&gain.description(), [gain.start, gain.kept], gain.p));
        let rows: String = agreement.into_iter().chain(gains).collect();
        match rows.is_empty() {
            true => rows,
            false => format!("\n| | {} | this model | p |\n|---|---|---|---|\n{rows}", self.base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{ObjectiveName, Recipe};

    #[test]
    fn the_card_names_the_facts_of_the_run() {
        let recipe = Recipe::new(ObjectiveName::Neighbors, "base/model".to_owned(), Vec::new());
        let recipe = recipe.resolve(6, 256).unwrap();
        let card = Card {
            recipe: &recipe,
            base: "model",
            repository: Some("base/model"),
            seen: (12, 90),
            data: "abc",
            kept: 80,
            agreements: Some([0.25, 0.5]),
            gains: vec![Gain {
                task: "sr:x".to_owned(),
                measure: "MAP".to_owned(),
                start: 0.5,
                kept: 0.625,
                p: Some(0.01),
                pairs: 4,
            }],
            losses: Some((2.0, 1.5)),
            layered: false,
        };
        let text = card.text();
        for part in [
            "base_model: base/model\n",
            "12 dialogues with 90 turns",
            "`neighbors`: 150 steps of 32",
            "2.0000 (mean over the first tenth of the steps) to 1.5000",
            "`abc`",
            "step 80, selected without labels",
            "| agreement of neighbors with words | 25.0 | 50.0 |  |\n| sr:x MAP | 50.0 | 62.5 | 0.0100 |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
