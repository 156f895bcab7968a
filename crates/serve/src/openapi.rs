//! The API described, for programs that read such descriptions.

use serde_json::{Map, Value, json};

use super::{guard::For, routes::ROUTES};

/// The description, as OpenAPI 3.1.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in &ROUTES {
        let mut operation = json!({
            "summary": route.about,
            "operationId": format!("{}{}", route.method, route.path.replace(['/', '.'], "_").replace(['{', '}'], "")),
            "responses": {
                "200": {"description": "Done", "content": answer(route.method, route.path)},
                "default": {
                    "description": "What went wrong",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                },
            },
        });
        if route.of != For::All {
            operation["security"] = json!([{"key": []}, {}]);
        }
        let parameters = parameters(route.method, route.path);
        if !parameters.is_empty() {
            operation["parameters"] = Value::Array(parameters);
        }
        if let Some(body) = body(route.path) {
            operation["requestBody"] = json!({"required": true, "content": body});
        }
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "turnwise",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Makes conversations searchable by meaning.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas(),
        },
    })
}

/// The names that may stand behind the `?` of a route's address.
pub(super) fn query_names(method: &str, path: &str) -> Vec<String> {
    let all = parameters(&method.to_lowercase(), path);
    let in_query = all.iter().filter(|parameter| parameter["in"] == "query");
    in_query.filter_map(|parameter| parameter["name"].as_str().map(str::to_owned)).collect()
}

fn parameters(method: &str, path: &str) -> Vec<Value> {
    let parameter = |name: &str, place: &str, required: bool, about: &str| json!({"name": name, "in": place, "required": required, "description": about, "schema": {"type": "string"}});
    let mut all = Vec::new();
    if path.contains("{id}") {
        let about =
            if path.starts_with("/v1/models") { "The name of a model" } else { "The id of a dialogue" };
        all.push(parameter("id", "path", true, about));
    }
    let of_no_index = ["/v1/embeddings", "/v1/models", "/v1/models/{id}", "/v1/rerank", "/v1/benchmarks"];
    if path == "/mcp" || path.starts_with("/v1/") && !of_no_index.contains(&path) {
        all.push(parameter("index", "query", false, "Which index, where there are several"));
    }
    if ["/v1/facets", "/v1/clusters", "/v1/stats"].contains(&path) {
        all.push(parameter(
            "filter",
            "query",
            false,
            "Which dialogues are looked at, such as domain=banking",
        ));
    }
    if path == "/v1/clusters" {
        all.push(parameter("k", "query", false, "How many topics; chosen, if it is not said"));
        all.push(parameter("seed", "query", false, "What is drawn by chance depends on it"));
        all.push(parameter("map", "query", false, "How many dialogues get a place on the map, at most"));
    }
    if (method, path) == ("get", "/v1/dialogues") {
        all.push(parameter(
            "filter",
            "query",
            false,
            "Which dialogues, such as domain=banking; all, if it is not said",
        ));
        all.push(parameter("after", "query", false, "The id of the dialogue behind which to go on"));
        all.push(parameter(
            "limit",
            "query",
            false,
            "How many at most; as lines or events all, if it is not said",
        ));
    }
    if path == "/v1/facets" {
        all.push(parameter("field", "query", false, "By what they are counted; may come several times"));
    }
    if path == "/v1/ingest" {
        let about = "Names the request: sent again with the same body, it is answered the same and nothing is done twice";
        all.push(parameter("Idempotency-Key", "header", false, about));
    }
    if (method, path) == ("delete", "/v1/dialogues") {
        all.push(parameter("filter", "query", true, "What is removed, such as domain=banking"));
    }
    all
}

