//! What every encoder does, transformer or not.

use std::ops::Range;

use crate::{Fingerprint, Vectors};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

/// Turns texts and dialogues into vectors of one width.
///
/// The same input gives the same vector (within 1e-5 in f32) whatever else is encoded with it, in whichever order
/// and on however many threads. Every vector is finite.
pub trait Encoder: Send + Sync {
    /// A name for people: the model's, or what a static encoder was made of.
    fn name(&self) -> &str;

    /// The width of its vectors.
    fn dim(&self) -> usize;

    /// What an index remembers of it.
    fn fingerprint(&self) -> Fingerprint;

    /// Where and how it runs, for people: `int8 on cpu (avx2), 2 threads`.
    fn describe(&self) -> String;

    /// How many tokens of a text it takes in; `None` where there is no limit.
    fn max_tokens(&self) -> Option<usize> {
        None
    }

    /// What people should know of how it was opened: where its files are silent or disagree, and what was done.
    fn notices(&self) -> &[String] {
        &[]
    }

    /// How many chunks of a stream are given to it at the same time: two where one can be prepared on the processor while
    /// another is on a device.
    fn chunks_at_once(&self) -> usize {
        1
    }

    /// Whether its vectors have length 1 (but those of nothing, which are all zeros).
    fn normalizes(&self) -> bool {
        false
    }

    /// How much text is best given to it at once. A stop waits for what has been given: on the CPU for a few seconds.
    fn chunk_bytes(&self) -> usize {
        64 << 10
    }

    /// One vector a text, in their order. An empty text has a vector too.
    fn encode(&self, texts: &[&str], options: &TextOptions) -> Result<Encoded>;

    /// One vector a dialogue, in their order.
    fn encode_dialogues(&self, dialogues: &[&Dialogue], options: &DialogueOptions) -> Result<Encoded>;

    /// One vector a text that was cut into tokens elsewhere, by this encoder's own tokenizer, with or without the special ones
    /// around them. Only encoders with such tokens can.
    fn encode_ids(&self, _texts: &[&[u32]], _options: &TextOptions) -> Result<Encoded> {
        Err(Error::Input {
            message: format!("{} knows words, not numbers of tokens", self.name()),
            hint: Some("send texts".to_owned()),
        })
    }

    /// The vectors of each text's tokens, in their order: what a mean over tokens would be taken of, before anything else
    /// that the model does. Only encoders that see tokens in their context have them.
    fn encode_tokens(&self, _texts: &[&str], _options: &TextOptions) -> Result<Vec<TokenVectors>> {
        Err(Error::Input {
            message: format!("{} has no vectors of single tokens", self.name()),
            hint: Some("transformers have them, such as the default model".to_owned()),
        })
    }
}

/// The tokens of one text as vectors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TokenVectors {
    /// One row a token.
    pub vectors: Vectors,
    /// The bytes of the text that each token stands for; none for those that the model puts around texts.
    pub ranges: Vec<Range<usize>>,
    /// How many tokens were cut off because the text was too long.
    pub cut: usize,
}

/// Vectors, and what they took.
#[derive(Debug, Clone, Default)]
pub struct Encoded {
    /// One row an input.
    pub vectors: Vectors,
    /// What it took.
    pub spent: Spent,
}

/// What an encoding took, and where it could not take in all of the input: nothing is cut silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Spent {
    /// Tokens that went through the encoder (for static encoders: words that were known).
    pub tokens: u64,
    /// Texts that were longer than the encoder takes, and were cut.
    pub cut_texts: u64,
    /// Tokens that were cut off.
    pub cut_tokens: u64,
    /// Dialogues that went through in more than one window.
    pub windowed: u64,
    /// Inputs of which the encoder knew nothing, so that their vector is all zeros.
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

/// How texts are encoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextOptions {
    /// The name of one of the model's prompts (`query`, `passage`, …); without it the model's default prompt, if it
    /// has one.
    pub prompt: Option<String>,
}

/// How dialogues are encoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DialogueOptions {
    /// As one sequence, or from the vectors of the utterances.
    pub mode: DialogueMode,
    /// How token vectors, or utterance vectors, become one.
    pub pooling: DialoguePooling,
    /// As in [`TextOptions`].
    pub prompt: Option<String>,
}

/// What a dialogue is to the encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DialogueMode {
    /// One sequence, its turns divided by the model's separator; beyond the model's length, windows of whole turns.
    #[default]
    Sequence,
    /// The mean of the vectors of its utterances.
    Utterances,
}

/// How the parts of a dialogue become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DialoguePooling {
    /// The mean of all parts.
    #[default]
    Mean,
    /// The sum, over the speakers, of the mean of each one's parts (dial2vec's interlocutor-level pooling).
    Interlocutors,
    /// The mean of the parts of whoever speaks first (dial2vec's p1).
    FirstSpeaker,
    /// The mean of the parts of all others (dial2vec's p2).
    OtherSpeakers,
}

impl DialoguePooling {
    /// Whose parts are put together with those of a speaker, who are numbered in the order in which they first speak.
    /// The vector is the sum of the means of all groups; who is in none plays no part.
    pub(super) fn group(self, speaker: usize) -> Option<usize> {
        match self {
            DialoguePooling::Mean => Some(0),
            DialoguePooling::Interlocutors => Some(speaker),
            DialoguePooling::FirstSpeaker => (speaker == 0).then_some(0),
            DialoguePooling::OtherSpeakers => (speaker > 0).then_some(0),
        }
    }
}
