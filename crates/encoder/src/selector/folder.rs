//! Model folders of selectors.
//!
//! A selector that reads tokens is stored as a cross-encoder of sentence-transformers, so that sentence-transformers
//! can load it, too. The file `selector.json` has the settings that only turnwise knows. Cross-encoders of
//! sentence-transformers do not have this file.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use turnwise_core::error::{Error, Result};

use super::{
    Trained,
    head::Head,
    settings::{Divider, HeadKind, History, SelectorSettings},
};
use crate::{
    Network,
    fingerprint::{Fingerprint, Fingerprinter},
    folder::{Architecture, ModelFolder, Pipeline, SELECTOR, Tokenizer, bytes_of, save},
};

/// Prefix of the names of the tensors of a separate network for sentence vectors.
const SENTENCE_NETWORK: &str = "sentence_encoder.";

/// Function that converts the output of the head to the shown score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScoreActivation {
    /// Logistic function: the score is a probability.
    #[serde(rename = "sigmoid")]
    Sigmoid,
    /// The output itself.
    #[serde(rename = "identity")]
    Identity,
}

impl ScoreActivation {
    /// Converts an output of the head to a score.
    pub fn apply(self, output: f32) -> f32 {
        match self {
            ScoreActivation::Sigmoid => 1.0 / (1.0 + (-output).exp()),
            ScoreActivation::Identity => output,
        }
    }
}

/// A selector in a folder.
#[derive(Debug)]
pub(super) struct SelectorFolder {
    pub(super) folder: ModelFolder,
    pub(super) settings: SelectorSettings,
    pub(super) head: Head,
    pub(super) activation: ScoreActivation,
    /// True if turnwise trained the selector. Otherwise, it is a cross-encoder for a query and a text.
    pub(super) is_own: bool,
}

impl SelectorFolder {
    /// Opens the folder of a selector, or of a cross-encoder of sentence-transformers.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let folder = ModelFolder::open_scorer(path)?;
        let config = folder.config();
        let file: Option<SelectorSettings> = crate::folder::parse_json(&path.join(SELECTOR))?;
        let positions = folder.pipeline().max_tokens;
        let is_own = file.is_some();
        let settings = file.unwrap_or(SelectorSettings {
            history: History::Tokens,
            max_tokens: positions,
            divider: Divider::None,
            head: HeadKind::Pooler,
            sentences: None,
        });
        settings.check(config.max_tokens()).map_err(|e| {
            Error::data(format!("{}: {e}", path.join(SELECTOR).display()))
                .with_hint("train the selector again")
        })?;
        let head = Head::read(folder.weights(), config, folder.prefix(), settings.head);
        let head = head.map_err(|e| match is_own {
            true => e,
            false => Error::data(format!("{} is not a cross-encoder with one score: {e}", path.display()))
                .with_hint("use the folder of a selector (`turnwise train selector`), or a cross-encoder of sentence-transformers"),
        })?;
        let activation = activation(path)?;
        Ok(SelectorFolder { folder, settings, head, activation, is_own })
    }

    fn has_sentence_network(&self) -> bool {
        self.settings.sentences.is_some_and(|sentences| sentences.frozen)
    }

    /// Reads the separate network for sentence vectors. Returns `None` if the selector has none.
    pub(super) fn sentence_network(&self) -> Result<Option<Network>> {
        self.has_sentence_network().then(|| self.folder.network_at(SENTENCE_NETWORK)).transpose()
    }

    /// Returns the fingerprint, which identifies the selector.
    pub(super) fn fingerprint(&self) -> Result<Fingerprint> {
        let mut all = Fingerprinter::new("selector");
        let head = &self.head;
        all.text("model", self.folder.fingerprint()?)
            .text("settings", format_args!("{:?} {}", self.settings, self.is_own))
            .part("head", &bytes_of(&head.weight))
            .part("bias", &head.bias.to_le_bytes())
            .text(
                "scales",
                format_args!("{:?}", head.scales.map(|scales| scales.values().map(f32::to_bits))),
            );
        if self.has_sentence_network() {
            self.folder.hash_network_at(SENTENCE_NETWORK, &mut all)?;
        }
        if let Some((weight, bias, activation)) = &head.hidden {
            all.text("hidden", format_args!("{activation:?}"))
                .part("weight", &bytes_of(weight))
                .part("bias", &bytes_of(bias));
        }
        if let Some((norm, epsilon)) = &head.norm {
            all.text("norm", epsilon.to_bits())
                .part("weight", &bytes_of(&norm.weight))
                .part("bias", &bytes_of(&norm.bias))
                .text("pooling", format_args!("{:?}", head.pooling));
        }
        Ok(all.finish())
    }
}

/// A selector that is trained further: its parts beside the network and the tokenizer.
#[derive(Debug)]
pub struct StartSelector {
    /// Settings of the selector.
    pub settings: SelectorSettings,
    /// Layers that compute the score.
    pub head: Head,
    /// Separate network for sentence vectors; `None` if the selector has none.
    pub sentence_network: Option<Network>,
    /// Fingerprint of the selector.
    pub fingerprint: Fingerprint,
}

