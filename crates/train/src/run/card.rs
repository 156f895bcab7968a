//! What a model says of itself: `README.md` in its folder.

use crate::{
    recipe::{ObjectiveName, Recipe},
    run::evaluations::Selection,
};

/// What a run came to, for its model's card.
#[derive(Debug, Clone, PartialEq)]
pub struct Card<'a> {
    /// The run.
    pub recipe: &'a Recipe,
    /// The model that it began with.
    pub base: &'a str,
    /// Its repository on the hub, if it has one.
    pub repository: Option<&'a str>,
    /// Dialogues and turns that it saw.
    pub seen: (usize, usize),
    /// The hash of the dialogues.
    pub data: &'a str,
    /// The step whose model this is, and by what it was chosen.
    pub kept: u64,
    /// What was measured at the start and at that step.
    pub gains: Vec<Gained>,
    /// The mean loss over the first and the last tenth of the steps.
    pub losses: Option<(f64, f64)>,
    /// Whether a layer was learned.
    pub layered: bool,
}

/// What a task was worth before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Gained {
    /// The task and its measure.
    pub what: String,
    /// At the start.
    pub start: f64,
    /// As it is kept.
    pub kept: f64,
    /// How probable so great a difference is by chance.
    pub p: Option<f64>,
}

impl Card<'_> {
    /// The card, as Markdown.
    pub fn text(&self) -> String {
        let Card { recipe, base, seen: (dialogues, turns), data, losses, kept, .. } = self;
        let loss = match losses {
            Some((first, last)) => {
                format!(
                    " The loss went from {first:.4} (the mean of the first tenth of the steps) to {last:.4} (of the last), \
                     which tells nothing of use."
                )
            }
            None => String::new(),
        };
        let objective = recipe.objective.name();
        let by_steps = recipe.objective != ObjectiveName::Surroundings;
        let chosen = match recipe.select {
            _ if !by_steps => "",
            Selection::LabelFree => ", chosen without labels",
            Selection::Dev => ", chosen by the labels of the tasks below",
            Selection::Last => "",
        };
        let steps = format!(
            "{} steps of {} examples at a learning rate of {}, frozen layers: {}. This is the model of step {kept}{chosen}",
            recipe.steps,
            recipe.batch,
            recipe.learning_rate,
            recipe.frozen_layers.unwrap_or(0)
        );
        let layer = format!(
            ", under which utterances are the more alike the more what is said around them is (turns on each side: {}; \
             strength: {})",
            if by_steps { 1 } else { recipe.context.unwrap_or(1) },
            recipe.strength.unwrap_or(1.0)
        );
        let how = match (by_steps, self.layered) {
            (false, _) => format!("a linear layer behind its vectors{layer}"),
            (true, false) => steps,
            (true, true) => format!("{steps}. Behind its vectors stands a linear layer{layer}"),
        };
        let base_model =
            self.repository.map_or_else(String::new, |repository| format!("base_model: {repository}\n"));
        let bench = recipe.objective.bench();
        format!(
            "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n{base_model}tags:\n- \
             sentence-transformers\n- turnwise\n---\n\n# {base}, trained on dialogues\n\nTrained by turnwise {version} on \
             {dialogues} dialogues with {turns} turns, without labels, for `{objective}`: {how}.{loss}\n{gains}\nThe dialogues have the hash \
             `{data}`. A model for some dialogues is not one for all: measure it on yours before you rely on it, beside \
             {base} itself:\n\n    turnwise bench {bench} -r model:{start} -r model:FOLDER\n\nIt opens in \
             turnwise (`--model FOLDER`) and in sentence-transformers (`SentenceTransformer(\"FOLDER\")`). What the \
             licence of {base} asks of its copies, it asks of this one.\n",
            start = recipe.model,
            gains = self.gained(),
            version = env!("CARGO_PKG_VERSION"),
        )
    }
}

impl Card<'_> {
    /// What was measured, as a table.
    fn gained(&self) -> String {
        if self.gains.is_empty() {
            return String::new();
        }
        let row = |Gained { what, start, kept, p }: &Gained| {
            let p = p.map_or_else(String::new, |p| format!("{p:.4}"));
            format!("| {what} | {:.1} | {:.1} | {p} |\n", 100.0 * start, 100.0 * kept)
        };
        let rows: String = self.gains.iter().map(row).collect();
        format!("\n| | {} | this model | p |\n|---|---|---|---|\n{rows}", self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::ObjectiveName;

    #[test]
    fn a_card_tells_what_the_model_is_of() {
        let mut recipe = Recipe::new(ObjectiveName::Neighbours, "base/model".to_owned(), Vec::new());
        recipe.complete(6, 256).unwrap();
        let card = Card {
            recipe: &recipe,
            base: "model",
            repository: Some("base/model"),
            seen: (12, 90),
            data: "abc",
            kept: 80,
            gains: vec![Gained { what: "sr:x MAP".to_owned(), start: 0.5, kept: 0.625, p: Some(0.01) }],
            losses: Some((2.0, 1.5)),
            layered: false,
        };
        let text = card.text();
        for part in [
            "base_model: base/model\n",
            "12 dialogues with 90 turns",
            "`neighbours`: 150 steps of 32",
            "2.0000 (the mean of the first tenth of the steps) to 1.5000",
            "`abc`",
            "step 80, chosen without labels",
            "| sr:x MAP | 50.0 | 62.5 | 0.0100 |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
