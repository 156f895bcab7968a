//! What is trained: named variables.

use candle_core::{DType, Device, Tensor, Var};

use crate::device;
use turnwise_core::error::{Error, Result};

/// A tensor that training changes, in f32 whatever is computed in.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Its name, as errors and checkpoints have it.
    pub name: String,
    /// Its numbers.
    pub var: Var,
    /// Whether weight decay reaches it: weights and tables, but neither summands nor norms.
    pub decays: bool,
}

impl Parameter {
    /// A parameter that begins with these numbers.
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

    /// Its numbers, brought here.
    pub fn numbers(&self) -> Result<Vec<f32>> {
        let read = || self.var.flatten_all()?.to_dtype(DType::F32)?.to_vec1();
        read().map_err(device::error)
    }

    /// Changes its numbers.
    pub fn set(&self, numbers: Vec<f32>) -> Result<()> {
        if numbers.len() != self.var.elem_count() {
            return Err(Error::data(format!(
                "{} numbers for `{}`, which has {}",
                numbers.len(),
                self.name,
                self.var.elem_count()
            )));
        }
        let set = || self.var.set(&Tensor::from_vec(numbers, self.var.shape(), self.var.device())?);
        set().map_err(device::error)
    }
}
