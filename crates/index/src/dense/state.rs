//! State of the graphs: verification, recall, and whether a rebuild is worthwhile.

use std::path::Path;

use serde::Serialize;
use turnwise_nearest::{BuildOptions, Builder, SearchOptions, measure};

use super::{
    build::RECALL_QUERIES,
    generation::{self, Generation, Manifest},
    progress::{KindProgress, Progress},
    reader::DenseReader,
};
use crate::vectors::Kind;
use turnwise_core::error::{Error, Result};
use turnwise_store::Snapshot;

/// Returns true if a rebuild is worthwhile: the tail is larger than a tenth of the built dialogues, or there is
/// no generation.
pub fn is_worth_building(root: &Path, snapshot: &Snapshot) -> Result<bool> {
    let Some(reader) = DenseReader::open(root, snapshot)? else { return Ok(false) };
    Ok(reader.manifest().is_none_or(|built| reader.tail() as u64 * 10 > built.dialogues_there))
}

/// Verifies the checksums of the generation in use.
pub fn verify(root: &Path) -> Result<()> {
    Generation::open(root)?.map_or(Ok(()), |generation| generation.verify())
}

/// Recall@10 of a graph: the fraction of the 10 true nearest neighbors that a graph search finds.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// `utterances` or `dialogues`.
    pub of: &'static str,
    /// Number of distinct vectors in the graph.
    pub nodes: u64,
    /// Recall measured when the graph was built.
    pub when_built: f64,
    /// Recall measured now, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<f64>,
}

/// Returns the graphs in use and their stored recall. With `again`, also measures the recall now.
pub fn recall(root: &Path, again: bool, watch: &dyn Progress) -> Result<Vec<Measured>> {
    let Some(generation) = Generation::open(root)? else { return Ok(Vec::new()) };
    let measured = |kind: Kind| {
        let (graph, part) = (&generation.graphs[kind as usize], generation.manifest.part(kind));
        let now =
            || match measure(graph, &SearchOptions::default(), RECALL_QUERIES, &KindProgress(kind, watch)) {
                Ok(measured) => Ok(measured.recall),
                Err(Error::Interrupted { .. }) => Err(Error::Interrupted { hint: None }),
                Err(e) => Err(e),
            };
        let now = again.then(now).transpose()?;
        Ok(Measured { of: kind.name(), nodes: part.nodes, when_built: part.recall, now })
    };
    Kind::ALL.into_iter().map(measured).collect()
}

/// Returns the graph builder of the generation in use, even if the generation is damaged. If the manifest cannot be
/// read, returns the default builder. Returns `None` if there is no generation.
pub fn builder(root: &Path) -> Option<Builder> {
    let named = generation::manifest(root)?.map(|manifest| manifest.builder);
    let builder = named.ok().and_then(|name| Builder::ALL.into_iter().find(|b| b.name() == name));
    Some(builder.unwrap_or(BuildOptions::default().builder))
}

/// Returns the manifest of the generation in use; `None` if there is none.
pub fn in_use(root: &Path) -> Result<Option<Manifest>> {
    Ok(Generation::open(root)?.map(|generation| generation.manifest))
}
