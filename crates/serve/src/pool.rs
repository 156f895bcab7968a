//! Thread pool for slow work. It limits the number of running and of waiting requests.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Semaphore;

use super::problem::{Outcome, Problem};

/// Pool that runs work on blocking threads. When a client disconnects, its waiting work is dropped, but its running
/// work continues.
#[derive(Clone)]
pub(super) struct Pool {
    permits: Arc<Semaphore>,
    max_running: usize,
    waiting: Arc<AtomicUsize>,
    max_waiting: usize,
}

/// Guard that counts a waiting request until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    pub(super) fn new(max_running: usize, max_waiting: usize) -> Self {
        Pool {
            permits: Arc::new(Semaphore::new(max_running)),
            max_running,
            waiting: Arc::default(),
            max_waiting,
        }
    }

    /// Returns the number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of running requests.
    pub(super) fn running(&self) -> usize {
        self.max_running - self.permits.available_permits().min(self.max_running)
    }

    /// Runs `work` on a blocking thread and returns its result. If the maximum number of requests is already running,
    /// waits until one of them completes. Returns an error immediately if the maximum number of requests is already
    /// waiting.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let before = self.waiting.fetch_add(1, Ordering::Relaxed);
                let _waiting = Waiting(&self.waiting);
                if before >= self.max_waiting {
                    let message = format!("the request queue is full ({} requests)", self.max_waiting);
                    return Err(Problem::busy(message).hint(
                        "retry later, or start the server with a higher --max-concurrent or --max-queue",
                    ));
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
        done.await.unwrap_or_else(|_| Err(Problem::internal("the request handler panicked")))
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
    fn a_full_queue_rejects_requests_and_a_canceled_request_frees_its_place() {
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
            assert_eq!((refused.status.as_u16(), refused.retry_after), (429, Some(1)));
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
