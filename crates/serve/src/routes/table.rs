//! The table of routes: method, path, access, handler, parameters and schemas. The router and the OpenAPI document are
//! both made from it.

use std::pin::Pin;

use axum::{body::Body as Bytes, http::Response};

use super::{
    Call, benchmarks, delete, dialogues, embeddings, facets, health, info, ingest, mcp, rerank, search,
    surveys, ui,
};
use crate::{guard::For, problem::Outcome};

/// A handler: an asynchronous function from a call to a response.
pub(super) type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Outcome<Response<Bytes>>> + Send>>;

/// One route of the API.
pub(crate) struct Route {
    /// HTTP method, in lower case as OpenAPI writes it.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// Who may use it.
    pub(crate) access: For,
    /// One line of description.
    pub(crate) summary: &'static str,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) body: Body,
    pub(crate) reply: Reply,
    /// Whether the request may last as long as the client keeps sending.
    pub(crate) endless: bool,
    pub(super) handler: Handler,
}

/// A parameter of a route.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) required: bool,
    pub(crate) about: &'static str,
}

/// Where a parameter is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
}

impl Place {
    /// The name that OpenAPI has for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Path => "path",
            Place::Query => "query",
            Place::Header => "header",
        }
    }
}

/// The body of a request. Names are those of schemas in the OpenAPI document.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    None,
    Json(&'static str),
    JsonRpc,
    /// JSON lines, each of the named schema.
    Lines(&'static str),
}

/// The body of a successful response.
#[derive(Clone, Copy)]
pub(crate) enum Reply {
    /// A JSON object without a schema of its own.
    Object,
    Json(&'static str),
    /// JSON as a whole, or its items one by one as JSON lines or server-sent events.
    Stream {
        whole: &'static str,
        item: &'static str,
    },
    /// A page of a list of dialogues, or the dialogues one by one.
    DialogueList,
    Html,
    Text,
}

impl Route {
    const fn new(
        method: &'static str,
        path: &'static str,
        access: For,
        summary: &'static str,
        handler: Handler,
    ) -> Route {
        Route {
            method,
            path,
            access,
            summary,
            parameters: &[],
            body: Body::None,
            reply: Reply::Object,
            endless: false,
            handler,
        }
    }

    const fn takes(mut self, parameters: &'static [Parameter]) -> Route {
        self.parameters = parameters;
        self
    }

    const fn body(mut self, body: Body) -> Route {
        self.body = body;
        self
    }

    const fn returns(mut self, reply: Reply) -> Route {
        self.reply = reply;
        self
    }

    const fn endless(mut self) -> Route {
        self.endless = true;
        self
    }

    /// The names of the query parameters.
    pub(crate) fn query_names(&self) -> impl Iterator<Item = &'static str> {
        self.parameters.iter().filter(|p| p.place == Place::Query).map(|p| p.name)
    }
}

const fn query(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, place: Place::Query, required: false, about }
}

const fn in_path(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, place: Place::Path, required: true, about }
}

const INDEX: Parameter = query("index", "Name of the index; required if there are several");
const DIALOGUE_ID: Parameter = in_path("id", "Id of the dialogue");
const SURVEYED: Parameter = query("filter", "Filter of the dialogues, such as domain=banking");

/// Writes the handler of a route as a function pointer.
macro_rules! handler {
    ($f:path) => {
        |call| Box::pin($f(call))
    };
}

