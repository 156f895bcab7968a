//! What there is of graphs, whether it is sound, and whether it is time for others.

use std::path::Path;

use serde::Serialize;
use turnwise_nearest::{Ask, BuildOptions, Builder, measure};

use super::{
    build::RECALL_QUERIES,
    generation::{self, Generation, Manifest},
    progress::{Of, Progress},
    reader::DenseReader,
};
use crate::vectors::Kind;
use turnwise_core::error::{Error, Result};
use turnwise_store::Snapshot;

/// Whether so much has come since the last build that the next one pays: a tenth of what it holds, or anything where there
/// is none.
pub fn is_worth_building(root: &Path, snapshot: &Snapshot) -> Result<bool> {
    let Some(reader) = DenseReader::open(root, snapshot)? else { return Ok(false) };
    Ok(reader.manifest().is_none_or(|built| reader.tail() as u64 * 10 > built.dialogues_there))
}

/// Compares the files of the generation in use with their checksums.
pub fn verify(root: &Path) -> Result<()> {
    Generation::open(root)?.map_or(Ok(()), |generation| generation.verify())
}

/// What part of the nearest ten a graph finds.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// `utterances` or `dialogues`.
    pub of: &'static str,
    /// How many different vectors the graph has.
    pub nodes: u64,
    /// As it was measured when the graph was built.
    pub when_built: f64,
    /// As it is now, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<f64>,
}

/// The graphs in use, and what they find: as it was stored, and if `again`, measured once more.
pub fn recall(root: &Path, again: bool, watch: &dyn Progress) -> Result<Vec<Measured>> {
    let Some(generation) = Generation::open(root)? else { return Ok(Vec::new()) };
    let measured = |kind: Kind| {
        let (graph, part) = (&generation.graphs[kind as usize], generation.manifest.part(kind));
        let now = || match measure(graph, &Ask::default(), RECALL_QUERIES, &Of(kind, watch)) {
            Ok(measured) => Ok(measured.recall),
            Err(Error::Interrupted { .. }) => Err(Error::Interrupted { hint: None }),
            Err(e) => Err(e),
        };
        let now = again.then(now).transpose()?;
        Ok(Measured { of: kind.name(), nodes: part.nodes, when_built: part.recall, now })
    };
    Kind::ALL.into_iter().map(measured).collect()
}

/// What built the generation in use, which may be damaged: the usual builder where that cannot be told. `None` if there is
/// no generation.
pub fn builder(root: &Path) -> Option<Builder> {
    let named = generation::manifest(root)?.map(|manifest| manifest.builder);
    let builder = named.ok().and_then(|name| Builder::ALL.into_iter().find(|b| b.name() == name));
    Some(builder.unwrap_or(BuildOptions::default().builder))
}

/// What the generation in use was built of; `None` if there is none.
pub fn in_use(root: &Path) -> Result<Option<Manifest>> {
    Ok(Generation::open(root)?.map(|generation| generation.manifest))
}
