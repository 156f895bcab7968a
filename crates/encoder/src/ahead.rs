//! Encodes a stream of chunks (groups of inputs). While one chunk is encoded, the next chunk is read and the previous
//! chunk is stored. With a GPU, one chunk is tokenized while another is computed.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError, mpsc},
};

use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

use crate::{DialogueOptions, Encoded, Encoder, TextOptions};

/// Inputs that are encoded in one call.
#[derive(Debug)]
pub enum Inputs {
    /// Texts, such as single utterances.
    Texts(Vec<String>),
    /// Whole dialogues.
    Dialogues(Vec<Dialogue>),
}

impl Inputs {
    /// Returns the number of inputs, which is also the number of vectors.
    pub fn len(&self) -> usize {
        match self {
            Inputs::Texts(texts) => texts.len(),
            Inputs::Dialogues(dialogues) => dialogues.len(),
        }
    }

    /// Returns true if there are no inputs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn encode(&self, encoder: &dyn Encoder, options: &Options) -> Result<Encoded> {
        match self {
            Inputs::Texts(texts) => {
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                encoder.encode(&texts, &options.texts)
            }
            Inputs::Dialogues(dialogues) => {
                let dialogues: Vec<&Dialogue> = dialogues.iter().collect();
                encoder.encode_dialogues(&dialogues, &options.dialogues)
            }
        }
    }
}

/// Inputs to encode in one call, and a tag that identifies them.
#[derive(Debug)]
pub struct Chunk<T> {
    /// Inputs to encode.
    pub inputs: Inputs,
    /// Tag that is passed to [`Stream::done`] with the vectors.
    pub tag: T,
}

/// Options for encoding a stream.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Options for chunks of texts.
    pub texts: TextOptions,
    /// Options for chunks of dialogues.
    pub dialogues: DialogueOptions,
}

/// Source of chunks and receiver of their vectors. Both methods are called on the thread that calls [`encode`].
pub trait Stream {
    /// Type of [`Chunk::tag`].
    type Tag: Send;

    /// Returns the next chunk, or `None` at the end. Can be called before the previous chunks are encoded.
    fn next(&mut self) -> Result<Option<Chunk<Self::Tag>>>;

    /// Receives the vectors of a chunk. Chunks arrive in the order in which `next` returned them.
    fn done(&mut self, tag: Self::Tag, encoded: Encoded) -> Result<()>;
}

