use std::{fs, path::Path};

use super::*;
use crate::{embedded::Embedded, engine::Engine};
use turnwise_corpus::{Dialogue, Role};
use turnwise_store::{Prepared, Store};
use turnwise_text::AnalyzerChoice;

pub(super) fn put_turns(store: &mut Store, id: &str, texts: &[&str]) {
    let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
    for text in texts {
        dialogue.push("a", Role::User, *text);
    }
    dialogue.check().unwrap();
    store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
}

pub(super) fn put(store: &mut Store, id: &str, text: &str) {
    put_turns(store, id, &[text]);
}

pub(super) fn update(root: &Path) -> u64 {
    Lexical::update(None, root, &Snapshot::open(root).unwrap(), &|| false, &mut |_| {}).unwrap()
}

/// Creates an index without dialogues.
pub(super) fn empty_index() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(dir.path(), "test").unwrap();
    (dir, store)
}

/// Commits the pending dialogues and updates the lexical index.
pub(super) fn catch_up(store: &mut Store, root: &Path) {
    store.commit(None).unwrap();
    update(root);
}

fn update_by(root: &Path, analyzer: &str) -> Result<u64> {
    let analyzer = Some(analyzer.parse()?);
    Lexical::update(analyzer, root, &Snapshot::open(root).unwrap(), &|| false, &mut |_| {})
}

fn found(root: &Path, query: &str) -> Vec<String> {
    let lexical = Lexical::open(root).unwrap();
    let hits = lexical.find(Kind::Utterances, &lexical.words(query), 10, None).unwrap();
    hits.iter().map(name).collect()
}

pub(super) fn name(hit: &LexicalHit) -> String {
    hit.turn.map_or_else(|| hit.dialogue.to_string(), |turn| format!("{}#{turn}", hit.dialogue))
}

fn found_dialogues(root: &Path, query: &str) -> Vec<String> {
    let lexical = Lexical::open(root).unwrap();
    let hits = lexical.find(Kind::Dialogues, &lexical.words(query), 10, None).unwrap();
    hits.into_iter().map(|h| h.dialogue.to_string()).collect()
}

const NONE: [&str; 0] = [];

/// Returns whether a dictionary of the index contains the term, and whether a dictionary contains the id. Terms and ids
/// of deleted documents count.
fn knows(root: &Path, term: &[u8], id: &[u8]) -> [bool; 2] {
    let lexical = Lexical::open(root).unwrap();
    let mut known = [false; 2];
    for side in &lexical.sides {
        for segment in side.index.reader().unwrap().searcher().segment_readers() {
            for (n, (field, key)) in
                [(side.fields.text, term), (side.fields.dialogue, id)].into_iter().enumerate()
            {
                let terms = segment.inverted_index(field).unwrap();
                known[n] |= terms.terms().term_ord(key).unwrap().is_some();
            }
        }
    }
    known
}

#[test]
fn terms_and_ids_of_what_was_deleted_are_gone_after_a_compaction() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put(&mut store, "qqq-secret", "zzyzx on the road");
    put(&mut store, "b", "the road");
    store.commit(None).unwrap();
    update_by(root, "mixed-1+stem-en").unwrap();
    store.delete(&DialogueId::new("qqq-secret").unwrap()).unwrap();
    store.commit(None).unwrap();
    store.close().unwrap();
    let compact = || Lexical::compact(root, &Snapshot::open(root).unwrap(), &|| false, &mut |_| {}).unwrap();
    // An index of the same log is kept, but leftovers of a crash are removed.
    for rest in ["lexical.new", "lexical.old"] {
        fs::create_dir(root.join(rest)).unwrap();
        fs::write(root.join(rest).join("x"), "zzyzx").unwrap();
    }
    assert!(!compact() && !root.join("lexical.new").exists() && !root.join("lexical.old").exists());
    let folder = root.join("lexical");
    assert_eq!(knows(root, b"zzyzx", b"qqq-secret"), [true, true]);
    turnwise_store::compact::compact(root, 1 << 20, "test", &|| false, &mut |_| {}).unwrap();
    assert!(compact() && !compact());
    assert_eq!(knows(root, b"zzyzx", b"qqq-secret"), [false, false]);
    assert_eq!(found(root, "roads"), ["b#1"]);
    assert_eq!(Lexical::analyzer_name(root).unwrap().unwrap(), "mixed-1+stem-en");
    // A damaged index is rebuilt. In an index folder without a lexical index, no lexical index is created.
    fs::write(folder.join("utterances/meta.json"), "{").unwrap();
    assert!(compact());
    fs::remove_dir_all(&folder).unwrap();
    assert!(!compact() && !folder.exists());
}

