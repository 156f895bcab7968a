//! Trainable parameters.

use candle_core::{DType, Device, Tensor, Var};

use crate::device;
use turnwise_core::error::{Error, Result};

/// A named trainable tensor. It is always f32, even if the computation uses a different type.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Name in error messages and checkpoints.
    pub name: String,
    /// candle variable with the current values.
    pub var: Var,
    /// True if weight decay applies: for weights and embeddings, not for biases and layer normalization.
    pub decays: bool,
}

impl Parameter {
    /// Creates a parameter with initial values.
    pub fn new(
        name: impl Into<String>,
        numbers: Vec<f32>,
        shape: &[usize],
        decays: bool,
        on: &Device,
    ) -> Result<Self> {
        let tensor = Tensor::from_vec(numbers, shape, on).map_err(device::error)?;
        Ok(Parameter { name: name.into(), var: Var::from_tensor(&tensor).map_err(device::error)?, decays })
    }

    /// Returns a copy of the values on the CPU.
    pub fn numbers(&self) -> Result<Vec<f32>> {
        let read = || self.var.flatten_all()?.to_dtype(DType::F32)?.to_vec1();
        read().map_err(device::error)
    }

    /// Replaces the values. Returns an error if the number of values is wrong.
    pub fn set(&self, numbers: Vec<f32>) -> Result<()> {
        if numbers.len() != self.var.elem_count() {
            return Err(Error::data(format!(
                "{} values for the parameter `{}`, which has {}",
                numbers.len(),
                self.name,
                self.var.elem_count()
            )));
        }
        let set = || self.var.set(&Tensor::from_vec(numbers, self.var.shape(), self.var.device())?);
        set().map_err(device::error)
    }
}
