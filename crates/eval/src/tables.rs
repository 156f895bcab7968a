//! What recipes came to: a table with the paper's numbers, ours, and how the two stand to each other.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    recipe::{Checked, Paper, Recipe, Row, Verdict},
    result::{Done, file_name},
    result_store,
};
use turnwise_core::error::Result;

const SCHEMA: &str = "turnwise/bench-table/1";

/// How a recipe came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    schema: String,
    /// The recipe's name.
    pub name: String,
    /// What it is.
    pub about: String,
    /// The paper.
    pub paper: Paper,
    /// Its table.
    pub table: String,
    /// What is typed to do it by hand.
    pub command: String,
    /// Why nothing of it could be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Its rows.
    pub rows: Vec<RowDone>,
}

/// How a row came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowDone {
    /// As the paper calls it, else the ranker.
    pub who: String,
    /// Why it could not be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// What was expected of it.
    pub checked: Vec<Checked>,
    /// What the paper has, in hundredths.
    pub paper: BTreeMap<String, f64>,
    /// What there is to say of it.
    pub note: String,
    /// What came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Done>,
}

impl RowDone {
    /// Of a row that was run.
    pub fn run(row: &Row, result: Done) -> Result<Self> {
        let who = if row.name.is_empty() { result.ranker.clone() } else { row.name.clone() };
        let (checked, paper, note) = (row.check(&result)?, row.paper.clone(), row.note.clone());
        Ok(RowDone { who, missing: None, checked, paper, note, result: Some(result) })
    }

    /// Of a row that was not, and why.
    pub fn missing(row: &Row, why: String) -> Self {
        let (who, paper, note) = (row.who().to_owned(), row.paper.clone(), row.note.clone());
        RowDone { who, missing: Some(why), checked: Vec::new(), paper, note, result: None }
    }
}

/// A number of a row, and what stands beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Line<'a> {
    /// The measure.
    pub measure: &'a str,
    /// What came, from 0 to 1; nothing where the row could not be run.
    pub value: Option<f64>,
    /// In hundredths.
    pub expected: Option<f64>,
    /// Whether it came so.
    pub holds: Option<bool>,
    /// What any order has, from 0 to 1.
    pub floor: Option<f64>,
    /// What the paper has in that row, in hundredths.
    pub paper: Option<f64>,
    /// How ours stands to it.
    pub verdict: Option<Verdict>,
}

impl Line<'_> {
    /// Whether a ranking by chance has as much.
    pub fn is_no_better_than_chance(&self) -> bool {
        self.value.zip(self.floor).is_some_and(|(value, floor)| value <= floor)
    }
}

/// The best that a paper has of a measure in a table, the best here, and how they stand to each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Best<'a> {
    /// The measure.
    pub measure: &'a str,
    /// Who has it here, and how much in hundredths.
    pub here: Option<(&'a str, f64)>,
    /// Who has it in the paper, and how much in hundredths.
    pub paper: (&'a str, f64),
    /// How ours stands to it.
    pub verdict: Option<Verdict>,
}

/// What became of the rows that the paper has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Numbers of the paper that came the same.
    pub reproduced: usize,
    /// That came greater.
    pub better: usize,
    /// That came smaller.
    pub below: usize,
    /// That nobody could have run.
    pub missing: usize,
}

impl Table {
    /// Of the parts of a recipe.
    pub fn new(
        name: &str,
        recipe: &Recipe,
        data: &Path,
        missing: Option<String>,
        rows: Vec<RowDone>,
    ) -> Self {
        let mut command = recipe.task.command(data);
        let run = recipe.rows.iter().zip(&rows).filter(|(_, done)| done.result.is_some());
        for ranker in run.filter_map(|(row, _)| row.ranker.as_ref()) {
            command += " -r ";
            command += ranker;
        }
        Table {
            schema: SCHEMA.to_owned(),
            name: name.to_owned(),
            about: recipe.about.clone(),
            paper: recipe.paper,
            table: recipe.table.clone(),
            command,
            missing,
            rows,
        }
    }

    /// The measures that it is about: those of the paper and those that something is expected of, in the order in which
    /// results have them; all, where that is none.
    pub fn measures(&self) -> Vec<&str> {
        let told = |measure: &str| {
            self.rows.iter().any(|row| {
                row.paper.contains_key(measure)
                    || row.checked.iter().any(|checked| checked.measure == measure)
            })
        };
        let mut all: Vec<&str> = Vec::new();
        let of_results =
            self.rows.iter().filter_map(|row| row.result.as_ref()).flat_map(|result| &result.values);
        let of_paper = self.rows.iter().flat_map(|row| row.paper.keys());
        for measure in of_results.map(|value| &value.measure).chain(of_paper) {
            if !all.contains(&measure.as_str()) {
                all.push(measure);
            }
        }
        let some: Vec<&str> = all.iter().copied().filter(|measure| told(measure)).collect();
        if some.is_empty() { all } else { some }
    }

