//! The error type of all turnwise crates.
//!
//! An error's message describes the problem and its location. [`Error::hint`] suggests a fix; it is not part of the
//! message. [`Error::class`] determines the exit code of the program.

use std::{
    cell::Cell,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

/// Result type with [`Error`] as the default error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

thread_local! {
    /// Whether [`caught`] is running on this thread. The panic hook reads this flag with [`panic_is_caught`].
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether [`caught`] would catch a panic on this thread.
pub fn panic_is_caught() -> bool {
    CAUGHT.get()
}

/// Calls a function and catches its panic. Returns `None` if the function panics.
///
/// Used for third-party code that can panic, for example on damaged files.
pub fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
    CAUGHT.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    CAUGHT.set(false);
    outcome.ok()
}

/// Class of an error: the kind of failure. It determines the exit code of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A command that checks something, such as `doctor`, found a problem.
    Assertion,
    /// The request is invalid: a wrong flag, path, name or setting.
    Input,
    /// The input data is invalid.
    Data,
    /// A file of an index is damaged.
    Corrupt,
    /// Another process holds the writer lock of the index.
    Busy,
    /// A resource is missing (disk space, permission, device, server), or a format version is not supported.
    Unavailable,
    /// A bug in turnwise.
    Internal,
    /// The user interrupted the command.
    Interrupted,
}

impl Class {
    /// Returns the exit code of this class.
    pub const fn exit_code(self) -> u8 {
        match self {
            Class::Assertion => 1,
            Class::Input => 2,
            Class::Data => 3,
            Class::Corrupt => 4,
            Class::Busy => 5,
            Class::Unavailable => 6,
            Class::Internal => 70,
            Class::Interrupted => 130,
        }
    }
}

/// Error of any turnwise operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is invalid.
    #[error("{message}")]
    Input {
        /// Description of the problem.
        message: String,
        /// Suggested fix.
        hint: Option<String>,
    },
    /// The search engine does not support the request, but a different engine does.
    #[error("{message}")]
    Unsupported {
        /// Description of the unsupported feature, with the name of the engine.
        message: String,
        /// Suggested alternative, such as an engine that supports the request.
        hint: Option<String>,
    },
    /// A name that the user gave, for example of a model or an objective, is unknown.
    #[error("unknown {kind} `{name}`")]
    UnknownName {
        /// Category of the name, for example `format`.
        kind: &'static str,
        /// The unknown name.
        name: String,
        /// The most similar known name, or the list of known names.
        hint: Option<String>,
    },
    /// The input data is invalid, for example a record or a file of a corpus.
    #[error("{message}")]
    Data {
        /// Description of the problem, usually with path and line.
        message: String,
        /// Suggested fix.
        hint: Option<String>,
    },
    /// More records were rejected than `--max-errors` allows.
    #[error("{rejected} records were rejected (limit: {allowed}); the last one: {last}")]
    TooManyRejects {
        /// Number of rejected records.
        rejected: u64,
        /// Maximum number of rejected records.
        allowed: u64,
        /// The last rejected record.
        last: Reject,
    },
    /// The directory contains no index.
    #[error("there is no index at {}", path.display())]
    NoIndex {
        /// Path of the directory.
        path: PathBuf,
        /// Suggested fix, for example the names of the existing indexes.
        hint: Option<String>,
    },
    /// The format version of an index or backup is not the version that this build reads.
    #[error("{} has format version {found}, and this turnwise reads version {supported}", path.display())]
    FormatVersion {
        /// Path of the file with the format version: the manifest of an index or of a backup.
        path: PathBuf,
        /// Format version of the index or backup.
        found: u32,
        /// Format version that this build reads.
        supported: u32,
    },
    /// A file of an index is damaged.
    #[error("{}: {what}", path.display())]
    Corrupt {
        /// Path of the damaged file.
        path: PathBuf,
        /// Position and kind of the damage.
        what: String,
        /// Suggested fix.
        hint: String,
    },
    /// Another process writes to the index.
    #[error("{} is being written by {holder}", path.display())]
    Busy {
        /// Path of the index.
        path: PathBuf,
        /// Description of the process that holds the writer lock, as stored in the lock file.
        holder: String,
    },
    /// A file or folder operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb: `read`, `create`, …
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// An external resource is missing: a device, a server, a program.
    #[error("{message}")]
    Unavailable {
        /// Description of the missing resource.
        message: String,
        /// Suggested fix: a way to provide the resource or to work without it.
        hint: Option<String>,
    },
    /// A device is out of memory. Smaller batches may fit.
    #[error("{device} is out of memory")]
    DeviceMemory {
        /// Name of the device.
        device: String,
    },
    /// A command that checks something, such as `doctor`, found a problem.
    #[error("{0}")]
    Assertion(String),
    /// The user interrupted the command.
    #[error("interrupted")]
    Interrupted {
        /// Suggested way to continue the interrupted work.
        hint: Option<String>,
    },
    /// A bug in turnwise.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// Creates an input error without a hint.
    pub fn input(message: impl Into<String>) -> Self {
        Error::Input { message: message.into(), hint: None }
    }

    /// Creates a data error without a hint.
    pub fn data(message: impl Into<String>) -> Self {
        Error::Data { message: message.into(), hint: None }
    }

    /// Creates an error about a missing external resource, without a hint.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Error::Unavailable { message: message.into(), hint: None }
    }

    /// Creates an [`Error::UnknownName`]. The hint suggests the most similar name in `known`. If no name is similar,
    /// the hint lists all names in `known`.
    pub fn unknown_name<'a>(
        kind: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let hint = match closest_name(name, known.iter().copied()) {
            Some(near) => Some(format!("did you mean `{near}`?")),
            None if known.is_empty() => None,
            None => Some(format!("known: {}", known.join(", "))),
        };
        Error::UnknownName { kind, name: name.to_owned(), hint }
    }

    /// Creates an error for a damaged index file, with the hint to verify and repair the index.
    pub fn corrupt(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Error::Corrupt {
            path: path.into(),
            what: what.into(),
            hint: "`turnwise verify` lists all damage; `turnwise repair` repairs it".to_owned(),
        }
    }

    /// Sets the hint. Has no effect on variants without a `hint` field.
    #[must_use]
    pub fn with_hint(mut self, new: impl Into<String>) -> Self {
        match &mut self {
            Error::Input { hint, .. }
            | Error::Unsupported { hint, .. }
            | Error::UnknownName { hint, .. }
            | Error::Data { hint, .. }
            | Error::NoIndex { hint, .. }
            | Error::Unavailable { hint, .. }
            | Error::Interrupted { hint } => *hint = Some(new.into()),
            Error::Corrupt { hint, .. } => *hint = new.into(),
            _ => {}
        }
        self
    }

    /// Returns the message, followed by the hint in parentheses if there is one.
    pub fn message_and_hint(&self) -> String {
        self.hint().map_or_else(|| self.to_string(), |hint| format!("{self} ({hint})"))
    }

    /// Returns the class of the error.
    pub fn class(&self) -> Class {
        match self {
            Error::Input { .. }
            | Error::Unsupported { .. }
            | Error::UnknownName { .. }
            | Error::NoIndex { .. } => Class::Input,
            Error::Data { .. } | Error::TooManyRejects { .. } => Class::Data,
            Error::Corrupt { .. } => Class::Corrupt,
            Error::Busy { .. } => Class::Busy,
            Error::FormatVersion { .. } | Error::Unavailable { .. } | Error::DeviceMemory { .. } => {
                Class::Unavailable
            }
            Error::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::AlreadyExists
                | io::ErrorKind::InvalidInput => Class::Input,
                _ => Class::Unavailable,
            },
            Error::Assertion(_) => Class::Assertion,
            Error::Interrupted { .. } => Class::Interrupted,
            Error::Internal(_) => Class::Internal,
        }
    }

    /// Returns a suggested fix, or `None` if there is none.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::Input { hint, .. }
            | Error::Unsupported { hint, .. }
            | Error::UnknownName { hint, .. }
            | Error::Data { hint, .. }
            | Error::NoIndex { hint, .. }
            | Error::Unavailable { hint, .. }
            | Error::Interrupted { hint } => return hint.clone(),
            Error::Corrupt { hint, .. } => hint,
            Error::TooManyRejects { .. } => {
                "list them with `--rejects FILE`, or raise the limit with `--max-errors N`"
            }
            Error::FormatVersion { found, supported, .. } if found > supported => {
                "use a newer turnwise, or ingest the corpus again"
            }
            Error::FormatVersion { .. } => "ingest the corpus again with this turnwise",
            Error::Busy { .. } => "wait until it ends; the index can be read in the meantime",
            Error::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull => "free some space and run the same command again",
                io::ErrorKind::PermissionDenied => "check the owner and the permissions of the file",
                _ => return None,
            },
            Error::Internal(_) => "this is a bug in turnwise: please report it",
            Error::DeviceMemory { .. } => "close other programs that use the device, or use --device cpu",
            Error::Assertion(_) => return None,
        };
        Some(hint.to_owned())
    }
}

