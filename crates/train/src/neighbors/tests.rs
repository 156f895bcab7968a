use super::*;
use turnwise_core::random::Random;
use turnwise_eval::rank::{Bm25, Items, Pool, Ranker};

/// Creates vectors in 40 clusters, so that each vector has close neighbors.
fn vectors(count: usize, dim: usize) -> Vectors {
    let mut random = Random::new(5, 0);
    let centers: Vec<f32> = (0..40 * dim).map(|_| random.unit() as f32 - 0.5).collect();
    let mut vectors = Vectors::new(dim);
    for _ in 0..count {
        let center = &centers[random.below(40) * dim..][..dim];
        vectors.push(&center.iter().map(|c| c + 0.3 * (random.unit() as f32 - 0.5)).collect::<Vec<f32>>());
    }
    vectors.normalize();
    vectors
}

#[test]
fn the_graph_has_a_high_recall() {
    let vectors = vectors(3_000, 16);
    let (exact, found) = (nearest(&vectors, 20), approximate(&vectors, 20).unwrap());
    let both = |n: usize| exact[n].iter().filter(|other| found[n].contains(other)).count();
    let recall = (0..3_000).map(both).sum::<usize>() as f64 / 60_000.0;
    assert!(recall > 0.98, "{recall}");
    assert!(found.iter().enumerate().all(|(n, list)| list.len() == 20 && !list.contains(&(n as u32))));
    // Neighbors are in descending order of similarity.
    let cosine = |a: usize, b: u32| {
        vectors.row(a).iter().zip(vectors.row(b as usize)).map(|(a, b)| a * b).sum::<f32>()
    };
    for (n, list) in found.iter().enumerate().step_by(100) {
        assert!(list.windows(2).all(|pair| cosine(n, pair[0]) >= cosine(n, pair[1]) - 1e-6));
    }
    assert_eq!(nearest_of_many(&vectors, 20).unwrap(), exact);
}

#[test]
fn only_one_of_several_equal_vectors_is_listed() {
    let mut twice = vectors(50, 8);
    vectors(50, 8).rows().for_each(|row| twice.push(row));
    let found = approximate(&twice, 5).unwrap();
    for (n, list) in found.iter().enumerate() {
        assert!(
            list.len() == 5 && list.iter().all(|other| *other < 50 && *other as usize != n % 50),
            "{list:?}"
        );
    }
}

#[test]
fn mutual_neighbors_use_the_first_entries_of_the_lists() {
    let lists = [vec![1, 2], vec![2, 0], vec![1, 0]];
    assert_eq!(mutual_of(&lists, 1), [vec![], vec![2], vec![1]]);
    assert_eq!(mutual_of(&lists, 2), [vec![1, 2], vec![2, 0], vec![1, 0]]);
    let vectors = vectors(300, 8);
    assert_eq!(mutual(&vectors, 7), mutual_of(&nearest(&vectors, 20), 7));
}

#[test]
fn nearest_texts_are_those_of_the_bm25_ranker() {
    let mut random = Random::new(3, 0);
    let texts: Vec<Vec<u32>> = (0..200)
        .map(|_| (0..1 + random.below(9)).map(|_| random.below(60).min(random.below(60)) as u32).collect())
        .collect();
    let text = |ids: &Vec<u32>| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let pool = Pool::of(Items::Texts(texts.iter().map(text).collect()));
    let bm25 = Bm25::default();
    let scorer = bm25.prepare(&pool, &()).unwrap();
    let all: Vec<u32> = (0..200).collect();
    for (own, found) in nearest_by_bm25(&texts, 10).into_iter().enumerate() {
        let mut scores = Vec::new();
        scorer.scores(own, &all, &mut scores).unwrap();
        let mut expected: Vec<u32> =
            all.iter().copied().filter(|n| *n as usize != own && scores[*n as usize] > 0.0).collect();
        expected.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b)));
        expected.truncate(10);
        assert_eq!(found, expected, "{own}");
    }
}
