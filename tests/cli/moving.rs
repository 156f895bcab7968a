//! Tests of `migrate` and of commands that replace all data in Milvus in one step.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    milvus::server::Server,
    support::{SAMPLES, Turnwise, id_of, lines},
};

/// Creates the index `x` of the sample dialogues, with vectors and graphs.
fn index(t: &Turnwise) {
    t.ok(&format!("model fit {SAMPLES} -o fitted --dim 32"));
    t.ok(&format!("ingest -i x --no-encode {SAMPLES}"));
    t.ok("encode -i x --model ./fitted");
    t.ok("index build -i x");
}

fn hits(found: &Value) -> Vec<(String, String)> {
    let hit = |hit: &Value| {
        (hit["id"].as_str().unwrap().to_owned(), format!("{:.4}", hit["cosine"].as_f64().unwrap_or(0.0)))
    };
    found["hits"].as_array().unwrap().iter().map(hit).collect()
}

fn exported(t: &Turnwise, index: &str) -> BTreeSet<String> {
    lines(&t.ok(&format!("corpus export -q -i {index}"))).iter().map(Value::to_string).collect()
}

#[test]
fn an_index_is_unchanged_after_moving_to_milvus_and_back() {
    let Some(server) = Server::start() else { return };
    let t = Turnwise::new();
    index(&t);
    let address = server.target("chats").to_string();
    let moved = t.json(&format!("migrate -i x --to {address}"));
    assert_eq!((&moved["dialogues"], &moved["turns"]), (&280.into(), &3208.into()), "{moved}");
    assert_eq!((&moved["already_there"], &moved["searches"]), (&0.into(), &20.into()), "{moved}");
    assert!(
        moved["by_meaning"].as_f64().unwrap() > 0.95 && moved["lost"] == serde_json::json!([]),
        "{moved}"
    );

    let back = t.json(&format!("migrate --engine {address} --to y"));
    assert_eq!((&back["checksum"], &back["vectors"]), (&moved["checksum"], &moved["vectors"]), "{back}");
    assert_eq!(exported(&t, "x"), exported(&t, "y"));
    t.ok("verify -i y");
    t.ok(&format!("migrate --engine {address} --to beside/ --samples 0"));
    t.ok("verify -i beside/");
    for question in ["parcel --mode dense", "refund --mode bm25 -k 20", "parcel --filter role=user"] {
        let [here, back, far] = [
            format!("search {question} -i x"),
            format!("search {question} -i y"),
            format!("search {question} --engine {address}"),
        ]
        .map(|command| hits(&t.json(&command)));
        assert_eq!(here, back, "{question}");
        assert_eq!(here[..3], far[..3], "{question}");
    }
    // All vectors were copied, so `encode` has nothing to do.
    assert!(t.ok("encode -i y").contains("is up to date"));

    // Existing data is changed only with --replace, which replaces all of it.
    t.run(&format!("migrate -i x --to {address}"))
        .says(2, &["already has dialogues", "--replace replaces them"]);
    t.run(&format!("migrate --engine {address} --to y")).says(2, &["already exists"]);
    t.ok("delete -i x deliveries-001");
    let moved = t.json(&format!("migrate -i x --to {address} --replace"));
    assert_eq!(moved["dialogues"], 279, "{moved}");
    t.run(&format!("corpus show --engine {address} deliveries-001")).says(2, &["holds no dialogue"]);
    assert!(t.ok(&format!("search --engine {address} refund")).contains("refund"));
}

