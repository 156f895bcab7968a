//! Settings of a selector in a recipe.

use serde::{Deserialize, Serialize};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::selector::{
    Divider, Frame, HeadKind, History, SelectorSettings, SentencePooling, SentenceSettings,
};

/// Settings of a selector, as given in a recipe. A missing setting is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectorRecipe {
    /// Representation of the context turns in the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// Token between the context turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divider: Option<Divider>,
    /// Layers that compute the score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadKind>,
    /// Maximum number of tokens of a turn that becomes a sentence vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_tokens: Option<usize>,
    /// Special tokens around a turn that becomes a sentence vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<Frame>,
    /// Pooling of a turn into a sentence vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<SentencePooling>,
    /// Weight of the first layer in a sentence vector. The last layer has the remaining weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_weight: Option<f32>,
    /// Weight of the first layer for special tokens, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub special_first_weight: Option<f32>,
    /// True to give sentence vectors a segment of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_segment: Option<bool>,
    /// True to compute sentence vectors with a copy of the base model that is not trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<bool>,
}

impl SelectorRecipe {
    /// Returns the settings, with the defaults in place of missing settings.
    pub fn settings(&self, max_tokens: usize) -> SelectorSettings {
        let history = self.history.unwrap_or_default();
        let head = self.head.unwrap_or_default();
        let usual = SentenceSettings::default_of(head, max_tokens);
        let sentences = SentenceSettings {
            max_tokens: self.turn_tokens.unwrap_or(usual.max_tokens),
            frame: self.frame.unwrap_or(usual.frame),
            pooling: self.pooling.unwrap_or(usual.pooling),
            first_weight: self.first_weight.unwrap_or(usual.first_weight),
            special_first_weight: self.special_first_weight,
            own_segment: self.own_segment.unwrap_or(usual.own_segment),
            frozen: self.frozen.unwrap_or(usual.frozen),
        };
        SelectorSettings {
            history,
            max_tokens,
            divider: self.divider.unwrap_or_default(),
            head,
            sentences: (history == History::Sentences).then_some(sentences),
        }
    }

    /// Returns true if sentence-transformers can load the selector.
    pub fn is_cross_encoder(self) -> bool {
        self.history.unwrap_or_default() == History::Tokens
            && self.head.unwrap_or_default() == HeadKind::Pooler
    }

    /// Returns the name of a given setting of sentence vectors that has no effect, because the context turns are tokens.
    pub(super) fn unused(&self) -> Option<&'static str> {
        if self.history == Some(History::Sentences) {
            return None;
        }
        let given = [
            ("turn_tokens", self.turn_tokens.is_some()),
            ("frame", self.frame.is_some()),
            ("pooling", self.pooling.is_some()),
            ("first_weight", self.first_weight.is_some()),
            ("special_first_weight", self.special_first_weight.is_some()),
            ("own_segment", self.own_segment.is_some()),
            ("frozen", self.frozen == Some(true)),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// Fills in missing settings from a selector that is trained further. Returns an error if its head is another one.
    pub(crate) fn continuing(self, start: &SelectorSettings) -> Result<Self> {
        let head = start.head.name();
        if let Some(given) = self.head.filter(|given| *given != start.head) {
            return Err(Error::input(format!("the selector has the head `{head}`, not `{}`", given.name()))
                .with_hint(format!("train it further with `{head}`, or start from an encoder")));
        }
        let known = SelectorRecipe::complete(start);
        let merged = SelectorRecipe {
            history: self.history.or(known.history),
            divider: self.divider.or(known.divider),
            head: known.head,
            ..self
        };
        Ok(match merged.history == Some(History::Sentences) {
            false => merged,
            true => SelectorRecipe {
                turn_tokens: self.turn_tokens.or(known.turn_tokens),
                frame: self.frame.or(known.frame),
                pooling: self.pooling.or(known.pooling),
                first_weight: self.first_weight.or(known.first_weight),
                special_first_weight: self.special_first_weight.or(known.special_first_weight),
                own_segment: self.own_segment.or(known.own_segment),
                frozen: self.frozen.or(known.frozen),
                ..merged
            },
        })
    }

    /// Returns the recipe of these settings, with all defaults.
    pub(super) fn complete(settings: &SelectorSettings) -> Self {
        let sentences = settings.sentences.as_ref();
        SelectorRecipe {
            history: Some(settings.history),
            divider: Some(settings.divider),
            head: Some(settings.head),
            turn_tokens: sentences.map(|s| s.max_tokens),
            frame: sentences.map(|s| s.frame),
            pooling: sentences.map(|s| s.pooling),
            first_weight: sentences.map(|s| s.first_weight),
            special_first_weight: sentences.and_then(|s| s.special_first_weight),
            own_segment: sentences.map(|s| s.own_segment),
            // The default is not stored: recipes from before this setting existed do not have it.
            frozen: sentences.and_then(|s| s.frozen.then_some(true)),
        }
    }
}