    /// The numbers of a row.
    pub fn lines<'a>(&'a self, row: &'a RowDone) -> Vec<Line<'a>> {
        let line = |measure: &'a str| {
            let value = row.result.as_ref().and_then(|result| result.value(measure));
            let checked = row.checked.iter().find(|checked| checked.measure == measure);
            let paper = row.paper.get(measure).copied();
            (value.is_some() || paper.is_some()).then(|| Line {
                measure,
                value: value.map(|value| value.value),
                expected: checked.map(|checked| checked.expected),
                holds: checked.map(|checked| checked.holds),
                floor: value.and_then(|value| value.floor),
                paper,
                verdict: value.zip(paper).map(|(value, paper)| Verdict::of(100.0 * value.value, paper)),
            })
        };
        self.measures().into_iter().filter_map(line).collect()
    }

    /// The best of the paper and the best here, by measure; nothing where the paper has no number.
    pub fn best(&self) -> Vec<Best<'_>> {
        let best = |measure| {
            let greater = |a: &(&str, f64), b: &(&str, f64)| a.1.total_cmp(&b.1);
            let paper = self.rows.iter().filter_map(|row| Some((row.who.as_str(), *row.paper.get(measure)?)));
            let here = self.rows.iter().filter_map(|row| {
                Some((row.who.as_str(), 100.0 * row.result.as_ref()?.value(measure)?.value))
            });
            let (paper, here) = (paper.max_by(greater)?, here.max_by(greater));
            Some(Best { measure, here, paper, verdict: here.map(|here| Verdict::of(here.1, paper.1)) })
        };
        self.measures().into_iter().filter_map(best).collect()
    }

    /// What became of the paper's numbers.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for line in self.rows.iter().flat_map(|row| self.lines(row)).filter(|line| line.paper.is_some()) {
            match line.verdict {
                Some(Verdict::Reproduced) => counts.reproduced += 1,
                Some(Verdict::Better) => counts.better += 1,
                Some(Verdict::Below) => counts.below += 1,
                None => counts.missing += 1,
            }
        }
        counts
    }

    /// Numbers that came as expected, and that did not.
    pub fn held(&self) -> (usize, usize) {
        let checked = || self.rows.iter().flat_map(|row| &row.checked);
        let held = checked().filter(|checked| checked.holds).count();
        (held, checked().count() - held)
    }

    /// Its file among results.
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("table-{}.json", file_name(&self.name)))
    }

    /// Reads one.
    pub fn read(path: &Path) -> Result<Self> {
        result_store::read(path, SCHEMA)
    }

    /// Writes it among results; the file appears whole or not at all.
    pub fn write(&self, folder: &Path) -> Result<()> {
        result_store::write(&self.path(folder), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_cannot_be_run_counts_as_missing_and_the_best_is_told() {
        let text = "about = \"a\"\npaper = \"dial2vec\"\ntable = \"Table 2\"\n[task]\nkind = \"sr\"\ndata = \"x\"\n\
                    [[rows]]\nname = \"T5\"\nmissing = \"weights\"\npaper = { MAP = 50.0, purity = 60.0 }\n\
                    [[rows]]\nname = \"LDA\"\nmissing = \"weights\"\npaper = { purity = 70.0 }\n";
        let recipe: Recipe = toml::from_str(text).unwrap();
        let rows =
            recipe.rows.iter().map(|row| RowDone::missing(row, row.missing.clone().unwrap())).collect();
        let table = Table::new("t", &recipe, Path::new("d"), None, rows);
        assert_eq!(table.measures(), ["MAP", "purity"]);
        assert_eq!(table.counts(), Counts { missing: 3, ..Counts::default() });
        let best = table.best();
        assert_eq!((best[0].paper, best[0].here), (("T5", 50.0), None));
        assert_eq!((best[1].paper, best[1].verdict), (("LDA", 70.0), None));
        let folder = tempfile::tempdir().unwrap();
        table.write(folder.path()).unwrap();
        assert_eq!(Table::read(&folder.path().join("table-t.json")).unwrap(), table);
    }
}
