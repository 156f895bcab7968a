//! The HTTP routes: [`table`] has all of them with their parameters and schemas; the handlers are in one file per subject.

mod benchmarks;
mod delete;
mod dialogues;
mod embeddings;
mod facets;
mod health;
mod info;
mod ingest;
mod mcp;
mod rerank;
mod search;
mod surveys;
mod table;
mod ui;

use axum::{
    Router,
    body::Body,
    extract::{MatchedPath, Request},
    http::{Method, Response, StatusCode},
    response::IntoResponse,
    routing::{delete, get, post},
};

pub(super) use surveys::Topics;
use table::Handler;
pub(super) use table::{Body as RequestBody, Parameter, ROUTES, Reply, has_no_time_limit, name};

use super::{
    app::{App, Client},
    guard::{self, For},
    problem::{Outcome, Problem},
};
use turnwise_corpus::filter::Filter;

/// What a handler is given.
pub(super) struct Call {
    pub(super) app: App,
    pub(super) client: Client,
    pub(super) request: Request,
}

impl Call {
    /// Value of a query parameter.
    pub(super) fn query_value(&self, name: &str) -> Option<String> {
        self.query_values(name).next()
    }

    /// Numeric query parameter between `least` and `most`.
    pub(super) fn number(&self, name: &str, least: u64, most: u64) -> Outcome<Option<u64>> {
        let Some(text) = self.query_value(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(Problem::request(format!("invalid value `{text}` for `{name}`")).param(name).hint(
                match most {
                    u64::MAX => format!("use an integer of at least {least}"),
                    most => format!("use an integer from {least} to {most}"),
                },
            )),
        }
    }

    /// Filter from the query string, combined with the filter of the key.
    pub(super) fn filter(&self) -> Outcome<Option<Filter>> {
        let filter = self.query_value("filter").filter(|text| !text.trim().is_empty());
        let filter = filter.map(|text| text.parse::<Filter>()).transpose();
        let filter = filter.map_err(|e| Problem::from(e).param("filter"))?;
        Ok(self.client.restrict(filter)?)
    }

    /// All values of a repeatable query parameter.
    pub(super) fn query_values(&self, name: &str) -> impl Iterator<Item = String> {
        let query = self.request.uri().query().unwrap_or_default();
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.filter(move |(key, _)| *key == name).filter_map(|(_, value)| decoded(&value.replace('+', " ")))
    }

    /// Value of `{id}` in the path.
    pub(super) fn last_of_path(&self) -> Outcome<String> {
        let last = self.request.uri().path().rsplit('/').next().unwrap_or_default();
        decoded(last).ok_or_else(|| Problem::request("the path is not valid UTF-8"))
    }

    /// Reads the whole body.
    pub(super) async fn body(&mut self) -> Outcome<axum::body::Bytes> {
        let body = std::mem::take(self.request.body_mut());
        super::body::read(body, self.app.limits.body).await
    }
}

/// Decodes percent-encoding; `None` if it is invalid.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                (digit(rest.next()?)? * 16 + digit(rest.next()?)?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Wraps the handler of a route: checks the key and the names of the parameters, and turns an error into a response.
fn handle(access: For, handler: Handler) -> impl Fn(axum::extract::State<App>, Request) -> Answer + Clone {
    move |axum::extract::State(app), request: Request| {
        Box::pin(async move {
            let all = app.clone();
            let client = guard::client(&app, request.headers(), access);
            let done = match client.and_then(|client| only_known_parameters(&request).map(|()| client)) {
                Ok(client) => handler(Call { app, client, request }).await,
                Err(problem) => Err(problem),
            };
            done.unwrap_or_else(|problem| all.hidden(problem).into_response())
        })
    }
}

/// Rejects unknown query parameters: a misspelled `filter` would match everything. A route without parameters accepts
/// any, because clients may add their own.
fn only_known_parameters(request: &Request) -> Outcome<()> {
    let (Some(query), Some(path)) = (request.uri().query(), request.extensions().get::<MatchedPath>()) else {
        return Ok(());
    };
    let method = request.method().as_str();
    let route = ROUTES.iter().find(|r| r.path == path.as_str() && r.method.eq_ignore_ascii_case(method));
    let known: Vec<&str> = route.map(|route| route.query_names().collect()).unwrap_or_default();
    let names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    let unknown = names.filter(|name| !name.is_empty()).find(|name| !known.contains(name));
    let (Some(name), false) = (unknown, known.is_empty()) else { return Ok(()) };
    let problem = Problem::request(format!("unknown parameter `{name}`")).param(name);
    Err(match turnwise_core::error::closest_name(name, known.iter().copied()) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem.hint(format!("known parameters: {}", known.join(", "))),
    })
}

pub(super) type Answer = std::pin::Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// The router: all routes of [`ROUTES`], the files of the page, and the answers to unknown paths and methods.
pub(super) fn router(app: App) -> Router {
    let mut router = Router::new();
    for route in &ROUTES {
        let handler = handle(route.access, route.handler);
        let method = match route.method {
            "post" => post(handler),
            "delete" => delete(handler),
            _ => get(handler),
        };
        router = router.route(route.path, method);
    }
    for path in ui::PATHS {
        router = router.route(path, get(handle(For::All, |call| Box::pin(ui::file(call)))));
    }
    router
        .fallback(async |request: Request| {
            let path = request.uri().path().to_owned();
            let known = ROUTES.iter().map(|route| route.path);
            let problem = Problem::not_found(format!("no route {path}"));
            match turnwise_core::error::closest_name(&path, known) {
                Some(near) => problem.hint(format!("did you mean {near}?")),
                None => problem.hint("GET /openapi.json lists all routes"),
            }
        })
        .method_not_allowed_fallback(async |method: Method, request: Request| {
            let path = request.uri().path();
            let matched = request.extensions().get::<MatchedPath>().map_or(path, MatchedPath::as_str);
            let known = ROUTES.iter().filter(|route| route.path == matched);
            let mut methods: Vec<String> = known.map(|route| route.method.to_uppercase()).collect();
            if methods.is_empty() {
                methods.push("GET".to_owned());
            }
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                format!("{path} does not support {method}"),
            )
            .hint(format!("use {}", methods.join(" or ")))
        })
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::around))
        .with_state(app)
}
