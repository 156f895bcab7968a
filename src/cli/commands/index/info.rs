//! `turnwise index info`: the parts of an index.

use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use crate::cli::{
    Context,
    commands::{vectors as kept, vectors::Vectors},
    printer::counted,
    progress::ProgressBar,
    signals,
};
use turnwise_core::{
    error::{Error, Result},
    files,
};
use turnwise_corpus::Dialogue;
use turnwise_index::{
    dense::{self, DenseReader},
    lexical::Lexical,
    vectors::{Coverage, Kind, Reached, VectorReader},
};
use turnwise_search::Tuning;
use turnwise_store::{Snapshot, Weight};

mod write;

/// The parts of an index.
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
    bytes: Bytes,
    log: Log,
    lexical: Option<Words>,
    vectors: Option<OfVectors>,
    graphs: Option<Graphs>,
    /// How it is searched unasked, if `search tune` has found something better than what suits most.
    tuning: Option<Tuning>,
    /// What does not know yet, or not any more, what the records hold.
    behind: Vec<Behind>,
}

#[derive(Serialize)]
struct Bytes {
    log: u64,
    tables: u64,
    records: u64,
    lexical: u64,
    vectors: u64,
    graphs: u64,
    /// All files of the index.
    total: u64,
}

#[derive(Serialize)]
struct Log {
    segments: u64,
    #[serde(flatten)]
    weight: Weight,
}

#[derive(Serialize)]
struct Words {
    /// What made its terms, as far as that can be told.
    analyzer: Option<String>,
    usable: bool,
}

#[derive(Serialize)]
struct OfVectors {
    #[serde(flatten)]
    vectors: Vectors,
    /// Vectors of texts that are gone.
    orphans: u64,
    /// Dialogues that came since the vectors were brought up to date.
    not_looked_at: u64,
}

#[derive(Serialize)]
struct Graphs {
    #[serde(flatten)]
    manifest: dense::Manifest,
    /// Whether it is of the vectors and the log that there are now; if not, it is passed over.
    usable: bool,
    /// Dialogues that came since and are looked at one by one.
    tail: u64,
}

#[derive(Serialize)]
struct Behind {
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
    let places = snapshot.places();
    let of = |name: &str| files::folder_bytes(&root.join(name));
    let info = Info {
        schema: "turnwise/index-info/1",
        index: root.display().to_string(),
        generation: snapshot.generation(),
        batch: snapshot.batch(),
        created: snapshot.created().to_string(),
        dialogues: snapshot.totals().dialogues,
        turns: snapshot.totals().turns,
        rejected: snapshot.rejected(),
        bytes: Bytes {
            log: files::folder_bytes(&places.log()),
            tables: files::folder_bytes(&places.tables()),
            records: files::folder_bytes(&places.records()),
            lexical: of("lexical"),
            vectors: of("vectors"),
            graphs: of("graphs"),
            total: files::folder_bytes(&root),
        },
        log: Log { segments: u64::from(snapshot.end().segment), weight },
        lexical,
        vectors,
        graphs,
        tuning,
        behind,
    };
    context.printer.result(&info, |out| info.write(out))
}

/// So many dialogues, and the verb.
fn dialogues(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", counted(n, "dialogue"), if n == 1 { one } else { many })
}

fn weigh(snapshot: &Snapshot, context: &Context<'_>) -> Result<Weight> {
    let total = snapshot.totals().dialogues;
    let mut progress = ProgressBar::new(context.printer, "weighing", "dialogues", Some(total));
    snapshot.weigh(&mut |live| progress.set(live, live))
}

/// The lexical index; that it is damaged or of another version is no reason to show nothing else.
fn words(root: &Path, snapshot: &Snapshot, behind: &mut Vec<Behind>) -> Option<Words> {
    let command = |what: &str| format!("turnwise index {what} -i {}", root.display());
    let mut tell =
        |what: String, how: &str| behind.push(Behind { part: "lexical", what, command: command(how) });
    if !root.join("lexical").is_dir() {
        tell("there is no lexical index".to_owned(), "build");
        return None;
    }
    let opened = Lexical::open(root);
    match &opened {
        Ok(lexical) if lexical.is_current(snapshot) => {}
        Ok(_) => tell("the lexical index is behind the records".to_owned(), "build"),
        Err(e) => tell(format!("the lexical index cannot be used: {e}"), "rebuild"),
    }
    let analyzer = Lexical::analyzer_name(root).ok().flatten();
    Some(Words { analyzer, usable: opened.is_ok() })
}

