//! Tokenizer: converts text to token ids with the `tokenizers` library, configured as in training.
//!
//! Some tokenizers add no token after a text, so the turns of a dialogue would not be separated. [`save_divided`] adds
//! a separator token to such models.

use std::{collections::BTreeMap, ops::Range, path::Path};

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
    /// Starts a sequence.
    pub cls: Option<u32>,
    /// Ends or separates sequences.
    pub sep: Option<u32>,
    /// Pads sequences.
    pub pad: Option<u32>,
    /// Replaces a masked token.
    pub mask: Option<u32>,
    /// Replaces unknown words.
    pub unknown: Option<u32>,
}

/// Tokenizer of a model.
#[derive(Clone)]
pub struct Tokenizer {
    pub(super) inner: tokenizers::Tokenizer,
    pub(super) specials: Specials,
    /// Special tokens before the tokens of a text.
    before: Vec<u32>,
    after: Vec<u32>,
    max_tokens: usize,
    /// Number of word embeddings of the model.
    words: usize,
    pub(super) cut_front: bool,
    /// True if texts are converted to lower case before tokenization, as in sentence-transformers.
    pub(super) lowercase: bool,
    /// Tokenizer settings from `tokenizer_config.json`.
    pub(super) settings: Map<String, Value>,
    notices: Vec<String>,
}

/// Tokens of one text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenizedText {
    /// Token ids, including special tokens.
    pub ids: Vec<u32>,
    /// Number of tokens cut off because the text was too long.
    pub cut: usize,
}

/// Contents of the files of a tokenizer.
pub(super) struct Parts {
    pub inner: tokenizers::Tokenizer,
    pub specials: Specials,
    pub max_tokens: usize,
    pub words: usize,
    pub cut_front: bool,
    pub lowercase: bool,
    pub settings: Map<String, Value>,
    pub notices: Vec<String>,
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
        if framed == 0 {
            parts.notices.push("the tokenizer adds no special tokens to texts".to_owned());
        }
        let Parts { inner, specials, max_tokens, words, cut_front, lowercase, settings, notices } = parts;
        Ok(Tokenizer {
            inner,
            specials,
            before,
            after,
            max_tokens,
            words,
            cut_front,
            lowercase,
            settings,
            notices,
        })
    }

    /// Returns the tokenizer with a different maximum number of tokens per text. Fails if the special tokens leave no
    /// room for text.
    pub fn with_max_tokens(self, max_tokens: usize) -> Result<Self> {
        match max_tokens > self.before.len() + self.after.len() {
            true => Ok(Tokenizer { max_tokens, ..self }),
            false => Err(Error::input(format!("a maximum of {max_tokens} tokens leaves no space for text"))),
        }
    }

    /// Tokenizes a text and adds special tokens. Truncates the text so that the total is at most
    /// [`Tokenizer::max_tokens`]. Fails if the model has no embedding for a token.
    pub fn encode(&self, text: &str) -> Result<TokenizedText> {
        let pieces = self.pieces(text)?;
        let kept = self.kept(pieces.len());
        let ids = [&self.before[..], &pieces[kept.clone()], &self.after[..]].concat();
        Ok(TokenizedText { ids, cut: pieces.len() - kept.len() })
    }

    /// Like [`Tokenizer::encode`], but also returns the byte range of each token in the text. Special tokens have
    /// empty ranges.
    pub fn encode_with_ranges(&self, text: &str) -> Result<(TokenizedText, Vec<Range<usize>>)> {
        let encoding = self.inner.encode(text, false);
        let encoding = encoding.map_err(|e| unreadable(e.as_ref()))?;
        let pieces = self.known(encoding.get_ids())?;
        let kept = self.kept(pieces.len());
        let ids = [&self.before[..], &pieces[kept.clone()], &self.after[..]].concat();
        let mut ranges = vec![0..0; self.before.len()];
        // A token can be a part of a character. Its range is extended to the whole character.
        ranges.extend(
            encoding.get_offsets()[kept.clone()]
                .iter()
                .map(|(start, end)| text.floor_char_boundary(*start)..text.ceil_char_boundary(*end)),
        );
        ranges.resize(ids.len(), 0..0);
        Ok((TokenizedText { ids, cut: pieces.len() - kept.len() }, ranges))
    }

    /// Returns the range of tokens that are kept if the text is too long.
    fn kept(&self, pieces: usize) -> Range<usize> {
        let room = self.max_tokens - self.before.len() - self.after.len();
        let cut = pieces.saturating_sub(room);
        if self.cut_front { cut..pieces } else { 0..pieces - cut }
    }

    /// Tokenizes a text without special tokens and without truncation.
    pub fn pieces(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, false);
        let encoding = encoding.map_err(|e| unreadable(e.as_ref()))?;
        self.known(encoding.get_ids()).map(<[u32]>::to_vec)
    }

    /// Returns the ids, or an error if the model has no embedding for one of them.
    fn known<'a>(&self, ids: &'a [u32]) -> Result<&'a [u32]> {
        match ids.iter().find(|id| **id as usize >= self.words) {
            None => Ok(ids),
            Some(id) => Err(Error::data(format!(
                "the tokenizer returned the id {id}, but the model has {} word embeddings: they do not match",
                self.words
            ))),
        }
    }

    /// Returns the id of a token; `None` if the token is not in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Returns the token with an id; `None` if there is no such token.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Special tokens before a text.
    pub fn before(&self) -> &[u32] {
        &self.before
    }

    /// Special tokens after a text.
    pub fn after(&self) -> &[u32] {
        &self.after
    }

    /// Maximum number of tokens per text, including special tokens.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Number of word embeddings of the model.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Number of tokens in the vocabulary, including added tokens.
    pub fn vocabulary(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Id of the token that starts a sequence.
    pub fn cls(&self) -> Option<u32> {
        self.specials.cls
    }

    /// Id of the token that ends or separates sequences.
    pub fn sep(&self) -> Option<u32> {
        self.specials.sep
    }

    /// Id of the padding token.
    pub fn pad(&self) -> Option<u32> {
        self.specials.pad
    }

    /// Id of the mask token.
    pub fn mask(&self) -> Option<u32> {
        self.specials.mask
    }

    /// Id of the token for unknown words.
    pub fn unknown(&self) -> Option<u32> {
        self.specials.unknown
    }

    /// Notices about contradictions between the tokenizer files, and the values that are used.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Returns the tokenizer in the format of `tokenizer.json`. The output is deterministic.
    pub fn to_json(&self) -> Result<String> {
        self.inner
            .to_string(false)
            .map_err(|e| Error::Internal(format!("the tokenizer cannot be serialized: {e}")))
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocabulary", &self.vocabulary())
            .field("specials", &self.specials)
            .field("max_tokens", &self.max_tokens)
            .finish_non_exhaustive()
    }
}

