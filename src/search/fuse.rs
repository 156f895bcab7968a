//! Two lists become one.

use std::collections::HashMap;

use serde::Serialize;

use super::request::{Fusion, Method, Mode};
use crate::ids::{IdKey, Seq, TurnNo};

/// What a list has, and where.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Place {
    /// Counted from 1.
    pub rank: usize,
    /// In the list's own measure.
    pub score: f32,
}

/// Something that was found, before its record is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) dialogue: IdKey,
    pub(super) seq: Seq,
    pub(super) turn: Option<TurnNo>,
    pub(super) dense: Option<Place>,
    pub(super) bm25: Option<Place>,
    /// What it is ranked by.
    pub(super) score: f32,
    /// Its place before it was ranked again.
    pub(super) before: Option<Place>,
}

/// One found by one list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) dialogue: IdKey,
    pub(super) seq: Seq,
    pub(super) turn: Option<TurnNo>,
    pub(super) score: f32,
}

/// Everything that either list has, best first. Equal ones are left in no order: their ids tell it.
pub(super) fn fuse(mode: Mode, fusion: &Fusion, dense: &[Entry], bm25: &[Entry]) -> Vec<Candidate> {
    let mut found: HashMap<(Seq, Option<TurnNo>), Candidate> =
        HashMap::with_capacity(dense.len() + bm25.len());
    for (list, entries) in [dense, bm25].into_iter().enumerate() {
        for (n, entry) in entries.iter().enumerate() {
            let candidate = found.entry((entry.seq, entry.turn)).or_insert(Candidate {
                dialogue: entry.dialogue,
                seq: entry.seq,
                turn: entry.turn,
                dense: None,
                bm25: None,
                score: 0.0,
                before: None,
            });
            let place = Some(Place { rank: n + 1, score: entry.score });
            match list {
                0 => candidate.dense = place,
                _ => candidate.bm25 = place,
            }
        }
    }
    let scales = [Scale::of(dense), Scale::of(bm25)];
    let mut all: Vec<Candidate> = found.into_values().collect();
    for candidate in &mut all {
        candidate.score = match mode {
            Mode::Dense => candidate.dense.map_or(f32::MIN, |place| place.score),
            Mode::Bm25 => candidate.bm25.map_or(f32::MIN, |place| place.score),
            Mode::Hybrid => {
                let parts = parts(fusion, &scales, candidate);
                parts.iter().flatten().sum()
            }
        };
    }
    all.sort_by(|a, b| b.score.total_cmp(&a.score).then((a.seq, a.turn).cmp(&(b.seq, b.turn))));
    all
}

/// What each list gives a candidate.
pub(super) fn parts(fusion: &Fusion, scales: &[Scale; 2], candidate: &Candidate) -> [Option<f32>; 2] {
    let part = |weight: f32, scale: &Scale, place: Option<Place>| {
        place.map(|place| match fusion.method {
            Method::Rrf => weight / (fusion.k + place.rank as f32),
            Method::Weighted => weight * scale.on(place.score),
        })
    };
    [part(fusion.dense, &scales[0], candidate.dense), part(fusion.bm25, &scales[1], candidate.bm25)]
}

/// A list's scores, brought to 0…1: its last has 0, its first 1. What a list does not have gets nothing from it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scale {
    /// The list's least score.
    pub least: f32,
    /// Its greatest.
    pub most: f32,
}

impl Scale {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let (mut least, mut most) = (f32::MAX, f32::MIN);
        for entry in entries {
            (least, most) = (least.min(entry.score), most.max(entry.score));
        }
        Scale { least, most }
    }

    fn on(&self, score: f32) -> f32 {
        // A list of equal scores has found all of them equally well.
        if self.most > self.least { (score - self.least) / (self.most - self.least) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(scores: &[(u64, f32)]) -> Vec<Entry> {
        let entry = |(seq, score): &(u64, f32)| Entry {
            dialogue: IdKey::default(),
            seq: Seq(*seq),
            turn: None,
            score: *score,
        };
        scores.iter().map(entry).collect()
    }

    #[test]
    fn reciprocal_ranks_are_what_the_formula_says() {
        let (dense, bm25) = (list(&[(1, 0.9), (2, 0.8)]), list(&[(2, 7.0), (3, 5.0)]));
        let fused = fuse(Mode::Hybrid, &Fusion::default(), &dense, &bm25);
        assert_eq!(fused.iter().map(|c| c.seq.0).collect::<Vec<_>>(), [2, 1, 3]);
        assert_eq!(fused[0].score, 1.0 / 62.0 + 1.0 / 61.0);
        assert_eq!((fused[1].score, fused[2].score), (1.0 / 61.0, 1.0 / 62.0));
        let weights = Fusion { dense: 3.0, k: 1.0, ..Fusion::default() };
        assert_eq!(fuse(Mode::Hybrid, &weights, &dense, &bm25)[1].score, 3.0 / 2.0);
    }

    #[test]
    fn weighted_scores_are_brought_to_one_measure_first() {
        let (dense, bm25) = (list(&[(1, 0.9), (2, 0.8), (4, 0.7)]), list(&[(2, 7.0), (3, 5.0)]));
        let fusion = Fusion { method: Method::Weighted, dense: 0.5, bm25: 2.0, ..Fusion::default() };
        let fused = fuse(Mode::Hybrid, &fusion, &dense, &bm25);
        let of = |seq| fused.iter().find(|c| c.seq.0 == seq).unwrap().score;
        assert!((of(2) - (0.25 + 2.0)).abs() < 1e-6 && (of(1) - 0.5).abs() < 1e-6);
        assert_eq!((of(3), of(4)), (0.0, 0.0));
        assert_eq!(Scale::of(&list(&[(1, 2.0), (2, 2.0)])).on(2.0), 1.0);
    }

    proptest! {
        #[test]
        fn one_list_alone_keeps_its_order(scores in proptest::collection::vec(-5.0f32..5.0, 1..40), rrf: bool) {
            let mut scores = scores;
            scores.sort_by(|a, b| b.total_cmp(a));
            scores.dedup();
            let entries: Vec<(u64, f32)> = scores.iter().enumerate().map(|(n, s)| (n as u64, *s)).collect();
            let method = if rrf { Method::Rrf } else { Method::Weighted };
            let fusion = Fusion { method, ..Fusion::default() };
            for mode in [Mode::Hybrid, Mode::Dense] {
                let fused = fuse(mode, &fusion, &list(&entries), &[]);
                let order: Vec<u64> = fused.iter().map(|c| c.seq.0).collect();
                prop_assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{order:?}");
            }
        }
    }
}
