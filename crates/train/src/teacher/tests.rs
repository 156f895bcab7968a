//! Tests of teachers on synthetic dialogues with known topics.

use super::*;
use turnwise_core::random::Random;

const TOPICS: usize = 50;

/// Returns two views of `count` dialogues: encoder vectors with much noise in some dimensions, and word vectors with
/// less noise.
///
/// `signal` is the strength of the topics in the word vectors.
fn views(count: usize, signal: f64) -> (Vectors, Vectors) {
    let mut random = Random::new(3, 0);
    let mut noise = move || (0..4).map(|_| random.unit() - 0.5).sum::<f64>();
    let mut topics =
        |dim: usize| -> Vec<Vec<f64>> { (0..TOPICS).map(|_| (0..dim).map(|_| noise()).collect()).collect() };
    let (of_meaning, of_words) = (topics(24), topics(12));
    let mut random = Random::new(4, 0);
    let mut noise = move || (0..4).map(|_| random.unit() - 0.5).sum::<f64>();
    let (mut meaning, mut words) = (Vectors::new(30), Vectors::new(12));
    for n in 0..count {
        let own = of_meaning[n % TOPICS].iter().map(|t| t + 0.4 * noise()).collect::<Vec<f64>>();
        let strong_noise = (0..6).map(|_| 1.5 * noise());
        meaning.push(&own.into_iter().chain(strong_noise).map(|v| v as f32).collect::<Vec<f32>>());
        let own = of_words[n % TOPICS].iter().map(|t| (signal * t + 0.3 * noise()) as f32);
        words.push(&own.collect::<Vec<f32>>());
    }
    (meaning, words)
}

/// Returns the mean share of the ten nearest neighbors that have the same topic as the vector.
fn precision(vectors: &Vectors) -> f64 {
    let mut right = 0;
    neighbors::rows(vectors, &mut |n, scores| {
        let mut order: Vec<usize> = (0..scores.len()).filter(|o| *o != n).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        right += order[..10].iter().filter(|o| *o % TOPICS == n % TOPICS).count();
    });
    right as f64 / (10 * vectors.len()) as f64
}

#[test]
fn the_teacher_separates_topics_better_than_the_encoder() {
    let (meaning, words) = views(600, 1.0);
    let teacher = Teacher::learn(&meaning, &words, Settings { axes: 24, ..Settings::default() }).unwrap();
    let (before, after) = (precision(&centered(&meaning)), precision(&teacher.vectors));
    assert!(after > before + 0.05 && after > 0.9, "{before} {after}");
    let same =
        (0..600).flat_map(|n| teacher.neighbors(n).iter().map(move |o| n % TOPICS == *o as usize % TOPICS));
    let same: Vec<bool> = same.collect();
    assert!(same.iter().filter(|s| **s).count() as f64 > 0.9 * same.len() as f64);
    assert!((teacher.cosine(5, 5) - 1.0).abs() < 1e-5);
}

#[test]
fn words_without_signal_have_a_low_agreement() {
    let agreement = |signal| {
        let (meaning, words) = views(600, signal);
        Teacher::learn(&meaning, &words, Settings::default()).unwrap().agreement()
    };
    assert!(
        agreement(0.0) < 0.1 && agreement(1.0) > agreement(0.0) + 0.1,
        "{} {}",
        agreement(0.0),
        agreement(1.0)
    );
}

#[test]
fn neighbors_are_mutual_and_exclude_the_dialogue_itself() {
    let (meaning, _) = views(300, 1.0);
    let lists = neighbors::mutual(&centered(&meaning), 5);
    for (n, list) in lists.iter().enumerate() {
        assert!(list.len() <= 5 && !list.contains(&(n as u32)));
        assert!(list.iter().all(|o| lists[*o as usize].contains(&(n as u32))));
    }
}

#[test]
fn too_few_dialogues_are_an_error() {
    let (meaning, words) = views(20, 1.0);
    let error = Teacher::learn(&meaning, &words, Settings::default()).err().unwrap();
    assert!(error.to_string().contains("to train a teacher: 20"), "{error}");
}