#[test]
fn rebuild_replaces_any_existing_index() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put(&mut store, "a", "two deliveries");
    store.commit(None).unwrap();
    let rebuild = |analyzer: Option<AnalyzerChoice>| {
        Lexical::rebuild(analyzer, root, &Snapshot::open(root).unwrap(), &|| false, &mut |_| {}).unwrap()
    };
    assert_eq!(rebuild(None), 1);
    assert_eq!(rebuild(Some("mixed-1+stem-en".parse().unwrap())), 1);
    assert_eq!(rebuild(None), 1);
    assert_eq!(found(root, "delivery"), ["a#1"]);
    for file in ["utterances/meta.json", "dialogues/meta.json"] {
        fs::write(root.join("lexical").join(file), "{").unwrap();
    }
    assert_eq!(rebuild(None), 1);
    assert_eq!(found(root, "deliveries"), ["a#1"]);
    assert!(Lexical::open(root).unwrap().damaged_files().unwrap().is_empty());
}

#[test]
fn the_index_follows_the_log() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put(&mut store, "a", "my parcel is late");
    put(&mut store, "b", "我要退款");
    store.commit(None).unwrap();
    assert_eq!(update(root), 2);
    assert_eq!(found(root, "PARCEL late?"), ["a#1"]);
    assert_eq!(found(root, "退款"), ["b#1"]);
    assert_eq!(found_dialogues(root, "退款"), ["b"]);
    assert_eq!(found(root, "!?"), NONE);

    put(&mut store, "a", "my refund is late");
    put_turns(&mut store, "c", &["parcel", "parcel"]);
    store.delete(&DialogueId::new("b").unwrap()).unwrap();
    store.commit(None).unwrap();
    assert!(!Lexical::open(root).unwrap().is_current(&Snapshot::open(root).unwrap()));
    assert_eq!(update(root), 3);
    assert_eq!(update(root), 0);
    assert!(Lexical::open(root).unwrap().is_current(&Snapshot::open(root).unwrap()));
    assert_eq!(found(root, "parcel"), ["c#2", "c#1"]);
    assert_eq!(found(root, "refund"), ["a#1"]);
    assert_eq!(found(root, "退款"), NONE);
    assert_eq!(found_dialogues(root, "parcel"), ["c"]);
    assert_eq!(found_dialogues(root, "refund"), ["a"]);
    assert_eq!(found_dialogues(root, "退款"), NONE);
}

#[test]
fn a_dialogue_matches_words_of_several_turns_and_has_a_best_turn() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put_turns(&mut store, "a", &["hello there", "my parcel is late", "the refund is on its way"]);
    put_turns(&mut store, "b", &["the parcel came", "good"]);
    put_turns(&mut store, "c", &["nothing to see"]);
    catch_up(&mut store, root);
    assert_eq!(found_dialogues(root, "parcel refund"), ["a", "b"]);
    let lexical = Lexical::open(root).unwrap();
    let best = |query: &str, id: &str| {
        lexical.best_turn(&lexical.words(query), &DialogueId::new(id).unwrap()).unwrap().map(|turn| turn.0)
    };
    assert_eq!(best("refund", "a"), Some(3));
    assert_eq!(best("the parcel is late", "a"), Some(2));
    assert_eq!(best("parcel refund", "b"), Some(1));
    assert_eq!((best("refund", "b"), best("!", "a"), best("parcel", "zzz")), (None, None, None));
}

