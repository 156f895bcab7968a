//! `turnwise index info`: describes the records, the lexical index, the vectors and the graphs of an index.

use rayon::prelude::*;

use crate::cli::{
    commands::{search, vectors as kept, vectors::Vectors},
    prelude::*,
};
use turnwise_core::files;
use turnwise_corpus::Dialogue;
use turnwise_index::{
    dense::{self, DenseReader},
    lexical::{Lexical, detect_analyzer},
    vectors::{Coverage, Kind, Reached, VectorReader},
};
use turnwise_search::Tuning;
use turnwise_store::{LogUsage, Snapshot};
use turnwise_text::Analyzer;

/// Result of `turnwise index info`, printed as text or JSON.
#[derive(Serialize)]
struct Info {
    schema: &'static str,
    index: String,
    generation: u64,
    batch: u64,
    created: String,
    dialogues: u64,
    turns: u64,
    rejected: u64,
    bytes: IndexBytes,
    log: Log,
    lexical: Option<Words>,
    vectors: Option<OfVectors>,
    graphs: Option<Graphs>,
    /// Weights of lexical and dense search saved by `search tune`; `None` if there are none.
    tuning: Option<Tuning>,
    /// Parts that are missing, damaged or not up to date with the records.
    behind: Vec<Outdated>,
}

/// Size in bytes of each part of an index, and of all its files (`total`).
#[derive(Serialize)]
pub(in crate::cli::commands) struct IndexBytes {
    pub(in crate::cli::commands) log: u64,
    pub(in crate::cli::commands) tables: u64,
    pub(in crate::cli::commands) records: u64,
    pub(in crate::cli::commands) lexical: u64,
    pub(in crate::cli::commands) vectors: u64,
    graphs: u64,
    pub(in crate::cli::commands) total: u64,
}

impl IndexBytes {
    pub(in crate::cli::commands) fn of(snapshot: &Snapshot) -> Self {
        let (root, paths) = (snapshot.root(), snapshot.paths());
        let part = |name: &str| files::folder_bytes(&root.join(name));
        IndexBytes {
            log: files::folder_bytes(&paths.log()),
            tables: files::folder_bytes(&paths.tables()),
            records: files::folder_bytes(&paths.records()),
            lexical: part("lexical"),
            vectors: part("vectors"),
            graphs: part("graphs"),
            total: files::folder_bytes(root),
        }
    }
}

/// Size of the log of records: the number of its files, and the amount of deleted or replaced data.
#[derive(Serialize)]
struct Log {
    segments: u64,
    #[serde(flatten)]
    weight: LogUsage,
}

/// State of the lexical index.
#[derive(Serialize)]
struct Words {
    /// Name of the analyzer; `None` if it cannot be read.
    analyzer: Option<String>,
    /// The analyzer in words, for users.
    #[serde(skip)]
    analyzer_description: Option<String>,
    usable: bool,
}

#[derive(Serialize)]
struct OfVectors {
    #[serde(flatten)]
    vectors: Vectors,
    /// Number of vectors of deleted or replaced texts.
    orphans: u64,
    /// Number of dialogues added since the last run of `turnwise encode`.
    not_looked_at: u64,
}

#[derive(Serialize)]
struct Graphs {
    #[serde(flatten)]
    manifest: dense::Manifest,
    /// Whether the graphs match the current vectors and log. Searches ignore graphs that do not match.
    usable: bool,
    /// Number of dialogues added after the graphs were built. Searches compare their vectors one by one.
    tail: u64,
}

/// A part of the index that is missing, damaged or out of date, with the command that updates it.
#[derive(Serialize)]
struct Outdated {
    part: &'static str,
    what: String,
    command: String,
}

pub(in crate::cli::commands) fn run(context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let snapshot = Snapshot::open(&root)?;
    let mut behind = Vec::new();
    let weight = weigh(&snapshot, context)?;
    let lexical = words(&root, &snapshot, &mut behind);
    let reader = kept::reader(&root, context)?;
    let vectors = match &reader {
        Some(reader) => Some(of_vectors(reader, &snapshot, &mut behind, context)?),
        None => None,
    };
    let graphs = graphs(&root, &snapshot, reader.is_some(), &mut behind)?;
    let tuning = tuning(&root, &mut behind)?;
    let info = Info {
        schema: "turnwise/index-info/1",
        index: root.display().to_string(),
        generation: snapshot.generation(),
        batch: snapshot.batch(),
        created: snapshot.created().to_string(),
        dialogues: snapshot.totals().dialogues,
        turns: snapshot.totals().turns,
        rejected: snapshot.rejected(),
        bytes: IndexBytes::of(&snapshot),
        log: Log { segments: u64::from(snapshot.end().segment), weight },
        lexical,
        vectors,
        graphs,
        tuning,
        behind,
    };
    context.printer.result(&info, |out| info.write(out))
}

