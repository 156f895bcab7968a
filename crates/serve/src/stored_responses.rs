//! Stored responses to idempotent requests, and a cache of responses about a whole index.
//!
//! A request with an `Idempotency-Key` header is idempotent. Its response is stored, and a repeated request gets the
//! stored response.
//!
//! For a local index, responses are stored in a file in the index folder. For a remote engine, they are stored in
//! memory and lost when the server stops. If a client then repeats an ingest request, the ingest skips the existing
//! records.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use axum::{body::Bytes, http::HeaderMap};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::problem::{Outcome, Problem};
use turnwise_core::{
    error::{Error, Result},
    files,
};
use turnwise_index::embedded::Folder;

/// Name of the HTTP header that contains the idempotency key.
const HEADER: &str = "idempotency-key";
/// Maximum number of stored responses per index.
const MAX_STORED: usize = 1_000;
/// Maximum length of an idempotency key in bytes.
const MAX_KEY_LENGTH: usize = 255;
/// Name of the file in an index folder that contains the stored responses.
pub(super) const FILE: &str = Folder::RESPONSES;

/// Stored response to a request with an idempotency key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredResponse {
    /// Digest of the client's name and the idempotency key.
    pub(super) request: String,
    /// Digest of the request body.
    pub(super) body: String,
    /// Body of the response.
    pub(super) answer: Value,
}

/// Returns a digest of the client's name and the idempotency key of a request, because different clients may use the
/// same idempotency key. Returns `None` if the request has no such key, and an error if the key is invalid.
pub(super) fn request_digest(headers: &HeaderMap, client: &str) -> Outcome<Option<String>> {
    let Some(given) = headers.get(HEADER) else { return Ok(None) };
    match given.to_str() {
        Ok(text) if (1..=MAX_KEY_LENGTH).contains(&text.trim().len()) => {
            let mut hasher = blake3::Hasher::new();
            hasher.update(client.as_bytes()).update(&[0]).update(text.trim().as_bytes());
            Ok(Some(hasher.finalize().to_hex().to_string()))
        }
        _ => Err(Problem::request(format!(
            "an Idempotency-Key must have 1 to {MAX_KEY_LENGTH} ASCII characters"
        ))
        .param("Idempotency-Key")
        .hint("use a random UUID for each request, and the same UUID when repeating it")),
    }
}

/// The latest responses of an index to requests with an idempotency key.
pub(super) struct IdempotentResponses(Storage);

enum Storage {
    File(PathBuf),
    Memory(Mutex<Vec<StoredResponse>>),
}

impl IdempotentResponses {
    /// Creates a store that keeps the responses in a file in an index folder.
    pub(super) fn in_folder(root: &Path) -> Self {
        IdempotentResponses(Storage::File(root.join(FILE)))
    }

    /// Creates an empty store that keeps the responses in memory.
    pub(super) fn in_memory() -> Self {
        IdempotentResponses(Storage::Memory(Mutex::default()))
    }

