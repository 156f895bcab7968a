//! Threads: dialogues that belong together, in ingest, search, `corpus show`, the server and the web page.

use serde_json::{Value, json};

use crate::support::{Turnwise, id_of, lines};
#[cfg(feature = "serve")]
use crate::{http::Server, webdriver::Browser};

/// Name of a thread with quotes, spaces, punctuation and letters of other scripts.
const ODD: &str = r#"Anna "B" O'Neil and \ (北京)"#;

/// Returns a JSON line with a dialogue.
fn dialogue(fields: &Value, said: &[(&str, &str)]) -> String {
    let turns: Vec<Value> = said.iter().map(|(who, text)| json!({"speaker": who, "text": text})).collect();
    let mut dialogue = fields.clone();
    dialogue["turns"] = turns.into();
    format!("{dialogue}\n")
}

/// Returns an index `x` with a thread of four sessions that are stored out of order, and with other dialogues.
fn with_threads() -> Turnwise {
    let t = Turnwise::new();
    let mut late = json!({"id": "s0", "thread": "maria-jon"});
    late["title"] = "Without a time".into();
    let mut of_turn: Value = serde_json::from_str(&dialogue(
        &json!({"id": "s2", "metadata": {"thread": "maria-jon"}}),
        &[("Maria", "I saw a flat yesterday."), ("Jon", "And?")],
    ))
    .unwrap();
    of_turn["turns"][1]["time"] = "2026-02-01T10:00:00Z".into();
    let text = [
        dialogue(
            &json!({"id": "s3", "thread": "maria-jon", "time": "2026-03-09T10:00:00Z", "title": "The move"}),
            &[("Maria", "The flat is ours, we move in May."), ("Jon", "Great, I bring the van to the flat.")],
        ),
        dialogue(&late, &[("Jon", "Where do you live now? In a flat?")]),
        dialogue(
            &json!({"id": "s1", "thread": "maria-jon", "time": "2026-01-05T10:00:00Z", "source": "private"}),
            &[("Maria", "I look for a flat."), ("Jon", "A flat near the harbour is expensive.")],
        ),
        format!("{of_turn}\n"),
        dialogue(
            &json!({"id": "o1", "thread": ODD, "time": "2026-02-02T10:00:00Z"}),
            &[("Anna", "My flat is cold.")],
        ),
        dialogue(&json!({"id": "c1", "thread": 42}), &[("Zoe", "A flat in the north.")]),
        dialogue(&json!({"id": "n1"}), &[("Zoe", "A flat tyre again.")]),
        dialogue(&json!({"id": "n2"}), &[("Zoe", "Another flat tyre.")]),
    ];
    t.write("t.jsonl", text.concat());
    t.ok("ingest -i x t.jsonl --no-encode");
    t
}

fn search(t: &Turnwise, more: &[&str]) -> Value {
    let line = [&["search", "-i", "x", "flat", "--mode", "bm25", "--format", "json"], more].concat();
    t.run_args(&line).json()
}

fn ids(found: &Value) -> Vec<&str> {
    found["hits"].as_array().unwrap().iter().map(|hit| hit["dialogue"].as_str().unwrap()).collect()
}

