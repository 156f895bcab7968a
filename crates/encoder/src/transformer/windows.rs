//! Dialogues as sequences: turns joined by separators, split into windows of whole turns if too long.

use std::collections::HashMap;

use crate::{DialoguePooling, Part, Sequence};
use turnwise_core::error::Result;
use turnwise_corpus::{Dialogue, Role, Turn};

/// Consecutive tokens of one speaker in a window, including the separator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) speaker: usize,
    pub(super) rows: std::ops::Range<usize>,
}

/// Window of a dialogue: consecutive turns that fit into the maximum sequence length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Window {
    pub(super) sequence: Sequence,
    pub(super) spans: Vec<Span>,
}

/// Settings for building the sequences of dialogues.
pub(super) struct Framing<'a> {
    /// Special tokens before every window (`[CLS]`).
    pub(super) before: &'a [u32],
    /// Special tokens after every turn (`[SEP]`).
    pub(super) after: &'a [u32],
    /// Maximum number of tokens per window.
    pub(super) max_tokens: usize,
    /// Number of turn embeddings, if the model has them. With them, positions restart in every turn.
    pub(super) turns: Option<usize>,
    /// Number of role embeddings, if the model has them.
    pub(super) roles: Option<usize>,
}

/// Returns the speaker of each turn, numbered in the order in which they first speak.
pub(super) fn speakers(dialogue: &Dialogue) -> Vec<usize> {
    let mut known = HashMap::new();
    dialogue
        .turns
        .iter()
        .map(|turn| {
            let next = known.len();
            *known.entry(speaker(turn)).or_insert(next)
        })
        .collect()
}

/// Identifies a speaker by name, or by role if there is no name.
fn speaker(turn: &Turn) -> (&str, Option<&Role>) {
    if turn.speaker.is_empty() { ("", turn.role.as_ref()) } else { (turn.speaker.as_str(), None) }
}

impl Framing<'_> {
    /// Splits a dialogue into windows, at least one. `pieces` tokenizes a text; `prompt` is added before the
    /// first turn.
    pub(super) fn windows(
        &self,
        dialogue: &Dialogue,
        prompt: &str,
        pieces: &dyn Fn(&str) -> Result<Vec<u32>>,
    ) -> Result<Vec<Window>> {
        // Space for the tokens of a turn, without its separator; at least one token.
        let room = self.max_tokens.saturating_sub(self.before.len() + self.after.len()).max(1);
        let mut windows = Vec::new();
        let mut window = self.open();
        for (n, (turn, speaker)) in dialogue.turns.iter().zip(speakers(dialogue)).enumerate() {
            let mut tokens = match n {
                0 if !prompt.is_empty() => pieces(&format!("{prompt}{}", turn.text))?,
                _ => pieces(&turn.text)?,
            };
            // A turn that is longer than a window is split, and no token is lost.
            while tokens.len() > room {
                let rest = tokens.split_off(room);
                self.add(&mut window, &mut windows, &tokens, n, speaker);
                tokens = rest;
            }
            self.add(&mut window, &mut windows, &tokens, n, speaker);
        }
        if window.sequence.len() > self.before.len() || windows.is_empty() {
            windows.push(window);
        }
        Ok(windows)
    }

    fn open(&self) -> Window {
        let mut window = Window { sequence: Sequence::new(self.before.to_vec()), spans: Vec::new() };
        let filled = || Some(vec![0; self.before.len()]);
        window.sequence.turns = self.turns.and_then(|_| filled());
        window.sequence.roles = self.roles.and_then(|_| filled());
        window.sequence.positions = self.turns.map(|_| (0..self.before.len() as u32).collect());
        window
    }

    fn add(&self, window: &mut Window, done: &mut Vec<Window>, tokens: &[u32], turn: usize, speaker: usize) {
        let needed = tokens.len() + self.after.len();
        if window.sequence.len() + needed > self.max_tokens && !window.spans.is_empty() {
            done.push(std::mem::replace(window, self.open()));
        }
        let sequence = &mut window.sequence;
        let start = sequence.len();
        sequence.ids.extend_from_slice(tokens);
        sequence.ids.extend_from_slice(self.after);
        let capped = |n: usize, rows: usize| n.min(rows.saturating_sub(1)) as u32;
        let fill = |column: &mut Option<Vec<u32>>, value: u32| {
            if let Some(column) = column {
                column.resize(start + needed, value);
            }
        };
        fill(&mut sequence.turns, capped(turn, self.turns.unwrap_or(1)));
        fill(&mut sequence.roles, capped(speaker, self.roles.unwrap_or(1)));
        if let Some(positions) = &mut sequence.positions {
            positions.extend(0..needed as u32);
        }
        window.spans.push(Span { speaker, rows: start..start + needed });
    }
}

