//! Transformer encoders: a tokenizer, a network, pooling, and final steps such as normalization.

mod items;
mod run;
mod settings;

use std::{borrow::Cow, sync::atomic::AtomicUsize};

pub(crate) use items::Item;
use items::{Framing, by_speakers, parts};
use rayon::prelude::*;
pub(crate) use run::{run as run_items, run_states};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

use crate::{
    Backend, DialogueMode, DialogueOptions, DialoguePooling, EncodeStats, Encoded, Encoder, Fingerprint,
    Network, Reduction, TextOptions, TokenVectors, Vectors,
    contract::speakers,
    fingerprint::Fingerprinter,
    folder::{ModelFolder, Pipeline, PoolingMode, Tokenizer},
};

pub use settings::{Layers, Settings, Tokens};

/// A transformer that encodes texts and dialogues.
pub struct Transformer {
    name: String,
    tokenizer: Tokenizer,
    pipeline: Pipeline,
    /// Pooling modes. Their results are concatenated.
    modes: Vec<PoolingMode>,
    /// Layers to pool and their weights.
    layers: Vec<(usize, f32)>,
    /// True to L2-normalize vectors even if the model does not.
    normalize: bool,
    dim: usize,
    /// Width of the vectors before truncation.
    full: usize,
    /// Number of turn embeddings (one per turn number); `None` if the network has none.
    turns: Option<usize>,
    /// Number of role embeddings (one per speaker number); `None` if the network has none.
    roles: Option<usize>,
    fingerprint: Fingerprint,
    notices: Vec<String>,
    backend: Box<dyn Backend>,
    /// Maximum number of tokens per batch. It is reduced when the device runs out of memory.
    budget: AtomicUsize,
}

impl Transformer {
    /// Loads a model. `name` is the display name, and `engine` creates the backend that runs the network. Fails if the
    /// model does not support a setting, or if a file is damaged.
    pub fn load(name: &str, folder: &ModelFolder, settings: &Settings, engine: &OpenEngine) -> Result<Self> {
        Self::with(name, folder, &folder.network()?, settings, engine)
    }

    /// Loads a model like [`Transformer::load`], but uses `network` instead of the folder's network. Both networks must
    /// have the same shape.
    pub fn with(
        name: &str,
        folder: &ModelFolder,
        network: &Network,
        settings: &Settings,
        engine: &OpenEngine,
    ) -> Result<Self> {
        let tokenizer = folder.tokenizer()?;
        let pipeline = folder.pipeline().clone();
        let layers = settings.tokens.layers.clone().unwrap_or_default();
        let layers = layers.weights(network.layers.len()).ok_or_else(|| {
            Error::input(format!("{name} has no layer {layers}"))
                .with_hint(format!("its layers are 0 (the embeddings) to {}", network.layers.len()))
        })?;
        let max_tokens = settings.tokens.max.unwrap_or(tokenizer.max_tokens());
        let special_tokens = tokenizer.before().len() + tokenizer.after().len();
        if max_tokens <= special_tokens || max_tokens > network.max_tokens() {
            return Err(Error::input(format!("{name} does not support a maximum of {max_tokens} tokens"))
                .with_hint(format!("use {} to {}", special_tokens + 1, network.max_tokens())));
        }
        let modes = settings.tokens.pooling.map_or_else(|| pipeline.pooling.modes.clone(), |mode| vec![mode]);
        let full = run::width(&pipeline, modes.len() * network.shape.hidden, name)?;
        let dim = settings.dim.or(pipeline.truncate_dim).unwrap_or(full);
        if !(1..=full).contains(&dim) {
            return Err(Error::input(format!("{name} does not support vectors of {dim} dimensions"))
                .with_hint(format!("its vectors have {full} dimensions and can be truncated to fewer")));
        }
        let model = folder.fingerprint()?;
        let fingerprint = fingerprint(model, settings);
        let rows = |table: &Option<crate::network::Table>| table.as_ref().map(|t| t.rows);
        let (turns, roles) = (rows(&network.embeddings.turns), rows(&network.embeddings.roles));
        let backend = engine(network, model)?;
        let notices = folder.notices().iter().chain(tokenizer.notices()).cloned().collect();
        let budget = AtomicUsize::new(backend.best_batch());
        Ok(Transformer {
            name: name.to_owned(),
            tokenizer: tokenizer.with_max_tokens(max_tokens),
            pipeline,
            modes,
            layers,
            normalize: settings.normalize,
            dim,
            full,
            turns,
            roles,
            fingerprint,
            notices,
            backend,
            budget,
        })
    }

