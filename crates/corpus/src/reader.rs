//! Reads all dialogues of files and folders.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use crate::{
    Dialogue,
    formats::{self, Format, Problem, ReadOptions},
    walk::{self, Plan},
};
use turnwise_core::{
    error::{Error, Reject, Result},
    numbers::counted,
};

/// Settings for reading files and folders.
#[derive(Clone)]
pub struct Reader {
    /// Format of all files. If `None`, the format of each file is detected. A column map in `options` implies CSV, so
    /// no format is detected then.
    pub format: Option<&'static Format>,
    /// Options for reading a file.
    pub options: ReadOptions,
    /// Maximum number of rejected records. If more records are rejected, reading ends with an error.
    pub max_rejects: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Reader { format: None, options: ReadOptions::default(), max_rejects: 100 }
    }
}

/// Event reported while files are read.
pub enum ReadEvent<'a> {
    /// The files to read were found. This event comes before the first file is read.
    Found(&'a Plan),
    /// A dialogue or a problem was read.
    Read {
        /// Number of bytes read from disk.
        bytes: u64,
        /// Total size of the files in bytes. `None` if unknown.
        total: Option<u64>,
        /// Number of records read before this dialogue or problem, including rejected records.
        records: u64,
    },
    /// A record, or the rest of a file, was rejected.
    Rejected(&'a Reject),
}

/// Counts of the problems found while reading.
#[derive(Debug, Default)]
pub struct Problems {
    /// Number of rejected records and files.
    pub rejected: u64,
    /// Number of files that could not be read to the end.
    pub damaged_files: u64,
}

impl Problems {
    /// Returns an error if at least one file could not be read to its end.
    pub fn into_result(self) -> Result<()> {
        match self.damaged_files {
            0 => Ok(()),
            n => Err(Error::data(format!("{} could not be read to the end", counted(n, "file")))),
        }
    }
}

impl Reader {
    /// Finds the files to read. `paths` are files and folders.
    pub fn plan(&self, paths: &[PathBuf]) -> Result<Plan> {
        // A column map applies only to tables, so it implies the format CSV.
        let format = match (self.format, &self.options.columns) {
            (None, Some(_)) => Some(formats::by_name("csv")?),
            (format, _) => format,
        };
        walk::plan(paths, format)
    }

    /// Reads files and folders. Passes each dialogue to `take`, and progress and problems to `event`. If `take` or
    /// `event` returns an error, reading ends with this error.
    pub fn each_dialogue(
        &self,
        paths: &[PathBuf],
        event: &mut dyn FnMut(ReadEvent<'_>) -> Result<()>,
        take: &mut dyn FnMut(Dialogue) -> Result<()>,
    ) -> Result<Problems> {
        let plan = self.plan(paths)?;
        event(ReadEvent::Found(&plan))?;
        // Use a new counter, so that bytes read by other calls are not counted.
        let options = ReadOptions { bytes_read: Arc::default(), ..self.options.clone() };
        let total = plan.sources.iter().map(|s| s.bytes()).sum::<Option<u64>>().filter(|n| *n > 0);
        let (mut problems, mut records) = (Problems::default(), 0);
        for source in plan.sources {
            for item in source.read(&options)? {
                event(ReadEvent::Read { bytes: options.bytes_read.load(Ordering::Relaxed), total, records })?;
                records += 1;
                let reject = match item {
                    Ok(dialogue) => {
                        take(dialogue)?;
                        continue;
                    }
                    Err(Problem::Record(reject)) => reject,
                    Err(Problem::File(reject)) => {
                        problems.damaged_files += 1;
                        reject
                    }
                };
                problems.rejected += 1;
                event(ReadEvent::Rejected(&reject))?;
                let (rejected, allowed) = (problems.rejected, self.max_rejects);
                if rejected > allowed {
                    let e = Error::TooManyRejects { rejected, allowed, last: reject };
                    let hint =
                        "allow more with TURNWISE_INGEST_MAX_ERRORS=N or the setting ingest.max_errors";
                    return Err(Error::data(e.to_string()).with_hint(hint));
                }
            }
        }
        Ok(problems)
    }
}
