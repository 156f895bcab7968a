//! Tokenizer: converts text to token ids with the `tokenizers` library, configured as in training.
//!
//! Some tokenizers add no token after a text, so the turns of a dialogue would not be separated. [`save_extended`] saves
//! a copy of a model with a tokenizer that adds a separator after every text, or that has another special token.

use std::{ops::Range, path::Path};

use serde_json::{Map, Value};
use tokenizers::{AddedToken, processors::template::TemplateProcessing};
use turnwise_core::error::{Error, Result};

use crate::{
    folder::{ModelFolder, SavedModel, save},
    network::Table,
};

/// Ids of the special tokens; `None` if the tokenizer does not have the token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Specials {
    /// Id of the token that starts a sequence.
    pub cls: Option<u32>,
    /// Id of the token that ends or separates sequences.
    pub sep: Option<u32>,
    /// Id of the token that pads sequences.
    pub pad: Option<u32>,
    /// Id of the token that replaces a masked token.
    pub mask: Option<u32>,
    /// Id of the token that replaces unknown words.
    pub unknown: Option<u32>,
}

/// Tokenizer of a model.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    pub(super) parts: Parts,
    /// Special tokens before the tokens of a text.
    before: Vec<u32>,
    /// Special tokens after the tokens of a text.
    after: Vec<u32>,
}

/// Data of a [`Tokenizer`], from the files of a model.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub inner: tokenizers::Tokenizer,
    pub specials: Specials,
    pub max_tokens: usize,
    /// Number of word embeddings of the model.
    pub words: usize,
    /// True if a long text is cut at its beginning instead of its end.
    pub cut_front: bool,
    /// True if texts are converted to lower case before tokenization, as in sentence-transformers.
    pub lowercase: bool,
    /// True if the tokenizer gives the two texts of a pair different segments.
    pub has_segments: bool,
    /// True if the network was trained with special tokens around texts.
    pub needs_specials: bool,
    /// Id of a token that is removed from texts.
    pub skipped: Option<u32>,
    /// Tokenizer settings from `tokenizer_config.json`.
    pub settings: Map<String, Value>,
    pub notices: Vec<String>,
}

/// Tokens of one text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenizedText {
    /// Token ids, including special tokens.
    pub ids: Vec<u32>,
    /// Number of tokens cut off because the text was too long.
    pub cut: usize,
}

impl Tokenizer {
    pub(super) fn new(mut parts: Parts) -> Result<Self> {
        // Padding and truncation saved in the file are removed, because turnwise pads and truncates itself.
        parts.inner.with_padding(None);
        parts.inner.with_truncation(None).map_err(|e| Error::data(format!("tokenizer: {e}")))?;
        let (before, after) = frame(&parts.inner)?;
        let framed = before.len() + after.len();
        if parts.max_tokens <= framed {
            return Err(Error::data(format!(
                "the limit of {} tokens leaves no space for text next to {framed} special tokens",
                parts.max_tokens
            )));
        }
        if framed == 0 && parts.needs_specials {
            parts.notices.push("the tokenizer adds no special tokens to texts".to_owned());
        }
        Ok(Tokenizer { parts, before, after })
    }

    /// Returns the tokenizer with a different maximum number of tokens per text. The maximum must be greater than the
    /// number of special tokens.
    pub(crate) fn with_max_tokens(mut self, max_tokens: usize) -> Self {
        self.parts.max_tokens = max_tokens;
        self
    }

    /// Tokenizes a text and adds special tokens. Truncates the text so that the total is at most
    /// [`Tokenizer::max_tokens`]. Fails if the model has no embedding for a token.
    pub fn encode(&self, text: &str) -> Result<TokenizedText> {
        Ok(self.framed(&self.pieces(text)?).0)
    }

