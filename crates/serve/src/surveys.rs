//! What goes over a whole index, kept as long as the index stays as it is: the next who asks the same need not wait, nor does
//! who asks while it is worked out work it out again.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;

use super::problem::Outcome;

/// So many answers are kept of an index.
const KEPT: usize = 16;

/// Where an answer is put when it is made; locked while somebody makes it.
type Place = Arc<Mutex<Option<Bytes>>>;

/// Answers by what was asked, the last first.
#[derive(Default)]
pub(super) struct Surveys(Mutex<Vec<(String, Place)>>);

impl Surveys {
    /// The answer to a question; made if nobody has asked it.
    pub(super) fn answer(&self, asked: &str, make: impl FnOnce() -> Outcome<Bytes>) -> Outcome<Bytes> {
        let place = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = kept.iter().position(|(question, _)| question == asked).map(|at| kept.remove(at));
            let (question, place) = found.unwrap_or_else(|| (asked.to_owned(), Arc::default()));
            kept.insert(0, (question, place.clone()));
            kept.truncate(KEPT);
            place
        };
        let mut answer = place.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn the_same_is_made_once_and_what_failed_again() {
        let (surveys, made) = (Surveys::default(), AtomicUsize::new(0));
        let slow = || {
            thread::sleep(Duration::from_millis(20));
            Ok(Bytes::from(made.fetch_add(1, Ordering::Relaxed).to_string()))
        };
        thread::scope(|scope| {
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| surveys.answer("a", slow).unwrap())).collect();
            asked.into_iter().for_each(|asked| assert_eq!(asked.join().unwrap(), "0"));
        });
        assert_eq!(surveys.answer("b", || Err(Problem::request("no"))).unwrap_err().message, "no");
        assert_eq!(surveys.answer("b", slow).unwrap(), "1");
        (0..KEPT).for_each(|n| drop(surveys.answer(&format!("c{n}"), slow)));
        assert_eq!(surveys.answer("b", slow).unwrap(), (2 + KEPT).to_string());
    }
}