/// Encodes a stream until it ends or `stop` returns true. Returns true if the stream was encoded to its end.
///
/// After a stop, the chunks that are being encoded are finished, and their vectors are passed to [`Stream::done`].
/// Fails on the first error of the encoder or the stream. Also fails if a vector has the wrong width or contains a
/// value that is not finite.
pub fn encode<S: Stream>(
    encoder: &dyn Encoder,
    options: &Options,
    stop: &(dyn Fn() -> bool + Sync),
    stream: &mut S,
) -> Result<bool> {
    // Maximum number of unfinished chunks: the chunks that are being encoded, plus one chunk in the queue.
    let ahead = encoder.chunks_at_once() + 1;
    let (work, waiting) = mpsc::sync_channel::<(u64, Chunk<S::Tag>)>(ahead);
    let waiting = Mutex::new(waiting);
    std::thread::scope(|scope| {
        // The closure owns `work` and `results`. When the closure returns, they are dropped, and therefore the threads
        // end.
        let (work, (finished, results)) = (work, mpsc::sync_channel(ahead));
        for _ in 0..encoder.chunks_at_once() {
            let (finished, waiting) = (finished.clone(), &waiting);
            scope.spawn(move || {
                // `stop` is checked while the queue is locked. If it returns true, this chunk is dropped, and no other
                // thread can take and encode a later chunk.
                let next = || {
                    let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    waiting.recv().ok().filter(|_| !stop())
                };
                while let Some((number, chunk)) = next() {
                    let encoded = checked(chunk.inputs.encode(encoder, options), chunk.inputs.len(), encoder);
                    let failed = encoded.is_err();
                    if finished.send((number, chunk.tag, encoded)).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(finished);
        let (mut sent, mut delivered, mut more) = (0, 0, true);
        let mut unordered = BTreeMap::new();
        loop {
            while more && sent - delivered < ahead as u64 && !stop() {
                match stream.next()? {
                    Some(chunk) => match work.send((sent, chunk)) {
                        Ok(()) => sent += 1,
                        // All encoder threads have ended. If one failed, its error is in `results`.
                        Err(_) => break,
                    },
                    None => more = false,
                }
            }
            if delivered == sent {
                return Ok(!more);
            }
            let Ok((number, tag, encoded)) = results.recv() else { return Ok(false) };
            unordered.insert(number, (tag, encoded));
            while let Some((tag, encoded)) = unordered.remove(&delivered) {
                delivered += 1;
                stream.done(tag, encoded?)?;
            }
        }
    })
}

/// Returns `encoded` unchanged. Fails if the number or the width of the vectors is wrong, or if a value is not finite.
fn checked(encoded: Result<Encoded>, inputs: usize, encoder: &dyn Encoder) -> Result<Encoded> {
    let encoded = encoded?;
    let vectors = &encoded.vectors;
    if vectors.len() != inputs || vectors.dim() != encoder.dim() {
        return Err(Error::Internal(format!(
            "{} returned {} vectors of {} dimensions for {inputs} inputs",
            encoder.name(),
            vectors.len(),
            vectors.dim()
        )));
    }
    if let Some(at) = vectors.flat().iter().position(|v| !v.is_finite()) {
        return Err(Error::data(format!(
            "{} returned a value that is not finite for input {} of {inputs}; its weights may be damaged",
            encoder.name(),
            at / vectors.dim().max(1) + 1
        )));
    }
    Ok(encoded)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::testing::HashEncoder;

    struct Numbers {
        next: usize,
        end: usize,
        got: Vec<usize>,
        stop_at: Option<(usize, &'static AtomicBool)>,
    }

    impl Stream for Numbers {
        type Tag = usize;

        fn next(&mut self) -> Result<Option<Chunk<usize>>> {
            if self.next == self.end {
                return Ok(None);
            }
            self.next += 1;
            Ok(Some(Chunk { inputs: Inputs::Texts(vec![format!("text {}", self.next)]), tag: self.next }))
        }

        fn done(&mut self, tag: usize, encoded: Encoded) -> Result<()> {
            let expected = HashEncoder::default().vector(&format!("text {tag}"));
            assert_eq!(encoded.vectors.row(0), expected);
            self.got.push(tag);
            if let Some((at, stop)) = self.stop_at
                && at == tag
            {
                stop.store(true, Ordering::Relaxed);
            }
            Ok(())
        }
    }

    #[test]
    fn vectors_come_in_the_order_of_the_chunks() {
        for chunks_at_once in 1..4 {
            let encoder = HashEncoder { chunks_at_once, ..HashEncoder::default() };
            let mut numbers = Numbers { next: 0, end: 500, got: Vec::new(), stop_at: None };
            assert!(encode(&encoder, &Options::default(), &|| false, &mut numbers).unwrap());
            assert_eq!(numbers.got, (1..=500).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_encoder_with_a_gpu_gets_two_chunks_at_once() {
        let at_most = |chunks_at_once| {
            let encoder = HashEncoder {
                chunks_at_once,
                waits: Some(std::time::Duration::from_millis(1)),
                ..HashEncoder::default()
            };
            let mut numbers = Numbers { next: 0, end: 40, got: Vec::new(), stop_at: None };
            assert!(encode(&encoder, &Options::default(), &|| false, &mut numbers).unwrap());
            encoder.most_at_once.into_inner()
        };
        assert_eq!(at_most(1), 1);
        assert_eq!(at_most(2), 2);
    }

    #[test]
    fn stopping_passes_on_finished_chunks_in_order() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let mut numbers = Numbers { next: 0, end: 1000, got: Vec::new(), stop_at: Some((7, &STOP)) };
        let stop = || STOP.load(Ordering::Relaxed);
        assert!(!encode(&HashEncoder::default(), &Options::default(), &stop, &mut numbers).unwrap());
        assert!((7..=9).contains(&numbers.got.len()), "{:?}", numbers.got);
        assert_eq!(numbers.got, (1..=numbers.got.len()).collect::<Vec<_>>());
    }

    #[test]
    fn no_chunk_is_encoded_after_a_dropped_chunk() {
        let encoder = HashEncoder { chunks_at_once: 2, ..HashEncoder::default() };
        let (main, stopped, first) =
            (std::thread::current().id(), AtomicBool::new(false), AtomicBool::new(true));
        // The first encoder thread that calls `stop` sleeps, and then is the first thread for which `stop` returns
        // true.
        let stop = || {
            if std::thread::current().id() != main && first.swap(false, Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(50));
                stopped.store(true, Ordering::Relaxed);
            }
            stopped.load(Ordering::Relaxed)
        };
        let mut numbers = Numbers { next: 0, end: 10, got: Vec::new(), stop_at: None };
        assert!(!encode(&encoder, &Options::default(), &stop, &mut numbers).unwrap());
        assert_eq!(encoder.encoded.into_inner(), numbers.got.len());
    }

    #[test]
    fn encoder_errors_and_invalid_vectors_are_reported() {
        for chunks_at_once in [1, 2] {
            let mut numbers = Numbers { next: 0, end: 50, got: Vec::new(), stop_at: None };
            let failing = HashEncoder { fail_on: Some("text 9"), chunks_at_once, ..HashEncoder::default() };
            let e = encode(&failing, &Options::default(), &|| false, &mut numbers).unwrap_err();
            assert!(e.to_string().contains("text 9"), "{e}");
            assert_eq!(numbers.got.len(), 8);
        }
        let broken = HashEncoder { not_finite_on: Some("text 3"), ..HashEncoder::default() };
        let mut numbers = Numbers { next: 0, end: 50, got: Vec::new(), stop_at: None };
        let e = encode(&broken, &Options::default(), &|| false, &mut numbers).unwrap_err();
        assert!(e.to_string().contains("not finite"), "{e}");
    }
}