fn weigh(snapshot: &Snapshot, context: &Context<'_>) -> Result<LogUsage> {
    let total = snapshot.totals().dialogues;
    let mut progress = ProgressBar::new(context.printer, "weighing", "dialogues", Some(total));
    snapshot.log_usage(&mut |live| progress.set(live, live))
}

/// Describes the lexical index; returns `None` if there is none. Adds an entry to `outdated` if the lexical index is
/// missing, old or unusable.
fn words(root: &Path, snapshot: &Snapshot, outdated: &mut Vec<Outdated>) -> Option<Words> {
    let command = |what: &str| format!("turnwise index {what} -i {}", root.display());
    let mut report =
        |what: String, how: &str| outdated.push(Outdated { part: "lexical", what, command: command(how) });
    if !root.join("lexical").is_dir() {
        report("there is no lexical index".to_owned(), "build");
        return None;
    }
    let opened = Lexical::open(root);
    match &opened {
        Ok(lexical) if lexical.is_current(snapshot) => {}
        Ok(_) => report("the lexical index is out of date".to_owned(), "build"),
        Err(e) => report(format!("the lexical index cannot be used: {e}"), "rebuild"),
    }
    if opened.as_ref().is_ok_and(|lexical| lexical.lacks_titles().unwrap_or(false)) {
        report("the titles of dialogues cannot be searched yet".to_owned(), "build");
    }
    let words = Words {
        analyzer: Lexical::analyzer_name(root).ok().flatten(),
        analyzer_description: Lexical::analyzer_description(root).ok().flatten(),
        usable: opened.is_ok(),
    };
    if let Some(language) = language_to_stem(&words, snapshot) {
        let what = format!("the dialogues are in {language}, but words are not stemmed");
        report(what, "build --analyzer auto");
    }
    Some(words)
}

/// Returns the language of the dialogues if a lexical index without stemming could stem it. An index from before the
/// detection of languages is such an index.
fn language_to_stem(words: &Words, snapshot: &Snapshot) -> Option<&'static str> {
    let name = words.analyzer.as_ref().filter(|_| words.usable)?;
    // The description of a detected analyzer says so.
    if words.analyzer_description.as_ref() != Some(name)
        || name.parse::<Analyzer>().ok()?.language().is_some()
    {
        return None;
    }
    detect_analyzer(snapshot).ok()?.language()
}

fn of_vectors(
    reader: &VectorReader,
    snapshot: &Snapshot,
    outdated: &mut Vec<Outdated>,
    context: &Context<'_>,
) -> Result<OfVectors> {
    let coverage = Coverage::new(reader);
    check_all(snapshot, &coverage, context)?;
    let orphan = |kind: Kind| coverage.of(kind).map_or(0, |covered| covered.vectors - covered.live);
    let orphans = Kind::ALL.into_iter().map(orphan).sum();
    let reached = |kind: Kind| reader.manifest().extent(kind).reached.as_ref();
    let from =
        Kind::ALL.into_iter().filter_map(reached).map(|r| Reached::position_in(Some(r), snapshot)).min();
    let not_looked_at = from.map_or(Ok(0), |from| snapshot.count_live_since(from))?;
    if not_looked_at > 0 {
        outdated.push(Outdated {
            part: "vectors",
            what: counted_with(not_looked_at, "dialogue", ["is", "are"]) + " not encoded yet",
            command: format!("turnwise encode -i {}", snapshot.root().display()),
        });
    }
    Ok(OfVectors { vectors: Vectors::of(reader, &coverage), orphans, not_looked_at })
}

/// Adds all dialogues of the index to `coverage`, on all cores. `coverage` counts the dialogues and utterances that
/// have vectors.
fn check_all(snapshot: &Snapshot, coverage: &Coverage<'_>, context: &Context<'_>) -> Result<()> {
    const CHUNK: usize = 4096;
    let total = snapshot.totals().dialogues;
    let mut progress = ProgressBar::new(context.printer, "checking vectors", "dialogues", Some(total));
    let mut records = snapshot.records();
    let mut done = 0;
    loop {
        let chunk = records.next_chunk(CHUNK)?;
        if chunk.is_empty() {
            return Ok(());
        }
        signals::check()?;
        done += chunk.len() as u64;
        chunk.par_iter().try_for_each(|json| {
            let dialogue: Dialogue = serde_json::from_slice(json)
                .map_err(|e| Error::corrupt(snapshot.root(), format!("a record is unreadable: {e}")))?;
            coverage.add(&dialogue);
            Ok::<_, Error>(())
        })?;
        progress.set(done, done);
    }
}

