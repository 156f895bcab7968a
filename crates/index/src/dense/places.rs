//! Lookup of dialogues and graph nodes for filters that accept few items. The other filters test each row of the graphs.

use std::sync::OnceLock;

use super::generation::Generation;
use crate::vectors::Kind;
use turnwise_core::ids::Seq;

/// Lookup tables of the graphs in use. Each table is made at its first use.
#[derive(Default)]
pub(super) struct Places {
    /// Dialogues by sequence number, as indexes into the dialogue table.
    dialogues: OnceLock<Vec<(Seq, u32)>>,
    /// For each kind, the nodes by row; [`NONE`] for rows without a node.
    nodes: [OnceLock<Vec<u32>>; 2],
}

const NONE: u32 = u32::MAX;

impl Places {
    /// Returns the index of a dialogue in the dialogue table.
    pub(super) fn dialogue(&self, generation: &Generation, seq: Seq) -> Option<u32> {
        let dialogues = self.dialogues.get_or_init(|| {
            let all = 0..generation.dialogues.len() as u32;
            let mut all: Vec<(Seq, u32)> =
                all.filter_map(|index| Some((generation.dialogues.get(index)?.1, index))).collect();
            all.sort_unstable();
            all
        });
        dialogues.binary_search_by_key(&seq, |(seq, _)| *seq).ok().map(|at| dialogues[at].1)
    }

    /// Returns the node of a row.
    pub(super) fn node(&self, generation: &Generation, kind: Kind, row: u32) -> Option<u32> {
        let nodes = self.nodes[kind as usize].get_or_init(|| {
            let graph = &generation.graphs[kind as usize];
            let rows = match kind {
                Kind::Utterances => generation.utterances.len(),
                Kind::Dialogues => generation.dialogues.len(),
            };
            let mut nodes = vec![NONE; rows];
            for node in 0..graph.nodes() as u32 {
                for row in graph.rows(node) {
                    if let Some(of_row) = nodes.get_mut(*row as usize) {
                        *of_row = node;
                    }
                }
            }
            nodes
        });
        nodes.get(row as usize).copied().filter(|node| *node != NONE)
    }
}
