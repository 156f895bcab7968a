//! Vectors as points on a plane, for people to look at: those near each other stay so (t-SNE, van der Maaten and Hinton,
//! 2008, every pair looked at).

use rayon::prelude::*;
use turnwise_nearest::products;

use turnwise_core::Vectors;
use turnwise_core::random::Random;

/// About so many are taken for the neighbours of each.
const PERPLEXITY: f64 = 30.0;
const ROUNDS: usize = 400;
/// In the first rounds neighbours draw each other so much more, so that clusters can pass each other.
const EXAGGERATION: f64 = 12.0;
const EXAGGERATED: usize = 120;

/// A place for each vector (which have length 1), the whole within −1 to 1. It hangs on nothing but vectors and seed, not
/// on the number of threads. `done` is told how many of how many rounds are over; `None` if it answers that this is to stop.
pub fn plane(
    vectors: &Vectors,
    seed: u64,
    mut done: impl FnMut(usize, usize) -> bool,
) -> Option<Vec<[f32; 2]>> {
    let n = vectors.len();
    if n < 4 {
        return Some((0..n).map(|at| [at as f32 / 2.0 - 0.5, 0.0]).collect());
    }
    let near = nearness(vectors);
    let mut random = Random::new(seed, 0);
    let mut start = || (random.below(1 << 20) as f64 / f64::from(1 << 20) - 0.5) * 1e-3;
    let mut at: Vec<[f64; 2]> = (0..n).map(|_| [start(), start()]).collect();
    let mut speed = vec![[0.0f64; 2]; n];
    let mut gain = vec![[1.0f64; 2]; n];
    let rate = (n as f64 / EXAGGERATION / 4.0).max(50.0);
    for round in 0..ROUNDS {
        let (drawn, momentum) = if round < EXAGGERATED { (EXAGGERATION, 0.5) } else { (1.0, 0.8) };
        let forces = forces(&at, &near, drawn);
        for i in 0..n {
            for axis in 0..2 {
                let (force, speed, gain) = (forces[i][axis], &mut speed[i][axis], &mut gain[i][axis]);
                *gain = if (force > 0.0) == (*speed > 0.0) { (*gain * 0.8).max(0.01) } else { *gain + 0.2 };
                *speed = momentum * *speed - rate * *gain * force;
                at[i][axis] += *speed;
            }
        }
        if !done(round + 1, ROUNDS) {
            return None;
        }
    }
    Some(fitted(&at))
}

/// How near each pair is, in sum 1: of each of two the share that the other has among its neighbours.
fn nearness(vectors: &Vectors) -> Vec<f32> {
    let n = vectors.len();
    let perplexity = PERPLEXITY.min((n - 1) as f64 / 3.0);
    let rows: Vec<Vec<f32>> = (0..n)
        .into_par_iter()
        .map_init(Vec::new, |cosines, i| {
            products(vectors.row(i), vectors.flat(), vectors.dim(), cosines);
            let apart: Vec<f64> =
                cosines.iter().map(|cosine| f64::from(2.0 - 2.0 * cosine).max(0.0)).collect();
            shares(&apart, i, perplexity)
        })
        .collect();
    let mut near = vec![0.0f32; n * n];
    for i in 0..n {
        for j in 0..n {
            near[i * n + j] = (rows[i][j] + rows[j][i]) / (2 * n) as f32;
        }
    }
    near
}

/// The share of each among the neighbours of one: normal in the distance, and as wide as the perplexity asks.
fn shares(apart: &[f64], own: usize, perplexity: f64) -> Vec<f32> {
    let (mut low, mut high, mut narrow) = (0.0f64, f64::INFINITY, 1.0f64);
    let mut shares = vec![0.0f64; apart.len()];
    let least =
        apart.iter().enumerate().filter(|(j, _)| *j != own).map(|(_, d)| *d).fold(f64::INFINITY, f64::min);
    for _ in 0..60 {
        let mut sum = 0.0;
        for (j, share) in shares.iter_mut().enumerate() {
            *share = if j == own { 0.0 } else { (-(apart[j] - least) * narrow).exp() };
            sum += *share;
        }
        let entropy =
            shares.iter().zip(apart).map(|(s, d)| s * (d - least)).sum::<f64>() * narrow / sum + sum.ln();
        shares.iter_mut().for_each(|share| *share /= sum);
        let off = entropy - perplexity.ln();
        if off.abs() < 1e-4 {
            break;
        }
        if off > 0.0 {
            low = narrow;
            narrow = if high.is_finite() { f64::midpoint(low, high) } else { narrow * 2.0 };
        } else {
            high = narrow;
            narrow = f64::midpoint(low, high);
        }
    }
    shares.into_iter().map(|share| share as f32).collect()
}