/// Adds dialogues that differ only in their ids. They are not added in the order of the ids.
#[test]
fn ties_at_the_last_position_are_ordered_by_id() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    for batch in 0..3 {
        for n in 0..700 {
            let id = format!("d{:04}", (n * 3 + batch) * 1237 % 2100);
            put(&mut store, &id, "thank you so very much");
        }
        store.commit(None).unwrap();
        update(root);
    }
    let lexical = Lexical::open(root).unwrap();
    for query in ["thank", "thank you", "you very much so thank"] {
        let query = lexical.words(query);
        for k in [1, 7, 100, 2100, 5000] {
            let wanted: Vec<String> = (0..2100).rev().take(k).map(|n| format!("d{n:04}")).collect();
            let utterances = lexical.find(Kind::Utterances, &query, k, None).unwrap();
            let dialogues = lexical.find(Kind::Dialogues, &query, k, None).unwrap();
            assert!(utterances.iter().all(|hit| hit.score == utterances[0].score));
            assert!(utterances.iter().map(|h| h.dialogue.as_str()).eq(&wanted), "{k}");
            assert!(dialogues.iter().map(|h| h.dialogue.as_str()).eq(&wanted), "{k}");
        }
    }
}

/// The texts combine only eight words. Many texts therefore have equal scores, or scores that differ only by rounding.
#[test]
fn top_k_is_a_prefix_of_all_hits() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    let words = ["parcel", "late", "the", "refund", "is", "my", "card", "please"];
    let mut state = 7u64;
    let mut next = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % n
    };
    for _ in 0..4 {
        for _ in 0..600 {
            let texts: Vec<String> = (0..1 + next(3))
                .map(|_| {
                    (0..2 + next(6))
                        .map(|_| words[next(8).min(next(8)) as usize])
                        .collect::<Vec<_>>()
                        .join(" ")
                })
                .collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            put_turns(&mut store, &format!("d{}", next(2000)), &texts);
        }
        store.commit(None).unwrap();
        update(root);
    }
    let lexical = Lexical::open(root).unwrap();
    for query in
        ["parcel", "the card", "my parcel is late", "please the is my card refund late", "unknown card is"]
    {
        let query = lexical.words(query);
        let all = lexical.find(Kind::Utterances, &query, 1_000_000, None).unwrap();
        let whole = lexical.find(Kind::Dialogues, &query, 1_000_000, None).unwrap();
        assert!(all.len() > 500);
        assert!(all.is_sorted_by(|a, b| (b.score, &b.dialogue, b.turn) < (a.score, &a.dialogue, a.turn)));
        assert!(whole.is_sorted_by(|a, b| (b.score, &b.dialogue) < (a.score, &a.dialogue)));
        for k in [1, 2, 5, 10, 33, 100, 400] {
            assert_eq!(lexical.find(Kind::Utterances, &query, k, None).unwrap(), all[..k]);
            assert_eq!(lexical.find(Kind::Dialogues, &query, k, None).unwrap(), whole[..k]);
        }
    }
}

