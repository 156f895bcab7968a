//! Tests on synthetic dialogues with known dialogue acts ("purposes"), which follow each other in a fixed order.

use super::*;
use turnwise_core::random::Random;

const DIM: usize = 12;
const PURPOSES: usize = 5;

/// Creates synthetic dialogues. Returns the vectors of the turns, the number of turns of each dialogue, and the
/// purposes of the turns.
///
/// Each purpose (dialogue act) has its own dimension. The other dimensions are noise with a larger variance.
fn dialogues(count: usize, seed: u64, in_order: bool) -> (Vectors, Vec<usize>, Vec<usize>) {
    let mut random = Random::new(seed, 0);
    let (mut vectors, mut turns, mut purposes) = (Vectors::new(DIM), Vec::new(), Vec::new());
    for _ in 0..count {
        turns.push(2 + random.below(6));
        let first = random.below(PURPOSES);
        for turn in 0..turns[turns.len() - 1] {
            let purpose = if in_order { (first + turn) % PURPOSES } else { random.below(PURPOSES) };
            let mut row: Vec<f32> = (0..DIM).map(|_| random.unit() as f32 - 0.5).collect();
            row[purpose] += 0.6;
            row[PURPOSES..].iter_mut().for_each(|noise| *noise *= 3.0);
            vectors.push(&row);
            purposes.push(purpose);
        }
    }
    (vectors, turns, purposes)
}

fn sums(of: &(Vectors, Vec<usize>, Vec<usize>)) -> Sums {
    let mut sums = Sums::new(DIM, 1);
    sums.add(&of.0, &of.1);
    sums
}

fn applied(layer: &Layer, vectors: &Vectors) -> Vectors {
    let mut out = Vectors::new(DIM);
    for row in vectors.rows() {
        let sum = |weight: &[f32]| -> f32 { weight.iter().zip(row).map(|(a, b)| a * b).sum() };
        let numbers =
            layer.weight.chunks_exact(DIM).zip(&layer.bias).map(|(weight, bias)| sum(weight) + bias);
        out.push(&numbers.collect::<Vec<f32>>());
    }
    out
}

/// Returns the share of vectors that have the same purpose as their nearest neighbor by cosine.
fn precision(vectors: &Vectors, purposes: &[usize]) -> f64 {
    let mut unit = vectors.clone();
    unit.normalize();
    let nearest = |n: usize| {
        let like = |o: &usize| -> f32 { unit.row(n).iter().zip(unit.row(*o)).map(|(a, b)| a * b).sum() };
        (0..unit.len()).filter(|o| *o != n).max_by(|a, b| like(a).total_cmp(&like(b))).unwrap()
    };
    let right = (0..unit.len()).filter(|n| purposes[nearest(*n)] == purposes[*n]).count();
    right as f64 / unit.len() as f64
}

/// Returns the number of canonical correlations above the random baseline.
fn above_baseline(layer: &Layer) -> usize {
    layer.correlations.iter().filter(|correlation| **correlation > layer.baseline).count()
}

#[test]
fn utterances_with_similar_contexts_get_similar_vectors() {
    let seen = sums(&dialogues(3_000, 1, true));
    let layer = learn(std::slice::from_ref(&seen), 0.5).unwrap();
    let unseen = dialogues(100, 2, true);
    let (before, after) =
        (precision(&unseen.0, &unseen.2), precision(&applied(&layer, &unseen.0), &unseen.2));
    assert!(after > before + 0.1, "{before} {after}");
    // Centering removes one dimension, so one correlation fewer than purposes is expected.
    assert_eq!(above_baseline(&layer), PURPOSES - 1, "{:?} {}", layer.correlations, layer.baseline);
}

