//! The OpenAPI document. It is generated from the table of routes and from the types of requests and responses.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    guard::Access,
    routes::{Parameter, Place, ROUTES, RequestBody, ResponseBody, SchemaOf},
};
use turnwise_corpus::Dialogue;

/// Returns the OpenAPI 3.1 document of the HTTP API.
pub fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let mut operation = json!({
            "summary": route.summary,
            "operationId": format!("{}{}", route.method, route.path.replace(['/', '.'], "_").replace(['{', '}'], "")),
            "responses": {
                "200": {"description": "Success", "content": response(route.response, &mut generator)},
                "default": {
                    "description": "An error",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                },
            },
        });
        if route.access != Access::Public {
            operation["security"] = json!([{"key": []}, {}]);
        }
        if !route.parameters.is_empty() {
            operation["parameters"] = route.parameters.iter().map(parameter).collect();
        }
        if let Some(body) = request(route.body, &mut generator) {
            operation["requestBody"] = json!({"required": true, "content": body});
        }
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation;
    }
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Error".to_owned(), error_schema());
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
            "schemas": schemas,
        },
    })
}

fn parameter(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "in": match parameter.place {
            Place::Path => "path",
            Place::Query => "query",
            Place::Header => "header",
        },
        "required": parameter.required,
        "description": parameter.about,
        "schema": {"type": "string"},
    })
}

fn request(body: RequestBody, generator: &mut SchemaGenerator) -> Option<Value> {
    Some(match body {
        RequestBody::None => return None,
        RequestBody::Json(schema) => json!({"application/json": {"schema": schema(generator)}}),
        RequestBody::JsonRpc => {
            json!({"application/json": {"schema": {"type": "object", "description": "JSON-RPC 2.0"}}})
        }
        RequestBody::Lines(schema) => json!({"application/x-ndjson": {"schema": schema(generator)}}),
    })
}

fn response(body: ResponseBody, generator: &mut SchemaGenerator) -> Value {
    let streamed = |whole: Value, item: SchemaOf, generator: &mut SchemaGenerator| {
        let item = item(generator);
        json!({
            "application/json": {"schema": whole},
            "application/x-ndjson": {"schema": item},
            "text/event-stream": {"schema": item},
        })
    };
    match body {
        ResponseBody::Object => json!({"application/json": {"schema": {"type": "object"}}}),
        ResponseBody::Json(schema) => json!({"application/json": {"schema": schema(generator)}}),
        ResponseBody::Stream { whole, item } => {
            let whole = whole(generator).to_value();
            streamed(whole, item, generator)
        }
        ResponseBody::DialogueList => {
            let dialogues = generator.subschema_for::<Vec<Dialogue>>();
            let list = json!({"type": "object", "required": ["dialogues", "next"], "properties": {
                "dialogues": dialogues,
                "next": {"type": ["string", "null"], "description": "Value of `after` for the next page; null on the last page"},
            }});
            streamed(list, |generator| generator.subschema_for::<Dialogue>(), generator)
        }
        ResponseBody::Html => json!({"text/html": {"schema": {"type": "string"}}}),
        ResponseBody::Text => json!({"text/plain": {"schema": {"type": "string"}}}),
    }
}

/// Returns the JSON schema of an error response.
fn error_schema() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["message", "type", "code"],
            "properties": {
                "message": text("Description of the error"),
                "type": text("Error type, as in OpenAI's API"),
                "param": {"type": ["string", "null"], "description": "Field of the request that the error is about"},
                "code": text("Stable identifier for programs"),
                "hint": text("How to fix the error"),
            },
        }},
    })
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
        for route in ROUTES {
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
