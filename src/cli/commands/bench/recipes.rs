//! `turnwise bench list`, `run` and `reproduce`: recipes.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{on, report, table};
use crate::{
    cli::{
        Context,
        args::{ReadArgs, ReproduceArgs, RunArgs},
        printer::{BOLD, DIM},
    },
    error::{Error, IoContext, Result, nearest},
    eval::{
        recipe::{Checked, Recipe},
        result::Done,
    },
};

/// A recipe and its name, which is that of its file.
struct Named {
    name: String,
    recipe: Recipe,
}

impl Named {
    /// The first of its files that is not there.
    fn missing(&self, data: &Path) -> Option<PathBuf> {
        self.recipe.task.files().into_iter().map(|file| data.join(file)).find(|path| !path.exists())
    }
}

/// All recipes of a folder, by name.
fn all(folder: &Path) -> Result<Vec<Named>> {
    let mut files: Vec<PathBuf> = match std::fs::read_dir(folder) {
        // As where there are none: whoever is elsewhere is told where they are.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .at("read", folder)?,
    };
    files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    if files.is_empty() {
        return Err(Error::Input {
            message: format!("there are no recipes in {}", folder.display()),
            hint: Some(
                "they come with turnwise's sources, in benchmarks/recipes; name the folder with --recipes"
                    .to_owned(),
            ),
        });
    }
    files.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Named> {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let bytes = std::fs::read(path).at("read", path)?;
    let text = String::from_utf8(bytes).map_err(|e| {
        Error::data(format!("{}: invalid UTF-8 at byte {}", path.display(), e.utf8_error().valid_up_to()))
    })?;
    let recipe: Recipe = toml::from_str(&text).map_err(|e| Error::Data {
        message: format!("{}: {}", path.display(), e.message()),
        hint: e.span().map(|span| format!("in line {}", text[..span.start].matches('\n').count() + 1)),
    })?;
    recipe.check(&name)?;
    Ok(Named { name, recipe })
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    #[serde(flatten)]
    recipe: &'a Recipe,
    missing: Option<String>,
}

pub(super) fn list(args: &ReproduceArgs, context: &Context<'_>) -> Result<()> {
    let recipes = all(&args.recipes)?;
    let rows: Vec<Listed<'_>> = recipes
        .iter()
        .map(|named| Listed {
            name: &named.name,
            recipe: &named.recipe,
            missing: named.missing(&args.data).map(|path| path.display().to_string()),
        })
        .collect();
    context.printer.results(&rows, |out| {
        for row in &rows {
            writeln!(out, "{BOLD}{}{BOLD:#}  {}", row.name, row.recipe.about)?;
            let rankers: Vec<&str> = row.recipe.rows.iter().map(|row| row.ranker.as_str()).collect();
            writeln!(out, "  {DIM}{}; {}{DIM:#}", row.recipe.paper, rankers.join(", "))?;
            if let Some(missing) = &row.missing {
                writeln!(out, "  {DIM}its data are not there: {missing}{DIM:#}")?;
            }
        }
        Ok(())
    })
}

/// How a recipe came out.
#[derive(Serialize)]
pub(super) struct Reproduced {
    schema: &'static str,
    pub(super) name: String,
    pub(super) about: String,
    pub(super) paper: String,
    /// Why it could not be run.
    pub(super) missing: Option<String>,
    pub(super) rows: Vec<RowDone>,
}

/// How one of its rankers did.
#[derive(Serialize)]
pub(super) struct RowDone {
    pub(super) ranker: String,
    checked: Vec<Checked>,
    paper: std::collections::BTreeMap<String, f64>,
    pub(super) note: String,
    pub(super) result: Done,
}

pub(super) fn reproduce(
    args: &ReproduceArgs,
    report_file: Option<&Path>,
    how: &RunArgs,
    context: &Context<'_>,
) -> Result<()> {
    // What is wrong with its name is told before anything is done.
    let kind = report_file.map(report::Kind::of).transpose()?;
    let mut recipes = all(&args.recipes)?;
    if let Some(unknown) =
        args.only.iter().find(|only| !recipes.iter().any(|named| named.name.contains(only.as_str())))
    {
        let names = recipes.iter().map(|named| named.name.as_str());
        let hint = nearest(unknown, names).map_or_else(
            || "`turnwise bench list` names them".to_owned(),
            |name| format!("did you mean `{name}`?"),
        );
        return Err(Error::Input {
            message: format!("no recipe has `{unknown}` in its name"),
            hint: Some(hint),
        });
    }
    recipes.retain(|named| args.only.is_empty() || args.only.iter().any(|only| named.name.contains(only)));
    let mut done = Vec::new();
    for named in recipes {
        let missing = named.missing(&args.data);
        let mut rows = Vec::new();
        if missing.is_none() {
            context.printer.say(format!("{}: {}", named.name, named.recipe.about));
            let rankers: Vec<String> = named.recipe.rows.iter().map(|row| row.ranker.clone()).collect();
            let results = on(&named.recipe.task, &args.data, &ReadArgs::default(), how, &rankers, context)?;
            for (row, result) in named.recipe.rows.iter().zip(results) {
                let (checked, paper, note) = (row.check(&result)?, row.paper.clone(), row.note.clone());
                rows.push(RowDone { ranker: result.ranker.clone(), checked, paper, note, result });
            }
        }
        done.push(Reproduced {
            schema: "turnwise/bench-reproduce/1",
            name: named.name,
            about: named.recipe.about,
            paper: named.recipe.paper,
            missing: missing.map(|path| path.display().to_string()),
            rows,
        });
    }
    context.printer.results(&done, |out| write(out, &done))?;
    if let Some((path, kind)) = report_file.zip(kind) {
        report::write(&done, kind, path)?;
        context.printer.say(format!("the report is in {}", path.display()));
    }
    let missed =
        done.iter().flat_map(|done| &done.rows).flat_map(|row| &row.checked).filter(|checked| !checked.holds);
    match missed.count() {
        0 if done.iter().all(|done| done.missing.is_some()) => Err(Error::Input {
            message: format!("none of the data are in {}", args.data.display()),
            hint: Some("`turnwise bench list --data FOLDER` tells where each recipe looks".to_owned()),
        }),
        0 => Ok(()),
        missed => Err(Error::Assertion(format!("{missed} of the expected numbers were missed"))),
    }
}

/// A line a number: whether it holds, what came, what should have, and what the paper has.
fn write(out: &mut dyn Write, done: &[Reproduced]) -> io::Result<()> {
    for one in done {
        writeln!(out, "{BOLD}{}{BOLD:#}  {}", one.name, one.about)?;
        if let Some(missing) = &one.missing {
            writeln!(out, "  {DIM}not run: {missing} is not there{DIM:#}")?;
        }
        for row in &one.rows {
            row.write(out)?;
        }
    }
    writeln!(out)?;
    writeln!(out, "{}", summary(done))
}

/// `3 numbers hold, 1 missed; 2 recipes without their data`.
pub(super) fn summary(done: &[Reproduced]) -> String {
    let checked = || done.iter().flat_map(|done| &done.rows).flat_map(|row| &row.checked);
    let held = checked().filter(|checked| checked.holds).count();
    let absent = done.iter().filter(|done| done.missing.is_some()).count();
    format!("{held} numbers hold, {} missed; {absent} recipes without their data", checked().count() - held)
}

/// A number of a row, and what stands beside it.
pub(super) struct Line<'a> {
    pub(super) measure: &'a str,
    pub(super) value: f64,
    /// In hundredths.
    pub(super) expected: Option<f64>,
    pub(super) holds: Option<bool>,
    pub(super) floor: Option<f64>,
    /// In hundredths.
    pub(super) paper: Option<f64>,
}

