//! `/v1/benchmarks`: the report of `turnwise bench report`.

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
    // It names data and models of the whole machine.
    if !call.asker.sees_all() {
        let message = "this key sees a part only, and the benchmarks are of the whole";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    let hooks = call.app.hooks.clone();
    match call.app.surveying.run(move || Ok(hooks.report()?)).await? {
        Some(page) => Ok(body::of(page, "text/html; charset=utf-8")),
        None => Err(Problem::not_found("nothing was measured here yet").hint(
            "what `turnwise bench` comes to is shown here; for example: turnwise bench dialogues chats.jsonl -r model -r bm25",
        )),
    }
}
