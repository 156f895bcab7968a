//! Several runs, with several seeds or for several values of an option. Each run has its own subfolder, and
//! `runs.json` summarizes all of them.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    Place, Start, folder,
    report::{self, Gain},
    run_one,
    running::Reached,
};
use crate::cli::{
    Context,
    args::{Seeds, TrainRunArgs},
    printer::counted,
    signals,
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};
use turnwise_eval::significance::mean_and_deviation;
use turnwise_train::recipe::{Recipe, ResolvedRecipe};

/// Summary file.
const RUNS: &str = "runs.json";

/// A finished run.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ended {
    /// Subfolder of the run.
    folder: String,
    /// The varied options; empty if only the seed differs.
    settings: String,
    seed: u64,
    steps: u64,
    kept: u64,
    /// Mean losses of the first and the last steps.
    #[serde(default)]
    loss: Option<[f64; 2]>,
    agreement: Option<[f64; 2]>,
    dev: Vec<Gain>,
}

pub(super) fn run(
    recipe: &Recipe,
    varied: &[(String, Vec<String>)],
    args: &TrainRunArgs,
    context: &Context<'_>,
) -> Result<()> {
    let variants = variants(recipe, varied)?;
    let seeds = args.seeds.unwrap_or(Seeds::Count(1)).all(recipe.seed);
    let all = variants.len() * seeds.len();
    let mut ended = before(args.output(), args.resume)?;
    // Check all runs before training the first one.
    let mut planned: Vec<(String, _, &String, Recipe)> = Vec::with_capacity(all);
    for (settings, recipe) in &variants {
        Start::of(recipe.clone(), context)?;
        for seed in &seeds {
            let seeded = args.seeds.map(|_| format!("seed-{seed}"));
            let name = [(!settings.is_empty()).then(|| settings.replace(", ", "_")), seeded];
            let name = name.into_iter().flatten().collect::<Vec<_>>().join("/");
            let path = args.output().join(&name);
            // Runs that have not started yet cannot be resumed.
            let resume = args.resume && folder::has_run(&path);
            folder::check(&path, resume)?;
            if planned.iter().any(|(other, ..)| *other == name) {
                return Err(Error::input(format!("{settings} is in --vary twice"))
                    .with_hint("use each value once; for several seeds, use --seeds N"));
            }
            planned.push((name, (path, resume), settings, Recipe { seed: *seed, ..recipe.clone() }));
        }
    }
    // Runs with other values stay in the summary.
    ended.retain(|one| planned.iter().all(|(name, ..)| *name != one.folder));
    for (n, (name, (path, resume), settings, recipe)) in planned.into_iter().enumerate() {
        if signals::stopped() {
            return Err(Error::Interrupted {
                hint: Some("continue with the same command and --resume".to_owned()),
            });
        }
        context.printer.say(format!("run {} of {all}: {name}", n + 1));
        let seed = recipe.seed;
        let place = Place { output: &path, resume, is_first: n == 0 };
        let (reached, recipe) = run_one(recipe, args, &place, context)?;
        let one = of(name, settings, &recipe, seed, &reached);
        report::warn_of_losses(&one.dev, reached.learned.is_some(), context);
        ended.push(one);
        write(args.output(), &ended)?;
    }
    report(&ended, args, context)
}

/// Reads the finished runs in a folder. Returns an error if there are some and `resume` is not set.
fn before(output: &Path, resume: bool) -> Result<Vec<Ended>> {
    let path = output.join(RUNS);
    if !path.exists() {
        return Ok(Vec::new());
    }
    if !resume {
        return Err(Error::input(format!("{} already contains runs", output.display()))
            .with_hint("continue them with --resume, or choose a different folder"));
    }
    let text = fs::read_to_string(&path).at("read", &path)?;
    serde_json::from_str(&text).map_err(|e| Error::Corrupt {
        path,
        what: e.to_string(),
        hint: "remove this file; it is written again from the existing runs".to_owned(),
    })
}

fn of(folder: String, settings: &str, recipe: &ResolvedRecipe, seed: u64, reached: &Reached) -> Ended {
    Ended {
        folder,
        settings: settings.to_owned(),
        seed,
        steps: reached.steps,
        kept: reached.kept,
        loss: reached.losses.map(<[f64; 2]>::from),
        agreement: report::agreements(reached),
        dev: report::gains(reached, recipe.seed),
    }
}

