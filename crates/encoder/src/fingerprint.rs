//! Fingerprints, which identify an encoder in an index.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use turnwise_core::error::Error;

/// Hash of the properties of an encoder: weights, tokenizer, pooling, layers, prompts, maximum length, normalization.
/// Device and precision are not included, because they change the vectors only slightly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(u128);

/// Computes a fingerprint from named properties. Names and values are hashed together with their lengths, so that
/// different properties never produce the same hash input.
pub struct Fingerprinter(blake3::Hasher);

impl Fingerprinter {
    /// Starts a fingerprint. `family` is the kind of encoder, so that different kinds never share a fingerprint.
    pub fn new(family: &str) -> Self {
        let mut hasher = Fingerprinter(blake3::Hasher::new());
        hasher.part("family", family.as_bytes());
        hasher
    }

    /// Adds one property of the encoder to the hash, such as the weights or a setting.
    pub fn part(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        for piece in [name.as_bytes(), bytes] {
            self.0.update(&(piece.len() as u64).to_le_bytes());
            self.0.update(piece);
        }
        self
    }

    /// Adds a property like [`Self::part`], but converts the value to text.
    pub fn text(&mut self, name: &str, value: impl fmt::Display) -> &mut Self {
        self.part(name, value.to_string().as_bytes())
    }

    /// Returns the fingerprint of all properties added so far.
    pub fn finish(&self) -> Fingerprint {
        let mut bytes = [0; 16];
        self.0.finalize_xof().fill(&mut bytes);
        Fingerprint(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // `from_str_radix` also accepts a sign, so check that every character is a digit.
        let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| digits);
        number.map(Fingerprint).ok_or_else(|| {
            Error::data(format!("invalid fingerprint `{text}`: it must be 32 hexadecimal digits"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cannot_be_confused() {
        let of = |parts: &[(&str, &str)]| {
            let mut f = Fingerprinter::new("test");
            parts.iter().for_each(|(name, value)| {
                f.text(name, value);
            });
            f.finish()
        };
        assert_ne!(of(&[("a", "bc")]), of(&[("ab", "c")]));
        assert_ne!(of(&[("a", "b"), ("c", "d")]), of(&[("c", "d"), ("a", "b")]));
        let one = of(&[("a", "b")]);
        assert_eq!(one.to_string().parse::<Fingerprint>().unwrap(), one);
        assert!("xyz".parse::<Fingerprint>().is_err());
        assert!("é".repeat(16).parse::<Fingerprint>().is_err());
        assert!("+f".repeat(16).parse::<Fingerprint>().is_err());
    }
}
