//! Cache for responses about a whole index. It lasts until the index changes. Concurrent equal requests compute the
//! response only once.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;

use super::problem::Outcome;

/// Number of cached responses per index.
const KEPT: usize = 16;

/// Slot of a response; locked while the response is computed.
type Slot = Arc<Mutex<Option<Bytes>>>;

/// Cached responses by request, the latest first.
#[derive(Default)]
pub(super) struct Surveys(Mutex<Vec<(String, Slot)>>);

impl Surveys {
    /// Returns the cached response, or computes it with `make`.
    pub(super) fn answer(&self, key: &str, make: impl FnOnce() -> Outcome<Bytes>) -> Outcome<Bytes> {
        let slot = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = kept.iter().position(|(question, _)| question == key).map(|at| kept.remove(at));
            let (question, slot) = found.unwrap_or_else(|| (key.to_owned(), Arc::default()));
            kept.insert(0, (question, slot.clone()));
            kept.truncate(KEPT);
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
    fn equal_requests_are_computed_once_and_failures_are_retried() {
        let (surveys, made) = (Surveys::default(), AtomicUsize::new(0));
        let slow = || {
            thread::sleep(Duration::from_millis(20));
            Ok(Bytes::from(made.fetch_add(1, Ordering::Relaxed).to_string()))
        };
        thread::scope(|scope| {
            let key: Vec<_> = (0..8).map(|_| scope.spawn(|| surveys.answer("a", slow).unwrap())).collect();
            key.into_iter().for_each(|key| assert_eq!(key.join().unwrap(), "0"));
        });
        assert_eq!(surveys.answer("b", || Err(Problem::request("no"))).unwrap_err().message, "no");
        assert_eq!(surveys.answer("b", slow).unwrap(), "1");
        (0..KEPT).for_each(|n| drop(surveys.answer(&format!("c{n}"), slow)));
        assert_eq!(surveys.answer("b", slow).unwrap(), (2 + KEPT).to_string());
    }
}
