use std::path::Path;

use super::{kmeans::Partition, *};
use crate::duplicates::tests::{dialogue, encode, put};
use turnwise_core::{error::Class, vectors::cosine};

const DIM: usize = 12;

/// Returns a pseudo-random number from −1 to 1. It depends only on `place`.
fn noise(place: u64) -> f32 {
    let hash = blake3::hash(&place.to_le_bytes());
    let head = u32::from_le_bytes(hash.as_bytes()[..4].try_into().unwrap());
    head as f32 / u32::MAX as f32 * 2.0 - 1.0
}

/// Generates `each` vectors around each of `groups` random directions. Returns the concatenated vectors and the group
/// of each vector. The vectors have various norms.
fn planted(groups: usize, each: usize, spread: f32) -> (Vec<f32>, Vec<usize>) {
    let direction = |g: usize| (0..DIM).map(move |d| noise((g * DIM + d) as u64));
    let mut flat = Vec::new();
    let mut truth = Vec::new();
    for n in 0..groups * each {
        // Interleave the groups.
        let group = n % groups;
        let length = 0.5 + (n % 5) as f32;
        let place = 1_000_000 + (n * DIM) as u64;
        flat.extend(
            direction(group).enumerate().map(|(d, v)| length * (v + spread * noise(place + d as u64))),
        );
        truth.push(group);
    }
    (flat, truth)
}

fn items(flat: &[f32]) -> Vec<Item> {
    let scale = |v: &[f32]| 1.0 / v.iter().map(|v| v * v).sum::<f32>().sqrt();
    flat.chunks(DIM).enumerate().map(|(n, v)| Item { row: n as u32, scale: scale(v) }).collect()
}

fn of(flat: &[f32], k: usize, seed: u64) -> Partition {
    let all = items(flat);
    kmeans(Items { flat, dim: DIM, items: &all }, k, seed, RESTARTS, Stop(&|| false)).unwrap()
}

fn chosen(flat: &[f32]) -> (usize, Vec<Tried>) {
    let all = items(flat);
    choose::choose(Items { flat, dim: DIM, items: &all }, 7, Stop(&|| false)).unwrap()
}

fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

#[test]
fn planted_clusters_are_found() {
    for groups in [2, 5, 11] {
        let (flat, truth) = planted(groups, 60, 0.3);
        let found = of(&flat, groups, 3);
        assert_eq!(found.members.len(), groups);
        for members in &found.members {
            assert!(members.iter().all(|n| truth[*n as usize] == truth[members[0] as usize]), "{groups}");
        }
    }
}

#[test]
fn the_number_of_clusters_is_found() {
    for groups in [2, 3, 5, 9, 17] {
        let (flat, _) = planted(groups, 1200 / groups, 0.25);
        let (k, tried) = chosen(&flat);
        // If there are many groups, two groups can be so close to each other that they end up in one cluster.
        assert!(k.abs_diff(groups) <= groups / 10, "{k} of {groups}: {tried:?}");
        assert!(tried.is_sorted_by(|a, b| a.k < b.k) && tried.iter().all(|t| t.k <= 34));
    }
}

#[test]
fn topics_are_found_within_two_languages() {
    let (topics, dim) = planted_within(2, 6, 60);
    let all: Vec<Item> = (0..topics.len() / dim).map(|n| Item { row: n as u32, scale: 1.0 }).collect();
    let (k, tried) = choose::choose(Items { flat: &topics, dim, items: &all }, 7, Stop(&|| false)).unwrap();
    // Two clusters (the languages) have the best silhouette, but more clusters are chosen.
    assert!(tried.iter().all(|t| t.silhouette <= tried[0].silhouette), "{tried:?}");
    assert!((10..=14).contains(&k), "{k} of 12: {tried:?}");
}

/// Generates unit vectors of topics in several languages. Languages differ more than topics. Also returns the
/// dimension of the vectors.
fn planted_within(languages: usize, topics: usize, each: usize) -> (Vec<f32>, usize) {
    let dim = languages + languages * topics;
    let mut flat = Vec::new();
    for n in 0..languages * topics * each {
        let (topic, language) = (n % (languages * topics), n % languages);
        let mut vector: Vec<f32> = (0..dim).map(|d| 0.08 * noise((7_000_000 + n * dim + d) as u64)).collect();
        vector[language] += 1.0;
        vector[languages + topic] += 0.3;
        let length = vector.iter().map(|v| v * v).sum::<f32>().sqrt();
        flat.extend(vector.iter().map(|v| v / length));
    }
    (flat, dim)
}