    /// Returns the [`Item`] for a text that is already tokenized, and the number of tokens cut off.
    fn ids_item(&self, input: usize, ids: &[u32], prompt: &Prompt) -> Result<(Item, usize)> {
        let (before, after) = (self.tokenizer.before(), self.tokenizer.after());
        let known = self.tokenizer.vocabulary() as u32;
        if let Some(id) = ids.iter().find(|id| **id >= known) {
            return Err(Error::input(format!("invalid token id {id}: {} has {known} tokens", self.name))
                .with_hint("token ids must come from this model's tokenizer; otherwise send text"));
        }
        let own = ids.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)).unwrap_or(ids);
        let mut pieces = match prompt.text.is_empty() {
            true => Vec::new(),
            false => self.tokenizer.pieces(&prompt.text)?,
        };
        pieces.extend_from_slice(own);
        let (tokens, _) = self.tokenizer.framed(&pieces);
        Ok((self.item(input, tokens.ids, prompt), tokens.cut))
    }

    fn item(&self, input: usize, ids: Vec<u32>, prompt: &Prompt) -> Item {
        let rows = prompt.pooled_from.min(ids.len())..ids.len();
        let pools = self.modes.iter().map(|mode| parts(*mode, rows.clone(), 0, rows.len())).collect();
        Item { input, sequence: crate::Sequence::new(ids), pools }
    }

    /// Computes the vectors of texts. Each text is passed as an [`Item`], together with the number of tokens that were
    /// cut off.
    fn encode_items(&self, tokenized: Vec<(Item, usize)>) -> Result<Encoded> {
        let mut spent = EncodeStats::default();
        let mut items = Vec::with_capacity(tokenized.len());
        for (item, cut) in tokenized {
            spent.tokens += item.sequence.len() as u64;
            spent.cut_tokens += cut as u64;
            spent.cut_texts += u64::from(cut > 0);
            spent.unknown += u64::from(item.sequence.is_empty());
            items.push(item);
        }
        Ok(Encoded { vectors: self.run(&items, items.len(), &self.reductions())?, spent })
    }

    fn prompt(&self, name: Option<&str>) -> Result<Prompt> {
        let text = self.pipeline.prompts.text(name)?.to_owned();
        let pooled_from = match self.pipeline.pooling.include_prompt || text.is_empty() {
            true => 0,
            // As in sentence-transformers, the prompt is tokenized alone to count its tokens. The special tokens before
            // the prompt are counted, too.
            false => self.tokenizer.before().len() + self.tokenizer.pieces(&text)?.len(),
        };
        Ok(Prompt { text, pooled_from })
    }

    /// Splits a dialogue into windows, each of which fits into one sequence. Returns one item per window.
    fn dialogue_items(
        &self,
        input: usize,
        dialogue: &Dialogue,
        prompt: &Prompt,
        pooling: DialoguePooling,
    ) -> Result<Vec<Item>> {
        let framing = Framing {
            before: self.tokenizer.before(),
            after: self.tokenizer.after(),
            max_tokens: self.tokenizer.max_tokens(),
            turns: self.turns,
            roles: self.roles,
        };
        let mut windows = framing.windows(dialogue, &prompt.text, &|text| self.tokenizer.pieces(text))?;
        // Only the first window starts with the prompt, so its tokens are skipped only in that window.
        let skipped = windows.first().map_or(0, |w| prompt.pooled_from.min(w.sequence.len()));
        for span in windows.first_mut().into_iter().flat_map(|w| &mut w.spans) {
            span.rows.start = skipped.clamp(span.rows.start, span.rows.end);
        }
        let total = windows.iter().map(|w| w.sequence.len()).sum::<usize>() - skipped;
        let by_speaker = by_speakers(&windows, pooling);
        let mut before = 0;
        let mut items = Vec::with_capacity(windows.len());
        for (n, (window, by_speaker)) in windows.into_iter().zip(by_speaker).enumerate() {
            let rows = if n == 0 { skipped } else { 0 }..window.sequence.len();
            let pools = match pooling {
                DialoguePooling::Mean => {
                    self.modes.iter().map(|mode| parts(*mode, rows.clone(), before, total)).collect()
                }
                _ => vec![by_speaker; self.modes.len()],
            };
            before += rows.len();
            items.push(Item { input, sequence: window.sequence, pools });
        }
        Ok(items)
    }

    /// Encodes each dialogue as one sequence, or as several windows if the sequence is too long.
    fn encode_sequences(&self, dialogues: &[&Dialogue], options: &DialogueOptions) -> Result<Encoded> {
        let prompt = self.prompt(options.prompt.as_deref())?;
        let items: Vec<Vec<Item>> = dialogues
            .par_iter()
            .enumerate()
            .map(|(n, d)| self.dialogue_items(n, d, &prompt, options.pooling))
            .collect::<Result<_>>()?;
        let windowed = items.iter().filter(|i| i.len() > 1).count() as u64;
        let items: Vec<Item> = items.into_iter().flatten().collect();
        let tokens = items.iter().map(|i| i.sequence.len() as u64).sum();
        let reductions = match options.pooling {
            DialoguePooling::Mean => self.reductions(),
            // Speaker pooling is a weighted sum, whatever pooling mode the model uses for texts.
            _ => vec![Reduction::Sum; self.modes.len()],
        };
        let vectors = self.run(&items, dialogues.len(), &reductions)?;
        Ok(Encoded { vectors, spent: EncodeStats { tokens, windowed, ..EncodeStats::default() } })
    }

    /// Encodes the utterances of each dialogue separately and pools their vectors into one.
    fn encode_utterances(&self, dialogues: &[&Dialogue], options: &DialogueOptions) -> Result<Encoded> {
        let spoken_turns = |d: &&Dialogue| -> Vec<usize> {
            let spoken: Vec<usize> =
                (0..d.turns.len()).filter(|n| !d.turns[*n].text.trim().is_empty()).collect();
            // If all turns are empty, the empty turns are encoded.
            if spoken.is_empty() { (0..d.turns.len()).collect() } else { spoken }
        };
        let chosen: Vec<Vec<usize>> = dialogues.iter().map(spoken_turns).collect();
        let texts: Vec<&str> = dialogues
            .iter()
            .zip(&chosen)
            .flat_map(|(d, turns)| turns.iter().map(|n| d.turns[*n].text.as_str()))
            .collect();
        let encoded = self.encode(&texts, &TextOptions { prompt: options.prompt.clone() })?;
        let mut vectors = Vectors::zeros(dialogues.len(), self.dim);
        let mut next = 0;
        for (n, (dialogue, turns)) in dialogues.iter().zip(&chosen).enumerate() {
            let speakers = speakers(dialogue);
            let group = |turn: &usize| options.pooling.group(speakers[*turn]);
            let mut counts = vec![0usize; speakers.iter().max().map_or(0, |m| m + 1)];
            turns.iter().filter_map(group).for_each(|group| counts[group] += 1);
            for turn in turns {
                let row = encoded.vectors.row(next);
                next += 1;
                let Some(count) = group(turn).map(|group| counts[group]) else { continue };
                vectors.row_mut(n).iter_mut().zip(row).for_each(|(o, v)| *o += v / count as f32);
            }
        }
        if self.normalize || self.pipeline.normalizes() {
            vectors.normalize();
        }
        Ok(Encoded { vectors, spent: encoded.spent })
    }

    fn reductions(&self) -> Vec<Reduction> {
        self.modes.iter().map(|mode| items::reduction(*mode)).collect()
    }

    /// Computes the final vectors from items. `inputs` is the number of inputs; an input can have several items.
    fn run(&self, items: &[Item], inputs: usize, reductions: &[Reduction]) -> Result<Vectors> {
        let backend = self.backend.as_ref();
        let pooled = run::run(backend, &self.budget, &self.layers, reductions, items, inputs)?;
        self.finish(pooled)
    }
}