/// All routes of the API.
pub(crate) static ROUTES: [Route; 22] = [
    Route::new("post", "/v1/search", For::Readers, "Find utterances or dialogues", handler!(search::search))
        .takes(&[INDEX])
        .body(Body::Json("SearchRequest"))
        .returns(Reply::Stream { whole: "SearchResponse", item: "Hit" }),
    Route::new(
        "post",
        "/v1/similar",
        For::Readers,
        "Find utterances or dialogues similar to a given one",
        handler!(search::similar),
    )
    .takes(&[INDEX])
    .body(Body::Json("SearchRequest"))
    .returns(Reply::Stream { whole: "SearchResponse", item: "Hit" }),
    Route::new("post", "/v1/respond", For::Readers, "Find responses for a context", handler!(search::respond))
        .takes(&[INDEX])
        .body(Body::Json("RespondRequest"))
        .returns(Reply::Stream { whole: "Replies", item: "Reply" }),
    Route::new("post", "/v1/rerank", For::Readers, "Rank texts by their similarity to a query", handler!(rerank::rerank))
        .body(Body::Json("RerankRequest")),
    Route::new(
        "get",
        "/v1/facets",
        For::Readers,
        "Count dialogues by domain, intent, role or another field",
        handler!(facets::facets),
    )
    .takes(&[INDEX, SURVEYED, query("field", "Field to count by; can be repeated")])
    .returns(Reply::Json("Facets")),
    Route::new(
        "get",
        "/v1/clusters",
        For::Readers,
        "Topics of the dialogues, and a map of the dialogues",
        handler!(surveys::topics),
    )
    .takes(&[
        INDEX,
        SURVEYED,
        query("k", "Number of topics (default: automatic)"),
        query("seed", "Random seed (default: 0)"),
        query("map", "Largest number of dialogues on the map (default: 0, no map)"),
    ])
    .returns(Reply::Json("Topics")),
    Route::new("get", "/v1/stats", For::Readers, "Statistics of an index", handler!(surveys::stats))
        .takes(&[INDEX, SURVEYED]),
    Route::new(
        "get",
        "/v1/benchmarks",
        For::Readers,
        "Benchmark report, as HTML",
        handler!(benchmarks::report),
    )
    .returns(Reply::Html),
    Route::new(
        "get",
        "/v1/dialogues",
        For::Readers,
        "List the dialogues that match a filter, in ingestion order",
        handler!(dialogues::list),
    )
    .takes(&[
        INDEX,
        query("filter", "Filter of the dialogues, such as domain=banking (default: all)"),
        query("after", "Id of the dialogue after which the list continues"),
        query("limit", "Largest number of dialogues (default: 20; no limit for JSON lines and events)"),
    ])
    .returns(Reply::DialogueList),
    Route::new("get", "/v1/dialogues/{id}", For::Readers, "Read a dialogue with its turns", handler!(dialogues::one))
        .takes(&[DIALOGUE_ID, INDEX])
        .returns(Reply::Json("Dialogue")),
    Route::new("delete", "/v1/dialogues/{id}", For::Writers, "Delete a dialogue", handler!(delete::one))
        .takes(&[DIALOGUE_ID, INDEX]),
    Route::new(
        "delete",
        "/v1/dialogues",
        For::Writers,
        "Delete the dialogues that match a filter",
        handler!(delete::those),
    )
    .takes(&[
        INDEX,
        Parameter {
            name: "filter",
            place: Place::Query,
            required: true,
            about: "Delete the dialogues that match this filter, such as domain=banking",
        },
    ]),
    Route::new(
        "post",
        "/v1/ingest",
        For::Writers,
        "Ingest dialogues as JSON lines",
        handler!(ingest::ingest),
    )
    .takes(&[
        INDEX,
        Parameter {
            name: "Idempotency-Key",
            place: Place::Header,
            required: false,
            about: "Unique key of the request. Repeating a request with the same key and body returns the stored response and has no further effect",
        },
    ])
    .body(Body::Lines("Dialogue"))
    .endless(),
    Route::new(
        "post",
        "/v1/embeddings",
        For::Readers,
        "Encode texts (OpenAI-compatible)",
        handler!(embeddings::embeddings),
    )
    .body(Body::Json("EmbeddingsRequest")),
    Route::new(
        "get",
        "/v1/models",
        For::Readers,
        "List the models of the indexes (OpenAI-compatible)",
        handler!(embeddings::models),
    ),
    Route::new(
        "get",
        "/v1/models/{id}",
        For::Readers,
        "Describe a model (OpenAI-compatible)",
        handler!(embeddings::model),
    )
    .takes(&[in_path("id", "Name of the model")]),
    Route::new(
        "post",
        "/mcp",
        For::Readers,
        "Model Context Protocol: search tools for assistants",
        handler!(mcp::mcp),
    )
    .takes(&[INDEX])
    .body(Body::JsonRpc),
    Route::new("get", "/health/live", For::All, "Liveness check", handler!(health::live)),
    Route::new("get", "/health/ready", For::All, "Readiness check", handler!(health::ready)),
    Route::new("get", "/metrics", For::Readers, "Metrics in the Prometheus format", handler!(health::metrics))
        .returns(Reply::Text),
    Route::new("get", "/info", For::Readers, "Indexes and version of the server", handler!(info::info)),
    Route::new("get", "/openapi.json", For::All, "This API description, as OpenAPI 3.1", handler!(info::openapi)),
];

/// The label under which requests to a path are counted.
pub(crate) fn name(path: &str) -> Option<&'static str> {
    ROUTES.iter().map(|route| route.path).chain(ui::PATHS).find(|known| *known == path)
}

/// Whether a request to this path may last as long as the client keeps sending.
pub(crate) fn has_no_time_limit(path: &str) -> bool {
    ROUTES.iter().any(|route| route.endless && route.path == path)
}