fn sorted(mut all: Vec<&str>) -> Vec<&str> {
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn a_search_finds_only_the_hits_of_a_thread() {
    let t = with_threads();
    for restrict in [
        &["--thread", "maria-jon"],
        &["--filter", "thread=maria-jon"],
        &["--filter", "meta.thread=maria-jon"],
    ] {
        assert_eq!(sorted(ids(&search(&t, restrict))), ["s0", "s1", "s2", "s3"], "{restrict:?}");
    }
    assert_eq!(ids(&search(&t, &["--thread", ODD])), ["o1"]);
    assert_eq!(ids(&search(&t, &["--thread", "42"])), ["c1"]);
    let both = ["--thread", "maria-jon", "--filter", "speaker=Jon or speaker=Zoe"];
    assert_eq!(sorted(ids(&search(&t, &both))), ["s0", "s1", "s3"]);
    assert_eq!(
        sorted(ids(&search(&t, &["--of", "dialogues", "--thread", "maria-jon"]))),
        ["s0", "s1", "s2", "s3"]
    );

    let hit = |id: &str| {
        let found = search(&t, &["--filter", &format!("id={id}"), "--group", "dialogue"]);
        found["hits"][0].clone()
    };
    let about = |id: &str| [hit(id)["thread"].clone(), hit(id)["time"].clone()];
    assert_eq!(about("s1"), [json!("maria-jon"), json!("2026-01-05T10:00:00Z")]);
    assert_eq!(about("s2"), [json!("maria-jon"), json!("2026-02-01T10:00:00Z")]);
    assert_eq!(about("c1"), [json!("42"), Value::Null]);
    assert!(hit("n1").get("thread").is_none() && hit("n1").get("time").is_none());
    let text = t.ok("search -i x harbour --window 0");
    assert!(text.contains("  2026-01-05\n    > Jon: A flat near the harbour"), "{text}");

    let out = t.run("search -i x flat --thread maria-john");
    out.says(0, &["no dialogue has the thread `maria-john` (did you mean `maria-jon`?)"]);
    assert!(out.out.starts_with("no results for `flat`"));
    t.run("search -i x flat --thread qqq").says(0, &["no dialogue has the thread `qqq`"]);
    // The thread exists, but no turn matches the filter: the thread is not the problem.
    let filter = "speaker=Maria and text~van";
    let none = t.run_args(&["search", "-i", "x", "flat", "--thread", "maria-jon", "--filter", filter]);
    assert_eq!((none.err.as_str(), none.code), ("", 0), "{none:?}");
    t.run_args(&["search", "-i", "x", "flat", "--thread", " "]).says(2, &["the name of the thread is empty"]);

    t.write(
        "q.jsonl",
        "{\"query\": \"flat\", \"thread\": \"42\"}\n{\"query\": \"flat\", \"thread\": \"\"}\n",
    );
    let out = t.run("search -i x --queries q.jsonl");
    assert!(out.code != 0 && out.err.contains("the name of the thread is empty"), "{out:?}");
}

#[test]
fn groups_are_the_best_hits_of_the_threads() {
    let t = with_threads();
    let all = search(&t, &["-k", "100"]);
    let grouped = search(&t, &["--group", "thread", "-k", "100"]);
    let group = |hit: &Value| hit["thread"].as_str().or(hit["dialogue"].as_str()).unwrap().to_owned();
    // The expected hits: the first hit of each group, and the number of the others.
    let mut expected: Vec<(String, Value, usize)> = Vec::new();
    for hit in all["hits"].as_array().unwrap() {
        match expected.iter_mut().find(|(name, ..)| *name == group(hit)) {
            Some((.., more)) => *more += 1,
            None => expected.push((group(hit), hit["id"].clone(), 0)),
        }
    }
    let given = |found: &Value| -> Vec<(String, Value, usize)> {
        let hits = found["hits"].as_array().unwrap().iter();
        hits.map(|hit| (group(hit), hit["id"].clone(), hit["more"].as_u64().unwrap() as usize)).collect()
    };
    assert_eq!(given(&grouped), expected);
    assert_eq!(expected.len(), 5);
    assert!(expected.iter().any(|(name, _, more)| name == "maria-jon" && *more == 5), "{expected:?}");
    // The number of candidates depends on the page, so the numbers of the others can differ.
    let hits = |all: &[(String, Value, usize)]| all.iter().map(|(_, id, _)| id.clone()).collect::<Vec<_>>();
    let mut paged = Vec::new();
    for offset in ["0", "2", "4", "6"] {
        paged.extend(given(&search(&t, &["--group", "thread", "-k", "2", "--offset", offset])));
    }
    assert_eq!(hits(&paged), hits(&expected));
    let text = t.ok("search -i x flat --group thread --window 0");
    assert!(text.contains("5 more in this thread"), "{text}");
}

#[test]
fn a_group_fetches_more_candidates_than_the_first_list() {
    let t = Turnwise::new();
    // The best 300 hits are all in one thread.
    let best = |n: usize| {
        dialogue(&json!({"id": format!("a{n:03}"), "thread": "one"}), &[("A", "parcel parcel parcel")])
    };
    let other = |n: usize| {
        let text = format!("parcel {}", "and other words ".repeat(9));
        dialogue(&json!({"id": format!("b{n}"), "thread": format!("t{n}")}), &[("B", &text)])
    };
    t.write("t.jsonl", (0..300).map(best).chain((0..5).map(other)).collect::<String>());
    t.ok("ingest -i x t.jsonl --no-encode");
    let found = t.json("search -i x parcel --group thread -k 4");
    let threads: Vec<&str> =
        found["hits"].as_array().unwrap().iter().map(|h| h["thread"].as_str().unwrap()).collect();
    assert_eq!(threads, ["one", "t4", "t3", "t2"]);
    assert_eq!(found["hits"][0]["more"], 299);
}

#[test]
fn show_prints_a_thread_in_the_order_of_time() {
    let t = with_threads();
    let shown = t.json("corpus show -i x --thread maria-jon");
    assert_eq!(shown.as_array().unwrap().iter().map(id_of).collect::<Vec<_>>(), ["s1", "s2", "s3", "s0"]);
    assert_eq!(lines(&t.ok("corpus show -i x --thread maria-jon --format jsonl")).len(), 4);
    let text = t.ok("corpus show -i x --thread maria-jon");
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with('s')).collect();
    assert_eq!(
        headings,
        [
            "s1  2026-01-05T10:00:00Z · 2 turns",
            "s2  2026-02-01T10:00:00Z · 2 turns",
            "s3  2026-03-09T10:00:00Z · The move · 2 turns",
            "s0  no time · Without a time · 1 turn",
        ]
    );
    assert!(text.starts_with("maria-jon  4 dialogues, 7 turns\n"), "{text}");
    assert!(text.contains("\n    2 Jon: Great, I bring the van to the flat.\n"), "{text}");
    assert_eq!(
        t.run_args(&["corpus", "show", "-i", "x", "--thread", ODD, "--format", "json"]).json()[0]["id"],
        "o1"
    );
    let missing = "corpus show -i x --thread maria";
    t.run(missing).says(2, &["no dialogue has the thread `maria`", "did you mean `maria-jon`?"]);
    t.run_args(&["corpus", "show", "-i", "x", "--thread", ""]).says(2, &["the name of the thread is empty"]);
    t.run("corpus show -i x s1 --thread maria-jon").says(2, &["cannot be used with"]);
    t.run("corpus show -i x").says(2, &["<ID>"]);

    // After a change, without an update of the lexical index, the thread is still complete.
    t.write(
        "u.jsonl",
        dialogue(&json!({"id": "s4", "thread": "maria-jon", "time": "2025-01-01"}), &[("Jon", "Hi")]),
    );
    t.ok("ingest -i x u.jsonl --no-index");
    t.ok("delete -i x s3");
    let shown = t.json("corpus show -i x --thread maria-jon");
    assert_eq!(shown.as_array().unwrap().iter().map(id_of).collect::<Vec<_>>(), ["s4", "s1", "s2", "s0"]);
}

