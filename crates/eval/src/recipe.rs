//! Recipes: a row of a paper's table, or a study, as a file. What is ranked, by whom, and what should come of it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::{build, result::Done, tasks::Profile};
use turnwise_core::error::{Error, Result};

/// Whose table or study a recipe is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paper {
    /// DialogueCSE: sentence embeddings out of dialogues.
    Dialoguecse,
    /// dial2vec: embeddings of dialogues.
    Dial2vec,
    /// Response selection by sentence embeddings.
    ResponseSelection,
    /// None: something of one's own.
    Own,
}

impl Paper {
    /// All of them.
    pub const ALL: [Paper; 4] = [Paper::Dialoguecse, Paper::Dial2vec, Paper::ResponseSelection, Paper::Own];

    /// Its short name, as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Dialoguecse => "dialoguecse",
            Paper::Dial2vec => "dial2vec",
            Paper::ResponseSelection => "response-selection",
            Paper::Own => "own",
        }
    }

    /// Its name, for people.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Dialoguecse => "DialogueCSE (Liu et al., 2021)",
            Paper::Dial2vec => "dial2vec (Liu et al., 2022)",
            Paper::ResponseSelection => "Response selection by sentence embeddings",
            Paper::Own => "of one's own",
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

/// A recipe, as its file has it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// What it is, for people.
    pub about: String,
    /// The paper.
    pub paper: Paper,
    /// Its table, or what else of it.
    pub table: String,
    /// What is ranked.
    pub task: TaskSpec,
    /// By whom, and what should come of it.
    pub rows: Vec<Row>,
}

/// A task, by its files below the folder of the data.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum TaskSpec {
    /// Semantic retrieval.
    Sr {
        /// A file as select.txt, or, with a recipe for it, labelled sentences.
        data: PathBuf,
        /// How the set is made of labelled sentences.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        build: Option<build::Recipe>,
    },
    /// Similarity of sentences.
    Dsts {
        /// A file as sts.txt.
        data: PathBuf,
        /// Sentences by which words are weighed, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        background: Option<PathBuf>,
    },
    /// dial2vec's three tasks.
    Dialogues {
        /// Dialogues with a domain each.
        data: PathBuf,
        /// By the paper's text or by its code.
        #[serde(default = "paper")]
        profile: Profile,
    },
    /// Response selection.
    Response {
        /// Samples.
        data: PathBuf,
    },
    /// Ad-hoc retrieval.
    Adhoc {
        /// A folder as BEIR has it.
        data: PathBuf,
        /// Other judgments than its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        qrels: Option<PathBuf>,
    },
}

fn paper() -> Profile {
    Profile::Paper
}

/// A ranker and what it should reach; or a row of the paper that cannot be run, and why.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What the paper calls it, where it is in the paper.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// As `--ranker` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranker: Option<String>,
    /// What is typed behind `turnwise train` to make its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<String>,
    /// Why nobody can do it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// What should come of it, in hundredths, by measure.
    #[serde(default)]
    pub expected: BTreeMap<String, f64>,
    /// How far off it may be.
    #[serde(default = "within")]
    pub within: f64,
    /// What the paper has in that place, in hundredths.
    #[serde(default)]
    pub paper: BTreeMap<String, f64>,
    /// Where the numbers come from, and why ours may differ.
    #[serde(default)]
    pub note: String,
}

fn within() -> f64 {
    0.1
}

impl TaskSpec {
    /// What is typed to do it by hand, but for the rankers.
    pub fn command(&self, data: &Path) -> String {
        let file = |path: &Path| data.join(path).display().to_string();
        match self {
            TaskSpec::Sr { data, build: None } => format!("turnwise bench sr {}", file(data)),
            TaskSpec::Sr { data, build: Some(recipe) } => format!(
                "turnwise bench build sr {} --recipe {} -o select.txt && turnwise bench sr select.txt",
                file(data),
                recipe.name()
            ),
            TaskSpec::Dsts { data, background } => {
                let background = background.as_ref().map(|path| format!(" --background {}", file(path)));
                format!("turnwise bench dsts {}{}", file(data), background.unwrap_or_default())
            }
            TaskSpec::Dialogues { data, profile } => {
                let profile = if *profile == Profile::Code { " --profile code" } else { "" };
                format!("turnwise bench dialogues {}{profile}", file(data))
            }
            TaskSpec::Response { data } => format!("turnwise bench response {}", file(data)),
            TaskSpec::Adhoc { data, qrels } => {
                let qrels = qrels.as_ref().map(|path| format!(" --qrels {}", file(path)));
                format!("turnwise bench adhoc {}{}", file(data), qrels.unwrap_or_default())
            }
        }
    }

    /// Its files, below the folder of the data.
    pub fn files(&self) -> Vec<&Path> {
        match self {
            TaskSpec::Dsts { data, background } => {
                std::iter::once(data.as_path()).chain(background.as_deref()).collect()
            }
            TaskSpec::Sr { data, .. }
            | TaskSpec::Dialogues { data, .. }
            | TaskSpec::Response { data }
            | TaskSpec::Adhoc { data, .. } => vec![data],
        }
    }
}

