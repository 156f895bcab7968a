//! The routes `/v1/search`, `/v1/similar` and `/v1/respond`. Requests and responses have the same format as in the
//! library.

use serde::Serialize;

use super::Call;
use crate::{
    body::{self, HttpResponse, ResponseFormat},
    problem::{Outcome, Problem},
};
use turnwise_search::{RespondRequest, SearchRequest};

pub(super) async fn search(call: Call) -> Outcome<HttpResponse> {
    answer(call, |_| Ok(())).await
}

pub(super) async fn similar(call: Call) -> Outcome<HttpResponse> {
    answer(call, |request| match (&request.like, &request.dialogue) {
        (None, None) => Err(Problem::request("neither `like` nor `dialogue` is given")
            .param("like")
            .hint("set `like` to the id of an utterance or a dialogue, or `dialogue` to a whole dialogue")),
        _ => Ok(()),
    })
    .await
}

pub(super) async fn respond(mut call: Call) -> Outcome<HttpResponse> {
    let request: RespondRequest = body::parse(&call.body().await?)?;
    let opened = call.opened()?;
    let form = ResponseFormat::of(call.request.headers());
    let (pool, client) = (call.app.pool.clone(), call.client);
    let found = pool.run(move || opened.respond(request, &client)).await?;
    sent(form, found, "reply", |found| std::mem::take(&mut found.replies))
}

async fn answer(mut call: Call, check: fn(&SearchRequest) -> Outcome<()>) -> Outcome<HttpResponse> {
    let request: SearchRequest = body::parse(&call.body().await?)?;
    check(&request)?;
    let opened = call.opened()?;
    let form = ResponseFormat::of(call.request.headers());
    let (pool, client) = (call.app.pool.clone(), call.client);
    let found = pool.run(move || opened.search(request, &client)).await?;
    sent(form, found, "hit", |found| std::mem::take(&mut found.hits))
}

/// Creates a response in the format `form`. If the format is lines or events, the response lists the items first, then
/// the other fields of `found`. `take` removes the items from `found`. `item` is the name of an item's event type.
pub(super) fn sent<T: Serialize, Item: Serialize>(
    form: ResponseFormat,
    mut found: T,
    item: &'static str,
    take: fn(&mut T) -> Vec<Item>,
) -> Outcome<HttpResponse> {
    if let ResponseFormat::Whole = form {
        return Ok(body::ok(&found));
    }
    let items = take(&mut found);
    body::list(form, &items, item, &found)
}
