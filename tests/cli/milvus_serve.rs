//! Tests of `serve --engine`: the API and the web page, with dialogues in Milvus.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    http::{Answer, Client, Server},
    milvus::both,
    serve::chunks,
    support::{SAMPLES, lines, record},
    webdriver::Browser,
};

/// Maximum time until the server detects that the engine is unavailable or available again.
const PATIENCE: Duration = Duration::from_secs(30);
const ENTER: &str = "\u{e007}";

fn ids(found: &Value) -> Vec<&str> {
    found["hits"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap()).collect()
}

/// Repeats a request until the response meets a condition.
#[track_caller]
fn retry_until(ask: impl Fn() -> Answer, is: impl Fn(&Answer) -> bool) -> Answer {
    let started = Instant::now();
    loop {
        let answer = ask();
        if is(&answer) {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "{}\n{}", answer.head, answer.text());
        thread::sleep(Duration::from_millis(100));
    }
}

/// Returns all dialogues, requested page by page.
fn listed(server: &Server, address: &str) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let mut page = server.get(&format!("{address}{after}")).json(200);
        all.append(page["dialogues"].as_array_mut().unwrap());
        let Some(next) = page["next"].as_str() else { return all };
        after = format!("&after={next}");
    }
}

fn by_id(mut dialogues: Vec<Value>) -> Vec<Value> {
    dialogues.sort_by_key(|dialogue| dialogue["id"].as_str().unwrap().to_owned());
    dialogues
}

