//! Tests of `delete --purge`, `index compact`, `index info` and `index rebuild`.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use turnwise_core::ids::DialogueId;
use turnwise_index::{
    dense::{DenseReader, SearchSettings},
    vectors::{Kind, VectorReader},
};
use turnwise_store::Snapshot;

use crate::support::{SAMPLES, Turnwise, files, record, records};

/// Strings that occur only in the deleted dialogue: in a text, as its id, and as a speaker.
const SECRETS: [&str; 3] = ["xylorimbaflux", "secret-4711", "Zebulontine"];
/// String in the dialogue text that a test replaces.
const REPLACED: &str = "quibblefrotz";

fn secret() -> String {
    let turns = json!([
        {"speaker": "Zebulontine", "role": "user", "text": "my xylorimbaflux is late"},
        {"speaker": "Bob", "role": "agent", "text": "One moment, please."}
    ]);
    format!("{}\n", json!({"id": "secret-4711", "source": "test", "turns": turns}))
}

/// Creates an index with vectors and graphs. It contains the samples, a dialogue with secrets, and a dialogue that a
/// test replaces.
fn filled() -> Turnwise {
    let t = Turnwise::new();
    t.write("secret.jsonl", secret() + &record("changed", &format!("a {REPLACED} in the garden")));
    t.ok(&format!("ingest -i x {SAMPLES} secret.jsonl"));
    t.ok(&format!("model fit {SAMPLES} -o fitted --dim 16"));
    t.ok("encode -i x --model ./fitted");
    t.ok("index build -i x");
    t
}

/// Returns the files of an index that contain a string.
fn files_that_contain(t: &Turnwise, needle: &str) -> Vec<PathBuf> {
    let holds = |bytes: &[u8]| bytes.windows(needle.len()).any(|w| w.eq_ignore_ascii_case(needle.as_bytes()));
    files(&t.path("indexes/x")).into_iter().filter(|(_, bytes)| holds(bytes)).map(|(path, _)| path).collect()
}

/// Checks that a file in this part of the index contains the string.
#[track_caller]
fn is_in_file(t: &Turnwise, needle: &str, part: &str) {
    let found = files_that_contain(t, needle);
    let part = t.path("indexes/x").join(part);
    assert!(found.iter().any(|path| path.starts_with(&part)), "{needle}: {found:?}");
}

#[test]
fn a_purge_leaves_no_byte_of_what_was_deleted_or_replaced_in_any_file() {
    let t = filled();
    t.write("new.jsonl", record("changed", "a rake in the garden"));
    t.ok("ingest -i x new.jsonl --no-encode");
    for secret in SECRETS {
        is_in_file(&t, secret, "log");
        is_in_file(&t, secret, "records");
    }
    is_in_file(&t, REPLACED, "log");
    let vectors = |t: &Turnwise| {
        let reader = VectorReader::open(&t.path("indexes/x")).unwrap().unwrap();
        Kind::ALL.map(|kind| reader.rows(kind))
    };
    let before = vectors(&t);

    let purged = t.json("delete -i x secret-4711 --purge");
    assert_eq!(purged["deleted"], json!(["secret-4711"]));
    let done = &purged["purged"];
    assert_eq!(done["schema"], "turnwise/index-compact/1");
    // The dropped records: the deleted dialogue, the record of its deletion, and the earlier version of the replaced
    // dialogue.
    assert_eq!((&done["records"]["dropped"], &done["records"]["dialogues"]), (&3.into(), &281.into()));
    assert_eq!(done["vectors"], json!({"utterances": 2, "dialogues": 2}));
    assert_eq!((&done["lexical_made_anew"], &done["graphs_made_anew"]), (&true.into(), &true.into()));
    assert!(done["bytes"].as_u64().unwrap() > 0);
    for purged in SECRETS.into_iter().chain([REPLACED]) {
        assert_eq!(files_that_contain(&t, purged), Vec::<PathBuf>::new(), "{purged}");
    }
    assert_eq!(vectors(&t), [before[0] - 2, before[1] - 2]);

    // The remaining data is unchanged and usable.
    assert_eq!(t.ids("x").len(), 281);
    assert_eq!(t.json("search -i x --mode bm25 rake")["hits"][0]["id"], "changed#1");
    assert_eq!(t.json(&format!("search -i x --mode bm25 {}", SECRETS[0]))["hits"], json!([]));
    t.ok("verify -i x");
    t.run("search -i x --mode dense garden")
        .says(0, &["dense search cannot find 1 utterance yet; run `turnwise encode -i indexes/x`"]);
    let encoded = t.json("encode -i x");
    assert_eq!(
        (&encoded["utterances"], &encoded["dialogues"]),
        (&1.into(), &1.into()),
        "only the deleted texts are missing"
    );
    let again = t.ok("index compact -i x");
    assert_eq!(again, "indexes/x has no deleted or replaced data\n");
    t.write("secret.jsonl", secret());
    assert_eq!(
        t.json("ingest -i x secret.jsonl --no-encode")["tally"]["added"],
        1,
        "a purged dialogue can be ingested again"
    );
}