#[test]
fn an_index_keeps_its_analyzer_until_another_is_requested() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put(&mut store, "a", "two deliveries");
    catch_up(&mut store, root);
    assert_eq!(found(root, "delivery"), NONE);
    assert_eq!(update_by(root, "mixed-1+stem-en").unwrap(), 1);
    assert_eq!(found(root, "delivery"), ["a#1"]);
    assert_eq!(found_dialogues(root, "delivery"), ["a"]);
    assert_eq!(Lexical::analyzer_name(root).unwrap().as_deref(), Some("mixed-1+stem-en"));

    put(&mut store, "b", "delivered");
    store.commit(None).unwrap();
    assert_eq!(update(root), 1);
    assert_eq!(Lexical::open(root).unwrap().analyzer().to_string(), "mixed-1+stem-en");
    assert_eq!(found(root, "deliver"), ["b#1"]);
    assert_eq!(update_by(root, "mixed-1+stem-en").unwrap(), 0);
    assert_eq!(update_by(root, "mixed-1").unwrap(), 2);
    assert_eq!(found(root, "deliver"), NONE);
}

/// Returns the name and the description of the analyzer.
fn analyzer_of(root: &Path) -> [String; 2] {
    [Lexical::analyzer_name(root), Lexical::analyzer_description(root)].map(|of| of.unwrap().unwrap())
}

const ENGLISH: [&str; 3] = [
    "Hello, where are the two deliveries that I have ordered from you?",
    "They were sent to your old address, so you should ask the people there.",
    "How can I change the address of all my orders?",
];
const GERMAN: [&str; 3] = [
    "Hallo, wo sind die beiden Lieferungen, die ich bei euch bestellt habe?",
    "Die wurden an deine alte Adresse geschickt, also frag doch mal dort nach.",
    "Wie kann ich die Adresse für alle meine Bestellungen ändern?",
];

#[test]
fn the_analyzer_of_a_new_index_is_detected() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put_turns(&mut store, "a", &ENGLISH);
    store.commit(None).unwrap();
    let snapshot = Snapshot::open(root).unwrap();
    // Without an index on disk, the analyzer for highlighting is detected.
    let english = detect_analyzer(&snapshot).unwrap();
    assert_eq!(Embedded::over(root, snapshot).unwrap().analyzer(), english);
    update(root);
    assert_eq!(analyzer_of(root), ["mixed-1+stem-en", "mixed-1+stem-en (English, detected)"]);
    assert_eq!(found(root, "the delivery"), ["a#1"]);
    assert_eq!(found_dialogues(root, "where is my delivery"), ["a"]);
    // If there are only function words, they are searched.
    assert_eq!(found(root, "how can"), ["a#3"]);
    let lexical = Lexical::open(root).unwrap();
    assert_eq!(lexical.words("Where are the deliveries?").terms(), ["deliveri"]);
    assert_eq!(lexical.syntax("\"where are the\"").terms(), ["are", "the", "where"]);
    let phrase = lexical.syntax("\"where are the\"");
    assert_eq!(lexical.find(Kind::Utterances, &phrase, 9, None).unwrap().iter().map(name).count(), 1);
    drop(lexical);

    // A rebuild keeps the analyzer, and that it was detected. So does an update with many more texts.
    Lexical::rebuild(None, root, &Snapshot::open(root).unwrap(), &|| false, &mut |_| {}).unwrap();
    assert_eq!(analyzer_of(root)[1], "mixed-1+stem-en (English, detected)");
    for n in 0..20 {
        put_turns(&mut store, &format!("e{n}"), &ENGLISH);
    }
    store.commit(None).unwrap();
    assert_eq!(update(root), 60);
    for n in 0..200 {
        put_turns(&mut store, &format!("g{n}"), &GERMAN);
    }
    store.commit(None).unwrap();
    assert_eq!(update(root), 600);
    assert_eq!(analyzer_of(root)[0], "mixed-1+stem-en");
    // Detection on request takes the new texts into account.
    assert_eq!(update_by(root, "auto").unwrap(), 663);
    assert_eq!(analyzer_of(root)[1], "mixed-1+stem-de (German, detected)");
    assert_eq!(found(root, "lieferung").len(), 10);
    assert_eq!(update_by(root, "auto").unwrap(), 0);
}

