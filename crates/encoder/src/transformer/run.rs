//! Runs items through the network, and applies the model's dense layers, normalization and truncation to the pooled
//! vectors. Also returns token vectors, which are not pooled.
//!
//! Items are grouped into packs; each pack is computed as one batch. On the CPU, packs run in parallel. If the device
//! runs out of memory, a pack is split.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use rayon::prelude::*;
use turnwise_core::error::{Error, Result};

use crate::{
    Backend, Batch, Part, Pool, PoolRequest, Reduction, Sequence, TextOptions, TokenVectors, Vectors,
    backend::{empty, pool_into},
    folder::{Dense, Pipeline, Step},
    transformer::{
        Prompt, Transformer,
        items::{Item, packs},
    },
};

/// Computes the pooled vectors of all inputs. For each input, the results of all pooling modes are concatenated.
pub(crate) fn run(
    backend: &dyn Backend,
    budget: &AtomicUsize,
    layers: &[(usize, f32)],
    reductions: &[Reduction],
    items: &[Item],
    inputs: usize,
) -> Result<Vectors> {
    let width = backend.hidden();
    let results = in_packs(backend, budget, items, &|pack, batch| {
        let pools: Vec<Pool> = reductions
            .iter()
            .enumerate()
            .map(|(p, reduction)| Pool {
                reduction: *reduction,
                parts: pack.iter().map(|item| item.pools[p].as_slice()).collect::<Vec<&[Part]>>(),
            })
            .collect();
        backend.pool(batch, &PoolRequest { layers, pools: &pools })
    })?;
    let mut vectors = Vectors::zeros(inputs, width * reductions.len());
    for n in 0..inputs {
        for (pool, reduction) in vectors.row_mut(n).chunks_exact_mut(width).zip(reductions) {
            pool.fill(empty(*reduction));
        }
    }
    // Add windows in the order of the items, so that sums do not depend on which pack finished first.
    let mut positions = vec![(0, 0); items.len()];
    for (r, (pack, _)) in results.iter().enumerate() {
        pack.iter().enumerate().for_each(|(row, n)| positions[*n] = (r, row));
    }
    let whole = [Part { rows: 0..1, weight: 1.0 }];
    for (item, (r, row)) in items.iter().zip(positions).filter(|(item, _)| !item.sequence.is_empty()) {
        let sums = vectors.row_mut(item.input).chunks_exact_mut(width);
        for ((sum, pool), reduction) in sums.zip(&results[r].1).zip(reductions) {
            pool_into(sum, pool.row(row), &whole, *reduction);
        }
    }
    // An input without tokens has no maximum. Its vector becomes zero, as for a sum.
    vectors.replace(f32::NEG_INFINITY, 0.0);
    Ok(vectors)
}

/// Computes the weighted sum of the hidden states after `layers`, and applies `each` to the input of every item and to its
/// states. Returns the results in the order of the items. The result of an item without tokens is the default.
pub(crate) fn run_states<T: Default + Send>(
    backend: &dyn Backend,
    budget: &AtomicUsize,
    layers: &[(usize, f32)],
    items: &[Item],
    each: &(dyn Fn(usize, &[f32]) -> T + Sync),
) -> Result<Vec<T>> {
    let width = backend.hidden();
    let pieces = in_packs(backend, budget, items, &|pack, batch| {
        let mut results = Vec::with_capacity(pack.len());
        backend.mixed(batch, layers, &mut |states| {
            let mut start = 0;
            for item in pack {
                let end = start + item.sequence.len() * width;
                results.push(each(item.input, &states[start..end]));
                start = end;
            }
        })?;
        Ok(results)
    })?;
    let mut all: Vec<T> = items.iter().map(|_| T::default()).collect();
    for (n, result) in pieces.into_iter().flat_map(|(pack, results)| pack.into_iter().zip(results)) {
        all[n] = result;
    }
    Ok(all)
}

/// Function that processes a pack: the items of one batch.
type Work<'a, T> = dyn Fn(&[&Item], &Batch) -> Result<T> + Sync + 'a;

/// Indices of items that were processed together, and the result.
type Piece<T> = (Vec<usize>, T);