    /// Tokenizes a text like [`Tokenizer::encode`], and also returns the byte range of each token in the text. Special
    /// tokens have empty ranges.
    pub fn encode_with_ranges(&self, text: &str) -> Result<(TokenizedText, Vec<Range<usize>>)> {
        let encoding = self.parts.inner.encode(text, false).map_err(|e| unreadable(e.as_ref()))?;
        let (ids, offsets): (Vec<u32>, Vec<(usize, usize)>) = (encoding.get_ids().iter().copied())
            .zip(encoding.get_offsets().iter().copied())
            .filter(|(id, _)| Some(*id) != self.parts.skipped)
            .unzip();
        let (tokenized, kept) = self.framed(self.known(&ids)?);
        let mut ranges = vec![0..0; self.before.len()];
        // A token can be a part of a character. Its range is extended to the whole character.
        ranges.extend(
            offsets[kept]
                .iter()
                .map(|(start, end)| text.floor_char_boundary(*start)..text.ceil_char_boundary(*end)),
        );
        ranges.resize(tokenized.ids.len(), 0..0);
        Ok((tokenized, ranges))
    }

    /// Adds special tokens to the tokens of a text. Truncates the text so that the total is at most
    /// [`Tokenizer::max_tokens`]. Also returns the range of the tokens in `pieces` that are kept.
    pub(crate) fn framed(&self, pieces: &[u32]) -> (TokenizedText, Range<usize>) {
        let room = self.parts.max_tokens - self.before.len() - self.after.len();
        let cut = pieces.len().saturating_sub(room);
        let kept = if self.parts.cut_front { cut..pieces.len() } else { 0..pieces.len() - cut };
        let ids = [&self.before[..], &pieces[kept.clone()], &self.after[..]].concat();
        (TokenizedText { ids, cut }, kept)
    }

    /// Tokenizes a text, without adding special tokens and without truncation.
    pub fn pieces(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.parts.inner.encode_fast(text, false).map_err(|e| unreadable(e.as_ref()))?;
        let mut ids = self.known(encoding.get_ids())?.to_vec();
        ids.retain(|id| Some(*id) != self.parts.skipped);
        Ok(ids)
    }

    /// Returns the ids unchanged. Fails if the model has no embedding for one of the ids.
    fn known<'a>(&self, ids: &'a [u32]) -> Result<&'a [u32]> {
        match ids.iter().find(|id| **id as usize >= self.parts.words) {
            None => Ok(ids),
            Some(id) => Err(Error::data(format!(
                "the tokenizer returned the id {id}, but the model has {} word embeddings: they do not match",
                self.parts.words
            ))),
        }
    }

    /// Returns the id of a token; `None` if the token is not in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.parts.inner.token_to_id(token)
    }

    /// Returns the token with an id; `None` if there is no such token.
    pub fn token(&self, id: u32) -> Option<String> {
        self.parts.inner.id_to_token(id)
    }

    /// Returns the special tokens before a text.
    pub fn before(&self) -> &[u32] {
        &self.before
    }

    /// Returns the special tokens after a text.
    pub fn after(&self) -> &[u32] {
        &self.after
    }

    /// Returns the special tokens between the two texts of a pair, such as `[SEP]`. A tokenizer without a template for
    /// pairs uses the special tokens after a text.
    pub fn between(&self) -> Result<Vec<u32>> {
        let encode = |text: &str, special| {
            let encoding = self.parts.inner.encode_fast(text, special).map_err(|e| unreadable(e.as_ref()))?;
            Ok::<_, Error>(encoding.get_ids().to_vec())
        };
        let pair = self.parts.inner.encode_fast(("a", "a"), true).map_err(|e| unreadable(e.as_ref()))?;
        let text = encode("a", false)?;
        let inside = pair
            .get_ids()
            .strip_prefix(self.before())
            .and_then(|rest| rest.strip_suffix(self.after()))
            .and_then(|rest| rest.strip_prefix(text.as_slice()))
            .and_then(|rest| rest.strip_suffix(text.as_slice()));
        Ok(match inside {
            Some(between) if !between.is_empty() => between.to_vec(),
            _ => self.after.clone(),
        })
    }

    /// Returns true if the tokenizer gives the two texts of a pair different segments.
    pub fn has_segments(&self) -> bool {
        self.parts.has_segments
    }

    /// Returns the maximum number of tokens per text, including special tokens.
    pub fn max_tokens(&self) -> usize {
        self.parts.max_tokens
    }

    /// Returns the number of tokens in the vocabulary, including added tokens.
    pub fn vocabulary(&self) -> usize {
        self.parts.inner.get_vocab_size(true)
    }

    /// Returns the ids of the special tokens.
    pub fn specials(&self) -> Specials {
        self.parts.specials
    }

    /// Returns notices for the user, for example about contradictions between the tokenizer files.
    pub fn notices(&self) -> &[String] {
        &self.parts.notices
    }

    /// Returns the tokenizer in the format of `tokenizer.json`. The output is deterministic.
    pub fn to_json(&self) -> Result<String> {
        self.parts
            .inner
            .to_string(false)
            .map_err(|e| Error::Internal(format!("the tokenizer cannot be serialized: {e}")))
    }
}

