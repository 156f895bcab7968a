//! Interface of all encoders, both transformers and static encoders.

use std::{collections::HashMap, ops::Range};

use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

use crate::{Fingerprint, Vectors};

/// Encodes texts and dialogues as vectors of a fixed width.
///
/// The vector of an input does not depend on the other inputs, on their order or on the number of threads, except for
/// rounding errors. In f32, a rounding error is at most 1e-5 per element. All elements of the vectors are finite.
pub trait Encoder: Send + Sync {
    /// Returns the name for display: the model's name, or a description of a static encoder.
    fn name(&self) -> &str;

    /// Returns the width of the vectors.
    fn dim(&self) -> usize;

    /// Returns the fingerprint, which identifies the encoder in an index.
    fn fingerprint(&self) -> Fingerprint;

    /// Returns the device and precision for display, such as `int8 on cpu (avx2), 2 threads`.
    fn describe(&self) -> String;

    /// Returns the maximum number of tokens per text; `None` if there is no limit.
    fn max_tokens(&self) -> Option<usize> {
        None
    }

    /// Returns notices for the user about problems in the model's files, such as missing or contradictory settings.
    fn notices(&self) -> &[String] {
        &[]
    }

    /// Returns the number of chunks (groups of inputs) that [`crate::ahead::encode`] encodes in parallel. The number is
    /// 2 on a GPU: the CPU tokenizes one chunk while the GPU computes another.
    fn chunks_at_once(&self) -> usize {
        1
    }

    /// Returns true if all vectors are L2-normalized, except zero vectors.
    fn normalizes(&self) -> bool {
        false
    }

    /// Returns the recommended number of bytes of text per call. Calls should be short, because a call cannot be
    /// canceled.
    fn chunk_bytes(&self) -> usize {
        64 << 10
    }

    /// Encodes each text to one vector, in the order of the texts. An empty text also gets a vector. Fails if the model
    /// does not have the prompt in `options`.
    fn encode(&self, texts: &[&str], options: &TextOptions) -> Result<Encoded>;

    /// Encodes each dialogue to one vector, in the order of the dialogues. Fails if the model does not have the
    /// prompt in `options`.
    fn encode_dialogues(&self, dialogues: &[&Dialogue], options: &DialogueOptions) -> Result<Encoded>;

    /// Encodes texts that are already tokenized with this encoder's tokenizer, with or without special tokens. Fails if
    /// the encoder is not a transformer, or if a token id is out of range.
    fn encode_ids(&self, _texts: &[&[u32]], _options: &TextOptions) -> Result<Encoded> {
        Err(Error::input(format!("{} does not support token ids", self.name())).with_hint("send texts"))
    }

    /// Returns one vector per token for each text, in token order. These vectors are the hidden states that
    /// [`Encoder::encode`] pools. Fails if the encoder has no token vectors.
    fn encode_tokens(&self, _texts: &[&str], _options: &TextOptions) -> Result<Vec<TokenVectors>> {
        Err(Error::input(format!("{} has no token vectors", self.name()))
            .with_hint("use a transformer, such as the default model"))
    }

    /// Returns one static embedding per token for each text, in token order: the input of the network's first layer. It
    /// ignores the other tokens, and is much faster to compute than the vectors of [`Encoder::encode_tokens`]. Fails if
    /// the encoder has no token vectors. For an encoder whose token vectors are static, both methods are the same.
    fn embed_tokens(&self, texts: &[&str]) -> Result<Vec<TokenVectors>> {
        self.encode_tokens(texts, &TextOptions::default())
    }
}

/// Token vectors of one text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TokenVectors {
    /// The token vectors, one row per token.
    pub vectors: Vectors,
    /// Byte range of each token in the text; empty for special tokens and for tokens of the prompt.
    pub ranges: Vec<Range<usize>>,
    /// Number of tokens cut off because the text was too long.
    pub cut: usize,
}

/// Result of an encoding: the vectors and statistics.
#[derive(Debug, Clone, Default)]
pub struct Encoded {
    /// One row per input.
    pub vectors: Vectors,
    /// Statistics of this encoding, such as the number of tokens.
    pub spent: EncodeStats,
}

