//! The router: checks the API key and the query parameters before it calls a handler. If the path or the method of a
//! request is unknown, responds with an error.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{MatchedPath, Request, State},
    http::{Method, StatusCode},
    response::IntoResponse,
    routing::{delete, get, post},
};

use super::{Handler, Parameter, Place, ROUTES};
use crate::{
    app::{App, Client, OpenIndex},
    body::{self, HttpResponse},
    guard::{self, Access},
    hosted::HostedIndex,
    page,
    problem::{Outcome, Problem},
};
use turnwise_corpus::filter::Filter;

/// A request, together with the server state and the client that sent the request.
pub(crate) struct Call {
    pub(crate) app: App,
    pub(crate) client: Client,
    pub(crate) request: Request,
}

impl Call {
    /// Returns the index that the query parameter `index` names, or an error if the client may not access it. Without
    /// this parameter, returns the only index that the client may access, or an error if the client may access several
    /// indexes or none.
    pub(super) fn hosted(&self) -> Outcome<Arc<HostedIndex>> {
        self.client.index(&self.app, self.query_value("index").as_deref()).cloned()
    }

    /// Returns the current state of the requested index. Returns an error if the index is not found or its engine is
    /// unavailable.
    pub(super) fn opened(&self) -> Outcome<Arc<OpenIndex>> {
        self.hosted()?.available()
    }

    /// Returns the first value of the query parameter `name`. Returns `None` if the parameter is missing.
    pub(super) fn query_value(&self, name: &str) -> Option<String> {
        self.query_values(name).next()
    }

    /// Parses a numeric query parameter. Returns `None` if it is missing, and an error if it is not an integer from
    /// `least` to `most`.
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

    /// Returns the filter in the query parameter `filter`, combined with the filter of the client's key. Returns `None`
    /// if neither filter exists.
    pub(super) fn filter(&self) -> Outcome<Option<Filter>> {
        let filter = self.query_value("filter").filter(|text| !text.trim().is_empty());
        let filter = filter.map(|text| text.parse::<Filter>()).transpose();
        let filter = filter.map_err(|e| Problem::from(e).param("filter"))?;
        Ok(self.client.restrict(filter)?)
    }

    /// Returns all values of the query parameter `name`, which can be repeated.
    pub(super) fn query_values(&self, name: &str) -> impl Iterator<Item = String> {
        let query = self.request.uri().query().unwrap_or_default();
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.filter(move |(key, _)| *key == name).filter_map(|(_, value)| decoded(&value.replace('+', " ")))
    }

    /// Returns the decoded last segment of the path, which is the value of `{id}` in the path of the route.
    pub(super) fn last_of_path(&self) -> Outcome<String> {
        let last = self.request.uri().path().rsplit('/').next().unwrap_or_default();
        decoded(last).ok_or_else(|| Problem::request("the path is not valid UTF-8"))
    }

    /// Reads the request body. Returns an error if the body is larger than the maximum size.
    pub(super) async fn body(&mut self) -> Outcome<Bytes> {
        body::read(std::mem::take(self.request.body_mut()), self.app.limits.max_body).await
    }
}

/// Decodes percent-encoded text. Returns `None` if an escape sequence is invalid or the result is not UTF-8.
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

type ResponseFuture = std::pin::Pin<Box<dyn Future<Output = HttpResponse> + Send>>;

/// Wraps a handler in a function that checks the API key and the names of the query parameters, calls the handler, and
/// converts an error to a response.
fn handle(
    access: Access,
    parameters: &'static [Parameter],
    handler: Handler,
) -> impl Fn(State<App>, Request) -> ResponseFuture + Clone {
    move |State(app), request| {
        Box::pin(async move {
            let client = guard::client(&app, request.headers(), access);
            let checked = client.and_then(|client| check_parameters(&request, parameters).map(|()| client));
            let done = match checked {
                Ok(client) => handler(Call { app: app.clone(), client, request }).await,
                Err(problem) => Err(problem),
            };
            done.unwrap_or_else(|problem| app.hidden(problem).into_response())
        })
    }
}

/// Returns an error if a query parameter is unknown, because a request with a misspelled `filter` would match
/// everything. A route that has no query parameters accepts any parameter, because clients may add their own.
fn check_parameters(request: &Request, parameters: &[Parameter]) -> Outcome<()> {
    let in_query = parameters.iter().filter(|parameter| parameter.place == Place::Query);
    let known: Vec<&str> = in_query.map(|parameter| parameter.name).collect();
    let query = request.uri().query().unwrap_or_default();
    let mut names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    let unknown = names.find(|name| !name.is_empty() && !known.contains(name));
    let (Some(name), false) = (unknown, known.is_empty()) else { return Ok(()) };
    let problem = Problem::request(format!("unknown parameter `{name}`")).param(name);
    Err(match turnwise_core::error::closest_name(name, known.iter().copied()) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem.hint(format!("known parameters: {}", known.join(", "))),
    })
}

/// Creates the router of all routes, including the files of the web page.
pub(crate) fn router(app: App) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let handler = handle(route.access, route.parameters, route.handler);
        let method = match route.method {
            "post" => post(handler),
            "delete" => delete(handler),
            _ => get(handler),
        };
        router = router.route(route.path, method);
    }
    for path in page::PATHS {
        router = router.route(path, get(handle(Access::Public, &[], |call| Box::pin(page::file(call)))));
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
            let message = format!("{path} does not support {method}");
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
                .hint(format!("use {}", methods.join(" or ")))
        })
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::around))
        .with_state(app)
}
