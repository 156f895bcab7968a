//! Arguments for reading, cleaning and writing corpora.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::parse_value;
use turnwise_corpus::{
    clean::NormalForm, filter::Filter, formats::ColumnMap, split::Parts, writers::ExportFormat,
};

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ReadArgs {
    /// Input format [default: detected from each file's content]
    ///
    /// `turnwise corpus formats` lists the formats.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) from: Option<String>,
    /// Columns of CSV and TSV files, such as id=session,speaker=from,text=message
    ///
    /// FIELD is id (of the dialogue), thread (of the dialogue), turn (number of the turn), speaker, role, text, time,
    /// intent, acts (dialogue acts), domain, title, or meta.KEY for other metadata. COLUMN is a column's name, or its number from 1. The
    /// field `text` is required.
    #[arg(long, value_name = "FIELD=COLUMN,…", value_parser = parse_value::<ColumnMap>)]
    pub(crate) map: Option<ColumnMap>,
    /// IRC logs: remove nicknames of other participants at the start of a message
    ///
    /// For example, `ann: try again` becomes `try again`.
    #[arg(long)]
    pub(crate) strip_nicks: bool,
    /// Maximum size of one dialogue of the input, in megabytes (1,000,000 bytes) [default: 64]
    ///
    /// Larger dialogues are rejected and counted. The setting `ingest.max_record_mb` changes the default.
    #[arg(long, value_name = "N")]
    pub(crate) max_record_mb: Option<usize>,
}

impl ReadArgs {
    /// Returns the first option for reading files that the user gave, such as `--from`; `None` if the user gave none of
    /// them.
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
    /// Write a list of the rejected records to FILE, as JSON lines
    ///
    /// Rejected records are rows and lines that cannot be read, and dialogues that cannot be stored. Each line of FILE has
    /// the file, the line number and the reason.
    /// Without this option, rejected records are only counted, and the first few are printed as warnings.
    #[arg(long = "rejects", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Stop after more than N rejected records [default: 100]
    ///
    /// The dialogues before that point stay in the index, but the lexical index and the vectors are not updated. With
    /// --engine and --replace, the old collection stays.
    ///
    /// The setting `ingest.max_errors` changes the default.
    #[arg(long, value_name = "N")]
    pub(crate) max_errors: Option<u64>,
}

/// Files of dialogues, and how to read them.
#[derive(Debug, Clone, Args)]
pub(crate) struct InputArgs {
    /// Files and folders to read; `-` is standard input
    ///
    /// Folders are read recursively. Files that end in .gz or .zst are decompressed.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

#[derive(Debug, Args)]
pub(crate) struct IngestArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Name of the corpus that the dialogues come from, for filters [default: from the input format or the file name]
    ///
    /// For example, `--filter corpus=NAME` finds only these dialogues.
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Text to put before the ID of every dialogue
    ///
    /// Use it if dialogues of different sources have the same IDs. With `--id-prefix mail-`, 17 becomes mail-17.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) id_prefix: String,
    /// Language of dialogues that do not declare one (BCP 47: en, zh, pt-BR)
    #[arg(long, value_name = "TAG")]
    pub(crate) language: Option<String>,
    /// Metadata key whose value is the thread of a dialogue [default: thread]
    ///
    /// Dialogues with the same thread belong together, such as all conversations of one customer. KEY is a metadata key of
    /// the dialogue or of its turns, such as a column of a CSV file that is not mapped to a field. The value is stored as
    /// the metadata value `thread`. If no dialogue of the first batch has the key, nothing is ingested.
    ///
    /// Example: turnwise ingest -i chats calls.csv --thread customer_id
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) thread: Option<String>,
    #[command(flatten)]
    pub(crate) rejects: RejectArgs,
    /// Only with --engine: model that encodes the dialogues of a new collection [default: all-MiniLM-L6-v2]
    ///
    /// An existing collection keeps its model, except with --replace. For a local index, `turnwise encode --model` sets
    /// the model.
    #[arg(long, value_name = "NAME|FOLDER")]
    pub(crate) model: Option<String>,
    /// Only with --engine: replace the whole collection
    ///
    /// The new dialogues become visible in one step, when all of them are stored.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Do not compute vectors; `turnwise encode` computes them later
    #[arg(long)]
    pub(crate) no_encode: bool,
    /// Update neither the lexical index nor the vectors
    ///
    /// To catch up later, run `turnwise encode`, which computes the vectors, and then `turnwise index build`, which updates
    /// the lexical index.
    #[arg(long)]
    pub(crate) no_index: bool,
    // These arguments are last, because their heading applies to all options after them.
    #[command(flatten)]
    pub(crate) clean: CleanArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Cleaning")]
