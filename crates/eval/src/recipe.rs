//! Benchmark recipes: TOML files that describe how to reproduce a table of a paper or a study. A recipe contains a
//! task, rankers and expected values.

use std::{collections::BTreeMap, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{result::Done, tasks::TaskSpec};
use turnwise_core::error::{Error, Result};

/// Paper that a recipe reproduces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paper {
    /// The paper DialogueCSE, about sentence embeddings from dialogues.
    Dialoguecse,
    /// The paper dial2vec, about dialogue embeddings.
    Dial2vec,
    /// The paper about response selection by sentence embeddings.
    ResponseSelection,
    /// No paper. The recipe is for a different data set, or a custom recipe.
    Own,
}

impl Paper {
    /// All variants, including [`Paper::Own`].
    pub const ALL: [Paper; 4] = [Paper::Dialoguecse, Paper::Dial2vec, Paper::ResponseSelection, Paper::Own];

    /// Returns the short name of the paper that is used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Dialoguecse => "dialoguecse",
            Paper::Dial2vec => "dial2vec",
            Paper::ResponseSelection => "response-selection",
            Paper::Own => "own",
        }
    }

    /// Returns the title of the paper, for reports.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Dialoguecse => "DialogueCSE (Liu et al., 2021)",
            Paper::Dial2vec => "dial2vec (Liu et al., 2022)",
            Paper::ResponseSelection => "Response selection by sentence embeddings",
            Paper::Own => "Other recipes",
        }
    }
}

impl FromStr for Paper {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Paper::ALL.iter().find(|paper| paper.name() == text);
        known.copied().ok_or_else(|| Error::unknown_name("paper", text, Paper::ALL.iter().map(|p| p.name())))
    }
}

/// Benchmark recipe: a task, the rankers to run on it, and the values that a paper reports. A recipe is a TOML file.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// One-line description of the recipe, for reports.
    pub about: String,
    /// Paper that the recipe reproduces.
    pub paper: Paper,
    /// Name of the table or other part of the paper that contains the values to reproduce, for example `Table 2`.
    pub table: String,
    /// Task to run, with its data.
    pub task: TaskSpec,
    /// Rows of the table: rankers with their expected values.
    pub rows: Vec<Row>,
}

/// Row of a recipe: a ranker with its expected values, or a row of the paper that cannot be run.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name of the row in the paper; empty if the paper has no such row.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Ranker to run, in the syntax of the option `--ranker`. `None` if the row cannot be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranker: Option<String>,
    /// Arguments of `turnwise train` for training the model of the ranker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<String>,
    /// Reason why the row cannot be run. `None` if `ranker` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Values in percent that our run is expected to have, by measure.
    #[serde(default)]
    pub expected: BTreeMap<String, f64>,
    /// Maximum difference between a measured value and its expected value, in percentage points.
    #[serde(default = "within")]
    pub within: f64,
    /// Values that the paper reports, in percent, by measure.
    #[serde(default)]
    pub paper: BTreeMap<String, f64>,
    /// Note about the source of the numbers, and about why our values may differ from the paper's.
    #[serde(default)]
    pub note: String,
}

fn within() -> f64 {
    0.1
}

impl Recipe {
    /// Returns an error if a row is incomplete or contains an invalid number. `name` is the name of the recipe in the
    /// error message.
    pub fn check(&self, name: &str) -> Result<()> {
        let wrong = |why: String| Err(Error::data(format!("the recipe {name}: {why}")));
        if self.rows.is_empty() {
            return wrong("no [[rows]]".to_owned());
        }
        for row in &self.rows {
            let who = row.label();
            if row.ranker.is_some() == row.missing.is_some() || who.is_empty() {
                return wrong(format!(
                    "a row needs `ranker`, or both `name` and `missing`{}",
                    if who.is_empty() { String::new() } else { format!("; check {who}") }
                ));
            }
            if !(row.within >= 0.0 && row.within.is_finite()) {
                return wrong(format!("`within` of {who} must be a finite number that is not negative"));
            }
            if let Some((measure, _)) = row.expected.iter().chain(&row.paper).find(|(_, v)| !v.is_finite()) {
                return wrong(format!("the value of {measure} for {who} is not a finite number"));
            }
        }
        Ok(())
    }
}

