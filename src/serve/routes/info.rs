//! `/info` and `/openapi.json`.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use serde_json::{Value, json};

use super::Call;
use crate::{
    error::Result,
    serve::{Opened, app::Asker, body, openapi, problem::Outcome},
};

pub(super) async fn info(call: Call) -> Outcome<Response<Body>> {
    let app = call.app.clone();
    let pool = app.pool.clone();
    let indexes = pool
        .run(move || {
            let may = |name: &str| call.asker.0.as_ref().is_none_or(|key| key.is_for(name));
            let those = app.indexes.iter().filter(|hosted| may(&hosted.name));
            let all: Result<Vec<Value>> =
                those.map(|hosted| about(&hosted.name, &hosted.now(), &call.asker)).collect();
            Ok(all?)
        })
        .await?;
    Ok(body::json(
        StatusCode::OK,
        &json!({"name": "turnwise", "version": env!("CARGO_PKG_VERSION"), "indexes": indexes}),
    ))
}

fn about(name: &str, opened: &Arc<Opened>, asker: &Asker) -> Result<Value> {
    let engine = opened.searcher.engine();
    let (dialogues, turns) = match asker.filter() {
        None => (engine.totals().dialogues, engine.totals().turns),
        // Counted one by one: what may not be seen is not counted.
        Some(filter) => {
            let mut seen = (0, 0);
            for dialogue in opened.snapshot("counting what a key may see")?.dialogues() {
                let dialogue = dialogue?;
                if filter.matches(&dialogue) {
                    seen = (seen.0 + 1, seen.1 + dialogue.turns.len() as u64);
                }
            }
            seen
        }
    };
    let model = engine.recipe().map(|recipe| {
        json!({
            "name": recipe.name, "dim": recipe.dim, "fingerprint": recipe.fingerprint,
            "runs": opened.encoder.as_ref().map(|encoder| encoder.describe()),
            "missing": opened.without_encoder.as_ref().map(ToString::to_string),
        })
    });
    Ok(json!({
        "name": name, "dialogues": dialogues, "turns": turns, "generation": engine.generation(),
        "created": opened.searcher.engine().embedded().map(|index| index.snapshot().created()), "model": model,
    }))
}

pub(super) async fn openapi(_: Call) -> Outcome<Response<Body>> {
    Ok(body::json(StatusCode::OK, &openapi::document()))
}
