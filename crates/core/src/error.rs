//! The one error type, and what a caller can do about each state.
//!
//! An error says *what* is wrong and *where*; [`Error::hint`] says how to mend it and is kept apart, so that a
//! program can show, log or drop it. [`Error::class`] decides the exit code of the command line.

use std::{
    cell::Cell,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

thread_local! {
    /// Whether a panic on this thread is expected, caught and turned into an error. A panic hook may ask.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread is about to be caught and reported as an error.
pub fn panic_is_caught() -> bool {
    CAUGHT.get()
}

/// Calls into a part of others that answers damaged files with a panic; `None` if it did.
pub fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
    CAUGHT.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    CAUGHT.set(false);
    outcome.ok()
}

/// Whose fault an error is, and therefore the exit code of a program that ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A check that was asked for did not hold.
    Assertion,
    /// The caller asked for something that cannot be: a wrong flag, path, name or setting.
    Input,
    /// The data that was given is not what it should be.
    Data,
    /// A file of an index is damaged.
    Corrupt,
    /// Another process holds what is needed.
    Busy,
    /// Something outside (disk space, permissions, a device, a server) is missing.
    Unavailable,
    /// A bug in turnwise.
    Internal,
    /// The user stopped it.
    Interrupted,
}

impl Class {
    /// The exit code that stands for this class.
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

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that makes no sense.
    #[error("{message}")]
    Input {
        /// What is wrong.
        message: String,
        /// How to mend it.
        hint: Option<String>,
    },
    /// What is searched in cannot do what was asked for; another engine can.
    #[error("{message}")]
    Unsupported {
        /// What is not possible, and where.
        message: String,
        /// What is possible instead.
        hint: Option<String>,
    },
    /// A name that is not among the known ones.
    #[error("unknown {kind} `{name}`")]
    UnknownName {
        /// What kind of thing was named.
        kind: &'static str,
        /// The name as given.
        name: String,
        /// The nearest known name, if one is near, else the known names.
        hint: Option<String>,
    },
    /// A record or a file of a corpus that cannot be used.
    #[error("{message}")]
    Data {
        /// What is wrong, with path and line.
        message: String,
        /// How to mend it.
        hint: Option<String>,
    },
    /// More records were rejected than allowed.
    #[error("{rejected} records were rejected, and at most {allowed} may be; the last: {last}")]
    TooManyRejects {
        /// How many were rejected.
        rejected: u64,
        /// How many are allowed.
        allowed: u64,
        /// The last of them.
        last: Reject,
    },
    /// The directory holds no index.
    #[error("there is no index at {}", path.display())]
    NoIndex {
        /// Where it was looked for.
        path: PathBuf,
        /// What exists instead.
        hint: Option<String>,
    },
    /// The index was written by a version with another format.
    #[error("{} has format version {found}, and this turnwise reads version {supported}", path.display())]
    FormatVersion {
        /// The manifest.
        path: PathBuf,
        /// The version it names.
        found: u32,
        /// The version this build reads.
        supported: u32,
    },
    /// A file of an index is damaged.
    #[error("{}: {what}", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where in it, and in which way.
        what: String,
        /// How to mend it.
        hint: String,
    },
    /// Another process writes to the index.
    #[error("{} is being written by {holder}", path.display())]
    Busy {
        /// The index.
        path: PathBuf,
        /// The holder of the lock, as it described itself.
        holder: String,
    },
    /// The operating system refused something.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: `read`, `create`, …
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
    /// Something outside is missing: a device, a server, a program.
    #[error("{message}")]
    Unavailable {
        /// What is missing.
        message: String,
        /// How to get or do without it.
        hint: Option<String>,
    },
    /// A device has not enough memory for what it was given; smaller pieces may fit.
    #[error("{device} is out of memory")]
    DeviceMemory {
        /// The device.
        device: String,
    },
    /// A check that was asked for did not hold.
    #[error("{0}")]
    Assertion(String),
    /// The user stopped it; what was acknowledged is kept.
    #[error("interrupted")]
    Interrupted {
        /// How to go on.
        hint: Option<String>,
    },
    /// Something that cannot happen did.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// An input error without a hint.
    pub fn input(message: impl Into<String>) -> Self {
        Error::Input { message: message.into(), hint: None }
    }

    /// A data error without a hint.
    pub fn data(message: impl Into<String>) -> Self {
        Error::Data { message: message.into(), hint: None }
    }

    /// An error about something outside that is not to be had, without a hint.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Error::Unavailable { message: message.into(), hint: None }
    }

    /// An [`Error::UnknownName`] whose hint is the nearest of `known`, or all of them.
    pub fn unknown_name<'a>(
        kind: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => Some(format!("did you mean `{near}`?")),
            None if known.is_empty() => None,
            None => Some(format!("known: {}", known.join(", "))),
        };
        Error::UnknownName { kind, name: name.to_owned(), hint }
    }

    /// A damaged file of an index, with the hint that fits all of them.
    pub fn corrupt(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Error::Corrupt {
            path: path.into(),
            what: what.into(),
            hint: "`turnwise verify` lists all damage, `turnwise repair` mends it".to_owned(),
        }
    }

    /// Adds or replaces the hint where the variant carries one.
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

    /// Whose fault it is.
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

    /// How to mend it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Input { hint, .. }
            | Error::Unsupported { hint, .. }
            | Error::UnknownName { hint, .. }
            | Error::Data { hint, .. }
            | Error::NoIndex { hint, .. }
            | Error::Unavailable { hint, .. }
            | Error::Interrupted { hint } => hint.clone(),
            Error::Corrupt { hint, .. } => Some(hint.clone()),
            Error::TooManyRejects { .. } => {
                Some("see them all with `--rejects FILE`, or allow more with `--max-errors N`".to_owned())
            }
            Error::FormatVersion { found, supported, .. } if found > supported => {
                Some("use a newer turnwise, or ingest the corpus again".to_owned())
            }
            Error::FormatVersion { .. } => Some("ingest the corpus again with this turnwise".to_owned()),
            Error::Busy { .. } => Some("wait until it ends; reading works meanwhile".to_owned()),
            Error::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull => {
                    Some("free some space and run the same command again".to_owned())
                }
                io::ErrorKind::PermissionDenied => Some("check who owns the file and its mode".to_owned()),
                _ => None,
            },
            Error::Internal(_) => Some("this is a bug in turnwise: please report it".to_owned()),
            Error::DeviceMemory { .. } => Some("close what else uses it, or take --device cpu".to_owned()),
            Error::Assertion(_) => None,
        }
    }
}

/// Names the file and the action in an [`io::Error`].
pub trait IoContext<T> {
    /// `action` is a verb that fits `cannot {action} {path}`.
    fn at(self, action: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, action: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|source| Error::Io { action, path: path.as_ref().to_owned(), source })
    }
}

/// A record that could not be used, and why. Ingest writes it to the rejects file and goes on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Reject {
    /// The file, as the user named it (`-` for standard input).
    pub path: String,
    /// The line on which the record starts, counted from 1.
    pub line: Option<u64>,
    /// The record's id, as far as it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What is wrong with it.
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

/// The known name that is most probably meant by `name`, if one is near enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
    fn a_near_name_is_suggested_and_a_far_one_lists_all() {
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
