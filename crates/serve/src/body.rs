//! Request and response bodies: parses JSON with precise errors, and serializes responses as JSON, JSON lines or
//! server-sent events.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Frame;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::mpsc;

use super::problem::{Outcome, Problem};
use turnwise_core::error;

/// HTTP response that a handler returns.
pub(super) type HttpResponse = Response<Body>;

/// Reads a request body. Returns an error if the body is incomplete or longer than `most` bytes.
pub(super) async fn read(body: Body, most: usize) -> Outcome<Bytes> {
    match Limited::new(body, most).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(e) if e.is::<LengthLimitError>() => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the body exceeds the limit of {most} bytes"),
        )
        .hint("split the request; only /v1/ingest has no size limit")),
        Err(e) => Err(Problem::request(format!("the body is incomplete: {e}"))),
    }
}

/// Parses a JSON object. The error for an unknown field or value suggests a similar known name, if there is one.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Outcome<T> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::request("the body is empty; expected a JSON object"));
    }
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::request("the body is an array; expected a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|e| wrong(&e, path_of_error::<T>(bytes)))
}

/// Returns the path of the value that cannot be parsed, such as `context[0]`. Returns `None` if it is the whole body.
fn path_of_error<T: DeserializeOwned>(bytes: &[u8]) -> Option<String> {
    let read = &mut serde_json::Deserializer::from_slice(bytes);
    let e = serde_path_to_error::deserialize::<_, T>(read).err()?;
    Some(e.path().to_string()).filter(|path| path != ".")
}

/// Converts an error of serde to a problem. `path` is that of the wrong value.
fn wrong(e: &serde_json::Error, path: Option<String>) -> Problem {
    let text = ["usize", "u64", "u32", "u8"].iter().fold(e.to_string(), |text, kind| {
        text.replace(&format!("expected {kind}"), "expected a non-negative integer")
    });
    // The words of JSON instead of those of serde.
    let text = text.replace("type: map,", "type: object,").replace("type: sequence,", "type: array,");
    let text = text.replace("expected a sequence", "expected an array");
    let text = match text.split_once("expected struct ") {
        Some((before, after)) => {
            let name = after.find(' ').unwrap_or(after.len());
            format!("{before}expected an object{}", &after[name..])
        }
        None => text,
    };
    let names: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    match (text.split_once(' ').map(|(first, _)| first), names.split_first()) {
        // The message about an unknown filter field already has a suggestion.
        (Some("unknown"), _) if text.starts_with("unknown filter") => {
            Problem::request(text.clone()).param("filter")
        }
        (Some("unknown"), Some((name, known))) => {
            let problem = Problem::request(text.clone());
            // If a value is unknown, serde does not report the name of its field.
            let problem = if text.starts_with("unknown field") { problem.param(*name) } else { problem };
            match error::closest_name(name, known.iter().copied()) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None => problem,
            }
        }
        _ if e.is_data() => match path {
            Some(path) => {
                let field = path.split(['.', '[']).next().unwrap_or_default().to_owned();
                Problem::request(format!("`{path}`: {text}"))
                    .param(field)
                    .hint("GET /openapi.json describes the types of all fields")
            }
            None => Problem::request(text),
        },
        _ => Problem::request(format!("the body is not valid JSON: {text}")),
    }
}

/// Creates a JSON response with status 200.
pub(super) fn ok(value: &impl Serialize) -> HttpResponse {
    json(StatusCode::OK, value)
}

/// Creates a JSON response with a status code.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    let Ok(bytes) = serde_json::to_vec(value) else {
        let mut failed = Response::new(Body::from("the response could not be serialized"));
        *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return failed;
    };
    let mut response = of(bytes, "application/json");
    *response.status_mut() = status;
    response
}