/// Groups items into packs, and runs `work` on each pack. Items without tokens are skipped.
fn in_packs<T: Send>(
    backend: &dyn Backend,
    budget: &AtomicUsize,
    items: &[Item],
    work: &Work<'_, T>,
) -> Result<Vec<Piece<T>>> {
    let threads = if backend.wants_threads() { rayon::current_num_threads() } else { 1 };
    let tokens: usize = items.iter().map(|i| i.sequence.len()).sum();
    let limit = budget.load(Ordering::Relaxed);
    // On the CPU, small packs keep all threads busy until the end. On a GPU, packs are as large as possible.
    let pack_tokens = if threads == 1 { limit } else { limit.min(tokens.div_ceil(threads).max(32)) };
    let packs = packs(items, pack_tokens);
    // If there are fewer packs than threads, several threads share a pack. For example, a single query uses all
    // threads.
    let each = (threads / packs.len().max(1)).max(1);
    let job = Job { budget, items, threads: each, work };
    let pieces: Vec<Vec<Piece<T>>> = match threads > 1 {
        true => packs.par_iter().map(|pack| job.pack(pack)).collect::<Result<_>>()?,
        false => packs.iter().map(|pack| job.pack(pack)).collect::<Result<_>>()?,
    };
    Ok(pieces.into_iter().flatten().collect())
}

struct Job<'a, T> {
    budget: &'a AtomicUsize,
    items: &'a [Item],
    /// Number of threads that compute one pack of items.
    threads: usize,
    work: &'a Work<'a, T>,
}

impl<T> Job<'_, T> {
    /// Processes a pack. If the device runs out of memory, splits the pack in two halves and processes one half after
    /// the other. Fails if a single item does not fit into memory.
    fn pack(&self, pack: &[usize]) -> Result<Vec<Piece<T>>> {
        let items: Vec<&Item> = pack.iter().map(|n| &self.items[*n]).collect();
        let sequences: Vec<&Sequence> = items.iter().map(|item| &item.sequence).collect();
        match (self.work)(&items, &Batch { sequences: &sequences, threads: self.threads }) {
            Err(Error::DeviceMemory { .. }) if pack.len() > 1 => {
                let tokens: usize = pack.iter().map(|n| self.items[*n].sequence.len()).sum();
                // Reduce the budget, so that the packs of later calls fit into memory.
                self.budget.fetch_min((tokens / 2).max(1), Ordering::Relaxed);
                let (a, b) = pack.split_at(pack.len() / 2);
                let mut pieces = self.pack(a)?;
                pieces.extend(self.pack(b)?);
                Ok(pieces)
            }
            other => Ok(vec![(pack.to_vec(), other?)]),
        }
    }
}

impl Transformer {
    /// Returns the token vectors of each text: the weighted sum of the hidden states after `layers`.
    pub(super) fn tokens(
        &self,
        texts: &[&str],
        options: &TextOptions,
        layers: &[(usize, f32)],
    ) -> Result<Vec<TokenVectors>> {
        let prompt = self.prompt(options.prompt.as_deref())?;
        let inputs: Vec<_> = texts
            .par_iter()
            .enumerate()
            .map(|(n, text)| self.token_input(n, text, &prompt))
            .collect::<Result<_>>()?;
        let (items, outputs): (Vec<Item>, Vec<(Range<usize>, TokenVectors)>) = inputs.into_iter().unzip();
        let (rows, mut outputs): (Vec<Range<usize>>, Vec<TokenVectors>) = outputs.into_iter().unzip();
        let width = self.backend.hidden();
        let of_tokens = |n: usize, states: &[f32]| {
            let wanted = rows[n].start * width..rows[n].end * width;
            Vectors::from_flat(width, states[wanted].to_vec()).unwrap_or_default()
        };
        let vectors = run_states(self.backend.as_ref(), &self.budget, layers, &items, &of_tokens)?;
        for (n, (vectors, output)) in vectors.into_iter().zip(&mut outputs).enumerate() {
            if vectors.flat().iter().any(|v| !v.is_finite()) {
                return Err(not_finite(&format!("the tokens of input {}", n + 1)));
            }
            output.vectors = vectors;
        }
        Ok(outputs)
    }

    /// Applies dense layers, normalization and truncation to pooled vectors. Fails if a value is not finite.
    pub(super) fn finish(&self, pooled: Vectors) -> Result<Vectors> {
        let mut vectors = pooled;
        for step in &self.pipeline.steps {
            match step {
                Step::Normalize => vectors.normalize(),
                Step::Dense(layer) => vectors = dense(layer, &vectors),
            }
        }
        let mut vectors = vectors.truncate(self.dim);
        if self.normalize {
            vectors.normalize();
        }
        let wrong = vectors.rows().position(|row| row.iter().any(|v| !v.is_finite()));
        match wrong {
            None => Ok(vectors),
            Some(n) => Err(not_finite(&format!("input {}", n + 1))),
        }
    }

