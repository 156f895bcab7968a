//! `turnwise bench list`, `run` and `reproduce`. Recipes describe how to reproduce the tables of published papers.

use super::{
    RankerOptions, rankers, report, run_task,
    table::{self, Printed},
};
use crate::cli::{
    args::{PlaceArgs, ReadArgs, RecipeArgs, RunArgs},
    prelude::*,
};
use turnwise_eval::{
    cookbook::{self, Named},
    recipe::Recipe,
    tables::{Counts, Line, RowDone, Table},
};

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    #[serde(flatten)]
    recipe: &'a Recipe,
    missing: Option<String>,
}

pub(super) fn list(args: &RecipeArgs, context: &Context<'_>) -> Result<()> {
    let recipes = chosen(args)?;
    let rows: Vec<Listed<'_>> = recipes
        .iter()
        .map(|named| Listed {
            name: &named.name,
            recipe: &named.recipe,
            missing: named.missing(&args.place.data).map(|path| path.display().to_string()),
        })
        .collect();
    context.printer.results(&rows, |out| {
        for row in &rows {
            let recipe = row.recipe;
            writeln!(out, "{BOLD}{}{BOLD:#}  {}", row.name, recipe.about)?;
            let rankers: Vec<&str> = recipe.rows.iter().filter_map(|row| row.ranker.as_deref()).collect();
            let rankers = if rankers.is_empty() {
                "no rows that can be run yet".to_owned()
            } else {
                rankers.join(", ")
            };
            writeln!(out, "  {DIM}{}, {}; {rankers}{DIM:#}", recipe.paper.title(), recipe.table)?;
            if row.missing.is_none() {
                writeln!(out, "  {DIM}{}{DIM:#}", recipe.task.settings().command(&args.place.data))?;
            }
            if let Some(missing) = &row.missing {
                writeln!(out, "  {DIM}data not found: {missing}{DIM:#}")?;
            }
        }
        Ok(())
    })
}

fn chosen(args: &RecipeArgs) -> Result<Vec<Named>> {
    cookbook::chosen(cookbook::all(args.place.recipes.as_deref())?, &args.paper, &args.only)
}

/// Runs a recipe and saves the table of its results. A row that could not be run has a reason instead of a result.
fn run_recipe(named: &Named, data: &Path, how: &RunArgs, context: &Context<'_>) -> Result<Table> {
    let recipe = &named.recipe;
    let no_data = named.missing(data).map(|path| path.display().to_string());
    let options = RankerOptions {
        encoder: &how.encoder,
        tokens: &how.tokens,
        classes: None,
        memory: None,
        seed: context.settings.seed,
    };
    // A reason can include a training command, which needs the data folder unless it is the default folder.
    let data_option = match data == Path::new("data") {
        true => String::new(),
        false => format!(" --data {}", data.display()),
    };
    let mut why = Vec::new();
    for row in &recipe.rows {
        why.push(match (&row.ranker, &no_data) {
            (None, _) => Some(row.missing.clone().unwrap_or_default()),
            (Some(_), Some(path)) => Some(format!("data not found: {path}")),
            (Some(ranker), None) => {
                rankers::missing_model(ranker, &options, context)?.map(|why| match &row.train {
                    None => why,
                    Some(train) => {
                        format!("its model is not trained yet: `turnwise train {train}{data_option}`")
                    }
                })
            }
        });
    }
    let to_run = recipe.rows.iter().zip(&why).filter(|(_, why)| why.is_none());
    let to_run: Vec<String> = to_run.filter_map(|(row, _)| row.ranker.clone()).collect();
    let mut results = Vec::new().into_iter();
    if !to_run.is_empty() {
        context.printer.say(format!("{}: {}", named.name, recipe.about));
        results = run_task(&recipe.task, data, &ReadArgs::default(), how, &to_run, context)?.into_iter();
    }
    let mut rows = Vec::new();
    for (row, why) in recipe.rows.iter().zip(why) {
        rows.push(match why {
            Some(why) => RowDone::missing(row, why),
            None => {
                let result = results.next();
                RowDone::run(
                    row,
                    result.ok_or_else(|| Error::Internal("a ranker has no result".to_owned()))?,
                )?
            }
        });
    }
    // Results of a recipe that the user changed must not replace those of the built-in recipe with the same name.
    let name = if named.is_changed()? { format!("{} (own)", named.name) } else { named.name.clone() };
    let table = Table::new(&name, recipe, data, no_data, rows);
    // A table without results does not replace an earlier table with results.
    if table.rows.iter().any(|row| row.result.is_some()) || !table.path(&how.results).exists() {
        table.write(&how.results)?;
    }
    Ok(table)
}

