//! Encoding a stream: while one chunk goes through the encoder, the next is gathered and the last is stored.

use std::sync::mpsc;

use crate::{
    corpus::Dialogue,
    encoder::{DialogueOptions, Encoded, Encoder, TextOptions},
    error::{Error, Result},
};

/// Chunks that are under way at once: one in the encoder, one waiting for it.
const AHEAD: usize = 2;

/// What is encoded together.
#[derive(Debug)]
pub enum Inputs {
    /// Texts, as utterances.
    Texts(Vec<String>),
    /// Whole dialogues.
    Dialogues(Vec<Dialogue>),
}

impl Inputs {
    /// How many vectors they become.
    pub fn len(&self) -> usize {
        match self {
            Inputs::Texts(texts) => texts.len(),
            Inputs::Dialogues(dialogues) => dialogues.len(),
        }
    }

    /// Whether there are none.
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

/// Inputs, and what their giver must know again when their vectors come.
#[derive(Debug)]
pub struct Chunk<T> {
    /// What to encode.
    pub inputs: Inputs,
    /// Comes back with the vectors.
    pub tag: T,
}

/// How a stream is encoded.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// For texts.
    pub texts: TextOptions,
    /// For dialogues.
    pub dialogues: DialogueOptions,
}

/// Gives chunks and takes their vectors. Both happen on the caller's thread, the encoding on another.
pub trait Stream {
    /// See [`Chunk::tag`].
    type Tag: Send;

    /// The next chunk, or `None` at the end. It need not wait for the vectors of those before it.
    fn next(&mut self) -> Result<Option<Chunk<Self::Tag>>>;

    /// The vectors of a chunk, in the order of the chunks.
    fn done(&mut self, tag: Self::Tag, encoded: Encoded) -> Result<()>;
}

/// Encodes a stream to its end, or until `stop` says so: then what is in the encoder is finished and handed over, and
/// the answer is `false`.
pub fn encode<S: Stream>(
    encoder: &dyn Encoder,
    options: &Options,
    stop: &(dyn Fn() -> bool + Sync),
    stream: &mut S,
) -> Result<bool> {
    std::thread::scope(|scope| {
        let (work, waiting) = mpsc::sync_channel::<Chunk<S::Tag>>(AHEAD);
        let (finished, results) = mpsc::sync_channel(AHEAD);
        scope.spawn(move || {
            for chunk in waiting {
                if stop() {
                    return;
                }
                let encoded = checked(chunk.inputs.encode(encoder, options), chunk.inputs.len(), encoder);
                let failed = encoded.is_err();
                if finished.send((chunk.tag, encoded)).is_err() || failed {
                    return;
                }
            }
        });
        let (mut under_way, mut more) = (0, true);
        loop {
            while more && under_way < AHEAD && !stop() {
                match stream.next()? {
                    Some(chunk) => match work.send(chunk) {
                        Ok(()) => under_way += 1,
                        // An encoder that has ended has left the reason among the results.
                        Err(_) => break,
                    },
                    None => more = false,
                }
            }
            if under_way == 0 {
                return Ok(!more);
            }
            let Ok((tag, encoded)) = results.recv() else { return Ok(false) };
            under_way -= 1;
            stream.done(tag, encoded?)?;
        }
    })
}

/// What an encoder promises is looked at once, here, because whatever is stored is trusted later.
fn checked(encoded: Result<Encoded>, inputs: usize, encoder: &dyn Encoder) -> Result<Encoded> {
    let encoded = encoded?;
    let vectors = &encoded.vectors;
    if vectors.len() != inputs || vectors.dim() != encoder.dim() {
        return Err(Error::Internal(format!(
            "{} gave {} vectors of {} numbers for {inputs} inputs",
            encoder.name(),
            vectors.len(),
            vectors.dim()
        )));
    }
    if let Some(at) = vectors.flat().iter().position(|v| !v.is_finite()) {
        return Err(Error::data(format!(
            "{} gave a number that is not finite for input {} of {inputs}; its weights may be damaged",
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
    use crate::encoder::testing::HashEncoder;

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
        let mut numbers = Numbers { next: 0, end: 50, got: Vec::new(), stop_at: None };
        assert!(encode(&HashEncoder::default(), &Options::default(), &|| false, &mut numbers).unwrap());
        assert_eq!(numbers.got, (1..=50).collect::<Vec<_>>());
    }

    #[test]
    fn stopping_hands_over_what_is_finished_and_nothing_out_of_order() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let mut numbers = Numbers { next: 0, end: 1000, got: Vec::new(), stop_at: Some((7, &STOP)) };
        let stop = || STOP.load(Ordering::Relaxed);
        assert!(!encode(&HashEncoder::default(), &Options::default(), &stop, &mut numbers).unwrap());
        assert!((7..=9).contains(&numbers.got.len()), "{:?}", numbers.got);
        assert_eq!(numbers.got, (1..=numbers.got.len()).collect::<Vec<_>>());
    }

    #[test]
    fn an_encoder_that_fails_or_breaks_its_promise_is_told() {
        let mut numbers = Numbers { next: 0, end: 50, got: Vec::new(), stop_at: None };
        let failing = HashEncoder { fail_on: Some("text 9"), ..HashEncoder::default() };
        let e = encode(&failing, &Options::default(), &|| false, &mut numbers).unwrap_err();
        assert!(e.to_string().contains("text 9"), "{e}");
        assert_eq!(numbers.got.len(), 8);
        let broken = HashEncoder { not_finite_on: Some("text 3"), ..HashEncoder::default() };
        let mut numbers = Numbers { next: 0, end: 50, got: Vec::new(), stop_at: None };
        let e = encode(&broken, &Options::default(), &|| false, &mut numbers).unwrap_err();
        assert!(e.to_string().contains("not finite"), "{e}");
    }
}