fn unreadable(e: &(dyn std::error::Error + Send + Sync)) -> Error {
    Error::data(format!("the tokenizer failed on a text: {e}"))
}

/// Returns the special tokens that the tokenizer adds before and after texts. Finds them by tokenizing a short text.
fn frame(inner: &tokenizers::Tokenizer) -> Result<(Vec<u32>, Vec<u32>)> {
    let unusable =
        |what: &str| Error::data(format!("the tokenizer {what}: it does not fit this kind of model"));
    let encode =
        |special| inner.encode_fast("a", special).map_err(|e| unusable(&format!("fails on `a` ({e})")));
    let (bare, framed) = (encode(false)?, encode(true)?);
    if framed.get_type_ids().iter().any(|t| *t != 0) {
        return Err(unusable("assigns texts to a segment other than 0"));
    }
    let (bare, framed) = (bare.get_ids(), framed.get_ids());
    let mut places = 0..=framed.len().saturating_sub(bare.len());
    match places.find(|at| !bare.is_empty() && framed[*at..].starts_with(bare)) {
        Some(at) => Ok((framed[..at].to_vec(), framed[at + bare.len()..].to_vec())),
        None => Err(unusable("inserts special tokens within texts")),
    }
}

/// Separator token that is added to a tokenizer without a separator token.
const SEPARATOR: &str = "[SEP]";

impl Tokenizer {
    /// Copies this tokenizer and adds a special token to the copy. Returns the copy and the id of the token.
    fn with_special_token(&self, token: &str) -> Result<(Self, u32)> {
        let mut parts = Parts { notices: Vec::new(), ..self.parts.clone() };
        let unfit = |e: &dyn std::fmt::Display| {
            Error::data(format!("cannot add the token {token} to the tokenizer: {e}"))
        };
        parts.inner.add_special_tokens([AddedToken::from(token, true)]).map_err(|e| unfit(e.as_ref()))?;
        let id = parts.inner.token_to_id(token).ok_or_else(|| unfit(&"it has no id"))?;
        parts.words = parts.words.max(id as usize + 1);
        Ok((Tokenizer::new(parts)?, id))
    }

    /// Copies this tokenizer and makes the copy add a separator after every text. Returns the copy and the id of the
    /// separator. Returns `None` if this tokenizer already adds tokens after texts.
    pub fn divided(&self) -> Result<Option<(Self, u32)>> {
        if !self.after().is_empty() {
            return Ok(None);
        }
        let unfit =
            |e: &dyn std::fmt::Display| Error::data(format!("cannot add a separator to the tokenizer: {e}"));
        let named = self.parts.specials.sep.and_then(|id| self.token(id));
        let separator = named.unwrap_or_else(|| SEPARATOR.to_owned());
        let mut parts = Parts { notices: Vec::new(), ..self.parts.clone() };
        let inner = &mut parts.inner;
        inner
            .add_special_tokens([AddedToken::from(separator.as_str(), true)])
            .map_err(|e| unfit(e.as_ref()))?;
        let id = inner.token_to_id(&separator).ok_or_else(|| unfit(&separator))?;
        let mut special: Vec<(String, u32)> =
            self.before().iter().filter_map(|id| Some((self.token(*id)?, *id))).collect();
        let before: String = special.iter().map(|(token, _)| format!("{token} ")).collect();
        special.push((separator.clone(), id));
        let template = TemplateProcessing::builder()
            .try_single(format!("{before}$A {separator}"))
            .map_err(|e| unfit(&e))?
            .try_pair(format!("{before}$A {separator} $B:1 {separator}:1"))
            .map_err(|e| unfit(&e))?
            .special_tokens(special)
            .build()
            .map_err(|e| unfit(&e))?;
        inner.with_post_processor(Some(template));
        parts.settings.insert("sep_token".to_owned(), Value::String(separator));
        parts.specials.sep = Some(id);
        parts.words = parts.words.max(id as usize + 1);
        Ok(Some((Tokenizer::new(parts)?, id)))
    }
}

