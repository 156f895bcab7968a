//! The formats that corpora come in, one file each behind one trait.
//!
//! A reader streams: it holds one dialogue (or what belongs together, such as the pages of one chat) at a time.
//! A record that cannot be used becomes a [`Problem::Record`] and reading goes on; when the rest of a file cannot be
//! read, the last item is a [`Problem::File`].

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
mod irc_links;
mod irc_log;
mod mdc;
mod messages;
mod metalwoz;
mod multiwoz;
#[cfg(feature = "parquet")]
mod parquet;
mod place;
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

pub use support::ColumnMap;
pub(crate) use support::{json_reason, line_problem};

/// How well a file fits a format, judged by its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// It is something else.
    No,
    /// It belongs to a corpus of this format but holds no dialogues (a schema, an ontology, a list of ids).
    Companion,
    /// It can be read so, but other formats look the same.
    Maybe,
    /// Its keys or columns are those of this format.
    Yes,
}

/// What did not work while reading.
#[derive(Debug)]
pub enum Problem {
    /// One record cannot be used; the next may be fine.
    Record(Reject),
    /// The rest of the file cannot be read: it is truncated, damaged, or not what it seemed. Nothing of that file
    /// follows; where a folder is read as one, its other files may.
    File(Reject),
}

/// The dialogues of one file.
pub type Dialogues = Box<dyn Iterator<Item = Result<Dialogue, Problem>> + Send>;

/// What a caller can say about reading.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Which columns mean what, for CSV and TSV.
    pub columns: Option<ColumnMap>,
    /// The longest record, in bytes; a longer one is rejected without being held in memory.
    pub max_record: usize,
    /// Remove participants' nicks at the start of an utterance (IRC).
    pub strip_nicks: bool,
    /// Counts the bytes read from the disk, for progress.
    pub bytes_read: Arc<AtomicU64>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { columns: None, max_record: 64 << 20, strip_nicks: false, bytes_read: Arc::default() }
    }
}

/// A format: how to tell it and how to read it.
pub trait Format: Send + Sync {
    /// The name for `--from`.
    fn name(&self) -> &'static str;

    /// One line for people: what it is and where such files come from.
    fn about(&self) -> &'static str;

    /// Whether a file is of this format. Must be quick and must not fail.
    fn sniff(&self, probe: &Probe<'_>) -> Fit;

    /// The dialogues of a file. Fails only if it cannot begin, for example because an option is missing.
    fn read(&self, input: Input, options: &ReadOptions) -> Result<Dialogues>;

    /// Whether a folder as a whole is one corpus of this format, so that its files must be read together.
    fn claims_folder(&self, folder: &Path) -> bool {
        let _ = folder;
        false
    }

    /// The dialogues of such a folder.
    fn read_folder(&self, folder: &Path, options: &ReadOptions) -> Result<Dialogues> {
        let _ = options;
        Err(Error::input(format!("{} is a folder; the format {} reads files", folder.display(), self.name())))
    }
}

/// All formats. Where two fit equally well, the earlier one wins.
pub fn all() -> &'static [&'static dyn Format] {
    &[
        &canonical::Canonical,
        #[cfg(feature = "parquet")]
        &parquet::Parquet,
        &messages::Messages,
        &sharegpt::ShareGpt,
        &slack::Slack,
        &whatsapp::WhatsApp,
        &sgd::Sgd,
        &multiwoz::MultiWoz,
        &metalwoz::MetaLWoz,
        &bitod::BiTod,
        &doc2dial::Doc2Dial,
        &convlab3::ConvLab3,
        &crosswoz::CrossWoz,
        &mdc::Mdc,
        &self_dialogue::SelfDialogue,
        &ubuntu_irc::UbuntuIrc,
        &ubuntu_dialogue::UbuntuDialogue,
        &response_tsv::ResponseTsv,
        &dial2vec::Session,
        &dial2vec::Train,
        &dial2vec::Clustering,
        &dialoguecse::Train,
        &dialoguecse::Select,
        &dialoguecse::Sts,
        &csv::Csv,
        &transcript::Transcript,
    ]
}

/// The format of that name.
pub fn by_name(name: &str) -> Result<&'static dyn Format> {
    let found = all().iter().find(|f| f.name() == name);
    found.copied().ok_or_else(|| Error::unknown_name("format", name, all().iter().map(|f| f.name())))
}

/// The format that fits a file best.
pub fn sniff(probe: &Probe<'_>) -> Option<(&'static dyn Format, Fit)> {
    let mut best: Option<(&'static dyn Format, Fit)> = None;
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
    fn names_are_unique_and_every_format_says_what_it_is() {
        let mut names: Vec<_> = all().iter().map(|f| f.name()).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
        assert!(all().iter().all(|f| !f.about().is_empty()));
    }

    #[test]
    fn every_format_is_documented() {
        let page = include_str!("../../../../docs/formats.md");
        for name in all().iter().map(|f| f.name()) {
            // `dialoguecse-train`, `-select`, `-sts` share a row.
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
