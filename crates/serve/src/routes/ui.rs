//! `/ui`: web page; `/docs`: readable API documentation.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};

use super::Call;
use crate::{
    body, page,
    problem::{Outcome, Problem},
};

pub(super) const PATHS: [&str; 5] = ["/", "/ui", "/ui/", "/ui/{file}", "/docs"];

/// Serves a file of the page. Redirects to `/ui/` if the slash is missing, because links in the page are relative to
/// it.
pub(super) async fn file(call: Call) -> Outcome<Response<Body>> {
    let path = call.request.uri().path();
    let name = if path == "/docs" { Some("docs.html") } else { path.strip_prefix("/ui/") };
    let Some(name) = name else {
        let mut to = Response::new(Body::empty());
        *to.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        to.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/ui/"));
        return Ok(to);
    };
    let file = page::FILES.iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| Problem::not_found(format!("{path} does not exist")))?;
    let mut response = body::of(file.text, file.kind);
    // Disables caching, because file names do not change between versions of turnwise.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
