//! Splitting a corpus into parts.
//!
//! The part of a dialogue depends on the seed and its id alone: it stays when the corpus grows, whatever the order.

use std::str::FromStr;

use turnwise_core::{
    error::{Error, Result},
    ids::DialogueId,
};

/// Named parts and their shares.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts(Vec<(String, f64)>);

impl Parts {
    /// The parts' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The number of the part that a dialogue belongs to.
    pub fn part_of(&self, id: &DialogueId, seed: u64) -> usize {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(id.as_str().as_bytes());
        let head: [u8; 8] = hasher.finalize().as_bytes()[..8].try_into().unwrap_or_default();
        let place = (u64::from_le_bytes(head) >> 11) as f64 / (1u64 << 53) as f64;
        let mut end = 0.0;
        let found = self.0.iter().position(|(_, share)| {
            end += share;
            place < end
        });
        found.unwrap_or(self.0.len() - 1)
    }
}

impl FromStr for Parts {
    type Err = Error;

    /// Reads `train=0.8,dev=0.1,test=0.1`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |message: String| Error::Input {
            message,
            hint: Some("for example --parts train=0.8,dev=0.1,test=0.1".to_owned()),
        };
        let mut parts: Vec<(String, f64)> = Vec::new();
        for item in text.split(',') {
            let (name, share) = item
                .split_once('=')
                .ok_or_else(|| wrong(format!("`{item}` in --parts is not NAME=SHARE")))?;
            let name = name.trim().to_owned();
            let share: f64 =
                share.trim().parse().ok().filter(|s| *s > 0.0 && *s <= 1.0).ok_or_else(|| {
                    wrong(format!("the share of `{name}` is not a number over 0 and up to 1"))
                })?;
            let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_".contains(c));
            if !plain || parts.iter().any(|(n, _)| *n == name) {
                return Err(wrong(format!("`{name}` cannot name a part, or names two")));
            }
            parts.push((name, share));
        }
        let sum: f64 = parts.iter().map(|(_, share)| share).sum();
        if (sum - 1.0).abs() > 1e-6 {
            return Err(wrong(format!("the shares in --parts add up to {sum}, not to 1")));
        }
        Ok(Parts(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_met_and_a_dialogue_stays_in_its_part() {
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
