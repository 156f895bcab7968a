//! Tests of `encode --assemble PLACE INPUT… --engine ADDRESS`, which stores dialogues in Milvus with the vectors of
//! shards.

use std::fs;

use serde_json::Value;

use crate::{
    milvus::server::Server,
    support::{SAMPLES, Turnwise},
};

/// Creates a test folder. It contains a file with `times` copies of the sample dialogues under different ids, a model,
/// and the shards of the file.
fn sharded(times: usize) -> Turnwise {
    let t = Turnwise::new();
    t.ok(&format!("model fit {SAMPLES} -o fitted --dim 32"));
    t.ok(&format!("corpus convert {SAMPLES} -o once.jsonl"));
    let once = t.read("once.jsonl");
    let named = |n: usize| once.replace("{\"id\":\"", &format!("{{\"id\":\"{n}-"));
    t.write("in.jsonl", (0..times).map(named).collect::<String>());
    t.ok("encode --shard 0-3/4 in.jsonl --out shards --model ./fitted");
    t
}

fn hits(found: &Value) -> Vec<(String, String)> {
    let hit = |hit: &Value| {
        (hit["id"].as_str().unwrap().to_owned(), format!("{:.4}", hit["score"].as_f64().unwrap_or(0.0)))
    };
    found["hits"].as_array().unwrap().iter().map(hit).collect()
}

#[test]
fn assembly_into_milvus_gives_the_same_results_as_an_ingest() {
    let Some(server) = Server::start() else { return };
    let t = sharded(1);
    let [one, other] = ["ingested", "assembled"].map(|name| server.target(name).to_string());
    t.ok(&format!("ingest --engine {one} --model ./fitted in.jsonl"));
    // Assembling needs no encoder, so it works without the model.
    fs::rename(t.path("fitted"), t.path("away")).unwrap();
    let result = t.ok(&format!("encode --assemble shards in.jsonl --engine {other}"));
    assert!(result.contains("280  added") && result.contains("280 dialogues with 3,208 turns"), "{result}");
    fs::rename(t.path("away"), t.path("fitted")).unwrap();
    for question in [
        "search parcel --mode dense",
        "search refund --mode bm25 -k 20",
        "search refund --of dialogues --mode dense",
        "search parcel --filter role=user",
        "similar 0-deliveries-001#1 --mode dense",
    ] {
        let [ingested, assembled] =
            [&one, &other].map(|address| hits(&t.json(&format!("{question} --engine {address}"))));
        assert_eq!(ingested, assembled, "{question}");
    }
    // A repeated assembly changes nothing. A later ingest needs the encoder that made the vectors.
    let result = t.ok(&format!("encode --assemble shards in.jsonl --engine {other}"));
    assert!(result.contains("280  unchanged"), "{result}");
    assert!(t.ok(&format!("ingest --engine {other} in.jsonl")).contains("280  unchanged"));
    // `--replace` replaces the dialogues; the new vectors can be from a different encoder.
    t.ok(&format!("model fit {SAMPLES} -o wider --dim 48"));
    t.ok("encode --shard 0-1/2 in.jsonl --out wide --model ./wider");
    t.run(&format!("encode --assemble wide in.jsonl --engine {other}"))
        .says(2, &["has", "--replace replaces"]);
    let result = t.ok(&format!("encode --assemble wide in.jsonl --engine {other} --replace"));
    assert!(result.contains("280  added") && result.contains("now holds 280 dialogues"), "{result}");
    let stats = t.json(&format!("search parcel --mode dense --engine {other}"));
    assert_eq!(hits(&stats).len(), 10);
}

#[test]
fn missing_shards_and_vectors_are_refused_before_anything_is_written() {
    let Some(server) = Server::start() else { return };
    let t = sharded(1);
    let address = server.target("chats").to_string();
    let assemble = format!("encode --assemble shards in.jsonl --engine {address}");
    let nothing_there = || {
        t.run(&format!("search parcel --engine {address}")).says(2, &["there are no dialogues at"]);
    };
    let record = t.path("shards/shard-00002-of-00004.json");
    let bytes = fs::read(&record).unwrap();
    fs::remove_file(&record).unwrap();
    t.run(&assemble).says(3, &["2/4 is missing", "turnwise encode --shard=2/4 --out=shards in.jsonl"]);
    nothing_there();
    fs::write(&record, bytes).unwrap();
    // Test dialogues that were added to the input after the shards were created.
    let text = t.read("in.jsonl");
    let first = text.lines().next().unwrap();
    let id = serde_json::from_str::<Value>(first).unwrap()["id"].as_str().unwrap().to_owned();
    let changed = first.replace("\"text\":\"", "\"text\":\"never said before: ");
    t.write("in.jsonl", text.replace(first, &changed));
    let refused = t.run(&assemble);
    refused.says(
        3,
        &[&format!("{id}#1 has no vector in the shards in shards, and neither have"), "nothing was written"],
    );
    nothing_there();
    // The command in the error message creates the missing shards.
    let hint = refused.err.split('`').find(|part| part.starts_with("turnwise encode --shard=")).unwrap();
    t.ok(hint.strip_prefix("turnwise ").unwrap());
    assert!(t.ok(&assemble).contains("280  added"));
    for (line, code, says) in [
        (
            format!("encode --assemble shards --engine {address}"),
            2,
            "the dialogues must be read from the input files",
        ),
        (format!("encode --assemble shards - --engine {address}"), 2, "cannot be read twice"),
        ("encode --assemble shards in.jsonl -i x".to_owned(), 2, "is only read with --engine"),
        ("encode in.jsonl -i x".to_owned(), 2, "would only be read with --shard"),
    ] {
        t.run(&line).says(code, &[says]);
    }
    t.ok("encode --shard 0/1 in.jsonl --out half --model ./fitted --of utterances");
    t.run(&format!("encode --assemble half in.jsonl --engine {address}"))
        .says(2, &["have no vectors of dialogues", "--of both"]);
}

#[test]
fn a_killed_assembly_continues_without_duplicates() {
    let Some(server) = Server::start() else { return };
    let t = sharded(5);
    let address = server.target("chats").to_string();
    let assemble = format!("encode --assemble shards in.jsonl --engine {address}");
    let mut began = false;
    t.kill_at_increasing_times(&assemble, || {
        began |= t.run(&format!("search parcel --mode bm25 --engine {address}")).code == 0;
        false
    });
    assert!(began, "the assembly was never killed while it wrote");
    let result = t.ok(&assemble);
    assert!(result.contains("1,400  unchanged"), "{result}");
    let totals = result.contains("1,400 dialogues with 16,040 turns");
    assert!(totals, "{result}");
}