/// Statistics of an encoding, such as the number of tokens and the number of truncated texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct EncodeStats {
    /// Number of tokens processed, including special tokens. A static encoder counts the known words.
    pub tokens: u64,
    /// Number of texts that were truncated to the maximum number of tokens.
    pub cut_texts: u64,
    /// Number of tokens cut off from truncated texts.
    pub cut_tokens: u64,
    /// Number of dialogues that were encoded in several windows, because they have too many tokens for one sequence.
    pub windowed: u64,
    /// Number of inputs without any known word or token.
    pub unknown: u64,
}

impl std::ops::AddAssign for EncodeStats {
    fn add_assign(&mut self, more: Self) {
        self.tokens += more.tokens;
        self.cut_texts += more.cut_texts;
        self.cut_tokens += more.cut_tokens;
        self.windowed += more.windowed;
        self.unknown += more.unknown;
    }
}

/// Options for encoding texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextOptions {
    /// Name of one of the model's prompts (`query`, …). `None` selects the default prompt, if the model has one.
    pub prompt: Option<String>,
}

/// Options for encoding dialogues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DialogueOptions {
    /// Form in which a dialogue is encoded: as one sequence, or as separate utterances.
    pub mode: DialogueMode,
    /// Pooling of token vectors or utterance vectors into one vector.
    pub pooling: DialoguePooling,
    /// Name of the prompt; see [`TextOptions::prompt`].
    pub prompt: Option<String>,
}

/// Form in which a dialogue is passed to the encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum DialogueMode {
    /// One sequence: the turns, joined with the model's separator. A sequence with too many tokens is split into
    /// windows of whole turns.
    #[default]
    Sequence,
    /// Separate utterances, whose vectors are pooled into one.
    Utterances,
}

/// Pooling of the tokens or utterances of a dialogue into one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum DialoguePooling {
    /// Mean of all tokens or utterances.
    #[default]
    Mean,
    /// For each speaker, the mean of the speaker's tokens or utterances; then the sum over the speakers
    /// (interlocutor-level pooling, as in dial2vec).
    Interlocutors,
    /// Mean of the tokens or utterances of the first speaker (p1 in the paper on dial2vec).
    FirstSpeaker,
    /// Mean of the tokens or utterances of all speakers except the first (p2 in the paper on dial2vec).
    OtherSpeakers,
}

impl DialoguePooling {
    /// Returns the group in which a speaker's tokens are averaged; `None` if the tokens are ignored. Speakers are
    /// numbered from 0 by first appearance. The vector of a dialogue is the sum of the groups' means.
    pub(super) fn group(self, speaker: usize) -> Option<usize> {
        match self {
            DialoguePooling::Mean => Some(0),
            DialoguePooling::Interlocutors => Some(speaker),
            DialoguePooling::FirstSpeaker => (speaker == 0).then_some(0),
            DialoguePooling::OtherSpeakers => (speaker > 0).then_some(0),
        }
    }
}

/// Returns the speaker number of each turn. Speakers are numbered from 0 in the order in which they first speak.
pub(crate) fn speakers(dialogue: &Dialogue) -> Vec<usize> {
    let mut known = HashMap::new();
    let turns = dialogue.turns.iter().map(|turn| {
        // A speaker is identified by name, or by role if there is no name.
        let role = turn.role.as_ref().filter(|_| turn.speaker.is_empty());
        let next = known.len();
        *known.entry((turn.speaker.as_str(), role)).or_insert(next)
    });
    turns.collect()
}

#[cfg(test)]
mod tests {
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::Role;

    use super::*;

    #[test]
    fn speakers_are_identified_by_name_or_else_by_role() {
        let mut d = Dialogue::new(DialogueId::new("d").unwrap());
        let turns = [
            ("Ann", Role::User),
            ("Bo", Role::User),
            ("Ann", Role::User),
            ("", Role::User),
            ("", Role::Agent),
        ];
        for (speaker, role) in turns {
            d.push(speaker, role, "x");
        }
        assert_eq!(speakers(&d), [0, 1, 0, 2, 3]);
    }
}
