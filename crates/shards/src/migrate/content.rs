//! Counts and checksums of the migrated data. They are the same for an index and for Milvus, and do not depend on the
//! order in which the data are read.

use serde::{Deserialize, Serialize};

use turnwise_core::error::Result;
use turnwise_corpus::{Dialogue, Turn};
use turnwise_index::vectors::{Kind, VectorReader, dialogue_key, utterance_key};
use turnwise_milvus::Moved;
use turnwise_store::Prepared;

/// Counts and checksums of all dialogues and vectors. Used to compare the original with the copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) dialogues: u64,
    pub(crate) turns: u64,
    /// Number of nonzero vectors of dialogues and turns.
    pub(crate) vectors: u64,
    /// Sum of the hashes of all dialogues.
    records: Sum,
    /// Sum of the hashes of all nonzero vectors, each hashed with the dialogue id and the turn number.
    numbers: Sum,
}

/// Order-independent sum of hashes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sum(u64, u64);

impl Sum {
    fn add(&mut self, hash: &blake3::Hash) {
        let [mut a, mut b] = [[0; 8]; 2];
        a.copy_from_slice(&hash.as_bytes()[..8]);
        b.copy_from_slice(&hash.as_bytes()[8..16]);
        self.0 = self.0.wrapping_add(u64::from_le_bytes(a));
        self.1 = self.1.wrapping_add(u64::from_le_bytes(b));
    }
}

impl Content {
    /// Adds a dialogue with its dialogue vector (`whole`), and its turns with their utterance vectors.
    pub(crate) fn add<'a>(
        &mut self,
        dialogue: &Dialogue,
        whole: Option<&[f32]>,
        turns: impl Iterator<Item = (&'a Turn, Option<&'a [f32]>)>,
    ) -> Result<()> {
        let prepared = Prepared::new(dialogue)?;
        let mut hasher = blake3::Hasher::new();
        self.records.add(&hasher.update(&prepared.id.0).update(&prepared.json).finalize());
        self.dialogues += 1;
        self.turns += dialogue.turns.len() as u64;
        let whole = whole.map(|vector| (String::new(), vector));
        let turns = turns.filter_map(|(turn, vector)| Some((turn.number.to_string(), vector?)));
        for (position, vector) in whole.into_iter().chain(turns) {
            // Skip zero vectors: a search with a zero vector finds nothing, and an engine need not store them.
            if vector.iter().all(|v| *v == 0.0) {
                continue;
            }
            let mut hasher = blake3::Hasher::new();
            hasher.update(&prepared.id.0).update(position.as_bytes()).update(&[0]);
            vector.iter().for_each(|v| {
                hasher.update(&v.to_le_bytes());
            });
            self.numbers.add(&hasher.finalize());
            self.vectors += 1;
        }
        Ok(())
    }

    /// Adds a dialogue read from Milvus.
    pub(crate) fn add_moved(&mut self, moved: &Moved) -> Result<()> {
        let turns = moved.dialogue.turns.iter().zip(moved.turns.iter().map(Option::as_deref));
        self.add(&moved.dialogue, moved.whole.as_deref(), turns)
    }

    /// Adds a dialogue read from an index, with its vectors. Returns the number of its vectors that are missing in
    /// `vectors`. If `vectors` is `None`, adds no vectors and returns 0.
    pub(crate) fn add_local(&mut self, dialogue: &Dialogue, vectors: Option<&VectorReader>) -> Result<u64> {
        let Some(reader) = vectors else {
            return self.add(dialogue, None, std::iter::empty()).map(|()| 0);
        };
        let whole = reader.get(Kind::Dialogues, &dialogue_key(dialogue))?;
        let turns: Vec<(&Turn, Option<&[f32]>)> = dialogue
            .turns
            .iter()
            .map(|turn| Ok((turn, reader.get(Kind::Utterances, &utterance_key(&turn.text))?)))
            .collect::<Result<_>>()?;
        let missing =
            turns.iter().filter(|(_, vector)| vector.is_none()).count() + usize::from(whole.is_none());
        self.add(dialogue, whole, turns.into_iter())?;
        Ok(missing as u64)
    }

    /// Combines the two sums of hashes into one checksum.
    pub(crate) fn checksum(&self) -> String {
        let Content { records, numbers, .. } = self;
        format!("{:016x}{:016x}", records.0 ^ numbers.1, records.1 ^ numbers.0)
    }

    /// Returns a description of the first difference from `other`, or `None` if both are equal.
    pub(crate) fn differs(&self, other: &Content) -> Option<String> {
        let counts = [
            ("dialogues", self.dialogues, other.dialogues),
            ("turns", self.turns, other.turns),
            ("vectors", self.vectors, other.vectors),
        ];
        if let Some((what, here, there)) = counts.into_iter().find(|(_, here, there)| here != there) {
            return Some(format!("expected {here} {what}, found {there}"));
        }
        match (self.records == other.records, self.numbers == other.numbers) {
            (true, true) => None,
            (false, _) => Some("a dialogue has changed".to_owned()),
            (true, false) => Some("a vector has changed".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::Role;

    fn dialogue(id: &str, text: &str) -> Dialogue {
        let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
        dialogue.push("Ann", Role::User, text);
        dialogue
    }

    fn of(all: &[(&Dialogue, &[f32])]) -> Content {
        let mut content = Content::default();
        for (dialogue, vector) in all {
            let turns = dialogue.turns.iter().map(|turn| (turn, Some(*vector)));
            content.add(dialogue, None, turns).unwrap();
        }
        content
    }

    #[test]
    fn only_the_order_does_not_matter() {
        let (a, b, c) = (dialogue("a", "x"), dialogue("b", "x"), dialogue("b", "y"));
        let (one, two): (&[f32], &[f32]) = (&[1.0, 0.0], &[0.0, 1.0]);
        let all = of(&[(&a, one), (&b, two)]);
        assert_eq!(all.differs(&of(&[(&b, two), (&a, one)])), None);
        for (other, says) in [
            (of(&[(&a, one)]), "expected 2 dialogues, found 1"),
            (of(&[(&a, one), (&b, &[0.0, 0.0])]), "expected 2 vectors, found 1"),
            (of(&[(&a, two), (&b, one)]), "a vector has changed"),
            (of(&[(&a, one), (&c, two)]), "a dialogue has changed"),
        ] {
            assert_eq!(all.differs(&other).as_deref(), Some(says));
            assert_ne!(all.checksum(), other.checksum());
        }
    }
}
