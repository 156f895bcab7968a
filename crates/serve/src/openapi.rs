//! OpenAPI description of the API.

use serde_json::{Map, Value, json};

use super::{guard::For, routes::ROUTES};

/// Returns the description, as OpenAPI 3.1.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in &ROUTES {
        let mut operation = json!({
            "summary": route.about,
            "operationId": format!("{}{}", route.method, route.path.replace(['/', '.'], "_").replace(['{', '}'], "")),
            "responses": {
                "200": {"description": "Success", "content": answer(route.method, route.path)},
                "default": {
                    "description": "Error",
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
            "description": "Search engine for conversations, by meaning and keywords.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas(),
        },
    })
}

/// Names of a route's query parameters.
pub(super) fn query_names(method: &str, path: &str) -> Vec<String> {
    let all = parameters(&method.to_lowercase(), path);
    let in_query = all.iter().filter(|parameter| parameter["in"] == "query");
    in_query.filter_map(|parameter| parameter["name"].as_str().map(str::to_owned)).collect()
}

fn parameters(method: &str, path: &str) -> Vec<Value> {
    let parameter = |name: &str, place: &str, required: bool, about: &str| json!({"name": name, "in": place, "required": required, "description": about, "schema": {"type": "string"}});
    let mut all = Vec::new();
    if path.contains("{id}") {
        let about = if path.starts_with("/v1/models") { "Name of the model" } else { "Id of the dialogue" };
        all.push(parameter("id", "path", true, about));
    }
    let of_no_index = ["/v1/embeddings", "/v1/models", "/v1/models/{id}", "/v1/rerank", "/v1/benchmarks"];
    if path == "/mcp" || path.starts_with("/v1/") && !of_no_index.contains(&path) {
        all.push(parameter("index", "query", false, "Name of the index; required if there are several"));
    }
    if ["/v1/facets", "/v1/clusters", "/v1/stats"].contains(&path) {
        all.push(parameter("filter", "query", false, "Filter of the dialogues, such as domain=banking"));
    }
    if path == "/v1/clusters" {
        all.push(parameter("k", "query", false, "Number of topics (default: automatic)"));
        all.push(parameter("seed", "query", false, "Random seed (default: 0)"));
        all.push(parameter(
            "map",
            "query",
            false,
            "Largest number of dialogues on the map (default: 0, no map)",
        ));
    }
    if (method, path) == ("get", "/v1/dialogues") {
        all.push(parameter(
            "filter",
            "query",
            false,
            "Filter of the dialogues, such as domain=banking (default: all)",
        ));
        all.push(parameter("after", "query", false, "Id of the dialogue after which the list continues"));
        all.push(parameter(
            "limit",
            "query",
            false,
            "Largest number of dialogues (default: 20; no limit for JSON lines and events)",
        ));
    }
    if path == "/v1/facets" {
        all.push(parameter("field", "query", false, "Field to count by; can be repeated"));
    }
    if path == "/v1/ingest" {
        let about = "Unique key of the request. Repeating a request with the same key and body returns the stored response and has no further effect";
        all.push(parameter("Idempotency-Key", "header", false, about));
    }
    if (method, path) == ("delete", "/v1/dialogues") {
        all.push(parameter(
            "filter",
            "query",
            true,
            "Filter of the dialogues to remove, such as domain=banking",
        ));
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
    // JSON lines and events contain one item each.
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
                "next": {"type": ["string", "null"], "description": "Value of `after` for the next page; null on the last page"},
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
                    "message": {"type": "string", "description": "Description of the error"},
                    "type": {"type": "string", "description": "Error type, as in OpenAI's API"},
                    "param": {"type": ["string", "null"], "description": "Field of the request that the error is about"},
                    "code": {"type": "string", "description": "Stable identifier for programs"},
                    "hint": {"type": "string", "description": "How to fix the error"},
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
                "input": {"description": "A string, a list of strings, a list of token ids or a list of such lists"},
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
