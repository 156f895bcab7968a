//! Work that takes time: so much at once, so much that waits, and no more.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Semaphore;

use super::problem::{Outcome, Problem};

/// Runs work on threads of its own. Who has left is not worked for, unless the work has begun.
#[derive(Clone)]
pub(super) struct Pool {
    permits: Arc<Semaphore>,
    at_once: usize,
    waiting: Arc<AtomicUsize>,
    most_waiting: usize,
}

/// One that waits; no more when it is dropped, whether its turn came or it left.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    pub(super) fn new(at_once: usize, most_waiting: usize) -> Self {
        Pool { permits: Arc::new(Semaphore::new(at_once)), at_once, waiting: Arc::default(), most_waiting }
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How many are worked on.
    pub(super) fn running(&self) -> usize {
        self.at_once - self.permits.available_permits().min(self.at_once)
    }

    /// Runs it when its turn comes.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let before = self.waiting.fetch_add(1, Ordering::Relaxed);
                let _waiting = Waiting(&self.waiting);
                if before >= self.most_waiting {
                    return Err(Problem::busy(format!(
                        "as many requests wait already as may ({})",
                        self.most_waiting
                    ))
                    .hint("come again in a moment, or start the server with more --at-once or --waiting"));
                }
                let permit = self.permits.clone().acquire_owned().await;
                permit.map_err(|_| Problem::unavailable("the server is stopping"))?
            }
        };
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        });
        done.await.unwrap_or_else(|_| Err(Problem::internal("the request could not be worked on")))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    fn on_tokio<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn more_than_may_wait_are_told_to_come_again_and_who_leaves_makes_room() {
        on_tokio(async {
            let pool = Pool::new(1, 1);
            let (release, held) = mpsc::channel::<()>();
            let first = tokio::spawn({
                let pool = pool.clone();
                async move { pool.run(move || held.recv().map_err(|_| Problem::request("gone"))).await }
            });
            while pool.running() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let waits = |n: u32| {
                let pool = pool.clone();
                tokio::spawn(async move { pool.run(move || Ok(n)).await })
            };
            let leaves = waits(1);
            while pool.waiting() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let refused = pool.run(|| Ok(())).await.unwrap_err();
            assert_eq!((refused.status.as_u16(), refused.again), (429, Some(1)));
            leaves.abort();
            while pool.waiting() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let stays = waits(2);
            release.send(()).unwrap();
            first.await.unwrap().unwrap();
            assert_eq!(stays.await.unwrap().unwrap(), 2);
            assert_eq!((pool.running(), pool.waiting()), (0, 0));
        });
    }
}
