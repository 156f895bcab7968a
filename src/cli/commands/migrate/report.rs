//! What was moved and how it was checked, for people and for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::{content::Content, samples::Sampled};
use crate::cli::{
    Context,
    printer::{BOLD, DIM, counted, grouped},
};
use turnwise_core::error::{Error, Result};

/// Fewer hits in common by meaning than this, and something is wrong with the new place.
const LEAST_ALIKE: f64 = 0.8;
/// A graph may miss one in so many; where many vectors are the same, most graphs do.
const MAY_BE_LOST: usize = 5;

#[derive(Serialize)]
pub(super) struct Report {
    schema: &'static str,
    from: String,
    to: String,
    dialogues: u64,
    turns: u64,
    vectors: u64,
    /// Of the dialogues, those that an earlier try, or another one meanwhile, had moved.
    already_there: u64,
    checksum: String,
    #[serde(flatten)]
    sampled: Sampled,
    /// Until everything was there; what comes after that is looking whether it is.
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

    /// Prints it, with the command that searches at the new place.
    pub(super) fn tell(&self, option: &str, context: &Context<'_>) -> Result<()> {
        context.printer.result(self, |out| self.write(out))?;
        context.printer.suggest(format!("`turnwise search {option} {} \"…\"` searches there", self.to));
        Ok(())
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{BOLD}{}{BOLD:#} with {} and {} are at {} {DIM}({:.1} s){DIM:#}",
            counted(self.dialogues, "dialogue"),
            counted(self.turns, "turn"),
            counted(self.vectors, "vector"),
            self.to,
            self.seconds
        )?;
        if self.already_there > 0 {
            writeln!(out, "{:>9}  were there already", grouped(self.already_there))?;
        }
        writeln!(out, "  checked  every record and vector read back, checksum {}", self.checksum)?;
        let percent = |part: Option<f64>, how: &str| {
            part.map(|part| format!("{:.0}% of the hits by {how} are the same", part * 100.0))
        };
        let alike: Vec<String> =
            [percent(self.sampled.by_meaning, "meaning"), percent(self.sampled.by_words, "words")]
                .into_iter()
                .flatten()
                .collect();
        match alike.is_empty() {
            true => Ok(()),
            false => writeln!(
                out,
                "           {} at both places: {}",
                counted(self.sampled.searches as u64, "search").replace("searchs", "searches"),
                alike.join(", ")
            ),
        }
    }
}

/// That what was read back is what was to be moved.
pub(super) fn same(content: &Content, read_back: &Content, to: &str) -> Result<()> {
    match content.differs(read_back) {
        None => Ok(()),
        Some(what) => Err(Error::Data {
            message: format!("{to} was read back, and {what}; nobody sees it yet"),
            hint: Some(
                "did something write there, or to what is moved? The same command tries it again".to_owned(),
            ),
        }),
    }
}

/// That what was moved is found. What a graph misses now and then is told.
pub(super) fn found(sampled: &Sampled, to: &str, context: &Context<'_>) -> Result<()> {
    let lost = sampled.lost.first().map(|first| {
        format!(
            "{} of {} not found there by their own vectors, the first: {first}",
            sampled.lost.len(),
            counted(sampled.searches as u64, "turn")
        )
    });
    let few = sampled.by_meaning.filter(|part| *part < LEAST_ALIKE);
    let what = match (lost, few) {
        (None, None) => return Ok(()),
        (Some(lost), None) if sampled.lost.len() * MAY_BE_LOST <= sampled.searches => {
            context.printer.warn(lost);
            return Ok(());
        }
        (_, Some(part)) => format!("only {:.0}% of the hits by meaning are the same", part * 100.0),
        (Some(lost), None) => lost,
    };
    Err(Error::Data {
        message: format!("{to} holds everything, and {what}; nobody sees it yet"),
        hint: Some(
            "are its graphs still being made? The same command looks again, and moves nothing twice"
                .to_owned(),
        ),
    })
}