#[test]
fn a_compaction_reports_what_it_removed_and_a_purge_without_matches_still_compacts() {
    let t = filled();
    t.ok("delete -i x secret-4711");
    let output = t.ok("index compact -i x");
    assert!(
        output.starts_with("indexes/x: dropped 2 records, 1 utterance vector, 1 dialogue vector\n"),
        "{output}"
    );
    assert!(output.contains("indexes/x: rebuilt the lexical index and the graphs\n"), "{output}");
    assert!(output.contains(" before, ") && output.ends_with(" now\n"), "{output}");

    t.ok("delete -i x changed");
    let dry = t.json("delete -i x banking-001 --purge --dry-run");
    assert!(dry["dry_run"] == true && dry.get("purged").is_none(), "{dry}");
    is_in_file(&t, REPLACED, "log-1");
    let outcome = t.run("delete -i x nobody --purge");
    outcome.says(2, &["indexes/x holds no dialogue `nobody`"]);
    assert!(outcome.out.starts_with("0 dialogues deleted\nindexes/x: dropped 2 records"), "{outcome:?}");
    assert_eq!(files_that_contain(&t, REPLACED), Vec::<PathBuf>::new());
    assert_eq!(t.ids("x").len(), 280);
    t.run("index compact -i nowhere").says(2, &["there is no index at indexes/nowhere"]);
}

#[test]
fn compacting_an_index_of_records_creates_no_other_parts() {
    let t = Turnwise::new();
    t.write("in.jsonl", records(50) + &secret());
    t.ok("ingest -i x in.jsonl --no-index");
    t.ok("delete -i x secret-4711 --purge");
    assert!(SECRETS.iter().all(|secret| files_that_contain(&t, secret).is_empty()));
    for part in ["lexical", "vectors", "graphs"] {
        assert!(!t.path("indexes/x").join(part).exists(), "{part}");
    }
    assert_eq!(t.ids("x").len(), 50);
    t.ok("verify -i x");
}

#[test]
fn a_compacted_index_can_be_backed_up_restored_repaired_and_extended() {
    let t = filled();
    t.ok("delete -i x secret-4711 --purge");
    let all = t.dialogues("x");
    t.ok("backup -i x saved");
    t.ok("restore -i y saved");
    assert_eq!(t.dialogues("y"), all);
    assert_eq!(t.json("encode -i y")["utterances"], 0);
    t.ok("verify -i y");
    fs::remove_file(t.path("indexes/x/manifest.json")).unwrap();
    t.ok("repair -i x");
    assert_eq!(t.dialogues("x"), all);
    assert_eq!(t.json("encode -i x")["utterances"], 0);
    t.ok("verify -i x");
    assert_eq!(t.json(&format!("ingest -i x {SAMPLES} --no-encode"))["tally"]["unchanged"], 280);
    // A damaged log that `repair` has kept is reported, because it may contain deleted data.
    let log = t.path("indexes/x/log-1/00000001.log");
    let mut bytes = fs::read(&log).unwrap();
    bytes[300_000] ^= 1;
    fs::write(&log, bytes).unwrap();
    t.ok("repair -i x");
    t.run("index compact -i x")
        .says(0, &["warning: indexes/x/log.damaged-1 was kept by a repair and may contain deleted data"]);
}

#[test]
fn readers_continue_during_a_compaction() {
    let t = filled();
    let root = t.path("indexes/x");
    let snapshot = Snapshot::open(&root).unwrap();
    let dense = DenseReader::open(&root, &snapshot).unwrap().unwrap();
    let query: Vec<f32> = {
        let vectors = dense.vectors();
        vectors.row(Kind::Utterances, vectors.rows(Kind::Utterances) - 1).unwrap().to_vec()
    };
    let look = SearchSettings { k: 300, ..SearchSettings::default() };
    let found = dense.search(&snapshot, Kind::Utterances, &query, &look).unwrap();
    t.ok("delete -i x secret-4711 --purge");
    assert!(!t.path("indexes/x/log").exists());
    let id = DialogueId::new("secret-4711").unwrap();
    assert!(snapshot.get(&id).unwrap().unwrap().turns[0].text.contains(SECRETS[0]));
    assert_eq!(snapshot.dialogues().map(Result::unwrap).count(), 282);
    assert_eq!(dense.search(&snapshot, Kind::Utterances, &query, &look).unwrap(), found);
    assert_eq!(Snapshot::open(&root).unwrap().get(&id).unwrap(), None);
}

