//! CPU inference with turnwise's own kernels, from the crate `turnwise-kernels`.

pub use turnwise_kernels::{CpuEngine, SIMD_VARIABLE, SimdChoice, SimdLevel};

use crate::{Backend, Batch};
use turnwise_core::Result;

impl Backend for CpuEngine {
    fn run(&self, batch: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        CpuEngine::run(self, batch, layers, take)
    }

    fn hidden(&self) -> usize {
        CpuEngine::hidden(self)
    }

    fn layers(&self) -> usize {
        CpuEngine::layers(self)
    }

    fn best_batch(&self) -> usize {
        CpuEngine::best_batch(self)
    }

    fn wants_threads(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        CpuEngine::describe(self)
    }
}
