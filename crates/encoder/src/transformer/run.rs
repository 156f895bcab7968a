//! Items through the network: in packs, on all threads where the network runs on the CPU, and in smaller packs where
//! a device has no memory for large ones.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::item::{Item, packs};
use crate::{Backend, Batch, Part, Pool, Reduction, Sequence, Vectors, Wanted};
use turnwise_core::error::{Error, Result};

/// The pooled vectors of `inputs` inputs, pools side by side.
pub(super) fn run(
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
        backend.pool(batch, &Wanted { layers, pools: &pools })
    })?;
    let mut vectors = Vectors::zeros(inputs, width * reductions.len());
    for (p, reduction) in reductions.iter().enumerate() {
        let columns = p * width..(p + 1) * width;
        if *reduction == Reduction::Max {
            (0..inputs).for_each(|n| vectors.row_mut(n)[columns.clone()].fill(f32::NEG_INFINITY));
        }
    }
    // In the order of the items, so that sums over windows do not depend on which pack was done first.
    let mut place = vec![(0, 0); items.len()];
    for (r, (pack, _)) in results.iter().enumerate() {
        pack.iter().enumerate().for_each(|(row, n)| place[*n] = (r, row));
    }
    for (item, (r, row)) in items.iter().zip(place).filter(|(item, _)| !item.sequence.is_empty()) {
        for (p, reduction) in reductions.iter().enumerate() {
            let from = results[r].1[p].row(row);
            let to = &mut vectors.row_mut(item.input)[p * width..(p + 1) * width];
            match reduction {
                Reduction::Sum => to.iter_mut().zip(from).for_each(|(t, f)| *t += f),
                Reduction::Max => to.iter_mut().zip(from).for_each(|(t, f)| *t = t.max(*f)),
            }
        }
    }
    // An input without any token has no maximum; like a sum over nothing, its vector is all zeros.
    vectors.replace(f32::NEG_INFINITY, 0.0);
    Ok(vectors)
}

/// What is done with the items of a pack.
pub(super) type Work<'a, T> = dyn Fn(&[&Item], &Batch) -> Result<T> + Sync + 'a;

/// The items that went through together, by number, and what became of them.
pub(super) type Piece<T> = (Vec<usize>, T);

/// Does some work with all items that have tokens, in packs.
pub(super) fn in_packs<T: Send>(
    backend: &dyn Backend,
    budget: &AtomicUsize,
    items: &[Item],
    work: &Work<'_, T>,
) -> Result<Vec<Piece<T>>> {
    let threads = if backend.wants_threads() { rayon::current_num_threads() } else { 1 };
    let packs = packs(items, pack_tokens(items, budget.load(Ordering::Relaxed), threads));
    // Threads for which there is no pack help with those of others: a single query is on all of them.
    let each = (threads / packs.len().max(1)).max(1);
    let job = Job { budget, items, threads: each, work };
    let pieces: Vec<Vec<Piece<T>>> = match threads > 1 {
        true => packs.par_iter().map(|pack| job.pack(pack)).collect::<Result<_>>()?,
        false => packs.iter().map(|pack| job.pack(pack)).collect::<Result<_>>()?,
    };
    Ok(pieces.into_iter().flatten().collect())
}

/// How many tokens go into a pack. Small ones keep all threads busy to the end; a device takes what it can.
fn pack_tokens(items: &[Item], budget: usize, threads: usize) -> usize {
    let tokens: usize = items.iter().map(|i| i.sequence.len()).sum();
    match threads {
        1 => budget,
        _ => budget.min(tokens.div_ceil(threads).max(32)),
    }
}

struct Job<'a, T> {
    budget: &'a AtomicUsize,
    items: &'a [Item],
    /// How many threads may share a pack.
    threads: usize,
    work: &'a Work<'a, T>,
}

impl<T> Job<'_, T> {
    /// What becomes of a pack, in pieces: one, or more where the device's memory asks for it.
    fn pack(&self, pack: &[usize]) -> Result<Vec<Piece<T>>> {
        let items: Vec<&Item> = pack.iter().map(|n| &self.items[*n]).collect();
        let sequences: Vec<&Sequence> = items.iter().map(|item| &item.sequence).collect();
        match (self.work)(&items, &Batch { sequences: &sequences, threads: self.threads }) {
            Err(Error::DeviceMemory { .. }) if pack.len() > 1 => {
                let tokens: usize = pack.iter().map(|n| self.items[*n].sequence.len()).sum();
                // Later packs begin with what fitted now.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives each token its id as its state, and has memory for so many tokens.
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
        fn layers(&self) -> usize {
            1
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
    fn a_small_device_gives_what_a_large_one_gives() {
        let (whole, budget) = vectors(usize::MAX, false).unwrap();
        assert_eq!(budget, 1000);
        for tokens in [11, 20, 100] {
            let (pieces, budget) = vectors(tokens, false).unwrap();
            assert_eq!(pieces, whole);
            assert!(budget <= tokens.max(11) * 2, "{budget} after {tokens}");
        }
        assert_eq!(vectors(usize::MAX, true).unwrap().0, whole);
        // Both windows of an input are in its vector.
        let sum: u32 = items()[..2].iter().flat_map(|i| &i.sequence.ids).sum();
        let max = items()[..2].iter().flat_map(|i| i.sequence.ids.clone()).max().unwrap();
        assert_eq!(whole.row(0)[..3], [sum as f32, -(sum as f32), max as f32]);
    }

    #[test]
    fn what_fits_not_even_alone_is_an_error() {
        assert!(matches!(vectors(10, false), Err(Error::DeviceMemory { .. })));
    }
}
