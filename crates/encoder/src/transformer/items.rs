//! Items: sequences for the network, each with the rows (token vectors) to pool. A dialogue is one sequence of turns,
//! joined with separators. A dialogue that is too long is split into windows, between turns if possible.

use std::{collections::HashMap, ops::Range};

use turnwise_core::error::Result;
use turnwise_corpus::Dialogue;

use crate::{DialoguePooling, Part, Reduction, Sequence, contract::speakers, folder::PoolingMode};

/// A sequence to encode, with the rows (token vectors) to pool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    /// Index of the input. The results of several items of one input are combined.
    pub(crate) input: usize,
    pub(crate) sequence: Sequence,
    /// Rows of the sequence to pool, for each pooling mode of the model.
    pub(crate) pools: Vec<Vec<Part>>,
}

pub(super) fn reduction(mode: PoolingMode) -> Reduction {
    match mode {
        PoolingMode::Max => Reduction::Max,
        _ => Reduction::Sum,
    }
}

/// Returns the rows to pool in one window of an input, with their weights.
///
/// `rows` is the range of tokens to pool in this window. `total` is the number of tokens to pool in all windows, and
/// `before` is the number of tokens to pool in earlier windows.
///
/// For `Max` and the mean modes, combining the windows gives the same result as pooling the whole input. For `Cls` and
/// `LastToken`, the result is the mean over the windows, weighted by window size.
pub(super) fn parts(mode: PoolingMode, rows: Range<usize>, before: usize, total: usize) -> Vec<Part> {
    let total = total.max(1) as f32;
    let share = rows.len() as f32 / total;
    let one = |row: usize, weight: f32| vec![Part { rows: row..row + 1, weight }];
    if rows.is_empty() {
        return Vec::new();
    }
    match mode {
        PoolingMode::Cls => one(rows.start, share),
        PoolingMode::LastToken => one(rows.end - 1, share),
        PoolingMode::Mean => vec![Part { rows, weight: 1.0 / total }],
        PoolingMode::Max => vec![Part { rows, weight: 1.0 }],
        PoolingMode::MeanSqrtLen => vec![Part { rows, weight: 1.0 / total.sqrt() }],
        PoolingMode::WeightedMean => {
            let sum = total * (total + 1.0) / 2.0;
            let weight = |n: usize| (before + n + 1) as f32 / sum;
            rows.enumerate().map(|(n, row)| Part { rows: row..row + 1, weight: weight(n) }).collect()
        }
    }
}

/// Groups items of similar length into packs of at most `budget` tokens. An item with more tokens gets a pack of its
/// own. Returns the indices of the items in each pack.
///
/// The longest items come first, so that no thread works alone on a long pack at the end. Items without tokens are
/// skipped. Some tokenizers return no tokens for an empty text.
pub(super) fn packs(items: &[Item], budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..items.len()).filter(|n| !items[*n].sequence.is_empty()).collect();
    order.sort_by_key(|n| std::cmp::Reverse(items[*n].sequence.len()));
    let mut packs: Vec<Vec<usize>> = Vec::new();
    let mut filled = usize::MAX;
    for n in order {
        let length = items[n].sequence.len();
        if filled.saturating_add(length) > budget {
            packs.push(Vec::new());
            filled = 0;
        }
        filled += length;
        if let Some(pack) = packs.last_mut() {
            pack.push(n);
        }
    }
    packs
}

/// A turn, or a part of a long turn, in a window. `rows` includes the separator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) speaker: usize,
    pub(super) rows: Range<usize>,
}

/// Window of a dialogue: a sequence that contains consecutive turns or parts of long turns.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Window {
    pub(super) sequence: Sequence,
    pub(super) spans: Vec<Span>,
}

/// Settings that determine how dialogues are converted to sequences.
pub(super) struct Framing<'a> {
    /// Special tokens at the start of every window (`[CLS]`).
    pub(super) before: &'a [u32],
    /// Special tokens after every turn (`[SEP]`).
    pub(super) after: &'a [u32],
    /// Maximum number of tokens per window.
    pub(super) max_tokens: usize,
    /// Number of turn embeddings; `None` if the model has none. With turn embeddings, positions start at 0 in every
    /// turn.
    pub(super) turns: Option<usize>,
    /// Number of role embeddings (one per speaker number); `None` if the model has none.
    pub(super) roles: Option<usize>,
}