#[test]
fn requests_have_the_same_responses_as_for_a_local_index() {
    let Some((t, _milvus, engine)) = both() else { return };
    let server = Server::start(&t, &format!("{engine} --also x"));
    let at = |path: &str, index: &str, request: &Value| {
        server.post(&format!("{path}?index={index}"), request).json(200)
    };
    for (path, request) in [
        ("search", json!({"query": "my parcel never came", "mode": "bm25", "k": 12})),
        ("search", json!({"query": "my parcel never came", "mode": "dense", "filter": "role=user", "k": 20})),
        ("search", json!({"query": "lost parcel", "candidates": 5000})),
        ("search", json!({"query": "refund", "of": "dialogues", "mode": "dense", "offset": 3, "k": 5})),
        (
            "search",
            json!({"query": "a late train", "rerank": {"by": "exact"}, "group": "dialogue", "explain": true}),
        ),
        (
            "search",
            json!({"query": "is it late", "context": ["I wait for the train"], "candidates": 5000, "window": 2}),
        ),
        ("similar", json!({"like": "deliveries-001#1", "mode": "dense"})),
        ("similar", json!({"like": "deliveries-001", "mode": "dense", "filter": "domain!=deliveries"})),
    ] {
        let path = format!("/v1/{path}");
        let (here, there) = (at(&path, "x", &request), at(&path, "chats", &request));
        assert_eq!(ids(&here), ids(&there), "{request}");
        assert!(!ids(&here).is_empty() && here["mode"] == there["mode"], "{request}");
        let turns = |found: &Value| -> Vec<Value> {
            found["hits"].as_array().unwrap().iter().map(|hit| json!([hit["turn"], hit["before"]])).collect()
        };
        assert_eq!(turns(&here), turns(&there), "{request}");
    }
    // Milvus Lite computes term statistics over the rows that match the filter: the hits are the same, in a different
    // order.
    for mode in ["bm25", "hybrid"] {
        let filter = "role=user and domain=deliveries and turns>4";
        let request = json!({"query": "my parcel never came", "mode": mode, "filter": filter, "k": 1000, "candidates": 1000});
        let (here, there) = (at("/v1/search", "x", &request), at("/v1/search", "chats", &request));
        let sorted = |found: &Value| {
            let mut ids: Vec<String> = ids(found).into_iter().map(str::to_owned).collect();
            ids.sort();
            ids
        };
        assert!(!ids(&here).is_empty() && sorted(&here) == sorted(&there), "{mode}");
    }
    let outcome = json!({"context": ["my parcel never came"], "role": "agent", "k": 3});
    let replies = |index: &str| at("/v1/respond", index, &outcome)["replies"].as_array().unwrap().len();
    assert_eq!((replies("chats"), replies("x")), (3, 3));
    let dialogue = |index: &str| server.get(&format!("/v1/dialogues/deliveries-001?index={index}")).json(200);
    assert_eq!(dialogue("chats"), dialogue("x"));
    server.get("/v1/dialogues/nobody?index=chats").says(404, &["dialogue `nobody` does not exist"]);

    // All dialogues are listed, in Milvus's own order.
    let here = listed(&server, "/v1/dialogues?index=x&limit=99");
    let there = listed(&server, "/v1/dialogues?index=chats&limit=99");
    assert!(here.len() == 280 && here != there && by_id(here) == by_id(there.clone()));
    let streamed = server.ask("GET", "/v1/dialogues?index=chats", &["Accept: application/x-ndjson"], b"");
    assert_eq!(lines(&chunks(&streamed)), there);
    let some = listed(&server, "/v1/dialogues?index=chats&filter=domain%3Ddeliveries&limit=7");
    let same = listed(&server, "/v1/dialogues?index=x&filter=domain%3Ddeliveries&limit=7");
    assert!(!some.is_empty() && by_id(some) == by_id(same));

    // Both indexes use the same model.
    let embedded = server.post("/v1/embeddings", &json!({"input": "hello"})).json(200);
    assert_eq!(embedded["data"][0]["embedding"].as_array().unwrap().len(), 64);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "search", "arguments": {"query": "parcel", "index": "chats"}}});
    let called = server.post("/mcp", &call).json(200);
    assert_eq!(called["result"]["structuredContent"]["hits"].as_array().unwrap().len(), 8, "{called}");

    // `/info` shows the engine and its capabilities.
    let info = server.get("/info").json(200);
    let about = &info["indexes"][0];
    assert_eq!((&about["name"], &about["engine"]), (&json!("chats"), &json!("milvus")));
    assert_eq!((&about["dialogues"], &about["turns"]), (&json!(280), &json!(3208)));
    assert_eq!(
        (&about["can"]["surveys"], &info["indexes"][1]["can"]["surveys"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(server.get("/health/ready").json(200), json!({"status": "ready"}));
    assert!(server.get("/metrics").text().contains("turnwise_index_dialogues{index=\"chats\"} 280"));
    for path in ["facets", "stats", "clusters"] {
        let error =
            server.get(&format!("/v1/{path}?index=chats")).says(501, &["chats: ", "is not supported"]);
        assert_eq!(error["code"], "unsupported");
        assert!(!error.to_string().contains("127.0.0.1"), "{error}");
        server.get(&format!("/v1/{path}?index=x")).json(200);
    }
    for (request, what) in [
        (json!({"query": "a AND b", "syntax": true}), "Tantivy"),
        (json!({"query": "a", "exact": true}), "an exhaustive vector search"),
        (json!({"query": "a", "filter": "text=a"}), "comparing the whole text"),
    ] {
        server.post("/v1/search?index=chats", &request).says(501, &[what]);
    }
    server.get("/v1/dialogues?index=chats&filter=text~a").says(501, &["text of whole dialogues"]);
}

#[test]
fn ingested_dialogues_are_found_and_deleted_ones_are_not() {
    let Some((t, _milvus, engine)) = both() else { return };
    let server = Server::start(&t, &engine);
    let ingest = |body: &str, headers: &[&str]| server.ask("POST", "/v1/ingest", headers, body.as_bytes());
    let heard = "the lighthouse keeper has lost his lantern";
    let new = record("light-1", heard) + &record("light-2", "nobody can see the harbour at night");
    let key = ["Idempotency-Key: one"];
    assert_eq!(ingest(&new, &key).json(200)["taken"]["added"], 2);
    // New dialogues are found by lexical and dense search at once.
    for mode in ["bm25", "dense", "hybrid"] {
        let found = server.post("/v1/search", &json!({"query": heard, "mode": mode, "k": 50})).json(200);
        // Milvus Lite computes term statistics separately for each corpus. The new one has only two dialogues, so its words
        // seem to be frequent.
        let best = if mode == "dense" { 1 } else { ids(&found).len() };
        assert!(ids(&found)[..best].contains(&"light-1#1"), "{mode}: {found}");
    }
    assert_eq!(server.get("/info").json(200)["indexes"][0]["dialogues"], 282);
    let again = ingest(&new, &key);
    assert_eq!(
        (again.header("idempotency-replayed").as_deref(), again.json(200)["taken"]["added"].as_u64()),
        (Some("true"), Some(2))
    );
    ingest(&record("light-3", "x"), &key).says(422, &["different body"]);
    assert_eq!(ingest(&new, &[]).json(200)["taken"]["unchanged"], 2);
    assert_eq!(ingest(&record("light-1", "he has found it again"), &[]).json(200)["taken"]["replaced"], 1);
    let found = server.post("/v1/search", &json!({"query": heard, "mode": "bm25"})).json(200);
    assert!(!ids(&found).contains(&"light-1#1"), "{found}");
    ingest("no dialogue", &[]).says(422, &["no valid dialogue"]);

    // Dialogues of other processes are counted within seconds.
    t.write("more.jsonl", record("light-4", "a foghorn is heard"));
    t.ok(&format!("ingest {engine} more.jsonl"));
    retry_until(|| server.get("/info"), |info| info.json(200)["indexes"][0]["dialogues"] == 283);

    let delete = |path: &str| server.ask("DELETE", path, &[], b"");
    assert_eq!(delete("/v1/dialogues/light-1").json(200)["deleted"], 1);
    delete("/v1/dialogues/light-1").says(404, &["dialogue `light-1` does not exist"]);
    server.get("/v1/dialogues/light-1").says(404, &["light-1"]);
    assert_eq!(delete("/v1/dialogues?filter=corpus%3Dtest").json(200)["deleted"], 2);
    assert_eq!(delete("/v1/dialogues?filter=corpus%3Dtest").json(200)["deleted"], 0);
    assert_eq!(server.get("/info").json(200)["indexes"][0]["dialogues"], 280);
    let found = server.post("/v1/search", &json!({"query": "foghorn", "mode": "bm25"})).json(200);
    assert_eq!(ids(&found), Vec::<&str>::new());
}

#[test]
fn a_key_reads_ingests_and_deletes_only_dialogues_of_its_filter() {
    let Some((t, _milvus, engine)) = both() else { return };
    let of = |id: &str, corpus: &str, text: &str| {
        format!(
            "{}\n",
            json!({"id": id, "source": corpus, "turns": [{"text": text}, {"text": "One moment."}]})
        )
    };
    t.write(
        "two.jsonl",
        of("ours", "ours", "the parcel is ours") + &of("theirs", "theirs", "the parcel is theirs"),
    );
    t.ok(&format!("ingest {engine} two.jsonl"));
    t.write(
        "keys.toml",
        "[[key]]\nname = \"ours\"\nsecret = \"ours-ours\"\nscopes = [\"read\", \"write\"]\nfilter = \"corpus=ours\"\n",
    );
    let server = Server::start(&t, &format!("{engine} --keys keys.toml"));
    let ask = |method: &str, path: &str, body: &str| {
        server.ask(method, path, &["Authorization: Bearer ours-ours"], body.as_bytes())
    };
    server.post("/v1/search", &json!({"query": "parcel"})).says(401, &["an API key is required"]);
    for mode in ["bm25", "dense", "hybrid"] {
        let found =
            ask("POST", "/v1/search", &json!({"query": "the parcel", "mode": mode, "k": 50}).to_string())
                .json(200);
        assert!(!ids(&found).is_empty() && ids(&found).iter().all(|id| id.starts_with("ours#")), "{found}");
    }
    // A filter of the request does not show hidden dialogues, either.
    let wider = json!({"query": "parcel", "filter": "corpus=theirs or corpus=ours"}).to_string();
    assert!(ids(&ask("POST", "/v1/search", &wider).json(200)).iter().all(|id| id.starts_with("ours#")));
    ask("POST", "/v1/similar", "{\"like\": \"theirs\"}").says(404, &["`theirs` does not exist"]);
    ask("GET", "/v1/dialogues/theirs", "").says(404, &["does not exist"]);
    assert_eq!(ask("GET", "/v1/dialogues/ours", "").json(200)["id"], "ours");
    let listed = ask("GET", "/v1/dialogues", "").json(200);
    assert_eq!(
        (listed["dialogues"].as_array().unwrap().len(), &listed["dialogues"][0]["id"]),
        (1, &json!("ours"))
    );
    ask("GET", "/v1/dialogues?after=theirs", "").says(400, &["does not exist"]);
    let replies =
        ask("POST", "/v1/respond", "{\"context\": [\"the parcel is theirs\"], \"k\": 50}").json(200);
    assert!(!replies.to_string().contains("theirs#"), "{replies}");
    // Total numbers are not shown.
    let info = ask("GET", "/info", "").json(200);
    assert!(info["indexes"][0]["dialogues"].is_null() && info["indexes"][0]["turns"].is_null(), "{info}");
    assert!(!ask("GET", "/metrics", "").text().contains("turnwise_index_dialogues{"));

    // Hidden dialogues are not overwritten, replaced or deleted.
    let over =
        of("theirs", "ours", "taken over") + &of("other", "theirs", "x") + &of("mine", "ours", "a new one");
    let taken = ask("POST", "/v1/ingest", &over).json(200);
    assert_eq!((&taken["taken"]["rejected"], &taken["taken"]["added"]), (&json!(2), &json!(1)), "{taken}");
    assert_eq!(ask("POST", "/v1/ingest", &of("ours", "ours", "another")).json(200)["taken"]["replaced"], 1);
    ask("DELETE", "/v1/dialogues/theirs", "").says(404, &["does not exist"]);
    assert_eq!(ask("DELETE", "/v1/dialogues?filter=turns%3E0", "").json(200)["deleted"], 2);
    assert_eq!(ask("GET", "/v1/dialogues", "").json(200)["dialogues"], json!([]));
    let kept = t.ok(&format!("corpus show {engine} theirs"));
    assert!(kept.contains("the parcel is theirs"), "{kept}");
}

#[test]
fn an_unavailable_engine_is_reported_and_reopened() {
    let Some((t, mut milvus, engine)) = both() else { return };
    let server = Server::start(&t, &format!("{engine} --also x"));
    let search = || server.post("/v1/search?index=chats", &json!({"query": "parcel"}));
    let before = search().json(200);
    milvus.kill();
    let problem = search().says(503, &["cannot be reached"]);
    assert!(problem["code"] == "unavailable" && !problem.to_string().contains("127.0.0.1"), "{problem}");
    let ready = || server.get("/health/ready");
    let away = retry_until(ready, |answer| answer.status == 503);
    assert_eq!(away.json(503), json!({"status": "not ready", "engines_out_of_reach": 1}));
    // After the first failure, requests do not wait for the engine. Ingests fail, and other indexes work.
    let started = Instant::now();
    assert_eq!(search().header("retry-after").as_deref(), Some("2"));
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    let ingest = || server.ask("POST", "/v1/ingest?index=chats", &[], record("new", "a foghorn").as_bytes());
    ingest().says(503, &["cannot be reached"]);
    server
        .ask("DELETE", "/v1/dialogues/deliveries-001?index=chats", &[], b"")
        .says(503, &["cannot be reached"]);
    server.post("/v1/search?index=x", &json!({"query": "parcel"})).json(200);
    assert_eq!(server.get("/health/live").status, 200);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "search", "arguments": {"query": "parcel", "index": "chats"}}});
    let result = server.post("/mcp", &call).json(200)["result"].take();
    assert!(result["isError"] == true && result.to_string().contains("cannot be reached"), "{result}");
    assert!(!result.to_string().contains("127.0.0.1"), "{result}");
    server.get("/info").json(200);

    milvus.restart();
    retry_until(ready, |answer| answer.status == 200);
    assert_eq!(ids(&search().json(200)), ids(&before));
    assert_eq!(ingest().json(200)["taken"]["added"], 1);
    // Searches also recover if the server does not notice the restart. Milvus must then load the collections again.
    milvus.restart();
    let after = retry_until(search, |answer| answer.status == 200);
    assert_eq!(ids(&after.json(200)), ids(&before));
    assert_eq!(server.stop(), 0);
    // The server does not start if the engine is unavailable.
    milvus.kill();
    t.run(&format!("serve --port 0 {engine}")).says(6, &["cannot be reached"]);
}

