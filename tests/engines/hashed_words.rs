//! Encoder without a model: the vector of a text is the normalized sum of pseudo-random vectors of its words.

use turnwise_core::Result;
use turnwise_corpus::Dialogue;
use turnwise_encoder::{
    DialogueOptions, EncodeStats, Encoded, Encoder, Fingerprint, TextOptions, TokenVectors, Vectors,
    transformer::Tokens,
};
use turnwise_index::vectors::Recipe;

const DIM: usize = 48;

/// The encoder. Encoders with different salts return different vectors.
pub struct HashedWords {
    pub salt: u8,
}

impl HashedWords {
    fn vector(&self, text: &str) -> Vec<f32> {
        let mut sum = vec![0.0; DIM];
        // The additional word keeps the vector of an empty text from being zero.
        for word in text.split_whitespace().chain(["."]) {
            let seed = word.bytes().fold(u32::from(self.salt) + 17, |hash, byte| {
                (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193).rotate_left(5)
            });
            let mut state = seed | 1;
            for number in &mut sum {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                *number += (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
            }
        }
        let length = sum.iter().map(|v| v * v).sum::<f32>().sqrt();
        sum.iter().map(|v| v / length).collect()
    }

    pub fn recipe(&self) -> Recipe {
        Recipe::of(self, "words", "auto", &Tokens::default(), &Default::default())
    }
}

impl Encoder for HashedWords {
    fn name(&self) -> &str {
        "hashed words"
    }

    fn dim(&self) -> usize {
        DIM
    }

    fn fingerprint(&self) -> Fingerprint {
        format!("{:032x}", 0xabc + u128::from(self.salt)).parse().unwrap()
    }

    fn describe(&self) -> String {
        "f32 on cpu".to_owned()
    }

    fn encode(&self, texts: &[&str], _: &TextOptions) -> Result<Encoded> {
        let mut vectors = Vectors::new(DIM);
        texts.iter().for_each(|text| vectors.push(&self.vector(text)));
        Ok(Encoded { vectors, spent: EncodeStats::default() })
    }

    fn encode_dialogues(&self, dialogues: &[&Dialogue], _: &DialogueOptions) -> Result<Encoded> {
        let mut vectors = Vectors::new(DIM);
        for dialogue in dialogues {
            let texts: Vec<&str> = dialogue.turns.iter().map(|turn| turn.text.as_str()).collect();
            vectors.push(&self.vector(&texts.join(" ")));
        }
        Ok(Encoded { vectors, spent: EncodeStats::default() })
    }

    fn encode_tokens(&self, texts: &[&str], _: &TextOptions) -> Result<Vec<TokenVectors>> {
        let tokens = |text: &&str| {
            let mut vectors = Vectors::new(DIM);
            text.split_whitespace().for_each(|word| vectors.push(&self.vector(word)));
            TokenVectors { vectors, ..TokenVectors::default() }
        };
        Ok(texts.iter().map(tokens).collect())
    }
}
