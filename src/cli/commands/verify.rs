//! `turnwise verify` finds damage in an index; `turnwise repair` repairs it.

use crate::cli::{
    commands::{index, vectors as kept},
    prelude::*,
    progress::StepProgress,
};
use turnwise_core::files;
use turnwise_index::{
    dense::{self, GraphRecall},
    lexical::Lexical,
    vectors::{self, VectorCheck},
};
use turnwise_search::Tuning;
use turnwise_store::{
    Snapshot, repair as store_repair, verify as check,
    verify::{Damage, RecordsChecked, Report},
};

/// Tolerated decrease of a graph's recall since the graph was built, as a fraction of 1. The rounding of scores depends
/// on the processor and can change the recall slightly.
const RECALL_TOLERANCE: f64 = 0.005;

/// Result of `turnwise verify`, printed as text or JSON.
#[derive(Serialize)]
struct Verified {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    vectors: Option<VectorCheck>,
    /// Recall of the graphs; empty if they are damaged or missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    graphs: Vec<GraphRecall>,
}

pub(super) fn verify(recall: bool, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    // An error is not reported here, because the verification below reports it.
    let total = Snapshot::open(&root).ok().map(|snapshot| files::folder_bytes(&snapshot.paths().log()));
    let mut progress = ProgressBar::new(context.printer, "verifying", "bytes", total);
    let mut read = 0;
    let mut report = check::verify(&root, context.command_line, &mut |bytes| {
        read += bytes;
        progress.set(read, read);
    })?;
    drop(progress);
    report.damage.extend(search_damage(&root)?);
    let of_graphs = graph_damage(&root)?;
    let graphs = match of_graphs {
        None => dense::recall(&root, recall, &StepProgress::new(context.printer))?,
        Some(_) => Vec::new(),
    };
    report.damage.extend(of_graphs);
    report.damage.extend(tuning_damage(&root)?);
    let mut checked = vectors::check(&root)?;
    if let Some(checked) = &mut checked {
        report.damage.append(&mut checked.damage);
    }
    let verified = Verified { report, vectors: checked, graphs };
    let report = &verified.report;
    context.printer.result(&verified, |out| {
        let (frames, segments) =
            (counted(report.frames, "frame"), counted(report.segments as u64, "segment"));
        writeln!(out, "  log      {frames} in {segments}, {}", bytes(report.bytes))?;
        writeln!(out, "  tables   {}", report.tables)?;
        match &report.records {
            RecordsChecked::Compared(n) => writeln!(out, "  records  {} compared with the log", grouped(*n))?,
            RecordsChecked::InUse(who) => writeln!(out, "  records  not compared: in use by {who}")?,
            RecordsChecked::Behind { at, of } => {
                writeln!(out, "  records  at batch {at} of {of}; the next write updates them")?;
            }
            RecordsChecked::BeingMade => {
                writeln!(
                    out,
                    "  records  a rebuild from the log was interrupted; the next write completes it"
                )?;
            }
            RecordsChecked::NotReached => {
                writeln!(out, "  records  not compared, because the log is damaged")?
            }
        }
        if let Some(vectors) = &verified.vectors {
            let (utterances, dialogues) = (grouped(vectors.utterances), grouped(vectors.dialogues));
            writeln!(out, "  vectors  {utterances} of utterances, {dialogues} of dialogues")?;
        }
        for (n, graph) in verified.graphs.iter().enumerate() {
            let name = if n == 0 { "graphs " } else { "" };
            let found = |part: f64| format!("{:.1}%", 100.0 * part);
            let now = graph.now.map(|now| format!(", now {}", found(now))).unwrap_or_default();
            let (of, nodes, built) = (graph.of, counted(graph.nodes, "node"), found(graph.when_built));
            writeln!(out, "  {name:7}  {of}: {nodes}, recall@10 {built} when built{now}")?;
        }
        for damage in &report.damage {
            writeln!(out, "  damage   {}: {}", damage.path.display(), damage.what)?;
        }
        if report.damage.is_empty() {
            writeln!(out, "{} is sound: {}", root.display(), totals(report.dialogues, report.turns))?;
        }
        Ok(())
    })?;
    let fallen =
        verified.graphs.iter().find(|g| g.now.is_some_and(|now| now < g.when_built - RECALL_TOLERANCE));
    match report.damage.len() as u64 {
        0 if fallen.is_some() => Err(Error::Assertion(format!(
            "the recall of the {} graph is lower than when it was built; `turnwise index rebuild` builds it again",
            fallen.map_or("", |graph| graph.of)
        ))),
        0 => Ok(()),
        n => Err(Error::corrupt(&root, format!("{} found", counted(n, "damaged place"))).with_hint(
            "`turnwise repair` repairs what can be repaired; copy the folder first if the data matter",
        )),
    }
}

/// Returns all damage of the lexical index.
fn search_damage(root: &Path) -> Result<Vec<Damage>> {
    let folder = root.join("lexical");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let what = |why: String| format!("{why}; `turnwise repair` rebuilds the lexical index");
    match Lexical::open(root).and_then(|lexical| lexical.damaged_files()) {
        Ok(files) => {
            let damage = |path| Damage { path, what: what("the checksum is wrong".to_owned()) };
            Ok(files.into_iter().map(damage).collect())
        }
        Err(Error::Corrupt { path, what: why, .. }) => Ok(vec![Damage { path, what: what(why) }]),
        // A lexical index that is unfinished or from a different version is not damaged.
        Err(Error::Input { .. } | Error::Unavailable { .. }) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Returns the damage of the search weights saved by `search tune`; `None` if there is none.
fn tuning_damage(root: &Path) -> Result<Option<Damage>> {
    damage_of(Tuning::read(root).map(drop), "removes it")
}

/// Returns the damage of the vector graphs; `None` if there is none.
fn graph_damage(root: &Path) -> Result<Option<Damage>> {
    damage_of(dense::verify(root), "rebuilds the graphs")
}

/// Converts an error that reports damage to a `Damage`; returns any other error. `repair` describes what `turnwise
/// repair` does about the damage.
fn damage_of(checked: Result<()>, repair: &str) -> Result<Option<Damage>> {
    match checked {
        Ok(()) => Ok(None),
        Err(Error::Corrupt { path, what, .. }) => {
            Ok(Some(Damage { path, what: format!("{what}; `turnwise repair` {repair}") }))
        }
        Err(e) => Err(e),
    }
}

pub(super) fn repair(context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let repaired = store_repair::repair(&root, context.command_line)?;
    kept::repair_vectors(&root, context)?;
    if tuning_damage(&root)?.is_some() {
        context.printer.warn(
            "the tuned search settings were unreadable and were removed; the index uses the defaults again",
        );
        Tuning::forget(&root)?;
    }
    index::repair(&root, context)?;
    context.printer.result(&repaired, |out| {
        for place in &repaired.damaged_places {
            writeln!(out, "  damaged   {place}")?;
        }
        if !repaired.damaged_places.is_empty() {
            writeln!(out, "  recovered {} from the second copy", counted(repaired.recovered, "record"))?;
        }
        if repaired.missing > 0 {
            let missing = counted(repaired.missing, "log entry");
            writeln!(out, "  missing   {missing}: deletions, replaced records, or lost records")?;
        }
        if let Some(kept) = &repaired.kept {
            let kept = kept.display();
            writeln!(out, "  kept      the damaged log is in {kept}; remove it when you no longer need it")?;
        }
        writeln!(out, "{} is rebuilt: {}", root.display(), totals(repaired.dialogues, repaired.turns))
    })
}