#[test]
fn the_page_hides_features_that_milvus_does_not_support() {
    let Some(browser) = Browser::start() else { return };
    let Some((t, milvus, engine)) = both() else { return };
    let server = Server::start(&t, &engine);
    browser.resize(1300, 900);
    browser.open(&format!("http://{}/ui/", server.address));
    browser.until(
        "document.getElementById('about').textContent.startsWith('chats: 280 dialogues, 3,208 turns')",
    );
    browser.until("document.querySelectorAll('.hit').length === 10");
    browser.until("document.getElementById('state').textContent.startsWith('All dialogues. Enter')");
    browser.click("#more");
    browser.until("document.querySelectorAll('.hit').length === 20");
    // Topics and statistics are not offered; their addresses show an error.
    browser.until("!document.getElementById('facets').checkVisibility()");
    browser.until(
        "[...document.querySelectorAll('#views button')].filter((b) => b.checkVisibility()).length === 2",
    );
    browser.keys("body", "s");
    browser.until("document.getElementById('state').textContent.includes('need a local index')");
    browser.click("#views [data-view='']");
    // The page redraws the results and the form fields.
    browser.until("document.querySelectorAll('.hit').length === 10");
    browser.until("document.getElementById('state').textContent.startsWith('All dialogues. Enter')");

    browser.run("document.getElementById('explain').click()");
    browser.keys("#query", &format!("where is my parcel{ENTER}"));
    browser.until("location.hash.includes('q=where+is+my+parcel')");
    browser.until("[...document.querySelectorAll('.hit mark')].some((m) => m.textContent === 'parcel')");
    browser.until("document.querySelectorAll('table.why').length === 10");
    browser.keys("body", "j");
    browser.keys(".hit.here", ENTER);
    browser.until("document.querySelector('#thread li.found[aria-current]')");
    browser.keys(".hit.here", "m");
    browser.until("document.getElementById('state').textContent.includes('similar to')");
    browser.keys("#filter", &format!("domain=deliveries{ENTER}"));
    browser.until(
        "document.querySelectorAll('.hit').length === 10 && [...document.querySelectorAll('.hit')].every((h) => h.querySelector('.tag').textContent === 'deliveries')",
    );
    assert_eq!(browser.console_errors(), Vec::<String>::new());
    drop(milvus);
    browser.keys("#query", &format!("is anybody there{ENTER}"));
    browser.until("document.getElementById('filter-wrong').textContent.includes('cannot be reached')");
}

#[test]
fn a_replaced_generation_causes_no_failed_request() {
    let Some((t, _milvus, engine)) = both() else { return };
    t.ok(&format!("model fit {SAMPLES} -o other --dim 16"));
    let server = Server::start(&t, &engine);
    let dim = |answer: &Answer| {
        let embedded: Value = serde_json::from_slice(&answer.body).unwrap();
        embedded["data"][0]["embedding"].as_array().unwrap().len()
    };
    let (searches, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let somebody: &Client = &server;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let request = json!({"query": "my parcel never came", "k": 3});
                assert_eq!(ids(&somebody.post("/v1/search", &request).json(200)).len(), 3);
                searches.fetch_add(1, Ordering::Relaxed);
            }
        });
        t.ok(&format!("encode {engine} --model ./other --replace"));
        // The server uses the new encoder without a restart.
        retry_until(
            || somebody.post("/v1/embeddings", &json!({"input": "hello"})),
            |answer| answer.status == 200 && dim(answer) == 16,
        );
        done.store(true, Ordering::Relaxed);
    });
    assert!(searches.load(Ordering::Relaxed) > 10);
}
