//! Tests of `--engine` with Milvus and the sample dialogues.

#[path = "../engines/server.rs"]
pub mod server;

use serde_json::Value;

use crate::support::{Outcome, SAMPLES, Turnwise};
use server::Server;

/// Stores the sample dialogues in a local index and in Milvus, with the same vectors. Returns `None` if Milvus is not
/// installed.
pub fn both() -> Option<(Turnwise, Server, String)> {
    let server = Server::start()?;
    let t = Turnwise::new();
    let engine = format!("--engine {}", server.target("chats"));
    t.ok(&format!("model fit {SAMPLES} -o fitted --dim 64"));
    t.ok(&format!("ingest -i x {SAMPLES}"));
    t.ok("encode -i x --model ./fitted");
    let result = t.ok(&format!("ingest {engine} --model ./fitted {SAMPLES}"));
    assert!(
        result.contains("280  added") && result.contains("now holds 280 dialogues with 3,208 turns"),
        "{result}"
    );
    Some((t, server, engine))
}

fn ids(found: &Value) -> Vec<String> {
    found["hits"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_commands_give_the_same_results_as_a_local_index() {
    let Some((t, mut server, engine)) = both() else { return };
    let alike = |command: &str| {
        let (here, there) = (t.json(&format!("{command} -i x")), t.json(&format!("{command} {engine}")));
        let (here, there) = (ids(&here), ids(&there));
        let common = here.iter().filter(|id| there.contains(id)).count();
        assert!(here.len() == there.len() && common * 10 >= here.len() * 9, "{command}\n{here:?}\n{there:?}");
        assert_eq!(here[..3], there[..3], "{command}");
    };
    for command in [
        "search parcel",
        "search parcel --mode dense -k 20",
        "search refund --mode bm25 -k 20",
        "search refund --of dialogues --mode dense",
        "search parcel --filter role=user -k 20",
        "search refund --filter domain=deliveries --group dialogue",
        "search parcel --rerank exact",
        // Both detect English, so plurals are found, too.
        "search parcels --mode bm25 -k 20",
        "similar deliveries-001 --mode dense",
        "similar deliveries-001#1 --mode dense",
    ] {
        alike(command);
    }
    // The names of speakers and the titles count in Milvus, too. The corpus has more than 100 speakers.
    for query in
        ["what did Gareth say about boots", "what did Ottilie attach", "shoes that never got walked in"]
    {
        let [here, there] = ["-i x".to_owned(), engine.clone()].map(|place| {
            let place: Vec<&str> = place.split(' ').collect();
            let args = [&["search", query, "--format", "json"], place.as_slice()].concat();
            t.run_args(&args).json()
        });
        assert_eq!(here["effective"]["speakers"], there["effective"]["speakers"], "{query}");
        assert_eq!(ids(&here)[..3], ids(&there)[..3], "{query}");
        assert_eq!(here["effective"]["speakers"].is_array(), query.contains("did"), "{query}: {here}");
    }
    let shown = t.ok(&format!("corpus show {engine} deliveries-001"));
    assert_eq!(shown, t.ok("corpus show -i x deliveries-001"));
    // A repeated ingest changes nothing. Deleted dialogues are not found.
    let result = t.ok(&format!("ingest {engine} {SAMPLES}"));
    assert!(result.contains("280  unchanged"), "{result}");
    for (what, n) in [("deliveries-001 deliveries-002", 2), ("--filter domain=deliveries", 24)] {
        let result = t.ok(&format!("delete {engine} --dry-run {what}"));
        assert_eq!(result, format!("{n} dialogues would be deleted\n"));
    }
    assert_eq!(t.ok(&format!("delete {engine} deliveries-001 deliveries-002")), "2 dialogues deleted\n");
    let gone = t.run(&format!("corpus show {engine} deliveries-001"));
    assert!(gone.code == 2 && gone.err.contains("holds no dialogue `deliveries-001`"), "{gone:?}");
    let none = t.run(&format!("delete {engine} deliveries-001"));
    assert!(none.code == 2 && none.err.contains("has none of the 1 dialogue named"), "{none:?}");
    let result = t.ok(&format!("delete {engine} --filter domain=deliveries"));
    assert!(result.ends_with(" dialogues deleted\n"), "{result}");
    // After a restart, the server has the same data.
    server.restart();
    let result = t.ok(&format!("ingest {engine} {SAMPLES}"));
    assert!(result.contains("unchanged") && result.contains("280 dialogues with 3,208 turns"), "{result}");
    alike("search parcel");
}

#[test]
fn without_vectors_lexical_search_works() {
    let Some(server) = Server::start() else { return };
    let t = Turnwise::new();
    let engine = format!("--engine {}", server.target("words"));
    t.ok(&format!("ingest {engine} --no-encode {SAMPLES}"));
    let found = t.json(&format!("search parcel {engine}"));
    assert!(found["mode"] == "bm25" && ids(&found).len() == 10, "{found}");
    let refused = t.run(&format!("search parcel --mode dense {engine}"));
    assert!(refused.code == 2 && refused.err.contains("have no vectors"), "{refused:?}");
}

#[test]
fn throughput_uses_an_unused_name() {
    let Some(server) = Server::start() else { return };
    let t = Turnwise::new();
    let model = t.model();
    let engine = format!("--engine {}", server.target("speed"));
    let line = format!("bench throughput {SAMPLES} --model {model} --queries 20 {engine}");
    let measured = t.json(&line);
    assert_eq!((&measured["dialogues"], &measured["turns"]), (&280.into(), &3208.into()));
    assert_eq!(measured["engine"], server.target("speed").to_string());
    let modes: Vec<&str> =
        measured["searches"].as_array().unwrap().iter().map(|s| s["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["lexical", "dense", "hybrid"]);
    // The name is removed, so the benchmark can be repeated. An existing name is refused.
    t.run(&format!("search parcel {engine}")).says(2, &["there are no dialogues at"]);
    assert!(t.ok(&line).contains(" in milvus://127.0.0.1:"));
    t.ok(&format!("ingest {engine} --no-encode {SAMPLES}"));
    t.run(&line).says(2, &["already has dialogues", "use a name that does not exist yet"]);
    assert_eq!(ids(&t.json(&format!("search parcel {engine}"))).len(), 10);
    // One report contains the results of a local index and of Milvus.
    t.ok(&format!("bench throughput {SAMPLES} --model {model} --queries 20"));
    t.ok("bench report -o a.md");
    let report = t.read("a.md");
    assert_eq!(report.matches("| hybrid |").count(), 2, "{report}");
    assert!(report.contains("in milvus://127.0.0.1:"), "{report}");
}

#[test]
fn commands_that_need_a_local_index_refuse_an_engine() {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}"));
    for command in ["stats", "verify", "index build", "clusters", "bench ann"] {
        let refused = t.run(&format!("{command} --engine milvus://127.0.0.1:1/chats"));
        assert!(
            refused.code == 2 && refused.err.contains("needs an index on this machine"),
            "{command}: {refused:?}"
        );
    }
    for command in ["bench sr a.txt -r bm25", "bench smoke", "bench ann --vectors a.npy", "bench report"] {
        let refused = t.run(&format!("{command} --engine milvus://127.0.0.1:1/chats"));
        refused.says(2, &["does not use milvus://127.0.0.1:1/chats", "bench throughput --engine"]);
    }
    for command in ["demo", "doctor", "embed more.jsonl -o x.npy", "corpus formats", "analyze parcel"] {
        let refused = t.run(&format!("{command} --engine milvus://127.0.0.1:1/chats"));
        assert!(
            refused.code == 2 && refused.err.contains("neither searches nor fills Milvus"),
            "{command}: {refused:?}"
        );
    }
    for (command, code, says) in [
        ("search parcel --engine milvus://127.0.0.1:1/chats", 6, "Milvus at 127.0.0.1:1 cannot be reached"),
        ("search parcel --engine localhost/chats", 2, "is not a Milvus address"),
        ("search parcel --engine milvus://me:secret@h/chats", 2, "must not contain a user or a password"),
        ("search parcel -i x --engine milvus://h/chats", 2, "cannot be used with"),
        ("ingest -i x --model m x.jsonl", 2, "--model needs --engine"),
    ] {
        let refused = t.run(command);
        assert!(
            refused.code == code && refused.err.contains(says) && !refused.err.contains("secret"),
            "{command}: {refused:?}"
        );
    }
    let mut command = t.command(&["search", "parcel", "--engine", "milvus://db.example/chats"]);
    let refused = Outcome::of(command.env("TURNWISE_MILVUS_TOKEN", "root:Milvus").output().unwrap());
    assert!(refused.code == 2 && refused.err.contains("would be sent unencrypted"), "{refused:?}");
}