fn unreadable(e: &(dyn std::error::Error + Send + Sync)) -> Error {
    Error::data(format!("the tokenizer failed on a text: {e}"))
}

/// Determines the special tokens before and after texts, by tokenizing a short text.
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

/// Looks up the ids of the special tokens by their names in the files.
pub(super) fn specials(inner: &tokenizers::Tokenizer, names: &BTreeMap<String, String>) -> Specials {
    let id = |role: &str| names.get(role).and_then(|token| inner.token_to_id(token));
    Specials {
        cls: id("cls_token"),
        sep: id("sep_token"),
        pad: id("pad_token"),
        mask: id("mask_token"),
        unknown: id("unk_token"),
    }
}

/// Default name of the separator.
const SEPARATOR: &str = "[SEP]";

impl Tokenizer {
    /// Returns a tokenizer that adds a separator after every text, and the separator's id. Returns `None` if
    /// this tokenizer already adds tokens after texts.
    pub fn divided(&self) -> Result<Option<(Self, u32)>> {
        if !self.after().is_empty() {
            return Ok(None);
        }
        let unfit =
            |e: &dyn std::fmt::Display| Error::data(format!("cannot add a separator to the tokenizer: {e}"));
        let named = self.sep().and_then(|id| self.token(id));
        let separator = named.unwrap_or_else(|| SEPARATOR.to_owned());
        let mut inner = self.inner.clone();
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
            .special_tokens(special)
            .build()
            .map_err(|e| unfit(&e))?;
        inner.with_post_processor(Some(template));
        let mut settings = self.settings.clone();
        settings.insert("sep_token".to_owned(), Value::String(separator));
        let mut specials = self.specials;
        specials.sep = Some(id);
        let parts = Parts {
            inner,
            specials,
            max_tokens: self.max_tokens(),
            words: self.words().max(id as usize + 1),
            cut_front: self.cut_front,
            lowercase: self.lowercase,
            settings,
            notices: Vec::new(),
        };
        Ok(Some((Tokenizer::new(parts)?, id)))
    }
}

/// Saves a copy of a model whose tokenizer adds a separator after every text. `name` is the name of the original model.
///
/// Returns the separator, and true if the network got a new embedding for it. Returns `None` and writes nothing if the
/// tokenizer already adds tokens after texts.
pub fn save_divided(base: &ModelFolder, name: &str, path: &Path) -> Result<Option<(String, bool)>> {
    let Some((tokenizer, id)) = base.tokenizer()?.divided()? else { return Ok(None) };
    let mut network = base.network()?;
    let width = network.shape.hidden;
    let is_new = add_rows(&mut network.embeddings.words, width, id as usize + 1);
    let saved = SavedModel {
        network: &network,
        architecture: base.architecture(),
        pipeline: base.pipeline(),
        tokenizer: &tokenizer,
        base: Some(name),
    };
    save(path, &saved)?;
    Ok(Some((tokenizer.token(id).unwrap_or_default(), is_new)))
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