#[test]
fn a_compaction_is_refused_while_another_process_writes() {
    let t = Turnwise::new();
    t.write("in.jsonl", secret());
    t.ok("ingest -i x in.jsonl");
    t.ok("delete -i x secret-4711");
    let mut run = t.start("ingest -v -i x -");
    run.feed(&record("slow", "x"));
    run.wait_for_message("acknowledged: 1 records");
    t.run("index compact -i x").says(5, &["error: indexes/x is being written by process "]);
    drop(run.stdin.take());
    assert_eq!(run.end().code, 0);
    t.ok("index compact -i x");
    assert_eq!(t.ids("x"), ["slow"]);
}

#[cfg(unix)]
#[test]
fn an_interrupted_compaction_changes_nothing_and_can_be_repeated() {
    let t = Turnwise::new();
    t.write("in.jsonl", records(20_000) + &secret());
    t.ok("ingest -i x in.jsonl --no-index");
    t.ok("delete -i x secret-4711");
    let run = t.start("index compact -v -i x");
    run.wait_for_message("steps of 40000 are done");
    run.interrupt();
    run.end().says(130, &["error: interrupted\nhint: nothing was changed; run the same command again\n"]);
    assert!(t.path("indexes/x/log").exists() && !t.path("indexes/x/log-1").exists());
    t.ok("verify -i x");
    t.ok("index compact -i x");
    assert_eq!(files_that_contain(&t, SECRETS[0]), Vec::<PathBuf>::new());
    assert_eq!(t.ids("x").len(), 20_000);
}

#[test]
fn the_parts_of_an_index_are_shown() {
    let t = filled();
    t.ok("delete -i x secret-4711");
    let info = t.json("index info -i x");
    assert_eq!(info["schema"], "turnwise/index-info/1");
    assert_eq!((&info["dialogues"], &info["turns"]), (&281.into(), &3210.into()));
    let parts = ["log", "tables", "records", "lexical", "vectors", "graphs"];
    let bytes: Vec<u64> = parts.iter().map(|part| info["bytes"][part].as_u64().unwrap()).collect();
    assert!(bytes.iter().all(|n| *n > 0), "{info}");
    let total = info["bytes"]["total"].as_u64().unwrap();
    // The remaining bytes are the manifest and the locks.
    assert!(total > bytes.iter().sum() && total < bytes.iter().sum::<u64>() + 4_000, "{info}");
    assert_eq!((&info["log"]["segments"], &info["log"]["dead_frames"]), (&1.into(), &2.into()));
    let dead = info["log"]["dead_bytes"].as_u64().unwrap();
    assert!(dead > secret().len() as u64 && dead < 1_000, "{dead}");
    assert_eq!(info["lexical"], json!({"analyzer": "mixed-1+stem-en", "usable": true}));
    let vectors = &info["vectors"];
    assert_eq!(
        (&vectors["orphans"], &vectors["not_looked_at"], &vectors["dim"]),
        (&2.into(), &0.into(), &16.into())
    );
    assert_eq!(vectors["fingerprint"], t.json("encode -i x")["fingerprint"]);
    let graphs = &info["graphs"];
    assert_eq!(
        (&graphs["builder"], &graphs["usable"], &graphs["tail"]),
        (&"native".into(), &true.into(), &0.into())
    );
    assert_eq!(graphs["dialogues"]["nodes"], 282);
    assert!(graphs["utterances"]["recall"].as_f64().unwrap() > 0.9, "{graphs}");
    assert_eq!(info["behind"], json!([]));

    let text = t.ok("index info -i x");
    assert!(
        text.starts_with("indexes/x  generation ") && text.contains("281 dialogues with 3,210 turns\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "2 records deleted or replaced (`turnwise index compact -i indexes/x` frees their space)"
        ),
        "{text}"
    );
    assert!(
        text.contains("lexical  analyzer mixed-1+stem-en (English, detected)\n")
            && text.contains("graphs   by native; utterances: "),
        "{text}"
    );
    assert!(text.contains("dialogues: 282 nodes, recall@10 "), "{text}");
    assert!(text.contains("1 of deleted texts") && text.contains("dimensions by "), "{text}");
}

