//! Routes with information about the server: `/info`, `/openapi.json`, `/health/live`, `/health/ready` and `/metrics`.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use crate::{
    OpenIndex,
    app::Client,
    body::{self, HttpResponse},
    hosted::HostedIndex,
    metrics::Gauge,
    openapi,
    problem::Outcome,
};
use turnwise_index::vectors::Kind;

pub(super) async fn info(call: Call) -> Outcome<HttpResponse> {
    let app = call.app.clone();
    let pool = app.pool.clone();
    let indexes: Vec<Value> = pool
        .run(move || call.client.indexes(&app).map(|hosted| about(hosted, &call.client)).collect())
        .await?;
    Ok(body::ok(&json!({"name": "turnwise", "version": env!("CARGO_PKG_VERSION"), "indexes": indexes})))
}

fn about(hosted: &HostedIndex, client: &Client) -> Outcome<Value> {
    let opened = &hosted.current();
    let engine = opened.searcher.engine();
    let (dialogues, turns) = visible_totals(opened, client)?.unzip();
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

/// Returns the number of dialogues and the number of turns that the client may see. Returns `None` if the client's key
/// has a filter and the engine cannot count the matching dialogues.
fn visible_totals(opened: &OpenIndex, client: &Client) -> Outcome<Option<(u64, u64)>> {
    let engine = opened.searcher.engine();
    let Some(filter) = client.filter() else {
        let totals = engine.totals();
        return Ok(Some((totals.dialogues, totals.turns)));
    };
    // The matching dialogues are counted only once for each filter and each state of the index.
    let counted = opened.surveys.answer(&format!("visible totals {filter}"), || {
        let visible = engine.count(filter)?.map(|totals| (totals.dialogues, totals.turns));
        Ok(json!(visible).to_string().into())
    })?;
    Ok(serde_json::from_slice(&counted).unwrap_or_default())
}

pub(super) async fn openapi(_: Call) -> Outcome<HttpResponse> {
    Ok(body::ok(&openapi::document()))
}

/// Responds that the server process is running.
pub(super) async fn live(_: Call) -> Outcome<HttpResponse> {
    Ok(body::ok(&json!({"status": "live"})))
}

/// Responds whether every engine is available and every model is open. The response contains no index names, because
/// the route is public.
pub(super) async fn ready(call: Call) -> Outcome<HttpResponse> {
    let count = |is: fn(&HostedIndex) -> bool| call.app.indexes.iter().filter(|hosted| is(hosted)).count();
    let unavailable = count(|hosted| hosted.unavailable().is_some());
    let missing = count(|hosted| hosted.current().without_encoder.is_some());
    let (status, mut report) = match unavailable + missing {
        0 => (StatusCode::OK, json!({"status": "ready"})),
        _ => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "not ready"})),
    };
    for (what, n) in [("indexes_without_their_model", missing), ("engines_out_of_reach", unavailable)] {
        if n > 0 {
            report[what] = json!(n);
        }
    }
    Ok(body::json(status, &report))
}

pub(super) async fn metrics(call: Call) -> Outcome<HttpResponse> {
    let app = &call.app;
    let allowed: Vec<_> = app
        .indexes
        .iter()
        .filter(|hosted| {
            call.client.0.as_ref().is_none_or(|key| key.filter.is_none() && key.allows_index(&hosted.name))
        })
        .collect();
    let opened: Vec<_> = allowed.iter().map(|hosted| (hosted.name.as_str(), hosted.current())).collect();
    let of = |name, about, value: &dyn Fn(&OpenIndex) -> f64| Gauge {
        name,
        about,
        values: opened.iter().map(|(index, opened)| (vec![("index", *index)], value(opened))).collect(),
    };
    let plain = |name, about, value: f64| Gauge { name, about, values: vec![(Vec::new(), value)] };
    let vectors = |opened: &OpenIndex| {
        Kind::ALL.map(|kind| opened.searcher.engine().rows(kind)).iter().sum::<u64>() as f64
    };
    let totals = |opened: &OpenIndex| opened.searcher.engine().totals();
    let text = app.metrics.text(&[
        plain("turnwise_queue_waiting", "Waiting requests.", app.pool.waiting() as f64),
        plain("turnwise_queue_running", "Running requests.", app.pool.running() as f64),
        plain(
            "turnwise_uptime_seconds",
            "Time since the server started.",
            app.started.elapsed().as_secs_f64(),
        ),
        of("turnwise_index_dialogues", "Number of dialogues in an index.", &|o| totals(o).dialogues as f64),
        of("turnwise_index_turns", "Number of turns in an index.", &|o| totals(o).turns as f64),
        of("turnwise_index_vectors", "Number of vectors in an index.", &vectors),
        of("turnwise_index_generation", "Generation of an index.", &|o| {
            o.searcher.engine().generation() as f64
        }),
    ]);
    Ok(body::of(text, "text/plain; version=0.0.4; charset=utf-8"))
}
