//! Tests of hybrid search: fusion, context, filters, batches and tuning.

use std::fs;

use serde_json::{Value, json};

use crate::support::{SAMPLES, Turnwise};

/// Creates an index of the sample dialogues, with vectors of a static model.
fn indexed() -> Turnwise {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}"));
    t.ok(&format!("model fit {SAMPLES} -o fitted --dim 64"));
    t.ok("encode -i x --model ./fitted");
    t.ok("index build -i x");
    t
}

fn ids(found: &Value) -> Vec<&str> {
    found["hits"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap()).collect()
}

fn search(t: &Turnwise, args: &[&str]) -> Value {
    t.run_args(&[&["search", "-i", "x", "--format", "json"], args].concat()).json()
}

#[test]
fn hybrid_search_explains_each_hit() {
    let t = indexed();
    let query = "my parcel is late, please send me the money back to my bank account";
    let found = search(&t, &[query, "-k", "5", "--explain", "--fusion", "rrf", "--bm25-weight", "1"]);
    assert_eq!((&found["mode"], ids(&found).len()), (&json!("hybrid"), 5));
    assert!(
        found["candidates"]["dense"].as_u64() >= Some(100)
            && found["candidates"]["bm25"].as_u64() >= Some(100)
    );
    for hit in found["hits"].as_array().unwrap() {
        let why = &hit["explanation"];
        let part = |list: &str| match why[list]["rank"].as_f64() {
            Some(rank) => 1.0 / (60.0 + rank),
            None => 0.0,
        };
        let score = hit["score"].as_f64().unwrap();
        assert!((part("dense") + part("bm25") - score).abs() < 1e-6, "{hit}");
    }
    let text = t.run_args(&["search", "-i", "x", "my parcel is late", "-k", "2", "--explain"]).out;
    for outcome in [
        "1 × 0.",
        " dense + 0.5 × ",
        "dense, with neighboring turns: cosine 0.",
        "BM25, with neighboring turns: score ",
        ": in this turn",
        "dense: cosine 0.",
        "BM25: score ",
        ": idf ",
        "encoding ",
        ", hybrid search in ",
    ] {
        assert!(text.contains(outcome), "{outcome}: {text}");
    }
    let weighted =
        search(&t, &["my parcel is late", "--fusion", "weighted", "--dense-weight", "0", "-k", "3"]);
    assert_eq!(ids(&weighted), ids(&search(&t, &["my parcel is late", "--mode", "bm25", "-k", "3"])));
    let exact = search(&t, &["my parcel is late", "--rerank", "exact", "-k", "3"]);
    let scores: Vec<f64> =
        exact["hits"].as_array().unwrap().iter().map(|h| h["score"].as_f64().unwrap()).collect();
    assert!(scores[0] > 0.3 && scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    t.run("search -i x 🙂")
        .says(0, &["warning: `🙂` contains no searchable words; only the dense search uses it\n"]);
    for method in ["maxsim", "maxsim-static"] {
        t.run(&format!("search -i x hello --rerank {method}"))
            .says(2, &["has no token vectors\nhint: use a transformer"]);
    }
    t.run("search -i x hello --mode bm25 --rerank exact").says(2, &["reranking requires a dense search"]);
    t.run("search -i x hello --dense-weight 0 --bm25-weight 0")
        .says(2, &["not both 0\nhint: the default weights are 1 for dense"]);
}

#[test]
fn filters_pages_and_groups() {
    let t = indexed();
    for mode in ["hybrid", "dense", "bm25"] {
        let user =
            search(&t, &["refund", "--mode", mode, "--filter", "role=user and domain=billing", "-k", "30"]);
        assert!(user["candidates"]["admitted"].as_u64().unwrap() > 0);
        for hit in user["hits"].as_array().unwrap() {
            assert_eq!(
                (&hit["turn"]["role"], &hit["domains"][0]),
                (&json!("user"), &json!("billing")),
                "{hit}"
            );
        }
        let all = search(&t, &["refund", "--mode", mode, "-k", "8"]);
        let page = search(&t, &["refund", "--mode", mode, "-k", "3", "--offset", "4"]);
        assert_eq!(ids(&page), ids(&all)[4..7], "{mode}");
        let grouped = search(&t, &["refund", "--mode", mode, "--group", "dialogue"]);
        let mut dialogues: Vec<&str> =
            grouped["hits"].as_array().unwrap().iter().map(|h| h["dialogue"].as_str().unwrap()).collect();
        dialogues.sort_unstable();
        dialogues.dedup();
        assert_eq!(dialogues.len(), ids(&grouped).len());
    }
    let none = t.run_args(&["search", "-i", "x", "refund", "--filter", "domain=nothing"]);
    assert_eq!((none.code, none.out.as_str()), (0, "no results for `refund`: nothing matches the filter\n"));
    t.run("search -i x refund --filter domian=x")
        .says(2, &["unknown filter field `domian` (did you mean `domain`?)"]);
    let sure = search(&t, &["refund please", "--mode", "dense", "--min-percentile", "99.5", "-k", "500"]);
    let percentiles: Vec<f64> =
        sure["hits"].as_array().unwrap().iter().map(|h| h["percentile"].as_f64().unwrap()).collect();
    assert!(!percentiles.is_empty() && percentiles.iter().all(|p| *p >= 99.5) && percentiles.len() < 500);
    let far = search(&t, &["refund", "--mode", "bm25", "--min-score", "1000"]);
    assert!(ids(&far).is_empty());
}

#[test]
fn context_turns_change_the_results() {
    let t = indexed();
    let alone = search(&t, &["how long does it take?", "-k", "10"]);
    let turns =
        ["--turn", "I want my refund", "--turn", "we have received your return", "how long does it take?"];
    let outcome = search(&t, &[&turns[..], &["-k", "10"]].concat());
    assert_ne!(ids(&alone), ids(&outcome));
    let meaning = outcome["effective"]["meaning"].as_array().unwrap();
    assert_eq!(
        meaning.iter().map(|m| m["text"].as_str().unwrap()).collect::<Vec<_>>(),
        [turns[1], turns[3], turns[4]]
    );
    assert_eq!(outcome["effective"]["words"], json!(["long", "take"]));
    // The results are the same for context from lines of a file, from a dialogue in a file, and from --turn.
    t.write("said.txt", "I want my refund\nwe have received your return\n\nhow long does it take?\n");
    let of_file = search(&t, &["--context", "said.txt"]);
    assert_eq!((ids(&of_file), &of_file["query"]), (ids(&outcome), &json!("how long does it take?")));
    t.write("said.json", r#"{"messages":[{"role":"user","content":"I want my refund"},{"role":"assistant","content":"we have received your return"}]}"#);
    let of_dialogue = search(&t, &["--context", "said.json", "how long does it take?"]);
    assert_eq!(ids(&of_dialogue), ids(&outcome));
    let text = t.run_args(&[&["search", "-i", "x"], &turns[..]].concat()).out;
    assert!(text.starts_with("dense query: 0.49 × \"how long does it take?\" + 0.34 × "), "{text}");
    t.write("empty.txt", "\n\n");
    t.run("search -i x --context empty.txt").says(3, &["empty.txt has no text"]);
    t.run("search -i x").says(2, &["<QUERY>"]);
}

#[test]
fn similar_finds_items_like_an_utterance_a_dialogue_and_a_file() {
    let t = indexed();
    let utterance = t.json("similar -i x deliveries-009#1");
    assert_eq!((&utterance["of"], ids(&utterance).len()), (&json!("utterances"), 10));
    assert!(ids(&utterance).iter().all(|id| *id != "deliveries-009#1"));
    let dialogue = t.json("similar -i x deliveries-009 -k 3");
    assert_eq!((&dialogue["of"], &dialogue["mode"]), (&json!("dialogues"), &json!("hybrid")));
    assert!(ids(&dialogue).len() == 3 && !ids(&dialogue).contains(&"deliveries-009"), "{dialogue}");
    let words = dialogue["effective"]["words"].as_array().unwrap();
    // Terms that occur in many dialogues, or in no other dialogue, are not used.
    for (word, tells) in [("parcel", true), ("the", false), ("castelblanco", false)] {
        assert_eq!(words.contains(&json!(word)), tells, "{word}: {words:?}");
    }
    let same: Value = t.dialogues("x").into_iter().find(|d| d["id"] == "deliveries-009").unwrap();
    t.write("one.jsonl", format!("{same}\n"));
    let of_file = t.json("similar -i x --dialogue one.jsonl -k 1");
    assert_eq!(ids(&of_file), ["deliveries-009"]);
    t.write("two.jsonl", format!("{same}\n{same}\n"));
    t.run("similar -i x --dialogue two.jsonl").says(3, &["has more than one dialogue"]);
    t.run("similar -i x nobody").says(2, &["holds no dialogue `nobody`"]);
    t.run("similar -i x deliveries-009#99").says(2, &["deliveries-009 has no turn 99; its last turn is "]);
}

#[test]
fn a_query_file_gives_json_lines_or_a_trec_run() {
    let t = indexed();
    t.write(
        "q.txt",
        "my parcel is late\n\n{\"id\":\"q2\",\"query\":\"refund\",\"k\":2,\"filter\":\"role=agent\"}\n{\"id\":3,\"like\":\"billing-001\"}\n",
    );
    let out = t.ok("search -i x --queries q.txt -k 4");
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines.iter().map(|l| l["id"].clone()).collect::<Vec<_>>(),
        [json!("1"), json!("q2"), json!("3")]
    );
    assert_eq!(lines.iter().map(|l| ids(l).len()).collect::<Vec<_>>(), [4, 2, 4]);
    assert_eq!(ids(&lines[0]), ids(&search(&t, &["my parcel is late", "-k", "4"])));
    assert!(lines[1]["hits"].as_array().unwrap().iter().all(|h| h["turn"]["role"] == "agent"));
    assert_eq!(ids(&lines[2]), ids(&t.json("similar -i x billing-001 -k 4")));
    let run = t.ok("search -i x --queries q.txt -k 4 --run mine");
    let first: Vec<&str> = run.lines().next().unwrap().split(' ').collect();
    assert_eq!(
        (first[0], first[1], first[2], first[3], first[5]),
        ("1", "Q0", ids(&lines[0])[0], "1", "mine")
    );
    assert_eq!(run.lines().count(), 10);
    t.write("bad.txt", "fine\n{\"query\":\"x\",\"kk\":1}\n");
    t.run("search -i x --queries bad.txt").says(3, &["bad.txt:2: unknown field `kk`"]);
    t.write("bad.txt", "{\"id\":\"2\",\"query\":\"x\"}\nfine\n");
    t.run("search -i x --queries bad.txt").says(3, &["bad.txt:2: the id `2` is already used in line 1"]);
    t.run("search -i x --run r parcel").says(2, &["--run needs a file of queries"]);
    assert_eq!(t.ok("search -i x parcel --offset 9999"), "no results for `parcel` after the first 9999\n");
    t.run("search -i x parcel -k 0").says(2, &["must be a positive integer"]);
    t.run("search -i x parcel -k -1").says(2, &["must be a positive integer"]);
    t.write("bad.txt", "fine\n{\"query\":\"x\",\"filter\":\"domian=x\"}\n");
    t.run("search -i x --queries bad.txt")
        .says(3, &["bad.txt:2: unknown filter field `domian` (did you mean `domain`?)"]);
}

#[test]
fn an_ingest_into_an_index_with_a_model_also_encodes() {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}/deliveries.jsonl"));
    let outcome = t.run(&format!("ingest -i x {SAMPLES}/deliveries.jsonl"));
    outcome.says(0, &["for dense search, run `turnwise model pull` and then `turnwise encode -i indexes/x`"]);
    t.ok(&format!("model fit {SAMPLES} -o fitted --dim 64"));
    t.ok("encode -i x --model ./fitted");
    let out = t.ok(&format!("ingest -i x {SAMPLES}"));
    assert!(out.contains(" utterances encoded\n") && out.contains(" utterances in a graph of "), "{out}");
    let found = search(&t, &["garden centre payments", "--bm25-weight", "9", "-k", "1"]);
    assert_eq!((&found["mode"], ids(&found)), (&json!("hybrid"), vec!["banking-001#1"]));
    let again = t.run_args(&["ingest", "-i", "x", SAMPLES, "--format", "json"]).json();
    assert_eq!((&again["encoded"]["seen"], again.get("graphs")), (&json!(0), None));
}