#[test]
fn a_long_thread_is_complete() {
    let t = Turnwise::new();
    let one = |n: usize| {
        let time = format!("2026-01-01T{:02}:{:02}:00Z", n % 24, n % 60);
        let fields = json!({"id": format!("d{n:04}"), "thread": "long", "time": time});
        dialogue(&fields, &[("A", "hello there")])
    };
    t.write("t.jsonl", (0..2_000).map(one).collect::<String>());
    t.ok("ingest -i x t.jsonl --no-encode");
    let shown = t.json("corpus show -i x --thread long");
    let times: Vec<&str> = shown.as_array().unwrap().iter().map(|d| d["time"].as_str().unwrap()).collect();
    assert!(times.len() == 2_000 && times.is_sorted());
    assert!(t.ok("corpus show -i x --thread long").starts_with("long  2,000 dialogues, 2,000 turns\n"));
    let found = t.json("search -i x hello --group thread");
    assert_eq!((found["hits"].as_array().unwrap().len(), &found["hits"][0]["thread"]), (1, &json!("long")));
    assert!(t.ok("stats -i x").contains("           1  threads\n"));
}

const CALLS: &str = "call_id,customer_id,speaker,text\n\
    c1,0042,Ann,hello one\nc1,0042,Bo,hi\nc2,17,Ann,hello two\nc3,,Ann,hello three\nc4,17,Ann,hello four\n";