struct Prompt {
    text: String,
    /// Position of the first token that is pooled.
    pooled_from: usize,
}

impl Prompt {
    /// Returns the text with the prompt in front of it.
    fn before<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.text.is_empty() {
            true => Cow::Borrowed(text),
            false => Cow::Owned(format!("{}{text}", self.text)),
        }
    }
}

/// Function that creates the backend for a network. The fingerprint identifies the model.
pub(super) type OpenEngine<'a> = dyn Fn(&Network, Fingerprint) -> Result<Box<dyn Backend>> + 'a;

/// Returns the fingerprint of a model with the given settings. `model` is the fingerprint of the same model with
/// default settings. The fingerprint does not depend on device and precision.
fn fingerprint(model: Fingerprint, settings: &Settings) -> Fingerprint {
    let layers = settings.tokens.layers.clone().unwrap_or_default();
    // The last layer is the default. Choosing it explicitly does not change the fingerprint.
    let tokens =
        Tokens { layers: Some(layers.clone()).filter(|l| *l != Layers::Last), ..settings.tokens.clone() };
    let plain = Settings { device: settings.device, precision: settings.precision, ..Settings::default() };
    if (Settings { tokens, ..settings.clone() }) == plain {
        return model;
    }
    let mut changed = Fingerprinter::new("transformer");
    changed.text("model", model);
    if let Some(mode) = settings.tokens.pooling {
        changed.text("pooling", mode.name());
    }
    changed.text("layers", layers).text("normalize", settings.normalize);
    if let Some(dim) = settings.dim {
        changed.text("dim", dim);
    }
    if let Some(max) = settings.tokens.max {
        changed.text("max_tokens", max);
    }
    changed.finish()
}

