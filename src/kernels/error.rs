//! Why an engine cannot be made, or not be run.

use std::fmt;

/// What is wrong, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// What was asked for is impossible.
    Input {
        /// What is wrong.
        message: String,
        /// How to mend it.
        hint: Option<String>,
    },
    /// There is nothing of that name.
    UnknownName {
        /// What should have been named.
        kind: &'static str,
        /// What was.
        name: String,
        /// What can be.
        known: Vec<&'static str>,
    },
    /// The network contradicts itself.
    Data(&'static str),
    /// The caller broke a promise.
    Internal(&'static str),
}

/// A result whose error is one of the kernels'.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Error::Input { message: message.into(), hint: None }
    }

    /// Says how to mend what was asked for.
    pub(crate) fn with_hint(mut self, text: impl Into<String>) -> Self {
        if let Error::Input { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Input { message, .. } => f.write_str(message),
            Error::UnknownName { kind, name, known } => {
                write!(f, "unknown {kind} `{name}` (known: {})", known.join(", "))
            }
            Error::Data(message) | Error::Internal(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}
