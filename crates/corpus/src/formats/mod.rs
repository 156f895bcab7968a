//! Corpus formats. Each format is a static [`Format`] in the module with its reader.
//!
//! A reader keeps in memory only one dialogue or a small part of the corpus, such as one log file.
//! An invalid record becomes a [`Problem::Record`], and reading continues. If the rest of a file cannot be read, the
//! last item of that file is a [`Problem::File`].

mod bitod;
mod canonical;
mod chat_json;
mod chat_text;
mod convlab3;
mod crosswoz;
mod csv;
mod dial2vec;
mod dialoguecse;
mod doc2dial;
mod irc_log;
mod locomo;
mod mdc;
mod messages;
mod metalwoz;
mod multiwoz;
#[cfg(feature = "parquet")]
mod parquet;
mod response_tsv;
mod self_dialogue;
mod sgd;
mod sharegpt;
mod slack;
mod support;
mod tables;
mod task_oriented;
mod transcript;
mod ubuntu_dialogue;
mod ubuntu_irc;
mod whatsapp;

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

use crate::{
    Dialogue,
    input::{Input, Probe},
};
use turnwise_core::error::{Error, Reject, Result};

pub use csv::ColumnMap;
pub use locomo::{LocomoQuestion, locomo_questions};
pub(crate) use support::{RecordError, line_problem};

/// The types and helpers that most formats use.
mod prelude {
    pub(super) use super::{
        Dialogues, Fit, Folder, Format, Problem, ReadOptions,
        support::{self, PathInfo, RecordError},
        tables::{self, TurnRows},
        task_oriented::{
            FramedTurn, act_names, add_framed_turns, any_element, any_json_line, is_framed, is_schema,
            position, push_unique, record, role_of, split_of,
        },
    };
    pub(super) use crate::{
        Dialogue, Metadata, Role, Time, Turn,
        input::{Input, Probe},
        json_elements::{Element, ElementError, Elements},
        lines::{Line, LineError, Lines},
        rows::{Dialect, Row, RowError, Rows},
    };
    pub(super) use turnwise_core::{
        error::{Error, IoContext, Reject, Result},
        ids::{DialogueId, TurnNo},
    };
}

/// How well a file matches a format, judged by the beginning of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The file is not in this format.
    No,
    /// The file belongs to a corpus in this format but contains no dialogues. An example is a list of ids.
    Companion,
    /// The file can be read in this format, but it could also be in a different format.
    Maybe,
    /// The file has the keys or columns of this format.
    Yes,
}

/// Problem found while reading a corpus.
#[derive(Debug)]
pub enum Problem {
    /// One record is invalid. Reading continues.
    Record(Reject),
    /// The rest of a file cannot be read, because the file is truncated, damaged or in a different format. No more
    /// dialogues of this file follow. Dialogues from other files of the same folder can follow.
    File(Reject),
}

/// Iterator over the dialogues of one file or folder.
pub type Dialogues = Box<dyn Iterator<Item = Result<Dialogue, Problem>> + Send>;

/// Options for reading files and folders.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Mapping from fields to columns for CSV and TSV files. If `None`, the columns are found by their names.
    pub columns: Option<ColumnMap>,
    /// Maximum length of a record in bytes. A longer record is rejected, and only its beginning is held in memory.
    pub max_record: usize,
    /// Whether to remove the names of other speakers from the start of a turn. Used by the format `ubuntu-irc`.
    pub strip_nicks: bool,
    /// Counter of the bytes read from disk, for progress reports.
    pub bytes_read: Arc<AtomicU64>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { columns: None, max_record: 64 << 20, strip_nicks: false, bytes_read: Arc::default() }
    }
}

/// Corpus format, with functions that detect and read files in this format.
pub struct Format {
    /// Name of the format for `--from`.
    pub name: &'static str,
    /// Description of the format in one line.
    pub about: &'static str,
    sniff: fn(&Probe<'_>) -> Fit,
    read: fn(Input, &ReadOptions) -> Result<Dialogues>,
}

/// Functions of a format that reads folders. All files of a folder are read together.
struct Folder {
    claims: fn(&Path) -> bool,
    read: fn(&Path, &ReadOptions) -> Result<Dialogues>,
}

impl Format {
    /// Returns how well a file matches this format, judged by the beginning of the file.
    pub fn sniff(&self, probe: &Probe<'_>) -> Fit {
        (self.sniff)(probe)
    }

