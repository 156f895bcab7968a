//! Shared code for commands that report on or repair the vectors of an index.

use crate::cli::{prelude::*, printer::Printer};
use turnwise_index::vectors::{Coverage, Kind, Reached, VectorCounts, VectorReader, repair};
use turnwise_store::Snapshot;

/// Facts about the vectors of an index. `turnwise stats` and `turnwise index info` print them.
#[derive(Serialize)]
pub(super) struct Vectors {
    encoder: String,
    model: String,
    fingerprint: String,
    dim: usize,
    precision: String,
    utterances: Option<VectorCounts>,
    dialogues: Option<VectorCounts>,
}

impl Vectors {
    pub(super) fn of(reader: &VectorReader, coverage: &Coverage<'_>) -> Self {
        let recipe = reader.recipe();
        Vectors {
            encoder: recipe.name.clone(),
            model: recipe.model.clone(),
            fingerprint: recipe.fingerprint.to_string(),
            dim: recipe.dim,
            precision: recipe.precision.clone(),
            utterances: coverage.of(Kind::Utterances),
            dialogues: coverage.of(Kind::Dialogues),
        }
    }

    /// Returns the fingerprint of the encoder.
    pub(super) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (covered, kind) in [(&self.utterances, Kind::Utterances), (&self.dialogues, Kind::Dialogues)] {
            let Some(covered) = covered else { continue };
            let mut more = String::new();
            let mut also = |n: u64, what: &str| {
                if n > 0 {
                    more.push_str(&format!(", {} {what}", grouped(n)));
                }
            };
            also(covered.vectors - covered.live, "of deleted texts");
            also(covered.without, "not encoded yet");
            let kind = kind.name().trim_end_matches('s');
            writeln!(out, "  {:>12}  {kind} vectors{DIM}{more}{DIM:#}", grouped(covered.live))?;
        }
        writeln!(out, "  {:>12}  dimensions {DIM}by {} ({}){DIM:#}", self.dim, self.encoder, self.model)
    }
}

/// Opens the vectors of an index; `None` if there are none. If the vectors are damaged, prints a warning and returns
/// `None`, because the caller also reports other statistics.
pub(super) fn reader(root: &Path, context: &Context<'_>) -> Result<Option<VectorReader>> {
    match VectorReader::open(root) {
        Err(e @ Error::Corrupt { .. }) => {
            context.printer.warn(format!("the vectors are not counted: {e}"));
            Ok(None)
        }
        other => other,
    }
}

/// Prints how many dialogues are not encoded yet, if the index has vectors.
pub(super) fn notice(root: &Path, snapshot: &Snapshot, context: &Context<'_>) -> Result<()> {
    let Ok(Some(reader)) = VectorReader::open(root) else { return Ok(()) };
    let reached = |kind: Kind| reader.manifest().extent(kind).reached.as_ref();
    let from =
        Kind::ALL.into_iter().filter_map(reached).map(|r| Reached::position_in(Some(r), snapshot)).min();
    let Some(from) = from else { return Ok(()) };
    let n = snapshot.count_live_since(from)?;
    if n > 0 {
        let (new, root) = (counted_with(n, "dialogue", ["is", "are"]), root.display());
        context.printer.say(format!("{new} not encoded yet; `turnwise encode -i {root}` encodes them"));
    }
    Ok(())
}

/// Removes damaged vectors and prints what was removed.
pub(super) fn repair_vectors(root: &Path, context: &Context<'_>) -> Result<()> {
    let Some(repaired) = repair(root, context.command_line)? else { return Ok(()) };
    let again = format!("`turnwise encode -i {}` computes them again", root.display());
    let printer = context.printer;
    if repaired.all_removed {
        printer
            .warn(format!("the vectors were removed, because the record of their encoder is lost; {again}"));
    } else if repaired.dropped > 0 {
        let (dropped, kept) =
            (counted_with(repaired.dropped, "vector", ["was", "were"]), grouped(repaired.kept));
        printer.warn(format!("{dropped} damaged and removed, {kept} kept; {again}"));
    } else if repaired.tables > 0 {
        printer.say("a damaged vector table was removed; the next `turnwise encode` rebuilds it");
    }
    Ok(())
}

/// Warns that `without` items were skipped because they have no vector.
pub(super) fn report_missing(without: u64, kind: Kind, root: &Path, printer: &Printer) {
    if without > 0 {
        let (items, root) = (counted(without, kind.name().trim_end_matches('s')), root.display());
        printer.warn(format!(
            "{items} without a vector skipped; `turnwise encode -i {root}` creates the vectors"
        ));
    }
}

/// Shortens a text to one line of at most `chars` characters, followed by `…` if text was removed.
pub(super) fn shortened(text: &str, chars: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words,
    }
}
