//! Adapter that builds and searches graphs of the crate hnsw_rs, for comparison. The graphs are not quantized.
//!
//! The adapter has its own distance function. The distance function of hnsw_rs aborts the process if rounding makes an
//! inner product exceed 1.

use std::{cell::RefCell, path::Path};

use hnsw_rs::{anndists::dist::distances::Distance, api::AnnT, hnswio::HnswIo, prelude::Hnsw};
use turnwise_nearest::BuildOptions;

/// Cosine distance of unit vectors: 1 minus their inner product, at least 0.
#[derive(Clone, Copy)]
struct Apart;

impl Distance<f32> for Apart {
    fn eval(&self, a: &[f32], b: &[f32]) -> f32 {
        thread_local!(static OUT: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) });
        OUT.with_borrow_mut(|out| {
            turnwise_nearest::products(a, b, a.len(), out);
            (1.0 - out[0]).max(0.0)
        })
    }
}

pub struct Peer<'a> {
    graph: Hnsw<'a, f32, Apart>,
}

/// Opens the files that the function returned by `build` has written.
pub fn open(file: &Path) -> HnswIo {
    HnswIo::new(file.parent().unwrap(), file.file_name().unwrap().to_str().unwrap())
}

/// Builds a graph on one thread. The returned function writes the graph to files next to the given path.
///
/// The returned function also writes an empty file at the path itself, to mark the graph as built.
pub fn build(base: &[f32], dim: usize, options: &BuildOptions) -> impl FnOnce(&Path) {
    let graph: Hnsw<'_, f32, Apart> = Hnsw::new(options.m, base.len() / dim, 16, options.ef, Apart);
    for (row, vector) in base.chunks_exact(dim).enumerate() {
        graph.insert((vector, row));
    }
    move |file| {
        graph.file_dump(file.parent().unwrap(), file.file_name().unwrap().to_str().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
    }
}

impl<'a> Peer<'a> {
    pub fn new(files: &'a HnswIo) -> Self {
        Peer { graph: files.load_hnsw_with_dist(Apart).unwrap() }
    }

    /// Returns the `k` nearest rows and their inner products with the query, nearest first.
    pub fn search(&self, query: &[f32], k: usize, ef: usize) -> Vec<(u32, f32)> {
        let found = self.graph.search(query, k, ef);
        found.into_iter().map(|hit| (hit.d_id as u32, 1.0 - hit.distance)).collect()
    }
}
