//! Tests of `turnwise serve` over real connections.

use std::{
    io::{Read, Write},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    http::{Answer, Client, Server, answer},
    support::{SAMPLES, Turnwise, record},
};

/// Creates the index `x` of the sample dialogues, with vectors of a small model.
pub fn with_index() -> Turnwise {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}"));
    let model = t.model();
    t.ok(&format!("encode -i x --model {model}"));
    t
}

fn ids(found: &Value) -> Vec<&str> {
    found["hits"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap()).collect()
}

/// Removes the times from a response.
fn without_times(mut found: Value) -> Value {
    let found_map = found.as_object_mut().unwrap();
    found_map.remove("milliseconds");
    found_map.remove("timings");
    found
}

#[test]
fn a_search_is_the_same_in_the_library_on_the_command_line_and_over_http() {
    let t = with_index();
    let server = Server::start(&t, "-i x");
    let searches = [
        ("my parcel never came", json!({"query": "my parcel never came", "k": 5}), "-k 5"),
        (
            "refund",
            json!({"query": "refund", "mode": "bm25", "filter": "role=user", "of": "utterances", "window": 2}),
            "--mode bm25 --filter role=user --window 2",
        ),
        (
            "a late train",
            json!({"query": "a late train", "of": "dialogues", "mode": "dense", "explain": true, "k": 3}),
            "--of dialogues --mode dense --explain -k 3",
        ),
        ("card", json!({"query": "card", "group": "dialogue", "offset": 2}), "--group dialogue --offset 2"),
    ];
    let library = turnwise_search::Searcher::open(t.path("indexes/x")).unwrap();
    for (query, request, options) in &searches {
        let mut args = vec!["search", "-i", "x", query, "--format", "json"];
        args.extend(options.split(' '));
        let typed = without_times(t.run_args(&args).json());
        let over_http = without_times(server.post("/v1/search", request).json(200));
        assert!(over_http == typed, "{request}\n{over_http}\n{typed}");
        assert!(!ids(&over_http).is_empty());
        if request["mode"] == "bm25" {
            let request = serde_json::from_value(request.clone()).unwrap();
            let found = library.search(&request).unwrap();
            assert_eq!(
                without_times(serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap()),
                over_http
            );
        }
    }
    let like = ids(&server.post("/v1/search", &searches[0].1).json(200))[0].to_owned();
    let typed = without_times(t.json(&format!("similar -i x {like}")));
    assert_eq!(without_times(server.post("/v1/similar", &json!({"like": like})).json(200)), typed);
    let dialogue = like.split('#').next().unwrap();
    let whole = server.get(&format!("/v1/dialogues/{dialogue}")).json(200);
    assert_eq!(whole["id"], dialogue);
    assert_eq!(whole, t.json(&format!("corpus show -i x {dialogue}"))[0]);
}

#[test]
fn topics_and_statistics_are_those_of_the_command_line() {
    let t = with_index();
    let server = Server::start(&t, "-i x");
    let typed = without_times(t.json("clusters -i x -k 5 --top-dialogues 3 --map-points 50 --seed 3"));
    let over_http = server.get("/v1/clusters?k=5&map=50&seed=3").json(200);
    assert_eq!(over_http, typed);
    assert_eq!(
        (over_http["clusters"].as_array().unwrap().len(), over_http["map"].as_array().unwrap().len()),
        (5, 50)
    );
    assert_eq!(server.get("/v1/clusters?k=5&map=50&seed=3").json(200), over_http);
    let chosen = server.get("/v1/clusters?filter=domain%3Ddeliveries").json(200);
    let deliveries = server.get("/v1/facets?filter=domain%3Ddeliveries").json(200)["dialogues"].clone();
    assert_eq!(chosen["dialogues"], deliveries);
    assert!(deliveries.as_u64().unwrap() > 0 && chosen["map"].is_null());
    server.get("/v1/clusters?k=0").says(400, &["invalid value `0` for `k`", "from 1 to"]);
    server.get("/v1/clusters?map=many").says(400, &["`map`"]);
    server.get("/v1/clusters?filter=domian%3Dx").says(400, &["did you mean `domain`?"]);

    let (over_http, typed) = (server.get("/v1/stats").json(200), t.json("stats -i x"));
    for (field, value) in over_http.as_object().unwrap().iter().filter(|(field, _)| *field != "schema") {
        assert_eq!(&typed[field], value, "{field}");
    }
    assert_eq!(over_http["dialogues"], 280);
    let some = server.get("/v1/stats?filter=domain%3Ddeliveries").json(200);
    assert_eq!(some["dialogues"], deliveries);

    // Without vectors there are no topics; the error contains the reason.
    t.ok(&format!("ingest -i words {SAMPLES}"));
    let words = Server::start(&t, "-i words");
    words.get("/v1/clusters").says(503, &["no vectors", "turnwise encode"]);
    assert_eq!(words.get("/v1/stats").json(200)["dialogues"], 280);
}