#[test]
fn ingest_takes_the_thread_from_another_column() {
    let t = Turnwise::new();
    t.write("calls.csv", CALLS);
    let threads = |index: &str| -> Vec<Value> {
        t.dialogues(index).iter().map(|d| d["metadata"]["thread"].clone()).collect()
    };
    let refused = t.run("ingest -i x calls.csv --thread custmer_id --no-encode");
    refused.says(
        2,
        &["none of the 4 dialogues", "`custmer_id`", "nothing was ingested", "did you mean `customer_id`?"],
    );
    assert!(t.ids("x").is_empty());
    t.run("ingest -i x calls.csv --thread speaker --no-encode")
        .says(2, &["the metadata keys are: customer_id"]);
    let mapped = "ingest -i x calls.csv --map id=call_id,text=text --thread customer_id --no-encode";
    t.run(mapped).says(2, &["add `thread=COLUMN` to --map"]);
    t.run_args(&["ingest", "-i", "x", "calls.csv", "--thread", ""]).says(2, &["--thread"]);

    let line = "ingest -i x calls.csv --thread customer_id --no-encode";
    t.run(line).says(0, &["1 dialogue lacks a single value of `customer_id`"]);
    assert_eq!(threads("x"), [json!("0042"), json!("17"), Value::Null, json!("17")]);
    let again = t.run(line);
    assert!(again.out.contains("4  unchanged"), "{again:?}");
    assert_eq!(t.json(line)["tally"]["without_thread"], 1);
    assert_eq!(t.json("corpus show -i x --thread 17").as_array().unwrap().len(), 2);
    t.run("corpus show -i x --thread 42").says(2, &["no dialogue has the thread `42`"]);
    // Without the option, the records are different, so they replace the stored ones.
    assert!(t.ok("ingest -i x calls.csv --no-encode").contains("3  replaced"));

    t.ok("ingest -i m calls.csv --map id=call_id,text=text,thread=customer_id --no-encode");
    assert_eq!(threads("m"), [json!("0042"), json!("17"), Value::Null, json!("17")]);
    t.write("named.csv", CALLS.replace("customer_id", "thread"));
    t.ok("ingest -i n named.csv --map id=call_id,thread=thread,text=text --no-encode");
    assert_eq!(threads("n"), threads("m"));
    t.write("named.csv", CALLS.replace("customer_id", "thread").replace("call_id", "session_id"));
    t.ok("ingest -i s named.csv --no-encode");
    assert_eq!(threads("s"), threads("m"));

    // Other formats: metadata of the dialogue.
    let messages = json!([{"role": "user", "content": "hi"}]);
    let record = |n: u32| json!({"id": n, "account": {"a": 1}, "customer": n / 2, "messages": messages});
    t.write("m.jsonl", (1..5).map(|n| format!("{}\n", record(n))).collect::<String>());
    t.ok("ingest -i j m.jsonl --thread meta.customer --no-encode");
    assert_eq!(threads("j"), [json!("0"), json!("1"), json!("1"), json!("2")]);
}

#[test]
fn a_long_ingest_without_the_key_of_the_thread_stores_nothing() {
    let t = Turnwise::new();
    let one =
        |n: usize| dialogue(&json!({"id": format!("d{n:05}"), "metadata": {"n": n}}), &[("A", "hello")]);
    t.write("t.jsonl", (0..3_000).map(one).collect::<String>());
    t.run("ingest -i x t.jsonl --thread customer --no-encode")
        .says(2, &["none of the 1000 dialogues read so far"]);
    assert!(t.ids("x").is_empty());
    // A key that is not in the first record is found before the first batch is stored.
    t.write("u.jsonl", (0..3_000).map(one).collect::<String>().replace("{\"n\":900}", "{\"customer\":7}"));
    t.run("ingest -i x u.jsonl --thread customer --no-encode")
        .says(0, &["2,999 dialogues lack", "there: n)"]);
    assert_eq!(t.ids("x").len(), 3_000);
}