#[test]
fn a_small_index_is_detected_again_unless_the_user_chose_the_analyzer() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put(&mut store, "a", "two deliveries");
    catch_up(&mut store, root);
    assert_eq!(analyzer_of(root), ["mixed-1", "mixed-1 (no main language detected)"]);
    put_turns(&mut store, "b", &ENGLISH);
    store.commit(None).unwrap();
    // Until the next update, newer records are searched with the analyzer of the index on disk.
    let lexical = Lexical::open_at(root, &Snapshot::open(root).unwrap()).unwrap();
    assert_eq!((lexical.tail(), lexical.analyzer().to_string().as_str()), (3, "mixed-1"));
    drop(lexical);
    assert_eq!(update(root), 4);
    assert_eq!(analyzer_of(root)[0], "mixed-1+stem-en");
    assert_eq!(found(root, "delivery"), ["a#1", "b#1"]);

    // A choice of the detected analyzer needs no rebuild, but is stored.
    assert_eq!(update_by(root, "mixed-1+stem-en").unwrap(), 0);
    assert_eq!(analyzer_of(root)[1], "mixed-1+stem-en (English)");
    assert_eq!(found(root, "delivery"), ["a#1", "b#1"]);
    update_by(root, "mixed-1").unwrap();
    put_turns(&mut store, "c", &ENGLISH);
    catch_up(&mut store, root);
    assert_eq!(analyzer_of(root), ["mixed-1", "mixed-1"]);
    assert_eq!(update_by(root, "auto").unwrap(), 7);
    assert_eq!(analyzer_of(root)[1], "mixed-1+stem-en (English, detected)");
}

#[test]
fn a_cancelled_rebuild_keeps_the_old_index() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put(&mut store, "a", "two deliveries");
    store.commit(None).unwrap();
    let snapshot = Snapshot::open(root).unwrap();
    let stopped = |analyzer: Option<AnalyzerChoice>| {
        Lexical::update(analyzer, root, &snapshot, &|| true, &mut |_| {}).unwrap_err().class()
    };
    assert_eq!(stopped(None), Class::Interrupted);
    assert!(Lexical::open(root).err().unwrap().to_string().ends_with("has no lexical index yet"));
    update(root);
    assert_eq!(stopped("mixed-1+stem-en".parse().ok()), Class::Interrupted);
    assert_eq!(found(root, "deliveries"), ["a#1"]);
    assert!(!root.join("lexical.new").exists());
}

#[test]
fn only_one_process_builds_at_a_time() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put(&mut store, "a", "hello");
    catch_up(&mut store, root);
    let lexical = Lexical::open(root).unwrap();
    let writer = lexical.sides[0].writer().unwrap();
    assert_eq!(update_by(root, "mixed-1+stem-en").unwrap_err().class(), Class::Busy);
    drop(writer);
    assert_eq!(update_by(root, "mixed-1+stem-en").unwrap(), 1);
}

/// Old versions of turnwise had a single lexical index, with Tantivy's files directly in the folder `lexical`.
#[test]
fn an_index_of_an_older_version_is_reported_and_rebuilt() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put(&mut store, "a", "hello");
    store.commit(None).unwrap();
    let old = root.join("lexical");
    fs::create_dir_all(&old).unwrap();
    let mut schema = tantivy::schema::Schema::builder();
    schema.add_text_field("text", tantivy::schema::TEXT);
    tantivy::Index::create_in_dir(&old, schema.build()).unwrap();
    let error = |root: &Path| Lexical::open(root).err().unwrap();
    assert_eq!(error(root).class(), Class::Unavailable);
    assert!(error(root).to_string().ends_with("was created by another version of turnwise"));
    assert_eq!(update(root), 1);
    assert_eq!(found(root, "hello"), ["a#1"]);
    assert!(!old.join("meta.json").exists());

    // An index with different field names is also reported and rebuilt.
    for side in Kind::ALL.map(Kind::name) {
        let meta = old.join(side).join("meta.json");
        let text = fs::read_to_string(&meta).unwrap();
        fs::write(&meta, text.replacen("\"name\": \"turn\"", "\"name\": \"number\"", 1)).unwrap();
    }
    assert_eq!(error(root).class(), Class::Unavailable);
    assert_eq!(update(root), 1);
    assert_eq!(found(root, "hello"), ["a#1"]);
}