#[test]
fn dialogues_are_listed_in_pages_as_lines_and_as_events() {
    let t = with_index();
    let server = Server::start(&t, "-i x");
    let with = |path: &str, accept: &str| server.ask("GET", path, &[&format!("Accept: {accept}")], b"");
    t.ok("corpus export -i x -o all.jsonl");
    let exported: Vec<Value> =
        t.read("all.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(exported.len(), 280);
    let listed = with("/v1/dialogues", "application/x-ndjson");
    assert_eq!(listed.header("content-type").as_deref(), Some("application/x-ndjson"));
    let lines: Vec<Value> = chunks(&listed).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines == exported, "{} lines", lines.len());

    let (mut paged, mut address) = (Vec::new(), "/v1/dialogues?limit=99".to_owned());
    loop {
        let mut page = server.get(&address).json(200);
        paged.append(page["dialogues"].as_array_mut().unwrap());
        let Some(next) = page["next"].as_str() else { break };
        address = format!("/v1/dialogues?limit=99&after={next}");
    }
    assert!(paged == exported, "{} dialogues", paged.len());
    assert_eq!(server.get("/v1/dialogues").json(200)["dialogues"].as_array().unwrap().len(), 20);

    let path = "/v1/dialogues?filter=domain%3Ddeliveries%20and%20language%3Den&limit=5";
    let few = server.get(path).json(200);
    let few = few["dialogues"].as_array().unwrap();
    assert!(few.len() == 5 && few.iter().all(|d| d["domains"][0] == "deliveries" && d["language"] == "en"));
    let events = chunks(&with(path, "text/event-stream"));
    let events: Vec<&str> = events.split_terminator("\n\n").collect();
    assert_eq!(events.len(), 6);
    for (event, dialogue) in events.iter().zip(few) {
        let data = event.strip_prefix("event: dialogue\ndata: ").unwrap();
        assert_eq!(&serde_json::from_str::<Value>(data).unwrap(), dialogue);
    }
    assert_eq!(events[5], "event: done\ndata: {\"dialogues\":5}");
    server.get("/v1/dialogues?after=nobody").says(400, &["dialogue `nobody` does not exist"]);
    server.get("/v1/dialogues?limit=0").says(400, &["invalid value `0` for `limit`", "from 1 to 1000"]);
    assert_eq!(chunks(&with("/v1/dialogues?filter=id%3Dnobody", "application/jsonl")), "");

    // The stream of a search contains first the hits and then the rest of the response.
    let request = json!({"query": "my parcel never came", "k": 4});
    let whole = server.post("/v1/search", &request).json(200);
    let accept = ["Accept: application/x-ndjson"];
    let lines = server.ask("POST", "/v1/search", &accept, request.to_string().as_bytes()).text();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[..4], whole["hits"].as_array().unwrap()[..]);
    assert_eq!((lines.len(), lines[4]["schema"].as_str()), (5, whole["schema"].as_str()));
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let t = Turnwise::new();
    let output = "What nobody takes must not be kept for him. ".repeat(100);
    let dialogue = |n: usize| json!({"id": format!("long-{n}"), "turns": [{"text": output}]}).to_string();
    t.write("many.jsonl", (0..4000).map(dialogue).collect::<Vec<_>>().join("\n"));
    t.ok("ingest -i x many.jsonl");
    let server = Server::start(&t, "-i x --timeout 1");
    let mut stalled = server.connect();
    stalled
        .write_all(b"GET /v1/dialogues HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n")
        .unwrap();
    // The value 1 means that only the connection of the metrics request itself is open.
    let open = || server.get("/metrics").text().contains("turnwise_connections 1\n");
    assert!(!open());
    let started = Instant::now();
    while !open() {
        assert!(started.elapsed() < Duration::from_secs(20), "the connection is not closed");
        thread::sleep(Duration::from_millis(50));
    }
    // The client can still read buffered data, but the body is visibly incomplete.
    let mut rest = Vec::new();
    let _ = stalled.read_to_end(&mut rest);
    assert!(!rest.is_empty() && !rest.ends_with(b"0\r\n\r\n"), "{}", rest.len());
}

/// Returns the decoded body of a complete chunked response.
pub fn chunks(answer: &Answer) -> String {
    assert_eq!(answer.header("transfer-encoding").as_deref(), Some("chunked"), "{}", answer.head);
    let (mut rest, mut body) = (&answer.body[..], Vec::new());
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return String::from_utf8(body).unwrap();
        }
        body.extend_from_slice(&rest[end + 2..][..length]);
        rest = &rest[end + 2 + length + 2..];
    }
}