/// The Milvus client accepts responses of at most 4 MiB, so `migrate` requests larger results in parts.
#[test]
fn dialogues_larger_than_the_maximum_response_are_moved() {
    let Some(server) = Server::start() else { return };
    let t = Turnwise::new();
    let dialogue = |id: &str, turns: usize, bytes: usize| {
        let word = |n: usize, k: usize| format!("w{} ", (n * 31 + k * k * 17 + id.len()) % 997);
        let text =
            |n: usize| format!("turn {n} of {id} {}", (0..bytes / 5).map(|k| word(n, k)).collect::<String>());
        let turns: Vec<Value> =
            (0..turns).map(|n| serde_json::json!({"speaker": "a", "text": text(n)})).collect();
        format!("{}\n", serde_json::json!({"id": id, "turns": turns}))
    };
    // Test a dialogue of 6 MB, a dialogue with many turns, and many dialogues that are too large together.
    let mut all = dialogue("small", 2, 20);
    all.extend((0..39).map(|n| dialogue(&format!("large-{n}"), 20, 10_000)));
    all += &(dialogue("vast", 60, 100_000) + &dialogue("long", 4_000, 40));
    t.write("all.jsonl", all);
    t.ok("model fit all.jsonl -o fitted --dim 32");
    t.ok("ingest -i x --no-encode all.jsonl");
    t.ok("encode -i x --model ./fitted");
    let address = server.target("chats").to_string();
    let moved = t.run(&format!("migrate -i x --to {address} --format json"));
    assert!(moved.err.contains("longer than a column of Milvus"), "{moved:?}");
    assert_eq!(moved.json()["dialogues"], 42);
    let found = t.json(&format!("search turn --mode bm25 -k 42 --group dialogue --engine {address}"));
    assert_eq!(found["hits"].as_array().unwrap().len(), 42);
    t.ok(&format!("migrate --engine {address} --to y"));
    assert_eq!(exported(&t, "x"), exported(&t, "y"));
}