impl RowDone {
    /// The measures that something is expected of, or that the paper has; all, where that is none.
    pub(super) fn lines(&self) -> Vec<Line<'_>> {
        let lines = self.result.values.iter().map(|value| {
            let measure = value.measure.as_str();
            let checked = self.checked.iter().find(|checked| checked.measure == measure);
            Line {
                measure,
                value: value.value,
                expected: checked.map(|checked| checked.expected),
                holds: checked.map(|checked| checked.holds),
                floor: value.floor,
                paper: self.paper.get(measure).copied(),
            }
        });
        let (told, others): (Vec<_>, Vec<_>) =
            lines.partition(|line| line.expected.is_some() || line.paper.is_some());
        if told.is_empty() { others } else { told }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for line in self.lines() {
            let measure = line.measure;
            let mark = line.holds.map_or("", |holds| if holds { "holds" } else { "MISSED" });
            let mut beside = Vec::new();
            beside.extend(line.expected.map(|expected| format!("expected {expected:.1}")));
            beside.extend(line.floor.map(|floor| format!("any order {}", table::shown(floor, measure))));
            beside.extend(line.paper.map(|paper| format!("the paper {paper:.1}")));
            let (ranker, value, beside) =
                (&self.ranker, table::shown(line.value, measure), beside.join(", "));
            writeln!(out, "  {mark:<6}  {ranker:<26}  {measure:>8}  {value:>6}  {DIM}{beside}{DIM:#}")?;
        }
        match self.note.is_empty() {
            true => Ok(()),
            false => writeln!(out, "          {DIM}{}{DIM:#}", self.note),
        }
    }
}