fn of_vectors(
    reader: &VectorReader,
    snapshot: &Snapshot,
    behind: &mut Vec<Behind>,
    context: &Context<'_>,
) -> Result<OfVectors> {
    let coverage = Coverage::new(reader);
    look_at_all(snapshot, &coverage, context)?;
    let orphan = |kind: Kind| coverage.of(kind).map_or(0, |covered| covered.vectors - covered.live);
    let orphans = Kind::ALL.into_iter().map(orphan).sum();
    let reached = |kind: Kind| reader.manifest().extent(kind).reached.as_ref();
    let from = Kind::ALL.into_iter().filter_map(reached).map(|r| Reached::place_in(Some(r), snapshot)).min();
    let not_looked_at = from.map_or(Ok(0), |from| snapshot.live_since(from))?;
    if not_looked_at > 0 {
        behind.push(Behind {
            part: "vectors",
            what: format!("{} not looked at for vectors yet", dialogues(not_looked_at, "is", "are")),
            command: format!("turnwise encode -i {}", snapshot.root().display()),
        });
    }
    Ok(OfVectors { vectors: Vectors::of(reader, &coverage), orphans, not_looked_at })
}

/// Parses on all cores.
fn look_at_all(snapshot: &Snapshot, coverage: &Coverage<'_>, context: &Context<'_>) -> Result<()> {
    const CHUNK: usize = 4096;
    let total = snapshot.totals().dialogues;
    let mut progress = ProgressBar::new(context.printer, "looking at vectors", "dialogues", Some(total));
    let mut records = snapshot.records();
    let mut done = 0;
    loop {
        let chunk = records.next_chunk(CHUNK)?;
        if chunk.is_empty() {
            return Ok(());
        }
        if signals::stopped() {
            return Err(Error::Interrupted { hint: None });
        }
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

/// What it keeps of having been tuned.
fn tuning(root: &Path, behind: &mut Vec<Behind>) -> Result<Option<Tuning>> {
    match Tuning::read(root) {
        Err(Error::Corrupt { what, .. }) => {
            let command = format!("turnwise search -i {} tune --forget", root.display());
            behind.push(Behind { part: "tuning", what, command });
            Ok(None)
        }
        read => read,
    }
}

/// The generation in use, if there are graphs.
fn graphs(
    root: &Path,
    snapshot: &Snapshot,
    has_vectors: bool,
    behind: &mut Vec<Behind>,
) -> Result<Option<Graphs>> {
    let command = |what: &str| format!("turnwise index {what} -i {}", root.display());
    let mut tell =
        |what: String, how: &str| behind.push(Behind { part: "graphs", what, command: command(how) });
    let manifest = match dense::in_use(root) {
        Ok(Some(manifest)) => manifest,
        Ok(None) => {
            if has_vectors {
                tell("there are vectors and no graphs over them".to_owned(), "build");
            }
            return Ok(None);
        }
        Err(Error::Corrupt { path, what, .. }) => {
            tell(format!("the graphs are damaged: {}: {what}", path.display()), "rebuild");
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    let reader = if has_vectors { DenseReader::open(root, snapshot)? } else { None };
    let usable = reader.as_ref().is_some_and(|reader| reader.manifest().is_some());
    let tail = reader.as_ref().map_or(0, |reader| reader.tail() as u64);
    match (usable, tail) {
        (false, _) => {
            tell("the graphs are of other vectors or another log than there are now".to_owned(), "build")
        }
        (true, 0) => {}
        (true, n) => tell(dialogues(n, "came", "came") + " after the graphs", "build"),
    }
    Ok(Some(Graphs { manifest, usable, tail }))
}
