//! Correlation coefficients. Ties are handled as in SciPy.
//!
//! `a[i]` and `b[i]` form a pair; extra values of the longer slice are ignored. A coefficient is `None` if there are
//! fewer than two pairs, if all values of one slice are equal, or if a value is NaN.

/// Pearson correlation coefficient.
///
/// Rounding can make the mean of a constant input inexact. The result is then a number instead of `None`.
pub fn pearson(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len().min(b.len());
    if n < 2 {
        return None;
    }
    let mean = |row: &[f64]| row[..n].iter().sum::<f64>() / n as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut covariance, mut variance_a, mut variance_b) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (x - mean_a, y - mean_b);
        covariance += x * y;
        variance_a += x * x;
        variance_b += y * y;
    }
    let norm = (variance_a * variance_b).sqrt();
    (norm > 0.0).then(|| (covariance / norm).clamp(-1.0, 1.0))
}

/// Spearman rank correlation coefficient. Equal values get the average of their ranks.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = paired(a, b)?;
    pearson(&ranks(a), &ranks(b))
}

/// Kendall rank correlation coefficient (tau-b, which corrects for ties). Takes O(n log n) time.
pub fn kendall(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = paired(a, b)?;
    let mut pairs: Vec<(f64, f64)> = a.iter().copied().zip(b.iter().copied()).collect();
    pairs.sort_unstable_by(|x, y| x.0.total_cmp(&y.0).then(x.1.total_cmp(&y.1)));
    let ties_a = tied(pairs.iter().map(|p| p.0));
    let ties_both = tied(pairs.iter().copied());
    // The pairs are sorted by `a`, so each inversion in the values of `b` is a discordant pair.
    let mut second: Vec<f64> = pairs.iter().map(|p| p.1).collect();
    let mut buffer = second.clone();
    let discordant = inversions(&mut second, &mut buffer);
    let ties_b = tied(second.iter().copied());
    let n = pairs.len() as f64;
    let all = n * (n - 1.0) / 2.0;
    let denominator = ((all - ties_a) * (all - ties_b)).sqrt();
    let numerator = all - ties_a - ties_b + ties_both - 2.0 * discordant;
    (denominator > 0.0).then(|| (numerator / denominator).clamp(-1.0, 1.0))
}

/// Returns both slices, cut to the length of the shorter one. Returns `None` if a value in them is NaN, because NaN has
/// no rank.
fn paired<'a>(a: &'a [f64], b: &'a [f64]) -> Option<(&'a [f64], &'a [f64])> {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    (!a.iter().chain(b).any(|value| value.is_nan())).then_some((a, b))
}

/// Returns the rank of each value; the smallest value has rank 1. Equal values get the average of their ranks.
fn ranks(row: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_unstable_by(|a, b| row[*a].total_cmp(&row[*b]));
    let mut ranks = vec![0.0; row.len()];
    let mut start = 0;
    while start < order.len() {
        let same = order[start..].iter().take_while(|n| row[**n] == row[order[start]]).count();
        let rank = start as f64 + (same as f64 + 1.0) / 2.0;
        order[start..start + same].iter().for_each(|n| ranks[*n] = rank);
        start += same;
    }
    ranks
}

/// Returns the number of pairs of equal values in a sorted sequence.
fn tied<T: PartialEq>(sorted: impl Iterator<Item = T>) -> f64 {
    let (mut sum, mut run, mut last) = (0.0, 0.0, None);
    for value in sorted {
        let value = Some(value);
        run = if last == value { run + 1.0 } else { 0.0 };
        sum += run;
        last = value;
    }
    sum
}

/// Sorts `row` by merge sort. Returns the number of inversions: pairs of values that were in the wrong order.
///
/// `buffer` must have the same length as `row`. Its initial content does not matter.
fn inversions(row: &mut [f64], buffer: &mut [f64]) -> f64 {
    if row.len() < 2 {
        return 0.0;
    }
    let middle = row.len() / 2;
    let mut count = inversions(&mut row[..middle], &mut buffer[..middle])
        + inversions(&mut row[middle..], &mut buffer[middle..]);
    let (mut left, mut right) = (0, middle);
    for slot in buffer.iter_mut() {
        if right == row.len() || (left < middle && row[left] <= row[right]) {
            *slot = row[left];
            left += 1;
        } else {
            count += (middle - left) as f64;
            *slot = row[right];
            right += 1;
        }
    }
    row.copy_from_slice(buffer);
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_that_are_not_numbers_have_no_correlation() {
        for of in [pearson, spearman, kendall] {
            assert_eq!(of(&[1.0, f64::NAN, 2.0], &[1.0, 2.0, 3.0]), None);
            assert_eq!(of(&[1.0, 2.0, 3.0], &[2.0, 1.0, f64::NAN]), None);
        }
    }

    #[test]
    fn ties_get_their_average_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        assert!(ranks(&[]).is_empty());
    }

    #[test]
    fn increasing_pairs_have_1_and_decreasing_pairs_are_negative() {
        let (up, down) = ([1.0, 2.0, 4.0], [3.0, 2.0, -9.0]);
        for of in [spearman, kendall] {
            assert_eq!((of(&up, &up), of(&up, &down)), (Some(1.0), Some(-1.0)));
        }
        assert!((-1.0..-0.95).contains(&pearson(&up, &down).unwrap()));
    }

    #[test]
    fn constant_or_short_inputs_have_no_correlation() {
        for of in [pearson, spearman, kendall] {
            assert_eq!(of(&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]), None);
            assert_eq!(of(&[1.0], &[2.0]), None);
            assert_eq!(of(&[], &[]), None);
        }
    }

    #[test]
    fn surplus_values_of_the_longer_input_are_ignored() {
        let (a, b) = ([1.0, 3.0, 2.0, 0.0, 2.5], [1.0, 2.0, 4.0]);
        for of in [pearson, spearman, kendall] {
            assert_eq!(of(&a, &b), of(&a[..3], &b));
            assert_eq!(of(&b, &a), of(&b, &a[..3]));
        }
    }

    proptest! {
        #[test]
        fn kendall_agrees_with_a_count_over_all_pairs(pairs in proptest::collection::vec((0u8..6, 0u8..6), 2..40)) {
            let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().map(|(x, y)| (f64::from(*x), f64::from(*y))).unzip();
            let (mut together, mut of_a, mut of_b) = (0.0f64, 0.0f64, 0.0f64);
            for i in 0..a.len() {
                for j in 0..i {
                    let sign = |x: f64, y: f64| f64::from(i8::from(x > y) - i8::from(x < y));
                    let (x, y) = (sign(a[i], a[j]), sign(b[i], b[j]));
                    together += x * y;
                    of_a += x * x;
                    of_b += y * y;
                }
            }
            match kendall(&a, &b) {
                Some(tau) => prop_assert!((tau - together / (of_a * of_b).sqrt()).abs() < 1e-12),
                None => prop_assert_eq!(of_a * of_b, 0.0),
            }
        }
    }
}
