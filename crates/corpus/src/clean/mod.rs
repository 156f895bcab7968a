//! Cleaning: each step asked for by name, each with a count of what it did.

pub mod redact;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick, is_nfkc_quick};

use crate::Dialogue;

/// A Unicode normalisation form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Composed; keeps what the text looks like.
    Nfc,
    /// Composed and unified: full-width letters become plain ones, ligatures are split.
    Nfkc,
}

/// Which steps to take, in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleaning {
    /// Bring texts into a normal form.
    pub normalize: Option<Form>,
    /// Make consecutive turns of a speaker one turn.
    pub merge_turns: bool,
    /// Leave out dialogues with fewer turns (counted after merging).
    pub min_turns: usize,
    /// Replace e-mail addresses, phone numbers and card numbers by placeholders.
    pub redact: bool,
    /// Leave out dialogues whose texts and roles equal those of one that is there already.
    pub dedupe: bool,
}

/// What cleaning did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cleaned {
    /// Turns whose text normalisation changed.
    pub normalized_turns: u64,
    /// Turns that went into the one before them.
    pub merged_turns: u64,
    /// E-mail addresses replaced.
    pub emails: u64,
    /// Phone numbers replaced.
    pub phones: u64,
    /// Card numbers replaced.
    pub cards: u64,
}

impl Cleaning {
    /// Cleans a dialogue. `false` means that it is too short and must be left out; duplicates are the caller's to find.
    pub fn apply(&self, dialogue: &mut Dialogue, cleaned: &mut Cleaned) -> bool {
        if let Some(form) = self.normalize {
            for turn in &mut dialogue.turns {
                if let Cow::Owned(text) = normalize(&turn.text, form) {
                    turn.text = text;
                    cleaned.normalized_turns += 1;
                }
            }
        }
        if self.merge_turns {
            cleaned.merged_turns += merge_turns(dialogue);
        }
        if dialogue.turns.len() < self.min_turns {
            return false;
        }
        if self.redact {
            redact::dialogue(dialogue, cleaned);
        }
        true
    }
}

/// The text in a normal form; borrowed if it is in that form already.
pub fn normalize(text: &str, form: Form) -> Cow<'_, str> {
    let quick = match form {
        Form::Nfc => is_nfc_quick(text.chars()),
        Form::Nfkc => is_nfkc_quick(text.chars()),
    };
    if quick == IsNormalized::Yes {
        return Cow::Borrowed(text);
    }
    let normal: String = match form {
        Form::Nfc => text.nfc().collect(),
        Form::Nfkc => text.nfkc().collect(),
    };
    if normal == text { Cow::Borrowed(text) } else { Cow::Owned(normal) }
}

/// Makes consecutive turns of a speaker one, and gives how many went. The merged turn keeps the number, time and
/// intent of the first; dialog acts and metadata are joined.
fn merge_turns(dialogue: &mut Dialogue) -> u64 {
    let before = dialogue.turns.len();
    dialogue.turns.dedup_by(|later, earlier| {
        // Without names, a role stands for its one speaker.
        let same = later.speaker == earlier.speaker && later.role == earlier.role;
        if !same || (later.speaker.is_empty() && later.role.is_none()) {
            return false;
        }
        if !later.text.is_empty() && !earlier.text.is_empty() {
            earlier.text.push(' ');
        }
        earlier.text.push_str(&later.text);
        earlier.intent = earlier.intent.take().or(later.intent.take());
        earlier.acts.append(&mut later.acts);
        for (key, value) in std::mem::take(&mut later.metadata) {
            earlier.metadata.entry(key).or_insert(value);
        }
        true
    });
    (before - dialogue.turns.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use turnwise_core::ids::{DialogueId, TurnNo};

    fn dialogue(turns: &[(&str, &str)]) -> Dialogue {
        let mut d = Dialogue::new(DialogueId::new("d").unwrap());
        for (speaker, text) in turns {
            d.push(*speaker, Role::Participant, *text);
        }
        d.check().unwrap();
        d
    }

    #[test]
    fn consecutive_turns_of_a_speaker_become_one_and_keep_the_first_number() {
        let mut d = dialogue(&[("a", "1"), ("a", "2"), ("b", "3"), ("a", "4"), ("a", ""), ("a", "5")]);
        let mut cleaned = Cleaned::default();
        assert!(Cleaning { merge_turns: true, ..Cleaning::default() }.apply(&mut d, &mut cleaned));
        let turns: Vec<_> = d.turns.iter().map(|t| (t.number, t.text.as_str())).collect();
        assert_eq!(turns, [(TurnNo(1), "1 2"), (TurnNo(3), "3"), (TurnNo(4), "4 5")]);
        assert_eq!(cleaned.merged_turns, 3);
    }

    #[test]
    fn shortness_is_judged_after_merging() {
        let cleaning = Cleaning { merge_turns: true, min_turns: 2, ..Cleaning::default() };
        assert!(!cleaning.apply(&mut dialogue(&[("a", "1"), ("a", "2")]), &mut Cleaned::default()));
        assert!(cleaning.apply(&mut dialogue(&[("a", "1"), ("b", "2")]), &mut Cleaned::default()));
    }

    #[test]
    fn normal_forms_differ_in_what_they_unify() {
        assert_eq!(normalize("e\u{301}", Form::Nfc), "é");
        assert_eq!(normalize("ＡＢＣ１２", Form::Nfc), "ＡＢＣ１２");
        assert_eq!(normalize("ＡＢＣ１２", Form::Nfkc), "ABC12");
        assert!(matches!(normalize("plain", Form::Nfkc), Cow::Borrowed(_)));
    }
}