pub(crate) struct CleanArgs {
    /// Merge consecutive turns of the same speaker
    ///
    /// Useful for chats in which people send one thought as several messages.
    #[arg(long)]
    pub(crate) merge_turns: bool,
    /// Skip dialogues with fewer than N turns
    ///
    /// Turns are counted after --merge-turns.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) min_turns: usize,
    /// Convert texts to a Unicode normalization form
    #[arg(long = "normalize-text", alias = "normalize", value_enum, value_name = "FORM")]
    pub(crate) normalize: Option<NormalForm>,
    /// Skip dialogues whose turns are the same as those of an earlier dialogue
    ///
    /// The texts and roles are compared, not the IDs. `ingest` also skips a dialogue if the index contains the same
    /// turns under a different ID. --engine does not support --dedupe.
    #[arg(long)]
    pub(crate) dedupe: bool,
    /// Replace email addresses, phone numbers and card numbers with placeholders
    ///
    /// For example, `write to jo@example.com` becomes `write to [EMAIL]`. The summary counts the replacements.
    #[arg(long)]
    pub(crate) redact: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CorpusCommand {
    /// Show statistics of the dialogues in files
    ///
    /// Without PATH, shows the statistics of an index, as `turnwise stats` does.
    Stats {
        /// Files and folders [default: the index given by -i]
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Print dialogues of an index
    Show(ShowArgs),
    /// Export the dialogues of an index to a file
    ///
    /// Example: turnwise corpus export -i chats --to csv -o chats.csv.gz
    Export(WriteArgs),
    /// Convert files from one format to another, without an index
    Convert {
        #[command(flatten)]
        input: InputArgs,
        #[command(flatten)]
        write: WriteArgs,
        #[command(flatten)]
        clean: CleanArgs,
    },
    /// Split files or an index into random parts, such as train, dev and test
    ///
    /// Each dialogue goes as a whole into one part. With the same --parts, the ID of a dialogue and --seed alone
    /// determine the part.
    Split {
        /// Files and folders [default: the index given by -i]
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
        /// Names of the parts and their shares of the dialogues
        ///
        /// The shares must add up to 1.
        #[arg(long, default_value = "train=0.8,dev=0.1,test=0.1", value_name = "NAME=SHARE,…", value_parser = parse_value::<Parts>)]
        parts: Parts,
        /// Output folder; each part becomes one JSONL file
        #[arg(short, long, value_name = "FOLDER")]
        output: PathBuf,
    },
    /// Print the JSON Schema of turnwise's JSONL format
    Schema,
    /// List the supported input formats
    Formats,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// IDs of dialogues or utterances (DIALOGUE#TURN)
    #[arg(required_unless_present = "thread", conflicts_with = "thread", value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Print all dialogues of a thread, in the order of time
    ///
    /// ID is the metadata value `thread` of the dialogues. Dialogues without a time are last, sorted by ID.
    #[arg(long, value_name = "ID")]
    pub(crate) thread: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Output file; `-` is standard output
    ///
    /// Files that end in .gz or .zst are compressed.
    #[arg(short, long, default_value = "-", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value = "jsonl", value_name = "FORMAT")]
    pub(crate) to: ExportFormat,
    /// Only dialogues that match a filter, such as 'domain=banking and turns>=6'
    ///
    /// For the syntax of filters, see the end of `turnwise search --help`.
    #[arg(long, value_name = "EXPRESSION", value_parser = parse_value::<Filter>)]
    pub(crate) filter: Option<Filter>,
}

impl CorpusCommand {
    /// Returns whether the command supports `--engine` or refuses the option with its own message. If false, the caller
    /// refuses the option.
    pub(super) fn handles_engine(&self) -> bool {
        match self {
            CorpusCommand::Stats { paths, .. } => paths.is_empty(),
            CorpusCommand::Show(_) | CorpusCommand::Export(_) => true,
            _ => false,
        }
    }
}
