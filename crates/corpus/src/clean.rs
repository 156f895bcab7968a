//! Optional cleaning steps for dialogues, with counts of the changes.

pub mod redact;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick, is_nfkc_quick};

use crate::Dialogue;

/// Unicode normalization form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum NormalForm {
    /// Canonical composition. The text looks the same.
    Nfc,
    /// Compatibility composition: full-width letters become plain ones, ligatures are split.
    Nfkc,
}

/// Cleaning steps for dialogues, applied in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleaning {
    /// Unicode form to which the texts of turns are normalized. `None` skips this step.
    pub normalize: Option<NormalForm>,
    /// Whether to merge consecutive turns of the same speaker.
    pub merge_turns: bool,
    /// Minimum number of turns. Dialogues that have fewer turns after merging are dropped.
    pub min_turns: usize,
    /// Whether to replace e-mail addresses, phone numbers and card numbers with placeholders.
    pub redact: bool,
    /// Whether the caller drops dialogues that have the same texts and roles as an earlier dialogue.
    /// [`Cleaning::apply`] ignores this field, because it sees only one dialogue.
    pub dedupe: bool,
}

/// Counts of the changes made by cleaning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cleaned {
    /// Number of turns whose text was changed by normalization.
    pub normalized_turns: u64,
    /// Number of turns merged into the previous turn.
    pub merged_turns: u64,
    /// Number of e-mail addresses replaced.
    pub emails: u64,
    /// Number of phone numbers replaced.
    pub phones: u64,
    /// Number of card numbers replaced.
    pub cards: u64,
}

impl Cleaning {
    /// Applies all steps except `dedupe` to a dialogue, and adds the numbers of changes to `cleaned`. Returns `false`
    /// if the dialogue has too few turns and must be dropped.
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

/// Normalizes a text to a Unicode form. Returns the text itself, borrowed, if it already has that form.
pub fn normalize(text: &str, form: NormalForm) -> Cow<'_, str> {
    let quick = match form {
        NormalForm::Nfc => is_nfc_quick(text.chars()),
        NormalForm::Nfkc => is_nfkc_quick(text.chars()),
    };
    if quick == IsNormalized::Yes {
        return Cow::Borrowed(text);
    }
    let normal: String = match form {
        NormalForm::Nfc => text.nfc().collect(),
        NormalForm::Nfkc => text.nfkc().collect(),
    };
    if normal == text { Cow::Borrowed(text) } else { Cow::Owned(normal) }
}

/// Merges consecutive turns of the same speaker, and returns the number of turns removed.
///
/// The result of a merge has the number and time of the first turn. Its intent is the first intent of the merged turns.
/// Dialog acts and metadata are combined. If several turns have metadata with the same key, the first value is kept.
fn merge_turns(dialogue: &mut Dialogue) -> u64 {
    let before = dialogue.turns.len();
    dialogue.turns.dedup_by(|later, earlier| {
        // Turns without speaker names are merged if they have the same role. Turns with neither a name nor a role are
        // not merged.
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
    fn merged_turns_keep_the_first_number() {
        let mut d = dialogue(&[("a", "1"), ("a", "2"), ("b", "3"), ("a", "4"), ("a", ""), ("a", "5")]);
        let mut cleaned = Cleaned::default();
        assert!(Cleaning { merge_turns: true, ..Cleaning::default() }.apply(&mut d, &mut cleaned));
        let turns: Vec<_> = d.turns.iter().map(|t| (t.number, t.text.as_str())).collect();
        assert_eq!(turns, [(TurnNo(1), "1 2"), (TurnNo(3), "3"), (TurnNo(4), "4 5")]);
        assert_eq!(cleaned.merged_turns, 3);
    }

    #[test]
    fn turns_are_counted_after_merging() {
        let cleaning = Cleaning { merge_turns: true, min_turns: 2, ..Cleaning::default() };
        assert!(!cleaning.apply(&mut dialogue(&[("a", "1"), ("a", "2")]), &mut Cleaned::default()));
        assert!(cleaning.apply(&mut dialogue(&[("a", "1"), ("b", "2")]), &mut Cleaned::default()));
    }

    #[test]
    fn nfkc_unifies_more_than_nfc() {
        assert_eq!(normalize("e\u{301}", NormalForm::Nfc), "é");
        assert_eq!(normalize("ＡＢＣ１２", NormalForm::Nfc), "ＡＢＣ１２");
        assert_eq!(normalize("ＡＢＣ１２", NormalForm::Nfkc), "ABC12");
        assert!(matches!(normalize("plain", NormalForm::Nfkc), Cow::Borrowed(_)));
    }
}
