//! Routes that write. `/v1/ingest` ingests dialogues in JSON lines from the request body, without a limit on its
//! length. The `DELETE` routes below `/v1/dialogues` delete dialogues.

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

/// Capacity of the channel from the body reader to the ingest, in pieces of the request body.
const PIECES: usize = 16;
/// Name of the server in the lock file of an index. Other processes that try to write to the index show this name in an
/// error.
const HOLDER: &str = "turnwise serve";

pub(super) async fn ingest(mut call: Call) -> Outcome<HttpResponse> {
    let hosted = call.hosted()?;
    let client = call.client.0.as_ref().map_or("", |key| key.name.as_str());
    let request = stored_responses::request_digest(call.request.headers(), client)?;
    let kind = call.request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with("multipart/")) {
        let message = "the body is a form; expected JSON lines";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
            .hint("with curl, use `-X POST -T FILE`"));
    }
    let options = IngestOptions { only: call.client.filter().cloned(), ..IngestOptions::default() };
    let body = std::mem::take(call.request.body_mut());
    // A separate task does the ingest, so that it is completed and its response stored even if the client disconnects.
    let done = tokio::spawn(ingest_and_store(hosted, request, options, body, call.app.limits.timeout));
    done.await.map_err(|_| Problem::internal("the ingest task panicked"))?
}

async fn ingest_and_store(
    hosted: Arc<HostedIndex>,
    request: Option<String>,
    options: IngestOptions,
    body: Body,
    write_timeout: Duration,
) -> Outcome<HttpResponse> {
    // The ingest does not use the pool, because a slow client would block searches.
    let writing = hosted.writing.clone().lock_owned().await;
    if let Some(stored) = request.as_ref().and_then(|request| hosted.responses.get(request)) {
        drop(writing);
        return replay(&stored, send(body, None, write_timeout).await);
    }
    let (sender, receiver) = mpsc::channel(PIECES);
    let target = hosted.clone();
    let ingesting = tokio::task::spawn_blocking(move || {
        let stream = Stream { receiver, piece: Bytes::new(), broken: None };
        (ingest_stream(&target, &options, stream), writing)
    });
    let sent = send(body, Some(sender), write_timeout).await;
    let (ingested, _writing) = ingesting.await.map_err(|_| Problem::internal("the ingest task panicked"))?;
    let Ingested { tally, first_rejects, .. } = ingested?;
    if tally.damaged_files > 0 {
        let why = first_rejects.last().map(|reject| reject.reason.clone()).unwrap_or_default();
        let stored = tally.records - tally.rejected;
        let records = if stored == 1 { "record was" } else { "records were" };
        return Err(Problem::request(format!("the body is incomplete: {why}"))
            .hint(format!("{stored} {records} stored; repeat the request, existing records are skipped")));
    }
    if tally.rejected == tally.records {
        return Err(no_dialogue(first_rejects.first().map(|reject| reject.reason.as_str())));
    }
    let answer = json!({"taken": tally, "rejects": first_rejects});
    if let (Some(request), Some(body)) = (request, sent) {
        hosted.responses.store(StoredResponse { request, body: digest(body), answer: answer.clone() })?;
    }
    Ok(body::ok(&answer))
}

/// Creates the error for a request body without any valid dialogue. `why` is the reason why the first record was
/// rejected, or `None` if the body contains no record.
fn no_dialogue(why: Option<&str>) -> Problem {
    let message = match why {
        Some(why) => format!("the body contains no valid dialogue: {why}"),
        None => "the body contains no dialogue".to_owned(),
    };
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_data", message).hint(
        "send one JSON object per line; with curl, use `-X POST -T FILE` or `--data-binary @FILE`, because `-d` removes line breaks",
    )
}

