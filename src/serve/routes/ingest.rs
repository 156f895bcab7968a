//! `/v1/ingest`: dialogues, a JSON object a line, for as long as the client sends.

use std::{
    io::{self, BufReader, Read},
    sync::{Arc, atomic::AtomicBool},
};

use axum::{
    body::{Body, Bytes},
    http::{Response, StatusCode},
};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::sync::mpsc;

use super::{Call, delete::HOLDER};
use crate::{
    corpus::{
        formats,
        input::Input,
        walk::{Plan, Source},
    },
    serve::{
        body,
        hosted::Hosted,
        problem::{Outcome, Problem},
    },
    store::{
        Store,
        ingest::{Control, IngestOptions, Ingested, ingest as take_in},
    },
};

/// So many pieces of a body wait for being read.
const PIECES: usize = 16;

pub(super) async fn ingest(mut call: Call) -> Outcome<Response<Body>> {
    let index = call.asked("index");
    let hosted = call.asker.index(&call.app, index.as_deref())?.clone();
    let options = IngestOptions { only: call.asker.filter().cloned(), ..IngestOptions::default() };
    let (sender, receiver) = mpsc::channel(PIECES);
    let body = std::mem::take(call.request.body_mut());
    // It does not wait in the pool: whoever sends slowly is in the way of no search.
    let writing = hosted.writing.clone().lock_owned().await;
    let taking = tokio::task::spawn_blocking(move || {
        let taken = take(&hosted, &options, Stream { receiver, piece: Bytes::new() });
        drop(writing);
        taken
    });
    send(body, sender).await;
    let taken = taking.await.map_err(|_| Problem::internal("the records could not be taken in"))??;
    Ok(body::json(StatusCode::OK, &json!({"taken": taken.tally, "rejects": taken.first_rejects})))
}

/// Sends on what comes. A client that leaves in the middle leaves what was whole.
async fn send(mut body: Body, sender: mpsc::Sender<io::Result<Bytes>>) {
    while let Some(frame) = body.frame().await {
        let piece = match frame {
            Ok(frame) => match frame.into_data() {
                Ok(data) => Ok(data),
                Err(_) => continue,
            },
            Err(e) => Err(io::Error::other(e)),
        };
        // Nobody listens any more: the ingest has ended with an error, which is the answer.
        if sender.send(piece).await.is_err() {
            return;
        }
    }
}

/// A body as something that can be read.
struct Stream {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.piece = piece?,
            }
        }
        let n = buffer.len().min(self.piece.len());
        buffer[..n].copy_from_slice(&self.piece.split_to(n));
        Ok(n)
    }
}

fn take(hosted: &Arc<Hosted>, options: &IngestOptions, stream: Stream) -> Outcome<Ingested> {
    let input = Input::from_stream("the body".to_owned(), None, Box::new(BufReader::new(stream)))?;
    let plan = Plan {
        sources: vec![Source::opened(input, formats::by_name("jsonl")?)],
        companions: Vec::new(),
        unrecognised: Vec::new(),
    };
    let mut store = Store::open(&hosted.root, HOLDER)?;
    let never = AtomicBool::new(false);
    let control =
        Control { stop: &never, progress: &mut |_| {}, acknowledged: &mut |_| {}, resumed: &mut |_| {} };
    let taken = take_in(&mut store, plan, options, control);
    // Whatever happened, what was acknowledged is left in good order.
    let closed = store.close();
    hosted.changed()?;
    hosted.derive();
    let taken = taken?;
    closed?;
    Ok(taken)
}
