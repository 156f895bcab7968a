//! `DELETE /v1/dialogues/{id}` and `DELETE /v1/dialogues?filter=…`.

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use serde_json::json;

use super::Call;
use crate::{
    body,
    problem::{Outcome, Problem},
    source::Those,
};
use turnwise_core::ids::DialogueId;

pub(super) async fn one(call: Call) -> Outcome<Response<Body>> {
    let id = DialogueId::new(call.last_of_path()?)?;
    match removed(call, Those::One(id.clone())).await? {
        0 => Err(Problem::not_found(format!("there is no dialogue `{id}`"))),
        deleted => Ok(told(deleted)),
    }
}

pub(super) async fn those(call: Call) -> Outcome<Response<Body>> {
    let filter = call.asked("filter").ok_or_else(|| {
        Problem::request("it is not said what is to be removed")
            .param("filter")
            .hint("DELETE /v1/dialogues?filter=domain%3Dbanking, or DELETE /v1/dialogues/ID")
    })?;
    Ok(told(removed(call, Those::Fitting(filter.parse()?)).await?))
}

fn told(deleted: usize) -> Response<Body> {
    body::json(StatusCode::OK, &json!({ "deleted": deleted }))
}

/// Removes what is wanted of the index that is asked, durably, when no other request writes to it, and lets the next search know.
async fn removed(call: Call, those: Those) -> Outcome<usize> {
    let index = call.asked("index");
    let hosted = call.asker.index(&call.app, index.as_deref())?.clone();
    let (pool, asker) = (call.app.pool.clone(), call.asker);
    let writing = hosted.writing.clone().lock_owned().await;
    pool.run(move || {
        let _writing = writing;
        hosted.at_hand()?;
        let deleted = hosted.source.remove(&those, &asker)?;
        if deleted > 0 {
            hosted.changed()?;
            hosted.derive();
        }
        Ok(deleted)
    })
    .await
}
