//! Selectors: models that score a response to a context. They read the context and the response together, unlike
//! encoders, which encode each alone.
//!
//! A selector reads the context turns as tokens (a cross-encoder), or as one sentence vector per turn. Sentence vectors
//! are computed once per context, and they make long contexts fit into short sequences. Cross-encoders of
//! sentence-transformers are selectors that read tokens.

mod folder;
mod head;
mod layout;
mod settings;

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicUsize},
};

use rayon::prelude::*;
use turnwise_core::error::{Error, Result};

use crate::{
    Backend, DeviceChoice, Fingerprint, InputVectors, Network, Part, Precision, Reduction, Vectors,
    fingerprint::Fingerprinter,
    folder::{ModelFolder, Tokenizer, bytes_of},
    open,
    transformer::{Item, run_items},
};

pub use folder::{SavedSelector, ScoreActivation, is_selector, save_selector};
pub use head::{Head, HeadActivation};
pub use layout::{EOU, Layout, LayoutTokens, Pair, SENTENCE_SEGMENTS, Utterance};
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

    /// Scores the responses of a context. Turns and responses without tokens are allowed; a turn without tokens is
    /// skipped. Fails if no turn of the context has a token.
    pub fn select(&self, context: &[&str], responses: &[&str]) -> Result<Selected> {
        let mut selected = self.select_all(&[Sample { context, responses }])?;
        selected.pop().ok_or_else(|| Error::Internal("the context was not scored".to_owned()))
    }

    /// Scores the responses of several contexts. The order of the results is the order of the samples.
    pub fn select_all(&self, samples: &[Sample<'_>]) -> Result<Vec<Selected>> {
        let tokenized = samples.par_iter().map(|sample| self.tokenize(sample));
        let tokenized = tokenized.collect::<Result<Vec<Tokenized>>>()?;
        let vectors = self.sentence_vectors(&tokenized)?;
        let (mut items, mut all, mut first_turn) = (Vec::new(), Vec::new(), 0);
        for sample in &tokenized {
            let turns: Vec<&[u32]> = sample.context.iter().map(Vec::as_slice).collect();
            let mut selected = Selected::default();
            // Responses of about the same length have the same turns, so they can share one copy of the vectors.
            let mut shared: Option<(usize, Arc<[f32]>)> = None;
            for response in &sample.responses {
                let pair = match vectors {
                    None if !self.is_own => self.layout.query_and_text(&turns.concat(), response),
                    None => self.layout.tokens(&turns, response),
                    Some(_) => self.layout.sentences(turns.len(), response),
                };
                selected.cut_context = selected.cut_context.max(sample.dropped + pair.cut_context);
                selected.cut_responses += usize::from(pair.cut_response > 0);
                let pools = pair.terms(self.settings().head);
                let mut sequence = pair.sequence;
                selected.tokens += sequence.len() as u64;
                if let (Some(vectors), Some((_, first))) = (&vectors, pair.vectors.first()) {
                    let count = pair.vectors.len();
                    let elements = match &shared {
                        Some((known, elements)) if *known == count => elements.clone(),
                        _ => {
                            let rows = first_turn + *first as usize..first_turn + *first as usize + count;
                            let elements: Arc<[f32]> =
                                rows.flat_map(|row| vectors.row(row)).copied().collect();
                            shared = Some((count, elements.clone()));
                            elements
                        }
                    };
                    let tokens = pair.vectors.iter().map(|(token, _)| *token).collect();
                    sequence.vectors = Some(InputVectors { tokens, elements });
                }
                items.push(Item { input: items.len(), sequence, pools });
            }
            first_turn += turns.len();
            all.push(selected);
        }
        let pools = items.first().map_or(1, |item| item.pools.len());
        let states = self.run(&items, items.len(), &[(self.layers, 1.0)], pools)?;
        let mut outputs = states.rows().map(|state| self.head.score(state));
        for (selected, sample) in all.iter_mut().zip(&tokenized) {
            selected.outputs = outputs.by_ref().take(sample.responses.len()).collect();
        }
        Ok(all)
    }

    /// Runs the network and computes `pools` weighted sums of states per item.
    fn run(&self, items: &[Item], inputs: usize, layers: &[(usize, f32)], pools: usize) -> Result<Vectors> {
        let reductions = vec![Reduction::Sum; pools];
        run_items(self.backend.as_ref(), &self.budget, layers, &reductions, items, inputs)
    }

    fn tokenize(&self, sample: &Sample<'_>) -> Result<Tokenized> {
        let pieces = |text: &&str| self.tokenizer.pieces(text);
        let mut context = match self.is_own {
            true => sample.context.iter().map(pieces).collect::<Result<Vec<_>>>()?,
            // A cross-encoder of sentence-transformers reads one text, not turns.
            false => vec![self.tokenizer.pieces(&sample.context.join(" "))?],
        };
        if self.is_own {
            context.retain(|turn| !turn.is_empty());
            if context.is_empty() {
                return Err(Error::input("there is nothing to answer: no turn of the context has text")
                    .with_hint("pass the previous turns as the context"));
            }
        }
        // Do not encode turns that no sequence can hold.
        let dropped = match self.settings().sentences {
            Some(_) => context.len().saturating_sub(self.layout.max_turns()),
            None => 0,
        };
        context.drain(..dropped);
        let responses = sample.responses.iter().map(pieces).collect::<Result<Vec<_>>>()?;
        Ok(Tokenized { context, dropped, responses })
    }

    /// Returns the sentence vectors of all context turns; `None` if the selector reads tokens.
    fn sentence_vectors(&self, samples: &[Tokenized]) -> Result<Option<Vectors>> {
        let Some(settings) = &self.settings().sentences else { return Ok(None) };
        let turns: Vec<Utterance> = samples
            .iter()
            .flat_map(|sample| &sample.context)
            .map(|turn| self.layout.utterance(turn, settings))
            .collect();
        let inputs = turns.len();
        // One pass suffices if both layers have the same terms, up to a factor.
        let mut sum = Vectors::zeros(inputs, self.backend.hidden());
        let passes = match settings.layer_weights() {
            Some(weights) => {
                let layers: Vec<(usize, f32)> = [(1, weights[0]), (self.layers, weights[1])]
                    .into_iter()
                    .filter(|(_, weight)| *weight != 0.0)
                    .collect();
                let unweighted: Vec<Vec<Part>> = turns
                    .iter()
                    .map(|turn| {
                        let (terms, weight) = match weights[0] != 0.0 {
                            true => (&turn.terms[0], weights[0]),
                            false => (&turn.terms[1], weights[1]),
                        };
                        terms
                            .iter()
                            .map(|t| Part { weight: t.weight / weight, rows: t.rows.clone() })
                            .collect()
                    })
                    .collect();
                vec![(merged(layers), unweighted)]
            }
            None => (0..2)
                .map(|n| {
                    let layer = if n == 0 { 1 } else { self.layers };
                    (vec![(layer, 1.0)], turns.iter().map(|turn| turn.terms[n].clone()).collect())
                })
                .collect(),
        };
        for (layers, terms) in passes {
            let items: Vec<Item> = turns
                .iter()
                .zip(terms)
                .enumerate()
                .map(|(n, (turn, terms))| Item {
                    input: n,
                    sequence: turn.sequence.clone(),
                    pools: vec![terms],
                })
                .collect();
            let vectors = self.run(&items, inputs, &layers, 1)?;
            for n in 0..inputs {
                sum.row_mut(n).iter_mut().zip(vectors.row(n)).for_each(|(sum, more)| *sum += more);
            }
        }
        Ok(Some(sum))
    }
}

/// Adds up the weights of equal layers. A network with one layer has the same first and last layer.
fn merged(layers: Vec<(usize, f32)>) -> Vec<(usize, f32)> {
    let mut merged: Vec<(usize, f32)> = Vec::new();
    for (layer, weight) in layers {
        match merged.last_mut() {
            Some((last, sum)) if *last == layer => *sum += weight,
            _ => merged.push((layer, weight)),
        }
    }
    merged
}

/// Tokens of a sample.
struct Tokenized {
    context: Vec<Vec<u32>>,
    /// Number of turns that were removed from the start of the context, because no sequence can hold them.
    dropped: usize,
    responses: Vec<Vec<u32>>,
}

fn fingerprint(opened: &folder::SelectorFolder) -> Result<Fingerprint> {
    let mut all = Fingerprinter::new("selector");
    let head = &opened.head;
    all.text("model", opened.folder.fingerprint()?)
        .text("settings", format_args!("{:?} {}", opened.settings, opened.is_own))
        .part("head", &bytes_of(&head.weight))
        .part("bias", &head.bias.to_le_bytes())
        .text("scale", format_args!("{:?}", head.scale.map(f32::to_bits)));
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
