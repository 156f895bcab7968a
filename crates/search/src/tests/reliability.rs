//! Tests of the weight of dense search: lower if the vectors do not tell adjacent turns from random ones.

use super::*;

/// Creates an index of 60 dialogues with three turns. If `about` is true, all turns of a dialogue have a word in common.
fn index_of(root: &Path, about: bool) -> Searcher {
    write(root, |store| {
        for n in 0..60 {
            let text = |turn: usize| format!("word{n}x{} other{n}x{turn}", if about { 0 } else { turn });
            let turns: Vec<_> = (0..3).map(|turn| json!({"role": "user", "text": text(turn)})).collect();
            let mut dialogue: Dialogue =
                serde_json::from_value(json!({"id": format!("d{n}"), "turns": turns})).unwrap();
            dialogue.check().unwrap();
            store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
        }
    });
    encode(root);
    build(root);
    searcher(root)
}

#[test]
fn unreliable_vectors_count_less_and_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let about = |query: &str| SearchRequest { query: query.to_owned(), ..SearchRequest::default() };
    let dense = |response: &Response| response.fusion.unwrap().dense;

    let reliable = index_of(&dir.path().join("reliable"), true).search(&about("word7x0")).unwrap();
    assert_eq!((dense(&reliable), reliable.warnings.len()), (1.0, 0));

    let searcher = index_of(&dir.path().join("unreliable"), false);
    let unreliable = searcher.search(&about("word7x0")).unwrap();
    assert_eq!(dense(&unreliable), 0.1);
    assert!(
        unreliable.warnings[0]
            .contains("the vectors of hashed hardly tell related turns from unrelated ones")
    );
    assert_eq!(unreliable.hits[0].id, "d7#1");
    // No turn has Chinese letters, so nothing is known about them.
    assert_eq!(dense(&searcher.search(&about("退款 word7x0 申请什么时候到")).unwrap()), 1.0);
    // A weight of the request is used as it is. Other settings of fusion change nothing.
    let with = |options: FusionOptions| SearchRequest { fusion: Some(options), ..about("word7x0") };
    let chosen = with(FusionOptions { dense: Some(1.0), ..FusionOptions::default() });
    let chosen = searcher.search(&chosen).unwrap();
    assert_eq!((dense(&chosen), chosen.warnings.len()), (1.0, 0));
    let other = with(FusionOptions { bm25: Some(2.0), ..FusionOptions::default() });
    assert_eq!(dense(&searcher.search(&other).unwrap()), 0.1);
    let rrf = with(FusionOptions { method: Some(FusionMethod::Rrf), ..FusionOptions::default() });
    assert_eq!(dense(&searcher.search(&rrf).unwrap()), 1.0);
}
