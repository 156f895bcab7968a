//! `turnwise bench throughput --engine ADDRESS`: measures Milvus under a temporary name.

use crate::cli::{Context, args::ThroughputArgs};
use turnwise_core::error::Result;
use turnwise_corpus::walk::Plan;
use turnwise_eval::throughput::Throughput;
use turnwise_store::ingest::IngestOptions;

#[cfg(feature = "milvus")]
pub(super) fn measured(
    mut throughput: Throughput,
    plan: Plan,
    options: &IngestOptions,
    args: &ThroughputArgs,
    context: &Context<'_>,
) -> Result<Throughput> {
    use std::sync::Arc;

    use crate::cli::encoders::absolute_name;
    use turnwise_core::error::Error;
    use turnwise_encoder::{Encoder, ahead::Options};
    use turnwise_eval::throughput::Pace;
    use turnwise_index::vectors::Recipe;
    use turnwise_milvus::{Milvus, MilvusWriter};
    use turnwise_search::Searcher;

    let target = context.milvus_target()?;
    if MilvusWriter::read_manifest(&target)?.is_some() {
        return Err(Error::Input {
            message: format!(
                "{target} already has dialogues, but this benchmark creates its own name and removes it"
            ),
            hint: Some("use a name that does not exist yet".to_owned()),
        });
    }
    throughput.engine = Some(target.to_string());
    let model = super::model(args, context)?;
    throughput.encoder = format!("{}, {}", model.name, model.encoder.describe());
    let recipe = Recipe::of(
        model.encoder.as_ref(),
        &absolute_name(&model.name),
        "auto",
        &args.tokens.given(),
        &Options::default(),
    );
    let encoder: Arc<dyn Encoder> = Arc::from(model.encoder);
    let _removed = emptied::TemporaryName(&target);
    let mut sink =
        MilvusWriter::open_or_create(&target, Default::default(), Some(recipe), Some(encoder.clone()))?;
    throughput.steps.push(Pace::of("ingest", "turns", || {
        super::read_in(&mut sink, plan, options)?;
        // As at the end of an ingest: searches are slow until the new rows are indexed.
        sink.flush()?;
        Ok(sink.totals()?.turns)
    })?);
    let totals = sink.totals()?;
    (throughput.dialogues, throughput.turns) = (totals.dialogues, totals.turns);
    let searcher = Searcher::of(Box::new(Milvus::open(&target)?)).with_encoder(encoder)?;
    throughput.searches = super::searches(&searcher, args.queries, context.settings.seed)?;
    Ok(throughput)
}

#[cfg(feature = "milvus")]
mod emptied {
    use turnwise_milvus::{MilvusWriter, Target};

    /// Name in the engine that is removed when dropped.
    pub(super) struct TemporaryName<'a>(pub(super) &'a Target);

    impl Drop for TemporaryName<'_> {
        fn drop(&mut self) {
            let _ = MilvusWriter::remove(self.0);
        }
    }
}

#[cfg(not(feature = "milvus"))]
pub(super) fn measured(
    _: Throughput,
    _: Plan,
    _: &IngestOptions,
    _: &ThroughputArgs,
    context: &Context<'_>,
) -> Result<Throughput> {
    match context.milvus_target()? {}
}