#[test]
fn a_search_without_a_model_warns_and_uses_bm25() {
    let t = indexed();
    t.write("indexes/x/lexical/utterances/meta.json", "{");
    t.run("search -i x parcel").says(4, &["lexical/utterances", "hint: `turnwise index build` rebuilds it"]);
    assert_eq!(search(&t, &["parcel", "--mode", "dense"])["mode"], "dense");
    fs::remove_dir_all(t.path("indexes/x/lexical")).unwrap();
    t.run("search -i x parcel").says(
        0,
        &["warning: lexical search is off: indexes/x has no lexical index yet; `turnwise index build -i "],
    );
    t.ok("index build -i x");
    assert_eq!(search(&t, &["parcel"])["mode"], "hybrid");
}

#[test]
fn percentiles_of_dialogue_searches_compare_utterances_with_dialogues() {
    let t = indexed();
    let best = |args: &[&str]| search(&t, args)["hits"][0]["percentile"].as_f64().unwrap();
    // Dialogues are more similar to each other than to a short text.
    let short = best(&["my parcel never came", "--of", "dialogues", "--mode", "dense"]);
    assert!(short > 95.0, "{short}");
}

#[test]
fn fusion_weights_are_tuned_on_relevant_results() {
    let t = indexed();
    // The first turn of the user should find its dialogue, and other dialogues of the domain.
    let dialogues = t.dialogues("x");
    let domain = |d: &Value| d["domains"][0].clone();
    let lines: String = dialogues
        .iter()
        .step_by(9)
        .map(|d| {
            let relevant: Vec<&Value> =
                dialogues.iter().filter(|o| domain(o) == domain(d)).map(|o| &o["id"]).collect();
            format!("{}\n", json!({"query": d["turns"][0]["text"], "of": "dialogues", "relevant": relevant}))
        })
        .collect();
    t.write("labeled.jsonl", lines);
    let tuned = t.json("search -i x tune labeled.jsonl");
    assert_eq!(tuned["schema"], "turnwise/tune/1");
    let tried = tuned["tried"].as_array().unwrap();
    let map = |t: &Value| t["quality"]["map"].as_f64().unwrap();
    assert!(tried.len() > 20 && tried.is_sorted_by(|a, b| map(a) >= map(b) - 1e-9), "{tuned}");
    assert!(
        map(&tried[0]) > map(tried.last().unwrap())
            && map(&tried[0]) >= tuned["unasked"]["map"].as_f64().unwrap()
    );
    assert!(tuned["expected"]["map"].as_f64().unwrap() <= map(&tried[0]) + 1e-9);
    let text = t.ok("search -i x tune labeled.jsonl");
    assert!(text.contains(" over 32 queries\n") && text.contains("  default\n"), "{text}");
    // A setting that is not better is not stored. With the default, the beginning of a dialogue finds the dialogue.
    let itself = |d: &Value| {
        let beginning: Vec<&str> = (0..4).map(|n| d["turns"][n]["text"].as_str().unwrap()).collect();
        let relevant = [&d["id"]];
        format!("{}\n", json!({"query": beginning.join(" "), "of": "dialogues", "relevant": relevant}))
    };
    t.write("itself.jsonl", dialogues.iter().step_by(9).map(itself).collect::<String>());
    let kept = t.ok("search -i x tune itself.jsonl --save");
    assert!(kept.contains("\nindexes/x is unchanged: "), "{kept}");
    assert_eq!(search(&t, &["parcel"])["tuned"], false);

    // Dense search does not find numbers, so the best BM25 weight is larger than the default.
    let turns =
        || dialogues.iter().flat_map(|d| d["turns"].as_array().unwrap().iter().map(move |turn| (d, turn)));
    let text = |turn: &Value| turn["text"].as_str().unwrap().to_owned();
    let number = |turn: &Value| {
        let text = text(turn);
        let all = |word: &str| word.len() >= 4 && word.chars().all(|c| c.is_ascii_digit());
        text.split_whitespace().find(|word| all(word)).map(str::to_owned)
    };
    let lines: String = turns()
        .filter_map(|(_, turn)| number(turn))
        .map(|number| {
            let says = |turn: &Value| text(turn).split_whitespace().any(|word| word == number);
            let relevant: Vec<String> = turns()
                .filter(|(_, turn)| says(turn))
                .map(|(d, turn)| format!("{}#{}", d["id"].as_str().unwrap(), turn["number"]))
                .collect();
            format!("{}\n", json!({"query": number, "relevant": relevant}))
        })
        .collect();
    t.write("numbers.jsonl", lines);
    let tuned = t.json("search -i x tune numbers.jsonl");
    let tried = tuned["tried"].as_array().unwrap();
    let saved = t.ok("search -i x tune numbers.jsonl --save");
    assert!(saved.contains("\nindexes/x now uses --"), "{saved}");
    let default_fusion = |t: &Turnwise| search(t, &["parcel"])["fusion"].clone();
    let best = &tried[0]["fusion"];
    assert_eq!(&default_fusion(&t), best);
    // A batch uses the stored setting, too. A request with its own fusion settings ignores it.
    t.write("queries.txt", "parcel\n");
    assert_eq!(&t.json("search -i x --queries queries.txt")["fusion"], best);
    assert_eq!(
        search(&t, &["parcel", "--rrf-k", "7"])["fusion"],
        json!({"method": "context", "k": 7.0, "dense": 1.0, "bm25": 0.5, "speaker": 0.2, "date": 0.2})
    );
    assert!(t.ok("index info -i x").contains("  tuned  --"));
    assert!(t.ok("search -i x parcel").contains(", hybrid search (tuned) in "));
    // If the default is the best setting, nothing changes.
    let again = t.ok("search -i x tune numbers.jsonl --save");
    assert!(again.contains("\nindexes/x is unchanged: "), "{again}");
    assert_eq!(&default_fusion(&t), best);
    t.ok("backup -i x copy");
    t.ok("restore -i y copy");
    assert_eq!(t.json("index info -i y")["tuning"]["fusion"], *best);
    t.write("indexes/x/tuning.json", "{}");
    t.run("search -i x parcel")
        .says(4, &["tuning.json", "hint: `turnwise search -i indexes/x tune --reset` removes it"]);
    assert!(t.ok("index info -i x").contains("  tuning: it is unreadable"));
    t.run("backup -i x without").says(0, &["warning: the tuned search settings were not copied: "]);
    t.run("verify -i x").says(4, &["1 damaged place found"]);
    t.run("repair -i x").says(0, &["the index uses the defaults again"]);
    assert_eq!(default_fusion(&t)["method"], "context");
    t.ok("search -i x tune numbers.jsonl --save");
    assert_eq!(t.ok("search -i x tune --reset"), "indexes/x uses the built-in defaults again\n");
    assert_eq!(default_fusion(&t)["method"], "context");
    t.run("search -i x refund tune labeled.jsonl")
        .says(2, &["`search tune` takes no query, but got `refund`"]);
    // Unknown ids are reported and ignored.
    let one = json!({"query": "parcel", "relevant": ["nosuch#1", "deliveries-001", "deliveries-001#1"]});
    t.write("few.jsonl", format!("{one}\n{}\n", json!({"query": "card", "relevant": ["banking-001#1"]})));
    t.run("search -i x tune few.jsonl").says(
        0,
        &["warning: 2 relevant ids ignored, because indexes/x cannot return them for these queries, such as `deliveries-001`"],
    );
    t.write("few.jsonl", format!("{one}\n"));
    t.run("search -i x tune few.jsonl").says(
        3,
        &[
            "fewer than two queries have a relevant result in the index",
            "hint: `deliveries-001` is not in indexes/x",
        ],
    );
    t.write("bad.jsonl", "{\"query\":\"x\",\"relevant\":[\"a\"],\"kk\":1}\n");
    t.run("search -i x tune bad.jsonl")
        .says(3, &["bad.jsonl:1: unknown field `kk`", "hint: a line looks like {"]);
    t.run_args(&["search", "-i", "x", "--mode", "bm25", "--", "tune"]).says(0, &[]);
}
