//! The interface of every encoder, transformer or static.

use std::ops::Range;

use crate::{Fingerprint, Vectors};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

/// Turns texts and dialogues into vectors of one width.
///
/// The same input always gives the same vector (within 1e-5 in f32). It does not depend on the other inputs,
/// their order or the number of threads. Every vector is finite.
pub trait Encoder: Send + Sync {
    /// Name for display: the model's name, or a description of a static encoder.
    fn name(&self) -> &str;

    /// Width of the vectors.
    fn dim(&self) -> usize;

    /// Identifies the encoder in an index.
    fn fingerprint(&self) -> Fingerprint;

    /// Device and precision, for display: `int8 on cpu (avx2), 2 threads`.
    fn describe(&self) -> String;

    /// Maximum number of tokens per text; `None` if there is no limit.
    fn max_tokens(&self) -> Option<usize> {
        None
    }

    /// Notices about how the encoder was opened: settings that are missing or contradictory, and the choice
    /// that was made.
    fn notices(&self) -> &[String] {
        &[]
    }

    /// Number of chunks of a stream to encode at the same time. It is 2 if the CPU can prepare one chunk while
    /// a GPU computes another.
    fn chunks_at_once(&self) -> usize {
        1
    }

    /// Whether all vectors have length 1. The vectors of inputs without known words are zero in any case.
    fn normalizes(&self) -> bool {
        false
    }

    /// Best amount of text per call, in bytes. Stopping waits until a call has finished, which takes a few
    /// seconds on the CPU.
    fn chunk_bytes(&self) -> usize {
        64 << 10
    }

    /// Encodes each text to one vector, in the order of the texts. An empty text has a vector too.
    fn encode(&self, texts: &[&str], options: &TextOptions) -> Result<Encoded>;

    /// Encodes each dialogue to one vector, in the order of the dialogues.
    fn encode_dialogues(&self, dialogues: &[&Dialogue], options: &DialogueOptions) -> Result<Encoded>;

    /// Encodes texts that are already tokenized with this encoder's tokenizer, with or without special tokens.
    /// Only transformers support this.
    fn encode_ids(&self, _texts: &[&[u32]], _options: &TextOptions) -> Result<Encoded> {
        Err(Error::Input {
            message: format!("{} does not support token ids", self.name()),
            hint: Some("send texts".to_owned()),
        })
    }

    /// Returns the vectors of each text's tokens, in their order. These are the token states that pooling works
    /// on, before any later step of the model. Only encoders with contextual token vectors support this.
    fn encode_tokens(&self, _texts: &[&str], _options: &TextOptions) -> Result<Vec<TokenVectors>> {
        Err(Error::Input {
            message: format!("{} has no token vectors", self.name()),
            hint: Some("use a transformer, such as the default model".to_owned()),
        })
    }
}

/// Token vectors of one text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TokenVectors {
    /// One row per token.
    pub vectors: Vectors,
    /// Byte range of each token in the text; empty for the special tokens.
    pub ranges: Vec<Range<usize>>,
    /// Number of tokens cut off because the text was too long.
    pub cut: usize,
}

/// Vectors, and statistics of the encoding.
#[derive(Debug, Clone, Default)]
pub struct Encoded {
    /// One row per input.
    pub vectors: Vectors,
    /// Statistics of the encoding.
    pub spent: Spent,
}

/// Statistics of an encoding: tokens processed, and inputs that did not fit. Nothing is cut silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Spent {
    /// Tokens processed (for static encoders: known words).
    pub tokens: u64,
    /// Texts that exceeded the maximum length and were cut.
    pub cut_texts: u64,
    /// Number of tokens cut off.
    pub cut_tokens: u64,
    /// Dialogues that were encoded in more than one window.
    pub windowed: u64,
    /// Inputs without any known word or token; their vector is zero.
    pub unknown: u64,
}

impl std::ops::AddAssign for Spent {
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
    /// Name of one of the model's prompts (`query`, `passage`, …). Without it, the model's default prompt is
    /// used, if it has one.
    pub prompt: Option<String>,
}

/// Options for encoding dialogues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DialogueOptions {
    /// Whether a dialogue is encoded as one sequence, or from the vectors of its utterances.
    pub mode: DialogueMode,
    /// How the vectors of tokens or utterances are reduced to one.
    pub pooling: DialoguePooling,
    /// As in [`TextOptions`].
    pub prompt: Option<String>,
}

/// How a dialogue is passed to the encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum DialogueMode {
    /// One sequence: the turns, joined with the model's separator. A dialogue beyond the maximum length is
    /// split into windows of whole turns.
    #[default]
    Sequence,
    /// Mean of the vectors of its utterances.
    Utterances,
}

/// How the parts of a dialogue (tokens or utterances) are reduced to one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum DialoguePooling {
    /// Mean of all parts.
    #[default]
    Mean,
    /// Sum, over the speakers, of the mean of each speaker's parts (dial2vec's interlocutor-level pooling).
    Interlocutors,
    /// Mean of the parts of the first speaker (dial2vec's p1).
    FirstSpeaker,
    /// Mean of the parts of all other speakers (dial2vec's p2).
    OtherSpeakers,
}

impl DialoguePooling {
    /// Group of a speaker's parts. Speakers are numbered in the order in which they first speak. The vector is
    /// the sum of the means of all groups; speakers with `None` are ignored.
    pub(super) fn group(self, speaker: usize) -> Option<usize> {
        match self {
            DialoguePooling::Mean => Some(0),
            DialoguePooling::Interlocutors => Some(speaker),
            DialoguePooling::FirstSpeaker => (speaker == 0).then_some(0),
            DialoguePooling::OtherSpeakers => (speaker > 0).then_some(0),
        }
    }
}
