//! Lookup of the embeddings of tokens, and checks of sequences.

use turnwise_core::{Error, Result};

use crate::{
    Network, Sequence,
    network::{Shape, Table},
    pack::GRAIN,
};

/// Embedding tables of a network, for the lookup of tokens.
pub(super) struct Embedder {
    shape: Shape,
    words: Table,
    positions: Option<Table>,
    extra: [Extra; 3],
    max_tokens: usize,
    /// True if attention depends on the distance between tokens, which is limited by the maximum number of tokens.
    by_distance: bool,
}

/// Optional embedding table, and the function that returns the ids by which the rows of the table are selected.
struct Extra {
    /// Name of the ids in error messages, such as `segment`.
    what: &'static str,
    table: Option<Table>,
    /// Returns the ids of a sequence; `None` means that all ids are 0.
    of: fn(&Sequence) -> Option<&Vec<u32>>,
}

impl Embedder {
    pub fn new(network: &Network) -> Self {
        let e = &network.embeddings;
        Embedder {
            shape: network.shape.clone(),
            max_tokens: network.max_tokens(),
            by_distance: network.relative_bias.is_some() || network.embeddings.positions.is_none(),
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
        let most = self.max_tokens;
        if (sequence.positions.is_none() || self.by_distance) && n > most {
            return Err(Error::input(format!(
                "a sequence has {n} tokens; the maximum of the model is {most}"
            ))
            .with_hint("truncate it, or split it into windows"));
        }
        within("token", &sequence.ids, n, self.words.rows)?;
        if let Some(positions) = &sequence.positions {
            within("position", positions, n, most)?;
        }
        if let Some(vectors) = &sequence.vectors {
            let fits = vectors.tokens.len() * self.shape.hidden == vectors.elements.len()
                && vectors.tokens.is_sorted_by(|a, b| a < b)
                && vectors.tokens.last().is_none_or(|last| (*last as usize) < n);
            if !fits {
                return Err(Error::Internal("the input vectors do not fit the sequence".to_owned()));
            }
        }
        for extra in &self.extra {
            if let Some(ids) = (extra.of)(sequence) {
                // Without a table, only id 0 is valid.
                within(extra.what, ids, n, extra.table.as_ref().map_or(1, |table| table.rows))?;
            }
        }
        Ok(())
    }

    /// Returns the row of the position table for each token. For networks without such a table, these are the positions
    /// of the tokens, counted from 0.
    pub fn positions<'s>(&'s self, sequence: &'s Sequence) -> impl Iterator<Item = u32> {
        let given = sequence.positions.as_deref().unwrap_or_default();
        let counted = self.shape.positions(&sequence.ids).map(|position| position as u32);
        let first = self.shape.first_position as u32;
        let rest = counted.skip(given.len());
        given.iter().map(move |position| position + first).chain(rest)
    }

    /// Writes the summed embeddings of a sequence that passed `check`: one row of `stride` elements per token.
    pub fn embed(&self, sequence: &Sequence, rows: &mut [f32], stride: usize) {
        let h = self.shape.hidden;
        assert_eq!(stride, h.next_multiple_of(GRAIN));
        let mut replaced = sequence.vectors.iter().flat_map(|vectors| {
            vectors.tokens.iter().map(|token| *token as usize).zip(vectors.elements.chunks_exact(h))
        });
        let mut next = replaced.next();
        for (i, ((row, id), position)) in
            rows.chunks_exact_mut(stride).zip(&sequence.ids).zip(self.positions(sequence)).enumerate()
        {
            let (sum, padding) = row.split_at_mut(h);
            match next {
                Some((token, vector)) if token == i => {
                    sum.copy_from_slice(vector);
                    next = replaced.next();
                }
                _ => sum.copy_from_slice(&self.words.data[*id as usize * h..][..h]),
            }
            if let Some(table) = &self.positions {
                add(sum, &table.data[position as usize * h..][..h]);
            }
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