/// Creates a response with status 200, a body and the content type `kind`.
pub(super) fn of(bytes: impl Into<Body>, kind: &'static str) -> HttpResponse {
    let mut response = Response::new(bytes.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Format of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseFormat {
    /// One JSON document.
    Whole,
    /// JSON lines.
    Lines,
    /// Server-sent events.
    Events,
}

impl ResponseFormat {
    /// Returns the first supported format in the Accept header. If there is none, returns [`ResponseFormat::Whole`].
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let kinds = accepted.flat_map(|value| value.split(',')).filter_map(|kind| kind.split(';').next());
        kinds
            .filter_map(|kind| match kind.trim() {
                "application/x-ndjson" | "application/jsonl" => Some(ResponseFormat::Lines),
                "text/event-stream" => Some(ResponseFormat::Events),
                "application/json" | "*/*" => Some(ResponseFormat::Whole),
                _ => None,
            })
            .next()
            .unwrap_or(ResponseFormat::Whole)
    }

    pub(super) fn kind(self) -> &'static str {
        match self {
            ResponseFormat::Whole => "application/json",
            ResponseFormat::Lines => "application/x-ndjson",
            ResponseFormat::Events => "text/event-stream",
        }
    }

    /// Appends an item to `out` as a line or as a server-sent event. `name` is the type of the event.
    pub(super) fn write(self, name: &str, item: &impl Serialize, out: &mut Vec<u8>) -> Outcome<()> {
        let json = serde_json::to_vec(item).map_err(|e| Problem::internal(e.to_string()))?;
        if self == ResponseFormat::Events {
            out.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
        }
        out.extend_from_slice(&json);
        out.extend_from_slice(if self == ResponseFormat::Events { b"\n\n" } else { b"\n" });
        Ok(())
    }
}

/// Creates a response with one JSON line or event per item. `name` is the type of these events. The last line or event
/// is `rest`, which contains the other fields of the response.
pub(super) fn list(
    form: ResponseFormat,
    items: &[impl Serialize],
    name: &str,
    rest: &impl Serialize,
) -> Outcome<HttpResponse> {
    let mut out = Vec::new();
    items.iter().try_for_each(|item| form.write(name, item, &mut out))?;
    form.write("done", rest, &mut out)?;
    Ok(of(out, form.kind()))
}

/// Response body whose pieces come from a channel. An empty piece ends the body. If the channel closes without an empty
/// piece, the connection is aborted, so that the client detects the incomplete response.
pub(super) struct ChunkedBody(pub(super) mpsc::Receiver<Bytes>);

impl hyper::body::Body for ChunkedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|piece| match piece {
            Some(piece) if piece.is_empty() => None,
            Some(piece) => Some(Ok(Frame::data(piece))),
            None => Some(Err(io::Error::other("the response could not be completed"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_search::SearchRequest;

    #[test]
    fn parse_errors_name_the_position() {
        let wrong = |text: &str| parse::<SearchRequest>(text.as_bytes()).unwrap_err();
        let e = wrong("{\"query\": \"x\",\n \"k\": }");
        assert_eq!(e.message, "the body is not valid JSON: expected value at line 2 column 7");
        let e = wrong("{\"quary\": \"x\"}");
        assert!(e.message.starts_with("unknown field `quary`") && e.message.ends_with("column 8"), "{e:?}");
        assert_eq!((e.param.as_deref(), e.hint.as_deref()), (Some("quary"), Some("did you mean `query`?")));
        let e = wrong("{\"mode\": \"denes\"}");
        assert_eq!(e.hint.as_deref(), Some("did you mean `dense`?"));
        assert!(
            wrong("{\"k\": \"ten\"}").message.contains("expected a non-negative integer at line 1 column")
        );
        assert!(wrong("{\"k\": 1").message.contains("EOF"));
        assert!(wrong(" ").message.contains("empty"));
    }

    #[test]
    fn the_accept_header_selects_the_format() {
        let of = |text: &'static str| {
            ResponseFormat::of(&HeaderMap::from_iter([(header::ACCEPT, text.parse().unwrap())]))
        };
        assert_eq!(ResponseFormat::of(&HeaderMap::new()), ResponseFormat::Whole);
        assert_eq!(of("application/x-ndjson"), ResponseFormat::Lines);
        assert_eq!(of("text/html, text/event-stream;q=0.9, */*"), ResponseFormat::Events);
        assert_eq!(of("application/json, text/event-stream"), ResponseFormat::Whole);
        assert_eq!(of("image/png"), ResponseFormat::Whole);
    }

    #[test]
    fn items_are_lines_or_events() {
        let written = |form: ResponseFormat| {
            let mut out = Vec::new();
            form.write("hit", &serde_json::json!({"n": 1}), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(ResponseFormat::Lines), "{\"n\":1}\n");
        assert_eq!(written(ResponseFormat::Events), "event: hit\ndata: {\"n\":1}\n\n");
        let response = list(ResponseFormat::Lines, &[1, 2], "hit", &3).unwrap();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/x-ndjson");
    }
}