#[test]
fn dot_products_after_the_layer_are_a_weighted_sum() {
    let all = dialogues(600, 3, true);
    let at = |strength: f64| applied(&learn(&[sums(&all)], strength).unwrap(), &all.0);
    let [none, half, whole] = [0.0, 0.5, 1.0].map(at);
    let product = |of: &Vectors, a: usize, b: usize| -> f64 {
        of.row(a).iter().zip(of.row(b)).map(|(a, b)| f64::from(a * b)).sum()
    };
    for (a, b) in [(0, 1), (5, 5), (9, 70), (300, 301)] {
        let expected = (product(&none, a, b) + product(&whole, a, b)) / 2.0;
        assert!((product(&half, a, b) - expected).abs() < 1e-3, "{a} {b}");
    }
    let length = |of: &Vectors| (0..of.len()).map(|n| product(of, n, n)).sum::<f64>() / of.len() as f64;
    assert!((length(&none) / length(&whole) - 1.0).abs() < 1e-3, "{} {}", length(&none), length(&whole));
    for column in 0..DIM {
        let mean = |of: &Vectors| of.rows().map(|row| f64::from(row[column])).sum::<f64>() / of.len() as f64;
        assert!(mean(&half).abs() < 1e-3);
        // With strength 0, the layer only subtracts the mean.
        let moved = none.row(7)[column] - all.0.row(7)[column] + mean(&all.0) as f32;
        assert!(moved.abs() < 1e-3, "{column}: {moved}");
    }
    // With strength 1, the predictive dimensions get a much higher weight than the noise.
    let energy = |of: &Vectors, columns: std::ops::Range<usize>| -> f64 {
        columns.map(|n| of.rows().map(|row| f64::from(row[n]).powi(2)).sum::<f64>()).sum()
    };
    let ratio = |of: &Vectors| energy(of, 0..PURPOSES) / energy(of, PURPOSES..DIM);
    assert!(ratio(&whole) > 10.0 * ratio(&none), "{} {}", ratio(&whole), ratio(&none));
}

#[test]
fn the_layer_equals_the_normal_equations() {
    // Solve the normal equations directly, without a matrix decomposition.
    let all = dialogues(400, 8, true);
    let seen = sums(&all);
    let (own, around) = seen.pairs_of(&all.0, &all.1);
    let count = own.len() / DIM;
    let centered = |rows: &[f32]| -> Vec<f64> {
        let mean =
            |c: usize| rows.iter().skip(c).step_by(DIM).map(|v| f64::from(*v)).sum::<f64>() / count as f64;
        let means: Vec<f64> = (0..DIM).map(mean).collect();
        rows.iter().enumerate().map(|(at, v)| f64::from(*v) - means[at % DIM]).collect()
    };
    let (x, y) = (centered(&own), centered(&around));
    let covariance = |a: &[f64], b: &[f64]| -> Vec<f64> {
        let at = |i: usize, j: usize| {
            (0..count).map(|n| a[n * DIM + i] * b[n * DIM + j]).sum::<f64>() / count as f64
        };
        (0..DIM * DIM).map(|n| at(n / DIM, n % DIM)).collect()
    };
    let ridge = |mut matrix: Vec<f64>| {
        let scale = scatter::mean_variance(&matrix, DIM);
        (0..DIM).for_each(|n| matrix[n * (DIM + 1)] += scale);
        matrix
    };
    let (sx, sy, sxy) = (ridge(covariance(&x, &x)), ridge(covariance(&y, &y)), covariance(&x, &y));
    // Compute `G z` for a vector `z` as `Sx^-1 Sxy Sy^-1 Syx Sx^-1 z`. Each inverse is applied by elimination.
    let z: Vec<f64> = (0..DIM).map(|n| (n as f64 * 0.7).cos()).collect();
    let by = |m: &[f64], v: &[f64]| -> Vec<f64> {
        m.chunks_exact(DIM).map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum()).collect()
    };
    let step = solve(&sx, &z);
    let step = solve(&sy, &by(&scatter::transposed(&sxy, DIM), &step));
    let expected = solve(&sx, &by(&sxy, &step));
    let layer = learn(&[seen], 1.0).unwrap();
    let weight: Vec<f64> = layer.weight.iter().map(|v| f64::from(*v)).collect();
    let found = by(&weight, &by(&weight, &z));
    // The results are equal up to a scale factor, because the layer keeps the mean squared norm of the vectors.
    let scale = found.iter().zip(&expected).map(|(a, b)| a * b).sum::<f64>()
        / expected.iter().map(|v| v * v).sum::<f64>();
    let wrong = found.iter().zip(&expected).map(|(a, b)| (a - scale * b).abs()).fold(0.0, f64::max);
    let most = found.iter().map(|v| v.abs()).fold(0.0, f64::max);
    assert!(wrong < 1e-3 * most, "{wrong} {most}");
}

