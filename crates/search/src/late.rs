//! Late interaction: texts compared token by token, for putting the best of a search into a better order.
//!
//! Both scores compare tokens in context ([`Encoder::encode_tokens`](turnwise_encoder::Encoder::encode_tokens)), and are
//! cosines, so that scores of different texts can be compared. Tokens of different encoders cannot: where the widths
//! differ there is nothing to compare, as with a text without tokens. Then the score is 0.

use turnwise_nearest::products;

use turnwise_core::vectors::cosine;
use turnwise_encoder::{TokenVectors, Vectors};

/// MaxSim: the mean, over the tokens of the query, of the cosine with the token of the document that is most like it.
pub fn maxsim(query: &TokenVectors, document: &TokenVectors) -> f32 {
    let (query, document) = (unit(&query.vectors), unit(&document.vectors));
    if query.is_empty() || document.is_empty() || query.dim() != document.dim() {
        return 0.0;
    }
    let mut cosines = Vec::new();
    products(query.flat(), document.flat(), query.dim(), &mut cosines);
    let most = |of_one: &[f32]| of_one.iter().copied().fold(-1.0f32, f32::max);
    let sum: f64 = cosines.chunks_exact(document.len()).map(|of_one| f64::from(most(of_one))).sum();
    (sum / query.len() as f64) as f32
}

/// DialogueCSE's matching-guided similarity of a response and the turns around it.
///
/// For each turn's tokens `U` and the response's tokens `R`, the response is written anew as the turn sees it:
/// `R̂ = U·Rᵀ/√d · R`, a row for each token of the turn. The score is the cosine of the mean over tokens of the response
/// and the mean over turns of the means over tokens of `R̂`. Turns without tokens take no part.
///
/// There is no softmax in it, so that the mean over tokens goes inside: `mean(R̂) = (mean(U)·Rᵀ/√d)·R`, and no matrix of
/// tokens by tokens is ever made.
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
    // The mean over turns goes inside as well. Its scale, √d included, is nothing to a cosine.
    let turn = (0..dim).map(|n| turns.iter().map(|turn| turn[n]).sum::<f64>() / turns.len() as f64);
    let turn: Vec<f64> = turn.collect();
    let mut seen = vec![0.0; dim];
    for row in response.rows() {
        let match_of = row.iter().zip(&turn).map(|(r, u)| f64::from(*r) * u).sum::<f64>();
        seen.iter_mut().zip(row).for_each(|(s, r)| *s += match_of * f64::from(*r));
    }
    // Tokens may be of any length, and the product is of their third power: brought down before it is cut to 32 bits.
    let largest = seen.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    let seen: Vec<f32> = seen.iter().map(|v| (v / largest) as f32).collect();
    let said: Vec<f32> = mean(response).iter().map(|v| *v as f32).collect();
    cosine(&said, &seen)
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

    /// As the paper writes it, with the matrix of tokens by tokens.
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
        fn maxsim_is_what_it_says(query in matrix(), document in matrix()) {
            let found = maxsim(&tokens(&query), &tokens(&document));
            prop_assert!((found - naive_maxsim(&query, &document)).abs() < 1e-5);
        }

        #[test]
        fn the_mean_may_go_inside(context in proptest::collection::vec(matrix(), 1..5), response in matrix()) {
            let turns: Vec<TokenVectors> = context.iter().map(|turn| tokens(turn)).collect();
            let found = matching_guided(&turns.iter().collect::<Vec<_>>(), &tokens(&response));
            // What is nothing but rounding has no direction.
            if let Some(expected) = naive_matching(&context, &response) {
                prop_assert!((found - expected).abs() < 1e-5, "{found} and {expected}");
            }
        }
    }

    #[test]
    fn more_alike_is_more_and_order_is_nothing_to_maxsim() {
        let (a, b) = (vec![1.0, 0.0, 0.0, 0.0], vec![0.0, 3.0, 0.0, 0.0]);
        let both = tokens(&[a.clone(), b.clone()]);
        assert!((maxsim(&both, &tokens(&[b.clone(), a.clone()])) - 1.0).abs() < 1e-6);
        assert!((maxsim(&both, &tokens(std::slice::from_ref(&a))) - 0.5).abs() < 1e-6);
        assert!(maxsim(&tokens(std::slice::from_ref(&a)), &tokens(&[vec![-1.0, 0.0, 0.0, 0.0]])) < -0.99);
        // Large tokens leave no range.
        let large = tokens(&[vec![3e12; 4], vec![1e12, -1e12, 2e12, 0.0]]);
        assert!((matching_guided(&[&large], &large)).is_finite());
    }

    #[test]
    fn nothing_is_like_nothing() {
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
        // A turn without a word changes nothing.
        assert_eq!(matching_guided(&[&some, &none], &some), matching_guided(&[&some], &some));
    }
}