impl Encoder for Transformer {
    fn name(&self) -> &str {
        &self.name
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn describe(&self) -> String {
        self.backend.describe()
    }

    fn max_tokens(&self) -> Option<usize> {
        Some(self.tokenizer.max_tokens())
    }

    fn notices(&self) -> &[String] {
        &self.notices
    }

    fn chunks_at_once(&self) -> usize {
        if self.backend.wants_threads() { 1 } else { 2 }
    }

    fn normalizes(&self) -> bool {
        self.normalize || (self.pipeline.normalizes() && self.dim == self.full)
    }

    fn chunk_bytes(&self) -> usize {
        match self.backend.wants_threads() {
            // Each thread encodes its share of this text in two or three seconds.
            true => (32 << 10) * rayon::current_num_threads().max(2),
            // This is enough text for several batches, so that each batch can have sequences of similar length.
            false => 512 << 10,
        }
    }

    fn encode(&self, texts: &[&str], options: &TextOptions) -> Result<Encoded> {
        let prompt = self.prompt(options.prompt.as_deref())?;
        let item = |(n, text): (usize, &&str)| {
            let tokens = self.tokenizer.encode(&prompt.before(text))?;
            Ok((self.item(n, tokens.ids, &prompt), tokens.cut))
        };
        // For up to three texts, starting parallel work costs more than it saves.
        let tokenized: Vec<(Item, usize)> = match texts.len() {
            0..4 => texts.iter().enumerate().map(item).collect::<Result<_>>()?,
            _ => texts.par_iter().enumerate().map(item).collect::<Result<_>>()?,
        };
        self.encode_items(tokenized)
    }

    fn encode_ids(&self, texts: &[&[u32]], options: &TextOptions) -> Result<Encoded> {
        let prompt = self.prompt(options.prompt.as_deref())?;
        let items = texts.iter().enumerate().map(|(n, ids)| self.ids_item(n, ids, &prompt));
        self.encode_items(items.collect::<Result<_>>()?)
    }

    fn encode_dialogues(&self, dialogues: &[&Dialogue], options: &DialogueOptions) -> Result<Encoded> {
        match options.mode {
            DialogueMode::Sequence => self.encode_sequences(dialogues, options),
            DialogueMode::Utterances => self.encode_utterances(dialogues, options),
        }
    }

    fn encode_tokens(&self, texts: &[&str], options: &TextOptions) -> Result<Vec<TokenVectors>> {
        self.tokens(texts, options, &self.layers)
    }

    fn embed_tokens(&self, texts: &[&str]) -> Result<Vec<TokenVectors>> {
        self.tokens(texts, &TextOptions::default(), &[(0, 1.0)])
    }
}

#[cfg(test)]
mod tests;