#[test]
fn a_line_with_two_different_threads_is_rejected() {
    let t = Turnwise::new();
    let text = dialogue(&json!({"id": "a", "thread": "x", "metadata": {"thread": "y"}}), &[("A", "hello")])
        + &dialogue(&json!({"id": "b", "thread": ["x"]}), &[("A", "hello")])
        + &dialogue(&json!({"id": "c", "thread": "x"}), &[("A", "hello")]);
    t.write("t.jsonl", text);
    t.run("ingest -i x t.jsonl --no-encode").says(
        0,
        &[
            "t.jsonl:1 (a): `thread` is `x`, but the metadata value `thread` is `y`",
            "t.jsonl:2 (b): `thread` is [\"x\"]; it must be a text or a number",
        ],
    );
    assert_eq!(
        t.dialogues("x"),
        [
            json!({"id": "c", "metadata": {"thread": "x"}, "turns": [{"number": 1, "speaker": "A", "text": "hello"}]})
        ]
    );
}

#[cfg(feature = "serve")]
#[test]
fn the_server_reads_threads_within_the_filter_of_a_key() {
    let t = with_threads();
    t.write(
        "keys.toml",
        "[[key]]\nname = \"all\"\nsecret = \"all-of-it\"\nscopes = [\"read\", \"write\"]\n\
         [[key]]\nname = \"public\"\nsecret = \"not-private\"\nfilter = \"not corpus=private\"\n\
         [[key]]\nname = \"one\"\nsecret = \"one-thread\"\nscopes = [\"read\", \"write\"]\nfilter = \"thread=42\"\n",
    );
    let server = Server::start(&t, "-i x --keys keys.toml");
    let with = |key: &str, method: &str, path: &str, body: &Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        server.ask(method, path, &[&format!("Authorization: Bearer {key}")], body.as_bytes())
    };
    let get = |key: &str, path: &str| with(key, "GET", path, &Value::Null);
    let thread = |key: &str, path: &str| -> Vec<String> {
        get(key, path).json(200)["dialogues"].as_array().unwrap().iter().map(id_of).collect()
    };
    let found = get("all-of-it", "/v1/threads/maria-jon").json(200);
    assert_eq!((&found["schema"], &found["thread"]), (&json!("turnwise/thread/1"), &json!("maria-jon")));
    assert_eq!(found["dialogues"], t.json("corpus show -i x --thread maria-jon"));
    assert_eq!(thread("all-of-it", "/v1/threads/maria-jon?filter=speaker%3DMaria"), ["s1", "s2", "s3"]);
    let short = get("all-of-it", "/v1/threads/maria-jon?turns=false").json(200);
    assert_eq!(short["dialogues"][2]["id"], "s3");
    assert_eq!(short["dialogues"][1]["time"], "2026-02-01T10:00:00Z");
    assert!(short["dialogues"].as_array().unwrap().iter().all(|dialogue| dialogue["turns"] == json!([])));
    get("all-of-it", "/v1/threads/maria-jon?turns=no").says(400, &["invalid value `no`"]);
    let odd: String = ODD.bytes().map(|byte| format!("%{byte:02X}")).collect();
    assert_eq!(thread("all-of-it", &format!("/v1/threads/{odd}")), ["o1"]);
    get("all-of-it", "/v1/threads/maria")
        .says(404, &["thread `maria` does not exist", "did you mean `maria-jon`?"]);
    let headers = ["Authorization: Bearer all-of-it", "Accept: application/x-ndjson"];
    let streamed = lines(&server.ask("GET", "/v1/threads/maria-jon", &headers, b"").text());
    assert_eq!(
        (streamed.len(), &streamed[0]["id"], &streamed[4]["thread"]),
        (5, &json!("s1"), &json!("maria-jon"))
    );

    // A key sees only the dialogues that match its filter. Other threads do not exist for it.
    assert_eq!(thread("not-private", "/v1/threads/maria-jon"), ["s2", "s3", "s0"]);
    assert_eq!(thread("one-thread", "/v1/threads/42"), ["c1"]);
    let hidden = get("one-thread", "/v1/threads/maria-jon").text();
    assert_eq!(hidden.replace("maria-jon", "maria-jox"), get("one-thread", "/v1/threads/maria-jox").text());
    let post = |key: &str, thread: &str| {
        let body = json!({"query": "flat", "mode": "bm25", "thread": thread});
        with(key, "POST", "/v1/search", &body).json(200)
    };
    assert_eq!(sorted(ids(&post("all-of-it", "maria-jon"))), ["s0", "s1", "s2", "s3"]);
    assert_eq!(sorted(ids(&post("not-private", "maria-jon"))), ["s0", "s2", "s3"]);
    assert_eq!(ids(&post("one-thread", "42")), ["c1"]);
    let warnings = |thread: &str| post("one-thread", thread)["warnings"].to_string();
    assert!(warnings("maria-jon").contains("has the thread `maria-jon`"), "{}", warnings("maria-jon"));
    assert_eq!(warnings("maria-jon").replace("maria-jon", "maria-jox"), warnings("maria-jox"));
    with("all-of-it", "POST", "/v1/search", &json!({"query": "flat", "thread": ""}))
        .says(400, &["the name of the thread is empty"]);

    let facets = get("all-of-it", "/v1/facets?field=thread").json(200)["facets"][0].clone();
    assert_eq!(
        (&facets["different"], &facets["values"][0]),
        (&json!(3), &json!({"value": "maria-jon", "dialogues": 4}))
    );
    let facets = get("one-thread", "/v1/facets?field=thread").json(200)["facets"][0]["values"].clone();
    assert_eq!(facets, json!([{"value": "42", "dialogues": 1}]));

    // The server accepts the same records as `ingest`, and a key writes only to its own thread.
    let new = |id: &str, thread: &str| dialogue(&json!({"id": id, "thread": thread}), &[("A", "hello")]);
    let headers = ["Authorization: Bearer one-thread"];
    let body = new("w1", "42") + &new("w2", "maria-jon");
    let taken = server.ask("POST", "/v1/ingest", &headers, body.as_bytes()).json(200)["taken"].clone();
    assert_eq!((&taken["added"], &taken["rejected"]), (&json!(1), &json!(1)));
    assert_eq!(thread("one-thread", "/v1/threads/42"), ["c1", "w1"]);
}

