//! Routes that read dialogues. `/v1/dialogues` lists the dialogues that match a filter, in the engine's order. For a
//! local index, this is the order in which they were ingested. `/v1/dialogues/{id}` reads one dialogue,
//! and `/v1/threads/{id}` the dialogues of a thread.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, header},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::{Call, search::sent};
use crate::{
    OpenIndex,
    body::{self, ChunkedBody, HttpResponse, ResponseFormat},
    pool::Pool,
    problem::{Outcome, Problem},
};
use turnwise_core::ids::DialogueId;
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_index::engine::Bookmark;

/// Default number of dialogues in one JSON document.
const DEFAULT_LIMIT: u64 = 20;
/// Maximum number of dialogues in one JSON document.
const MAX_LIMIT: u64 = 1_000;
/// Minimum size in bytes of a piece of a streamed response. Only the last piece can be smaller.
const PIECE: usize = 64 << 10;
/// Pause before a retry when the request queue is full.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn one(call: Call) -> Outcome<HttpResponse> {
    let id = call.last_of_path()?;
    let opened = call.opened()?;
    let (pool, client) = (call.app.pool.clone(), call.client);
    let dialogue = pool
        .run(move || {
            // The error for a hidden dialogue is the same as for a missing dialogue.
            let nothing = || Problem::not_found(format!("dialogue `{id}` does not exist"));
            let dialogue = opened.dialogue(&id)?;
            dialogue.filter(|dialogue| client.can_see(dialogue)).ok_or_else(nothing)
        })
        .await?;
    Ok(body::ok(&dialogue))
}

/// Response of `/v1/threads/{id}`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Thread {
    /// Name and version of the response schema: `turnwise/thread/1`.
    schema: &'static str,
    /// Name of the thread.
    thread: String,
    /// All dialogues of the thread, in the order of time. Dialogues without a time are last, sorted by id.
    dialogues: Vec<Dialogue>,
}

pub(super) async fn thread(call: Call) -> Outcome<HttpResponse> {
    let name = call.last_of_path()?;
    let with_turns = match call.query_value("turns").as_deref() {
        None | Some("true") => true,
        Some("false") => false,
        Some(other) => {
            let problem = Problem::request(format!("invalid value `{other}` for `turns`"));
            return Err(problem.param("turns").hint("use true or false"));
        }
    };
    let (opened, filter) = (call.opened()?, call.filter()?);
    let form = ResponseFormat::of(call.request.headers());
    let read = move || {
        let mut dialogues = opened.searcher.thread(&name, filter.as_ref())?;
        if dialogues.is_empty() {
            // The error for a hidden thread is the same as for a missing thread.
            let problem = Problem::not_found(format!("thread `{name}` does not exist"));
            let hint = opened.searcher.unknown_thread(&name, filter.as_ref())?.hint();
            return Err(problem.hint(hint.unwrap_or_default()));
        }
        if !with_turns {
            for dialogue in &mut dialogues {
                // The time can be that of a turn.
                dialogue.time = dialogue.started();
                dialogue.turns.clear();
            }
        }
        Ok(Thread { schema: "turnwise/thread/1", thread: name, dialogues })
    };
    let found = call.app.pool.run(read).await?;
    sent(form, found, "dialogue", |found| std::mem::take(&mut found.dialogues))
}

