//! Why an engine cannot be made, or not be run.

use std::fmt;

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What was asked for is impossible.
    Input,
    /// The network contradicts itself.
    Data,
    /// The caller broke a promise.
    Internal,
}

/// What is wrong, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Whose fault it is.
    pub kind: Kind,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub hint: Option<String>,
}

/// A result whose error is one of the kernels'.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), hint: None }
    }

    pub(crate) fn input(message: impl Into<String>) -> Self {
        Error::new(Kind::Input, message)
    }

    pub(crate) fn data(message: impl Into<String>) -> Self {
        Error::new(Kind::Data, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Error::new(Kind::Internal, message)
    }

    pub(crate) fn unknown_name(kind: &str, name: &str, known: &[&str]) -> Self {
        Error::input(format!("unknown {kind} `{name}`")).with_hint(format!("known: {}", known.join(", ")))
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Error { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