    /// Reads the dialogues of a file. Returns an error only if reading cannot start, for example because the file has
    /// no header.
    pub fn read(&self, input: Input, options: &ReadOptions) -> Result<Dialogues> {
        (self.read)(input, options)
    }

    /// Returns the functions that read folders. Returns `None` if the format reads only files.
    fn folder(&self) -> Option<&'static Folder> {
        (self.name == slack::FORMAT.name).then_some(&slack::FOLDER)
    }

    /// Returns whether a folder is one corpus in this format. The files of such a folder are read together.
    pub fn claims_folder(&self, folder: &Path) -> bool {
        self.folder().is_some_and(|functions| (functions.claims)(folder))
    }

    /// Reads the dialogues of a folder that is one corpus. Returns an error if the format reads only files.
    pub fn read_folder(&self, folder: &Path, options: &ReadOptions) -> Result<Dialogues> {
        match self.folder() {
            Some(functions) => (functions.read)(folder, options),
            None => {
                let (folder, format) = (folder.display(), self.name);
                Err(Error::input(format!("{folder} is a folder, but the format {format} reads files")))
            }
        }
    }
}

/// Returns all formats. If two formats match a file equally well, [`sniff`] returns the first of them.
pub fn all() -> &'static [&'static Format] {
    static ALL: &[&Format] = &[
        &canonical::FORMAT,
        #[cfg(feature = "parquet")]
        &parquet::FORMAT,
        &messages::FORMAT,
        &sharegpt::FORMAT,
        &slack::FORMAT,
        &whatsapp::FORMAT,
        &sgd::FORMAT,
        &multiwoz::FORMAT,
        &metalwoz::FORMAT,
        &bitod::FORMAT,
        &doc2dial::FORMAT,
        &convlab3::FORMAT,
        &crosswoz::FORMAT,
        &locomo::FORMAT,
        &mdc::FORMAT,
        &self_dialogue::FORMAT,
        &ubuntu_irc::FORMAT,
        &ubuntu_dialogue::FORMAT,
        &response_tsv::FORMAT,
        &dial2vec::SESSION,
        &dial2vec::TRAIN,
        &dial2vec::CLUSTERING,
        &dialoguecse::TRAIN,
        &dialoguecse::SELECT,
        &dialoguecse::STS,
        &csv::FORMAT,
        &transcript::FORMAT,
    ];
    ALL
}

/// Returns the format with the given name. The error for an unknown name suggests a similar name.
pub fn by_name(name: &str) -> Result<&'static Format> {
    let found = all().iter().find(|format| format.name == name);
    found.copied().ok_or_else(|| Error::unknown_name("format", name, all().iter().map(|format| format.name)))
}

/// Returns the format that matches a file best, and how well it matches. Returns `None` if no format matches.
pub fn sniff(probe: &Probe<'_>) -> Option<(&'static Format, Fit)> {
    let mut best: Option<(&'static Format, Fit)> = None;
    for &format in all() {
        let fit = format.sniff(probe);
        if fit > best.map_or(Fit::No, |(_, fit)| fit) {
            best = Some((format, fit));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_format_has_a_description() {
        let mut names: Vec<_> = all().iter().map(|f| f.name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
        assert!(all().iter().all(|f| !f.about.is_empty()));
    }

    #[test]
    fn every_format_is_documented() {
        let page = include_str!("../../../../docs/formats.md");
        for name in all().iter().map(|f| f.name) {
            // `dialoguecse-train`, `dialoguecse-select` and `dialoguecse-sts` share a row of the page.
            let short = name.split_once('-').map(|(_, rest)| format!("`-{rest}`"));
            assert!(
                page.contains(&format!("`{name}`")) || short.is_some_and(|s| page.contains(&s)),
                "{name}"
            );
        }
    }

    #[test]
    fn an_unknown_format_gets_a_suggestion() {
        let e = by_name("jsonnl").err().unwrap();
        assert_eq!(e.hint().as_deref(), Some("did you mean `jsonl`?"));
    }
}
