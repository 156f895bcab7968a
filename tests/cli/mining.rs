//! Tests of `duplicates` and `clusters`.

use serde_json::Value;

use crate::support::{SAMPLES, Turnwise, record};

/// Creates an index of the sample dialogues and 30 copies of one more dialogue, with vectors of a static model.
fn encoded() -> Turnwise {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}"));
    let more: String = (0..30).map(|n| record(&format!("copy-{n:02}"), "my parcel is late")).collect();
    t.write("more.jsonl", more + &record("other", "is my parcel late"));
    t.ok("ingest -i x more.jsonl");
    t.ok(&format!("model fit {SAMPLES} -o fitted --dim 64"));
    t.ok("encode -i x --model ./fitted");
    t
}

fn sizes(found: &Value, of: &str) -> Vec<u64> {
    found[of].as_array().unwrap().iter().map(|group| group["size"].as_u64().unwrap()).collect()
}

#[test]
fn an_index_without_vectors_gets_a_hint() {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}"));
    for command in ["duplicates", "clusters"] {
        t.run(&format!("{command} -i x")).says(
            2,
            &["indexes/x has no vectors yet\n", "hint: `turnwise encode -i indexes/x` creates them"],
        );
    }
}

#[test]
fn frequent_utterances_form_one_group_before_and_after_a_build() {
    let t = encoded();
    let line = "duplicates -i x --threshold 0.999";
    let before = t.json(line);
    assert_eq!((&before["schema"], &before["of"]), (&"turnwise/duplicates/1".into(), &"utterances".into()));
    let largest = &before["groups"][0];
    assert_eq!((&largest["size"], &largest["dialogues"]), (&31.into(), &31.into()), "{largest}");
    let sizes_before = sizes(&before, "groups");
    assert!(sizes_before.is_sorted_by(|a, b| a >= b) && sizes_before.iter().all(|size| *size > 1));
    let first = &largest["members"][0];
    assert_eq!((&first["text"], &first["count"]), (&"One moment, please.".into(), &31.into()));
    assert_eq!(first["ids"], serde_json::json!(["other#2", "copy-29#2", "copy-28#2"]));

    t.ok("index build -i x");
    let after = t.json(line);
    assert_eq!((sizes(&after, "groups"), &after["groups_found"]), (sizes_before, &before["groups_found"]));
    assert_eq!(t.json(&format!("{line} --exact"))["groups"], after["groups"]);

    let one = t.json(&format!("{line} --limit 1 --members 1"));
    assert_eq!((sizes(&one, "groups").len(), one["groups"][0]["members"].as_array().unwrap().len()), (1, 1));
    let text = t.ok(&format!("{line} --limit 1"));
    assert!(text.starts_with(" 1. 31 utterances  in 31 dialogues"), "{text}");
    assert!(
        text.contains("× 1.00  ") && text.contains(", 1 of them shown (cosine of 0.999 or more"),
        "{text}"
    );

    // Equal dialogues form a group of dialogues. A filter excludes other dialogues.
    let dialogues = t.json("duplicates -i x --of dialogues --threshold 0.999 --filter id~copy");
    assert_eq!((sizes(&dialogues, "groups"), &dialogues["looked_at"]), (vec![30], &30.into()));
    let member = &dialogues["groups"][0]["members"][0];
    assert_eq!((&member["ids"][0], &member["turns"]), (&"copy-29".into(), &2.into()));
    assert_eq!(member["text"], "my parcel is late");
    let none = t.ok("duplicates -i x --of dialogues --filter id=other");
    assert_eq!(none, "no pairs among 1 dialogue have a cosine of 0.95 or more\n");
    t.run("duplicates -i x --threshold 2")
        .says(2, &["error: the threshold must be from -1 to 1, not 2", "hint: 0.95 finds"]);
    t.run("duplicates -i x --filter domian=x").says(2, &["did you mean `domain`"]);
}

#[test]
fn a_map_of_topics_is_reproducible() {
    let t = encoded();
    let map = t.json("clusters -i x -k 5");
    assert_eq!((&map["schema"], &map["seed"]), (&"turnwise/clusters/1".into(), &0.into()));
    let sizes_of = sizes(&map, "clusters");
    assert_eq!((sizes_of.len(), sizes_of.iter().sum::<u64>()), (5, map["dialogues"].as_u64().unwrap()));
    assert!(sizes_of.is_sorted_by(|a, b| a >= b), "{sizes_of:?}");
    for cluster in map["clusters"].as_array().unwrap() {
        let central = cluster["central"].as_array().unwrap();
        assert!((1..=2).contains(&central.len()) && central[0]["id"].is_string(), "{cluster}");
        assert!(cluster["terms"].as_array().unwrap().len() <= 8);
    }
    let same = t.run("clusters -i x -k 5 --threads 1 --format json").json();
    assert_eq!(same["clusters"], map["clusters"]);
    let (purity, domains) = (map["purity"]["purity"].as_f64().unwrap(), &map["purity"]["domains"]);
    assert!(purity > 0.0 && purity <= 1.0 && *domains == 12, "{}", map["purity"]);

    let chosen = t.json("clusters -i x --seed 3 --top-terms 2 --top-dialogues 1");
    let (clusters, tried) = (chosen["clusters"].as_array().unwrap(), chosen["tried"].as_array().unwrap());
    assert!(clusters.len() > 1 && tried.iter().any(|one| one["k"] == clusters.len()), "{tried:?}");
    let text = t.ok("clusters -i x -k 3 --filter not(id~copy)");
    assert!(
        text.starts_with(" 1. ") && text.contains("\n3 clusters of ") && text.contains(", purity "),
        "{text}"
    );
    assert_eq!(t.ok("clusters -i x --filter id=nobody"), "no dialogues to cluster\n");
    t.run("clusters -i x -k 0").says(2, &["invalid value '0'"]);

    // Dialogues without vectors are reported and omitted.
    t.write("new.jsonl", record("new", "never encoded before"));
    t.ok("ingest -i x --no-encode new.jsonl");
    let behind = t.run("clusters -i x -k 2");
    behind.says(0, &["warning: 1 dialogue without a vector skipped; `turnwise encode -i indexes/x`"]);
    t.run("duplicates -i x").says(0, &["without a vector skipped"]);
}
