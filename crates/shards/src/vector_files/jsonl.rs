//! JSON lines of the form `{"id": …, "embedding": […]}`. Numbers are as short as possible and read back as
//! the same f32.

use serde::Serialize;

use crate::cli::{embeddings::Sink, output::Output};
use turnwise_core::error::Result;
use turnwise_encoder::Vectors;

pub(super) struct Jsonl {
    out: Output,
}

#[derive(Serialize)]
struct Record<'a> {
    id: &'a str,
    embedding: &'a [f32],
}

impl Jsonl {
    pub(super) fn new(out: Output) -> Self {
        Jsonl { out }
    }
}

impl Sink for Jsonl {
    fn write(&mut self, ids: &[String], vectors: &Vectors) -> Result<()> {
        ids.iter().zip(vectors.rows()).try_for_each(|(id, embedding)| {
            self.out.with(|out| {
                serde_json::to_writer(&mut *out, &Record { id, embedding })?;
                out.write_all(b"\n")
            })
        })
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.out.finish()
    }
}
