//! Text to token ids: the library `tokenizers`, set up as the model was trained.

use std::{collections::BTreeMap, ops::Range};

use serde_json::{Map, Value};

use turnwise_core::error::{Error, Result};

/// The ids that frame and mark texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Specials {
    /// Begins a sequence.
    pub cls: Option<u32>,
    /// Ends or divides sequences.
    pub sep: Option<u32>,
    /// Fills up.
    pub pad: Option<u32>,
    /// Hides a token.
    pub mask: Option<u32>,
    /// Stands for what is not known.
    pub unknown: Option<u32>,
}

/// A model's tokenizer.
#[derive(Clone)]
pub struct Tokenizer {
    pub(super) inner: tokenizers::Tokenizer,
    pub(super) specials: Specials,
    /// What the tokenizer puts in front of the pieces of a text, and behind them.
    before: Vec<u32>,
    after: Vec<u32>,
    max_tokens: usize,
    /// Rows of the model's table of words.
    words: usize,
    pub(super) cut_front: bool,
    /// Whether sentence-transformers lower-cases in front of it.
    pub(super) lowercase: bool,
    /// `tokenizer_config.json`, as far as it is about the tokenizer.
    pub(super) settings: Map<String, Value>,
    notices: Vec<String>,
}

/// The tokens of one text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenizedText {
    /// Token ids, special ones included.
    pub ids: Vec<u32>,
    /// How many tokens were cut off because the text was too long.
    pub cut: usize,
}

/// What a tokenizer is made of, once its files are read.
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
        // Files carry the settings of whoever saved them last; ours are made per text.
        parts.inner.with_padding(None);
        parts.inner.with_truncation(None).map_err(|e| Error::data(format!("tokenizer: {e}")))?;
        let (before, after) = frame(&parts.inner)?;
        let framed = before.len() + after.len();
        if parts.max_tokens <= framed {
            return Err(Error::data(format!(
                "a text may have {} tokens, and {framed} of them are special: no room for a text",
                parts.max_tokens
            )));
        }
        if framed == 0 {
            parts.notices.push("the tokenizer puts no special tokens around texts".to_owned());
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

    /// The same tokenizer, for texts of another greatest length.
    pub fn with_max_tokens(self, max_tokens: usize) -> Result<Self> {
        match max_tokens > self.before.len() + self.after.len() {
            true => Ok(Tokenizer { max_tokens, ..self }),
            false => Err(Error::input(format!("{max_tokens} tokens leave no room for a text"))),
        }
    }

    /// A text's ids with the special ones around them, at most [`Tokenizer::max_tokens`].
    pub fn encode(&self, text: &str) -> Result<TokenizedText> {
        let pieces = self.pieces(text)?;
        let kept = self.kept(pieces.len());
        let ids = [&self.before[..], &pieces[kept.clone()], &self.after[..]].concat();
        Ok(TokenizedText { ids, cut: pieces.len() - kept.len() })
    }

    /// The same, and the bytes of the text that each token stands for; none for the special ones around it.
    pub fn encode_with_ranges(&self, text: &str) -> Result<(TokenizedText, Vec<Range<usize>>)> {
        let encoding = self.inner.encode(text, false);
        let encoding = encoding.map_err(|e| unreadable(e.as_ref()))?;
        let pieces = self.known(encoding.get_ids())?;
        let kept = self.kept(pieces.len());
        let ids = [&self.before[..], &pieces[kept.clone()], &self.after[..]].concat();
        let mut ranges = vec![0..0; self.before.len()];
        // Tokens may be single bytes: then each stands for the whole letter.
        ranges.extend(
            encoding.get_offsets()[kept.clone()]
                .iter()
                .map(|(start, end)| text.floor_char_boundary(*start)..text.ceil_char_boundary(*end)),
        );
        ranges.resize(ids.len(), 0..0);
        Ok((TokenizedText { ids, cut: pieces.len() - kept.len() }, ranges))
    }

    /// Which of so many pieces stay in a text that may be too long.
    fn kept(&self, pieces: usize) -> Range<usize> {
        let room = self.max_tokens - self.before.len() - self.after.len();
        let cut = pieces.saturating_sub(room);
        if self.cut_front { cut..pieces } else { 0..pieces - cut }
    }

    /// A text's ids alone, all of them.
    pub fn pieces(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, false);
        let encoding = encoding.map_err(|e| unreadable(e.as_ref()))?;
        self.known(encoding.get_ids()).map(<[u32]>::to_vec)
    }

    /// Ids that the model has a row for.
    fn known<'a>(&self, ids: &'a [u32]) -> Result<&'a [u32]> {
        match ids.iter().find(|id| **id as usize >= self.words) {
            None => Ok(ids),
            Some(id) => Err(Error::data(format!(
                "the tokenizer gives the id {id}, and the model knows {} words: they do not belong together",
                self.words
            ))),
        }
    }

    /// The id of a token, if it is in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token of an id.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The ids in front of a text's pieces.
    pub fn before(&self) -> &[u32] {
        &self.before
    }

    /// The ids behind them.
    pub fn after(&self) -> &[u32] {
        &self.after
    }

    /// How many tokens a text may have, special ones included.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// How many rows the model's table of words has.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// How many tokens it knows, added ones included.
    pub fn vocabulary(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Begins a sequence.
    pub fn cls(&self) -> Option<u32> {
        self.specials.cls
    }

    /// Ends or divides sequences.
    pub fn sep(&self) -> Option<u32> {
        self.specials.sep
    }

    /// Fills up.
    pub fn pad(&self) -> Option<u32> {
        self.specials.pad
    }

    /// Hides a token.
    pub fn mask(&self) -> Option<u32> {
        self.specials.mask
    }

    /// Stands for what is not known.
    pub fn unknown(&self) -> Option<u32> {
        self.specials.unknown
    }

    /// What people should know: where its files disagree, and which was followed.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// All it is made of, in the format of `tokenizer.json`: equal tokenizers give equal texts.
    pub fn to_json(&self) -> Result<String> {
        self.inner
            .to_string(false)
            .map_err(|e| Error::Internal(format!("a tokenizer cannot be written: {e}")))
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
    Error::data(format!("the tokenizer cannot read a text: {e}"))
}

/// Finds out what a tokenizer puts around texts, by having it do so once.
fn frame(inner: &tokenizers::Tokenizer) -> Result<(Vec<u32>, Vec<u32>)> {
    let unusable =
        |what: &str| Error::data(format!("the tokenizer {what}: it does not belong to such a model"));
    let encode =
        |special| inner.encode_fast("a", special).map_err(|e| unusable(&format!("fails on `a` ({e})")));
    let (bare, framed) = (encode(false)?, encode(true)?);
    if framed.get_type_ids().iter().any(|t| *t != 0) {
        return Err(unusable("puts texts into a segment other than 0"));
    }
    let (bare, framed) = (bare.get_ids(), framed.get_ids());
    let mut places = 0..=framed.len().saturating_sub(bare.len());
    match places.find(|at| !bare.is_empty() && framed[*at..].starts_with(bare)) {
        Some(at) => Ok((framed[..at].to_vec(), framed[at + bare.len()..].to_vec())),
        None => Err(unusable("does not leave texts whole between its special tokens")),
    }
}

/// The ids of the special tokens, by the names that the files give them.
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
