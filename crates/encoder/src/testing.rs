//! A small deterministic encoder for tests: it hashes the words of a text to vectors of 16 numbers.

use std::sync::atomic::{AtomicUsize, Ordering};

use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

use crate::{
    DialogueOptions, EncodeStats, Encoded, Encoder, Fingerprint, TextOptions, TokenVectors, Vectors,
    fingerprint::Fingerprinter, network::Shape,
};

/// Shape of a small transformer. Its sizes are not multiples of 16, so SIMD code with 16 lanes has a remainder.
pub fn small_shape() -> Shape {
    Shape::bert(24, 3, 40)
}

/// Width of the vectors.
pub const DIM: usize = 16;

/// Encoder that hashes words. It counts the encoded inputs, so a test can check that nothing is encoded twice.
#[derive(Debug, Default)]
pub struct HashEncoder {
    /// Value that is hashed with each word. Encoders with different salts produce different vectors.
    pub salt: u8,
    /// If a text contains this string, encoding fails.
    pub fail_on: Option<&'static str>,
    /// If a text contains this string, its vector contains a NaN.
    pub not_finite_on: Option<&'static str>,
    /// Number of texts and dialogues encoded so far.
    pub encoded: AtomicUsize,
    /// Value that [`Encoder::chunks_at_once`] returns; 0 means 1.
    pub chunks_at_once: usize,
    /// Time to sleep in each call, to simulate a slow encoder.
    pub waits: Option<std::time::Duration>,
    /// Number of calls that are currently sleeping.
    pub now: AtomicUsize,
    /// Largest number of calls that were sleeping at the same time.
    pub most_at_once: AtomicUsize,
}

impl HashEncoder {
    /// Returns the vector of a text.
    pub fn vector(&self, text: &str) -> [f32; DIM] {
        let mut sum = [0.0; DIM];
        for word in text.split_whitespace() {
            let hash = blake3::hash(&[&[self.salt], word.as_bytes()].concat());
            for (n, byte) in sum.iter_mut().zip(hash.as_bytes()) {
                *n += f32::from(*byte) / 255.0 - 0.5;
            }
        }
        if self.not_finite_on.is_some_and(|part| text.contains(part)) {
            sum[3] = f32::NAN;
        }
        sum
    }

    /// Returns the vector of a dialogue.
    pub fn dialogue_vector(&self, dialogue: &Dialogue) -> [f32; DIM] {
        self.vector(&text_of(dialogue))
    }

    fn all<'a>(&self, texts: impl Iterator<Item = &'a str>) -> Result<Encoded> {
        let mut vectors = Vectors::new(DIM);
        let mut spent = EncodeStats::default();
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_at_once.fetch_max(now, Ordering::Relaxed);
        self.waits.into_iter().for_each(std::thread::sleep);
        self.now.fetch_sub(1, Ordering::Relaxed);
        for text in texts {
            if self.fail_on.is_some_and(|part| text.contains(part)) {
                return Err(Error::data(format!("refused on purpose: {text}")));
            }
            self.encoded.fetch_add(1, Ordering::Relaxed);
            let words = text.split_whitespace().count() as u64;
            spent += EncodeStats {
                tokens: words,
                cut_texts: u64::from(words > 50),
                cut_tokens: words.saturating_sub(50),
                windowed: 0,
                unknown: u64::from(words == 0),
            };
            vectors.push(&self.vector(text));
        }
        Ok(Encoded { vectors, spent })
    }
}

fn text_of(dialogue: &Dialogue) -> String {
    let line =
        |t: &turnwise_corpus::Turn| format!("<{}> {}", t.role.as_ref().map_or("", |r| r.as_str()), t.text);
    dialogue.turns.iter().map(line).collect::<Vec<_>>().join(" ")
}

impl Encoder for HashEncoder {
    fn name(&self) -> &str {
        "hashed words"
    }

    fn dim(&self) -> usize {
        DIM
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprinter::new("hashed words").text("salt", self.salt).finish()
    }

    fn describe(&self) -> String {
        "f32 on cpu".to_owned()
    }

    fn chunks_at_once(&self) -> usize {
        self.chunks_at_once.max(1)
    }

    fn encode(&self, texts: &[&str], _: &TextOptions) -> Result<Encoded> {
        self.all(texts.iter().copied())
    }

    fn encode_tokens(&self, texts: &[&str], _: &TextOptions) -> Result<Vec<TokenVectors>> {
        let words = |text: &&str| {
            let mut found = TokenVectors { vectors: Vectors::new(DIM), ..TokenVectors::default() };
            text.split_whitespace().for_each(|word| found.vectors.push(&self.vector(word)));
            found
        };
        Ok(texts.iter().map(words).collect())
    }

    fn encode_dialogues(&self, dialogues: &[&Dialogue], _: &DialogueOptions) -> Result<Encoded> {
        let texts: Vec<String> = dialogues.iter().map(|d| text_of(d)).collect();
        self.all(texts.iter().map(String::as_str))
    }
}
