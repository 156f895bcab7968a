use std::sync::OnceLock;

use proptest::prelude::*;

use crate::*;

/// Returns a generator of pseudo-random numbers from -1 to 1.
fn numbers(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Returns `count` clustered vectors, similar to the vectors of texts about a few topics.
fn clustered(count: usize, dim: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut number = numbers(seed);
    let centers: Vec<Vec<f32>> = (0..count / 40 + 1).map(|_| (0..dim).map(|_| number()).collect()).collect();
    (0..count).map(|i| centers[i % centers.len()].iter().map(|c| c + 0.6 * number()).collect()).collect()
}

fn points(metric: Metric, vectors: &[Vec<f32>]) -> Points<'_> {
    let mut points = Points::new(metric, vectors[0].len()).unwrap();
    for (row, vector) in vectors.iter().enumerate() {
        points.push(row as u32, vector).unwrap();
    }
    points
}

fn naive(metric: Metric, a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    match metric {
        Metric::InnerProduct => dot(a, b),
        Metric::Cosine => dot(a, b) / (dot(a, a) * dot(b, b)).sqrt(),
        Metric::L2 => {
            -a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
        }
    }
}

fn found(graph: &GraphFile, query: &[f32], options: &SearchOptions) -> Vec<Hit> {
    let mut out = Vec::new();
    graph.search(query, options, &mut Scratch::default(), &mut out).unwrap();
    out
}

fn build_options() -> BuildOptions {
    BuildOptions { ef: 64, ..BuildOptions::default() }
}

#[test]
fn exact_search_agrees_with_a_naive_search() {
    for metric in Metric::ALL {
        for dim in [1, 3, 32, 100, 384] {
            let vectors = clustered(300, dim, dim as u64);
            let graph = points(metric, &vectors).build(&build_options()).unwrap();
            for query in clustered(10, dim, 99) {
                let hits =
                    found(&graph, &query, &SearchOptions { k: 7, exact: true, ..SearchOptions::default() });
                let mut expected: Vec<f64> = vectors.iter().map(|v| naive(metric, &query, v)).collect();
                expected.sort_by(|a, b| b.total_cmp(a));
                // With one dimension, there are only two distinct unit vectors.
                let different = hits.len().min(7);
                assert!(different == 7 || metric == Metric::Cosine && dim == 1);
                for (hit, expected) in hits.iter().zip(expected).take(if dim == 1 { 1 } else { 7 }) {
                    assert!(
                        (f64::from(hit.score) - expected).abs() < 1e-4 * expected.abs().max(1.0),
                        "{metric:?} {dim}"
                    );
                }
            }
        }
    }
}

#[test]
fn beam_search_has_a_high_recall_with_both_builders() {
    for (metric, dim) in
        [(Metric::Cosine, 384), (Metric::Cosine, 32), (Metric::InnerProduct, 100), (Metric::L2, 96)]
    {
        let vectors = clustered(6_000, dim, 5);
        let points = points(metric, &vectors);
        let options = SearchOptions { ef: 100, rerank: 50, ..SearchOptions::default() };
        let recalls = Builder::ALL.map(|builder| {
            let recall = measure(
                &points.build(&BuildOptions { builder, ..build_options() }).unwrap(),
                &options,
                200,
                &|| false,
            )
            .unwrap();
            assert_eq!((recall.k, recall.queries), (10, 200));
            assert!(recall.recall > 0.95, "{builder:?} {metric:?} {dim}: {recall:?}");
            recall.recall
        });
        // The native builder must be about as good as hnsw_rs.
        assert!(recalls[1] > recalls[0] - 0.01, "{metric:?} {dim}: {recalls:?}");
    }
}

