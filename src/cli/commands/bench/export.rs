//! Exports rankings and judgments for other tools.

use std::path::Path;

use turnwise_core::error::Result;
use turnwise_corpus::output::Output;
use turnwise_eval::{
    tasks::Outcome,
    trec::{write_qrels, write_run},
};

/// Writes `NAME.run` and `NAME.qrels` for rankings, and `NAME.*.tsv` for other values. NAME is the name of the result
/// file without its extension.
pub(super) fn write(outcome: &Outcome, result: &Path, folder: &Path, tag: &str) -> Result<()> {
    let name = folder.join(result.file_name().unwrap_or_default());
    for columns in &outcome.columns {
        let mut out = Output::create(&name.with_extension(format!("{}.tsv", columns.name)))?;
        let lines = std::iter::once(&columns.names).chain(&columns.rows);
        lines.map(|cells| cells.join("\t")).try_for_each(|line| out.with(|out| writeln!(out, "{line}")))?;
        out.finish()?;
    }
    if outcome.rankings.is_empty() {
        return Ok(());
    }
    let mut run = Output::create(&name.with_extension("run"))?;
    let mut qrels = Output::create(&name.with_extension("qrels"))?;
    for ranked in &outcome.rankings {
        let documents = ranked.documents.iter();
        run.with(|out| {
            write_run(out, &ranked.query, documents.clone().map(|(id, score, _)| (id.as_str(), *score)), tag)
        })?;
        let judged = documents.filter_map(|(id, _, grade)| Some((id.as_str(), (*grade)?)));
        qrels.with(|out| write_qrels(out, &ranked.query, judged))?;
    }
    run.finish()?;
    qrels.finish()
}