/// Adds context to an [`io::Error`]: the action that failed and the path of the file.
pub trait IoContext<T> {
    /// Converts the error to [`Error::Io`]. `action` is a verb for the message `cannot {action} {path}`.
    fn at(self, action: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, action: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|source| Error::Io { action, path: path.as_ref().to_owned(), source })
    }
}

/// A rejected record or file, with the reason. After a rejection, reading continues with the next record or file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Reject {
    /// The path of the file. `-` is standard input.
    pub path: String,
    /// The line where the record starts, counted from 1. `None` if unknown.
    pub line: Option<u64>,
    /// The id of the record, if it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Reason for the rejection.
    pub reason: String,
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(id) = &self.id {
            write!(f, " ({id})")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Returns the name in `known` that is most similar to `name`, ignoring case. Returns `None` if no name has a
/// Jaro-Winkler similarity of at least 0.8.
pub fn closest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|k| (strsim::jaro_winkler(&lower, &k.to_lowercase()), k))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_name_is_suggested_else_all_are_listed() {
        let e = Error::unknown_name("format", "multiwos", ["multiwoz", "sgd"]);
        assert_eq!(e.hint().as_deref(), Some("did you mean `multiwoz`?"));
        let e = Error::unknown_name("format", "xyz", ["multiwoz", "sgd"]);
        assert_eq!(e.hint().as_deref(), Some("known: multiwoz, sgd"));
    }

    #[test]
    fn the_class_decides_the_exit_code() {
        assert_eq!(Error::input("x").class().exit_code(), 2);
        assert_eq!(Error::data("x").class().exit_code(), 3);
        assert_eq!(Error::corrupt("f", "x").class().exit_code(), 4);
        assert_eq!(Error::Interrupted { hint: None }.class().exit_code(), 130);
    }

    #[test]
    fn a_reject_names_path_line_and_id() {
        let r = Reject {
            path: "a.jsonl".into(),
            line: Some(7),
            id: Some("d1".into()),
            reason: "no turns".into(),
        };
        assert_eq!(r.to_string(), "a.jsonl:7 (d1): no turns");
    }
}
