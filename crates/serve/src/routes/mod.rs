//! Routes of the HTTP API, one file each.

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
mod ui;

use axum::{
    Router,
    body::Body,
    extract::{MatchedPath, Request},
    http::{Method, Response, StatusCode},
    response::IntoResponse,
    routing::{MethodRouter, delete, get, post},
};

pub(super) use surveys::Topics;

use super::{
    app::{App, Asker},
    guard::{self, For},
    problem::{Outcome, Problem},
};
use turnwise_corpus::filter::Filter;

/// Route, for metrics and the API description.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) method: &'static str,
    pub(super) of: For,
    /// One-line description.
    pub(super) about: &'static str,
}

const fn route(method: &'static str, path: &'static str, of: For, about: &'static str) -> Route {
    Route { path, method, of, about }
}

/// All routes. A test compares them with the router and with the API description.
pub(super) const ROUTES: [Route; 22] = [
    route("post", "/v1/search", For::Readers, "Find utterances or dialogues"),
    route("post", "/v1/similar", For::Readers, "Find utterances or dialogues similar to a given one"),
    route("post", "/v1/respond", For::Readers, "Find responses for a context"),
    route("post", "/v1/rerank", For::Readers, "Rank texts by their similarity to a query"),
    route("get", "/v1/facets", For::Readers, "Count dialogues by domain, intent, role or another field"),
    route("get", "/v1/clusters", For::Readers, "Topics of the dialogues, and a map of the dialogues"),
    route("get", "/v1/stats", For::Readers, "Statistics of an index"),
    route("get", "/v1/benchmarks", For::Readers, "Benchmark report, as HTML"),
    route("get", "/v1/dialogues", For::Readers, "List the dialogues that match a filter"),
    route("get", "/v1/dialogues/{id}", For::Readers, "Read a dialogue with its turns"),
    route("delete", "/v1/dialogues/{id}", For::Writers, "Remove a dialogue"),
    route("delete", "/v1/dialogues", For::Writers, "Remove the dialogues that match a filter"),
    route("post", "/v1/ingest", For::Writers, "Ingest dialogues as JSON lines"),
    route("post", "/v1/embeddings", For::Readers, "Encode texts (OpenAI-compatible)"),
    route("get", "/v1/models", For::Readers, "List the models of the indexes (OpenAI-compatible)"),
    route("get", "/v1/models/{id}", For::Readers, "Describe a model (OpenAI-compatible)"),
    route("post", "/mcp", For::Readers, "Model Context Protocol: search tools for assistants"),
    route("get", "/health/live", For::All, "Liveness check"),
    route("get", "/health/ready", For::All, "Readiness check"),
    route("get", "/metrics", For::Readers, "Metrics in the Prometheus format"),
    route("get", "/info", For::Readers, "Indexes and version of the server"),
    route("get", "/openapi.json", For::All, "This API description, as OpenAPI 3.1"),
];

/// Name of a path in the metrics; `None` for an unknown path.
pub(super) fn name(path: &str) -> Option<&'static str> {
    ROUTES.iter().map(|route| route.path).chain(ui::PATHS).find(|known| *known == path)
}

/// Whether a route has no time limit, because its body can be of any length.
pub(super) fn is_endless(path: &str) -> bool {
    path == "/v1/ingest"
}

/// Input of a handler.
pub(super) struct Call {
    pub(super) app: App,
    pub(super) asker: Asker,
    pub(super) request: Request,
}

impl Call {
    /// Value of a query parameter.
    pub(super) fn asked(&self, name: &str) -> Option<String> {
        self.all_asked(name).next()
    }

    /// Numeric query parameter between `least` and `most`.
    pub(super) fn number(&self, name: &str, least: u64, most: u64) -> Outcome<Option<u64>> {
        let Some(text) = self.asked(name) else { return Ok(None) };
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
        let filter = self.asked("filter").filter(|text| !text.trim().is_empty());
        let filter = filter.map(|text| text.parse::<Filter>()).transpose();
        let filter = filter.map_err(|e| Problem::from(e).param("filter"))?;
        Ok(self.asker.with_own(filter)?)
    }

