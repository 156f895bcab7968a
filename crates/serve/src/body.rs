//! Request and response bodies: parses JSON with precise errors, and serializes responses.

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, StatusCode, header},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{Serialize, de::DeserializeOwned};

use super::problem::{Outcome, Problem};
use turnwise_core::error;

/// Reads a body of at most `most` bytes.
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

/// Parses a request.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Outcome<T> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::request("the body is empty; expected a JSON object"));
    }
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::request("the body is an array; expected a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|e| wrong(&e))
}

fn wrong(e: &serde_json::Error) -> Problem {
    let text = ["usize", "u64", "u32", "u8"].iter().fold(e.to_string(), |text, kind| {
        text.replace(&format!("expected {kind}"), "expected a non-negative integer")
    });
    let names: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    match (text.split_once(' ').map(|(first, _)| first), names.split_first()) {
        // This message already has a suggestion.
        (Some("unknown"), _) if text.starts_with("unknown filter") => {
            Problem::request(text.clone()).param("filter")
        }
        (Some("unknown"), Some((name, known))) => {
            let problem = Problem::request(text.clone());
            // For an unknown value, serde does not report the field.
            let problem = if text.starts_with("unknown field") { problem.param(*name) } else { problem };
            match error::closest_name(name, known.iter().copied()) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None => problem,
            }
        }
        _ if e.is_data() => Problem::request(text),
        _ => Problem::request(format!("the body is not valid JSON: {text}")),
    }
}

/// JSON response.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let Ok(bytes) = serde_json::to_vec(value) else {
        let mut failed = Response::new(Body::from("the response could not be serialized"));
        *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return failed;
    };
    let mut response = of(bytes, "application/json");
    *response.status_mut() = status;
    response
}

/// Response with a content type.
pub(super) fn of(bytes: impl Into<Body>, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(bytes.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
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
}