fn body(path: &str) -> Option<Value> {
    let of = |name: &str| json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
    match path {
        "/v1/search" | "/v1/similar" => Some(of("SearchRequest")),
        "/v1/embeddings" => Some(of("EmbeddingsRequest")),
        "/v1/respond" => Some(of("RespondRequest")),
        "/v1/rerank" => Some(of("RerankRequest")),
        "/mcp" => {
            Some(json!({"application/json": {"schema": {"type": "object", "description": "JSON-RPC 2.0"}}}))
        }
        "/v1/ingest" => {
            Some(json!({"application/x-ndjson": {"schema": {"$ref": "#/components/schemas/Dialogue"}}}))
        }
        _ => None,
    }
}

fn answer(method: &str, path: &str) -> Value {
    let of = |name: &str| json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
    // As lines and as events each item comes by itself.
    let each = |mut whole: Value, item: &str| {
        let item = json!({"schema": {"$ref": format!("#/components/schemas/{item}")}});
        whole["application/x-ndjson"] = item.clone();
        whole["text/event-stream"] = item;
        whole
    };
    match path {
        "/v1/search" | "/v1/similar" => each(of("SearchResponse"), "Hit"),
        "/v1/dialogues" if method == "get" => {
            let list = json!({"type": "object", "required": ["dialogues", "next"], "properties": {
                "dialogues": {"type": "array", "items": {"$ref": "#/components/schemas/Dialogue"}},
                "next": {"type": ["string", "null"], "description": "Ask for the next ones with after=…"},
            }});
            each(json!({"application/json": {"schema": list}}), "Dialogue")
        }
        "/v1/dialogues/{id}" => of("Dialogue"),
        "/v1/facets" => of("Facets"),
        "/v1/respond" => each(of("Replies"), "Reply"),
        "/v1/clusters" => of("Topics"),
        "/v1/benchmarks" => json!({"text/html": {"schema": {"type": "string"}}}),
        "/metrics" => json!({"text/plain": {"schema": {"type": "string"}}}),
        _ => json!({"application/json": {"schema": {"type": "object"}}}),
    }
}

fn schemas() -> Value {
    let mut schemas = json!({
        "Error": {
            "type": "object",
            "required": ["error"],
            "properties": {"error": {
                "type": "object",
                "required": ["message", "type", "code"],
                "properties": {
                    "message": {"type": "string", "description": "What is wrong, and where"},
                    "type": {"type": "string", "description": "The kind, as OpenAI's API has it"},
                    "param": {"type": ["string", "null"], "description": "The field that is meant"},
                    "code": {"type": "string", "description": "For programs; never changes"},
                    "hint": {"type": "string", "description": "How to mend it"},
                },
            }},
        },
        "RerankRequest": {
            "type": "object",
            "required": ["query", "documents"],
            "additionalProperties": false,
            "properties": {
                "query": {"type": "string"},
                "documents": {"type": "array", "items": {"anyOf": [
                    {"type": "string"},
                    {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
                ]}},
                "top_n": {"type": "integer", "minimum": 1},
                "return_documents": {"type": "boolean"},
                "model": {"type": "string"},
            },
        },
        "EmbeddingsRequest": {
            "type": "object",
            "required": ["input"],
            "additionalProperties": false,
            "properties": {
                "input": {"description": "A text, texts, token ids or lists of them"},
                "model": {"type": "string"},
                "encoding_format": {"enum": ["float", "base64"]},
                "dimensions": {"type": "integer", "minimum": 1},
                "user": {"type": "string"},
            },
        },
    });
    let mut settings = schemars::generate::SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    generator.subschema_for::<turnwise_search::SearchRequest>();
    generator.subschema_for::<turnwise_search::Response>();
    generator.subschema_for::<turnwise_search::Facets>();
    generator.subschema_for::<turnwise_search::RespondRequest>();
    generator.subschema_for::<turnwise_search::Replies>();
    generator.subschema_for::<super::routes::Topics>();
    generator.subschema_for::<turnwise_corpus::Dialogue>();
    if let Some(all) = schemas.as_object_mut() {
        for (name, schema) in generator.take_definitions(true) {
            let name = if name == "Response" { "SearchResponse".to_owned() } else { name };
            all.insert(name, schema);
        }
    }
    schemas
}
