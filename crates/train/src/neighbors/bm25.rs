//! Nearest texts by BM25, with an inverted index.

use std::collections::HashMap;

use rayon::prelude::*;

use turnwise_nearest::highest;

// BM25 as in the search engine: Lucene's constants and IDF. Repeated query words count once.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Returns up to `count` nearest texts of each text, the nearest first. A text is a list of word ids.
///
/// Texts that share no word are not neighbors.
pub fn nearest(texts: &[Vec<u32>], count: usize) -> Vec<Vec<u32>> {
    let words: Vec<Vec<(u32, u32)>> = texts.par_iter().map(|text| counted(text.clone())).collect();
    let postings = postings(&words);
    let mean = texts.iter().map(Vec::len).sum::<usize>() as f64 / texts.len().max(1) as f64;
    // The part of the BM25 denominator that depends on the length of a text.
    let saturation: Vec<f64> =
        texts.iter().map(|text| K1 * (1.0 - B + B * text.len() as f64 / mean.max(1e-9))).collect();
    let nearest_of = |scores: &mut Vec<f64>, n: usize| {
        scores.clear();
        scores.resize(texts.len(), 0.0);
        for (word, _) in &words[n] {
            let postings = &postings[word];
            let documents = postings.len() as f64;
            let idf = (1.0 + (texts.len() as f64 - documents + 0.5) / (documents + 0.5)).ln();
            for (text, frequency) in postings {
                let frequency = f64::from(*frequency);
                let weight = (idf * frequency / (frequency + saturation[*text as usize])) as f32;
                scores[*text as usize] += f64::from(weight);
            }
        }
        let scores: Vec<f32> = scores.iter().map(|score| *score as f32).collect();
        highest(&scores, n, count, 0.0)
    };
    (0..texts.len()).into_par_iter().map_init(Vec::new, nearest_of).collect()
}

/// Returns the words of a text with their frequencies, sorted by word.
fn counted(mut text: Vec<u32>) -> Vec<(u32, u32)> {
    text.sort_unstable();
    text.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect()
}

/// Returns the postings of each word: the texts that contain the word, with its frequency in each text.
fn postings(words: &[Vec<(u32, u32)>]) -> HashMap<u32, Vec<(u32, u32)>> {
    let mut postings: HashMap<u32, Vec<(u32, u32)>> = HashMap::new();
    for (n, words) in (0..).zip(words) {
        for (word, frequency) in words {
            postings.entry(*word).or_default().push((n, *frequency));
        }
    }
    postings
}
