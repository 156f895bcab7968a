//! Text output of `turnwise index info`.

use super::{Graphs, Info, Outdated};
use crate::cli::{commands::search, prelude::*};
use turnwise_index::vectors::Kind;

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
        let analyzer = self.lexical.as_ref().and_then(|lexical| lexical.analyzer.as_deref());
        part(b.lexical, "lexical", analyzer.unwrap_or_default())?;
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