/// Comparison of a measured value with the expected value.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Checked {
    /// Name of the measure.
    pub measure: String,
    /// Measured value, in percent.
    pub value: f64,
    /// Expected value, in percent.
    pub expected: f64,
    /// Whether the difference is within the tolerance.
    pub holds: bool,
}

/// Comparison of a measured value with the paper's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The measured value differs from the paper's value by at most one percentage point.
    Reproduced,
    /// The measured value is more than one percentage point higher than the paper's value.
    Better,
    /// The measured value is more than one percentage point lower than the paper's value.
    Below,
}

/// Maximum difference between a measured value and the paper's value at which the value counts as reproduced, in
/// percentage points. Other seeds and machines cause such differences.
const SAME: f64 = 1.0;

impl Verdict {
    /// Compares a measured value with the paper's value, both in percent.
    pub fn of(value: f64, paper: f64) -> Self {
        match value - paper {
            apart if apart.abs() <= SAME => Verdict::Reproduced,
            apart if apart > 0.0 => Verdict::Better,
            _ => Verdict::Below,
        }
    }

    /// Returns the name of the verdict, for reports.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Better => "better",
            Verdict::Below => "below",
        }
    }
}

impl Row {
    /// Returns the label of the row: its name in the paper, or the ranker if it has no name.
    pub fn label(&self) -> &str {
        if self.name.is_empty() { self.ranker.as_deref().unwrap_or_default() } else { &self.name }
    }

    /// Compares a result with the expected values. Returns an error if the result lacks a measure for which the recipe
    /// has an expected value.
    pub fn check(&self, done: &Done) -> Result<Vec<Checked>> {
        let checked = |(measure, expected): (&String, &f64)| {
            let value = done.value(measure).ok_or_else(|| {
                let has: Vec<&str> = done.values.iter().map(|value| value.measure.as_str()).collect();
                Error::data(format!("the recipe expects a value of {measure}, but {} has none", done.ranker))
                    .with_hint(format!("its measures are {}", has.join(", ")))
            })?;
            let value = 100.0 * value.value;
            // Expected values have one decimal place, so rounding has changed them by up to 0.05.
            let holds = (value - expected).abs() <= self.within + 0.05;
            Ok(Checked { measure: measure.clone(), value, expected: *expected, holds })
        };
        self.expected.iter().map(checked).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_differences_count_as_reproduced() {
        let verdict = |value| Verdict::of(value, 50.0);
        assert_eq!(
            [50.0, 51.0, 49.0, 51.1, 48.9].map(verdict),
            [Verdict::Reproduced, Verdict::Reproduced, Verdict::Reproduced, Verdict::Better, Verdict::Below]
        );
    }

    #[test]
    fn a_row_has_a_ranker_or_says_why_it_is_missing() {
        let recipe = |row: &str| -> Recipe {
            let head = "about = \"a\"\npaper = \"dial2vec\"\ntable = \"Table 2\"\n[task]\nkind = \"sr\"\ndata = \"x\"\n";
            toml::from_str(&format!("{head}[[rows]]\n{row}")).unwrap()
        };
        for good in ["ranker = \"bm25\"", "name = \"T5\"\nmissing = \"its weights\""] {
            recipe(good).check("r").unwrap();
        }
        for (bad, why) in [
            ("name = \"T5\"", "a row needs `ranker`, or both `name` and `missing`; check T5"),
            ("missing = \"x\"", "a row needs `ranker`, or both `name` and `missing`"),
            (
                "ranker = \"bm25\"\nwithin = -1.0",
                "`within` of bm25 must be a finite number that is not negative",
            ),
        ] {
            assert_eq!(recipe(bad).check("r").unwrap_err().to_string(), format!("the recipe r: {why}"));
        }
    }
}