/// Where each is pushed and pulled.
fn forces(at: &[[f64; 2]], near: &[f32], drawn: f64) -> Vec<[f64; 2]> {
    let n = at.len();
    // Of each point: the sum of its closeness to all, what draws it, and what drives it away.
    let of_one = |i: usize| {
        let (mut sum, mut draws, mut drives) = (0.0f64, [0.0f64; 2], [0.0f64; 2]);
        for (j, other) in at.iter().enumerate() {
            let d = [at[i][0] - other[0], at[i][1] - other[1]];
            let close = 1.0 / (1.0 + d[0] * d[0] + d[1] * d[1]);
            let pull = f64::from(near[i * n + j]) * close;
            let push = close * close;
            sum += close;
            for axis in 0..2 {
                draws[axis] += pull * d[axis];
                drives[axis] += push * d[axis];
            }
        }
        // Itself is no neighbour.
        (sum - 1.0, draws, drives)
    };
    let parts: Vec<(f64, [f64; 2], [f64; 2])> = (0..n).into_par_iter().map(of_one).collect();
    let all: f64 = parts.iter().map(|(sum, ..)| sum).sum::<f64>().max(f64::MIN_POSITIVE);
    let force = |(_, draws, drives): &(f64, [f64; 2], [f64; 2])| {
        [0, 1].map(|axis| 4.0 * (drawn * draws[axis] - drives[axis] / all))
    };
    parts.iter().map(force).collect()
}

/// Within −1 to 1, the longer side filled.
fn fitted(at: &[[f64; 2]]) -> Vec<[f32; 2]> {
    let side = |axis: usize| {
        let values = at.iter().map(|p| p[axis]);
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max))
    };
    let sides = [side(0), side(1)];
    let half = sides.iter().map(|(low, high)| (high - low) / 2.0).fold(f64::MIN_POSITIVE, f64::max);
    let place = |p: &[f64; 2]| {
        [0, 1].map(|axis| ((p[axis] - f64::midpoint(sides[axis].0, sides[axis].1)) / half) as f32)
    };
    at.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three bundles of vectors in 8 dimensions.
    fn bundles(n: usize) -> (Vectors, Vec<usize>) {
        let mut random = Random::new(3, 0);
        let mut vectors = Vectors::new(8);
        let labels: Vec<usize> = (0..n).map(|i| i % 3).collect();
        for label in &labels {
            let mut row: Vec<f32> =
                (0..8).map(|_| (random.below(1000) as f32 / 1000.0 - 0.5) * 0.6).collect();
            row[*label] += 2.0;
            vectors.push(&row);
        }
        vectors.normalize();
        (vectors, labels)
    }

    #[test]
    fn what_belongs_together_lies_together() {
        let (vectors, labels) = bundles(150);
        let points = plane(&vectors, 1, |_, _| true).unwrap();
        let apart = |a: usize, b: usize| (points[a][0] - points[b][0]).hypot(points[a][1] - points[b][1]);
        let nearest_agrees = (0..150).filter(|a| {
            let nearest = (0..150).filter(|b| b != a).min_by(|x, y| apart(*a, *x).total_cmp(&apart(*a, *y)));
            labels[nearest.unwrap()] == labels[*a]
        });
        assert_eq!(nearest_agrees.count(), 150);
        assert!(points.iter().flatten().all(|v| (-1.0..=1.0).contains(v)));
        assert_eq!(points, plane(&vectors, 1, |_, _| true).unwrap());
    }

    #[test]
    fn it_does_not_hang_on_the_threads_and_can_be_stopped() {
        let (vectors, _) = bundles(40);
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| plane(&vectors, 1, |_, _| true)).unwrap()
        };
        assert_eq!(with(1), with(3));
        assert_eq!(plane(&vectors, 1, |round, _| round < 3), None);
    }

    #[test]
    fn few_and_equal_vectors_have_places_too() {
        let mut vectors = Vectors::new(2);
        for n in 0..6 {
            assert_eq!(plane(&vectors, 1, |_, _| true).unwrap().len(), n);
            vectors.push(&[1.0, 0.0]);
        }
        assert!(plane(&vectors, 1, |_, _| true).unwrap().iter().flatten().all(|v| v.is_finite()));
    }
}
