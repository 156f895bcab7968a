//! Middleware for every request: authentication, time limit, security headers and metrics.

use std::time::Instant;

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::IntoResponse,
};

use super::{
    app::{App, Client},
    body::HttpResponse,
    problem::{Outcome, Problem},
};

/// Permission that a route requires from a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// No permission. The client needs no key, because the response contains no index data.
    Public,
    /// The scope `read` of an API key.
    Read,
    /// The scope `write` of an API key.
    Write,
}

/// Security headers of every response. They prevent browsers from running foreign scripts, from showing the page in a
/// frame of another site, and from guessing content types.
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

/// Middleware around all routes: checks the origin of the request, applies the time limit, adds headers and records
/// metrics.
pub(super) async fn around(State(app): State<App>, request: Request, next: Next) -> HttpResponse {
    let started = Instant::now();
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = path.as_deref().and_then(super::routes::label).unwrap_or("other");
    let id = request.headers().get("x-request-id").cloned();
    let endless = super::routes::has_no_time_limit(route);
    let mut response = match refuse_foreign(&app, request.headers()) {
        Some(problem) => problem.into_response(),
        None if endless => next.run(request).await,
        None => match tokio::time::timeout(app.limits.timeout, next.run(request)).await {
            Ok(response) => response,
            Err(_) => {
                let seconds = app.limits.timeout.as_secs_f64();
                let message = format!("the request took longer than the limit of {seconds} seconds");
                Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message)
                    .hint("send a smaller request, or start the server with a longer --timeout")
                    .into_response()
            }
        },
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Some(id) = id {
        response.headers_mut().insert(HeaderName::from_static("x-request-id"), id);
    }
    app.metrics.answered(route, response.status().as_u16(), started.elapsed());
    response
}

/// Returns an error for a cross-origin request, because another site must not send requests on behalf of a visitor. If
/// the server has no keys and listens on a loopback address, also returns an error for a Host header that is not a
/// local name. This prevents DNS rebinding. Returns `None` if the request is allowed.
fn refuse_foreign(app: &App, headers: &HeaderMap) -> Option<Problem> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST);
    if app.loopback && !host.is_none_or(is_local) {
        let problem = Problem::forbidden("without keys, this server only accepts requests to localhost");
        return Some(problem.hint("configure keys with --keys FILE to allow other host names"));
    }
    let origin = text(header::ORIGIN)?;
    let is_same = origin.split_once("://").is_some_and(|(_, origin)| Some(origin) == host);
    (!is_same).then(|| Problem::forbidden("cross-origin requests are not allowed"))
}

/// Returns whether the value of a Host header is a local name of this machine. Ignores the port.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Authenticates the client of a request by its API key. Returns an error if the key is missing or unknown, or does not
/// have the permission `access`.
pub(super) fn client(app: &App, headers: &HeaderMap, access: Access) -> Outcome<Client> {
    if access == Access::Public || app.keys.is_empty() {
        return Ok(Client::default());
    }
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = given.and_then(|given| {
        let (scheme, secret) = given.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
    });
    let secret = bearer.or_else(|| headers.get("x-api-key").and_then(|value| value.to_str().ok()));
    let unknown = |message: &str| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message);
    let Some(secret) = secret else {
        return Err(unknown("an API key is required").hint("send it as `Authorization: Bearer KEY`"));
    };
    let key = app.keys.of(secret).ok_or_else(|| unknown("unknown API key"))?;
    let allowed = match access {
        Access::Write => key.scopes.write,
        Access::Read | Access::Public => key.scopes.read,
    };
    if !allowed {
        return Err(Problem::forbidden("this API key does not have the required scope"));
    }
    Ok(Client(Some(key.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_hosts_are_recognized() {
        for yes in ["localhost", "LOCALHOST:7700", "127.0.0.1:80", "[::1]:7700", "[::1]", "127.0.0.2"] {
            assert!(is_local(yes), "{yes}");
        }
        for no in ["evil.example", "localhost.evil.example:80", "10.0.0.1", "", "127.0.0.1.evil.example"] {
            assert!(!is_local(no), "{no}");
        }
    }
}