pub(super) async fn list(call: Call) -> Outcome<HttpResponse> {
    let form = ResponseFormat::of(call.request.headers());
    let limit = match form {
        ResponseFormat::Whole => Some(call.number("limit", 1, MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT)),
        _ => call.number("limit", 1, u64::MAX)?,
    };
    let filter = call.filter()?;
    let opened = call.opened()?;
    let at = match call.query_value("after") {
        None => Bookmark::Beginning,
        Some(id) => {
            let (opened, client) = (opened.clone(), call.client.clone());
            call.app
                .pool
                .run(move || position_after(&opened, &id, |dialogue| client.can_see(dialogue)))
                .await?
        }
    };
    let mut walk = Walk { opened, filter: filter.map(Arc::new), at: Some(at), pool: call.app.pool.clone() };
    if let (ResponseFormat::Whole, Some(limit)) = (form, limit) {
        let (mut found, limit) = (Vec::new(), limit as usize);
        // Read one more dialogue than the limit, to find out whether there is a next page.
        while found.len() <= limit
            && let Some(some) = walk.next(limit + 1 - found.len()).await?
        {
            found.extend(some);
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|dialogue| dialogue.id.clone());
        return Ok(body::ok(&json!({"dialogues": found, "next": next})));
    }
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(send(walk, form, limit.unwrap_or(u64::MAX), sender));
    let mut response = Response::new(Body::new(ChunkedBody(receiver)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(form.kind()));
    Ok(response)
}

/// Returns the position after the dialogue `id` in the list of dialogues. Returns an error if the dialogue does not
/// exist or the client may not see it.
fn position_after(opened: &OpenIndex, id: &str, can_see: impl Fn(&Dialogue) -> bool) -> Outcome<Bookmark> {
    let id = DialogueId::new(id)?;
    let view = opened.searcher.engine().view();
    let place = match view.record(id.key())?.filter(|(_, there)| can_see(there)) {
        Some(_) => view.bookmark_after(&id)?,
        None => None,
    };
    place.ok_or_else(|| {
        Problem::request(format!("dialogue `{id}` does not exist, and the list cannot continue after it"))
            .param("after")
            .hint("if it was removed meanwhile, continue after an earlier dialogue")
    })
}

/// Asynchronous iterator over the matching dialogues of an index. It reads the dialogues in short steps on the thread
/// pool.
struct Walk {
    opened: Arc<OpenIndex>,
    filter: Option<Arc<Filter>>,
    /// Position of the next dialogue. `None` if there are no further dialogues.
    at: Option<Bookmark>,
    pool: Pool,
}

impl Walk {
    /// Returns at most `most` of the next matching dialogues. The list can be empty although more dialogues follow.
    /// Returns `None` if there are no further dialogues.
    async fn next(&mut self, most: usize) -> Outcome<Option<Vec<Dialogue>>> {
        let Some(at) = self.at else { return Ok(None) };
        let (opened, filter) = (self.opened.clone(), self.filter.clone());
        let step = move || {
            let engine = opened.searcher.engine();
            Ok(engine.view().list_dialogues(at, filter.as_deref(), most)?)
        };
        let (found, at) = self.pool.run(step).await?;
        self.at = at;
        Ok(Some(found))
    }
}

/// Sends at most `limit` dialogues in pieces to the body of a response. If the request queue is full, retries after a
/// pause. Other errors abort the response.
async fn send(mut walk: Walk, form: ResponseFormat, limit: u64, sender: mpsc::Sender<Bytes>) {
    let (mut piece, mut sent) = (Vec::new(), 0u64);
    loop {
        let most = usize::try_from(limit - sent).unwrap_or(usize::MAX);
        let found = match walk.next(most).await {
            Ok(found) => found.filter(|_| most > 0),
            Err(problem) if problem.retry_after.is_some() => {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
            Err(_) => return,
        };
        let ended = found.is_none();
        for dialogue in found.into_iter().flatten() {
            sent += 1;
            if form.write("dialogue", &dialogue, &mut piece).is_err() {
                return;
            }
        }
        if ended
            && form == ResponseFormat::Events
            && form.write("done", &json!({ "dialogues": sent }), &mut piece).is_err()
        {
            return;
        }
        let mut pieces = Vec::new();
        if piece.len() >= PIECE || (ended && !piece.is_empty()) {
            pieces.push(std::mem::take(&mut piece).into());
        }
        if ended {
            pieces.push(Bytes::new());
        }
        for piece in pieces {
            if sender.send(piece).await.is_err() {
                return;
            }
        }
        if ended {
            return;
        }
    }
}