/// Reads the search weights saved by `search tune`. If the weights are damaged, adds an entry to `outdated`.
fn tuning(root: &Path, outdated: &mut Vec<Outdated>) -> Result<Option<Tuning>> {
    match Tuning::read(root) {
        Err(Error::Corrupt { what, .. }) => {
            let command = format!("turnwise search -i {} tune --reset", root.display());
            outdated.push(Outdated { part: "tuning", what, command });
            Ok(None)
        }
        read => read,
    }
}

/// Describes the vector graphs; returns `None` if there are none. Adds an entry to `outdated` if the graphs are
/// missing, damaged or old.
fn graphs(
    root: &Path,
    snapshot: &Snapshot,
    has_vectors: bool,
    outdated: &mut Vec<Outdated>,
) -> Result<Option<Graphs>> {
    let command = |what: &str| format!("turnwise index {what} -i {}", root.display());
    let mut report =
        |what: String, how: &str| outdated.push(Outdated { part: "graphs", what, command: command(how) });
    let manifest = match dense::in_use(root) {
        Ok(Some(manifest)) => manifest,
        Ok(None) => {
            if has_vectors {
                report("there are vectors but no graphs".to_owned(), "build");
            }
            return Ok(None);
        }
        Err(Error::Corrupt { path, what, .. }) => {
            report(format!("the graphs are damaged: {}: {what}", path.display()), "rebuild");
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    let reader = if has_vectors { DenseReader::open(root, snapshot)? } else { None };
    let usable = reader.as_ref().is_some_and(|reader| reader.manifest().is_some());
    let tail = reader.as_ref().map_or(0, |reader| reader.tail() as u64);
    match (usable, tail) {
        (false, _) => report("the graphs belong to different vectors or a different log".to_owned(), "build"),
        (true, 0) => {}
        (true, n) => {
            let added = counted_with(n, "dialogue", ["was", "were"]);
            report(format!("{added} added after the graphs were built"), "build");
        }
    }
    Ok(Some(Graphs { manifest, usable, tail }))
}

impl Info {
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Info { index, generation, created, bytes: b, .. } = self;
        writeln!(out, "{BOLD}{index}{BOLD:#}  generation {generation}, created {created}")?;
        writeln!(out, "  {:>12}  {}", bytes(b.total), totals(self.dialogues, self.turns))?;
        let mut part = |n: u64, name: &str, more: &str| match (n, more) {
            (0, "") => Ok(()),
            (n, "") => writeln!(out, "  {:>12}  {name}", bytes(n)),
            _ => writeln!(out, "  {:>12}  {name:<9}{DIM}{more}{DIM:#}", bytes(n)),
        };
        part(b.log, "log", &self.of_log())?;
        part(b.tables, "tables", "")?;
        part(b.records, "records", "")?;
        let analyzer = self.lexical.as_ref().and_then(|lexical| lexical.analyzer_description.as_ref());
        part(b.lexical, "lexical", &analyzer.map_or_else(String::new, |by| format!("analyzer {by}")))?;
        part(b.vectors, "vectors", "")?;
        part(b.graphs, "graphs", &self.graphs.as_ref().map_or_else(String::new, Graphs::words))?;
        if let Some(of) = &self.vectors {
            of.vectors.write(out)?;
            writeln!(out, "  {:>12}  {DIM}{}{DIM:#}", "fingerprint", of.vectors.fingerprint())?;
        }
        if let Some(tuning) = &self.tuning {
            let flags = search::weights(&tuning.fusion);
            let queries = grouped(tuning.queries as u64);
            writeln!(out, "  {:>12}  {flags} {DIM}by {queries} queries{DIM:#}", "tuned")?;
        }
        for Outdated { part, what, command } in &self.behind {
            writeln!(out, "  {BOLD}{part}{BOLD:#}: {what} {DIM}(`{command}`){DIM:#}")?;
        }
        Ok(())
    }

    fn of_log(&self) -> String {
        let weight = &self.log.weight;
        let segments = counted(self.log.segments, "segment");
        match weight.dead_frames {
            0 => segments,
            n => format!(
                "{segments}; {} of {} deleted or replaced (`turnwise index compact -i {}` frees their space)",
                bytes(weight.dead_bytes),
                counted(n, "record"),
                self.index
            ),
        }
    }
}

impl Graphs {
    fn words(&self) -> String {
        let mut words = format!("by {}", self.manifest.builder);
        for kind in Kind::ALL {
            let part = self.manifest.part(kind);
            let (name, nodes) = (kind.name(), grouped(part.nodes));
            words.push_str(&format!("; {name}: {nodes} nodes"));
            if part.recall_queries > 0 {
                words.push_str(&format!(", recall@10 {:.1}%", 100.0 * part.recall));
            }
        }
        words
    }
}
