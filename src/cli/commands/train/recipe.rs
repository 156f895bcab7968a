//! Builds the recipe of a training run (objective, model, data and options) from the command line.

use crate::cli::{
    args::{Preset, TrainRunArgs},
    encoders::DEFAULT_MODEL,
    prelude::*,
};
use turnwise_train::{
    objectives::definition::Role,
    recipe::{ObjectiveName, Recipe, known_names},
};

/// Replaces optional fields of a recipe with the options of the same names, if given.
macro_rules! override_optional {
    ($recipe:ident, $options:ident: $($field:ident),+) => { $($recipe.$field = $options.$field.or($recipe.$field);)+ };
}

/// Replaces required fields of a recipe with the options of the same names, if given.
macro_rules! override_required {
    ($recipe:ident, $options:ident: $($field:ident),+) => { $($recipe.$field = $options.$field.unwrap_or($recipe.$field);)+ };
}

/// Returns the recipe of a run: the recipe given by name or file, or a new recipe for an objective, changed by the
/// options.
pub(super) fn of(args: &TrainRunArgs, context: &Context<'_>) -> Result<Recipe> {
    let (mut recipe, is_written) =
        match (is_file(args.objective_or_recipe()), Recipe::known(args.objective_or_recipe())) {
            (true, _) => (read(Path::new(args.objective_or_recipe()))?, true),
            (false, Some(known)) => (known?, true),
            (false, None) => {
                (Recipe::new(objective(args.objective_or_recipe())?, String::new(), Vec::new()), false)
            }
        };
    let default_data = (is_written && !is_file(args.objective_or_recipe())).then_some(Path::new("data"));
    if let Some(folder) = args.data.as_deref().or(default_data) {
        recipe.below(folder);
    }
    if default_data.is_some() {
        check_data(&recipe, args)?;
    }
    if let Some(model) = &args.model {
        recipe.model.clone_from(model);
    }
    if recipe.model.is_empty() {
        DEFAULT_MODEL.clone_into(&mut recipe.model);
    }
    if !args.corpus.is_empty() {
        recipe.corpus.clone_from(&args.corpus);
    }
    if recipe.corpus.is_empty() {
        let of_run = args.output().join("recipe.toml");
        return Err(Error::input("no dialogues to train on").with_hint(
            match args.resume && of_run.exists() {
                true => format!(
                    "the recipe of the run names its dialogues; to continue it: turnwise train {} -o {} --resume",
                    of_run.display(),
                    args.output().display()
                ),
                false => "name an index or files: --corpus chats/".to_owned(),
            },
        ));
    }
    if context.settings.is_given("seed") || !is_written {
        recipe.seed = context.settings.seed;
    }
    let (run, goal) = (&args.run, &args.goal);
    refuse_zero("--steps", run.steps)?;
    refuse_zero("--batch", run.batch)?;
    refuse_zero("--learning-rate", run.learning_rate)?;
    refuse_zero("--max-tokens", goal.max_tokens)?;
    refuse_zero("--temperature", goal.temperature)?;
    let evaluation = &args.evaluation;
    override_optional!(recipe, run: steps, batch, learning_rate, warm_up, frozen_layers);
    override_optional!(recipe, evaluation: evaluate_every, held_out, select);
    override_optional!(recipe, goal: max_tokens, temperature, negatives, hard_negatives, context, aggregation);
    override_optional!(recipe, goal: window, profile, merge_turns, min_turns, dialogues);
    args.selector.add_to(&mut recipe.selector);
    recipe.strength = goal.context_weight.or(recipe.strength);
    override_required!(recipe, run: parts, schedule, weight_decay, clip, dropout, checkpoint_every);
    override_required!(recipe, evaluation: patience);
    recipe.layer |= goal.context_layer;
    recipe.strip_nicks |= args.read.strip_nicks;
    if !evaluation.dev.is_empty() {
        recipe.dev.clone_from(&evaluation.dev);
    }
    if !goal.auxiliary.is_empty() {
        recipe.auxiliary = Some(goal.auxiliary.iter().copied().collect());
    }
    match args.preset {
        None => {}
        Some(Preset::Small) => make_small(&mut recipe),
    }
    Ok(recipe)
}

/// Returns an error if data files of a built-in recipe are missing, unless `--corpus` or `--dev` replaces them.
fn check_data(recipe: &Recipe, args: &TrainRunArgs) -> Result<()> {
    let corpus = recipe.corpus.iter().filter(|_| args.corpus.is_empty());
    let dev = recipe.dev.iter().map(|dev| &dev.data).filter(|_| args.evaluation.dev.is_empty());
    let missing: Vec<String> =
        corpus.chain(dev).filter(|path| !path.exists()).map(|path| path.display().to_string()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let all = missing.join(", ");
    Err(Error::input(format!("the recipe {} needs data that are missing: {all}", args.objective_or_recipe()))
        .with_hint(
            "set their folder with `--data FOLDER`, or replace them with `--corpus` and `--dev`; \
         `turnwise train list` shows which data are available",
        ))
}

/// Finds an objective by name. The suggestions for a misspelled name include recipes.
fn objective(name: &str) -> Result<ObjectiveName> {
    name.parse().map_err(|_| {
        let of_run = Path::new(name).join("recipe.toml");
        if of_run.is_file() {
            return Error::input(format!("{name} is the folder of a run, not an objective or a recipe"))
                .with_hint(format!("its recipe is {}", of_run.display()));
        }
        let all = ObjectiveName::ALL.iter().map(|objective| objective.definition());
        let main =
            all.filter(|definition| definition.role != Role::Auxiliary).map(|definition| definition.name);
        let known = ["auto"].into_iter().chain(main).chain(known_names());
        Error::unknown_name("objective or recipe", name, known)
    })
}

/// Applies `--preset small`: fewer steps, dialogues and tokens, for a model with twelve wide layers on two CPU cores.
/// Options that were given are not changed.
fn make_small(recipe: &mut Recipe) {
    recipe.dialogues.get_or_insert(5_000);
    let Some(training) = recipe.objective.definition().steps.as_ref() else { return };
    if recipe.steps.is_none() {
        recipe.steps = Some(100);
        recipe.warm_up.get_or_insert(10);
    }
    recipe.max_tokens.get_or_insert(training.max_tokens.min(128));
}

/// Returns an error if the value of an option is 0.
fn refuse_zero<T: Default + PartialEq>(option: &str, given: Option<T>) -> Result<()> {
    match given == Some(T::default()) {
        true => Err(Error::input(format!("{option} cannot be 0")).with_hint("use a number above 0")),
        false => Ok(()),
    }
}

fn is_file(what: &str) -> bool {
    what.ends_with(".toml")
}

fn read(path: &Path) -> Result<Recipe> {
    if !path.exists() {
        return Err(Error::input(format!("recipe {} not found", path.display())).with_hint(
            "`turnwise train list` shows the built-in recipes; the folder of every run has a recipe.toml",
        ));
    }
    let text = std::fs::read_to_string(path).at("read", path)?;
    toml::from_str(&text).map_err(|e| {
        // Shorten the parser's error to one line.
        let what = e.message().lines().next().unwrap_or_default();
        let unknown = Recipe::unknown_setting(what);
        let what = unknown.as_ref().map_or(what.to_owned(), ToString::to_string);
        let line = e.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let hint = unknown.and_then(|e| e.hint());
        Error::Data {
            message: format!("{}:{line}: {what}", path.display()),
            hint: hint.or(Some("the recipe.toml of any run shows the available options".to_owned())),
        }
    })
}
