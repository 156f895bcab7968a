//! What goes through the network for one input, and what is taken of it.

use std::ops::Range;

use crate::{Part, Reduction, Sequence, folder::PoolingMode};

/// One sequence on its way to the vector of an input.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    /// Which input it belongs to; an input may have several, whose vectors are joined.
    pub(super) input: usize,
    pub(super) sequence: Sequence,
    /// For each pool, what is taken.
    pub(super) pools: Vec<Vec<Part>>,
}

/// How the rows of a pooling mode become one.
pub(super) fn reduction(mode: PoolingMode) -> Reduction {
    match mode {
        PoolingMode::Max => Reduction::Max,
        _ => Reduction::Sum,
    }
}

/// The parts of a window of an input that has `total` pooled tokens in all its windows, `before` of them in earlier
/// ones; `rows` are those of this window. Summed over the windows, the result is the pooling of the whole: for the
/// means exactly, for single tokens their mean by the windows' sizes.
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

/// Which items go through the network together: similar lengths beside each other, at most `budget` tokens (one
/// item may have more). Items without tokens do not: some tokenizers give an empty text none at all. The longest come
/// first, so that no thread begins the largest piece last.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pooled(parts: &[Part], states: &[f32]) -> f32 {
        parts.iter().flat_map(|p| p.rows.clone().map(|r| p.weight * states[r])).sum()
    }

    proptest! {
        /// Windows that are summed are the whole that was not cut.
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
}
