//! Streamed responses: JSON lines or server-sent events (`Accept: application/x-ndjson` or `text/event-stream`).

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, Response, header},
};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

use super::{
    body,
    problem::{Outcome, Problem},
};

/// Response format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON document.
    Whole,
    /// JSON lines.
    Lines,
    /// Server-sent events.
    Events,
}

impl Form {
    /// Chooses the first supported format in the Accept header.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let kinds = accepted.flat_map(|value| value.split(',')).filter_map(|kind| kind.split(';').next());
        kinds
            .filter_map(|kind| match kind.trim() {
                "application/x-ndjson" | "application/jsonl" => Some(Form::Lines),
                "text/event-stream" => Some(Form::Events),
                "application/json" | "*/*" => Some(Form::Whole),
                _ => None,
            })
            .next()
            .unwrap_or(Form::Whole)
    }

    pub(super) fn kind(self) -> &'static str {
        match self {
            Form::Whole => "application/json",
            Form::Lines => "application/x-ndjson",
            Form::Events => "text/event-stream",
        }
    }

    /// Serializes an item.
    pub(super) fn write(self, name: &str, item: &impl Serialize, out: &mut Vec<u8>) -> Outcome<()> {
        let json = serde_json::to_vec(item).map_err(|e| Problem::internal(e.to_string()))?;
        if self == Form::Events {
            out.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
        }
        out.extend_from_slice(&json);
        out.extend_from_slice(if self == Form::Events { b"\n\n" } else { b"\n" });
        Ok(())
    }
}

/// Response with one line or event per item, followed by the rest of the response.
pub(super) fn list(
    form: Form,
    items: &[impl Serialize],
    name: &str,
    rest: &impl Serialize,
) -> Outcome<Response<Body>> {
    let mut out = Vec::new();
    items.iter().try_for_each(|item| form.write(name, item, &mut out))?;
    form.write("done", rest, &mut out)?;
    Ok(body::of(out, form.kind()))
}

/// Streamed body. An empty piece ends it. If the channel closes without one, the connection is aborted, and the
/// client can detect that the response is incomplete.
pub(super) struct Pieces(pub(super) mpsc::Receiver<Bytes>);

impl hyper::body::Body for Pieces {
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

    #[test]
    fn the_accept_header_selects_the_format() {
        let of =
            |text: &'static str| Form::of(&HeaderMap::from_iter([(header::ACCEPT, text.parse().unwrap())]));
        assert_eq!(Form::of(&HeaderMap::new()), Form::Whole);
        assert_eq!(of("application/x-ndjson"), Form::Lines);
        assert_eq!(of("text/html, text/event-stream;q=0.9, */*"), Form::Events);
        assert_eq!(of("application/json, text/event-stream"), Form::Whole);
        assert_eq!(of("image/png"), Form::Whole);
    }

    #[test]
    fn items_are_lines_or_events() {
        let written = |form: Form| {
            let mut out = Vec::new();
            form.write("hit", &serde_json::json!({"n": 1}), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(Form::Lines), "{\"n\":1}\n");
        assert_eq!(written(Form::Events), "event: hit\ndata: {\"n\":1}\n\n");
        let response = list(Form::Lines, &[1, 2], "hit", &3).unwrap();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/x-ndjson");
    }
}