/// Returns the weighted row ranges to pool for each window. The result is the mean of the tokens of each speaker
/// group, summed over the groups.
pub(super) fn by_speakers(windows: &[Window], by: DialoguePooling) -> Vec<Vec<Part>> {
    let mut tokens: HashMap<usize, usize> = HashMap::new();
    for span in windows.iter().flat_map(|w| &w.spans) {
        if let Some(group) = by.group(span.speaker) {
            *tokens.entry(group).or_default() += span.rows.len();
        }
    }
    let part = |span: &Span| -> Option<Part> {
        let tokens = tokens.get(&by.group(span.speaker)?).copied().unwrap_or(1);
        Some(Part { rows: span.rows.clone(), weight: 1.0 / tokens.max(1) as f32 })
    };
    windows.iter().map(|w| w.spans.iter().filter_map(part).collect()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use turnwise_core::ids::DialogueId;

    fn dialogue(turns: &[(&str, usize)]) -> Dialogue {
        let mut dialogue = Dialogue::new(DialogueId::new("d").unwrap());
        for (speaker, length) in turns {
            dialogue.push(*speaker, Role::User, "x".repeat(*length));
        }
        dialogue
    }

    /// Tokenizes to one token per letter.
    fn letters(text: &str) -> Result<Vec<u32>> {
        Ok(vec![7; text.len()])
    }

    fn framing(max_tokens: usize) -> Framing<'static> {
        Framing { before: &[1], after: &[2], max_tokens, turns: None, roles: None }
    }

    #[test]
    fn turns_stay_whole_and_long_ones_are_split() {
        let d = dialogue(&[("a", 2), ("b", 1), ("a", 3), ("c", 9)]);
        let windows = framing(7).windows(&d, "", &letters).unwrap();
        let ids: Vec<_> = windows.iter().map(|w| w.sequence.ids.clone()).collect();
        assert_eq!(
            ids,
            [vec![1, 7, 7, 2, 7, 2], vec![1, 7, 7, 7, 2], vec![1, 7, 7, 7, 7, 7, 2], vec![1, 7, 7, 7, 7, 2]]
        );
        assert_eq!(windows[0].spans[1], Span { speaker: 1, rows: 4..6 });
        assert_eq!(windows[3].spans[0], Span { speaker: 2, rows: 1..6 });
    }

    #[test]
    fn interlocutors_have_equal_weight_whatever_their_length() {
        let windows = framing(6).windows(&dialogue(&[("a", 1), ("b", 9)]), "", &letters).unwrap();
        let weights: f32 = by_speakers(&windows, DialoguePooling::Interlocutors)
            .iter()
            .flatten()
            .map(|p| p.weight * p.rows.len() as f32)
            .sum();
        assert!((weights - 2.0).abs() < 1e-6);
    }

    #[test]
    fn speakers_without_names_are_identified_by_role() {
        let mut d = Dialogue::new(DialogueId::new("d").unwrap());
        d.push("", Role::User, "x");
        d.push("", Role::Agent, "x");
        d.push("", Role::User, "x");
        assert_eq!(speakers(&d), [0, 1, 0]);
    }

    #[test]
    fn turn_embeddings_restart_positions() {
        let mut framing = framing(20);
        (framing.turns, framing.roles) = (Some(2), Some(2));
        let windows = framing.windows(&dialogue(&[("a", 1), ("b", 2), ("c", 1)]), "", &letters).unwrap();
        let s = &windows[0].sequence;
        assert_eq!(s.positions.as_deref(), Some(&[0, 0, 1, 0, 1, 2, 0, 1][..]));
        assert_eq!(s.turns.as_deref(), Some(&[0, 0, 0, 1, 1, 1, 1, 1][..]));
        assert_eq!(s.roles.as_deref(), Some(&[0, 0, 0, 1, 1, 1, 1, 1][..]));
    }

    proptest! {
        #[test]
        fn no_token_is_lost(lengths in proptest::collection::vec(0usize..30, 1..20), max in 3usize..20) {
            let turns: Vec<(&str, usize)> = lengths.iter().map(|n| (["a", "b"][n % 2], *n)).collect();
            let windows = framing(max).windows(&dialogue(&turns), "", &letters).unwrap();
            let tokens = windows.iter().flat_map(|w| &w.sequence.ids).filter(|id| **id == 7).count();
            prop_assert_eq!(tokens, lengths.iter().sum::<usize>());
            for w in &windows {
                prop_assert!(w.sequence.len() <= max && !w.sequence.is_empty());
                let in_spans: usize = w.spans.iter().map(|s| s.rows.len()).sum();
                prop_assert_eq!(in_spans + 1, w.sequence.len());
            }
        }
    }
}
