//! Reading, cleaning and writing corpora.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::parsed;
use turnwise_corpus::{clean::Form, filter::Filter, formats::ColumnMap, split::Parts, writers::Target};

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ReadArgs {
    /// The format; told by the beginning of each file if not given (`corpus formats` lists them)
    #[arg(long, value_name = "FORMAT")]
    pub(crate) from: Option<String>,
    /// For CSV and TSV: which column is what, such as id=session,speaker=from,text=message
    #[arg(long, value_name = "FIELD=COLUMN,…", value_parser = parsed::<ColumnMap>)]
    pub(crate) map: Option<ColumnMap>,
    /// Remove participants' nicks at the start of utterances (IRC)
    #[arg(long)]
    pub(crate) strip_nicks: bool,
    /// The longest record, in megabytes
    #[arg(long, value_name = "N")]
    pub(crate) max_record_mb: Option<usize>,
}

impl ReadArgs {
    /// An option that was given and tells how files are read, if any was.
    pub(crate) fn given_for_files(&self) -> Option<&'static str> {
        let given = [(self.from.is_some(), "--from"), (self.map.is_some(), "--map")];
        given.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }

    /// An option that was given, if any was.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.from.is_some(), "--from"),
            (self.map.is_some(), "--map"),
            (self.strip_nicks, "--strip-nicks"),
            (self.max_record_mb.is_some(), "--max-record-mb"),
        ];
        given.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }
}

#[derive(Debug, Args)]
pub(crate) struct RejectArgs {
    /// List rejected records in this file, as JSON lines
    #[arg(long = "rejects", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Stop when more records than this are rejected
    #[arg(long, value_name = "N")]
    pub(crate) max_errors: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct IngestArgs {
    /// Files and folders (walked); `-` is standard input; .gz and .zst are unpacked on the way
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// Name the corpus these dialogues come from
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Put this in front of every dialogue's id
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) id_prefix: String,
    /// The language of dialogues that name none (BCP 47: en, zh, pt-BR)
    #[arg(long, value_name = "TAG")]
    pub(crate) language: Option<String>,
    #[command(flatten)]
    pub(crate) rejects: RejectArgs,
    /// With --engine: the model that makes the vectors of a name that is new there
    #[arg(long, value_name = "NAME|FOLDER")]
    pub(crate) model: Option<String>,
    /// With --engine: put what is read in the place of all that is there, in one step once it is complete
    #[arg(long)]
    pub(crate) replace: bool,
    /// Give what came no vectors; `encode` does that later
    #[arg(long)]
    pub(crate) no_encode: bool,
    /// Leave the search index as it is, and give what came no vectors
    #[arg(long)]
    pub(crate) no_index: bool,
    // Last, because its heading holds for whatever follows.
    #[command(flatten)]
    pub(crate) clean: CleanArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Cleaning")]
pub(crate) struct CleanArgs {
    /// Make consecutive turns of a speaker one turn
    #[arg(long)]
    pub(crate) merge_turns: bool,
    /// Leave out dialogues with fewer turns
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) min_turns: usize,
    /// Bring texts into a Unicode normal form
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) normalize: Option<FormArg>,
    /// Leave out dialogues with the same turns as another
    #[arg(long)]
    pub(crate) dedupe: bool,
    /// Replace e-mail addresses, phone numbers and card numbers by placeholders
    #[arg(long)]
    pub(crate) redact: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FormArg {
    /// Composed
    Nfc,
    /// Composed, and width and ligatures unified
    Nfkc,
}

impl From<FormArg> for Form {
    fn from(form: FormArg) -> Self {
        match form {
            FormArg::Nfc => Form::Nfc,
            FormArg::Nfkc => Form::Nfkc,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum CorpusCommand {
    /// Count what files, or an index, hold
    Stats {
        /// Files and folders; without any, the index is counted
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Show dialogues of an index
    Show {
        /// Dialogue ids, or utterance ids (DIALOGUE#TURN)
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Write the dialogues of an index
    Export(WriteArgs),
    /// Turn files of any format into another, without an index
    Convert {
        /// Files and folders; `-` is standard input
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
        #[command(flatten)]
        write: WriteArgs,
        #[command(flatten)]
        clean: CleanArgs,
    },
    /// Split files, or an index, into parts by a seeded draw on each dialogue's id
    Split {
        /// Files and folders; without any, the index is split
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
        /// The parts and their shares
        #[arg(long, default_value = "train=0.8,dev=0.1,test=0.1", value_name = "NAME=SHARE,…", value_parser = parsed::<Parts>)]
        parts: Parts,
        /// The folder for one JSONL file a part
        #[arg(short, long, value_name = "FOLDER")]
        output: PathBuf,
    },
    /// Print the JSON Schema of turnwise's own format
    Schema,
    /// List the formats that can be read
    Formats,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// The file; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// The format to write
    #[arg(long, value_enum, default_value = "jsonl", value_name = "FORMAT")]
    pub(crate) to: TargetArg,
    /// Only dialogues that fit, such as 'domain=banking and turns>=6'
    #[arg(long, value_name = "EXPRESSION", value_parser = parsed::<Filter>)]
    pub(crate) filter: Option<Filter>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TargetArg {
    /// turnwise's own: one dialogue a line
    Jsonl,
    /// One turn a row
    Csv,
    /// Chat-completion messages, one dialogue a line
    Messages,
    /// Speaker: text
    Transcript,
}

impl From<TargetArg> for Target {
    fn from(target: TargetArg) -> Self {
        match target {
            TargetArg::Jsonl => Target::Jsonl,
            TargetArg::Csv => Target::Csv,
            TargetArg::Messages => Target::Messages,
            TargetArg::Transcript => Target::Transcript,
        }
    }
}

impl CorpusCommand {
    /// Whether it is for an index, or for what stands in its place.
    pub(super) fn heeds_engine(&self) -> bool {
        match self {
            CorpusCommand::Stats { paths, .. } => paths.is_empty(),
            CorpusCommand::Show { .. } | CorpusCommand::Export(_) => true,
            _ => false,
        }
    }
}