/// Parts that a copy of a model needs in addition to those of the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Additions<'a> {
    /// True if the tokenizer must add a separator after every text.
    pub separator: bool,
    /// Special token that the tokenizer must have.
    pub token: Option<&'a str>,
    /// Minimum number of segments; 0 if the number does not matter.
    pub segments: usize,
}

/// Parts that a copy of a model has in addition to those of the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Added {
    /// The separator, and whether a new embedding was added for it.
    pub separator: Option<(String, bool)>,
    /// True if the special token was added.
    pub token: bool,
}

/// Saves a copy of the model `base` with more parts. `name` is the name of `base`. Returns `None` and writes nothing if
/// `base` already has all parts.
///
/// The embedding of a new token is the mean of all embeddings, and a new segment is a copy of the first one.
pub fn save_extended(
    base: &ModelFolder,
    name: &str,
    additions: Additions<'_>,
    path: &Path,
) -> Result<Option<Added>> {
    let mut tokenizer = base.tokenizer()?;
    let mut network = base.network()?;
    let (width, words) = (network.shape.hidden, &mut network.embeddings.words);
    let (mut added, mut is_changed) = (Added::default(), false);
    if let Some((divided, id)) = additions.separator.then(|| tokenizer.divided()).transpose()?.flatten() {
        let is_new = add_rows(words, width, id as usize + 1);
        added.separator = Some((divided.token(id).unwrap_or_default(), is_new));
        (tokenizer, is_changed) = (divided, true);
    }
    if let Some(token) = additions.token.filter(|token| tokenizer.id(token).is_none()) {
        let (with_token, id) = tokenizer.with_special_token(token)?;
        add_rows(words, width, id as usize + 1);
        (tokenizer, added.token, is_changed) = (with_token, true, true);
    }
    if additions.segments > 0 && network.embeddings.types.is_none() {
        return Err(Error::input(format!(
            "{name} has no segment embeddings, so it cannot get another segment"
        ))
        .with_hint("use a BERT model"));
    }
    is_changed |= network.add_segments(additions.segments);
    if !is_changed {
        return Ok(None);
    }
    let pooler = base.pooler()?;
    let saved = SavedModel {
        network: &network,
        architecture: base.config().architecture,
        pipeline: base.pipeline(),
        tokenizer: &tokenizer,
        base: Some(name),
        pooler: pooler.as_ref(),
    };
    save(path, &saved)?;
    Ok(Some(added))
}

/// Extends a table to at least `rows` rows. Returns true if rows were added. Each new row is the mean of the existing
/// rows.
fn add_rows(table: &mut Table, width: usize, rows: usize) -> bool {
    if table.rows >= rows {
        return false;
    }
    let mut mean = vec![0.0f64; width];
    for row in table.data.chunks_exact(width) {
        mean.iter_mut().zip(row).for_each(|(mean, number)| *mean += f64::from(*number));
    }
    let mean: Vec<f32> = mean.into_iter().map(|sum| (sum / table.rows.max(1) as f64) as f32).collect();
    while table.rows < rows {
        table.data.extend_from_slice(&mean);
        table.rows += 1;
    }
    true
}
