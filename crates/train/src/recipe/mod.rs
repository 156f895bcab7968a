//! Recipes: the settings of a training run, as stored in its TOML file.

mod built_in;
mod check;
mod resolve;
mod selector;

use std::{collections::BTreeMap, path::PathBuf, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

pub use super::objectives::{Aggregation, ObjectiveName, Profile};
pub use built_in::{about as known_about, names as known_names};
pub(super) use check::not_of_layers;
pub use resolve::{AuxiliarySettings, Given, LayerSettings, ResolvedRecipe, StepSettings};
pub use selector::SelectorRecipe;

use super::{optimizer::Shape, run::evaluations::Selection};
use turnwise_core::error::{Error, Result};
pub use turnwise_encoder::selector::{Divider, Frame, HeadKind, History, SentencePooling};

/// Settings of a training run, as given in a recipe file or on the command line.
///
/// An optional setting that was not given is `None`. [`Recipe::resolve`] sets it to the default of the objective, and
/// rejects settings that the objective does not use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Training objective.
    pub objective: ObjectiveName,
    /// Base model: a folder or a name. Empty if the recipe file omits it; the command line then sets it.
    #[serde(default)]
    pub model: String,
    /// Training dialogues: indexes, files and folders. Empty if the recipe file omits them.
    #[serde(default)]
    pub corpus: Vec<PathBuf>,
    /// Auxiliary objectives with the weights of their losses.
    #[serde(default, rename = "beside", alias = "auxiliary", skip_serializing_if = "Option::is_none")]
    pub auxiliary: Option<BTreeMap<ObjectiveName, f64>>,
    /// Number of training steps.
    #[serde(default, deserialize_with = "not_zero", skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Batch size: number of examples per step.
    #[serde(default, deserialize_with = "not_zero", skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// Number of micro-batches per step. More micro-batches need less memory. Compared with one large batch, the
    /// gradients differ only by dropout and rounding.
    #[serde(default = "one")]
    pub parts: usize,
    /// Peak learning rate.
    #[serde(default, deserialize_with = "not_zero", skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Learning rate schedule after the warm-up.
    #[serde(default)]
    pub schedule: Shape,
    /// Number of warm-up steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<u64>,
    /// Weight decay.
    #[serde(default = "decay")]
    pub weight_decay: f64,
    /// Maximum gradient norm; 0 disables clipping.
    #[serde(default = "clip")]
    pub clip: f64,
    /// Dropout probability.
    #[serde(default = "dropout")]
    pub dropout: f64,
    /// Number of frozen layers, counted from the embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_layers: Option<usize>,
    /// Maximum number of tokens of an input sequence (an utterance or a dialogue).
    #[serde(default, deserialize_with = "not_zero", skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<usize>,
    /// Temperature τ of the softmax.
    #[serde(default, deserialize_with = "not_zero", skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Number of negatives per positive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negatives: Option<usize>,
    /// Number of hard negatives among the negatives (`dialoguecse`, `joint`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_negatives: Option<usize>,
    /// Number of context turns: around a response (`dialoguecse`, `joint`), on each side of an utterance
    /// (`context-cca`), or before a response (other objectives).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// Aggregation of the context turns (`dialoguecse`, `joint`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<Aggregation>,
    /// True to append a `context-cca` layer to the trained encoder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub layer: bool,
    /// Weight of the context in the `context-cca` layer, from 0 to 1. The original vectors have the remaining weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
    /// Window size in turns (`dial2vec`): turns that are further apart are not matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Variant of dial2vec: as in the paper, or as in its released code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// How a selector reads a context and a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<SelectorRecipe>,
    /// True to remove the nickname of the addressee at the start of utterances (IRC).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strip_nicks: bool,
    /// True to merge consecutive turns of one speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_turns: Option<bool>,
    /// Minimum number of turns; shorter dialogues are skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_turns: Option<usize>,
    /// Maximum number of training dialogues, drawn at random; `None` uses all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialogues: Option<usize>,
    /// Random seed.
    #[serde(default)]
    pub seed: u64,
    /// Number of steps between checkpoints.
    #[serde(default = "every")]
    pub checkpoint_every: u64,
    /// Number of steps between evaluations; 0 disables them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluate_every: Option<u64>,
    /// Labeled tasks that evaluate the model during training.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dev: Vec<DevTask>,
    /// Maximum number of held-out dialogues for the label-free evaluation. At most a tenth of the corpus is held out.
    #[serde(default, rename = "aside", alias = "held_out", skip_serializing_if = "Option::is_none")]
    pub held_out: Option<usize>,
    /// Criterion that selects the step of the saved model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select: Option<Selection>,
    /// Number of evaluations without an improvement after which the run stops early; 0 disables early stopping.
    #[serde(default = "patience")]
    pub patience: usize,
}

