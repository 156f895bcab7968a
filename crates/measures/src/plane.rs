//! Exact t-SNE (van der Maaten and Hinton 2008): projects vectors to points in the plane for a scatter plot.

use rayon::prelude::*;
use turnwise_nearest::products;

use turnwise_core::Vectors;
use turnwise_core::random::Random;

/// Perplexity: the effective number of neighbors of each point. If there are n < 91 points, the perplexity is (n − 1) /
/// 3 instead.
const PERPLEXITY: f64 = 30.0;
const ITERATIONS: usize = 400;
/// Factor by which the attraction is multiplied in the first iterations (early exaggeration). It lets clusters move
/// past each other.
const EXAGGERATION: f64 = 12.0;
/// Number of iterations with early exaggeration.
const EXAGGERATED: usize = 120;

/// Returns a point in [−1, 1]² for each vector. The vectors must be L2-normalized.
///
/// `done` is called after each iteration with the number of finished iterations and the total number of iterations. If
/// `done` returns false, the function stops and returns `None`. Fewer than four vectors are placed on a line, without
/// iterations.
///
/// The result does not depend on the number of threads. For n vectors, the function needs about 8·n² bytes of memory.
pub fn plane(
    vectors: &Vectors,
    seed: u64,
    mut done: impl FnMut(usize, usize) -> bool,
) -> Option<Vec<[f32; 2]>> {
    let n = vectors.len();
    if n < 4 {
        return Some((0..n).map(|at| [at as f32 / 2.0 - 0.5, 0.0]).collect());
    }
    let affinities = affinities(vectors);
    let mut random = Random::new(seed, 0);
    let mut start = || (random.below(1 << 20) as f64 / f64::from(1 << 20) - 0.5) * 1e-3;
    let mut at: Vec<[f64; 2]> = (0..n).map(|_| [start(), start()]).collect();
    let mut velocity = vec![[0.0f64; 2]; n];
    let mut gain = vec![[1.0f64; 2]; n];
    let rate = (n as f64 / EXAGGERATION / 4.0).max(50.0);
    for iteration in 0..ITERATIONS {
        let (exaggeration, momentum) = if iteration < EXAGGERATED { (EXAGGERATION, 0.5) } else { (1.0, 0.8) };
        let gradients = gradients(&at, &affinities, exaggeration);
        for i in 0..n {
            for axis in 0..2 {
                let (gradient, velocity, gain) =
                    (gradients[i][axis], &mut velocity[i][axis], &mut gain[i][axis]);
                *gain =
                    if (gradient > 0.0) == (*velocity > 0.0) { (*gain * 0.8).max(0.01) } else { *gain + 0.2 };
                *velocity = momentum * *velocity - rate * *gain * gradient;
                at[i][axis] += *velocity;
            }
        }
        if !done(iteration + 1, ITERATIONS) {
            return None;
        }
    }
    Some(fitted(&at))
}

/// Returns the symmetric affinities of all pairs, row by row (the matrix P of t-SNE). All affinities sum to 1.
fn affinities(vectors: &Vectors) -> Vec<f32> {
    let n = vectors.len();
    let perplexity = PERPLEXITY.min((n - 1) as f64 / 3.0);
    let rows: Vec<Vec<f32>> = (0..n)
        .into_par_iter()
        .map_init(Vec::new, |cosines, i| {
            products(vectors.row(i), vectors.flat(), vectors.dim(), cosines);
            let distances: Vec<f64> =
                cosines.iter().map(|cosine| f64::from(2.0 - 2.0 * cosine).max(0.0)).collect();
            conditional(&distances, i, perplexity)
        })
        .collect();
    let mut affinities = vec![0.0f32; n * n];
    for i in 0..n {
        for j in 0..n {
            affinities[i * n + j] = (rows[i][j] + rows[j][i]) / (2 * n) as f32;
        }
    }
    affinities
}

