//! Scores of two texts from the vectors of their tokens: MaxSim, and the matching-guided similarity of DialogueCSE.
//!
//! The token vectors are contextual ([`Encoder::encode_tokens`](turnwise_encoder::Encoder::encode_tokens)). The scores
//! are based on cosines, so scores of different texts are comparable. The score is 0 if a text has no tokens, or if the
//! vectors have different dimensions.

use std::ops::Range;

use turnwise_core::vectors::cosine;
use turnwise_encoder::{TokenVectors, Vectors};
use turnwise_nearest::products;
use turnwise_text::Analyzer;

/// MaxSim: for each query token, the highest cosine with a document token, averaged over the query tokens.
pub fn maxsim(query: &TokenVectors, document: &TokenVectors) -> f32 {
    mean_of(&highest_cosines(&unit(&query.vectors), &unit(&document.vectors)))
}

/// Returns for each query token the highest cosine with a document token. Returns an empty list if a text has no tokens,
/// or if the vectors have different dimensions. The vectors must have length 1.
pub(super) fn highest_cosines(query: &Vectors, document: &Vectors) -> Vec<f32> {
    if query.is_empty() || document.is_empty() || query.dim() != document.dim() {
        return Vec::new();
    }
    let mut cosines = Vec::new();
    products(query.flat(), document.flat(), query.dim(), &mut cosines);
    let highest = |of_one: &[f32]| of_one.iter().copied().fold(-1.0f32, f32::max);
    cosines.chunks_exact(document.len()).map(highest).collect()
}

/// Returns the mean; 0 for an empty list.
pub(super) fn mean_of(numbers: &[f32]) -> f32 {
    if numbers.is_empty() {
        return 0.0;
    }
    (numbers.iter().map(|n| f64::from(*n)).sum::<f64>() / numbers.len() as f64) as f32
}

/// Returns the unit vectors of the tokens of a text, without special tokens and tokens of the prompt.
pub(super) fn text_tokens(tokens: &TokenVectors) -> Vectors {
    chosen(tokens, |range| !range.is_empty())
}

/// Returns the unit vectors of the tokens of a query that carry its content: those that are not function words or
/// punctuation. If there are none, returns the vectors of all tokens of the text.
pub(super) fn content_tokens(tokens: &TokenVectors, text: &str, analyzer: Analyzer) -> Vectors {
    let content = chosen(tokens, |range| {
        let word = word_around(text, range);
        word.chars().any(char::is_alphanumeric) && !analyzer.is_function_word(word)
    });
    if content.is_empty() { text_tokens(tokens) } else { content }
}

fn chosen(tokens: &TokenVectors, keep: impl Fn(&Range<usize>) -> bool) -> Vectors {
    let mut kept = Vectors::new(tokens.vectors.dim());
    for (n, row) in tokens.vectors.rows().enumerate() {
        // An encoder that does not report the ranges has no special tokens.
        if tokens.ranges.get(n).is_none_or(&keep) {
            kept.push(row);
        }
    }
    kept.normalize();
    kept
}

/// Returns the word that contains a range, which can be a part of the word.
fn word_around<'t>(text: &'t str, range: &Range<usize>) -> &'t str {
    let Some(inside) = text.get(range.clone()) else { return "" };
    if !inside.chars().any(char::is_alphanumeric) {
        return inside;
    }
    let of_word = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '’');
    let before = text[..range.start].trim_end_matches(of_word).len();
    let after = text.len() - text[range.end..].trim_start_matches(of_word).len();
    &text[before..after]
}

