//! `DELETE /v1/dialogues/{id}` and `DELETE /v1/dialogues?filter=…`.

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use serde_json::json;

use super::{Call, ingest::HOLDER};
use crate::{
    body,
    problem::{Outcome, Problem},
};
use turnwise_core::ids::DialogueId;
use turnwise_index::location::Selection;

pub(super) async fn one(call: Call) -> Outcome<Response<Body>> {
    let id = DialogueId::new(call.last_of_path()?)?;
    match removed(call, Selection::Ids(vec![id.clone()], None)).await? {
        0 => Err(Problem::not_found(format!("dialogue `{id}` does not exist"))),
        deleted => Ok(deleted_response(deleted)),
    }
}

pub(super) async fn those(call: Call) -> Outcome<Response<Body>> {
    let filter = call.query_value("filter").ok_or_else(|| {
        Problem::request("the filter is missing")
            .param("filter")
            .hint("use DELETE /v1/dialogues?filter=domain%3Dbanking or DELETE /v1/dialogues/ID")
    })?;
    Ok(deleted_response(removed(call, Selection::Matching(filter.parse()?)).await?))
}

fn deleted_response(deleted: u64) -> Response<Body> {
    body::json(StatusCode::OK, &json!({ "deleted": deleted }))
}

/// Removes dialogues from the requested index durably, and makes the change visible to the next search. Writers wait
/// for each other.
async fn removed(call: Call, selection: Selection) -> Outcome<u64> {
    let index = call.query_value("index");
    let hosted = call.client.index(&call.app, index.as_deref())?.clone();
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
