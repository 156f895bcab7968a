//! Embedding lookup: checks token ids and sums their embeddings.

use super::pack::GRAIN;
use crate::{
    Sequence,
    network::{Embeddings, Shape, Table},
};
use turnwise_core::{Error, Result};

/// The embedding tables of a network.
pub(super) struct Embedder {
    shape: Shape,
    words: Table,
    positions: Table,
    extra: [Extra; 3],
}

/// An optional embedding table, and the ids of a sequence that select its rows.
struct Extra {
    what: &'static str,
    table: Option<Table>,
    of: fn(&Sequence) -> Option<&Vec<u32>>,
}

impl Embedder {
    /// Copies the tables of a network.
    pub fn new(embeddings: &Embeddings, shape: &Shape) -> Self {
        let e = embeddings;
        Embedder {
            shape: shape.clone(),
            words: e.words.clone(),
            positions: e.positions.clone(),
            extra: [
                Extra { what: "segment", table: e.types.clone(), of: |s| s.types.as_ref() },
                Extra { what: "turn", table: e.turns.clone(), of: |s| s.turns.as_ref() },
                Extra { what: "role", table: e.roles.clone(), of: |s| s.roles.as_ref() },
            ],
        }
    }

    /// Returns an error if a sequence is empty, too long, or has ids that are not in the tables.
    pub fn check(&self, sequence: &Sequence) -> Result<()> {
        let n = sequence.len();
        if n == 0 {
            return Err(Error::input("a sequence without tokens cannot be encoded"));
        }
        let most = self.positions.rows.saturating_sub(self.shape.first_position);
        if sequence.positions.is_none() && n > most {
            return Err(Error::input(format!(
                "a sequence has {n} tokens; the maximum of the model is {most}"
            ))
            .with_hint("truncate it, or split it into windows"));
        }
        within("token", &sequence.ids, n, self.words.rows)?;
        if let Some(positions) = &sequence.positions {
            within("position", positions, n, most)?;
        }
        for extra in &self.extra {
            match ((extra.of)(sequence), &extra.table) {
                (Some(ids), Some(table)) => within(extra.what, ids, n, table.rows)?,
                // Without a table, only id 0 is valid.
                (Some(ids), None) => within(extra.what, ids, n, 1)?,
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// Writes the summed embeddings of a checked sequence: one row of `stride` elements per token.
    pub fn embed(&self, sequence: &Sequence, rows: &mut [f32], stride: usize) {
        let h = self.shape.hidden;
        let counted = self.shape.positions(&sequence.ids);
        assert_eq!(stride, h.next_multiple_of(GRAIN));
        for (i, ((row, id), counted)) in
            rows.chunks_exact_mut(stride).zip(&sequence.ids).zip(counted).enumerate()
        {
            let given = sequence.positions.as_ref().map(|p| p[i] as usize + self.shape.first_position);
            let position = given.unwrap_or(counted);
            let (sum, padding) = row.split_at_mut(h);
            sum.copy_from_slice(&self.words.data[*id as usize * h..][..h]);
            add(sum, &self.positions.data[position * h..][..h]);
            for extra in &self.extra {
                if let Some(table) = &extra.table {
                    let id = (extra.of)(sequence).map_or(0, |ids| ids[i] as usize);
                    add(sum, &table.data[id * h..][..h]);
                }
            }
            padding.fill(0.0);
        }
    }
}

fn add(sum: &mut [f32], more: &[f32]) {
    for (s, m) in sum.iter_mut().zip(more) {
        *s += m;
    }
}

/// Returns an error if there are not exactly `n` ids, or if an id is not below `rows`.
fn within(what: &str, ids: &[u32], n: usize, rows: usize) -> Result<()> {
    if ids.len() != n {
        return Err(Error::input(format!("a sequence of {n} tokens has {} {what} ids", ids.len())));
    }
    match ids.iter().find(|id| **id as usize >= rows) {
        None => Ok(()),
        Some(id) => Err(Error::input(format!("there is no {what} {id}: the model has {rows} {what}s"))
            .with_hint("check that the tokenizer belongs to this model")),
    }
}
