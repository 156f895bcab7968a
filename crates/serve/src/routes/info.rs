//! `/info`: indexes and version; `/openapi.json`: API description.

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use serde_json::{Value, json};

use super::Call;
use crate::{app::Client, body, hosted::Hosted, openapi, problem::Outcome};
use turnwise_core::error::Result;
use turnwise_index::engine::Engine;

pub(super) async fn info(call: Call) -> Outcome<Response<Body>> {
    let app = call.app.clone();
    let pool = app.pool.clone();
    let indexes = pool
        .run(move || {
            let may = |name: &str| call.client.0.as_ref().is_none_or(|key| key.is_for(name));
            let allowed = app.indexes.iter().filter(|hosted| may(&hosted.name));
            let all: Result<Vec<Value>> = allowed.map(|hosted| about(hosted, &call.client)).collect();
            Ok(all?)
        })
        .await?;
    Ok(body::json(
        StatusCode::OK,
        &json!({"name": "turnwise", "version": env!("CARGO_PKG_VERSION"), "indexes": indexes}),
    ))
}

fn about(hosted: &Hosted, client: &Client) -> Result<Value> {
    let opened = &hosted.current();
    let engine = opened.searcher.engine();
    let (dialogues, turns) = seen(engine, client)?.unzip();
    let model = engine.recipe().map(|recipe| {
        json!({
            "name": recipe.name, "dim": recipe.dim, "fingerprint": recipe.fingerprint,
            "runs": opened.encoder.as_ref().map(|encoder| encoder.describe()),
            "missing": opened.without_encoder.as_ref().map(ToString::to_string),
        })
    });
    Ok(json!({
        "name": hosted.name, "dialogues": dialogues, "turns": turns, "generation": engine.generation(),
        "created": engine.created(), "model": model,
        "engine": hosted.location.kind(), "can": engine.capabilities(),
    }))
}

/// Number of dialogues and turns that the client may see. `None` for a restricted key of a remote engine, because the
/// engine's totals would include hidden dialogues.
fn seen(engine: &dyn Engine, client: &Client) -> Result<Option<(u64, u64)>> {
    let Some(filter) = client.filter() else {
        let totals = engine.totals();
        return Ok(Some((totals.dialogues, totals.turns)));
    };
    // The engine's totals would include hidden dialogues.
    Ok(engine.count(filter)?.map(|totals| (totals.dialogues, totals.turns)))
}

pub(super) async fn openapi(_: Call) -> Outcome<Response<Body>> {
    Ok(body::json(StatusCode::OK, &openapi::document()))
}