#[test]
fn every_item_is_in_the_nearest_cluster_with_any_number_of_threads() {
    let (flat, _) = planted(7, 300, 1.5);
    let one = on_threads(1, || of(&flat, 6, 5));
    assert_eq!(one, on_threads(4, || of(&flat, 6, 5)));
    assert_eq!(on_threads(1, || chosen(&flat)), on_threads(4, || chosen(&flat)));
    assert_ne!(one.centers, of(&flat, 6, 6).centers);
    let center = |c: usize| &one.centers[c * DIM..(c + 1) * DIM];
    for (n, vector) in flat.chunks(DIM).enumerate() {
        let own = cosine(vector, center(one.of[n] as usize));
        assert!((own - one.cosines[n]).abs() < 1e-5);
        assert!((0..6).all(|c| cosine(vector, center(c)) <= own + 1e-5));
    }
    let lengths = (0..6).map(|c| center(c).iter().map(|v| v * v).sum::<f32>());
    assert!(lengths.into_iter().all(|length| (length - 1.0).abs() < 1e-5));
}

#[test]
fn more_clusters_than_items_and_items_that_are_all_the_same() {
    let (flat, _) = planted(4, 1, 0.0);
    for k in [4, 5, usize::MAX] {
        assert_eq!(of(&flat, k, 0).members.len(), 4);
    }
    let same: Vec<f32> = flat[..DIM].iter().copied().cycle().take(30 * DIM).collect();
    let found = of(&same, 3, 0);
    assert_eq!((found.members.len(), found.members[0].len()), (1, 30));
    assert_eq!((of(&[], 3, 0).members.len(), of(&same, 0, 0).members.len()), (0, 1));
    assert_eq!((chosen(&[]).0, chosen(&flat[..DIM]).0, chosen(&flat[..3 * DIM]).0), (0, 1, 1));
    assert!(chosen(&same).0 >= 1);
    // Opposite vectors sum to 0, so they have no mean direction.
    let mut opposite = flat[..DIM].to_vec();
    opposite.extend(flat[..DIM].iter().map(|v| -v));
    assert!(of(&opposite, 1, 0).centers.iter().all(|v| v.is_finite()));
}

fn wanted(k: Option<usize>) -> ClusterOptions<'static> {
    ClusterOptions { k, seed: 0, terms: 3, central: 2, drawn: 0, analyzer: Analyzer::default(), filter: None }
}

fn look(root: &Path, wanted: &ClusterOptions<'_>) -> Clusters {
    let snapshot = Snapshot::open(root).unwrap();
    let vectors = VectorReader::open(root).unwrap().unwrap();
    clusters(&snapshot, &vectors, wanted, &|| false).unwrap()
}

/// Adds 40 dialogues about trains and 20 about cards. The texts of the agent are the same in all dialogues.
fn filled(root: &Path) {
    let mut all = Vec::new();
    for n in 0..60 {
        let (id, domain, words) = match n % 3 {
            0 => ("card", "banking", ["card card card lost", "card blocked card"]),
            _ => ("train", "travel", ["train train train station", "ticket train train"]),
        };
        let text = format!("{} {}", words[0], ["please", "now", "today", "again"][n % 4]);
        let mut dialogue = dialogue(&format!("{id}-{n:02}"), &[&text, "one moment", words[1], "done 24"]);
        dialogue.domains = vec![domain.to_owned()];
        if n == 5 {
            dialogue.domains.push("banking".to_owned());
        }
        dialogue.title = Some(format!("title of {id}"));
        all.push(dialogue);
    }
    put(root, &all);
    encode(root);
}

