//! Random numbers that depend only on a seed and an index, so threads can draw them in any order.

use turnwise_core::random::hash64;

/// Returns the standard normal random number at an index (Box–Muller transform).
pub(super) fn normal(seed: u64, place: u64) -> f64 {
    // 53 bits, and never 0, whose logarithm is infinite.
    let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (a, b) = (unit(hash64(seed, 2 * place)), unit(hash64(seed, 2 * place + 1)));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_normal_and_depend_on_seed_and_index() {
        let of = |seed| (0..20_000).map(|n| normal(seed, n)).collect::<Vec<_>>();
        let (one, two) = (of(1), of(2));
        let mean = |v: &[f64], f: &dyn Fn(f64) -> f64| v.iter().map(|x| f(*x)).sum::<f64>() / v.len() as f64;
        assert!(one.iter().all(|x| x.is_finite()));
        assert!(mean(&one, &|x| x).abs() < 0.03);
        assert!((mean(&one, &|x| x * x) - 1.0).abs() < 0.05);
        assert!((mean(&one, &|x| x.powi(4)) - 3.0).abs() < 0.3);
        assert_eq!(one, of(1));
        assert_ne!(one[..3], two[..3]);
    }
}