#[test]
fn an_unsupported_analyzer_is_reported_and_replaced() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put(&mut store, "a", "hello");
    catch_up(&mut store, root);
    let rename = |to: &str| {
        let meta = root.join("lexical/utterances/meta.json");
        let text = fs::read_to_string(&meta).unwrap();
        let name = Lexical::analyzer_name(root).unwrap().unwrap();
        fs::write(
            &meta,
            text.replace(&format!("analyzer\\\":\\\"{name}"), &format!("analyzer\\\":\\\"{to}")),
        )
        .unwrap();
    };
    rename("mixed-0");
    let e = Lexical::open(root).err().unwrap();
    assert!(
        e.to_string()
            .ends_with("built with the analyzer `mixed-0`, which this version of turnwise does not support"),
        "{e}"
    );
    assert_eq!(update(root), 1);
    assert_eq!(Lexical::analyzer_name(root).unwrap().as_deref(), Some("mixed-1"));
    // A version of turnwise without an analyzer must not replace an index that was built with it.
    rename("jieba-1");
    if "jieba-1".parse::<turnwise_text::Analyzer>().is_err() {
        let snapshot = Snapshot::open(root).unwrap();
        let e = Lexical::update(None, root, &snapshot, &|| false, &mut |_| {}).unwrap_err();
        assert!(e.to_string().contains("built without the dictionary of `jieba-1`"), "{e}");
        assert_eq!(e.class(), Class::Unavailable);
        assert_eq!(update_by(root, "mixed-1").unwrap(), 1);
    }
}

/// An update commits the two Tantivy indexes one after the other. If the process is killed in between, the indexes are
/// at different log positions.
#[test]
fn two_indexes_at_different_positions_are_both_updated() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put(&mut store, "a", "one parcel");
    catch_up(&mut store, root);
    let behind = root.join("behind");
    fs::create_dir(&behind).unwrap();
    for entry in fs::read_dir(root.join("lexical/dialogues")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, behind.join(path.file_name().unwrap())).unwrap();
    }
    put(&mut store, "b", "two parcel");
    put(&mut store, "a", "no more");
    catch_up(&mut store, root);
    fs::remove_dir_all(root.join("lexical/dialogues")).unwrap();
    fs::rename(&behind, root.join("lexical/dialogues")).unwrap();
    assert_eq!(
        (found(root, "parcel"), found_dialogues(root, "parcel")),
        (vec!["b#1".into()], vec!["a".into()])
    );
    assert_eq!(update(root), 0);
    assert_eq!(
        (found(root, "parcel"), found_dialogues(root, "parcel")),
        (vec!["b#1".into()], vec!["b".into()])
    );
    assert_eq!(found(root, "more"), ["a#1"]);
}

#[test]
fn every_damaged_file_is_reported_and_no_search_panics() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    for n in 0..300 {
        put(&mut store, &format!("d{n}"), &format!("parcel number {n} and word{}", n % 7));
    }
    catch_up(&mut store, root);
    assert!(Lexical::open(root).unwrap().damaged_files().unwrap().is_empty());
    let mut damaged = 0;
    for side in Kind::ALL.map(Kind::name) {
        let files: Vec<PathBuf> =
            fs::read_dir(root.join("lexical").join(side)).unwrap().map(|e| e.unwrap().path()).collect();
        for file in files {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            // Segment files carry checksums; Tantivy's own lists are validated when parsed.
            if name.starts_with('.') || name.ends_with(".json") || name.ends_with(".lock") {
                continue;
            }
            let good = fs::read(&file).unwrap();
            let mut bad = good.clone();
            for byte in bad.iter_mut().skip(good.len() / 4).take(good.len() / 2) {
                *byte ^= 0x5a;
            }
            fs::write(&file, &bad).unwrap();
            let error = Lexical::open(root).and_then(|lexical| {
                let words = lexical.words("parcel word3 number");
                let _ = (
                    lexical.find(Kind::Utterances, &words, 10, None),
                    lexical.find(Kind::Dialogues, &words, 10, None),
                );
                lexical.damaged_files()
            });
            assert!(error.is_err() || error.unwrap().iter().any(|f| f.ends_with(&name)), "{name}");
            fs::write(&file, &good).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 8, "{damaged}");
}

