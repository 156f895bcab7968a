//! Model Context Protocol (MCP): tools with which AI assistants search and read conversations. Uses JSON-RPC 2.0.

use std::io::{BufRead, Write};

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::Call;
use crate::{
    app::{App, Client},
    body::{self, HttpResponse},
    problem::{Outcome, Problem},
};
use turnwise_core::error::{IoContext, Result};
use turnwise_corpus::{Role, Turn, filter::Filter};
use turnwise_search::{Hit, HitKind, Mode, RespondRequest, SearchRequest};

/// Supported protocol versions, newest first.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];
/// Maximum number of hits per tool call.
const MOST: usize = 50;
/// Number of context turns that are returned before and after a hit.
const WINDOW: usize = 2;

impl App {
    /// Reads JSON-RPC messages, one per line, and writes the responses to `output`, until the end of the input. Returns
    /// an error if reading or writing fails.
    pub fn mcp(&self, input: impl BufRead, mut output: impl Write) -> Result<()> {
        for line in input.lines() {
            let line = line.at("read", "standard input")?;
            if line.trim().is_empty() {
                continue;
            }
            self.follow();
            if let Some(answer) = answer(self, &Client::default(), None, line.as_bytes()) {
                writeln!(output, "{answer}")
                    .and_then(|()| output.flush())
                    .at("write to", "standard output")?;
            }
        }
        Ok(())
    }
}

/// Answers a JSON-RPC message or a batch of messages. Returns `None` if there are only notifications, which have no
/// response. Tool calls that name no index use `index`.
pub(super) fn answer(app: &App, client: &Client, index: Option<&str>, message: &[u8]) -> Option<Value> {
    match serde_json::from_slice::<Value>(message) {
        Err(e) => Some(failed(&Value::Null, -32700, &format!("invalid JSON: {e}"))),
        Ok(Value::Array(all)) => {
            let answers: Vec<Value> =
                all.iter().filter_map(|one| one_answer(app, client, index, one)).collect();
            (!answers.is_empty()).then_some(Value::Array(answers))
        }
        Ok(one) => one_answer(app, client, index, &one),
    }
}

fn one_answer(app: &App, client: &Client, index: Option<&str>, message: &Value) -> Option<Value> {
    let Some(method) = message["method"].as_str() else {
        return Some(failed(&message["id"], -32600, "the message has no method"));
    };
    // A message without an id is a notification, which has no response.
    let id = message.get("id")?;
    let done = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
    Some(match method {
        "initialize" => done(initialized(message["params"]["protocolVersion"].as_str())),
        "ping" => done(json!({})),
        "tools/list" => done(json!({ "tools": tools(app, client) })),
        "tools/call" => {
            let (name, arguments) = (&message["params"]["name"], &message["params"]["arguments"]);
            let arguments = if arguments.is_null() { json!({}) } else { arguments.clone() };
            match name.as_str() {
                Some(name @ ("search" | "similar" | "respond" | "get_dialogue")) => {
                    let found = call(app, client, index, name, &arguments);
                    done(called(found.map_err(|problem| app.hidden(problem))))
                }
                _ => failed(id, -32602, &format!("unknown tool {name}")),
            }
        }
        _ => failed(id, -32601, &format!("unknown method `{method}`")),
    })
}

fn failed(id: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

fn initialized(requested: Option<&str>) -> Value {
    let version = VERSIONS.into_iter().find(|known| Some(*known) == requested).unwrap_or(VERSIONS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "turnwise", "version": env!("CARGO_PKG_VERSION")},
        "instructions": "Searches conversations by meaning and keywords. `search` finds turns or dialogues that match a query, \
            `similar` finds turns or dialogues similar to a known one, `respond` suggests replies to a conversation, \
            `get_dialogue` reads a whole dialogue by its id.",
    })
}