/// Defines functions that return the defaults of settings.
macro_rules! defaults {
    ($($name:ident: $type:ty = $value:expr),* $(,)?) => {
        $(fn $name() -> $type { $value })*
    };
}

defaults! { one: usize = 1, decay: f64 = 0.01, clip: f64 = 1.0, dropout: f64 = 0.1, every: u64 = 20, patience: usize = 3 }

/// Deserializes a number and rejects 0.
fn not_zero<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default + PartialEq,
{
    let number = T::deserialize(from)?;
    match number == T::default() {
        true => Err(D::Error::custom("must be a number above 0")),
        false => Ok(Some(number)),
    }
}

impl Recipe {
    /// Creates a recipe with the given settings. All other settings have their defaults or are `None`.
    pub fn new(objective: ObjectiveName, model: String, corpus: Vec<PathBuf>) -> Self {
        Recipe {
            objective,
            model,
            corpus,
            auxiliary: None,
            steps: None,
            batch: None,
            parts: one(),
            learning_rate: None,
            schedule: Shape::default(),
            warm_up: None,
            weight_decay: decay(),
            clip: clip(),
            dropout: dropout(),
            frozen_layers: None,
            max_tokens: None,
            temperature: None,
            negatives: None,
            hard_negatives: None,
            context: None,
            aggregation: None,
            layer: false,
            strength: None,
            window: None,
            profile: None,
            selector: None,
            strip_nicks: false,
            merge_turns: None,
            min_turns: None,
            dialogues: None,
            seed: 0,
            checkpoint_every: every(),
            evaluate_every: None,
            dev: Vec::new(),
            held_out: None,
            select: None,
            patience: patience(),
        }
    }

    /// Returns the name that a setting has in recipe files. The files use older names for `auxiliary` and `held_out`,
    /// so that earlier versions can read them.
    pub fn stored_name(setting: &str) -> &str {
        match setting {
            "auxiliary" => "beside",
            "held_out" => "aside",
            other => other,
        }
    }

    /// Converts serde's message about an unknown field to an error that suggests a similar setting.
    ///
    /// Returns `None` for any other message.
    pub fn unknown_setting(message: &str) -> Option<Error> {
        let names = message.strip_prefix("unknown field ")?;
        let mut names = names.split('`').skip(1).step_by(2);
        let unknown = names.next()?;
        Some(Error::unknown_name("setting", unknown, names))
    }
}

/// A benchmark task with its data, for example `sr:select.txt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DevTask {
    /// Name of the task, one of [`DevTask::KNOWN`].
    pub task: String,
    /// Path of the task's data.
    pub data: PathBuf,
}

impl DevTask {
    /// Names of all supported tasks.
    pub const KNOWN: [&str; 4] = ["sr", "dsts", "response", "dialogues"];
}

impl FromStr for DevTask {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((task, data)) = text.split_once(':').filter(|(_, data)| !data.is_empty()) else {
            return Err(Error::input(format!("`{text}` is not a task with its data (TASK:PATH)"))
                .with_hint("for example: dialogues:labeled.jsonl or sr:select.txt"));
        };
        match DevTask::KNOWN.contains(&task) {
            true => Ok(DevTask { task: task.to_owned(), data: data.into() }),
            false => Err(Error::unknown_name("task", task, DevTask::KNOWN)),
        }
    }
}

