//! Dynamic batching of queries from concurrent requests. While a batch is encoded, new queries wait in a queue and form
//! the next batch. If no batch is being encoded, a query is encoded at once.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{
    DialogueOptions, EncodeStats, Encoded, Encoder, Fingerprint, TextOptions, TokenVectors, Vectors,
};

/// Maximum size of a batch in bytes of text, about two thousand tokens.
const BUDGET: usize = 8 << 10;

/// Encoder that encodes the texts of concurrent calls in one batch. A call with more text than [`BUDGET`] is encoded
/// alone.
pub(super) struct BatchingEncoder {
    inner: Arc<dyn Encoder>,
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    closed: bool,
}

/// Waiting texts of one request, with the channel that receives their vectors.
struct Job {
    texts: Vec<String>,
    bytes: usize,
    options: TextOptions,
    reply: mpsc::SyncSender<Result<Encoded>>,
}

impl BatchingEncoder {
    /// Creates the encoder and starts its thread. The thread calls `observe` with the number of requests in each batch.
    pub(super) fn new(inner: Arc<dyn Encoder>, observe: impl Fn(usize) + Send + 'static) -> Result<Self> {
        let queue = Arc::new(Queue { state: Mutex::default(), wake: Condvar::new() });
        let (encoder, shared) = (inner.clone(), queue.clone());
        let started = thread::Builder::new().name("encoding".to_owned()).spawn(move || {
            while let Some(jobs) = shared.next() {
                observe(jobs.len());
                answer(encoder.as_ref(), jobs);
            }
        });
        started.map_err(|e| Error::unavailable(format!("cannot start a thread: {e}")))?;
        Ok(BatchingEncoder { inner, queue })
    }
}