pub(super) fn run(names: &[String], place: &PlaceArgs, how: &RunArgs, context: &Context<'_>) -> Result<()> {
    let known = cookbook::all(place.recipes.as_deref())?;
    let find = |name: &String| {
        if name.ends_with(".toml") {
            return Named::read(Path::new(name));
        }
        let named = known.iter().find(|named| named.name == *name).cloned();
        named
            .ok_or_else(|| Error::unknown_name("recipe", name, known.iter().map(|named| named.name.as_str())))
    };
    // Report wrong names before doing any work.
    let chosen = names.iter().map(find).collect::<Result<Vec<Named>>>()?;
    let mut tables = Vec::new();
    for named in &chosen {
        if let Some(path) = named.missing(&place.data) {
            return Err(Error::input(format!("{}: {} not found", named.name, path.display()))
                .with_hint("set the folder of the data with --data"));
        }
        tables.push(run_recipe(named, &place.data, how, context)?);
    }
    context.printer.results(&tables, |out| {
        for one in &tables {
            let results: Vec<_> = one.rows.iter().filter_map(|row| row.result.clone()).collect();
            table::write(out, &Printed::all(&results, context.settings.seed), &how.results)?;
            for row in one.rows.iter().filter(|row| row.missing.is_some()) {
                let why = row.missing.as_deref().unwrap_or_default();
                writeln!(out, "{DIM}not run: {}: {why}{DIM:#}", row.who)?;
            }
        }
        Ok(())
    })
}

pub(super) fn reproduce(
    args: &RecipeArgs,
    reports: &[PathBuf],
    how: &RunArgs,
    context: &Context<'_>,
) -> Result<()> {
    // Report wrong file names before doing any work.
    reports.iter().try_for_each(|path| report::Kind::of(path).map(drop))?;
    let mut tables = Vec::new();
    for named in chosen(args)? {
        tables.push(run_recipe(&named, &args.place.data, how, context)?);
    }
    context.printer.results(&tables, |out| write(out, &tables))?;
    report::of_tables(&tables, &how.results, reports, context)?;
    match tables.iter().map(|table| table.held().1).sum::<usize>() {
        0 if tables.iter().all(|table| table.missing.is_some()) => {
            Err(Error::input(format!("none of the data found in {}", args.place.data.display()))
                .with_hint("`turnwise bench list --data FOLDER` shows where each recipe looks"))
        }
        0 => Ok(()),
        missed => Err(Error::Assertion(format!("{missed} of the expected numbers were missed"))),
    }
}

