//! `/v1/ingest`: dialogues, a JSON object a line, for as long as the client sends.

use std::{
    io::{self, BufReader, Read},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
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
    error::Error,
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
        let taken = take(&hosted, &options, Stream { receiver, piece: Bytes::new(), broken: None });
        drop(writing);
        taken
    });
    send(body, sender, call.app.limits.time).await;
    let taken = taking.await.map_err(|_| Problem::internal("the records could not be taken in"))??;
    if taken.tally.damaged_files > 0 {
        let why = taken.first_rejects.last().map(|reject| reject.reason.clone()).unwrap_or_default();
        let in_now = taken.tally.records - taken.tally.rejected;
        let are = if in_now == 1 { "record of it is" } else { "records of it are" };
        return Err(Problem::request(format!("the body could not be read to its end: {why}"))
            .hint(format!("{in_now} {are} in; send it again, what is there already is passed over")));
    }
    Ok(body::json(StatusCode::OK, &json!({"taken": taken.tally, "rejects": taken.first_rejects})))
}

/// Sends on what comes. A client that leaves in the middle leaves what was whole; so does one of whom nothing more is heard, for
/// others wait to write.
async fn send(mut body: Body, sender: mpsc::Sender<io::Result<Bytes>>, patience: Duration) {
    loop {
        let piece = match tokio::time::timeout(patience, body.frame()).await {
            Ok(None) => return,
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => Ok(data),
                Err(_) => continue,
            },
            Ok(Some(Err(e))) => Err(io::Error::other(e)),
            Err(_) => {
                let seconds = patience.as_secs_f64();
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("nothing came for {seconds} seconds")))
            }
        };
        let ended = piece.is_err();
        // Nobody listens any more: the ingest has ended with an error, which is the answer.
        if sender.send(piece).await.is_err() || ended {
            return;
        }
    }
}

/// A body as something that can be read.
struct Stream {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
    /// What broke it off. It is told as often as is asked.
    broken: Option<(io::ErrorKind, String)>,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            if let Some((kind, why)) = &self.broken {
                return Err(io::Error::new(*kind, why.clone()));
            }
            match self.receiver.blocking_recv() {
                None => return Ok(0),
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(e)) => self.broken = Some((e.kind(), e.to_string())),
            }
        }
        let n = buffer.len().min(self.piece.len());
        buffer[..n].copy_from_slice(&self.piece.split_to(n));
        Ok(n)
    }
}

fn take(hosted: &Arc<Hosted>, options: &IngestOptions, stream: Stream) -> Outcome<Ingested> {
    let input = Input::from_slow_stream("the body".to_owned(), Box::new(BufReader::new(stream))).map_err(
        |e| match e {
            Error::Io { source, .. } => Problem::request(format!("the body could not be read: {source}")),
            other => other.into(),
        },
    )?;
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
