//! Result of a migration and of its checks.

use std::io::{self, Write};

use serde::Serialize;

use super::{content::Content, samples::Sampled};
use crate::cli::{
    Context,
    printer::{BOLD, DIM, counted, grouped},
};
use turnwise_core::error::{Error, Result};

/// Smallest share of dense hits that must be the same in both places.
const MIN_OVERLAP: f64 = 0.8;
/// A graph may miss one of N vectors by their own value. More are missed where many vectors are equal.
const LOST_ONE_IN: usize = 5;

#[derive(Serialize)]
pub(super) struct Report {
    schema: &'static str,
    from: String,
    to: String,
    dialogues: u64,
    turns: u64,
    vectors: u64,
    /// Dialogues that were already copied, by an earlier run or a parallel one.
    already_there: u64,
    checksum: String,
    #[serde(flatten)]
    sampled: Sampled,
    /// Time until everything was copied, without the checks.
    moving_seconds: f64,
    seconds: f64,
}

impl Report {
    pub(super) fn new(
        [from, to]: [String; 2],
        content: &Content,
        already_there: u64,
        sampled: Sampled,
        [moving_seconds, seconds]: [f64; 2],
    ) -> Self {
        Report {
            schema: "turnwise/migrate/1",
            from,
            to,
            dialogues: content.dialogues,
            turns: content.turns,
            vectors: content.vectors,
            already_there,
            checksum: content.checksum(),
            sampled,
            moving_seconds,
            seconds,
        }
    }

    /// Prints the report and the command that searches the new place.
    pub(super) fn report(&self, option: &str, context: &Context<'_>) -> Result<()> {
        context.printer.result(self, |out| self.write(out))?;
        context.printer.suggest(format!("`turnwise search {option} {} \"…\"` searches it", self.to));
        Ok(())
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{BOLD}{}{BOLD:#} with {} and {} are now in {} {DIM}({:.1} s){DIM:#}",
            counted(self.dialogues, "dialogue"),
            counted(self.turns, "turn"),
            counted(self.vectors, "vector"),
            self.to,
            self.seconds
        )?;
        if self.already_there > 0 {
            writeln!(out, "{:>9}  already copied", grouped(self.already_there))?;
        }
        writeln!(out, "  checked  all records and vectors read back, checksum {}", self.checksum)?;
        let percent = |part: Option<f64>, how: &str| {
            part.map(|part| format!("{:.0}% of the {how} hits are the same", part * 100.0))
        };
        let alike: Vec<String> =
            [percent(self.sampled.by_meaning, "dense"), percent(self.sampled.by_words, "lexical")]
                .into_iter()
                .flatten()
                .collect();
        match alike.is_empty() {
            true => Ok(()),
            false => writeln!(
                out,
                "           {} in both places: {}",
                counted(self.sampled.searches as u64, "search").replace("searchs", "searches"),
                alike.join(", ")
            ),
        }
    }
}

/// Returns an error if the data read back differ from the source.
pub(super) fn same(content: &Content, read_back: &Content, to: &str) -> Result<()> {
    match content.differs(read_back) {
        None => Ok(()),
        Some(what) => Err(Error::Data {
            message: format!("the check of {to} failed: {what}; the data are not visible yet"),
            hint: Some(
                "did another process write to the source or the target? Run the same command to try again"
                    .to_owned(),
            ),
        }),
    }
}

/// Checks that the migrated vectors are found. A few misses of the graph are only a warning.
pub(super) fn found(sampled: &Sampled, to: &str, context: &Context<'_>) -> Result<()> {
    let lost = sampled.lost.first().map(|first| {
        format!(
            "{} of {} not found by their own vectors, such as {first}",
            sampled.lost.len(),
            counted(sampled.searches as u64, "turn")
        )
    });
    let few = sampled.by_meaning.filter(|part| *part < MIN_OVERLAP);
    let what = match (lost, few) {
        (None, None) => return Ok(()),
        (Some(lost), None) if sampled.lost.len() * LOST_ONE_IN <= sampled.searches => {
            context.printer.warn(lost);
            return Ok(());
        }
        (_, Some(part)) => format!("only {:.0}% of the dense hits are the same", part * 100.0),
        (Some(lost), None) => lost,
    };
    Err(Error::Data {
        message: format!("{to} is complete, but {what}; the data are not visible yet"),
        hint: Some(
            "are its graphs still being built? Run the same command to check again; nothing is copied twice"
                .to_owned(),
        ),
    })
}
