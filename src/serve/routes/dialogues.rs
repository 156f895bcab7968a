//! `/v1/dialogues/{id}`.

use axum::{
    body::Body,
    http::{Response, StatusCode},
};

use super::Call;
use crate::{
    ids::DialogueId,
    serve::{
        body,
        problem::{Outcome, Problem},
    },
};

pub(super) async fn one(call: Call) -> Outcome<Response<Body>> {
    let id = call.last_of_path()?;
    let index = call.asked("index");
    let opened = call.asker.index(&call.app, index.as_deref())?.now();
    let (pool, asker) = (call.app.pool.clone(), call.asker);
    let dialogue = pool
        .run(move || {
            // What may not be seen is not there.
            let nothing = || Problem::not_found(format!("there is no dialogue `{id}`"));
            let dialogue = opened.searcher.snapshot().get(&DialogueId::new(id.as_str())?)?;
            dialogue.filter(|dialogue| asker.may_see(dialogue)).ok_or_else(nothing)
        })
        .await?;
    Ok(body::json(StatusCode::OK, &dialogue))
}
