//! Report at the end of `embed`.

use std::collections::BTreeMap;

use crate::cli::{commands::report_rejects_file, prelude::*, printer::Printer};
use turnwise_encoder::EncodeStats;
use turnwise_shards::embed::MAX_WARNINGS;

#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) schema: &'static str,
    pub(super) model: String,
    pub(super) encoder: String,
    pub(super) fingerprint: String,
    pub(super) runs: String,
    pub(super) output: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ids: Option<String>,
    pub(super) format: &'static str,
    /// Number of inputs per format.
    pub(super) read_as: BTreeMap<&'static str, u64>,
    pub(super) unit: &'static str,
    pub(super) vectors: u64,
    pub(super) dim: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<usize>,
    #[serde(flatten)]
    pub(super) spent: EncodeStats,
    pub(super) rejected: u64,
    /// File that lists the rejected records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rejects: Option<String>,
    pub(super) damaged_files: u64,
    pub(super) seconds: f64,
}

impl Summary {
    /// Prints the report to standard output, or to standard error if the vectors went to standard output.
    pub(super) fn report(&self, vectors_on_standard_output: bool, context: &Context<'_>) -> Result<()> {
        report_usage(&self.spent, self.max_tokens, self.unit, context.printer);
        report_rejects_file(self.rejected, MAX_WARNINGS, self.rejects.as_deref(), context.printer);
        if !vectors_on_standard_output {
            return context.printer.result(self, |out| self.write(out));
        }
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = self.write(&mut text);
        String::from_utf8_lossy(&text).lines().for_each(|line| context.printer.say(line));
        Ok(())
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let read_as: Vec<String> = self.read_as.iter().map(|(name, n)| format!("{name}: {n}")).collect();
        let rate = |n: u64| grouped((n as f64 / self.seconds.max(1e-3)) as u64);
        writeln!(
            out,
            "{BOLD}{}{BOLD:#} from {} ({}) in {:.1} s {DIM}({}/s, {} tokens/s){DIM:#}",
            counted(self.vectors, self.unit.trim_end_matches('s')),
            counted(self.read_as.values().sum(), "input"),
            read_as.join(", "),
            self.seconds,
            rate(self.vectors),
            rate(self.spent.tokens)
        )?;
        writeln!(out, "  {:>12}  tokens", grouped(self.spent.tokens))?;
        if self.rejected > 0 {
            writeln!(out, "  {:>12}  rejected", grouped(self.rejected))?;
        }
        let with_ids = self.ids.as_ref().map(|ids| format!(", ids in {ids}")).unwrap_or_default();
        writeln!(
            out,
            "{BOLD}{}{BOLD:#} has vectors with {} dimensions, by {} {DIM}({}){DIM:#}{with_ids}",
            self.output, self.dim, self.encoder, self.runs
        )
    }
}

/// Reports inputs that the model truncated, split or did not know, so that nothing is cut silently.
pub(in crate::cli::commands) fn report_usage(
    spent: &EncodeStats,
    max_tokens: Option<usize>,
    unit: &str,
    printer: &Printer,
) {
    let taken = max_tokens.map_or("the model's limit".to_owned(), |n| format!("the limit of {n} tokens"));
    let verb = |n: u64| if n == 1 { "was" } else { "were" };
    let one = unit.trim_end_matches('s');
    if spent.cut_texts > 0 {
        printer.warn(format!(
            "{} {} longer than {taken} and {} truncated: {} dropped",
            counted(spent.cut_texts, one),
            verb(spent.cut_texts),
            verb(spent.cut_texts),
            counted(spent.cut_tokens, "token")
        ));
    }
    if spent.unknown > 0 {
        let n = spent.unknown;
        let verb = if n == 1 { "has" } else { "have" };
        printer.warn(format!(
            "{} {verb} no token that the model knows; the vectors are all zeros",
            counted(n, one)
        ));
    }
    if spent.windowed > 0 {
        printer.say(format!(
            "{} {} longer than {taken} and encoded in windows; nothing was truncated",
            counted(spent.windowed, "dialogue"),
            verb(spent.windowed)
        ));
    }
}
