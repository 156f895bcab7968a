//! Sweeps: several runs, with several seeds or with several values of a setting. Each run has its own subfolder, and
//! `runs.json` summarizes all of them.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    RunOptions,
    base_model::BaseModel,
    folder,
    observer::{self, RunObserver},
    outcome::Gain,
    run_one,
};
use crate::recipe::Recipe;
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

/// Name of the summary file in the output folder of a sweep.
pub const RUNS: &str = "runs.json";

/// Summary of a finished run of a sweep.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishedRun {
    /// Subfolder of the run.
    pub folder: String,
    /// The varied settings, as `name=value` pairs; empty if only the seed differs.
    pub settings: String,
    /// Random seed.
    pub seed: u64,
    /// Number of steps taken.
    pub steps: u64,
    /// Step of the saved model.
    pub kept: u64,
    /// Mean losses over the first and the last tenth of the steps; `None` without steps.
    #[serde(default)]
    pub loss: Option<[f64; 2]>,
    /// Fraction of the nearest neighbors by BM25 that are also nearest by vectors, before and after training. `None` if
    /// not measured.
    pub agreement: Option<[f64; 2]>,
    /// Score changes on held-out dialogues and on the dev tasks.
    pub dev: Vec<Gain>,
    /// True if a layer was learned. Not stored, because the folder of the run has a file for the layer.
    #[serde(skip)]
    pub has_layer: bool,
}

/// Trains one model for each combination of values and seeds. Returns all finished runs in the output folder, including
/// those of earlier calls.
///
/// `varied` lists settings, named as in the recipe file, with their values. Without `seeds`, all runs use the seed of
/// the recipe. `ended` is called after each run.
///
/// # Errors
///
/// [`Error::Input`] if a setting or value is invalid, or if the output folder contains runs and [`RunOptions::resume`]
/// is not set. If a run fails, its error is returned.
pub fn sweep(
    recipe: &Recipe,
    varied: &[(String, Vec<String>)],
    seeds: Option<&[u64]>,
    options: &RunOptions,
    observer: &dyn RunObserver,
    ended: &mut dyn FnMut(&FinishedRun),
) -> Result<Vec<FinishedRun>> {
    let variants = variants(recipe, varied)?;
    let each_seed = seeds.unwrap_or(std::slice::from_ref(&recipe.seed));
    let all = variants.len() * each_seed.len();
    let mut finished = earlier_runs(&options.output, options.resume)?;
    // Check all runs before training the first one.
    let mut planned: Vec<(String, _, &String, Recipe)> = Vec::with_capacity(all);
    for (settings, recipe) in &variants {
        BaseModel::open(recipe.clone(), &options.models)?;
        for seed in each_seed {
            let seeded = seeds.map(|_| format!("seed-{seed}"));
            let name = [(!settings.is_empty()).then(|| settings.replace(", ", "_")), seeded];
            let name = name.into_iter().flatten().collect::<Vec<_>>().join("/");
            let output = options.output.join(&name);
            // Runs that have not started yet cannot be resumed.
            let resume = options.resume && folder::has_run(&output);
            folder::check(&output, resume)?;
            if planned.iter().any(|(other, ..)| *other == name) {
                return Err(Error::input(format!("{settings} is in --vary twice"))
                    .with_hint("use each value once; for several seeds, use --seeds N"));
            }
            let own = RunOptions { output, resume, ..options.clone() };
            planned.push((name, own, settings, Recipe { seed: *seed, ..recipe.clone() }));
        }
    }
    // Earlier runs that are not planned again stay in the summary.
    finished.retain(|run| planned.iter().all(|(name, ..)| *name != run.folder));
    for (n, (name, own, settings, recipe)) in planned.into_iter().enumerate() {
        observer::check(observer, Some("continue with the same command and --resume"))?;
        observer.note(&format!("run {} of {all}: {name}", n + 1));
        let seed = recipe.seed;
        let (outcome, _) = run_one(recipe, &own, n == 0, observer)?;
        let run = FinishedRun {
            folder: name,
            settings: settings.clone(),
            seed,
            steps: outcome.steps,
            kept: outcome.kept,
            loss: outcome.losses.map(<[f64; 2]>::from),
            agreement: outcome.agreements(),
            dev: outcome.gains(seed),
            has_layer: outcome.learned.is_some(),
        };
        ended(&run);
        finished.push(run);
        fs::create_dir_all(&options.output).at("create", &options.output)?;
        files::replace_json(&options.output.join(RUNS), &finished)?;
    }
    Ok(finished)
}

/// Reads the summary file of a folder. Returns an empty list if the file does not exist, and an error if it exists and
/// `resume` is false.
fn earlier_runs(output: &Path, resume: bool) -> Result<Vec<FinishedRun>> {
    let path = output.join(RUNS);
    if !path.exists() {
        return Ok(Vec::new());
    }
    if !resume {
        return Err(Error::input(format!("{} already contains runs", output.display()))
            .with_hint("continue them with --resume, or choose a different folder"));
    }
    let text = fs::read_to_string(&path).at("read", &path)?;
    let mut finished: Vec<FinishedRun> = serde_json::from_str(&text).map_err(|e| {
        Error::corrupt(path, e.to_string())
            .with_hint("remove this file; it is written again from the existing runs")
    })?;
    for run in &mut finished {
        run.has_layer = output.join(&run.folder).join(folder::LAYER).is_file();
    }
    Ok(finished)
}

/// Returns a description and a recipe for each combination of the values.
fn variants(recipe: &Recipe, varied: &[(String, Vec<String>)]) -> Result<Vec<(String, Recipe)>> {
    let mut all = vec![(String::new(), recipe.clone())];
    for (setting, values) in varied {
        let mut more = Vec::with_capacity(all.len() * values.len());
        for (description, recipe) in &all {
            for value in values {
                let comma = if description.is_empty() { "" } else { ", " };
                more.push((format!("{description}{comma}{setting}={value}"), with(recipe, setting, value)?));
            }
        }
        all = more;
    }
    Ok(all)
}

/// Returns the recipe with one setting changed. `setting` is the name in recipe files.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::ObjectiveName;

    #[test]
    fn an_earlier_run_with_a_layer_has_one() {
        let output = tempfile::tempdir().unwrap();
        let run = |name: &str| {
            fs::create_dir(output.path().join(name)).unwrap();
            serde_json::json!({
                "folder": name, "settings": "", "seed": 0, "steps": 1, "kept": 1, "agreement": null, "dev": [],
            })
        };
        let runs = [run("plain"), run("layered")];
        fs::write(output.path().join(RUNS), serde_json::to_string(&runs).unwrap()).unwrap();
        fs::write(output.path().join("layered").join(folder::LAYER), "{}").unwrap();
        let finished = earlier_runs(output.path(), true).unwrap();
        assert_eq!(finished.iter().map(|run| run.has_layer).collect::<Vec<_>>(), [false, true]);
    }

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
