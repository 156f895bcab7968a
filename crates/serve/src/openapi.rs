//! The OpenAPI document, made from the table of routes and the types of requests and responses.

use serde_json::{Map, Value, json};

use super::{
    guard::For,
    routes::{Parameter, ROUTES, Reply, RequestBody},
};

/// The OpenAPI 3.1 document of the HTTP API.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in &ROUTES {
        let mut operation = json!({
            "summary": route.summary,
            "operationId": format!("{}{}", route.method, route.path.replace(['/', '.'], "_").replace(['{', '}'], "")),
            "responses": {
                "200": {"description": "Success", "content": response(route.reply)},
                "default": {
                    "description": "An error",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                },
            },
        });
        if route.access != For::All {
            operation["security"] = json!([{"key": []}, {}]);
        }
        if !route.parameters.is_empty() {
            operation["parameters"] = route.parameters.iter().map(parameter).collect();
        }
        if let Some(body) = request(route.body) {
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

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn parameter(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "in": parameter.place.name(),
        "required": parameter.required,
        "description": parameter.about,
        "schema": {"type": "string"},
    })
}

fn request(body: RequestBody) -> Option<Value> {
    match body {
        RequestBody::None => None,
        RequestBody::Json(schema) => Some(json!({"application/json": {"schema": reference(schema)}})),
        RequestBody::JsonRpc => {
            Some(json!({"application/json": {"schema": {"type": "object", "description": "JSON-RPC 2.0"}}}))
        }
        RequestBody::Lines(schema) => Some(json!({"application/x-ndjson": {"schema": reference(schema)}})),
    }
}

fn response(reply: Reply) -> Value {
    let streamed = |whole: Value, item: &str| {
        json!({
            "application/json": {"schema": whole},
            "application/x-ndjson": {"schema": reference(item)},
            "text/event-stream": {"schema": reference(item)},
        })
    };
    match reply {
        Reply::Object => json!({"application/json": {"schema": {"type": "object"}}}),
        Reply::Json(schema) => json!({"application/json": {"schema": reference(schema)}}),
        Reply::Stream { whole, item } => streamed(reference(whole), item),
        Reply::DialogueList => {
            let list = json!({"type": "object", "required": ["dialogues", "next"], "properties": {
                "dialogues": {"type": "array", "items": reference("Dialogue")},
                "next": {"type": ["string", "null"], "description": "Value of `after` for the next page; null on the last page"},
            }});
            streamed(list, "Dialogue")
        }
        Reply::Html => json!({"text/html": {"schema": {"type": "string"}}}),
        Reply::Text => json!({"text/plain": {"schema": {"type": "string"}}}),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(all) => {
                if let Some(Value::String(path)) = all.get("$ref") {
                    found.push(path.clone());
                }
                all.values().for_each(|value| references(value, found));
            }
            Value::Array(all) => all.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_resolves_and_every_path_parameter_is_described() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for path in found {
            assert!(document.pointer(path.trim_start_matches('#')).is_some(), "{path} is missing");
        }
        for route in &ROUTES {
            let names: Vec<&str> =
                route.path.split('{').skip(1).filter_map(|p| p.split('}').next()).collect();
            let described = document["paths"][route.path][route.method]["parameters"].clone();
            for name in names {
                let of_path = |p: &Value| p["name"] == name && p["in"] == "path";
                assert!(described.as_array().is_some_and(|all| all.iter().any(of_path)), "{}", route.path);
            }
        }
    }
}
