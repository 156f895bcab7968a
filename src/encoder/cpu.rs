//! Our own inference on the CPU, a crate of its own, as one of the engines.

pub use turnwise_kernels::{CpuEngine, SIMD_VARIABLE, SimdChoice, SimdLevel};

use crate::{
    encoder::{Backend, Batch},
    error::{Error, Result},
};

impl Backend for CpuEngine {
    fn run(&self, batch: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        Ok(CpuEngine::run(self, batch, layers, take)?)
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

impl From<turnwise_kernels::Error> for Error {
    fn from(e: turnwise_kernels::Error) -> Self {
        match e {
            turnwise_kernels::Error::Input { message, hint } => Error::Input { message, hint },
            turnwise_kernels::Error::UnknownName { kind, name, known } => {
                Error::unknown_name(kind, &name, known)
            }
            turnwise_kernels::Error::Data(message) => Error::data(message),
            turnwise_kernels::Error::Internal(message) => Error::Internal(message.to_owned()),
        }
    }
}
