//! Utterances whose purposes follow each other as the test alone knows.

use super::*;
use crate::random::Random;

const DIM: usize = 12;
const PURPOSES: usize = 5;

/// Dialogues whose turns' purposes come one after the other, each with a direction of its own; and louder directions that
/// tell nothing. Gives vectors, turns and purposes.
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
            row[PURPOSES..].iter_mut().for_each(|loud| *loud *= 3.0);
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

/// The part of the nearest by cosine that have the same purpose.
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

#[test]
fn utterances_with_like_surroundings_come_together() {
    let seen = sums(&dialogues(3_000, 1, true));
    let layer = learn(std::slice::from_ref(&seen), 0.5).unwrap();
    let unseen = dialogues(100, 2, true);
    let (before, after) =
        (precision(&unseen.0, &unseen.2), precision(&applied(&layer, &unseen.0), &unseen.2));
    assert!(after > before + 0.1, "{before} {after}");
    // As many directions tell something as there are purposes, but for their mean.
    assert_eq!(layer.telling(), PURPOSES - 1, "{:?} {}", layer.told, layer.by_chance);
    // Strength is what it is said to be.
    let even = learn(&[seen], 0.0).unwrap();
    for (n, told) in layer.told.iter().enumerate() {
        let pair = layer.weight[n * DIM..].iter().zip(&even.weight[n * DIM..]).take(DIM);
        pair.for_each(|(strong, even)| assert!((strong - even * told.sqrt() as f32).abs() < 1e-4));
    }
}

#[test]
fn a_layer_has_the_mean_of_nothing_and_all_directions_alike() {
    let all = dialogues(600, 3, true);
    let seen = applied(&learn(&[sums(&all)], 0.0).unwrap(), &all.0);
    let mean = |column: usize| seen.rows().map(|row| f64::from(row[column])).sum::<f64>() / seen.len() as f64;
    assert!((0..DIM).all(|column| mean(column).abs() < 1e-3));
    // Covariances are drawn to the identity and no further: none is as long as if it were whitened alone.
    for column in 0..DIM {
        let variance = seen.rows().map(|row| f64::from(row[column]).powi(2)).sum::<f64>() / seen.len() as f64;
        assert!(variance > 0.0 && variance < 1.0, "{column}: {variance}");
    }
}

#[test]
fn what_is_around_a_turn_is_the_mean_of_its_neighbours() {
    let mut vectors = Vectors::new(1);
    [1.0, 2.0, 4.0, 10.0, 20.0, 7.0].iter().for_each(|v| vectors.push(&[*v]));
    let beside = |context| Sums::new(1, context).beside(&vectors, &[3, 2, 1]);
    assert_eq!(beside(1), (vec![1.0, 2.0, 4.0, 10.0, 20.0], vec![2.0, 2.5, 2.0, 20.0, 10.0]));
    assert_eq!(beside(2).1, [3.0, 2.5, 1.5, 20.0, 10.0]);
}

#[test]
fn how_dialogues_are_added_makes_no_difference_and_each_corpus_has_its_own_mean() {
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
    // Another corpus that lies elsewhere changes no direction.
    let mut shifted = all.clone();
    let mut moved = Vectors::new(DIM);
    shifted.0.rows().for_each(|row| moved.push(&row.iter().map(|v| v + 3.0).collect::<Vec<f32>>()));
    shifted.0 = moved;
    let one = learn(&[whole], 0.5).unwrap();
    let two = learn(&[sums(&all), sums(&shifted)], 0.5).unwrap();
    assert!(one.told.iter().zip(&two.told).all(|(a, b)| (a - b).abs() < 1e-3), "{:?}", two.told);
}

#[test]
fn what_tells_nothing_is_refused() {
    let e = learn(&[sums(&dialogues(20, 5, true))], 0.5).unwrap_err();
    assert!(e.to_string().contains("too few utterances"), "{e}");
    let e = learn(&[sums(&dialogues(400, 5, false))], 0.5);
    // Chance may tell a little more here than there; then few directions do.
    assert!(e.is_err() || e.is_ok_and(|layer| layer.telling() <= 2));
    let mut same = Sums::new(DIM, 1);
    let mut vectors = Vectors::new(DIM);
    (0..400).for_each(|_| vectors.push(&[0.5; DIM]));
    same.add(&vectors, &[2; 200]);
    assert!(learn(&[same], 0.5).unwrap_err().to_string().contains("tells nothing"));
}
