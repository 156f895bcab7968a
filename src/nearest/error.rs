//! What can go wrong.

use std::{fmt, io, path::PathBuf};

/// What can go wrong in this crate.
#[derive(Debug)]
pub enum Error {
    /// A vector, a query or an option that cannot be used.
    Input(String),
    /// A file that is not what was written.
    Corrupt {
        /// Which.
        path: PathBuf,
        /// Which part of it, and how that shows.
        what: String,
    },
    /// The system's refusal.
    Io {
        /// What was tried: `map`, `write`.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The caller asked to stop.
    Stopped,
}

/// With this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Input(what) => f.write_str(what),
            Error::Corrupt { path, what } => write!(f, "{}: {what}", path.display()),
            Error::Io { action, path, source } => write!(f, "cannot {action} {}: {source}", path.display()),
            Error::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
