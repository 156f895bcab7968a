//! What the commands that care for an index say and do about its vectors.

use std::{
    io::{self, Write},
    path::Path,
};

use serde::Serialize;

use crate::cli::{
    Context,
    printer::{DIM, Printer, counted, grouped},
};
use turnwise_core::error::{Error, Result};
use turnwise_index::vectors::{Coverage, Covered, Kind, Reached, VectorReader, repair};
use turnwise_store::Snapshot;

/// What `stats` says of them.
#[derive(Serialize)]
pub(super) struct Vectors {
    encoder: String,
    model: String,
    fingerprint: String,
    dim: usize,
    precision: String,
    utterances: Option<Covered>,
    dialogues: Option<Covered>,
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

    /// What tells the encoder from others.
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
            also(covered.vectors - covered.live, "of texts that are gone");
            also(covered.without, "without one yet");
            let kind = kind.name().trim_end_matches('s');
            writeln!(out, "  {:>12}  {kind} vectors{DIM}{more}{DIM:#}", grouped(covered.live))?;
        }
        writeln!(out, "  {:>12}  numbers each {DIM}by {} ({}){DIM:#}", self.dim, self.encoder, self.model)
    }
}

/// The vectors of an index, for `stats`: damage is no reason to show nothing else.
pub(super) fn reader(root: &Path, context: &Context<'_>) -> Result<Option<VectorReader>> {
    match VectorReader::open(root) {
        Err(e @ Error::Corrupt { .. }) => {
            context.printer.warn(format!("the vectors are not counted: {e}"));
            Ok(None)
        }
        other => other,
    }
}

/// After dialogues came: how many the vectors do not know yet, if there are vectors.
pub(super) fn notice(root: &Path, snapshot: &Snapshot, context: &Context<'_>) -> Result<()> {
    let Ok(Some(reader)) = VectorReader::open(root) else { return Ok(()) };
    let reached = |kind: Kind| reader.manifest().extent(kind).reached.as_ref();
    let from = Kind::ALL.into_iter().filter_map(reached).map(|r| Reached::place_in(Some(r), snapshot)).min();
    let Some(from) = from else { return Ok(()) };
    let n = snapshot.live_since(from)?;
    if n > 0 {
        context.printer.say(format!(
            "{} not looked at for vectors yet; `turnwise encode -i {}` does that",
            counted(n, "dialogue") + if n == 1 { " is" } else { " are" },
            root.display()
        ));
    }
    Ok(())
}

/// Removes what is damaged of them, and says so.
pub(super) fn mend(root: &Path, context: &Context<'_>) -> Result<()> {
    let Some(mended) = repair(root, context.command_line)? else { return Ok(()) };
    let again = format!("`turnwise encode -i {}` makes them anew", root.display());
    if mended.all_removed {
        context
            .printer
            .warn(format!("the vectors had to be removed, because nothing tells what made them; {again}"));
    } else if mended.dropped > 0 {
        context.printer.warn(format!(
            "{} damaged and removed, {} kept; {again}",
            counted(mended.dropped, "vector") + if mended.dropped == 1 { " was" } else { " were" },
            grouped(mended.kept)
        ));
    } else if mended.tables > 0 {
        context.printer.say("a damaged table of the vectors was removed; whoever encodes next makes it anew");
    }
    Ok(())
}

/// Tells how much is left out because it has no vector yet.
pub(super) fn tell_without(without: u64, kind: Kind, root: &Path, printer: &Printer) {
    if without > 0 {
        let what = counted(without, kind.name().trim_end_matches('s'));
        printer.warn(format!(
            "{what} left out for want of a vector; `turnwise encode -i {}` changes that",
            root.display()
        ));
    }
}

/// A text as one line of a list.
pub(super) fn shortened(text: &str) -> String {
    const CHARS: usize = 100;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(CHARS) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words,
    }
}