#[test]
fn a_killed_migration_loses_nothing_and_shows_no_partial_copy() {
    let Some(server) = Server::start() else { return };
    let t = Turnwise::new();
    t.ok(&format!("model fit {SAMPLES} -o fitted --dim 32"));
    for n in 0..4 {
        t.ok(&format!("ingest -i x --no-index --id-prefix {n}- {SAMPLES}"));
    }
    t.ok("encode -i x --model ./fitted");
    let address = server.target("chats").to_string();
    let total = 4 * 280;
    t.kill_at_increasing_times(&format!("migrate -i x --to {address}"), || {
        let seen = t.run(&format!("search parcel --mode bm25 --engine {address}"));
        if seen.code != 0 {
            seen.says(2, &["there are no dialogues at"]);
        }
        // The kill may have happened after the last step.
        seen.code == 0
    });
    let result = t.run(&format!("migrate -i x --to {address} --replace --format json"));
    assert_eq!(result.json()["dialogues"], total);

    t.kill_at_increasing_times(&format!("migrate --engine {address} --to y"), || {
        let there = t.path("indexes/y").exists();
        if !there {
            t.run("search parcel -i y").says(2, &["there is no index at"]);
        }
        there
    });
    assert_eq!(exported(&t, "x"), exported(&t, "y"));
    let left: Vec<_> =
        std::fs::read_dir(t.path("indexes")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_new_encoder_and_a_new_corpus_replace_the_old_ones_in_one_step() {
    let Some(server) = Server::start() else { return };
    let t = Turnwise::new();
    index(&t);
    t.ok(&format!("model fit {SAMPLES} -o other --dim 16"));
    let engine = format!("--engine {}", server.target("chats"));
    t.ok(&format!("ingest {engine} --no-encode {SAMPLES}"));
    // First without vectors, then with vectors of two encoders. All dialogues are found each time.
    let result = t.ok(&format!("encode {engine} --model ./fitted"));
    assert!(result.contains("280 dialogues encoded") && result.contains("now uses generation 2"), "{result}");
    let result = t.ok(&format!("encode {engine} --model ./fitted"));
    assert!(result.contains("is up to date"), "{result}");
    // The same model in a different folder: only the stored path changes.
    std::fs::rename(t.path("fitted"), t.path("elsewhere")).unwrap();
    t.run(&format!("search parcel {engine} --mode dense")).says(2, &["`turnwise encode --engine milvus://"]);
    t.run(&format!("encode {engine} --model ./elsewhere")).says(0, &["is now registered as", "elsewhere"]);
    assert!(t.ok(&format!("search parcel {engine} --mode dense")).contains("parcel"));
    t.run(&format!("encode {engine} --model ./other"))
        .says(2, &["has", "--replace encodes everything again"]);
    let result = t.json(&format!("encode {engine} --model ./other --replace"));
    assert_eq!(
        (&result["generation"], &result["dim"], &result["turns"]),
        (&3.into(), &16.into(), &3208.into()),
        "{result}"
    );
    let found = t.json(&format!("search parcel {engine} --mode dense"));
    assert_eq!(ids(&found), ids(&by(&t, "other")));
    // A different corpus replaces this one.
    let one = lines(&t.ok("corpus export -q -i x")).into_iter().find(|d| id_of(d) == "refunds-001").unwrap();
    t.write("one.jsonl", format!("{one}\n"));
    let result = t.ok(&format!("ingest {engine} --replace one.jsonl"));
    assert!(result.contains("1 added") || result.contains("1  added"), "{result}");
    let found = t.json(&format!("search parcel {engine} -k 50"));
    assert!(ids(&found).iter().all(|id| id.starts_with("refunds-001#")), "{found}");
    // A failed replacement changes nothing.
    t.write("broken.jsonl", "{\n");
    let result = t.run(&format!("ingest {engine} --replace --max-errors 0 broken.jsonl"));
    assert_ne!(result.code, 0, "{result:?}");
    assert_eq!(ids(&t.json(&format!("search parcel {engine} -k 50"))), ids(&found));
}

fn ids(found: &Value) -> Vec<String> {
    found["hits"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap().to_owned()).collect()
}

/// Encodes the local index with this model, and returns the results of a dense search for `parcel`.
fn by(t: &Turnwise, model: &str) -> Value {
    t.ok(&format!("encode -i x --model ./{model} --replace"));
    t.json("search parcel -i x --mode dense")
}

#[test]
fn what_cannot_be_moved_is_reported() {
    let t = Turnwise::new();
    index(&t);
    for (command, code, says) in [
        ("migrate -i x --to y", 2, "both y and the index are on this machine"),
        ("migrate -i nothing --to milvus://127.0.0.1:1/c", 2, "there is no index at"),
        ("migrate -i x --to milvus://127.0.0.1:1/c", 6, "cannot be reached"),
        ("migrate -i x --to http://127.0.0.1:1/c", 2, "does not begin with milvus://"),
        ("migrate --engine milvus://127.0.0.1:1/c --to milvus://127.0.0.1:1/d", 2, "cannot migrate directly"),
        ("migrate --engine milvus://127.0.0.1:1/c --to x", 2, "already exists"),
        (
            "migrate --engine milvus://127.0.0.1:1/c --to y --replace",
            2,
            "--replace works only when the target is Milvus",
        ),
        ("ingest -i x --replace one.jsonl", 2, "--replace needs --engine"),
    ] {
        t.run(command).says(code, &[says]);
    }
    let Some(server) = Server::start() else { return };
    t.write(
        "more.jsonl",
        r#"{"id":"more","turns":[{"speaker":"a","text":"not encoded yet, whatever it is"}]}"#,
    );
    t.ok("ingest -i x --no-encode more.jsonl");
    let address = server.target("chats");
    t.run(&format!("migrate -i x --to {address}"))
        .says(2, &["2 vectors of", "missing", "turnwise encode -i"]);
    t.run(&format!("search x --engine {address}")).says(2, &["there are no dialogues"]);
}

#[test]
fn a_killed_ingest_continues_without_duplicates() {
    let Some(server) = Server::start() else { return };
    let t = Turnwise::new();
    index(&t);
    let mut all = String::new();
    for n in 0..4 {
        let renamed = |dialogue: &mut Value| dialogue["id"] = format!("{n}-{}", id_of(dialogue)).into();
        for mut dialogue in lines(&t.ok("corpus export -q -i x")) {
            renamed(&mut dialogue);
            all += &format!("{dialogue}\n");
        }
    }
    t.write("all.jsonl", all);
    let engine = format!("--engine {}", server.target("chats"));
    t.kill_at_increasing_times(&format!("ingest {engine} --model ./fitted all.jsonl"), || {
        // Every hit has a complete record.
        let seen = t.run(&format!("search parcel {engine} -k 50 --format json"));
        if seen.code == 0 {
            let found = seen.json();
            assert!(found["hits"].as_array().unwrap().iter().all(|hit| hit["turn"]["text"].is_string()));
        }
        false
    });
    let result = t.ok(&format!("ingest {engine} --model ./fitted all.jsonl"));
    assert!(
        result.contains("1,120  unchanged") && result.contains("1,120 dialogues with 12,832 turns"),
        "{result}"
    );
}