/// Solves `A x = b` by elimination.
fn solve(a: &[f64], b: &[f64]) -> Vec<f64> {
    let (mut a, mut b) = (a.to_vec(), b.to_vec());
    for n in 0..DIM {
        for row in (0..DIM).filter(|row| *row != n) {
            let times = a[row * DIM + n] / a[n * DIM + n];
            for column in n..DIM {
                a[row * DIM + column] -= times * a[n * DIM + column];
            }
            b[row] -= times * b[n];
        }
    }
    (0..DIM).map(|n| b[n] / a[n * (DIM + 1)]).collect()
}

#[test]
fn the_context_vector_is_the_mean_of_the_neighboring_turns() {
    let mut vectors = Vectors::new(1);
    [1.0, 2.0, 4.0, 10.0, 20.0, 7.0].iter().for_each(|v| vectors.push(&[*v]));
    let pairs = |context| Sums::new(1, context).pairs_of(&vectors, &[3, 2, 1]);
    assert_eq!(pairs(1), (vec![1.0, 2.0, 4.0, 10.0, 20.0], vec![2.0, 2.5, 2.0, 20.0, 10.0]));
    assert_eq!(pairs(2).1, [3.0, 2.5, 1.5, 20.0, 10.0]);
}

#[test]
fn sums_do_not_depend_on_blocks_and_each_corpus_has_its_own_mean() {
    let all = dialogues(300, 4, true);
    let mut by_one = Sums::new(DIM, 1);
    let mut begin = 0;
    for turns in &all.1 {
        let mut own = Vectors::new(DIM);
        (begin..begin + turns).for_each(|n| own.push(all.0.row(n)));
        by_one.add(&own, &[*turns]);
        begin += turns;
    }
    let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-2);
    let whole = sums(&all);
    assert!(near(&whole.own_around, &by_one.own_around) && whole.pairs == by_one.pairs);
    // A second corpus with a different mean does not change the correlations.
    let mut shifted = all.clone();
    let mut moved = Vectors::new(DIM);
    shifted.0.rows().for_each(|row| moved.push(&row.iter().map(|v| v + 3.0).collect::<Vec<f32>>()));
    shifted.0 = moved;
    let one = learn(&[whole], 0.5).unwrap();
    let two = learn(&[sums(&all), sums(&shifted)], 0.5).unwrap();
    assert!(
        one.correlations.iter().zip(&two.correlations).all(|(a, b)| (a - b).abs() < 1e-3),
        "{:?}",
        two.correlations
    );
}

#[test]
fn uninformative_data_is_an_error() {
    let e = learn(&[sums(&dialogues(20, 5, true))], 0.5).unwrap_err();
    assert!(e.to_string().contains("too few utterances"), "{e}");
    let e = learn(&[sums(&dialogues(400, 5, false))], 0.5);
    // If the turns are in random order, a few correlations can exceed the baseline by chance.
    assert!(e.is_err() || e.is_ok_and(|layer| above_baseline(&layer) <= 2));
    let mut same = Sums::new(DIM, 1);
    let mut vectors = Vectors::new(DIM);
    (0..400).for_each(|_| vectors.push(&[0.5; DIM]));
    same.add(&vectors, &[2; 200]);
    assert!(learn(&[same], 0.5).unwrap_err().to_string().contains("do not predict"));
}
