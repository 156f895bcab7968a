//! `/v1/ingest`: ingests dialogues as JSON lines from a body of any length. `DELETE /v1/dialogues`: removes
//! dialogues.

use std::{
    io::{self, BufReader, Read},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, StatusCode, header},
};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use serde_json::json;
use tokio::sync::mpsc;

use super::Call;
use crate::{
    OpenIndex,
    body::{self, HttpResponse},
    hosted::HostedIndex,
    problem::{Outcome, Problem},
    stored_responses::{self, StoredResponse},
};
use turnwise_core::{error::Error, ids::DialogueId};
use turnwise_corpus::{
    formats,
    input::Input,
    walk::{Plan, Source},
};
use turnwise_index::location::{Selection, WriteMode, WriterOptions};
use turnwise_store::ingest::{self, IngestControl, IngestOptions, Ingested};

/// Largest number of body pieces in the queue.
const PIECES: usize = 16;
/// Name of this program in the lock of an index, shown to other writers.
const HOLDER: &str = "turnwise serve";

pub(super) async fn ingest(mut call: Call) -> Outcome<HttpResponse> {
    let hosted = call.hosted()?;
    let client = call.client.0.as_ref().map_or("", |key| key.name.as_str());
    let name = stored_responses::name(call.request.headers(), client)?;
    let kind = call.request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with("multipart/")) {
        let message = "the body is a form; expected JSON lines";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
            .hint("with curl, use `-X POST -T FILE`"));
    }
    let options = IngestOptions { only: call.client.filter().cloned(), ..IngestOptions::default() };
    let body = std::mem::take(call.request.body_mut());
    // A separate task completes the ingest and stores its response even if the client disconnects.
    let done = tokio::spawn(ingest_and_store(hosted, name, options, body, call.app.limits.time));
    done.await.map_err(|_| Problem::internal("the ingest task panicked"))?
}

async fn ingest_and_store(
    hosted: Arc<HostedIndex>,
    name: Option<String>,
    options: IngestOptions,
    body: Body,
    write_timeout: Duration,
) -> Outcome<HttpResponse> {
    // The ingest does not occupy the pool, because a slow client would block searches.
    let writing = hosted.writing.clone().lock_owned().await;
    if let Some(answered) = name.as_ref().and_then(|name| hosted.answers.of(name)) {
        drop(writing);
        return replay(&answered, send(body, None, write_timeout).await);
    }
    let (sender, receiver) = mpsc::channel(PIECES);
    let taker = hosted.clone();
    let taking = tokio::task::spawn_blocking(move || {
        (take(&taker, &options, Stream { receiver, piece: Bytes::new(), broken: None }), writing)
    });
    let sent = send(body, Some(sender), write_timeout).await;
    let (taken, _writing) = taking.await.map_err(|_| Problem::internal("the ingest task panicked"))?;
    let taken = taken?;
    if taken.tally.damaged_files > 0 {
        let why = taken.first_rejects.last().map(|reject| reject.reason.clone()).unwrap_or_default();
        let stored = taken.tally.records - taken.tally.rejected;
        let records = if stored == 1 { "record was" } else { "records were" };
        return Err(Problem::request(format!("the body is incomplete: {why}"))
            .hint(format!("{stored} {records} stored; repeat the request, existing records are skipped")));
    }
    if taken.tally.rejected == taken.tally.records {
        return Err(nothing(taken.first_rejects.first().map(|reject| reject.reason.as_str())));
    }
    let answer = json!({"taken": taken.tally, "rejects": taken.first_rejects});
    if let (Some(request), Some(body)) = (name, sent) {
        let answered = StoredResponse { request, body: digest(body), answer: answer.clone() };
        hosted.answers.keep(answered)?;
    }
    Ok(body::ok(&answer))
}

/// Error for a body without any valid dialogue.
fn nothing(why: Option<&str>) -> Problem {
    let message = match why {
        Some(why) => format!("the body contains no valid dialogue: {why}"),
        None => "the body contains no dialogue".to_owned(),
    };
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_data", message).hint(
        "send one JSON object per line; with curl, use `-X POST -T FILE` or `--data-binary @FILE`, because `-d` removes line breaks",
    )
}

/// Returns the stored response if the body is the same as before, otherwise an error.
fn replay(answered: &StoredResponse, sent: Option<blake3::Hash>) -> Outcome<HttpResponse> {
    match sent.map(digest) {
        Some(body) if body == answered.body => {
            let mut response = body::ok(&answered.answer);
            let replayed = HeaderName::from_static("idempotency-replayed");
            response.headers_mut().insert(replayed, HeaderValue::from_static("true"));
            Ok(response)
        }
        Some(_) => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            "this Idempotency-Key was already used with a different body",
        )
        .param("Idempotency-Key")
        .hint("use a new key for each request, and the same key only to repeat a request")),
        None => Err(Problem::request("the body is incomplete").hint("repeat the request")),
    }
}

fn digest(hash: blake3::Hash) -> String {
    hash.to_hex().to_string()
}