/// Returns the stored response if the digest `sent` of the new request body equals the stored digest. Otherwise,
/// returns an error. `sent` is `None` if the body is incomplete.
fn replay(stored: &StoredResponse, sent: Option<blake3::Hash>) -> Outcome<HttpResponse> {
    match sent.map(digest) {
        Some(body) if body == stored.body => {
            let mut response = body::ok(&stored.answer);
            let replayed = HeaderName::from_static("idempotency-replayed");
            response.headers_mut().insert(replayed, HeaderValue::from_static("true"));
            Ok(response)
        }
        Some(_) => {
            let message = "this Idempotency-Key was already used with a different body";
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", message)
                .param("Idempotency-Key")
                .hint("use a new key for each request, and the same key only to repeat a request"))
        }
        None => Err(Problem::request("the body is incomplete").hint("repeat the request")),
    }
}

fn digest(hash: blake3::Hash) -> String {
    hash.to_hex().to_string()
}

/// Reads a request body and returns its digest. If `sender` is given, also sends each piece of the body to it. Returns
/// `None` if the client disconnects, if no data arrive for `write_timeout`, or if the receiver of `sender` was dropped.
async fn send(
    mut body: Body,
    sender: Option<mpsc::Sender<io::Result<Bytes>>>,
    write_timeout: Duration,
) -> Option<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    // Value of the Content-Length header. The body is complete after this number of bytes, even if the client then
    // disconnects.
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
                let message = format!("no data received for {} seconds", write_timeout.as_secs_f64());
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }
        };
        match &piece {
            Ok(data) => drop(hasher.update(data)),
            Err(_) if sender.is_none() => return None,
            Err(_) => {}
        }
        let ended = piece.is_err();
        // If the receiver was dropped, the ingest has failed. Its error becomes the response.
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
    /// Error that ended the body. Every further read returns the same error.
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

/// Ingests the dialogues in a request body and makes them searchable.
fn ingest_stream(hosted: &Arc<HostedIndex>, options: &IngestOptions, stream: Stream) -> Outcome<Ingested> {
    let opened = hosted.available()?;
    let input = Input::from_slow_stream("the body".to_owned(), Box::new(BufReader::new(stream))).map_err(
        |e| match e {
            Error::Io { source, .. } => Problem::request(format!("cannot read the body: {source}")),
            other => other.into(),
        },
    )?;
    let sources = vec![Source::opened(input, formats::by_name("jsonl")?)];
    let ingested = write(hosted, Plan { sources, ..Plan::default() }, options, opened.as_ref());
    hosted.changed()?;
    hosted.derive();
    ingested
}

fn write(hosted: &HostedIndex, plan: Plan, options: &IngestOptions, opened: &OpenIndex) -> Outcome<Ingested> {
    let encoder = match (hosted.location.folder(), opened.searcher.engine().recipe()) {
        (None, Some(_)) => Some(opened.encoder()?.clone()),
        _ => None,
    };
    let settings = WriterOptions { mode: WriteMode::Append, encoder, holder: HOLDER, segment_bytes: None };
    let mut writer = hosted.location.open_writer(settings)?;
    let never = AtomicBool::new(false);
    let (progress, acknowledged, resumed) = (&mut |_: &_| {}, &mut |_: &_| {}, &mut |_| {});
    let control = IngestControl { stop: &never, progress, acknowledged, resumed };
    let ingested = ingest::ingest(writer.as_mut(), plan, options, control);
    // Close the writer also after an error, because closing it persists all acknowledged records.
    let closed = writer.close(ingested.is_ok());
    let ingested = ingested?;
    closed?;
    Ok(ingested)
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

/// Deletes dialogues from the requested index and returns their number. The deletion is durable, and the next search
/// does not find the dialogues. Waits until no other request of this server writes to the index.
async fn removed(call: Call, selection: Selection) -> Outcome<u64> {
    let hosted = call.hosted()?;
    let (pool, client) = (call.app.pool.clone(), call.client);
    let writing = hosted.writing.clone().lock_owned().await;
    pool.run(move || {
        let _writing = writing;
        hosted.available()?;
        // The client can delete only dialogues that it may see.
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
