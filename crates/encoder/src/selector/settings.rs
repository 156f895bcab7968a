//! Settings of a selector: how it reads a context and a response.

use serde::{Deserialize, Serialize};
use turnwise_core::{
    error::{Error, Result},
    named_enum,
};

/// Settings of a selector.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectorSettings {
    /// Representation of the context turns in the input.
    pub history: History,
    /// Maximum number of inputs (tokens and sentence vectors) of a sequence.
    pub max_tokens: usize,
    /// Token between the context turns.
    pub divider: Divider,
    /// Layers that compute the score.
    pub head: HeadKind,
    /// Settings of the sentence vectors; `None` if the context turns are tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentences: Option<SentenceSettings>,
}

/// Settings of the vectors of the context turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentenceSettings {
    /// Maximum number of tokens of a turn, special tokens included.
    pub max_tokens: usize,
    /// Special tokens around the tokens of a turn.
    pub frame: Frame,
    /// Pooling of the tokens of a turn.
    pub pooling: SentencePooling,
    /// Weight of the first layer, from 0 to 1. The last layer has the remaining weight.
    pub first_weight: f32,
    /// Weight of the first layer for special tokens, if it differs from `first_weight`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub special_first_weight: Option<f32>,
    /// True if sentence vectors have a segment of their own, so that the network can tell them from tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_segment: bool,
    /// True if a network of its own computes the sentence vectors: a copy of the base model, which is not trained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
}

impl SentenceSettings {
    /// Returns the default settings for a head. A head that compares vectors needs those of the last layer, which encoders
    /// are trained for, and reads longer texts. `max_tokens` is the maximum number of inputs of a sequence.
    pub fn default_of(head: HeadKind, max_tokens: usize) -> Self {
        let usual = SentenceSettings::default();
        match head {
            HeadKind::Matching => {
                SentenceSettings { first_weight: 0.0, max_tokens: max_tokens.min(COMPARED_TOKENS), ..usual }
            }
            HeadKind::Pooler | HeadKind::Cls => usual,
        }
    }
}

impl Default for SentenceSettings {
    /// Returns the best settings of the paper on response selection by sentence embeddings.
    fn default() -> Self {
        SentenceSettings {
            max_tokens: 50,
            frame: Frame::ClsSep,
            pooling: SentencePooling::Mean,
            first_weight: 0.4,
            special_first_weight: None,
            own_segment: false,
            frozen: false,
        }
    }
}

impl SentenceSettings {
    /// Returns the weights of the first and of the last layer, if all tokens have the same weights.
    pub(super) fn layer_weights(&self) -> Option<[f32; 2]> {
        let same = self.special_first_weight.is_none_or(|special| special == self.first_weight);
        (same || self.pooling == SentencePooling::Cls).then_some([self.first_weight, 1.0 - self.first_weight])
    }
}

named_enum! {
    /// Representation of the context turns in the input of a selector.
    pub enum History: "kind of history" {
        /// The tokens of all turns (a cross-encoder). The oldest tokens of a long context are cut off.
        #[default]
        Tokens = "tokens",
        /// One sentence vector per turn.
        Sentences = "sentences",
    }
}

named_enum! {
    /// Layers that compute the score of a response from the hidden states.
    pub enum HeadKind: "head" {
        /// The head of BERT for sequence classification: a square layer with tanh on the first token, and a scoring layer.
        Pooler = "pooler",
        /// A single scoring layer on the first token.
        Cls = "cls",
        /// A single scoring layer on the first token, plus three similarities of the context and the response, each
        /// multiplied by a trained scale. For them, the response, each turn, and the end of the context as one text are
        /// encoded separately, as by an encoder. The first is the smooth maximum of the cosines of the turns, the second is
        /// the cosine of the context, and the third compares the tokens of the context and the response.
        #[default]
        Matching = "matching",
    }
}

named_enum! {
    /// Token between the context turns.
    pub enum Divider: "divider" {
        /// The token `[EOU]` (end of utterance) after every turn.
        #[default]
        Eou = "eou",
        /// No token.
        None = "none",
    }
}

named_enum! {
    /// Special tokens around the tokens of a turn that becomes a sentence vector.
    pub enum Frame: "frame" {
        /// `[CLS] … [SEP]`, the frame of a text.
        #[default]
        ClsSep = "cls-sep",
        /// `[CLS] … [EOU]`.
        ClsEou = "cls-eou",
        /// `… [EOU]`.
        Eou = "eou",
        /// No special tokens.
        None = "none",
    }
}

named_enum! {
    /// Pooling of the tokens of a turn into a sentence vector.
    pub enum SentencePooling: "pooling" {
        /// Mean of all tokens, special tokens included.
        #[default]
        Mean = "mean",
        /// The first token.
        Cls = "cls",
    }
}

impl SelectorSettings {
    /// Returns true if the settings use the token `[EOU]`.
    pub fn uses_eou(&self) -> bool {
        let framed = |s: &SentenceSettings| matches!(s.frame, Frame::ClsEou | Frame::Eou);
        self.divider == Divider::Eou || self.sentences.as_ref().is_some_and(framed)
    }

    /// Returns an error if a value is out of range. `positions` is the number of positions of the network.
    pub fn check(&self, positions: usize) -> Result<()> {
        let wrong = |message: String, hint: String| Err(Error::input(message).with_hint(hint));
        if !(MIN_TOKENS..=positions).contains(&self.max_tokens) {
            return wrong(
                format!("a selector cannot read {} tokens with this model", self.max_tokens),
                format!("use {MIN_TOKENS} to {positions}"),
            );
        }
        if self.sentences.is_some() != (self.history == History::Sentences) {
            return wrong(
                format!("the settings of sentence vectors do not fit the history `{}`", self.history.name()),
                "they apply only to the history `sentences`".to_owned(),
            );
        }
        let Some(sentences) = &self.sentences else { return Ok(()) };
        if !(4..=positions).contains(&sentences.max_tokens) {
            return wrong(
                format!("a turn cannot have a maximum of {} tokens with this model", sentences.max_tokens),
                format!("use 4 to {positions}"),
            );
        }
        for weight in [Some(sentences.first_weight), sentences.special_first_weight].into_iter().flatten() {
            if !(0.0..=1.0).contains(&weight) {
                return wrong(
                    format!("the weight of the first layer cannot be {weight}"),
                    "use a number from 0 to 1, such as 0.4".to_owned(),
                );
            }
        }
        if sentences.pooling == SentencePooling::Cls && matches!(sentences.frame, Frame::Eou | Frame::None) {
            return wrong(
                format!("the pooling `cls` needs [CLS], but the frame `{}` has none", sentences.frame.name()),
                "use the frame `cls-sep` or `cls-eou`".to_owned(),
            );
        }
        if sentences.frozen && self.head == HeadKind::Matching {
            return wrong(
                "the head `matching` trains the vectors of turns, so they cannot be frozen".to_owned(),
                "use the head `cls` or `pooler`".to_owned(),
            );
        }
        Ok(())
    }
}

/// Default maximum number of tokens of a text that is compared by its vector.
pub(super) const COMPARED_TOKENS: usize = 128;

/// Minimum number of tokens of a sequence: special tokens, and space for a context and a response.
const MIN_TOKENS: usize = 16;