    /// Tokenizes a text. Returns its item, the range of tokens whose vectors are wanted, and a result without vectors.
    fn token_input(
        &self,
        input: usize,
        text: &str,
        prompt: &Prompt,
    ) -> Result<(Item, (Range<usize>, TokenVectors))> {
        let (tokens, mut ranges) = self.tokenizer.encode_with_ranges(&prompt.before(text))?;
        let rows = prompt.pooled_from.min(tokens.ids.len())..tokens.ids.len();
        ranges.drain(..rows.start);
        // Tokens of the prompt have an empty range.
        let shift = |at: usize| at.saturating_sub(prompt.text.len());
        ranges.iter_mut().for_each(|range| *range = shift(range.start)..shift(range.end));
        let item = Item { input, sequence: Sequence::new(tokens.ids), pools: Vec::new() };
        let vectors = Vectors::new(self.backend.hidden());
        Ok((item, (rows, TokenVectors { vectors, ranges, cut: tokens.cut })))
    }
}

/// Returns the width of the vectors after the dense layers. `pooled` is the width of the pooled vectors. Fails if a
/// dense layer expects a different width.
pub(super) fn width(pipeline: &Pipeline, pooled: usize, name: &str) -> Result<usize> {
    let mut width = pooled;
    for step in &pipeline.steps {
        if let Step::Dense(dense) = step {
            if dense.inputs != width {
                return Err(Error::input(format!(
                        "{name} has a dense layer for vectors of {} dimensions, but this pooling produces {width}",
                        dense.inputs
                    )).with_hint("use the model's own pooling"));
            }
            width = dense.outputs;
        }
    }
    Ok(width)
}

fn not_finite(input: &str) -> Error {
    Error::data(format!("the model computed values that are not finite for {input}"))
        .with_hint("use --precision f32; if that fails too, the model's weights are damaged")
}

fn dense(layer: &Dense, vectors: &Vectors) -> Vectors {
    let output = |x: &[f32], o: usize| {
        let weights = &layer.weight[o * layer.inputs..][..layer.inputs];
        let sum: f64 = weights.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
        let bias = layer.bias.as_ref().map_or(0.0, |b| b[o]);
        layer.activation.apply(sum as f32 + bias)
    };
    let rows = (0..vectors.len()).into_par_iter();
    let flat = rows.flat_map_iter(|n| (0..layer.outputs).map(move |o| output(vectors.row(n), o)));
    Vectors::from_flat(layer.outputs, flat.collect()).unwrap_or_else(|| Vectors::new(layer.outputs))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Backend that returns the id of each token as its state. It runs out of memory if a batch has more than `tokens`
    /// tokens.
    struct Small {
        tokens: usize,
        threads: bool,
    }

    impl Backend for Small {
        fn run(&self, batch: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
            if batch.tokens() > self.tokens {
                return Err(Error::DeviceMemory { device: "test".to_owned() });
            }
            let states: Vec<f32> = batch
                .sequences
                .iter()
                .flat_map(|s| &s.ids)
                .flat_map(|id| [*id as f32, -(*id as f32)])
                .collect();
            layers.iter().for_each(|layer| take(*layer, &states));
            Ok(())
        }
        fn hidden(&self) -> usize {
            2
        }
        fn best_batch(&self) -> usize {
            1000
        }
        fn wants_threads(&self) -> bool {
            self.threads
        }
        fn describe(&self) -> String {
            String::new()
        }
    }

    fn items() -> Vec<Item> {
        (0..40usize)
            .map(|n| {
                let length = n * 7 % 11 + 1;
                let ids = (0..length as u32).map(|i| i + n as u32).collect();
                let part = vec![Part { rows: 0..length, weight: 1.0 }];
                Item { input: n / 2, sequence: Sequence::new(ids), pools: vec![part.clone(), part] }
            })
            .collect()
    }

    fn vectors(tokens: usize, threads: bool) -> Result<(Vectors, usize)> {
        let budget = AtomicUsize::new(1000);
        let reductions = [Reduction::Sum, Reduction::Max];
        let run = run(&Small { tokens, threads }, &budget, &[(1, 1.0)], &reductions, &items(), 20)?;
        Ok((run, budget.into_inner()))
    }

    #[test]
    fn results_do_not_depend_on_the_device_memory() {
        let (whole, budget) = vectors(usize::MAX, false).unwrap();
        assert_eq!(budget, 1000);
        for tokens in [11, 20, 100] {
            let (pieces, budget) = vectors(tokens, false).unwrap();
            assert_eq!(pieces, whole);
            assert!(budget <= tokens.max(11) * 2, "{budget} after {tokens}");
        }
        assert_eq!(vectors(usize::MAX, true).unwrap().0, whole);
        // The vector of an input combines both of its windows.
        let sum: u32 = items()[..2].iter().flat_map(|i| &i.sequence.ids).sum();
        let max = items()[..2].iter().flat_map(|i| i.sequence.ids.clone()).max().unwrap();
        assert_eq!(whole.row(0)[..3], [sum as f32, -(sum as f32), max as f32]);
    }

    #[test]
    fn an_item_that_does_not_fit_alone_is_an_error() {
        assert!(matches!(vectors(10, false), Err(Error::DeviceMemory { .. })));
    }
}