impl TryFrom<String> for DevTask {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<DevTask> for String {
    fn from(task: DevTask) -> String {
        format!("{}:{}", task.task, task.data.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(objective: ObjectiveName) -> Recipe {
        Recipe::new(objective, "m".to_owned(), vec!["c".into()])
    }

    #[test]
    fn missing_settings_are_those_of_the_papers() {
        let resolved = |r: Recipe, layers, tokens| r.resolve(layers, tokens).unwrap().file;
        let usual = |r: &Recipe| {
            (r.batch.unwrap(), r.learning_rate.unwrap(), r.max_tokens.unwrap(), r.temperature.unwrap())
        };
        let r = resolved(recipe(ObjectiveName::Dialoguecse), 12, 512);
        assert_eq!(usual(&r), (20, 5e-5, 50, 0.1));
        assert_eq!((r.frozen_layers, r.negatives, r.context), (Some(6), Some(9), Some(3)));
        let mut r = resolved(recipe(ObjectiveName::Dial2vec), 6, 256);
        assert_eq!(usual(&r), (5, 1e-5, 256, 0.2));
        assert_eq!((r.frozen_layers, r.negatives, r.window), (Some(3), Some(9), Some(10)));
        r.batch = Some(7);
        assert_eq!(resolved(r.clone(), 6, 256), r);
    }

    /// Checkpoints contain a hash of the recipe. This recipe and this hash come from a run of an earlier version.
    #[test]
    fn a_recipe_has_the_same_hash_as_in_earlier_versions() {
        let mut given =
            Recipe::new(ObjectiveName::Neighbors, "all-MiniLM-L6-v2".to_owned(), vec!["chats".into()]);
        given.steps = Some(2);
        let recipe = given.resolve(6, 256).unwrap();
        let inputs = ("a05b8f93bf1ba981b99bca108dce5159", "715a30c8c97665b41d86323595c1f0ed");
        let bytes = serde_json::to_vec(&(&recipe.file, inputs.0, inputs.1)).unwrap();
        let hash = blake3::hash(&bytes).to_hex();
        assert_eq!(&hash[..32], "b6afd0c2b0d6f58e1fc95a4b1b35c542", "{}", String::from_utf8_lossy(&bytes));
        let stored = toml::to_string(&recipe.file).unwrap();
        assert!(stored.contains("aside = 400") && stored.contains("[beside]\nkeep = 40.0"), "{stored}");
        assert_eq!(toml::from_str::<Recipe>(&stored).unwrap(), recipe.file);
    }

    #[test]
    fn settings_have_old_and_new_names() {
        let read = |text: &str| toml::from_str::<Recipe>(&format!("objective = \"simcse\"\n{text}")).unwrap();
        assert_eq!(
            read("aside = 20\nbeside = { keep = 1.0 }"),
            read("held_out = 20\nauxiliary = { keep = 1.0 }")
        );
    }

    #[test]
    fn former_names_of_objectives_are_accepted_and_stored() {
        let former = [
            ("neighbours", ObjectiveName::Neighbors),
            ("surroundings", ObjectiveName::ContextCca),
            ("places", ObjectiveName::RolePosition),
            ("words", ObjectiveName::Mlm),
            ("keep", ObjectiveName::SelfDistillation),
        ];
        for (name, objective) in former {
            assert_eq!(name.parse::<ObjectiveName>().unwrap(), objective);
            let read = |name: &str| {
                let text = format!("objective = {name:?}\nauxiliary = {{ {name} = 1.0 }}");
                toml::from_str::<Recipe>(&text).unwrap()
            };
            assert_eq!(read(name), read(objective.name()));
            let stored = toml::to_string(&read(objective.name())).unwrap();
            assert!(stored.contains(&format!("objective = {name:?}")), "{stored}");
            assert!(stored.contains(&format!("{name} = 1.0")), "{stored}");
        }
    }

    #[test]
    fn every_objective_has_valid_defaults() {
        for objective in ObjectiveName::ALL.iter().copied() {
            assert_eq!(objective.name().parse::<ObjectiveName>().unwrap(), objective);
            let only_auxiliary =
                objective.definition().role == crate::objectives::definition::Role::Auxiliary;
            let resolved = recipe(objective).resolve(12, 512);
            assert_eq!(resolved.is_err(), only_auxiliary, "{}", objective.name());
            // A completed recipe resolves to itself.
            if let Ok(resolved) = resolved {
                assert_eq!(resolved.file.clone().resolve(12, 512).unwrap().file, resolved.file);
            }
        }
    }

    #[test]
    fn invalid_settings_are_rejected() {
        let error = |change: fn(&mut Recipe)| {
            let mut r = recipe(ObjectiveName::Simcse);
            change(&mut r);
            r.resolve(6, 256).unwrap_err().to_string()
        };
        assert!(error(|r| r.window = Some(3)).contains("`simcse` does not use the setting window"));
        assert!(error(|r| r.learning_rate = Some(-1.0)).contains("learning_rate"));
        assert!(error(|r| r.dropout = f64::NAN).contains("dropout"));
        assert!(error(|r| r.batch = Some(1)).contains("batch"));
        assert!("simsce".parse::<ObjectiveName>().is_err());
    }

    #[test]
    fn a_mistyped_setting_gets_a_suggestion() {
        let read = |text: &str| toml::from_str::<Recipe>(text).unwrap_err();
        let e = Recipe::unknown_setting(read("temprature = 1").message()).unwrap();
        assert_eq!(e.to_string(), "unknown setting `temprature`");
        assert_eq!(e.hint().unwrap(), "did you mean `temperature`?");
        assert!(Recipe::unknown_setting(read("steps = true").message()).is_none());
        assert_eq!(read("temperature = 0.0").message(), "must be a number above 0");
    }
}