#[test]
fn a_lost_or_damaged_index_is_rebuilt() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put(&mut store, "a", "hello");
    catch_up(&mut store, root);
    for (n, name) in ["utterances/meta.json", "dialogues/meta.json"].into_iter().enumerate() {
        fs::write(root.join("lexical").join(name), "{").unwrap();
        assert!(Lexical::open(root).is_err());
        assert_eq!(update(root), 1, "{n}");
        assert_eq!(found(root, "hello"), ["a#1"]);
    }
    fs::remove_dir_all(root.join("lexical/dialogues")).unwrap();
    assert!(Lexical::open(root).is_err());
    assert_eq!(update(root), 1);
    assert_eq!(found_dialogues(root, "hello"), ["a"]);
}

#[test]
fn query_language_supports_phrases_fields_and_ids_and_warns_about_errors() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    put_turns(&mut store, "a", &["my parcel is late", "the late parcel"]);
    put_turns(&mut store, "b", &["我要申请退款", "parcel, parcel"]);
    catch_up(&mut store, root);
    let lexical = Lexical::open(root).unwrap();
    let search = |text: &str| {
        let query = lexical.syntax(text);
        let hits = lexical.find(Kind::Utterances, &query, 10, None).unwrap();
        let ids: Vec<String> = hits.iter().map(name).collect();
        (ids.join(" "), query.warnings().len())
    };
    assert_eq!(search("\"late parcel\""), ("a#2".to_owned(), 0));
    assert_eq!(search("parcel -late"), ("b#2".to_owned(), 0));
    assert_eq!(search("parcel -\"late parcel\""), ("b#2 a#1".to_owned(), 0));
    assert_eq!(search("+late +my"), ("a#1".to_owned(), 0));
    assert_eq!(search("退款"), ("b#1".to_owned(), 0));
    assert_eq!(search("\"申请退款\""), ("b#1".to_owned(), 0));
    assert_eq!(search("parcel AND dialogue:b"), ("b#2".to_owned(), 0));
    assert_eq!(search("late AND turn:1"), ("a#1".to_owned(), 0));
    assert_eq!(lexical.syntax("Late -MY 退款").terms(), ["late", "my", "退款"]);
    // Input as users type it.
    for text in [
        "where is my parcel?! (late",
        "parcel:",
        "AND",
        "nowhere:late",
        "-late",
        "\"",
        "[",
        "turn:x",
        "",
        "late^",
    ] {
        let query = lexical.syntax(text);
        lexical.find(Kind::Utterances, &query, 10, None).unwrap();
        lexical.find(Kind::Dialogues, &query, 10, None).unwrap();
    }
    let query = lexical.syntax("nowhere:late parcel");
    assert_eq!(query.warnings(), ["Field does not exist: 'nowhere'"]);
    assert!(!lexical.find(Kind::Utterances, &query, 10, None).unwrap().is_empty());
}