#[test]
fn the_approximate_scan_agrees_with_the_exact_scan() {
    for (metric, dim, bits) in [(Metric::Cosine, 384, 4), (Metric::InnerProduct, 100, 4), (Metric::L2, 96, 8)]
    {
        let graph = points(metric, &clustered(3_000, dim, 21)).build(&build_options()).unwrap();
        assert_eq!(graph.info().code_bits, bits, "{metric:?}");
        let third = NodeSet::rows(&graph, |row| row % 3 == 1);
        for (k, filter) in [(1, None), (10, Some(&third)), (60, None), (3_000, Some(&third))] {
            let options = SearchOptions { k, filter, ..SearchOptions::default() };
            let (mut there, mut all) = (0, 0);
            for query in clustered(20, dim, 22) {
                let exact = found(&graph, &query, &SearchOptions { exact: true, ..options });
                let skimmed = found(&graph, &query, &SearchOptions { method: SearchMethod::Scan, ..options });
                assert_eq!(skimmed.len(), k.min(filter.map_or(3_000, NodeSet::count)));
                assert!(
                    skimmed.windows(2).all(|w| w[0].order(&w[1]).is_lt()),
                    "no duplicates, and the best hit first"
                );
                there += skimmed.iter().filter(|hit| exact.contains(hit)).count();
                all += exact.len();
            }
            assert!(there as f64 >= 0.98 * all as f64, "{metric:?} {k}: {there} of {all}");
        }
    }
}

#[test]
fn the_native_graph_does_not_depend_on_the_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let vectors = clustered(4_000, 64, 12);
    let points = points(Metric::Cosine, &vectors);
    let options = BuildOptions { builder: Builder::Native, ..build_options() };
    let files = [1, 2, 5].map(|threads| {
        let path = dir.path().join(format!("{threads}.graph"));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| write_graph(&points, &options, &path, &|| false)).unwrap();
        std::fs::read(path).unwrap()
    });
    assert!(files[0] == files[1] && files[1] == files[2]);
}

#[test]
fn duplicates_do_not_hide_other_neighbors() {
    let mut vectors = clustered(3_000, 48, 6);
    let thanks = vectors[17].clone();
    vectors.extend(std::iter::repeat_n(thanks.clone(), 5_000));
    let graph = points(Metric::Cosine, &vectors).build(&build_options()).unwrap();
    assert_eq!((graph.nodes(), graph.info().rows), (3_000, 8_000));
    let hits = found(&graph, &thanks, &SearchOptions::default());
    assert_eq!(hits.len(), 10);
    assert_eq!(graph.rows(hits[0].node).len(), 5_001);
    assert!(graph.rows(hits[1].node).len() == 1);
}