    /// All values of a repeatable query parameter.
    pub(super) fn all_asked(&self, name: &str) -> impl Iterator<Item = String> {
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

fn handle<F, Fut>(of: For, handler: F) -> impl Fn(axum::extract::State<App>, Request) -> Answer + Clone
where
    F: Fn(Call) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Outcome<Response<Body>>> + Send + 'static,
{
    move |axum::extract::State(app), request: Request| {
        let handler = handler.clone();
        Box::pin(async move {
            let all = app.clone();
            let asker = guard::asker(&app, request.headers(), of);
            let done = match asker.and_then(|asker| only_known_parameters(&request).map(|()| asker)) {
                Ok(asker) => handler(Call { app, asker, request }).await,
                Err(problem) => Err(problem),
            };
            done.unwrap_or_else(|problem| all.hidden(problem).into_response())
        })
    }
}

/// Rejects unknown query parameters, because a misspelled filter would match everything. Routes without parameters
/// accept any, because some clients add their own.
fn only_known_parameters(request: &Request) -> Outcome<()> {
    let (Some(query), Some(path)) = (request.uri().query(), request.extensions().get::<MatchedPath>()) else {
        return Ok(());
    };
    let known = super::openapi::query_names(request.method().as_str(), path.as_str());
    let names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    let unknown = names.filter(|name| !name.is_empty()).find(|name| !known.iter().any(|known| known == name));
    let (Some(name), false) = (unknown, known.is_empty()) else { return Ok(()) };
    let problem = Problem::request(format!("unknown parameter `{name}`")).param(name);
    Err(match turnwise_core::error::nearest(name, known.iter().map(String::as_str)) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem.hint(format!("valid parameters: {}", known.join(", "))),
    })
}

type Answer = std::pin::Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

fn handler_of(route: &Route) -> MethodRouter<App> {
    let of = route.of;
    match (route.method, route.path) {
        ("post", "/v1/search") => post(handle(of, search::search)),
        ("post", "/v1/similar") => post(handle(of, search::similar)),
        ("post", "/v1/respond") => post(handle(of, search::respond)),
        ("post", "/v1/rerank") => post(handle(of, rerank::rerank)),
        ("post", "/mcp") => post(handle(of, mcp::mcp)),
        ("get", "/v1/facets") => get(handle(of, facets::facets)),
        ("get", "/v1/clusters") => get(handle(of, surveys::topics)),
        ("get", "/v1/stats") => get(handle(of, surveys::stats)),
        ("get", "/v1/benchmarks") => get(handle(of, benchmarks::report)),
        ("get", "/v1/dialogues") => get(handle(of, dialogues::list)),
        ("get", "/v1/dialogues/{id}") => get(handle(of, dialogues::one)),
        ("delete", "/v1/dialogues/{id}") => delete(handle(of, delete::one)),
        ("delete", "/v1/dialogues") => delete(handle(of, delete::those)),
        ("post", "/v1/ingest") => post(handle(of, ingest::ingest)),
        ("post", "/v1/embeddings") => post(handle(of, embeddings::embeddings)),
        ("get", "/v1/models") => get(handle(of, embeddings::models)),
        ("get", "/v1/models/{id}") => get(handle(of, embeddings::model)),
        ("get", "/health/live") => get(handle(of, health::live)),
        ("get", "/health/ready") => get(handle(of, health::ready)),
        ("get", "/metrics") => get(handle(of, health::metrics)),
        ("get", "/info") => get(handle(of, info::info)),
        _ => get(handle(of, info::openapi)),
    }
}

/// Router with all routes and the middleware.
pub(super) fn router(app: App) -> Router {
    let mut router = Router::new();
    for route in &ROUTES {
        router = router.route(route.path, handler_of(route));
    }
    for path in ui::PATHS {
        router = router.route(path, get(handle(For::All, ui::file)));
    }
    router
        .fallback(async |request: Request| {
            let path = request.uri().path().to_owned();
            let known = ROUTES.iter().map(|route| route.path);
            let problem = Problem::not_found(format!("{path} does not exist"));
            match turnwise_core::error::nearest(&path, known) {
                Some(near) => problem.hint(format!("did you mean {near}?")),
                None => problem.hint("GET /openapi.json describes the API"),
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
