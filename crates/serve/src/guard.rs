//! What every request goes through: who asks, how long it may take, what its answer must say, what is counted.

use std::time::Instant;

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header},
    middleware::Next,
    response::IntoResponse,
};

use super::{
    app::{App, Asker},
    problem::{Outcome, Problem},
};

/// What a route is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Everybody: it says nothing about what is in an index.
    All,
    /// Keys that may ask.
    Readers,
    /// Keys that may change something.
    Writers,
}

/// Headers of every answer: nothing of it is to be run, framed or guessed at by a browser.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Around all routes.
pub(super) async fn around(State(app): State<App>, request: Request, next: Next) -> Response<Body> {
    let begun = Instant::now();
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = path.as_deref().and_then(super::routes::name).unwrap_or("other");
    let id = request.headers().get("x-request-id").cloned();
    let endless = super::routes::is_endless(route);
    let mut response = match from_elsewhere(&app, request.headers()) {
        Some(problem) => problem.into_response(),
        None if endless => next.run(request).await,
        None => match tokio::time::timeout(app.limits.time, next.run(request)).await {
            Ok(response) => response,
            Err(_) => Problem::new(
                StatusCode::GATEWAY_TIMEOUT,
                "timeout",
                format!("it was not done within {} seconds", app.limits.time.as_secs_f64()),
            )
            .hint("ask for less, or start the server with a longer --timeout")
            .into_response(),
        },
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Some(id) = id {
        response.headers_mut().insert(HeaderName::from_static("x-request-id"), id);
    }
    app.metrics.answered(route, response.status().as_u16(), begun.elapsed());
    response
}

/// A browser asks on behalf of another site: a page that somebody looks at must not ask here in his name. Where nobody needs a
/// key, it must not do so under a name of its own for this machine either.
fn from_elsewhere(app: &App, headers: &HeaderMap) -> Option<Problem> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST);
    let forbidden = |message: &str| Some(Problem::new(StatusCode::FORBIDDEN, "forbidden", message));
    if app.loopback && !host.is_none_or(is_local) {
        return forbidden("without keys this server answers to localhost alone")
            .map(|p| p.hint("give keys with --keys FILE to reach it under another name"));
    }
    match text(header::ORIGIN) {
        None => None,
        Some(origin) if origin.split_once("://").is_some_and(|(_, origin)| Some(origin) == host) => None,
        Some(_) => forbidden("other sites may not ask here"),
    }
}

/// Whether a host is this machine, whatever the port.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Who asks, if he may.
pub(super) fn asker(app: &App, headers: &HeaderMap, of: For) -> Outcome<Asker> {
    if of == For::All || app.keys.is_empty() {
        return Ok(Asker::default());
    }
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = given.and_then(|given| {
        let (scheme, secret) = given.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
    });
    let secret = bearer.or_else(|| headers.get("x-api-key").and_then(|value| value.to_str().ok()));
    let unknown = |message: &str| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message);
    let Some(secret) = secret else {
        return Err(unknown("a key is needed").hint("send it as `Authorization: Bearer KEY`"));
    };
    let key = app.keys.of(secret).ok_or_else(|| unknown("this key is not known"))?;
    let may = match of {
        For::Writers => key.scopes.write,
        For::Readers | For::All => key.scopes.read,
    };
    if !may {
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", "this key is not for that"));
    }
    Ok(Asker(Some(key.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_told_by_its_names() {
        for yes in ["localhost", "LOCALHOST:7700", "127.0.0.1:80", "[::1]:7700", "[::1]", "127.0.0.2"] {
            assert!(is_local(yes), "{yes}");
        }
        for no in ["evil.example", "localhost.evil.example:80", "10.0.0.1", "", "127.0.0.1.evil.example"] {
            assert!(!is_local(no), "{no}");
        }
    }
}
