//! The table of routes. A route has a method, a path, a required permission, a handler, parameters and schemas. The
//! router, the metrics and the OpenAPI document use this table. The handlers are in one file per subject.

mod dialogues;
mod mcp;
mod models;
mod router;
mod search;
mod status;
mod surveys;
mod writes;

use std::pin::Pin;

use schemars::{JsonSchema, Schema, SchemaGenerator};

pub(crate) use router::{Call, router};

use crate::{body::HttpResponse, guard::Access, page, problem::Outcome};
use turnwise_corpus::Dialogue;
use turnwise_search::{Facets, Hit, Replies, Reply, RespondRequest, Response, SearchRequest};

/// Handler of a route: an asynchronous function that takes a call and returns a response.
type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Outcome<HttpResponse>> + Send>>;

/// One route of the API.
pub(crate) struct Route {
    /// HTTP method in lower case, as in OpenAPI.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// Permission that the client needs.
    pub(crate) access: Access,
    /// One-line description of the route.
    pub(crate) summary: &'static str,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) body: RequestBody,
    pub(crate) response: ResponseBody,
    /// True if requests have no time limit. The handler itself must detect a client that sends no data.
    pub(crate) endless: bool,
    handler: Handler,
}

/// A path, query or header parameter of a route.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) required: bool,
    pub(crate) about: &'static str,
}

/// Part of the request that contains a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
}

/// Function that adds the schema of a type to the OpenAPI document and returns a reference to this schema. An example
/// is [`schema`].
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Kind of the request body that a route expects.
#[derive(Clone, Copy)]
pub(crate) enum RequestBody {
    None,
    Json(SchemaOf),
    JsonRpc,
    /// JSON lines. Each line has this schema.
    Lines(SchemaOf),
}

/// Kind of the body of a successful response.
#[derive(Clone, Copy)]
pub(crate) enum ResponseBody {
    /// A JSON object without a schema.
    Object,
    Json(SchemaOf),
    /// One JSON document with the schema `whole`. If the client requests JSON lines or server-sent events, the body
    /// consists of the items of the document. Each item has the schema `item`.
    Stream {
        whole: SchemaOf,
        item: SchemaOf,
    },
    /// One page of a list of dialogues as a JSON document. If the client requests JSON lines or server-sent events, the
    /// body contains all dialogues of the list.
    DialogueList,
    Html,
    Text,
}

impl Route {
    const fn new(
        method: &'static str,
        path: &'static str,
        access: Access,
        summary: &'static str,
        handler: Handler,
    ) -> Route {
        Route {
            method,
            path,
            access,
            summary,
            parameters: &[],
            body: RequestBody::None,
            response: ResponseBody::Object,
            endless: false,
            handler,
        }
    }

    const fn takes(mut self, parameters: &'static [Parameter]) -> Route {
        self.parameters = parameters;
        self
    }

    const fn body(mut self, body: RequestBody) -> Route {
        self.body = body;
        self
    }

    const fn returns(mut self, response: ResponseBody) -> Route {
        self.response = response;
        self
    }