/// For each point, returns the probability that point `own` selects it as a neighbor. The probability of `own` itself
/// is 0.
///
/// `distances` holds the squared distance of each point from `own`. The probabilities follow a Gaussian kernel. A
/// binary search finds the precision of the kernel (half the inverse variance) that results in the requested
/// perplexity.
fn conditional(distances: &[f64], own: usize, perplexity: f64) -> Vec<f32> {
    let (mut low, mut high, mut precision) = (0.0f64, f64::INFINITY, 1.0f64);
    let mut probabilities = vec![0.0f64; distances.len()];
    let others = distances.iter().enumerate().filter(|(j, _)| *j != own);
    let nearest = others.map(|(_, d)| *d).fold(f64::INFINITY, f64::min);
    for _ in 0..60 {
        let mut sum = 0.0;
        for (j, probability) in probabilities.iter_mut().enumerate() {
            *probability = if j == own { 0.0 } else { (-(distances[j] - nearest) * precision).exp() };
            sum += *probability;
        }
        let weighted = probabilities.iter().zip(distances).map(|(p, d)| p * (d - nearest)).sum::<f64>();
        let entropy = weighted * precision / sum + sum.ln();
        probabilities.iter_mut().for_each(|probability| *probability /= sum);
        let off = entropy - perplexity.ln();
        if off.abs() < 1e-4 {
            break;
        }
        if off > 0.0 {
            low = precision;
            precision = if high.is_finite() { f64::midpoint(low, high) } else { precision * 2.0 };
        } else {
            high = precision;
            precision = f64::midpoint(low, high);
        }
    }
    probabilities.into_iter().map(|probability| probability as f32).collect()
}

/// Returns the gradient of the t-SNE cost with respect to the position of each point.
fn gradients(at: &[[f64; 2]], affinities: &[f32], exaggeration: f64) -> Vec<[f64; 2]> {
    let n = at.len();
    // Returns three values for point `i`: the sum of its kernel values, its attraction, and its repulsion.
    let of_one = |i: usize| {
        let (mut sum, mut attraction, mut repulsion) = (0.0f64, [0.0f64; 2], [0.0f64; 2]);
        for (j, other) in at.iter().enumerate() {
            let d = [at[i][0] - other[0], at[i][1] - other[1]];
            let kernel = 1.0 / (1.0 + d[0] * d[0] + d[1] * d[1]);
            let pull = f64::from(affinities[i * n + j]) * kernel;
            let push = kernel * kernel;
            sum += kernel;
            for axis in 0..2 {
                attraction[axis] += pull * d[axis];
                repulsion[axis] += push * d[axis];
            }
        }
        // Subtract the kernel value of the pair of the point and itself, which is 1.
        (sum - 1.0, attraction, repulsion)
    };
    let parts: Vec<(f64, [f64; 2], [f64; 2])> = (0..n).into_par_iter().map(of_one).collect();
    let all: f64 = parts.iter().map(|(sum, ..)| sum).sum::<f64>().max(f64::MIN_POSITIVE);
    let gradient = |(_, attraction, repulsion): &(f64, [f64; 2], [f64; 2])| {
        [0, 1].map(|axis| 4.0 * (exaggeration * attraction[axis] - repulsion[axis] / all))
    };
    parts.iter().map(gradient).collect()
}

/// Returns the points, centered, and scaled by the same factor on both axes. The longer side of their bounding box
/// becomes [−1, 1].
fn fitted(at: &[[f64; 2]]) -> Vec<[f32; 2]> {
    let side = |axis: usize| {
        let values = at.iter().map(|p| p[axis]);
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max))
    };
    let sides = [side(0), side(1)];
    let half = sides.iter().map(|(low, high)| (high - low) / 2.0).fold(f64::MIN_POSITIVE, f64::max);
    let scaled = |p: &[f64; 2]| {
        [0, 1].map(|axis| ((p[axis] - f64::midpoint(sides[axis].0, sides[axis].1)) / half) as f32)
    };
    at.iter().map(scaled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `n` unit vectors in three clusters, and the cluster of each vector.
    fn clusters(n: usize) -> (Vectors, Vec<usize>) {
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
    fn the_nearest_point_is_of_the_same_cluster() {
        let (vectors, labels) = clusters(150);
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
    fn the_result_does_not_depend_on_threads_and_can_be_stopped() {
        let (vectors, _) = clusters(40);
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| plane(&vectors, 1, |_, _| true)).unwrap()
        };
        assert_eq!(with(1), with(3));
        assert_eq!(plane(&vectors, 1, |iteration, _| iteration < 3), None);
    }

    #[test]
    fn few_or_equal_vectors_get_finite_points() {
        let mut vectors = Vectors::new(2);
        for n in 0..6 {
            assert_eq!(plane(&vectors, 1, |_, _| true).unwrap().len(), n);
            vectors.push(&[1.0, 0.0]);
        }
        assert!(plane(&vectors, 1, |_, _| true).unwrap().iter().flatten().all(|v| v.is_finite()));
    }
}