impl Recipe {
    /// Refuses what cannot be run or judged.
    pub fn check(&self, name: &str) -> Result<()> {
        let wrong =
            |why: String| Err(Error::Data { message: format!("the recipe {name}: {why}"), hint: None });
        if self.rows.is_empty() {
            return wrong("it has no [[rows]]".to_owned());
        }
        for row in &self.rows {
            let who = row.who();
            if row.ranker.is_some() == row.missing.is_some() || who.is_empty() {
                return wrong(format!(
                    "a row has a `ranker`, or a `name` and why it is `missing`{}",
                    if who.is_empty() { String::new() } else { format!("; {who} has not") }
                ));
            }
            if !(row.within >= 0.0 && row.within.is_finite()) {
                return wrong(format!("`within` of {who} is no number of 0 or more"));
            }
            if let Some((measure, _)) = row.expected.iter().chain(&row.paper).find(|(_, v)| !v.is_finite()) {
                return wrong(format!("what {who} should have of {measure} is no finite number"));
            }
        }
        Ok(())
    }
}

/// How a number came out.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Checked {
    /// The measure.
    pub measure: String,
    /// What came of it, in hundredths.
    pub value: f64,
    /// What should have.
    pub expected: f64,
    /// Whether it is near enough.
    pub holds: bool,
}

/// How what came stands to what the paper has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The same, but for a hundredth.
    Reproduced,
    /// More.
    Better,
    /// Less.
    Below,
}

/// Numbers that are so near count as the same, in hundredths: other draws and other machines are as far apart.
const SAME: f64 = 1.0;

impl Verdict {
    /// Of two numbers in hundredths.
    pub fn of(value: f64, paper: f64) -> Self {
        match value - paper {
            apart if apart.abs() <= SAME => Verdict::Reproduced,
            apart if apart > 0.0 => Verdict::Better,
            _ => Verdict::Below,
        }
    }

    /// As a word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Better => "better",
            Verdict::Below => "below",
        }
    }
}

impl Row {
    /// Who it is of: as the paper calls it, else the ranker.
    pub fn who(&self) -> &str {
        if self.name.is_empty() { self.ranker.as_deref().unwrap_or_default() } else { &self.name }
    }

    /// Judges a result. An error where something is expected that the ranker does not have.
    pub fn check(&self, done: &Done) -> Result<Vec<Checked>> {
        let checked = |(measure, expected): (&String, &f64)| {
            let value = done.value(measure).ok_or_else(|| {
                let has: Vec<&str> = done.values.iter().map(|value| value.measure.as_str()).collect();
                Error::Data {
                    message: format!("{} has no {measure}, of which a recipe expects something", done.ranker),
                    hint: Some(format!("it has {}", has.join(", "))),
                }
            })?;
            let value = 100.0 * value.value;
            // What is printed with one digit may be half of the last one off.
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
    fn what_is_as_near_as_another_draw_is_the_same() {
        let verdict = |value| Verdict::of(value, 50.0);
        assert_eq!(
            [50.0, 51.0, 49.0, 51.1, 48.9].map(verdict),
            [Verdict::Reproduced, Verdict::Reproduced, Verdict::Reproduced, Verdict::Better, Verdict::Below]
        );
    }

    #[test]
    fn a_task_can_be_done_by_hand() {
        let typed = |spec: TaskSpec| spec.command(Path::new("d"));
        assert_eq!(
            typed(TaskSpec::Dsts { data: "sts.txt".into(), background: Some("select.txt".into()) }),
            "turnwise bench dsts d/sts.txt --background d/select.txt"
        );
        assert_eq!(
            typed(TaskSpec::Sr { data: "x".into(), build: Some(build::Recipe::Released) }),
            "turnwise bench build sr d/x --recipe released -o select.txt && turnwise bench sr select.txt"
        );
        assert_eq!(
            typed(TaskSpec::Dialogues { data: "x".into(), profile: Profile::Code }),
            "turnwise bench dialogues d/x --profile code"
        );
    }

    #[test]
    fn a_row_is_run_or_says_why_not() {
        let recipe = |row: &str| -> Recipe {
            let head = "about = \"a\"\npaper = \"dial2vec\"\ntable = \"Table 2\"\n[task]\nkind = \"sr\"\ndata = \"x\"\n";
            toml::from_str(&format!("{head}[[rows]]\n{row}")).unwrap()
        };
        for good in ["ranker = \"bm25\"", "name = \"T5\"\nmissing = \"its weights\""] {
            recipe(good).check("r").unwrap();
        }
        for (bad, why) in [
            ("name = \"T5\"", "a row has a `ranker`, or a `name` and why it is `missing`; T5 has not"),
            ("missing = \"x\"", "a row has a `ranker`, or a `name` and why it is `missing`"),
            ("ranker = \"bm25\"\nwithin = -1.0", "`within` of bm25 is no number of 0 or more"),
        ] {
            assert_eq!(recipe(bad).check("r").unwrap_err().to_string(), format!("the recipe r: {why}"));
        }
    }
}
