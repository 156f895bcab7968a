//! Selectors: models that score a response to a context. They read the context and the response together, unlike
//! encoders, which encode each alone.
//!
//! A selector reads the context turns as tokens (a cross-encoder), or as one sentence vector per turn. Sentence vectors
//! are computed once per context, and they make long contexts fit into short sequences. Cross-encoders of
//! sentence-transformers are selectors that read tokens.

mod engine;
mod folder;
mod head;
mod layout;
mod select;
mod settings;

use std::path::Path;

use turnwise_core::error::Result;

use crate::{
    DeviceChoice, Fingerprint, Network, Precision,
    folder::{ModelFolder, Tokenizer},
};

pub use engine::Engine;
pub use folder::{SavedSelector, ScoreActivation, StartSelector, is_selector, save_selector};
pub use head::{Head, HeadActivation, HeadPooling, Scales};
pub use layout::{EOU, Layout, LayoutTokens, Pair, SENTENCE_SEGMENTS, Utterance};
pub use select::SOFTNESS;
pub use settings::{Divider, Frame, HeadKind, History, SelectorSettings, SentencePooling, SentenceSettings};

/// Scores responses to contexts.
pub struct Selector {
    name: String,
    tokenizer: Tokenizer,
    layout: Layout,
    head: Head,
    activation: ScoreActivation,
    is_own: bool,
    fingerprint: Fingerprint,
    engine: Engine,
    /// Separate network for the sentence vectors; `None` if the same network computes them.
    sentence_engine: Option<Engine>,
}

/// A context with the responses to score.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// Turns of the context, in order.
    pub context: &'a [&'a str],
    /// Candidate responses.
    pub responses: &'a [&'a str],
    /// Maximum number of tokens of the context. The last tokens are read. `None` if only the selector's own limits apply.
    pub last_tokens: Option<usize>,
}

impl<'a> Sample<'a> {
    /// Creates a sample with the whole context.
    pub fn new(context: &'a [&'a str], responses: &'a [&'a str]) -> Self {
        Sample { context, responses, last_tokens: None }
    }
}

/// Scores of the responses of a context.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Selected {
    /// Output of the head for each response. Higher is better.
    pub outputs: Vec<f32>,
    /// Number of context tokens, or of context turns if they are vectors, that were cut off. If the responses differ in
    /// length, this is the largest number.
    pub cut_context: usize,
    /// Indices of the responses of which only the beginning was read.
    pub cut_responses: Vec<usize>,
    /// Number of tokens and sentence vectors in the sequences of the responses.
    pub tokens: u64,
}

/// The parts of a selector that training changes, and its settings.
#[derive(Debug, Clone, Copy)]
pub struct Trained<'a> {
    /// Parameters of the network.
    pub network: &'a Network,
    /// Parameters of the separate network for sentence vectors; `None` if the same network computes them.
    pub sentence_network: Option<&'a Network>,
    /// Layers that compute the score.
    pub head: &'a Head,
    /// Settings of the selector.
    pub settings: &'a SelectorSettings,
}

impl Selector {
    /// Opens the selector or cross-encoder in a folder. `name` is its display name.
    pub fn open(name: &str, path: &Path, device: DeviceChoice, precision: Option<Precision>) -> Result<Self> {
        let opened = folder::SelectorFolder::open(path)?;
        let network = opened.folder.network()?;
        let tokenizer = opened.folder.tokenizer()?;
        let layout = Layout::new(opened.settings, &tokenizer, &network.embeddings)?;
        let layout = match opened.is_own || tokenizer.has_segments() {
            true => layout,
            false => layout.without_segments(),
        };
        let fingerprint = opened.fingerprint()?;
        let sentence_network = opened.sentence_network()?;
        let sentence_engine =
            sentence_network.map(|network| Engine::new(&network, device, precision)).transpose()?;
        Ok(Selector {
            name: name.to_owned(),
            tokenizer,
            layout,
            head: opened.head,
            activation: opened.activation,
            is_own: opened.is_own,
            fingerprint,
            engine: Engine::new(&network, device, precision)?,
            sentence_engine,
        })
    }

    /// Creates a selector from the tokenizer of `folder` and from the weights of a training run.
    pub fn of_training(
        name: &str,
        folder: &ModelFolder,
        trained: Trained<'_>,
        device: DeviceChoice,
    ) -> Result<Self> {
        let Trained { network, sentence_network, head, settings } = trained;
        let tokenizer = folder.tokenizer()?;
        let sentence_engine =
            sentence_network.map(|network| Engine::new(network, device, None)).transpose()?;
        Ok(Selector {
            name: name.to_owned(),
            layout: Layout::new(*settings, &tokenizer, &network.embeddings)?,
            tokenizer,
            head: head.clone(),
            activation: ScoreActivation::Sigmoid,
            is_own: true,
            fingerprint: folder.fingerprint()?,
            engine: Engine::new(network, device, None)?,
            sentence_engine,
        })
    }

    /// Returns the display name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fingerprint, which identifies the selector.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the settings.
    pub fn settings(&self) -> &SelectorSettings {
        self.layout.settings()
    }

    /// Returns the function that converts outputs to the scores that are shown.
    pub fn activation(&self) -> ScoreActivation {
        self.activation
    }

    /// Returns the device and precision for display.
    pub fn describe(&self) -> String {
        self.engine.backend.describe()
    }
}

impl std::fmt::Debug for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selector").field("name", &self.name).field("settings", self.settings()).finish()
    }
}

#[cfg(test)]
mod tests;
