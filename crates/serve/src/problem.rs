//! What went wrong, as an answer: the envelope that clients of OpenAI's API know, with a hint beside.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use serde_json::json;

use turnwise_core::error::{Class, Error};

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// For programs; it never changes.
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: Option<String>,
    /// The field that is meant.
    pub(super) param: Option<String>,
    /// Seconds after which to come again.
    pub(super) again: Option<u32>,
}

pub(super) type Outcome<T> = Result<T, Problem>;

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Problem { status, code, message: message.into(), hint: None, param: None, again: None }
    }

    /// A request that makes no sense.
    pub(super) fn request(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn busy(message: impl Into<String>) -> Self {
        Problem {
            again: Some(1),
            ..Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
        }
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
            .hint("this is a bug in turnwise: please report it")
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// With a name in place of a path.
    pub(super) fn calling(mut self, path: &str, name: &str) -> Self {
        // `.` is a path, too, and stands for other things in sentences; a host has its port.
        if path.len() > 2 && path.contains([std::path::MAIN_SEPARATOR, ':']) {
            self.message = self.message.replace(path, name);
            self.hint = self.hint.map(|hint| hint.replace(path, name));
        }
        self
    }

    /// OpenAI's names of kinds.
    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            400..=499 | 501 => "invalid_request_error",
            _ => "server_error",
        }
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let mut error = json!({
            "message": self.message, "type": self.kind(), "param": self.param, "code": self.code,
        });
        if let Some(hint) = &self.hint {
            error["hint"] = json!(hint);
        }
        json!({ "error": error })
    }
}

impl From<Error> for Problem {
    fn from(e: Error) -> Self {
        let (status, code) = match (&e, e.class()) {
            (Error::Unsupported { .. }, _) => (StatusCode::NOT_IMPLEMENTED, "unsupported"),
            (Error::NoIndex { .. }, _) => (StatusCode::NOT_FOUND, "not_found"),
            (_, Class::Input) => (StatusCode::BAD_REQUEST, "invalid_request"),
            (_, Class::Data | Class::Assertion) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid_data"),
            (_, Class::Busy) => (StatusCode::CONFLICT, "being_written"),
            (_, Class::Unavailable | Class::Interrupted) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            (_, Class::Corrupt) => (StatusCode::INTERNAL_SERVER_ERROR, "damaged"),
            (_, Class::Internal) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let again = match e.class() {
            Class::Busy => Some(1),
            // Whatever is away is looked for again in this time.
            Class::Unavailable => Some(2),
            _ => None,
        };
        let message = match &e {
            // Not by which command: that is for who sits at the machine.
            Error::Busy { path, .. } => format!("{}: another process writes to it just now", path.display()),
            e => e.to_string(),
        };
        Problem { status, code, message, hint: e.hint(), param: None, again }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let mut response = super::body::json(self.status, &self.json());
        if let Some(seconds) = self.again {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"turnwise\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_called_by_its_name_and_a_full_stop_is_left_alone() {
        let told = || Problem::request("indexes/x/log: is damaged.").hint("turnwise repair -i indexes/x");
        let named = told().calling("indexes/x", "x");
        assert_eq!(
            (named.message.as_str(), named.hint.as_deref()),
            ("x/log: is damaged.", Some("turnwise repair -i x"))
        );
        for path in [".", "..", "/", ""] {
            assert_eq!(told().calling(path, "x"), told());
        }
    }
}