#[test]
fn a_cut_list_is_not_exhausted_if_the_index_is_newer_than_the_snapshot() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    (0..10).for_each(|n| put(&mut store, &format!("a{n}"), "a parcel"));
    store.commit(None).unwrap();
    let early = Snapshot::open(root).unwrap();
    // These hits come first and are not in the early snapshot.
    (0..10).for_each(|n| put(&mut store, &format!("b{n}"), "a parcel"));
    catch_up(&mut store, root);
    let engine = Embedded::over(root, early).unwrap();
    let query = engine.keyword_query("parcel");
    for (k, exhausted) in [(3, false), (10, true), (11, true)] {
        let list = engine.view().keyword_search(Kind::Utterances, &query, k).unwrap();
        assert_eq!((list.found.len(), list.exhausted), (k.min(10), exhausted), "{k}");
    }
}

#[test]
fn titles_are_searched_and_an_index_without_them_says_so() {
    let (dir, mut store) = empty_index();
    let root = dir.path();
    for (id, title) in
        [("a", "Late parcels"), ("b", "A parcel that was late for a very long time"), ("c", "Refund")]
    {
        let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
        dialogue.title = Some(title.to_owned());
        dialogue.push("a", Role::User, "hello, where is the parcel");
        dialogue.check().unwrap();
        store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
    }
    put(&mut store, "d", "late");
    store.commit(None).unwrap();
    let snapshot = Snapshot::open(root).unwrap();
    let titles = |lexical: &Lexical, query: &str| {
        let hits = lexical.find_titles(&lexical.words(query), 10, None).unwrap();
        hits.into_iter().map(|hit| (name(&hit), hit.score)).collect::<Vec<_>>()
    };

    // An index from before titles were searched.
    let analyzer = "mixed-1+stem-en".parse().unwrap();
    let folder = folder(root);
    let create = |kind: Kind| side::Side::create(&folder.join(kind.name()), Kind::Utterances, analyzer);
    let old = Lexical::of_sides(analyzer, create).unwrap();
    update::catch_up(&old, &snapshot).unwrap();
    drop(old);
    let old = Lexical::open_at(root, &snapshot).unwrap();
    assert!(old.lacks_titles().unwrap() && titles(&old, "parcel").is_empty());
    assert_eq!(found(root, "parcels").len(), 3);
    drop(old);
    // An update keeps it as it is; a rebuild adds the titles.
    put(&mut store, "e", "late again");
    catch_up(&mut store, root);
    assert!(Lexical::open(root).unwrap().lacks_titles().unwrap());
    let snapshot = Snapshot::open(root).unwrap();
    Lexical::rebuild(None, root, &snapshot, &|| false, &mut |_| {}).unwrap();
    let lexical = Lexical::open(root).unwrap();
    assert!(!lexical.lacks_titles().unwrap());

    // The length of a title has no influence, and texts are not searched.
    let both = titles(&lexical, "late parcel");
    assert_eq!(both.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert!(both[0].1 == both[1].1 && titles(&lexical, "hello").is_empty());
    let expression = lexical.syntax("late OR parcel");
    assert!(lexical.find_titles(&expression, 10, None).unwrap().is_empty());
    let filter = "id = a".parse().unwrap();
    let selected = lexical.select(&snapshot, &filter, Kind::Dialogues).unwrap().unwrap();
    assert_eq!(lexical.find_titles(&lexical.words("late"), 10, Some(&selected)).unwrap().len(), 1);
    // A changed title replaces the old one, before and after the next update.
    let mut changed = Dialogue::new(DialogueId::new("a").unwrap());
    changed.title = Some("Coffee machine".to_owned());
    changed.push("a", Role::User, "hello");
    changed.check().unwrap();
    store.put(&Prepared::new(&changed).unwrap()).unwrap();
    store.commit(None).unwrap();
    let snapshot = Snapshot::open(root).unwrap();
    for _ in 0..2 {
        let lexical = Lexical::open_at(root, &snapshot).unwrap();
        assert_eq!(titles(&lexical, "coffee").len(), 1);
        assert_eq!(titles(&lexical, "late").len(), 1);
        update(root);
    }
}