#[test]
fn errors_are_json_responses() {
    let t = with_index();
    let server = Server::start(&t, "-i x --max-body-mib 1");
    let post = |body: &str| server.ask("POST", "/v1/search", &[], body.as_bytes());
    post("{\"query\": \"x\",\n \"k\": }").says(400, &["expected value at line 2 column 7"]);
    let error = post("{\"quary\": \"x\"}").says(400, &["unknown field `quary`", "did you mean `query`?"]);
    assert_eq!(
        (error["param"].as_str(), error["type"].as_str()),
        (Some("quary"), Some("invalid_request_error"))
    );
    let error = post("{\"query\": \"x\", \"filter\": \"domian=x\"}").says(400, &["did you mean `domain`?"]);
    assert_eq!((error["param"].as_str(), error["hint"].as_str()), (Some("filter"), None));
    let error = post("{\"query\": \"x\", \"mode\": \"bm52\"}").says(400, &["did you mean `bm25`?"]);
    assert!(error["param"].is_null(), "{error}");
    post("{\"query\": \"x\", \"k\": -1}").says(400, &["expected a non-negative integer"]);
    post("[\"refund\"]").says(400, &["the body is an array"]);
    // A misspelled `filter` is an error, because it would otherwise match everything.
    let error =
        server.get("/v1/stats?fliter=domain%3Dbanking").says(400, &["`fliter`", "did you mean `filter`?"]);
    assert_eq!(error["param"], "fliter");
    server.post("/v1/search?indx=x", &json!({"query": "x"})).says(400, &["did you mean `index`?"]);
    let sent = |kind: &str, body: &str| {
        server.ask("POST", "/v1/ingest", &[&format!("Content-Type: {kind}")], body.as_bytes())
    };
    sent("application/x-ndjson", "hello").says(422, &["no valid dialogue", "--data-binary @FILE"]);
    sent("application/x-ndjson", "").says(422, &["contains no dialogue"]);
    sent("multipart/form-data; boundary=x", "--x").says(415, &["a form", "-T FILE"]);
    post("").says(400, &["the body is empty"]);
    post(&format!("{{\"query\": \"{}\"}}", "x".repeat(2 << 20))).says(413, &["1048576 bytes"]);
    post("{\"query\": \"x\", \"mode\": \"bm25\", \"exact\": true}")
        .says(400, &["--exact requires a dense search"]);
    server
        .post("/v1/search?index=y", &json!({"query": "x"}))
        .says(404, &["index `y` does not exist", "available indexes: x"]);
    server.post("/v1/similar", &json!({"query": "x"})).says(400, &["`like`"]);
    server.post("/v1/similar", &json!({"like": "nobody-001"})).says(404, &["nobody-001"]);
    server.get("/v1/dialogues/nobody-001").says(404, &["nobody-001"]);
    server.get("/v1/search").says(405, &["/v1/search does not support GET", "use POST"]);
    server.get("/v1/serch").says(404, &["did you mean /v1/search?"]);
    // Requests of a page of another site, and requests with a different host name for this machine, are refused.
    server.ask("GET", "/info", &["Origin: https://evil.example"], b"").says(403, &["cross-origin"]);
    server.ask("GET", "/info", &["Host: evil.example"], b"").says(403, &["localhost"]);
    let own = format!("Origin: http://{}", server.address);
    server.ask("GET", "/info", &[&own], b"").json(200);
    let fine = server.get("/health/live");
    assert_eq!(fine.header("x-content-type-options").as_deref(), Some("nosniff"));
    assert!(fine.header("content-security-policy").unwrap().contains("default-src 'none'"));
    let counted = server.get("/metrics").text();
    assert!(counted.contains("turnwise_requests_total{route=\"/v1/search\",status=\"413\"} 1"), "{counted}");
    assert!(counted.contains("turnwise_index_dialogues{index=\"x\"} 280"), "{counted}");

    t.run("serve -i y").says(2, &["there is no index at"]);
    t.run("serve -i x --host 0.0.0.0").says(2, &["no API keys are configured", "--keys FILE"]);
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    t.run(&format!("serve -i x --port {port}")).says(6, &["is already in use", "--port"]);
    t.write("none.pem", "nothing");
    t.run("serve -i x --tls-cert none.pem --tls-key none.pem")
        .says(3, &["none.pem: contains no certificate", "PEM"]);
    t.run("serve -i x --tls-cert nowhere.pem --tls-key none.pem").says(2, &["cannot read nowhere.pem"]);
    t.write("bad.toml", "[[key]]\nname = \"a\"\nsecret = \"short\"\n");
    t.run("serve -i x --keys bad.toml").says(3, &["bad.toml", "eight characters"]);
    t.write("other.toml", "[[key]]\nname = \"a\"\nsecret = \"long-enough\"\nindexes = [\"chat\"]\n");
    t.run("serve -i x --keys other.toml")
        .says(2, &["the key `a` names an index `chat`", "served indexes: x"]);
}

