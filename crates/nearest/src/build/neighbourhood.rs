//! Orders points so that near points follow each other. This improves cache locality while a graph is built.

use super::{Codes, mixed};

/// Maximum number of rows that are not split further.
const SMALL: usize = 4;
/// Number of random rows of which the farthest from the first one becomes the second pole.
const POLE_CANDIDATES: u64 = 16;
/// Minimum number of rows in a half to process the halves in parallel.
const PARALLEL: usize = 4096;

/// Returns the rows of codes in an order that places near rows together.
///
/// The rows are split recursively into halves: two distant rows are chosen as poles, and each row goes to the nearer
/// one. The order does not depend on the number of threads.
pub(super) fn order(codes: &Codes) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..codes.len() as u32).collect();
    halve(codes, &mut rows, &mut Vec::new(), 1);
    rows
}

/// Splits rows into halves, recursively. `seed` is unique for each half and determines its random choices.
fn halve(codes: &Codes, rows: &mut [u32], keyed: &mut Vec<(f32, u32)>, seed: u64) {
    if rows.len() <= SMALL {
        return;
    }
    let any = |n: u64| rows[(mixed(mixed(seed) ^ n) % rows.len() as u64) as usize];
    let one = any(0);
    let distance = |n: u64| (codes.distance(one, any(n)), any(n));
    let Some((_, other)) = (1..=POLE_CANDIDATES).map(distance).max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return;
    };
    keyed.clear();
    keyed.extend(rows.iter().map(|row| (codes.distance(one, *row) - codes.distance(other, *row), *row)));
    let middle = rows.len() / 2;
    keyed.select_nth_unstable_by(middle, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    for (row, (_, keyed)) in rows.iter_mut().zip(keyed.iter()) {
        *row = *keyed;
    }
    let (left, right) = rows.split_at_mut(middle);
    if middle < PARALLEL {
        halve(codes, left, keyed, 2 * seed);
        halve(codes, right, keyed, 2 * seed + 1);
    } else {
        rayon::join(
            || halve(codes, left, keyed, 2 * seed),
            || halve(codes, right, &mut Vec::new(), 2 * seed + 1),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metric, Points, distances::Dispatch};

    #[test]
    fn near_points_follow_each_other_and_none_is_lost() {
        // A thousand points on a line, in random order.
        let vectors: Vec<[f32; 2]> = (0..1000u64).map(|n| [(n * 617 % 1000) as f32, 1.0]).collect();
        let mut points = Points::new(Metric::L2, 2).unwrap();
        for (row, vector) in vectors.iter().enumerate() {
            points.push(row as u32, vector).unwrap();
        }
        let all: Vec<u32> = (0..1000).collect();
        let codes = Codes::new(&points, &all, Dispatch::portable());
        let order = order(&codes);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, all);
        let step = |order: &[u32]| {
            let at = |row: u32| vectors[row as usize][0];
            order.windows(2).map(|pair| (at(pair[0]) - at(pair[1])).abs()).sum::<f32>() / 999.0
        };
        assert!(step(&order) < 20.0 && step(&all) > 300.0, "{} {}", step(&order), step(&all));
    }

    #[test]
    fn the_order_does_not_depend_on_the_number_of_threads() {
        let vectors: Vec<[f32; 3]> =
            (0..20_000u64).map(|n| [1, 2, 3].map(|k| (mixed(3 * n + k) >> 40) as f32)).collect();
        let mut points = Points::new(Metric::L2, 3).unwrap();
        for (row, vector) in vectors.iter().enumerate() {
            points.push(row as u32, vector).unwrap();
        }
        let all: Vec<u32> = (0..points.len() as u32).collect();
        let codes = Codes::new(&points, &all, Dispatch::best());
        let orders = [1, 4].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| order(&codes))
        });
        assert_eq!(orders[0], orders[1]);
    }
}
