//! `/health/live`, `/health/ready`, `/metrics`.

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use serde_json::json;

use super::Call;
use crate::{body, hosted::Hosted, metrics::Gauge, problem::Outcome};
use turnwise_index::vectors::Kind;

/// Reports that the process is running.
pub(super) async fn live(_: Call) -> Outcome<Response<Body>> {
    Ok(body::json(StatusCode::OK, &json!({"status": "live"})))
}

/// Reports whether all indexes support all their search modes. The response contains no index names.
pub(super) async fn ready(call: Call) -> Outcome<Response<Body>> {
    let count = |is: fn(&Hosted) -> bool| call.app.indexes.iter().filter(|hosted| is(hosted)).count();
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

pub(super) async fn metrics(call: Call) -> Outcome<Response<Body>> {
    let app = &call.app;
    let allowed: Vec<_> = app
        .indexes
        .iter()
        .filter(|hosted| {
            call.client.0.as_ref().is_none_or(|key| key.filter.is_none() && key.is_for(&hosted.name))
        })
        .collect();
    let opened: Vec<_> = allowed.iter().map(|hosted| (hosted.name.as_str(), hosted.current())).collect();
    let of = |name, about, value: &dyn Fn(&crate::Opened) -> f64| Gauge {
        name,
        about,
        values: opened.iter().map(|(index, opened)| (vec![("index", *index)], value(opened))).collect(),
    };
    let plain = |name, about, value: f64| Gauge { name, about, values: vec![(Vec::new(), value)] };
    let vectors = |opened: &crate::Opened| {
        Kind::ALL.map(|kind| opened.searcher.engine().rows(kind)).iter().sum::<u64>() as f64
    };
    let totals = |opened: &crate::Opened| opened.searcher.engine().totals();
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
