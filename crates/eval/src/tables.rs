//! Result tables of recipes. A table contains the values of the paper, our values, and their comparison.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    recipe::{Checked, Paper, Recipe, Row, Verdict},
    result::{self, Done, file_name},
};
use turnwise_core::error::Result;

const SCHEMA: &str = "turnwise/bench-table/1";

/// Results of a benchmark recipe, stored as one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    schema: String,
    /// Name of the recipe.
    pub name: String,
    /// Description of the recipe.
    pub about: String,
    /// Paper that the recipe reproduces.
    pub paper: Paper,
    /// Name of the table in the paper, for example `Table 2`.
    pub table: String,
    /// Command line that runs the task.
    pub command: String,
    /// Reason why the recipe could not be run; `None` if the recipe was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Results, one for each row of the recipe.
    pub rows: Vec<RowDone>,
}

/// Result of one row of a recipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowDone {
    /// Name of the row in the paper, or the name of the ranker if the row has no name.
    pub who: String,
    /// Reason why the row could not be run; `None` if the row was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Comparison of the measured values with the expected values; empty if the row could not be run.
    pub checked: Vec<Checked>,
    /// Values that the paper reports, in percent, by measure.
    pub paper: BTreeMap<String, f64>,
    /// Note from the recipe, such as the source of the numbers.
    pub note: String,
    /// Result of the ranker; `None` if the row could not be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Done>,
}

impl RowDone {
    /// Creates the result of a row that was run. Returns an error if the result lacks an expected measure.
    pub fn run(row: &Row, result: Done) -> Result<Self> {
        let who = if row.name.is_empty() { result.ranker.clone() } else { row.name.clone() };
        let (checked, paper, note) = (row.check(&result)?, row.paper.clone(), row.note.clone());
        Ok(RowDone { who, missing: None, checked, paper, note, result: Some(result) })
    }

    /// Creates the result of a row that was not run. `why` is the reason.
    pub fn missing(row: &Row, why: String) -> Self {
        let (who, paper, note) = (row.label().to_owned(), row.paper.clone(), row.note.clone());
        RowDone { who, missing: Some(why), checked: Vec::new(), paper, note, result: None }
    }
}

/// A measured value with its reference values.
#[derive(Debug, Clone, PartialEq)]
pub struct Line<'a> {
    /// Name of the measure.
    pub measure: &'a str,
    /// Measured value, not in percent: 0.5 means 50%. `None` if the row could not be run.
    pub value: Option<f64>,
    /// Expected value, in percent; `None` if the recipe has none.
    pub expected: Option<f64>,
    /// Whether the measured value is close enough to the expected value; `None` if there is no expected value.
    pub holds: Option<bool>,
    /// Value of the random baseline, not in percent: 0.5 means 50%. `None` if unknown.
    pub floor: Option<f64>,
    /// Value that the paper reports, in percent; `None` if there is none.
    pub paper: Option<f64>,
    /// Comparison of the measured value with the paper's value; `None` if either value is missing.
    pub verdict: Option<Verdict>,
}

impl Line<'_> {
    /// Returns whether the measured value is at most as high as the random baseline.
    pub fn is_no_better_than_chance(&self) -> bool {
        self.value.zip(self.floor).is_some_and(|(value, floor)| value <= floor)
    }
}

/// Best values of one measure in a table: the best value of the paper, our best value, and their comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Best<'a> {
    /// Name of the measure.
    pub measure: &'a str,
    /// Name of the row with our best value, and this value in percent. `None` if no row could be run.
    pub here: Option<(&'a str, f64)>,
    /// Name of the row with the paper's best value, and this value in percent.
    pub paper: (&'a str, f64),
    /// Comparison of our best value with the paper's best value; `None` if our value is missing.
    pub verdict: Option<Verdict>,
}

/// Counts of the paper's values. Each value is counted by its comparison with our measured value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Number of measured values that differ from the paper's value by at most one percentage point.
    pub reproduced: usize,
    /// Number of measured values that are more than one percentage point higher than the paper's value.
    pub better: usize,
    /// Number of measured values that are more than one percentage point lower than the paper's value.
    pub below: usize,
    /// Number of values in the paper that were not measured, because the row could not be run.
    pub missing: usize,
}

impl Table {
    /// Creates a table from a recipe and the results of its rows.
    pub fn new(
        name: &str,
        recipe: &Recipe,
        data: &Path,
        missing: Option<String>,
        rows: Vec<RowDone>,
    ) -> Self {
        let mut command = recipe.task.settings().command(data);
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

    /// Returns the measures that have a value in the paper or an expected value, in the order of the results. If no
    /// measure has such a value, returns all measures.
    pub fn measures(&self) -> Vec<&str> {
        let listed = |measure: &str| {
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
        let some: Vec<&str> = all.iter().copied().filter(|measure| listed(measure)).collect();
        if some.is_empty() { all } else { some }
    }

    /// Returns the values of a row, one line per measure. Omits measures that have neither a measured value nor a value
    /// in the paper.
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

    /// Returns the best values of each measure. Omits measures without a value in the paper.
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

    /// Counts the paper's values by verdict.
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

    /// Returns the number of expected values that the measured values meet, and the number of expected values that they
    /// do not meet.
    pub fn held(&self) -> (usize, usize) {
        let checked = || self.rows.iter().flat_map(|row| &row.checked);
        let held = checked().filter(|checked| checked.holds).count();
        (held, checked().count() - held)
    }

    /// Returns the path of the table's file in the results folder.
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("table-{}.json", file_name(&self.name)))
    }

    /// Reads a table from its file.
    pub fn read(path: &Path) -> Result<Self> {
        result::read_file(path, SCHEMA)
    }

    /// Writes the table to the results folder, atomically.
    pub fn write(&self, folder: &Path) -> Result<()> {
        result::write_file(&self.path(folder), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_cannot_be_run_counts_as_missing_and_best_values_are_found() {
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
