//! `/mcp`: Model Context Protocol over HTTP, with one message per request.

use axum::{
    body::Body,
    http::{Response, StatusCode},
};

use super::Call;
use crate::{body, mcp, problem::Outcome};

pub(super) async fn mcp(mut call: Call) -> Outcome<Response<Body>> {
    let message = call.body().await?;
    let index = call.query_value("index");
    let (app, client) = (call.app.clone(), call.client);
    let answer =
        call.app.pool.run(move || Ok(mcp::answer(&app, &client, index.as_deref(), &message))).await?;
    Ok(match answer {
        Some(answer) => body::json(StatusCode::OK, &answer),
        // A notification has no response.
        None => {
            let mut accepted = Response::new(Body::empty());
            *accepted.status_mut() = StatusCode::ACCEPTED;
            accepted
        }
    })
}
