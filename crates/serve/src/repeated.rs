//! Requests that name themselves (`Idempotency-Key`): what they were answered is kept, so that one that is sent again, because its
//! answer never arrived, is answered the same. Of an index on this machine it is kept beside it; of an engine that is far away
//! in memory, for as long as the server runs: who sends again after that changes nothing, for what is there is passed over.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::problem::{Outcome, Problem};
use turnwise_core::{
    error::{Error, Result},
    files,
};

/// The header that names a request.
const HEADER: &str = "idempotency-key";
/// So many answers are kept of an index.
const KEPT: usize = 1_000;
/// Letters of a name.
const LONGEST: usize = 255;
/// The file in the folder of an index.
pub(super) const FILE: &str = "answered.json";

/// An answer that was given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Answered {
    /// A digest of who asked and of the request's name.
    pub(super) request: String,
    /// A digest of what was sent.
    pub(super) body: String,
    pub(super) answer: Value,
}

/// The digest under which a request is known, if it has a name. Others may use the same names.
pub(super) fn name(headers: &HeaderMap, asker: &str) -> Outcome<Option<String>> {
    let Some(given) = headers.get(HEADER) else { return Ok(None) };
    match given.to_str() {
        Ok(text) if (1..=LONGEST).contains(&text.trim().len()) => {
            let mut hasher = blake3::Hasher::new();
            hasher.update(asker.as_bytes()).update(&[0]).update(text.trim().as_bytes());
            Ok(Some(hasher.finalize().to_hex().to_string()))
        }
        _ => Err(Problem::request(format!("an Idempotency-Key has 1 to {LONGEST} plain letters"))
            .param("Idempotency-Key")
            .hint("a random UUID for each request, and the same again when it is sent again")),
    }
}

/// The last answers of an index.
pub(super) struct Answers(Kept);

enum Kept {
    File(PathBuf),
    Memory(Mutex<Vec<Answered>>),
}

impl Answers {
    /// Those that lie in the folder of an index, durably.
    pub(super) fn beside(root: &Path) -> Self {
        Answers(Kept::File(root.join(FILE)))
    }

    /// Those of this process.
    #[cfg_attr(not(feature = "milvus"), allow(dead_code))]
    pub(super) fn in_memory() -> Self {
        Answers(Kept::Memory(Mutex::default()))
    }

    /// What a request was answered.
    pub(super) fn of(&self, request: &str) -> Option<Answered> {
        let find = |all: &[Answered]| all.iter().find(|answered| answered.request == request).cloned();
        match &self.0 {
            Kept::File(path) => find(&read(path)),
            Kept::Memory(all) => find(&all.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Keeps an answer. The oldest are forgotten.
    pub(super) fn keep(&self, answered: Answered) -> Result<()> {
        match &self.0 {
            Kept::File(path) => {
                let mut all = read(path);
                add(&mut all, answered);
                let bytes = serde_json::to_vec(&all).map_err(|e| Error::Internal(e.to_string()))?;
                files::replace(path, &bytes)
            }
            Kept::Memory(all) => {
                add(&mut all.lock().unwrap_or_else(PoisonError::into_inner), answered);
                Ok(())
            }
        }
    }
}

fn add(all: &mut Vec<Answered>, answered: Answered) {
    all.retain(|other| other.request != answered.request);
    all.push(answered);
    let old = all.len().saturating_sub(KEPT);
    all.drain(..old);
}

/// What cannot be read is forgotten: a request that is done again adds nothing twice, it is only counted as unchanged.
fn read(path: &Path) -> Vec<Answered> {
    let bytes = fs::read(path).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_kept_and_a_damaged_file_is_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let answer = |n: usize| Answered { request: n.to_string(), body: "b".to_owned(), answer: n.into() };
        for answers in [Answers::beside(dir.path()), Answers::in_memory()] {
            (0..KEPT + 2).for_each(|n| answers.keep(answer(n)).unwrap());
            assert_eq!(answers.of("1"), None);
            assert_eq!(answers.of("2"), Some(answer(2)));
        }
        fs::write(dir.path().join(FILE), "[{").unwrap();
        let answers = Answers::beside(dir.path());
        assert_eq!(answers.of("2"), None);
        answers.keep(answer(7)).unwrap();
        assert_eq!(Answers::beside(dir.path()).of("7"), Some(answer(7)));
    }

    #[test]
    fn names_of_different_askers_are_different() {
        let headers = |text: &str| HeaderMap::from_iter([(HEADER.parse().unwrap(), text.parse().unwrap())]);
        let named = |text: &str, asker: &str| name(&headers(text), asker).unwrap().unwrap();
        assert_ne!(named("a", "one"), named("a", "two"));
        assert_eq!(named("a", "one"), named(" a ", "one"));
        assert_eq!(name(&HeaderMap::new(), "one").unwrap(), None);
        assert!(name(&headers(""), "one").is_err() && name(&headers(&"x".repeat(256)), "one").is_err());
    }
}
