//! Error responses. They have the format of OpenAI's API, with the additional field `hint`.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use serde_json::json;

use turnwise_core::error::{Class, Error};

/// Error response: the status, the Retry-After header, and the fields of the JSON body.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// Identifier of the type of error, for programs. It does not change between versions of turnwise.
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: Option<String>,
    /// Name of the request field that caused the error.
    pub(super) param: Option<String>,
    /// Value of the Retry-After header, in seconds.
    pub(super) retry_after: Option<u32>,
}

pub(super) type Outcome<T> = Result<T, Problem>;

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Problem { status, code, message: message.into(), hint: None, param: None, retry_after: None }
    }

    /// Creates an error with status 400 for an invalid request.
    pub(super) fn request(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// Creates an error with status 403 for a request that the client may not make.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn busy(message: impl Into<String>) -> Self {
        Problem {
            retry_after: Some(1),
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

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Problem { hint: Some(hint.into()), ..self }
    }

    pub(super) fn param(self, param: impl Into<String>) -> Self {
        Problem { param: Some(param.into()), ..self }
    }

    /// Replaces a path or address in the message and the hint with the name of the index.
    pub(super) fn replacing_path(mut self, path: &str, name: &str) -> Self {
        // Replace only a text with a path separator or a colon, which looks like a path or an address. A path such as
        // `.` also occurs in ordinary sentences.
        if path.len() > 2 && path.contains([std::path::MAIN_SEPARATOR, ':']) {
            self.message = self.message.replace(path, name);
            self.hint = self.hint.map(|hint| hint.replace(path, name));
        }
        self
    }

    /// Returns the error type that OpenAI's API uses for this status.
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
        let retry_after = match e.class() {
            Class::Busy => Some(1),
            // The server retries to open an unavailable engine within this time.
            Class::Unavailable => Some(2),
            _ => None,
        };
        let message = match &e {
            // The original message names the command that is writing, which clients should not see.
            Error::Busy { path, .. } => {
                format!("{}: another process is writing to this index", path.display())
            }
            e => e.to_string(),
        };
        Problem { status, code, message, hint: e.hint(), param: None, retry_after }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let mut response = super::body::json(self.status, &self.json());
        if let Some(seconds) = self.retry_after {
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
    fn a_path_is_replaced_by_its_name_and_a_full_stop_is_kept() {
        let problem = || Problem::request("indexes/x/log: is damaged.").hint("turnwise repair -i indexes/x");
        let named = problem().replacing_path("indexes/x", "x");
        assert_eq!(
            (named.message.as_str(), named.hint.as_deref()),
            ("x/log: is damaged.", Some("turnwise repair -i x"))
        );
        for path in [".", "..", "/", ""] {
            assert_eq!(problem().replacing_path(path, "x"), problem());
        }
    }
}
