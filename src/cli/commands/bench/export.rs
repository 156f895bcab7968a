//! Rankings and judgments for other tools.

use std::path::Path;

use crate::{
    cli::output::Output,
    error::{Error, Result},
    eval::{
        tasks::Outcome,
        trec::{write_qrels, write_run},
    },
};

/// Writes `NAME.run` and `NAME.qrels`, named as the result is.
pub(super) fn write(outcome: &Outcome, result: &Path, folder: &Path, tag: &str) -> Result<()> {
    if outcome.rankings.is_empty() {
        return Err(Error::Input {
            message: "this task has no rankings that could be exported".to_owned(),
            hint: Some("leave --export out".to_owned()),
        });
    }
    let name = folder.join(result.file_name().unwrap_or_default());
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