#[test]
fn a_key_grants_only_its_scopes_indexes_and_filter() {
    let t = Turnwise::new();
    let output = |id: &str, source: &str, text: &str| {
        json!({"id": id, "source": source, "turns": [{"speaker": "a", "text": text}, {"speaker": "b", "text": "yes"}]})
            .to_string()
            + "\n"
    };
    t.write(
        "a.jsonl",
        output("a1", "ours", "the red parcel") + &output("b1", "theirs", "the red parcel too"),
    );
    t.ok("ingest -i x a.jsonl");
    t.ok("ingest -i other a.jsonl");
    t.write(
        "keys.toml",
        "[[key]]\nname = \"all\"\nsecret = \"all-of-it\"\nscopes = [\"read\", \"write\"]\n\
         [[key]]\nname = \"team\"\nsecret = \"team-only\"\nscopes = [\"read\", \"write\"]\nfilter = \"corpus=ours\"\nindexes = [\"x\"]\n\
         [[key]]\nname = \"reader\"\nsecret = \"just-reading\"\n",
    );
    let server = Server::start(&t, "-i x --also other --keys keys.toml");
    let with = |key: &str, method: &str, path: &str, body: &str| {
        server.ask(method, path, &[&format!("Authorization: Bearer {key}")], body.as_bytes())
    };
    let search = json!({"query": "red parcel"}).to_string();

    let refused = server.ask("POST", "/v1/search?index=x", &[], search.as_bytes());
    refused.says(401, &["an API key is required"]);
    assert!(refused.header("www-authenticate").unwrap().starts_with("Bearer"));
    with("all-of-i", "POST", "/v1/search?index=x", &search).says(401, &["unknown API key"]);
    // Without a key, a client cannot even see the names of the indexes.
    assert!(
        with("none", "POST", "/v1/search?index=zzz", &search).text()
            == with("none", "POST", "/v1/search?index=x", &search).text()
    );
    with("just-reading", "DELETE", "/v1/dialogues/a1?index=x", "")
        .says(403, &["does not have the required scope"]);
    assert_eq!(server.get("/health/live").status, 200);

    let of = |key: &str| {
        let found = with(key, "POST", "/v1/search?index=x", &search).json(200);
        let mut ids: Vec<String> = ids(&found).into_iter().map(str::to_owned).collect();
        ids.sort();
        ids
    };
    assert_eq!(of("all-of-it"), ["a1#1", "b1#1"]);
    assert_eq!(of("just-reading"), ["a1#1", "b1#1"]);
    assert_eq!(of("team-only"), ["a1#1"]);
    with("all-of-it", "POST", "/v1/search", &search).says(400, &["several indexes"]);
    let found = with("team-only", "POST", "/v1/search", &search).json(200);
    assert_eq!(ids(&found), ["a1#1"], "the key allows only one index");
    let sources = |key: &str| {
        with(key, "GET", "/v1/facets?index=x&field=source", "").json(200)["facets"][0]["values"].to_string()
    };
    assert_eq!(sources("team-only"), r#"[{"dialogues":1,"value":"ours"}]"#);
    assert!(sources("all-of-it").contains("theirs"));
    let counted = |key: &str| with(key, "GET", "/v1/stats?index=x", "").json(200)["sources"].to_string();
    assert_eq!(
        (counted("team-only"), counted("all-of-it")),
        (r#"{"ours":1}"#.into(), r#"{"ours":1,"theirs":1}"#.into())
    );
    let listed = with("team-only", "GET", "/v1/dialogues?index=x", "").json(200);
    assert_eq!(
        (listed["dialogues"][0]["id"].as_str(), listed["dialogues"].as_array().unwrap().len()),
        (Some("a1"), 1)
    );
    with("team-only", "GET", "/v1/dialogues?index=x&after=b1", "")
        .says(400, &["dialogue `b1` does not exist"]);
    let around = json!({"query": "red parcel", "filter": "corpus=theirs or id=b1"}).to_string();
    assert!(ids(&with("team-only", "POST", "/v1/search", &around).json(200)).is_empty());
    with("team-only", "POST", "/v1/similar", &json!({"like": "b1"}).to_string())
        .says(404, &["`b1` does not exist"]);
    with("team-only", "GET", "/v1/dialogues/b1", "").says(404, &["dialogue `b1` does not exist"]);
    with("team-only", "GET", "/v1/dialogues/a1", "").json(200);
    with("team-only", "POST", "/v1/search?index=other", &search).says(404, &["index `other` does not exist"]);
    let info = with("team-only", "GET", "/info", "").json(200);
    assert_eq!(info["indexes"].as_array().unwrap().len(), 1);
    assert_eq!(
        (info["indexes"][0]["dialogues"].as_u64(), info["indexes"][0]["turns"].as_u64()),
        (Some(1), Some(2))
    );
    assert!(!with("team-only", "GET", "/metrics", "").text().contains("turnwise_index_dialogues{"));

    // The key cannot write dialogues that it may not see, or overwrite them.
    let more = output("a2", "ours", "another")
        + &output("a3", "theirs", "a foreign one")
        + &output("b1", "ours", "over theirs");
    let taken = with("team-only", "POST", "/v1/ingest", &more).json(200);
    assert_eq!(
        (taken["taken"]["added"].as_u64(), taken["taken"]["rejected"].as_u64()),
        (Some(1), Some(2)),
        "{taken}"
    );
    with("team-only", "DELETE", "/v1/dialogues/b1", "").says(404, &["b1"]);
    let deleted = with("team-only", "DELETE", "/v1/dialogues?filter=turns%3E%3D1", "").json(200);
    assert_eq!(deleted["deleted"], 2);
    assert_eq!(t.ids("x"), ["b1"]);
    assert!(t.dialogues("x")[0]["turns"][0]["text"].as_str().unwrap().contains("too"));
    let with_x_api_key = server.ask("GET", "/info", &["X-API-Key: just-reading"], b"");
    assert_eq!(with_x_api_key.json(200)["indexes"].as_array().unwrap().len(), 2);
}

#[test]
fn another_writer_is_reported_without_paths() {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES} --no-encode"));
    let server = Server::start(&t, "-i x");
    let own =
        turnwise_store::Store::open_or_create(&t.path("indexes/x"), "a command with --secrets").unwrap();
    let line = json!({"id": "from-the-network", "turns": [{"text": "hello"}]}).to_string();
    let sent = || server.ask("POST", "/v1/ingest", &[], line.as_bytes());
    let refused = sent();
    assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
    let error = refused.says(409, &["x: another process is writing to this index", "wait until it ends"]);
    assert!(!error.to_string().contains("indexes") && !error.to_string().contains("secrets"), "{error}");
    own.close().unwrap();
    sent().json(200);
}

#[test]
fn changes_by_any_process_are_found_and_no_request_fails() {
    let t = with_index();
    let server = Server::start(&t, "-i x");
    let search = json!({"query": "zebra", "mode": "bm25"});
    assert!(ids(&server.post("/v1/search", &search).json(200)).is_empty());
    let (done, searches) = (AtomicBool::new(false), std::sync::atomic::AtomicUsize::new(0));
    thread::scope(|scope| {
        for mode in ["hybrid", "bm25"] {
            let (server, done, searches): (&Client, _, _) = (&server, &done, &searches);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let found =
                        server.post("/v1/search", &json!({"query": "my parcel never came", "mode": mode}));
                    assert!(!ids(&found.json(200)).is_empty());
                    searches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let ends = StopOnDrop(&done);
        let line = |id: &str, text: &str| json!({"id": id, "turns": [{"text": text}]}).to_string() + "\n";
        // The body is sent in pieces.
        let mut stream = server.connect();
        let body = line("z1", "a zebra crossing") + "{\"id\": 5}\n" + &line("z2", "another zebra crossing");
        write!(
            stream,
            "POST /v1/ingest HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
            server.address
        )
        .unwrap();
        for piece in body.as_bytes().chunks(25) {
            write!(stream, "{:x}\r\n", piece.len()).unwrap();
            stream.write_all(piece).unwrap();
            stream.write_all(b"\r\n").unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
        let taken = answer(stream).json(200);
        assert_eq!(
            (taken["taken"]["added"].as_u64(), taken["taken"]["rejected"].as_u64()),
            (Some(2), Some(1)),
            "{taken}"
        );
        assert!(taken["rejects"][0]["reason"].is_string() && taken["rejects"][0]["line"] == 2, "{taken}");
        let mut found = server.post("/v1/search", &search).json(200);
        assert_eq!(ids(&found).len(), 2, "acknowledged dialogues are found at once");

        // A different process writes.
        t.write("z3.jsonl", line("z3", "the third zebra crossing"));
        for line in ["ingest -i x z3.jsonl", "index rebuild -i x", "delete -i x z1", "index compact -i x"] {
            retry_while_writing(&t, line);
        }
        for _ in 0..200 {
            found = server.post("/v1/search", &search).json(200);
            if ids(&found) == ["z3#1", "z2#1"] || ids(&found) == ["z2#1", "z3#1"] {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(ids(&found).len(), 2, "{found}");
        assert_eq!(server.ask("DELETE", "/v1/dialogues/z2", &[], b"").json(200)["deleted"], 1);
        assert_eq!(ids(&server.post("/v1/search", &search).json(200)), ["z3#1"]);
        drop(ends);
    });
    assert!(searches.load(Ordering::Relaxed) > 4);
    t.ok("verify -i x");
}

/// Runs a command until it succeeds. Repeats it as long as the index is locked by the server.
fn retry_while_writing(t: &Turnwise, line: &str) {
    for _ in 0..200 {
        let outcome = t.run(line);
        match outcome.code {
            0 => return,
            5 => thread::sleep(std::time::Duration::from_millis(50)),
            _ => panic!("{line}: {outcome:?}"),
        }
    }
    panic!("{line}: it is busy for ever");
}

/// Guard that stops the searching thread when it is dropped, even if the writer fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_interrupted_ingest_keeps_complete_records() {
    let t = Turnwise::new();
    t.write("a.jsonl", record("a", "a parcel"));
    t.ok("ingest -i x a.jsonl");
    let server = Server::start(&t, "-i x --timeout 1");
    let begin = || {
        let mut stream = server.connect();
        let piece = record("b", "another parcel") + "{\"id\": \"c\", \"tur";
        write!(
            stream,
            "POST /v1/ingest HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
            server.address
        )
        .unwrap();
        write!(stream, "{:x}\r\n{piece}\r\n", piece.len()).unwrap();
        stream.flush().unwrap();
        stream
    };
    // Test a client that stops sending.
    answer(begin())
        .says(400, &["the body is incomplete", "no data received for 1 second", "1 record was stored"]);
    assert_eq!(t.ids("x"), ["a", "b"]);
    // Test a client that disconnects.
    server.ask("DELETE", "/v1/dialogues/b", &[], b"").json(200);
    drop(begin());
    for _ in 0..100 {
        if t.ids("x") == ["a", "b"] {
            break;
        }
        thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(t.ids("x"), ["a", "b"]);
    // Other requests do not wait for these clients.
    let taken = server.ask("POST", "/v1/ingest", &[], record("d", "the third").as_bytes()).json(200);
    assert_eq!(taken["taken"]["added"], 1);
    t.ok("verify -i x");
}

#[test]
fn a_repeated_ingest_with_an_idempotency_key_gets_the_same_response() {
    let t = Turnwise::new();
    t.write("a.jsonl", record("a", "a parcel"));
    t.ok("ingest -i x a.jsonl");
    t.write(
        "keys.toml",
        "[[key]]\nname = \"one\"\nsecret = \"one-and-only\"\nscopes = [\"read\", \"write\"]\n\
         [[key]]\nname = \"two\"\nsecret = \"two-and-more\"\nscopes = [\"read\", \"write\"]\n",
    );
    let send = |server: &Client, secret: &str, key: &str, body: &str| {
        let headers = [format!("Authorization: Bearer {secret}"), format!("Idempotency-Key: {key}")];
        server.ask("POST", "/v1/ingest", &[&headers[0], &headers[1]], body.as_bytes())
    };
    let server = Server::start(&t, "-i x --keys keys.toml");
    let body = record("b", "another parcel") + "{\"id\": \"c\"}\n";
    let first = send(&server, "one-and-only", "7c1f", &body);
    assert_eq!(first.header("idempotency-replayed"), None);
    let first = first.json(200);
    assert_eq!((&first["taken"]["added"], &first["taken"]["rejected"]), (&json!(1), &json!(1)));
    let again = send(&server, "one-and-only", "7c1f", &body);
    assert_eq!(again.header("idempotency-replayed").as_deref(), Some("true"));
    assert_eq!(again.json(200), first);
    // The repeated request changed nothing: the dialogue that was deleted in the meantime is not ingested again.
    server.ask("DELETE", "/v1/dialogues/b", &["Authorization: Bearer one-and-only"], b"").json(200);
    assert_eq!(send(&server, "one-and-only", "7c1f", &body).json(200), first);
    assert_eq!(t.ids("x"), ["a"]);
    // Test a different body with the same `Idempotency-Key`, the same value with a different API key, and an invalid
    // value.
    let error = send(&server, "one-and-only", "7c1f", &record("d", "more")).says(422, &["different body"]);
    assert_eq!(error["code"], "idempotency_key_reused");
    assert_eq!(send(&server, "two-and-more", "7c1f", &record("d", "more")).json(200)["taken"]["added"], 1);
    send(&server, "two-and-more", &"x".repeat(300), &body).says(400, &["1 to 255"]);
    // A client that disconnects before the response gets it when it repeats the request.
    let mut left = server.connect();
    let late = record("e", "the last");
    write!(
        left,
        "POST /v1/ingest HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer two-and-more\r\nIdempotency-Key: 8\r\n\
         Content-Length: {}\r\n\r\n{late}",
        server.address,
        late.len()
    )
    .unwrap();
    while !t.ids("x").contains(&"e".to_owned()) {
        thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(left);
    let again = send(&server, "two-and-more", "8", &late);
    assert_eq!(again.header("idempotency-replayed").as_deref(), Some("true"));
    assert_eq!(again.json(200)["taken"]["added"], 1);
    // The response is available after a restart of the server.
    assert_eq!(server.stop(), 0);
    let server = Server::start(&t, "-i x --keys keys.toml");
    let again = send(&server, "one-and-only", "7c1f", &body);
    assert_eq!(again.header("idempotency-replayed").as_deref(), Some("true"));
    assert_eq!((again.json(200), t.ids("x")), (first, ["a", "d", "e"].map(str::to_owned).to_vec()));
    t.ok("verify -i x");
}

#[test]
fn the_benchmark_report_is_only_for_unrestricted_keys() {
    let t = with_index();
    t.write(
        "keys.toml",
        "[[key]]\nname = \"all\"\nsecret = \"all-of-it-and-more\"\n\n\
         [[key]]\nname = \"some\"\nsecret = \"only-some-of-it-all\"\nfilter = \"language=en\"\n",
    );
    let server = Server::start(&t, "-i x --keys keys.toml --results measured");
    let ask =
        |key: &str| server.ask("GET", "/v1/benchmarks", &[&format!("Authorization: Bearer {key}")], b"");
    ask("all-of-it-and-more").says(404, &["no benchmark results", "turnwise bench"]);
    t.write("select.txt", crate::bench::select());
    t.ok("bench sr select.txt -r bm25 --results measured");
    let page = ask("all-of-it-and-more");
    assert_eq!(
        (page.status, page.header("content-type").unwrap().as_str()),
        (200, "text/html; charset=utf-8")
    );
    t.ok("bench report --results measured -o report.html");
    assert_eq!(page.text(), t.read("report.html"));
    ask("only-some-of-it-all").says(403, &["has restrictions"]);
    // A file that is not a result is reported.
    t.write("measured/table-x.json", "{");
    assert!(ask("all-of-it-and-more").status >= 400);
}

#[test]
fn embeddings_have_the_format_of_openai() {
    let t = with_index();
    let server = Server::start(&t, "-i x");
    let ask = |request: Value| server.post("/v1/embeddings", &request);
    let texts = ["my parcel never came", "a late train"];
    let answer = ask(json!({"input": texts, "model": "text-embedding-3-small"})).json(200);
    assert_eq!((answer["object"].as_str(), answer["data"][1]["index"].as_u64()), (Some("list"), Some(1)));
    let floats =
        |n: usize| -> Vec<f32> { serde_json::from_value(answer["data"][n]["embedding"].clone()).unwrap() };
    t.write("texts.txt", texts.join("\n"));
    t.ok("embed --model ./fitted texts.txt -o out.jsonl");
    for (n, line) in t.read("out.jsonl").lines().enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        let embedded: Vec<f32> = serde_json::from_value(line["embedding"].clone()).unwrap();
        // The server returns unit vectors, as OpenAI's API does, although this model does not normalize its vectors.
        let length = embedded.iter().map(|x| x * x).sum::<f32>().sqrt();
        assert!(embedded.iter().zip(floats(n)).all(|(own, sent)| (own / length - sent).abs() < 1e-6));
    }
    assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() > 0);
    let coded = ask(json!({"input": texts[0], "model": "x", "encoding_format": "base64"})).json(200);
    assert_eq!(coded["data"][0]["embedding"].as_str().unwrap().len(), (16 * 4_usize).div_ceil(3) * 4);
    let short = ask(json!({"input": texts[0], "model": "x", "dimensions": 4})).json(200);
    let short: Vec<f32> = serde_json::from_value(short["data"][0]["embedding"].clone()).unwrap();
    assert_eq!(short.len(), 4);
    assert!((short.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    let error = ask(json!({"input": texts, "model": "x", "dimensions": 17})).says(400, &["between 1 and 16"]);
    assert_eq!(
        (error["param"].as_str(), error["type"].as_str()),
        (Some("dimensions"), Some("invalid_request_error"))
    );
    ask(json!({"input": [], "model": "x"})).says(400, &["between 1 and 2048"]);
    ask(json!({"input": ["a", ""], "model": "x"})).says(400, &["input[1] is empty"]);
    ask(json!({"input": 7, "model": "x"})).says(400, &["`input` must be a string"]);
    ask(json!({"input": [1, 2], "model": "x"})).says(400, &["does not support token ids"]);
    let models = server.get("/v1/models").json(200);
    assert_eq!(models["data"].as_array().unwrap().len(), 1);

    t.ok(&format!("ingest -i words {SAMPLES} --no-encode"));
    Server::start(&t, "-i words")
        .post("/v1/embeddings", &json!({"input": "x", "model": "x"}))
        .says(503, &["no model"]);
}

#[test]
fn replies_come_from_the_index_or_from_the_candidates() {
    let t = with_index();
    let server = Server::start(&t, "-i x");
    let ask = |request: Value| server.post("/v1/respond", &request);
    let found = ask(json!({"context": ["hello", "my parcel never came"], "role": "agent", "k": 4})).json(200);
    let replies = found["replies"].as_array().unwrap();
    assert_eq!(replies.len(), 4, "{found}");
    for reply in replies {
        assert_eq!(
            (&reply["said"]["turn"]["role"], &reply["said"]["turn"]["text"]),
            (&json!("agent"), &reply["text"])
        );
        let dialogue =
            server.get(&format!("/v1/dialogues/{}", reply["said"]["dialogue"].as_str().unwrap())).json(200);
        let turns = dialogue["turns"].as_array().unwrap();
        assert!(
            turns.contains(&reply["said"]["turn"]) && turns.contains(&reply["said"]["answered"]),
            "{reply}"
        );
        assert!(reply["said"]["answered"]["number"].as_u64() < reply["said"]["turn"]["number"].as_u64());
    }
    let candidates = ["good night", "which parcel never came, and when?", "we sell boots"];
    let best = ask(json!({"context": ["my parcel never came"], "candidates": candidates})).json(200);
    assert_eq!(
        (best["replies"][0]["candidate"].as_u64(), best["replies"].as_array().unwrap().len()),
        (Some(1), 3),
        "{best}"
    );
    ask(json!({"context": [" "]})).says(400, &["nothing to answer"]);
    ask(json!({"context": ["a"], "candidates": ["b"], "filter": "role=user"}))
        .says(400, &["only to replies from the index"]);

    let documents = json!(["good night", {"text": "my parcel never came"}, "boots"]);
    let ranked = server
        .post("/v1/rerank", &json!({"query": "my parcel never came", "documents": documents, "top_n": 2, "return_documents": true}))
        .json(200);
    let results = ranked["results"].as_array().unwrap();
    assert_eq!((results.len(), results[0]["index"].as_u64()), (2, Some(1)));
    assert!((results[0]["relevance_score"].as_f64().unwrap() - 1.0).abs() < 1e-5, "{ranked}");
    assert_eq!(results[0]["document"]["text"], "my parcel never came");
    server.post("/v1/rerank", &json!({"query": "x", "documents": []})).says(400, &["between 1 and 1000"]);
}

#[test]
fn assistants_have_the_same_tools_on_a_pipe_and_over_http() {
    let t = with_index();
    let message = |id: u32, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let call = |id: u32, name: &str, arguments: Value| {
        message(id, "tools/call", json!({"name": name, "arguments": arguments}))
    };
    let messages = [
        message(
            1,
            "initialize",
            json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
        ),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        message(2, "tools/list", json!({})),
        call(3, "search", json!({"query": "my parcel never came", "mode": "bm25", "k": 2})),
        call(4, "similar", json!({"id": "deliveries-009", "k": 1})),
        call(5, "get_dialogue", json!({"id": "deliveries-009"})),
        call(6, "get_dialogue", json!({"id": "nobody"})),
        call(7, "search", json!({"quary": "x"})),
        message(8, "resources/list", json!({})),
        call(9, "respond", json!({"context": ["hello", "my parcel never came"], "role": "agent", "k": 2})),
    ];
    let input: String = messages.iter().map(|message| format!("{message}\n")).collect();
    let outcome = t.run_with("serve -i x --mcp", input.as_bytes());
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let answers: Vec<Value> = outcome.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        answers.iter().map(|a| a["id"].as_u64().unwrap()).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7, 8, 9]
    );
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-03-26");
    let tools = answers[1]["result"]["tools"].as_array().unwrap();
    assert_eq!(
        tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["search", "similar", "respond", "get_dialogue"]
    );
    let found = &answers[2]["result"]["structuredContent"];
    assert_eq!(found["hits"].as_array().unwrap().len(), 2);
    let text: Value =
        serde_json::from_str(answers[2]["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(&text, found);
    assert!(answers[3]["result"]["structuredContent"]["hits"][0]["turn"]["text"].is_string());
    assert_eq!(answers[4]["result"]["structuredContent"]["id"], "deliveries-009");
    assert_eq!(answers[5]["result"]["isError"], true);
    assert!(answers[6]["result"]["content"][0]["text"].as_str().unwrap().contains("did you mean `query`?"));
    assert_eq!(answers[7]["error"]["code"], -32601);
    let replies = answers[8]["result"]["structuredContent"]["replies"].as_array().unwrap();
    assert!(replies.len() == 2 && replies.iter().all(|reply| reply["said"]["turn"]["role"] == "agent"));

    let server = Server::start(&t, "-i x");
    for (message, answer) in messages.iter().filter(|message| message["id"].is_u64()).zip(&answers) {
        // The times differ, so they are removed.
        assert_eq!(&server.post("/mcp", message).json(200), answer);
    }
    assert_eq!(server.post("/mcp", &messages[1]).status, 202);
    assert_eq!(server.ask("POST", "/mcp", &[], b"{").json(200)["error"]["code"], -32700);
}

#[test]
fn without_its_model_an_index_is_searched_by_bm25() {
    let t = with_index();
    let elsewhere = t.path("elsewhere");
    std::fs::rename(t.path("fitted"), &elsewhere).unwrap();
    let server = Server::start(&t, "-i x");
    let hybrid = json!({"query": "my parcel never came"});
    server
        .post("/v1/search", &hybrid)
        .says(503, &["the model of this index is not available", "\"mode\\\": \\\"bm25\\\""]);
    let words =
        server.post("/v1/search", &json!({"query": "my parcel never came", "mode": "bm25"})).json(200);
    assert!(!ids(&words).is_empty());
    assert_eq!(server.get("/health/ready").status, 503);
    // The server looks for the model again.
    std::fs::rename(&elsewhere, t.path("fitted")).unwrap();
    for _ in 0..200 {
        if server.get("/health/ready").status == 200 {
            break;
        }
        thread::sleep(std::time::Duration::from_millis(100));
    }
    server.post("/v1/search", &hybrid).json(200);
}

#[test]
fn the_server_shuts_down_cleanly_and_serves_its_description_and_page() {
    let t = with_index();
    let server = Server::start(&t, "-i x");
    let described = server.get("/openapi.json").json(200);
    assert_eq!(described["openapi"], "3.1.0");
    for (path, operations) in described["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let path = path.replace("{id}", "deliveries-001");
            let answer = server.ask(&method.to_uppercase(), &path, &[], b"");
            assert!(
                ![404, 405].contains(&answer.status)
                    || path.contains("deliveries")
                    || String::from_utf8_lossy(&answer.body).contains("no benchmark results"),
                "{method} {path}: {}",
                answer.status
            );
            assert!(operation["summary"].is_string());
        }
    }
    // All references can be resolved.
    let text = described.to_string();
    for name in text.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(described["components"]["schemas"][name].is_object(), "{name}");
    }
    let to = server.get("/");
    assert_eq!((to.status, to.header("location").as_deref()), (307, Some("/ui/")));
    let page = server.get("/ui/");
    assert_eq!(
        (page.status, page.header("content-type").as_deref()),
        (200, Some("text/html; charset=utf-8"))
    );
    let described = server.get("/docs");
    assert_eq!((described.status, described.header("content-type")), (200, page.header("content-type")));
    let mut looked = vec![page.text(), described.text()];
    while let Some(text) = looked.pop() {
        assert!(
            !text.contains("https://") && !text.contains("//cdn"),
            "the page loads nothing from other hosts"
        );
        for quoted in text.split('"').filter(|part| part.ends_with(".js") || part.ends_with(".css")) {
            let file =
                server.get(&format!("/ui/{}", quoted.trim_start_matches("./").trim_start_matches("ui/")));
            assert_eq!(file.status, 200, "{quoted}");
            if text.starts_with("<!doctype") {
                looked.push(file.text());
            }
        }
    }
    // A running request is completed before the server stops.
    let mut slow = server.connect();
    let body = json!({"query": "my parcel never came"}).to_string();
    write!(
        slow,
        "POST /v1/search HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
        server.address,
        body.len()
    )
    .unwrap();
    slow.flush().unwrap();
    thread::sleep(std::time::Duration::from_millis(200));
    let stopping = thread::spawn(move || server.stop());
    thread::sleep(std::time::Duration::from_millis(200));
    slow.write_all(body.as_bytes()).unwrap();
    assert!(!ids(&answer(slow).json(200)).is_empty());
    assert_eq!(stopping.join().unwrap(), 0);
}