impl Drop for BatchingEncoder {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.wake.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, job: Job) {
        self.lock().waiting.push_back(job);
        self.wake.notify_one();
    }

    /// Waits for the next batch and removes it from the queue. All jobs of a batch have the same options. Returns
    /// `None` if the queue is closed and empty.
    fn next(&self) -> Option<Vec<Job>> {
        let mut state = self.lock();
        loop {
            if let Some(first) = state.waiting.pop_front() {
                let (mut bytes, mut jobs) = (first.bytes, vec![first]);
                while let Some(next) = state.waiting.front() {
                    bytes += next.bytes;
                    if bytes > BUDGET || next.options != jobs[0].options {
                        break;
                    }
                    jobs.extend(state.waiting.pop_front());
                }
                return Some(jobs);
            }
            if state.closed {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Encodes a batch and sends each job its vectors. If the batch fails, encodes each job alone, because one invalid text
/// must not affect other requests.
fn answer(encoder: &dyn Encoder, jobs: Vec<Job>) {
    let encode = |texts: &[&str], options: &TextOptions| {
        catch_unwind(AssertUnwindSafe(|| encoder.encode(texts, options)))
            .unwrap_or_else(|_| Err(Error::Internal("a text could not be encoded".to_owned())))
    };
    let texts: Vec<&str> = jobs.iter().flat_map(|job| &job.texts).map(String::as_str).collect();
    let options = &jobs[0].options;
    let together = encode(&texts, options);
    if let [only] = jobs.as_slice() {
        let _ = only.reply.send(together);
        return;
    }
    let Ok(together) = together else {
        for job in &jobs {
            let texts: Vec<&str> = job.texts.iter().map(String::as_str).collect();
            let _ = job.reply.send(encode(&texts, options));
        }
        return;
    };
    let mut rows = together.vectors.rows();
    for job in &jobs {
        let mut vectors = Vectors::new(encoder.dim());
        rows.by_ref().take(job.texts.len()).for_each(|row| vectors.push(row));
        // The number of tokens is known only for the whole batch. Searches do not need the number for each job.
        let _ = job.reply.send(Ok(Encoded { vectors, spent: EncodeStats::default() }));
    }
}

impl Encoder for BatchingEncoder {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.inner.fingerprint()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn max_tokens(&self) -> Option<usize> {
        self.inner.max_tokens()
    }

    fn notices(&self) -> &[String] {
        self.inner.notices()
    }

    fn chunks_at_once(&self) -> usize {
        self.inner.chunks_at_once()
    }

    fn normalizes(&self) -> bool {
        self.inner.normalizes()
    }

    fn chunk_bytes(&self) -> usize {
        self.inner.chunk_bytes()
    }

    fn encode(&self, texts: &[&str], options: &TextOptions) -> Result<Encoded> {
        let bytes = texts.iter().map(|text| text.len()).sum();
        if bytes > BUDGET {
            return self.inner.encode(texts, options);
        }
        let (reply, answer) = mpsc::sync_channel(1);
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        self.queue.put(Job { texts, bytes, options: options.clone(), reply });
        answer.recv().unwrap_or_else(|_| Err(Error::Internal("a text was not encoded".to_owned())))
    }

    fn encode_dialogues(&self, dialogues: &[&Dialogue], options: &DialogueOptions) -> Result<Encoded> {
        self.inner.encode_dialogues(dialogues, options)
    }

    fn encode_ids(&self, texts: &[&[u32]], options: &TextOptions) -> Result<Encoded> {
        self.inner.encode_ids(texts, options)
    }

    fn encode_tokens(&self, texts: &[&str], options: &TextOptions) -> Result<Vec<TokenVectors>> {
        self.inner.encode_tokens(texts, options)
    }

    fn embed_tokens(&self, texts: &[&str]) -> Result<Vec<TokenVectors>> {
        self.inner.embed_tokens(texts)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use turnwise_encoder::fingerprint::Fingerprinter;

    /// Slow encoder. The vector of a text has one component, the length of the text. The text "bad" causes an error.
    struct Slow;

    impl Encoder for Slow {
        fn name(&self) -> &str {
            "slow"
        }

        fn dim(&self) -> usize {
            1
        }

        fn fingerprint(&self) -> Fingerprint {
            Fingerprinter::new("slow").finish()
        }

        fn describe(&self) -> String {
            String::new()
        }

        fn encode(&self, texts: &[&str], _: &TextOptions) -> Result<Encoded> {
            thread::sleep(std::time::Duration::from_millis(5));
            if texts.contains(&"bad") {
                return Err(Error::data("bad"));
            }
            let mut vectors = Vectors::new(1);
            texts.iter().for_each(|text| vectors.push(&[text.len() as f32]));
            Ok(Encoded { vectors, spent: EncodeStats::default() })
        }

        fn encode_dialogues(&self, _: &[&Dialogue], _: &DialogueOptions) -> Result<Encoded> {
            Ok(Encoded::default())
        }
    }

    #[test]
    fn every_request_gets_its_own_vectors_from_a_batch() {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let observe = move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let encoder = BatchingEncoder::new(Arc::new(Slow), observe).unwrap();
        let options = TextOptions::default();
        thread::scope(|scope| {
            for n in 0..40usize {
                let (encoder, options) = (&encoder, &options);
                scope.spawn(move || {
                    if n == 7 {
                        assert_eq!(encoder.encode(&["bad"], options).unwrap_err().to_string(), "bad");
                        return;
                    }
                    let (one, two) = ("x".repeat(n), "y".repeat(2 * n));
                    let made = encoder.encode(&[&one, &two], options).unwrap().vectors;
                    assert_eq!((made.row(0), made.row(1)), (&[n as f32][..], &[2.0 * n as f32][..]));
                });
            }
        });
        assert!(runs.load(Ordering::Relaxed) < 40, "{runs:?}");
        let long = "z".repeat(BUDGET + 1);
        assert_eq!(encoder.encode(&[&long], &options).unwrap().vectors.row(0), [(BUDGET + 1) as f32]);
    }
}