/// Prints one line per measured number: whether it is as expected, its value, and the numbers to compare it with.
fn write(out: &mut dyn Write, tables: &[Table]) -> io::Result<()> {
    for one in tables {
        writeln!(out, "{BOLD}{}{BOLD:#}  {}", one.name, one.about)?;
        writeln!(out, "  {DIM}{}, {}{DIM:#}", one.paper.title(), one.table)?;
        if let Some(missing) = &one.missing {
            writeln!(out, "  {DIM}not run: {missing} not found{DIM:#}")?;
        }
        let rows = || one.rows.iter().filter(|row| row.result.is_some());
        let width = rows().map(|row| row.who.chars().count()).max().unwrap_or(0);
        for row in rows() {
            write_row(out, row, &one.lines(row), width)?;
        }
        if one.missing.is_some() {
            continue;
        }
        for best in one.best() {
            writeln!(out, "  {BOLD}best{BOLD:#}    {}", report::best_in_words(&best))?;
        }
        let absent = one.rows.iter().filter(|row| row.missing.is_some() && !row.paper.is_empty()).count();
        if absent > 0 {
            let rows = counted(absent as u64, "row");
            writeln!(out, "  {DIM}{rows} of the paper not run; see the report for the reasons{DIM:#}")?;
        }
    }
    writeln!(out)?;
    writeln!(out, "{}", summary(tables))
}

fn write_row(out: &mut dyn Write, row: &RowDone, lines: &[Line<'_>], width: usize) -> io::Result<()> {
    for line in lines {
        let Some(value) = line.value else { continue };
        let measure = line.measure;
        let mark = line.holds.map_or("", |holds| if holds { "holds" } else { "MISSED" });
        let mut notes = Vec::new();
        notes.extend(line.expected.map(|expected| format!("expected {expected:.1}")));
        notes.extend(line.floor.map(|floor| {
            let no_better = if line.is_no_better_than_chance() { ": NO BETTER" } else { "" };
            format!("random baseline {}{no_better}", table::shown(floor, measure))
        }));
        notes.extend(line.paper.map(|paper| {
            let verdict = line.verdict.map(|verdict| format!(": {}", verdict.word())).unwrap_or_default();
            format!("the paper {paper:.1}{verdict}")
        }));
        let (who, value, notes) = (&row.who, table::shown(value, measure), notes.join(", "));
        writeln!(out, "  {mark:<6}  {who:<width$}  {measure:>8}  {value:>6}  {DIM}{notes}{DIM:#}")?;
    }
    match row.note.is_empty() {
        true => Ok(()),
        false => writeln!(out, "          {DIM}{}{DIM:#}", row.note),
    }
}

/// Formats the summary of some tables, such as `3 numbers as expected, 1 missed; of the papers' numbers 1 reproduced,
/// …`.
pub(super) fn summary(tables: &[Table]) -> String {
    let (mut held, mut missed, mut all) = (0, 0, Counts::default());
    for table in tables {
        let (counts, of_table) = (table.counts(), table.held());
        (held, missed) = (held + of_table.0, missed + of_table.1);
        all.reproduced += counts.reproduced;
        all.better += counts.better;
        all.below += counts.below;
        all.missing += counts.missing;
    }
    let absent = tables.iter().filter(|table| table.missing.is_some()).count();
    format!(
        "{} as expected, {missed} missed; of the papers' numbers {} reproduced, {} better, {} below, {} not run; {} \
         without their data",
        counted(held as u64, "number"),
        all.reproduced,
        all.better,
        all.below,
        all.missing,
        counted(absent as u64, "recipe")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_train::recipe::known_names;

    #[test]
    fn training_recipes_make_the_models_that_tables_need() {
        let mut trained = 0;
        for table in cookbook::all(None).unwrap() {
            for row in &table.recipe.rows {
                let Some(train) = &row.train else { continue };
                let words: Vec<&str> = train.split(' ').collect();
                assert!(words.iter().any(|word| known_names().any(|name| name == *word)), "{train}");
                let output = words[words.iter().position(|word| *word == "-o").unwrap() + 1];
                let ranker = row.ranker.as_deref().unwrap();
                let model = ranker.strip_prefix("model:").or(ranker.strip_prefix("selector:")).unwrap();
                assert!(model.starts_with(&format!("{output}/")), "{ranker} {train}");
                trained += 1;
            }
        }
        assert!(trained > 80, "{trained}");
    }
}