/// DialogueCSE's matching-guided similarity of a response and its context turns.
///
/// The rows of `U` are the token vectors of a turn, and the rows of `R` are those of the response. `d` is their
/// dimension. The turn-aware response is `R̂ = U·Rᵀ/√d · R`. It has one row per token of the turn.
///
/// The score is the cosine of two vectors. The first is the mean of the rows of `R`. The second is the mean of the rows
/// of `R̂`, averaged over all turns. Turns without tokens are ignored.
///
/// The formula has no softmax, so the mean of `U` can be computed first: `mean(R̂) = (mean(U)·Rᵀ/√d)·R`. This avoids
/// the token-by-token matrix `U·Rᵀ`.
pub fn matching_guided(context: &[&TokenVectors], response: &TokenVectors) -> f32 {
    let response = &response.vectors;
    let dim = response.dim();
    let turns: Vec<Vec<f64>> = context
        .iter()
        .filter(|turn| !turn.vectors.is_empty() && turn.vectors.dim() == dim)
        .map(|turn| mean(&turn.vectors))
        .collect();
    if turns.is_empty() || response.is_empty() {
        return 0.0;
    }
    // For the same reason, the mean over turns can be computed first. A cosine ignores the scale, so 1/√d is omitted.
    let turn = (0..dim).map(|n| turns.iter().map(|turn| turn[n]).sum::<f64>() / turns.len() as f64);
    let turn: Vec<f64> = turn.collect();
    let mut guided = vec![0.0; dim];
    for row in response.rows() {
        let match_of = row.iter().zip(&turn).map(|(r, u)| f64::from(*r) * u).sum::<f64>();
        guided.iter_mut().zip(row).for_each(|(s, r)| *s += match_of * f64::from(*r));
    }
    // The values grow with the third power of the token norms. Scale them before the conversion to f32, which could
    // overflow.
    let largest = guided.iter().fold(0.0f64, |max, v| max.max(v.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    let guided: Vec<f32> = guided.iter().map(|v| (v / largest) as f32).collect();
    let plain: Vec<f32> = mean(response).iter().map(|v| *v as f32).collect();
    cosine(&plain, &guided)
}

fn unit(vectors: &Vectors) -> Vectors {
    let mut vectors = vectors.clone();
    vectors.normalize();
    vectors
}

fn mean(vectors: &Vectors) -> Vec<f64> {
    let mut mean = vec![0.0; vectors.dim()];
    for row in vectors.rows() {
        mean.iter_mut().zip(row).for_each(|(m, v)| *m += f64::from(*v));
    }
    mean.iter_mut().for_each(|m| *m /= vectors.len() as f64);
    mean
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(rows: &[Vec<f32>]) -> TokenVectors {
        let mut vectors = Vectors::new(4);
        rows.iter().for_each(|row| vectors.push(row));
        TokenVectors { vectors, ..TokenVectors::default() }
    }

    fn naive_maxsim(query: &[Vec<f32>], document: &[Vec<f32>]) -> f32 {
        let best = |q: &Vec<f32>| document.iter().map(|d| cosine(q, d)).fold(f32::NEG_INFINITY, f32::max);
        query.iter().map(best).sum::<f32>() / query.len() as f32
    }

    /// Computes the formula of the DialogueCSE paper with the token-by-token matrix. Returns `None` if a mean is nearly
    /// 0, because the cosine is then only rounding error.
    fn naive_matching(context: &[Vec<Vec<f32>>], response: &[Vec<f32>]) -> Option<f32> {
        let d = 4;
        let mean = |rows: &[Vec<f64>]| -> Vec<f64> {
            (0..d).map(|n| rows.iter().map(|row| row[n]).sum::<f64>() / rows.len() as f64).collect()
        };
        let wide = |rows: &[Vec<f32>]| -> Vec<Vec<f64>> {
            rows.iter().map(|row| row.iter().map(|v| f64::from(*v)).collect()).collect()
        };
        let response = wide(response);
        let of_turns: Vec<Vec<f64>> = context
            .iter()
            .map(|turn| {
                let guided = wide(turn).into_iter().map(|u| {
                    let m: Vec<f64> = response
                        .iter()
                        .map(|r| u.iter().zip(r).map(|(u, r)| u * r).sum::<f64>() / (d as f64).sqrt())
                        .collect();
                    (0..d).map(|n| m.iter().zip(&response).map(|(m, r)| m * r[n]).sum()).collect()
                });
                mean(&guided.collect::<Vec<Vec<f64>>>())
            })
            .collect();
        let (a, b) = (mean(&response), mean(&of_turns));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let lengths = (dot(&a, &a) * dot(&b, &b)).sqrt();
        (lengths > 1e-9).then(|| (dot(&a, &b) / lengths) as f32)
    }

    fn matrix() -> impl Strategy<Value = Vec<Vec<f32>>> {
        proptest::collection::vec(
            proptest::collection::vec((-24i8..24).prop_map(|n| f32::from(n) / 8.0), 4),
            1..7,
        )
    }

    proptest! {
        #[test]
        fn maxsim_agrees_with_the_naive_version(query in matrix(), document in matrix()) {
            let found = maxsim(&tokens(&query), &tokens(&document));
            prop_assert!((found - naive_maxsim(&query, &document)).abs() < 1e-5);
        }

        #[test]
        fn matching_guided_agrees_with_the_naive_version(context in proptest::collection::vec(matrix(), 1..5), response in matrix()) {
            let turns: Vec<TokenVectors> = context.iter().map(|turn| tokens(turn)).collect();
            let found = matching_guided(&turns.iter().collect::<Vec<_>>(), &tokens(&response));
            // The naive version returns `None` if the result is only rounding error.
            if let Some(expected) = naive_matching(&context, &response) {
                prop_assert!((found - expected).abs() < 1e-5, "{found} and {expected}");
            }
        }
    }

    #[test]
    fn maxsim_grows_with_similarity_and_ignores_token_order() {
        let (a, b) = (vec![1.0, 0.0, 0.0, 0.0], vec![0.0, 3.0, 0.0, 0.0]);
        let both = tokens(&[a.clone(), b.clone()]);
        assert!((maxsim(&both, &tokens(&[b.clone(), a.clone()])) - 1.0).abs() < 1e-6);
        assert!((maxsim(&both, &tokens(std::slice::from_ref(&a))) - 0.5).abs() < 1e-6);
        assert!(maxsim(&tokens(std::slice::from_ref(&a)), &tokens(&[vec![-1.0, 0.0, 0.0, 0.0]])) < -0.99);
        // Large token vectors do not overflow.
        let large = tokens(&[vec![3e12; 4], vec![1e12, -1e12, 2e12, 0.0]]);
        assert!((matching_guided(&[&large], &large)).is_finite());
    }

    #[test]
    fn empty_texts_score_zero() {
        let some = tokens(&[vec![1.0, 2.0, 3.0, 4.0]]);
        let (none, zeros) = (tokens(&[]), tokens(&[vec![0.0; 4]]));
        let nobody = TokenVectors::default();
        let narrow = TokenVectors { vectors: Vectors::zeros(2, 3), ..TokenVectors::default() };
        for other in [&none, &zeros, &nobody, &narrow] {
            for (a, b) in [(&some, other), (other, &some), (other, other)] {
                assert_eq!((maxsim(a, b), matching_guided(&[a], b)), (0.0, 0.0));
            }
        }
        assert_eq!(matching_guided(&[], &some), 0.0);
        // A turn without tokens has no effect.
        assert_eq!(matching_guided(&[&some, &none], &some), matching_guided(&[&some], &some));
    }
}
