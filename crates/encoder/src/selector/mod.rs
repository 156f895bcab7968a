//! Selectors: models that score a response to a context. They read the context and the response together, unlike
//! encoders, which encode each alone.
//!
//! A selector reads the context turns as tokens (a cross-encoder), or as one sentence vector per turn. Sentence vectors
//! are computed once per context, and they make long contexts fit into short sequences. Cross-encoders of
//! sentence-transformers are selectors that read tokens.

mod folder;
mod head;
mod layout;
mod select;
mod settings;

use std::{path::Path, sync::atomic::AtomicUsize};

use turnwise_core::error::Result;

use crate::{
    Backend, DeviceChoice, Fingerprint, Network, Precision,
    fingerprint::Fingerprinter,
    folder::{ModelFolder, Tokenizer, bytes_of},
    open,
};

pub use folder::{SavedSelector, ScoreActivation, is_selector, save_selector};
pub use head::{Head, HeadActivation, Scales};
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
    backend: Box<dyn Backend>,
    /// Number of layers of the network.
    layers: usize,
    /// Maximum number of tokens per batch. It is reduced when the device runs out of memory.
    budget: AtomicUsize,
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
    /// Number of responses that were cut off.
    pub cut_responses: usize,
    /// Number of tokens and sentence vectors in the sequences of the responses.
    pub tokens: u64,
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
        let fingerprint = fingerprint(&opened)?;
        let backend = open::selector_engine(&network, device, precision)?;
        Ok(Selector {
            name: name.to_owned(),
            tokenizer,
            layout,
            head: opened.head,
            activation: opened.activation,
            is_own: opened.is_own,
            fingerprint,
            layers: network.layers.len(),
            budget: AtomicUsize::new(backend.best_batch()),
            backend,
        })
    }

    /// Creates a selector from the tokenizer of `folder` and from the weights of a training run.
    pub fn of_training(
        name: &str,
        folder: &ModelFolder,
        network: &Network,
        head: Head,
        settings: SelectorSettings,
        device: DeviceChoice,
    ) -> Result<Self> {
        let tokenizer = folder.tokenizer()?;
        let backend = open::selector_engine(network, device, None)?;
        Ok(Selector {
            name: name.to_owned(),
            layout: Layout::new(settings, &tokenizer, &network.embeddings)?,
            tokenizer,
            head,
            activation: ScoreActivation::Sigmoid,
            is_own: true,
            fingerprint: folder.fingerprint()?,
            layers: network.layers.len(),
            budget: AtomicUsize::new(backend.best_batch()),
            backend,
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
        self.backend.describe()
    }
}

fn fingerprint(opened: &folder::SelectorFolder) -> Result<Fingerprint> {
    let mut all = Fingerprinter::new("selector");
    let head = &opened.head;
    all.text("model", opened.folder.fingerprint()?)
        .text("settings", format_args!("{:?} {}", opened.settings, opened.is_own))
        .part("head", &bytes_of(&head.weight))
        .part("bias", &head.bias.to_le_bytes())
        .text("scales", format_args!("{:?}", head.scales.map(|scales| scales.values().map(f32::to_bits))));
    if let Some((weight, bias, activation)) = &head.hidden {
        all.text("hidden", format_args!("{activation:?}"))
            .part("weight", &bytes_of(weight))
            .part("bias", &bytes_of(bias));
    }
    Ok(all.finish())
}

impl std::fmt::Debug for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selector").field("name", &self.name).field("settings", self.settings()).finish()
    }
}

#[cfg(test)]
mod tests;