    const fn endless(mut self) -> Route {
        self.endless = true;
        self
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
const THREAD_ID: Parameter =
    in_path("id", "Name of the thread: the metadata value `thread` of its dialogues");
const FILTER: Parameter = query("filter", "Filter of the dialogues, such as domain=banking");

/// Converts an async function to a `Handler`.
macro_rules! handler {
    ($f:path) => {
        |call| Box::pin($f(call))
    };
}

/// All routes of the API.
pub(crate) static ROUTES: &[Route] = &[
    Route::new("post", "/v1/search", Access::Read, "Find utterances or dialogues", handler!(search::search))
        .takes(&[INDEX])
        .body(RequestBody::Json(schema::<SearchRequest>))
        .returns(ResponseBody::Stream { whole: schema::<Response>, item: schema::<Hit> }),
    Route::new(
        "post",
        "/v1/similar",
        Access::Read,
        "Find utterances or dialogues similar to one of the index (`like`) or to a given dialogue (`dialogue`)",
        handler!(search::similar),
    )
    .takes(&[INDEX])
    .body(RequestBody::Json(schema::<SearchRequest>))
    .returns(ResponseBody::Stream { whole: schema::<Response>, item: schema::<Hit> }),
    Route::new("post", "/v1/respond", Access::Read, "Find replies to a conversation: answers to similar turns of the index, or the best of given candidates", handler!(search::respond))
        .takes(&[INDEX])
        .body(RequestBody::Json(schema::<RespondRequest>))
        .returns(ResponseBody::Stream { whole: schema::<Replies>, item: schema::<Reply> }),
    Route::new("post", "/v1/rerank", Access::Read, "Rank texts by their similarity to a query", handler!(models::rerank))
        .body(RequestBody::Json(schema::<models::RerankRequest>)),
    Route::new(
        "get",
        "/v1/facets",
        Access::Read,
        "Count dialogues by domain, intent, role or another field",
        handler!(surveys::facets),
    )
    .takes(&[INDEX, FILTER, query("field", "Field to count by; can be repeated")])
    .returns(ResponseBody::Json(schema::<Facets>)),
    Route::new(
        "get",
        "/v1/clusters",
        Access::Read,
        "Topics of the dialogues, and a map of the dialogues",
        handler!(surveys::topics),
    )
    .takes(&[
        INDEX,
        FILTER,
        query("k", "Number of topics (default: automatic)"),
        query("seed", "Random seed (default: 0)"),
        query("map", "Largest number of dialogues on the map (default: 0, no map)"),
    ])
    .returns(ResponseBody::Json(schema::<surveys::Topics>)),
    Route::new("get", "/v1/stats", Access::Read, "Statistics of an index", handler!(surveys::stats))
        .takes(&[INDEX, FILTER]),
    Route::new(
        "get",
        "/v1/benchmarks",
        Access::Read,
        "Benchmark report, as HTML",
        handler!(surveys::benchmarks),
    )
    .returns(ResponseBody::Html),
    Route::new(
        "get",
        "/v1/dialogues",
        Access::Read,
        "List the dialogues that match a filter, in ingestion order (with Milvus, in the order of Milvus)",
        handler!(dialogues::list),
    )
    .takes(&[
        INDEX,
        query("filter", "Filter of the dialogues, such as domain=banking (default: all)"),
        query("after", "Id of the dialogue after which the list continues"),
        query("limit", "Largest number of dialogues (default: 20; no limit for JSON lines and events)"),
    ])
    .returns(ResponseBody::DialogueList),
    Route::new("get", "/v1/dialogues/{id}", Access::Read, "Read a dialogue with its turns", handler!(dialogues::one))
        .takes(&[DIALOGUE_ID, INDEX])
        .returns(ResponseBody::Json(schema::<Dialogue>)),
    Route::new(
        "get",
        "/v1/threads/{id}",
        Access::Read,
        "Read the dialogues of a thread in the order of time (those without a time are last)",
        handler!(dialogues::thread),
    )
    .takes(&[
        THREAD_ID,
        INDEX,
        FILTER,
        query("turns", "Whether the dialogues contain their turns (default: true); false makes the response short"),
    ])
    .returns(ResponseBody::Stream { whole: schema::<dialogues::Thread>, item: schema::<Dialogue> }),
    Route::new("delete", "/v1/dialogues/{id}", Access::Write, "Delete a dialogue", handler!(writes::delete_one))
        .takes(&[DIALOGUE_ID, INDEX]),
    Route::new(
        "delete",
        "/v1/dialogues",
        Access::Write,
        "Delete the dialogues that match a filter",
        handler!(writes::delete_matching),
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
        Access::Write,
        "Ingest dialogues as JSON lines",
        handler!(writes::ingest),
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
    .body(RequestBody::Lines(schema::<Dialogue>))
    .endless(),
    Route::new(
        "post",
        "/v1/embeddings",
        Access::Read,
        "Encode texts (OpenAI-compatible)",
        handler!(models::embeddings),
    )
    .body(RequestBody::Json(schema::<models::EmbeddingsRequest>)),
    Route::new(
        "get",
        "/v1/models",
        Access::Read,
        "List the models of the indexes (OpenAI-compatible)",
        handler!(models::list),
    ),
    Route::new(
        "get",
        "/v1/models/{id}",
        Access::Read,
        "Describe a model (OpenAI-compatible)",
        handler!(models::one),
    )
    .takes(&[in_path("id", "Name of the model")]),
    Route::new(
        "post",
        "/mcp",
        Access::Read,
        "Model Context Protocol: search tools for assistants",
        handler!(mcp::mcp),
    )
    .takes(&[INDEX])
    .body(RequestBody::JsonRpc),
    Route::new("get", "/health/live", Access::Public, "Liveness check", handler!(status::live)),
    Route::new("get", "/health/ready", Access::Public, "Readiness check", handler!(status::ready)),
    Route::new("get", "/metrics", Access::Read, "Metrics in the Prometheus format", handler!(status::metrics))
        .returns(ResponseBody::Text),
    Route::new("get", "/info", Access::Read, "Indexes and version of the server", handler!(status::info)),
    Route::new("get", "/openapi.json", Access::Public, "This API description, as OpenAPI 3.1", handler!(status::openapi)),
];

/// Returns the label of a path in the metrics. Returns `None` if the path is unknown.
pub(crate) fn label(path: &str) -> Option<&'static str> {
    ROUTES.iter().map(|route| route.path).chain(page::PATHS).find(|known| *known == path)
}

/// Returns whether a path has a route without a time limit.
pub(crate) fn has_no_time_limit(path: &str) -> bool {
    ROUTES.iter().any(|route| route.endless && route.path == path)
}