impl Framing<'_> {
    /// Splits a dialogue into one or more windows. `prompt` is added before the first turn. `pieces` tokenizes a text
    /// without special tokens.
    pub(super) fn windows(
        &self,
        dialogue: &Dialogue,
        prompt: &str,
        pieces: &dyn Fn(&str) -> Result<Vec<u32>>,
    ) -> Result<Vec<Window>> {
        // Maximum number of tokens of a turn in one window, without the separator.
        let room = self.max_tokens.saturating_sub(self.before.len() + self.after.len()).max(1);
        let mut windows = Vec::new();
        let mut window = self.open();
        for (n, (turn, speaker)) in dialogue.turns.iter().zip(speakers(dialogue)).enumerate() {
            let mut tokens = match n {
                0 if !prompt.is_empty() => pieces(&format!("{prompt}{}", turn.text))?,
                _ => pieces(&turn.text)?,
            };
            // A turn that does not fit into one window is split.
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

/// Returns the rows to pool in each window of a dialogue, with their weights. The weighted sum of all rows is the sum
/// of the means of the speaker groups; see [`DialoguePooling::group`].
pub(super) fn by_speakers(windows: &[Window], pooling: DialoguePooling) -> Vec<Vec<Part>> {
    let mut tokens: HashMap<usize, usize> = HashMap::new();
    for span in windows.iter().flat_map(|w| &w.spans) {
        if let Some(group) = pooling.group(span.speaker) {
            *tokens.entry(group).or_default() += span.rows.len();
        }
    }
    let part = |span: &Span| -> Option<Part> {
        let tokens = tokens.get(&pooling.group(span.speaker)?).copied().unwrap_or(1);
        Some(Part { rows: span.rows.clone(), weight: 1.0 / tokens.max(1) as f32 })
    };
    windows.iter().map(|w| w.spans.iter().filter_map(part).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::Role;

    fn pooled(parts: &[Part], states: &[f32]) -> f32 {
        parts.iter().flat_map(|p| p.rows.clone().map(|r| p.weight * states[r])).sum()
    }

    proptest! {
        /// The sum of the pooled windows equals the result of pooling the whole sequence.
        #[test]
        fn windows_add_up(lengths in proptest::collection::vec(1usize..6, 1..5)) {
            let total: usize = lengths.iter().sum();
            let states: Vec<f32> = (0..total).map(|n| (n as f32 * 1.7).sin()).collect();
            for mode in [PoolingMode::Mean, PoolingMode::MeanSqrtLen, PoolingMode::WeightedMean] {
                let whole = pooled(&parts(mode, 0..total, 0, total), &states);
                let mut sum = 0.0;
                let mut before = 0;
                for length in &lengths {
                    sum += pooled(&parts(mode, 0..*length, before, total), &states[before..before + length]);
                    before += length;
                }
                prop_assert!((whole - sum).abs() < 1e-4, "{mode:?}: {whole} and {sum}");
            }
        }

        #[test]
        fn packs_hold_every_item_once(lengths in proptest::collection::vec(1usize..40, 0..60), budget in 1usize..100) {
            let items: Vec<Item> = lengths
                .iter()
                .map(|n| Item { input: 0, sequence: Sequence::new(vec![0; *n]), pools: Vec::new() })
                .collect();
            let packs = packs(&items, budget);
            let mut all: Vec<usize> = packs.iter().flatten().copied().collect();
            let ordered = all.windows(2).all(|w| lengths[w[0]] >= lengths[w[1]]);
            prop_assert!(ordered);
            all.sort_unstable();
            prop_assert_eq!(all, (0..lengths.len()).collect::<Vec<_>>());
            for pack in &packs {
                let tokens: usize = pack.iter().map(|n| lengths[*n]).sum();
                prop_assert!(!pack.is_empty() && (tokens <= budget || pack.len() == 1));
            }
        }
    }

    #[test]
    fn one_window_is_the_plain_pooling() {
        let states = [1.0, 2.0, 6.0];
        let of = |mode| pooled(&parts(mode, 0..3, 0, 3), &states);
        assert_eq!(of(PoolingMode::Cls), 1.0);
        assert_eq!(of(PoolingMode::LastToken), 6.0);
        assert_eq!(of(PoolingMode::Mean), 3.0);
        assert!((of(PoolingMode::MeanSqrtLen) - 9.0 / 3f32.sqrt()).abs() < 1e-6);
        assert!((of(PoolingMode::WeightedMean) - 23.0 / 6.0).abs() < 1e-6);
        assert!(parts(PoolingMode::Cls, 0..0, 0, 0).is_empty());
    }

    fn dialogue(turns: &[(&str, usize)]) -> Dialogue {
        let mut dialogue = Dialogue::new(DialogueId::new("d").unwrap());
        for (speaker, length) in turns {
            dialogue.push(*speaker, Role::User, "x".repeat(*length));
        }
        dialogue
    }

    /// Tokenizes a text to one token per letter.
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
