//! Who is near whom by words: BM25 by lists of who says a word, so that only those are looked at who share one.

use std::collections::HashMap;

use rayon::prelude::*;

use super::best;

/// As a search has it: Lucene's constants and logarithm; a word of what is looked for counts once.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// For each text, as numbers of words, its nearest, the best first; none that shares no word with it.
pub fn nearest(texts: &[Vec<u32>], nearest: usize) -> Vec<Vec<u32>> {
    let words: Vec<Vec<(u32, u32)>> = texts.par_iter().map(|text| counted(text.clone())).collect();
    let who = who_says(&words);
    let mean = texts.iter().map(Vec::len).sum::<usize>() as f64 / texts.len().max(1) as f64;
    let long: Vec<f64> =
        texts.iter().map(|text| K1 * (1.0 - B + B * text.len() as f64 / mean.max(1e-9))).collect();
    let of = |scores: &mut Vec<f64>, n: usize| {
        scores.clear();
        scores.resize(texts.len(), 0.0);
        for (word, _) in &words[n] {
            let with = &who[word];
            let rare =
                (1.0 + (texts.len() as f64 - with.len() as f64 + 0.5) / (with.len() as f64 + 0.5)).ln();
            for (text, times) in with {
                let times = f64::from(*times);
                // As much as the one that is compared with has it.
                let weight = (rare * times / (times + long[*text as usize])) as f32;
                scores[*text as usize] += f64::from(weight);
            }
        }
        let scores: Vec<f32> = scores.iter().map(|score| *score as f32).collect();
        best(&scores, n, nearest, 0.0)
    };
    (0..texts.len()).into_par_iter().map_init(Vec::new, of).collect()
}

/// The words of a text and how often each comes, sorted.
fn counted(mut text: Vec<u32>) -> Vec<(u32, u32)> {
    text.sort_unstable();
    text.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect()
}

/// Who says a word, and how often.
fn who_says(words: &[Vec<(u32, u32)>]) -> HashMap<u32, Vec<(u32, u32)>> {
    let mut who: HashMap<u32, Vec<(u32, u32)>> = HashMap::new();
    for (n, words) in (0..).zip(words) {
        for (word, times) in words {
            who.entry(*word).or_default().push((n, *times));
        }
    }
    who
}