#[test]
fn unusual_queries_have_sensible_results() {
    let vectors = clustered(50, 8, 7);
    let graph = points(Metric::Cosine, &vectors).build(&build_options()).unwrap();
    assert_eq!(found(&graph, &vectors[0], &SearchOptions { k: 1000, ..SearchOptions::default() }).len(), 50);
    assert!(found(&graph, &vectors[0], &SearchOptions { k: 0, ..SearchOptions::default() }).is_empty());
    assert!(found(&graph, &[0.0; 8], &SearchOptions::default()).is_empty());
    let refuse = |query: &[f32]| {
        graph
            .search(query, &SearchOptions::default(), &mut Scratch::default(), &mut Vec::new())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(refuse(&[1.0; 7]), "the query: the vector has 7 dimensions instead of 8");
    assert!(refuse(&[f32::INFINITY; 8]).contains("number 1 of the vector is inf"));
    let other = points(Metric::Cosine, &clustered(51, 8, 7)).build(&build_options()).unwrap();
    let filter = NodeSet::rows(&other, |_| true);
    let options = SearchOptions { filter: Some(&filter), ..SearchOptions::default() };
    assert!(graph.search(&vectors[0], &options, &mut Scratch::default(), &mut Vec::new()).is_err());
    let none = Points::new(Metric::L2, 8).unwrap().build(&build_options()).unwrap();
    assert!(found(&none, &[1.0; 8], &SearchOptions::default()).is_empty());
}

#[test]
fn a_file_equals_the_graph_in_memory_and_f16_scores_are_close() {
    let dir = tempfile::tempdir().unwrap();
    let vectors = clustered(2_500, 64, 8);
    let points = points(Metric::Cosine, &vectors);
    let path = dir.path().join("a.graph");
    write_graph(&points, &build_options(), &path, &|| false).unwrap();
    let graph = GraphFile::open(&path).unwrap();
    graph.verify().unwrap();
    let info = graph.info();
    assert_eq!(
        (info.dim, info.nodes, info.m, info.bytes as u64),
        (64, 2_500, 16, path.metadata().unwrap().len())
    );
    let small = points.build(&BuildOptions { format: VectorFormat::F16, ..build_options() }).unwrap();
    for query in &vectors[..20] {
        let options = SearchOptions { exact: true, ..SearchOptions::default() };
        let (wide, half) = (found(&graph, query, &options), found(&small, query, &options));
        for (a, b) in wide.iter().zip(&half) {
            assert!((a.score - b.score).abs() < 1e-3, "{a:?} {b:?}");
        }
        let walked = found(&graph, query, &SearchOptions::default());
        assert_eq!(walked[0].score, wide[0].score);
    }
    assert!(
        write_graph(&points, &build_options(), &path, &|| false).is_err(),
        "an existing file is not replaced"
    );
    let stopped = write_graph(&points, &build_options(), &dir.path().join("b.graph"), &|| true);
    assert!(matches!(stopped, Err(Error::Interrupted { .. })) && !dir.path().join("b.graph").exists());
}

#[test]
fn damage_is_reported_with_its_block_and_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.graph");
    write_graph(&points(Metric::L2, &clustered(3_000, 40, 9)), &build_options(), &path, &|| false).unwrap();
    let good = std::fs::read(&path).unwrap();
    let query = [0.3; 40];
    for n in 0..120 {
        let at = n * good.len() / 120 + n % 50;
        let mut bad = good.clone();
        bad[at] ^= 1 << (n % 8);
        let bad_path = dir.path().join("bad.graph");
        std::fs::write(&bad_path, &bad).unwrap();
        match GraphFile::open(&bad_path) {
            Err(Error::Corrupt { path, .. }) => assert!(at < 4096 && path == bad_path),
            Err(e) => panic!("{e}"),
            Ok(graph) => {
                let _ =
                    graph.search(&query, &SearchOptions::default(), &mut Scratch::default(), &mut Vec::new());
                // The checksums also cover the padding between sections.
                let what = graph.verify().unwrap_err().to_string();
                assert!(what.contains("block") || what.contains("checksums"), "{what}");
            }
        }
    }
    for length in [0, 7, 4095, 4096, 5000, good.len() / 2, good.len() - 1] {
        assert!(matches!(GraphFile::from_bytes(&good[..length]), Err(Error::Corrupt { .. })), "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn filtered_searches_return_only_allowed_nodes_and_as_many_as_possible(seed in 0u64..1000, every in 1u32..400, k in 1usize..40) {
        static BUILT: OnceLock<(Vec<Vec<f32>>, GraphFile)> = OnceLock::new();
        let (vectors, graph) = BUILT.get_or_init(|| {
            let vectors = clustered(2_600, 16, 11);
            let graph = points(Metric::L2, &vectors).build(&build_options()).unwrap();
            (vectors, graph)
        });
        let filter = NodeSet::rows(graph, |row| row % every == 0);
        prop_assert_eq!(filter.count(), 2_600usize.div_ceil(every as usize));
        let query = &clustered(1, 16, seed)[0];
        let options = SearchOptions { k, filter: Some(&filter), ..SearchOptions::default() };
        let hits = found(graph, query, &options);
        prop_assert_eq!(hits.len(), k.min(filter.count()));
        prop_assert!(hits.iter().all(|hit| graph.rows(hit.node)[0] % every == 0));
        prop_assert!(hits.windows(2).all(|w| w[0].score >= w[1].score));
        let mut expected: Vec<f64> =
            vectors.iter().step_by(every as usize).map(|v| naive(Metric::L2, query, v)).collect();
        expected.sort_by(|a, b| b.total_cmp(a));
        let exact = found(graph, query, &SearchOptions { exact: true, ..options });
        for (hit, expected) in exact.iter().zip(expected) {
            prop_assert!((f64::from(hit.score) - expected).abs() < 1e-4);
        }
    }
}
