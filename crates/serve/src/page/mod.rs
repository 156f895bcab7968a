//! Web page at `/ui` and API documentation at `/docs`. Their files are embedded in the program. They use only the
//! public HTTP API.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};

use crate::routes::Call;
use crate::{
    body::{self, HttpResponse},
    problem::{Outcome, Problem},
};

/// File of the web page. It is embedded in the program.
pub(super) struct File {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

pub(super) const FILES: [File; 14] = [
    File { name: "", kind: "text/html; charset=utf-8", text: include_str!("index.html") },
    File { name: "style.css", kind: "text/css; charset=utf-8", text: include_str!("style.css") },
    File { name: "icon.svg", kind: "image/svg+xml", text: include_str!("icon.svg") },
    File { name: "api.js", kind: SCRIPT, text: include_str!("api.js") },
    File { name: "docs.html", kind: "text/html; charset=utf-8", text: include_str!("docs.html") },
    File { name: "docs.js", kind: SCRIPT, text: include_str!("docs.js") },
    File { name: "dom.js", kind: SCRIPT, text: include_str!("dom.js") },
    File { name: "facets.js", kind: SCRIPT, text: include_str!("facets.js") },
    File { name: "hits.js", kind: SCRIPT, text: include_str!("hits.js") },
    File { name: "main.js", kind: SCRIPT, text: include_str!("main.js") },
    File { name: "report.js", kind: SCRIPT, text: include_str!("report.js") },
    File { name: "stats.js", kind: SCRIPT, text: include_str!("stats.js") },
    File { name: "thread.js", kind: SCRIPT, text: include_str!("thread.js") },
    File { name: "topics.js", kind: SCRIPT, text: include_str!("topics.js") },
];

pub(super) const PATHS: [&str; 5] = ["/", "/ui", "/ui/", "/ui/{file}", "/docs"];

/// Returns a file of the web page. Redirects `/` and `/ui` to `/ui/`, because links in the page are relative to `/ui/`.
pub(super) async fn file(call: Call) -> Outcome<HttpResponse> {
    let path = call.request.uri().path();
    let name = if path == "/docs" { Some("docs.html") } else { path.strip_prefix("/ui/") };
    let Some(name) = name else {
        let mut to = Response::new(Body::empty());
        *to.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        to.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/ui/"));
        return Ok(to);
    };
    let file = FILES.iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| Problem::not_found(format!("{path} does not exist")))?;
    let mut response = body::of(file.text, file.kind);
    // Disable caching, because a new version of turnwise has other files with the same names.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
