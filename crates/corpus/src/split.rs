//! Splits a corpus into parts, such as train and test.
//!
//! The part of a dialogue depends only on the seed and on the id of the dialogue, not on the rest of the corpus.

use std::str::FromStr;

use turnwise_core::{
    error::{Error, Result},
    ids::DialogueId,
};

/// Parts of a split. Each part has a name and a share of the dialogues. The shares add up to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts(Vec<(String, f64)>);

impl Parts {
    /// Returns the names of the parts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the index of the part to which a dialogue belongs. The index refers to the order of [`Parts::names`].
    pub fn part_of(&self, id: &DialogueId, seed: u64) -> usize {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(id.as_str().as_bytes());
        let head: [u8; 8] = hasher.finalize().as_bytes()[..8].try_into().unwrap_or_default();
        let position = (u64::from_le_bytes(head) >> 11) as f64 / (1u64 << 53) as f64;
        let mut end = 0.0;
        let found = self.0.iter().position(|(_, share)| {
            end += share;
            position < end
        });
        found.unwrap_or(self.0.len() - 1)
    }
}

impl FromStr for Parts {
    type Err = Error;

    /// Parses the names and shares of parts, for example `train=0.8,dev=0.1,test=0.1`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |message: String| {
            Error::input(message).with_hint("for example: --parts train=0.8,dev=0.1,test=0.1")
        };
        let mut parts: Vec<(String, f64)> = Vec::new();
        for item in text.split(',') {
            let Some((name, share)) = item.split_once('=') else {
                return Err(wrong(format!("`{item}` in --parts is not NAME=SHARE")));
            };
            let name = name.trim().to_owned();
            let share: f64 =
                share.trim().parse().ok().filter(|s| *s > 0.0 && *s <= 1.0).ok_or_else(|| {
                    wrong(format!("the share of `{name}` must be greater than 0 and at most 1"))
                })?;
            let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_".contains(c));
            if !plain || parts.iter().any(|(n, _)| *n == name) {
                return Err(wrong(format!("`{name}` in --parts is not a valid part name, or is used twice")));
            }
            parts.push((name, share));
        }
        let sum: f64 = parts.iter().map(|(_, share)| share).sum();
        if (sum - 1.0).abs() > 1e-6 {
            return Err(wrong(format!("the shares in --parts add up to {sum}, but must add up to 1")));
        }
        Ok(Parts(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_their_shares_and_are_stable() {
        let parts: Parts = "train=0.8,dev=0.1,test=0.1".parse().unwrap();
        let mut counts = [0u32; 3];
        for n in 0..10_000 {
            let id = DialogueId::new(format!("d{n}")).unwrap();
            let part = parts.part_of(&id, 7);
            assert_eq!(part, parts.part_of(&id, 7));
            counts[part] += 1;
        }
        assert!(counts[0].abs_diff(8000) < 150 && counts[1].abs_diff(1000) < 120, "{counts:?}");
        let id = DialogueId::new("d1").unwrap();
        assert!((0..50).any(|seed| parts.part_of(&id, seed) != parts.part_of(&id, 7)));
    }

    #[test]
    fn shares_must_add_up() {
        for bad in ["train=0.8,dev=0.1", "a=1,a=0", "a", "a=x", "=1", "a/b=1"] {
            assert!(bad.parse::<Parts>().is_err(), "{bad}");
        }
    }
}