#[cfg(feature = "serve")]
#[test]
fn the_page_restricts_the_search_to_a_thread_and_links_its_dialogues() {
    let Some(browser) = Browser::start() else { return };
    let t = with_threads();
    let server = Server::start(&t, "-i x");
    browser.resize(1300, 900);
    browser.open(&format!("http://{}/ui/#q=harbour", server.address));
    browser.until("document.querySelector('.hit .thread')?.textContent === 'maria-jon'");
    browser.until("document.querySelector('.hit .top').textContent.includes('2026-01-05')");
    browser.click(".hit .id");
    browser.until("document.querySelector('#neighbors')?.textContent.includes('1 of 4 dialogues')");
    browser.until("!document.querySelector('#neighbors .previous')");
    browser.click("#neighbors .next");
    let next = "document.querySelector('#neighbors .next')?.textContent";
    browser.until(&format!("location.hash.includes('open=s2') && {next}?.includes('2026-03-09')"));
    browser.until("document.querySelector('#neighbors .previous')?.textContent.includes('2026-01-05')");
    browser.click("#neighbors .next");
    browser.until(&format!("location.hash.includes('open=s3') && {next}?.includes('s0')"));
    browser.click("#neighbors .next");
    browser.until("document.querySelector('#neighbors')?.textContent.includes('4 of 4 dialogues')");
    browser.until("!document.querySelector('#neighbors .next')");
    browser.click("#neighbors .thread");
    browser.until("document.getElementById('filter').value === 'thread=maria-jon'");
    browser.until("document.querySelectorAll('.hit').length === 1");
    // The list without a query also shows the threads. A name with quotes becomes a valid filter.
    browser.open(&format!("http://{}/ui/", server.address));
    browser.until("document.querySelectorAll('.hit').length === 8");
    browser.run("[...document.querySelectorAll('.hit .thread')].find((b) => b.textContent.startsWith('Anna')).click()");
    browser.until("document.querySelectorAll('.hit').length === 1");
    browser.until("document.getElementById('filter').value.startsWith('thread=\"Anna')");
    assert_eq!(browser.console_errors(), Vec::<String>::new());
}