#[test]
fn clusters_have_terms_domains_and_central_dialogues() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    put(dir.path(), &[dialogue("later", &["not encoded"])]);
    let map = look(dir.path(), &wanted(Some(2)));
    assert_eq!((map.dialogues, map.without, map.unknown, map.clusters.len()), (60, 1, 0, 2));
    let (trains, cards) = (&map.clusters[0], &map.clusters[1]);
    assert_eq!((trains.size, cards.size), (40, 20));
    let names = |cluster: &Cluster| cluster.terms.iter().map(|t| t.term.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(trains), names(cards)),
        (
            vec!["station".to_owned(), "ticket".to_owned(), "train".to_owned()],
            vec!["blocked".to_owned(), "card".to_owned(), "lost".to_owned()],
        )
    );
    assert_eq!(trains.domains[0], Share { name: "travel".to_owned(), dialogues: 40, share: 1.0 });
    assert_eq!(trains.domains[1], Share { name: "banking".to_owned(), dialogues: 1, share: 0.025 });
    assert_eq!(map.purity, Some(Purity { purity: 1.0, dialogues: 59, domains: 2 }));
    assert!((trains.share - 2.0 / 3.0).abs() < 1e-9 && map.cohesion > 0.5 && trains.cohesion <= 1.0 + 1e-6);
    let central = &cards.central;
    assert_eq!((central.len(), central[0].turns, central[0].title.as_deref()), (2, 4, Some("title of card")));
    assert!(central[0].similarity >= central[1].similarity && central[0].text.starts_with("card card"));
    assert!(central.iter().all(|c| c.id.starts_with("card-")));
    assert_eq!(map, on_threads(3, || look(dir.path(), &wanted(Some(2)))));
}

#[test]
fn dialogues_of_a_cluster_are_close_on_the_map() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let all = look(dir.path(), &ClusterOptions { drawn: 100, ..wanted(Some(2)) });
    assert_eq!((all.map.len(), all.map.iter().filter(|point| point.cluster == 0).count()), (60, 40));
    for point in &all.map {
        let about = if point.cluster == 0 { "train" } else { "card" };
        assert!(point.id.starts_with(about) && point.text.starts_with(about), "{point:?}");
        assert!(point.at.iter().all(|v| v.abs() <= 1.0));
    }
    let mean = |cluster: usize, axis: usize| {
        let of: Vec<f32> = all.map.iter().filter(|p| p.cluster == cluster).map(|p| p.at[axis]).collect();
        of.iter().sum::<f32>() / of.len() as f32
    };
    let centers = [0, 1].map(|cluster| [mean(cluster, 0), mean(cluster, 1)]);
    let apart = |a: [f32; 2], b: [f32; 2]| (a[0] - b[0]).hypot(a[1] - b[1]);
    let own = |p: &&Point| apart(p.at, centers[p.cluster]) < apart(p.at, centers[1 - p.cluster]);
    assert_eq!(all.map.iter().filter(own).count(), 60);
    assert_eq!(all, on_threads(3, || look(dir.path(), &ClusterOptions { drawn: 100, ..wanted(Some(2)) })));
    // If there are more dialogues than allowed, a sample is used.
    let some = look(dir.path(), &ClusterOptions { drawn: 25, ..wanted(Some(2)) });
    assert_eq!((some.map.len(), some.clusters), (25, all.clusters));
}

#[test]
fn automatic_number_filters_and_empty_results_work() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let map = look(dir.path(), &wanted(None));
    assert!(map.clusters.len() >= 2 && map.tried.iter().any(|t| t.k == map.clusters.len()), "{map:?}");
    let filter = |text: &str| text.parse::<Filter>().unwrap();
    let cards = filter("domain=banking and not domain=travel");
    let map = look(dir.path(), &ClusterOptions { filter: Some(&cards), ..wanted(Some(1)) });
    assert_eq!((map.dialogues, map.clusters.len(), map.clusters[0].size), (20, 1, 20));
    assert_eq!((map.clusters[0].terms.len(), map.purity.unwrap().purity), (0, 1.0));
    for k in [None, Some(5)] {
        let nobody = filter("id=nobody");
        let map = look(dir.path(), &ClusterOptions { filter: Some(&nobody), ..wanted(k) });
        assert_eq!((map.dialogues, map.clusters.len(), map.purity), (0, 0, None));
        let one = filter("id=card-00");
        let map = look(dir.path(), &ClusterOptions { filter: Some(&one), ..wanted(k) });
        assert_eq!((map.clusters.len(), map.clusters[0].central.len()), (1, 1));
    }
    let snapshot = Snapshot::open(dir.path()).unwrap();
    let vectors = VectorReader::open(dir.path()).unwrap().unwrap();
    let stopped = clusters(&snapshot, &vectors, &wanted(None), &|| true).unwrap_err();
    assert_eq!(stopped.class(), Class::Interrupted);
}
