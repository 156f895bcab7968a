//! `DELETE /v1/dialogues/{id}` and `DELETE /v1/dialogues?filter=…`.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use serde_json::json;

use super::Call;
use crate::{
    corpus::filter::Filter,
    error::Error,
    ids::DialogueId,
    serve::{
        app::Asker,
        body,
        hosted::Hosted,
        problem::{Outcome, Problem},
    },
    store::{Snapshot, Store},
};

/// How the holder of the lock is called.
pub(super) const HOLDER: &str = "turnwise serve";

pub(super) async fn one(call: Call) -> Outcome<Response<Body>> {
    let id = DialogueId::new(call.last_of_path()?)?;
    removed(call, move |snapshot, asker| match snapshot.get(&id)?.filter(|there| asker.may_see(there)) {
        Some(_) => Ok(vec![id]),
        None => Err(Problem::not_found(format!("there is no dialogue `{id}`"))),
    })
    .await
}

pub(super) async fn those(call: Call) -> Outcome<Response<Body>> {
    let filter = call.asked("filter").ok_or_else(|| {
        Problem::request("it is not said what is to be removed")
            .param("filter")
            .hint("DELETE /v1/dialogues?filter=domain%3Dbanking, or DELETE /v1/dialogues/ID")
    })?;
    let filter: Filter = filter.parse()?;
    removed(call, move |snapshot, asker| Ok(fitting(snapshot, &filter, asker)?)).await
}

/// Removes what is wanted of the index that is asked, when no other request writes to it.
async fn removed(
    call: Call,
    wanted: impl FnOnce(&Snapshot, &Asker) -> Outcome<Vec<DialogueId>> + Send + 'static,
) -> Outcome<Response<Body>> {
    let index = call.asked("index");
    let hosted = call.asker.index(&call.app, index.as_deref())?.clone();
    let (pool, asker) = (call.app.pool.clone(), call.asker);
    let writing = hosted.writing.clone().lock_owned().await;
    let deleted = pool
        .run(move || {
            let _writing = writing;
            let ids = wanted(&Snapshot::open(&hosted.root)?, &asker)?;
            delete(&hosted, &ids)
        })
        .await?;
    Ok(body::json(StatusCode::OK, &json!({ "deleted": deleted })))
}

fn fitting(snapshot: &Snapshot, filter: &Filter, asker: &Asker) -> Result<Vec<DialogueId>, Error> {
    let mut ids = Vec::new();
    for dialogue in snapshot.dialogues() {
        let dialogue = dialogue?;
        if filter.matches(&dialogue) && asker.may_see(&dialogue) {
            ids.push(dialogue.id);
        }
    }
    Ok(ids)
}

/// Removes them, durably, and lets the next search know.
fn delete(hosted: &Arc<Hosted>, ids: &[DialogueId]) -> Outcome<usize> {
    if ids.is_empty() {
        return Ok(0);
    }
    let mut store = Store::open(&hosted.root, HOLDER)?;
    for id in ids {
        store.delete(id)?;
    }
    let unfinished = store.unfinished_ingest().cloned();
    store.commit(unfinished)?;
    store.close()?;
    hosted.changed()?;
    hosted.derive();
    Ok(ids.len())
}