    /// Finds the stored response whose request has this digest (see [`StoredResponse::request`]).
    pub(super) fn get(&self, request: &str) -> Option<StoredResponse> {
        let find = |all: &[StoredResponse]| all.iter().find(|stored| stored.request == request).cloned();
        match &self.0 {
            Storage::File(path) => find(&read(path)),
            Storage::Memory(all) => find(&all.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Stores a response. If there are more than [`MAX_STORED`] responses, deletes the oldest one.
    pub(super) fn store(&self, response: StoredResponse) -> Result<()> {
        match &self.0 {
            Storage::File(path) => {
                let mut all = read(path);
                add(&mut all, response);
                let bytes = serde_json::to_vec(&all).map_err(|e| Error::Internal(e.to_string()))?;
                files::replace(path, &bytes)
            }
            Storage::Memory(all) => {
                add(&mut all.lock().unwrap_or_else(PoisonError::into_inner), response);
                Ok(())
            }
        }
    }
}

fn add(all: &mut Vec<StoredResponse>, response: StoredResponse) {
    all.retain(|other| other.request != response.request);
    all.push(response);
    let old = all.len().saturating_sub(MAX_STORED);
    all.drain(..old);
}

/// Reads the stored responses from a file. Returns an empty list if the file is missing or damaged. This is harmless: a
/// repeated ingest request runs again and skips the existing records.
fn read(path: &Path) -> Vec<StoredResponse> {
    let bytes = fs::read(path).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Maximum number of cached responses per index.
const MAX_CACHED: usize = 16;

/// Cache entry of one response; `None` until the response is computed. It is locked while the response is computed.
type Slot = Arc<Mutex<Option<Bytes>>>;

/// Cache of responses: pairs of a request key and a response, the most recently used pair first.
#[derive(Default)]
pub(super) struct ResponseCache(Mutex<Vec<(String, Slot)>>);

impl ResponseCache {
    /// Returns the cached response for the request key `key`. If there is none, computes it with `make` and caches it.
    /// Errors are not cached.
    pub(super) fn answer(&self, key: &str, make: impl FnOnce() -> Outcome<Bytes>) -> Outcome<Bytes> {
        let slot = {
            let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = slots.iter().position(|(other, _)| other == key).map(|at| slots.remove(at));
            let (key, slot) = found.unwrap_or_else(|| (key.to_owned(), Arc::default()));
            slots.insert(0, (key, slot.clone()));
            slots.truncate(MAX_CACHED);
            slot
        };
        let mut answer = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = &*answer {
            return Ok(answer.clone());
        }
        let made = make()?;
        *answer = Some(made.clone());
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
        time::Duration,
    };

    use super::*;
    use crate::problem::Problem;

    #[test]
    fn the_latest_responses_are_stored_and_a_damaged_file_counts_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        let answer =
            |n: usize| StoredResponse { request: n.to_string(), body: "b".to_owned(), answer: n.into() };
        for answers in [IdempotentResponses::in_folder(dir.path()), IdempotentResponses::in_memory()] {
            (0..MAX_STORED + 2).for_each(|n| answers.store(answer(n)).unwrap());
            assert_eq!(answers.get("1"), None);
            assert_eq!(answers.get("2"), Some(answer(2)));
        }
        fs::write(dir.path().join(FILE), "[{").unwrap();
        let answers = IdempotentResponses::in_folder(dir.path());
        assert_eq!(answers.get("2"), None);
        answers.store(answer(7)).unwrap();
        assert_eq!(IdempotentResponses::in_folder(dir.path()).get("7"), Some(answer(7)));
    }

    #[test]
    fn keys_of_different_clients_are_independent() {
        let headers = |text: &str| HeaderMap::from_iter([(HEADER.parse().unwrap(), text.parse().unwrap())]);
        let named = |text: &str, client: &str| request_digest(&headers(text), client).unwrap().unwrap();
        assert_ne!(named("a", "one"), named("a", "two"));
        assert_eq!(named("a", "one"), named(" a ", "one"));
        assert_eq!(request_digest(&HeaderMap::new(), "one").unwrap(), None);
        assert!(
            request_digest(&headers(""), "one").is_err()
                && request_digest(&headers(&"x".repeat(256)), "one").is_err()
        );
    }

    #[test]
    fn equal_requests_are_computed_once_and_failures_are_retried() {
        let (cache, made) = (ResponseCache::default(), AtomicUsize::new(0));
        let slow = || {
            thread::sleep(Duration::from_millis(20));
            Ok(Bytes::from(made.fetch_add(1, Ordering::Relaxed).to_string()))
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| cache.answer("a", slow).unwrap())).collect();
            threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), "0"));
        });
        assert_eq!(cache.answer("b", || Err(Problem::request("no"))).unwrap_err().message, "no");
        assert_eq!(cache.answer("b", slow).unwrap(), "1");
        (0..MAX_CACHED).for_each(|n| drop(cache.answer(&format!("c{n}"), slow)));
        assert_eq!(cache.answer("b", slow).unwrap(), (2 + MAX_CACHED).to_string());
    }
}