#[test]
fn outdated_parts_are_shown_with_the_command_that_updates_them() {
    let t = filled();
    t.write("more.jsonl", record("late", "a zeppelin landed"));
    t.ok("ingest -i x more.jsonl --no-index");
    let behind =
        |t: &Turnwise| -> Vec<Value> { t.json("index info -i x")["behind"].as_array().unwrap().clone() };
    let result = |behind: &[Value], part: &str| -> String {
        let found = behind.iter().find(|b| b["part"] == part).unwrap_or_else(|| panic!("{part}: {behind:?}"));
        format!("{} | {}", found["what"].as_str().unwrap(), found["command"].as_str().unwrap())
    };
    let now = behind(&t);
    assert_eq!(now.len(), 3, "{now:?}");
    assert_eq!(
        result(&now, "lexical"),
        "the lexical index is out of date | turnwise index build -i indexes/x"
    );
    assert_eq!(result(&now, "vectors"), "1 dialogue is not encoded yet | turnwise encode -i indexes/x");
    assert_eq!(
        result(&now, "graphs"),
        "1 dialogue was added after the graphs were built | turnwise index build -i indexes/x"
    );
    assert!(
        t.ok("index info -i x")
            .contains("graphs: 1 dialogue was added after the graphs were built (`turnwise index build")
    );
    t.ok("encode -i x");
    t.ok("index build -i x");
    assert_eq!(behind(&t), Vec::<Value>::new());
    fs::write(t.path("indexes/x/graphs/current.json"), "{").unwrap();
    fs::write(t.path("indexes/x/lexical/utterances/meta.json"), "{").unwrap();
    let now = behind(&t);
    assert!(result(&now, "lexical").ends_with("| turnwise index rebuild -i indexes/x"), "{now:?}");
    assert!(result(&now, "graphs").starts_with("the graphs are damaged: "), "{now:?}");
    let bare = t.run("ingest -i y more.jsonl --no-index --format json");
    assert_eq!(bare.code, 0);
    let info = t.json("index info -i y");
    assert!(info["lexical"].is_null() && info["vectors"].is_null() && info["graphs"].is_null(), "{info}");
    assert_eq!(info["behind"][0]["what"], "there is no lexical index");
}

#[test]
fn a_rebuild_recreates_the_search_indexes_in_any_state() {
    let t = filled();
    t.ok("index build -i x --analyzer mixed-1+stem-en");
    let before =
        t.run_args(&["search", "-i", "x", "--mode", "bm25", "plastic", "--format", "json"]).json()["hits"]
            .clone();
    // Undamaged parts are rebuilt, too.
    let output = t.ok("index rebuild -i x");
    assert!(
        output.starts_with(
            "indexes/x: 3,212 utterances indexed, analyzer mixed-1+stem-en (English)\nindexes/x: 3,212 utterances in \
             a graph"
        ),
        "{output}"
    );
    for (path, mut bytes) in
        files(&t.path("indexes/x/graphs")).into_iter().chain(files(&t.path("indexes/x/lexical")))
    {
        // Damage all files except those that name the analyzer.
        let tells = ["lexical/utterances/meta.json", "lexical/utterances/.managed.json"];
        if !tells.iter().any(|tells| path.ends_with(tells)) {
            bytes.truncate(bytes.len() / 2);
            bytes.iter_mut().for_each(|b| *b ^= 0x33);
            fs::write(path, bytes).unwrap();
        }
    }
    assert_eq!(t.run("verify -i x").code, 4);
    let built = t.json("index rebuild -i x --graph hnsw_rs");
    assert_eq!(
        (&built["analyzer"], &built["utterances_taken_in"]),
        (&"mixed-1+stem-en".into(), &3212.into())
    );
    assert_eq!(built["graphs"]["manifest"]["builder"], "hnsw_rs");
    t.ok("verify -i x");
    assert_eq!(
        t.run_args(&["search", "-i", "x", "--mode", "bm25", "plastic", "--format", "json"]).json()["hits"],
        before
    );
    t.ok("search -i x --mode dense parcel");
    // A missing lexical index is created.
    fs::remove_dir_all(t.path("indexes/x/lexical")).unwrap();
    fs::remove_dir_all(t.path("indexes/x/graphs")).unwrap();
    t.ok("index rebuild -i x --analyzer mixed-1");
    t.ok("verify -i x");
    assert_eq!(t.json("index info -i x")["lexical"]["analyzer"], "mixed-1");
}
