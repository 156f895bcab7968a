//! `/v1/benchmarks`: the benchmark report of `turnwise bench report`.

use axum::{
    body::Body,
    http::{Response, StatusCode},
};

use super::Call;
use crate::{
    body,
    problem::{Outcome, Problem},
};

pub(super) async fn report(call: Call) -> Outcome<Response<Body>> {
    // The report names data and models of the whole server.
    if !call.client.is_unrestricted() {
        let message = "this API key has restrictions, but the benchmark report covers all data";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    let hooks = call.app.hooks.clone();
    match call.app.surveying.run(move || Ok(hooks.report()?)).await? {
        Some(page) => Ok(body::of(page, "text/html; charset=utf-8")),
        None => Err(Problem::not_found("no benchmark results yet")
            .hint("run a benchmark, for example: turnwise bench dialogues chats.jsonl -r model -r bm25")),
    }
}