fn write(folder: &Path, ended: &[Ended]) -> Result<()> {
    fs::create_dir_all(folder).at("create", folder)?;
    let text = serde_json::to_string_pretty(ended).map_err(|e| Error::Internal(e.to_string()))?;
    files::replace(&folder.join(RUNS), (text + "\n").as_bytes())
}

/// All combinations of the values, with a description and the recipe.
fn variants(recipe: &Recipe, varied: &[(String, Vec<String>)]) -> Result<Vec<(String, Recipe)>> {
    let mut all = vec![(String::new(), recipe.clone())];
    for (setting, values) in varied {
        let mut more = Vec::with_capacity(all.len() * values.len());
        for (words, recipe) in &all {
            for value in values {
                let comma = if words.is_empty() { "" } else { ", " };
                more.push((format!("{words}{comma}{setting}={value}"), with(recipe, setting, value)?));
            }
        }
        all = more;
    }
    Ok(all)
}

/// Returns the recipe with a different value of one option, which has the name of the recipe file.
fn with(recipe: &Recipe, setting: &str, value: &str) -> Result<Recipe> {
    let mut table = toml::Table::try_from(recipe).map_err(|e| Error::Internal(e.to_string()))?;
    let text = format!("value = {value}");
    let parsed = text.parse::<toml::Table>().ok().and_then(|mut t| t.remove("value"));
    table.insert(
        Recipe::stored_name(setting).to_owned(),
        parsed.unwrap_or_else(|| toml::Value::String(value.to_owned())),
    );
    table.try_into().map_err(|e: toml::de::Error| {
        let what = e.message().lines().next().unwrap_or_default();
        match Recipe::unknown_setting(what) {
            Some(unknown) => unknown,
            None => Error::input(format!("{setting} cannot be {value}: {what}"))
                .with_hint("write values as in the recipe.toml of a run"),
        }
    })
}

/// Prints the results of each setting over its seeds.
fn report(ended: &[Ended], args: &TrainRunArgs, context: &Context<'_>) -> Result<()> {
    context.printer.result(&ended, |out| {
        let mut settings: Vec<&str> = Vec::new();
        for one in ended {
            if !settings.contains(&one.settings.as_str()) {
                settings.push(&one.settings);
            }
        }
        for setting in settings {
            let own: Vec<&Ended> = ended.iter().filter(|e| e.settings == setting).collect();
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
                let worst = own
                    .iter()
                    .filter_map(|e| e.dev.get(n)?.p)
                    .fold(None, |most: Option<f64>, p| Some(most.map_or(p, |most| most.max(p))));
                let of_several = if own.len() > 1 { " at most" } else { "" };
                let worst = worst.map_or_else(String::new, |p| format!(" (p {p:.4}{of_several})"));
                writeln!(out, "  {}: {line}{worst}", gain.what())?;
            }
        }
        writeln!(out, "all results are in {}", args.output().join(RUNS).display())
    })
}

/// Formats the means before and after training, with the standard deviation of the latter.
fn mean_change(values: impl Iterator<Item = (f64, f64)>) -> String {
    let (start, kept): (Vec<f64>, Vec<f64>) = values.unzip();
    let several = kept.len() > 1;
    let ((start, _), (kept, deviation)) = (mean_and_deviation(&start), mean_and_deviation(&kept));
    let deviation = if several { format!(" ± {:.2}", 100.0 * deviation) } else { String::new() };
    format!("{:.2} → {:.2}{deviation}", 100.0 * start, 100.0 * kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_train::recipe::ObjectiveName;

    #[test]
    fn settings_vary_by_their_names() {
        let recipe = Recipe::new(ObjectiveName::Dialoguecse, "m".to_owned(), vec!["c".into()]);
        let vary = [
            ("temperature".to_owned(), vec!["0.05".to_owned(), "0.2".to_owned()]),
            ("negatives".to_owned(), vec!["4".to_owned()]),
            ("aggregation".to_owned(), vec!["i1".to_owned()]),
        ];
        let all = variants(&recipe, &vary).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[1].0, "temperature=0.2, negatives=4, aggregation=i1");
        assert_eq!((all[1].1.temperature, all[1].1.negatives), (Some(0.2), Some(4)));
        for (setting, value) in [("negatives", "many"), ("aggregation", "i3")] {
            let error = with(&recipe, setting, value).unwrap_err().to_string();
            assert!(error.contains(setting) && error.contains(value), "{error}");
        }
        assert_eq!(with(&recipe, "temprature", "1").unwrap_err().to_string(), "unknown setting `temprature`");
    }
}