fn tools(app: &App, client: &Client) -> Value {
    let names: Vec<&str> = client.indexes(app).map(|hosted| hosted.name.as_str()).collect();
    let text = |about: &str| json!({"type": "string", "description": about});
    let index = json!({"type": "string", "enum": names, "description": "Name of the index; required only if there are several"});
    let k = json!({"type": "integer", "minimum": 1, "maximum": MOST, "description": "Number of hits (default: 8)"});
    let filter = text(
        "Filter expression, such as: domain=banking and role=user and time>=2026-01-01. Fields: id, corpus, thread, title, \
         language, domain, intent, role, speaker, text, time, turns, turn, length, meta.KEY; operators = != < <= > >= ~ (contains); \
         and, or, not, parentheses",
    );
    let of =
        json!({"enum": ["utterances", "dialogues"], "description": "Search single turns or whole dialogues"});
    let tool = |name: &str, about: &str, properties: Value, required: &[&str]| {
        json!({
            "name": name,
            "description": about,
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
            "inputSchema": {
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            },
        })
    };
    json!([
        tool(
            "search",
            "Find turns or dialogues by meaning and keywords. Each hit includes the surrounding turns and the id of its \
             dialogue.",
            json!({
                "query": text("Query: a sentence with a similar meaning, or keywords"),
                "context": {"type": "array", "items": {"type": "string"}, "description": "Previous turns of the conversation, oldest first"},
                "of": of,
                "mode": {"enum": ["hybrid", "dense", "bm25"], "description": "hybrid: meaning and keywords, dense: meaning, bm25: keywords"},
                "filter": filter, "k": k, "index": index,
            }),
            &["query"],
        ),
        tool(
            "similar",
            "Find turns or dialogues similar to a given one.",
            json!({
                "id": text("Id of a turn (billing-001#3) or of a dialogue (billing-001)"),
                "filter": filter, "k": k, "index": index,
            }),
            &["id"],
        ),
        tool(
            "respond",
            "Suggest replies to a conversation: answers to similar turns, or the best of given candidates.",
            json!({
                "context": {"type": "array", "items": {"type": "string"}, "description": "Turns of the conversation, oldest first; the last one is answered"},
                "candidates": {"type": "array", "items": {"type": "string"}, "description": "Candidate replies; without them, replies come from the index"},
                "role": text("Only answers by speakers with this role, such as agent"),
                "filter": filter, "k": k, "index": index,
            }),
            &["context"],
        ),
        tool(
            "get_dialogue",
            "Read a whole dialogue.",
            json!({"id": text("Id of the dialogue, from the field `dialogue` of a hit"), "index": index}),
            &["id"],
        ),
    ])
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    query: String,
    #[serde(default)]
    context: Vec<String>,
    #[serde(default)]
    of: HitKind,
    mode: Option<Mode>,
    filter: Option<Filter>,
    k: Option<usize>,
    index: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Similar {
    id: String,
    filter: Option<Filter>,
    k: Option<usize>,
    index: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Respond {
    context: Vec<String>,
    candidates: Option<Vec<String>>,
    role: Option<Role>,
    filter: Option<Filter>,
    k: Option<usize>,
    index: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetDialogue {
    id: String,
    index: Option<String>,
}

fn call(
    app: &App,
    client: &Client,
    default_index: Option<&str>,
    tool: &str,
    arguments: &Value,
) -> Outcome<Value> {
    let options = |filter, k: Option<usize>| SearchRequest {
        filter,
        k: k.unwrap_or(8).clamp(1, MOST),
        window: WINDOW,
        ..SearchRequest::default()
    };
    let (request, index) = match tool {
        "search" => {
            let Search { query, context, of, mode, filter, k, index } = read(arguments)?;
            (SearchRequest { query, context, of, mode, ..options(filter, k) }, index)
        }
        "similar" => {
            let Similar { id, filter, k, index } = read(arguments)?;
            (SearchRequest { like: Some(id), ..options(filter, k) }, index)
        }
        "respond" => {
            let Respond { context, candidates, role, filter, k, index } = read(arguments)?;
            let k = k.unwrap_or(8).clamp(1, MOST);
            let request =
                RespondRequest { context, candidates, role, filter, k, ..RespondRequest::default() };
            let opened = client.opened(app, index.as_deref().or(default_index))?;
            let found = opened.respond(request, client)?;
            return Ok(json!({"replies": found.replies, "warnings": found.warnings}));
        }
        _ => {
            let GetDialogue { id, index } = read(arguments)?;
            let opened = client.opened(app, index.as_deref().or(default_index))?;
            let there = opened.dialogue(&id)?;
            let seen = there.filter(|dialogue| client.can_see(dialogue));
            let seen = seen.ok_or_else(|| Problem::not_found(format!("dialogue `{id}` does not exist")))?;
            return serde_json::to_value(seen).map_err(|e| Problem::internal(e.to_string()));
        }
    };
    let found = client.opened(app, index.as_deref().or(default_index))?.search(request, client)?;
    Ok(json!({"hits": found.hits.iter().map(brief).collect::<Vec<Value>>(), "warnings": found.warnings}))
}

fn read<T: DeserializeOwned>(arguments: &Value) -> Outcome<T> {
    body::parse(arguments.to_string().as_bytes())
}

/// Converts a hit to a JSON object that contains only the fields that an assistant needs.
fn brief(hit: &Hit) -> Value {
    let said = |turn: &Turn| {
        let role = turn.role.as_ref().map(ToString::to_string);
        json!({"number": turn.number, "speaker": turn.speaker, "role": role, "text": turn.text})
    };
    json!({
        "id": hit.id,
        "dialogue": hit.dialogue,
        "thread": hit.thread,
        "time": hit.time,
        "title": hit.title,
        "domains": hit.domains,
        "score": hit.score,
        "before": hit.before.iter().map(said).collect::<Vec<Value>>(),
        "turn": said(&hit.turn),
        "after": hit.after.iter().map(said).collect::<Vec<Value>>(),
    })
}

/// Converts the outcome of a tool call to an MCP tool result. An error also becomes a result, so that the assistant
/// sees it and can correct its call.
fn called(done: Outcome<Value>) -> Value {
    match done {
        Ok(found) => json!({
            "content": [{"type": "text", "text": found.to_string()}],
            "structuredContent": found,
            "isError": false,
        }),
        Err(problem) => {
            let hint = problem.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            json!({"content": [{"type": "text", "text": format!("{}{hint}", problem.message)}], "isError": true})
        }
    }
}

pub(super) async fn mcp(mut call: Call) -> Outcome<HttpResponse> {
    let message = call.body().await?;
    let index = call.query_value("index");
    let (app, client) = (call.app.clone(), call.client);
    let answer = call.app.pool.run(move || Ok(answer(&app, &client, index.as_deref(), &message))).await?;
    Ok(match answer {
        Some(answer) => body::ok(&answer),
        // A notification has no response.
        None => {
            let mut accepted = Response::new(Body::empty());
            *accepted.status_mut() = StatusCode::ACCEPTED;
            accepted
        }
    })
}