/// Forwards the body to the ingest, and returns its digest if it was complete. If the client disconnects or stalls,
/// complete records are stored and the write lock is released.
async fn send(
    mut body: Body,
    sender: Option<mpsc::Sender<io::Result<Bytes>>>,
    write_timeout: Duration,
) -> Option<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    // With a Content-Length, the body is complete after this number of bytes, even if the client then disconnects.
    let whole = body.size_hint().exact();
    loop {
        let piece = match tokio::time::timeout(write_timeout, body.frame()).await {
            Ok(None) => return Some(hasher.finalize()),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => Ok(data),
                Err(_) => continue,
            },
            Ok(Some(Err(e))) => Err(io::Error::other(e)),
            Err(_) => {
                let seconds = write_timeout.as_secs_f64();
                Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no data received for {seconds} seconds"),
                ))
            }
        };
        match &piece {
            Ok(data) => drop(hasher.update(data)),
            Err(_) if sender.is_none() => return None,
            Err(_) => {}
        }
        let ended = piece.is_err();
        // The receiver is gone: the ingest failed, and its error becomes the response.
        if let Some(sender) = &sender
            && (sender.send(piece).await.is_err() || ended)
        {
            return None;
        }
        if whole == Some(hasher.count()) {
            return Some(hasher.finalize());
        }
    }
}

/// Blocking reader of a request body.
struct Stream {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
    /// Error that ended the body. Every further read returns it again.
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

fn take(hosted: &Arc<HostedIndex>, options: &IngestOptions, stream: Stream) -> Outcome<Ingested> {
    let opened = hosted.available()?;
    let input = Input::from_slow_stream("the body".to_owned(), Box::new(BufReader::new(stream))).map_err(
        |e| match e {
            Error::Io { source, .. } => Problem::request(format!("cannot read the body: {source}")),
            other => other.into(),
        },
    )?;
    let plan = Plan {
        sources: vec![Source::opened(input, formats::by_name("jsonl")?)],
        companions: Vec::new(),
        unrecognized: Vec::new(),
    };
    let taken = write(hosted, plan, options, opened.as_ref());
    hosted.changed()?;
    hosted.derive();
    taken
}

fn write(hosted: &HostedIndex, plan: Plan, options: &IngestOptions, opened: &OpenIndex) -> Outcome<Ingested> {
    let encoder = match (hosted.location.folder(), opened.searcher.engine().recipe()) {
        (None, Some(_)) => Some(opened.has_encoder()?.clone()),
        _ => None,
    };
    let options_of_writer =
        WriterOptions { mode: WriteMode::Append, encoder, holder: HOLDER, segment_bytes: None };
    let mut writer = hosted.location.open_writer(options_of_writer)?;
    let never = AtomicBool::new(false);
    let control = IngestControl {
        stop: &never,
        progress: &mut |_| {},
        acknowledged: &mut |_| {},
        resumed: &mut |_| {},
    };
    let taken = ingest::ingest(writer.as_mut(), plan, options, control);
    // Closes the writer even after an error, which persists all acknowledged records.
    let closed = writer.close(taken.is_ok());
    let taken = taken?;
    closed?;
    Ok(taken)
}

pub(super) async fn delete_one(call: Call) -> Outcome<HttpResponse> {
    let id = DialogueId::new(call.last_of_path()?)?;
    match removed(call, Selection::Ids(vec![id.clone()], None)).await? {
        0 => Err(Problem::not_found(format!("dialogue `{id}` does not exist"))),
        deleted => Ok(deleted_response(deleted)),
    }
}

pub(super) async fn delete_matching(call: Call) -> Outcome<HttpResponse> {
    let filter = call.query_value("filter").ok_or_else(|| {
        Problem::request("the filter is missing")
            .param("filter")
            .hint("use DELETE /v1/dialogues?filter=domain%3Dbanking or DELETE /v1/dialogues/ID")
    })?;
    Ok(deleted_response(removed(call, Selection::Matching(filter.parse()?)).await?))
}

fn deleted_response(deleted: u64) -> HttpResponse {
    body::ok(&json!({ "deleted": deleted }))
}

/// Removes dialogues from the requested index durably, and makes the change visible to the next search. Writers wait
/// for each other.
async fn removed(call: Call, selection: Selection) -> Outcome<u64> {
    let hosted = call.hosted()?;
    let (pool, client) = (call.app.pool.clone(), call.client);
    let writing = hosted.writing.clone().lock_owned().await;
    pool.run(move || {
        let _writing = writing;
        hosted.available()?;
        // The client can delete only what it may see.
        let selection = match selection {
            Selection::Ids(ids, _) => Selection::Ids(ids, client.restrict(None)?),
            Selection::Matching(filter) => match client.restrict(Some(filter))? {
                Some(filter) => Selection::Matching(filter),
                None => return Ok(0),
            },
        };
        let deleted = hosted.location.delete(&selection, false, HOLDER)?.count();
        if deleted > 0 {
            hosted.changed()?;
            hosted.derive();
        }
        Ok(deleted)
    })
    .await
}
