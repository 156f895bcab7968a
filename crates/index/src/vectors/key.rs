//! Keys of vectors: hashes of the encoder's input.

use turnwise_core::ids::IdKey;
use turnwise_corpus::{Dialogue, Role};

/// Kind of item that a vector represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One utterance.
    Utterances,
    /// A whole dialogue.
    Dialogues,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 2] = [Kind::Utterances, Kind::Dialogues];

    /// Name of the kind; also the prefix of its file names.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Utterances => "utterances",
            Kind::Dialogues => "dialogues",
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

fn hasher(kind: Kind) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.name().as_bytes()).update(&[0]);
    hasher
}

/// Returns the key of an utterance's vector.
pub fn utterance_key(text: &str) -> IdKey {
    IdKey::from_hash(&hasher(Kind::Utterances).update(text.as_bytes()).finalize())
}

/// Returns the key of a dialogue's vector: a hash of role, speaker and text of all turns, in order. Ids, times
/// and labels are not encoded and not hashed.
pub fn dialogue_key(dialogue: &Dialogue) -> IdKey {
    let mut hasher = hasher(Kind::Dialogues);
    for turn in &dialogue.turns {
        let role = turn.role.as_ref().map_or("", Role::as_str);
        for part in [role, &turn.speaker, &turn.text] {
            // The length prefix keeps adjacent parts apart: `ab`+`c` and `a`+`bc` get different keys.
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
    }
    IdKey::from_hash(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::ids::DialogueId;

    #[test]
    fn a_key_covers_what_the_encoder_sees_and_nothing_else() {
        let dialogue = |id: &str, speaker: &str, role: Role, text: &str| {
            let mut d = Dialogue::new(DialogueId::new(id).unwrap());
            d.push(speaker, role, text);
            d
        };
        let one = dialogue_key(&dialogue("a", "Ann", Role::User, "hi"));
        assert_eq!(one, dialogue_key(&dialogue("b", "Ann", Role::User, "hi")));
        assert_ne!(one, dialogue_key(&dialogue("a", "Bob", Role::User, "hi")));
        assert_ne!(one, dialogue_key(&dialogue("a", "Ann", Role::Agent, "hi")));
        assert_ne!(one, dialogue_key(&dialogue("a", "Ann", Role::User, "ho")));
        assert_ne!(
            dialogue_key(&dialogue("a", "Ann", Role::User, "ab")),
            dialogue_key(&dialogue("a", "Anna", Role::User, "b"))
        );
        assert_ne!(utterance_key("hi"), utterance_key("hi "));
    }
}