impl StartSelector {
    /// Opens the folder of a selector, or of a cross-encoder of sentence-transformers. Returns `None` if it is the folder
    /// of another model.
    pub fn open(path: &Path) -> Result<Option<(ModelFolder, Self)>> {
        if !is_selector(path) {
            return Ok(None);
        }
        let opened = match SelectorFolder::open(path) {
            // A classifier with several classes has no score. Only its network can be used.
            Err(Error::Data { .. }) if !path.join(SELECTOR).is_file() => return Ok(None),
            opened => opened?,
        };
        let (sentence_network, fingerprint) = (opened.sentence_network()?, opened.fingerprint()?);
        let SelectorFolder { folder, settings, head, .. } = opened;
        Ok(Some((folder, StartSelector { settings, head, sentence_network, fingerprint })))
    }
}

/// Returns true if a folder contains a selector or a cross-encoder, and false if it contains an encoder.
pub fn is_selector(folder: &Path) -> bool {
    let kind = |name: &str, key: &str| {
        let file: Option<Value> = crate::folder::parse_json(&folder.join(name)).ok().flatten();
        file.and_then(|file| file.get(key).cloned())
    };
    let classifies = |classes: Value| {
        classes.as_array().is_some_and(|classes| {
            classes
                .iter()
                .any(|class| class.as_str().is_some_and(|c| c.ends_with("ForSequenceClassification")))
        })
    };
    folder.join(SELECTOR).is_file()
        || kind("config_sentence_transformers.json", "model_type").is_some_and(|kind| kind == "CrossEncoder")
        || (!folder.join("modules.json").exists()
            && kind("config.json", "architectures").is_some_and(classifies))
}

/// Returns the activation function of the scores: sentence-transformers stores it in different files, depending on its
/// version. The default is the logistic function.
fn activation(path: &Path) -> Result<ScoreActivation> {
    let read = |name: &str| crate::folder::parse_json::<Value>(&path.join(name));
    let (config, own) = (read("config.json")?, read("config_sentence_transformers.json")?);
    let at = |file: &Option<Value>, pointer: &str| {
        file.as_ref().and_then(|file| file.pointer(pointer)?.as_str().map(str::to_owned))
    };
    let class = at(&own, "/activation_fn")
        .or_else(|| at(&config, "/sentence_transformers/activation_fn"))
        .or_else(|| at(&config, "/sbert_ce_default_activation_function"));
    match class.as_deref().and_then(|class| class.rsplit('.').next()) {
        None | Some("Sigmoid") => Ok(ScoreActivation::Sigmoid),
        Some("Identity") => Ok(ScoreActivation::Identity),
        Some(other) => Err(Error::data(format!(
            "{}: the activation `{other}` of the scores is not supported",
            path.display()
        ))
        .with_hint("supported: Sigmoid, Identity")),
    }
}

/// A selector to save.
#[derive(Debug, Clone, Copy)]
pub struct SavedSelector<'a> {
    /// Networks, head and settings.
    pub trained: Trained<'a>,
    /// Architecture, which determines the names of the parameters.
    pub architecture: Architecture,
    /// Pipeline of the base model.
    pub pipeline: &'a Pipeline,
    /// Tokenizer of the model.
    pub tokenizer: &'a Tokenizer,
    /// Name of the base model.
    pub base: Option<&'a str>,
}

/// Writes a selector to a new folder, in the same way as [`crate::folder::save`].
pub fn save_selector(path: &Path, selector: &SavedSelector) -> Result<()> {
    let SavedSelector { trained, architecture, tokenizer, base, .. } = *selector;
    let Trained { network, sentence_network, head, settings } = trained;
    let pipeline = Pipeline {
        // Prompts, pooling and final steps belong to the encoder that the selector was trained from.
        steps: Vec::new(),
        max_tokens: settings.max_tokens,
        ..selector.pipeline.clone()
    };
    let model = crate::folder::SavedModel {
        network,
        architecture,
        pipeline: &pipeline,
        tokenizer,
        base,
        pooler: None,
    };
    let mut files = save::network_texts(&model)?;
    for (name, text) in &mut files {
        if name.as_path() == Path::new("config.json") {
            let mut config: Value =
                serde_json::from_str(text).map_err(|e| Error::Internal(format!("config.json: {e}")))?;
            // Only tokens as input and two layers as head make a model of transformers.
            let is_common = settings.head == HeadKind::Pooler && settings.history == History::Tokens;
            config["architectures"] = json!([match is_common {
                true => architecture.class().replace("Model", "ForSequenceClassification"),
                false => "TurnwiseSelector".to_owned(),
            }]);
            config["id2label"] = json!({ "0": "LABEL_0" });
            config["label2id"] = json!({ "LABEL_0": 0 });
            *text = format!("{config:#}\n");
        }
    }
    let own = json!({
        "__version__": { "turnwise": env!("CARGO_PKG_VERSION") },
        "model_type": "CrossEncoder",
        "activation_fn": "torch.nn.modules.activation.Sigmoid",
        "prompts": {},
        "default_prompt_name": null,
        "turnwise": { "base": base },
    });
    files.push(("config_sentence_transformers.json".into(), format!("{own:#}\n")));
    let file = serde_json::to_value(settings).map_err(|e| Error::Internal(e.to_string()))?;
    files.push((SELECTOR.into(), format!("{file:#}\n")));
    let mut tensors = head.tensors(architecture, architecture.prefix());
    if let Some(network) = sentence_network {
        tensors.extend(save::named_tensors(network, architecture, SENTENCE_NETWORK));
    }
    save::save_files(path, &files, &model, architecture.prefix(), tensors)
}
