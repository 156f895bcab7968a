//! Gradients of a step: accumulation, norm, and a check of every parameter.

use candle_core::{DType, Device, Tensor, backprop::GradStore};
use rayon::prelude::*;

use crate::{device, model::Parameter, ops::values_of};
use turnwise_core::error::{Error, Result};

/// Gradients in the order of the parameters; `None` for a parameter without a gradient.
#[derive(Debug, Clone)]
pub struct Gradients(Vec<Option<Tensor>>);

impl Gradients {
    /// Collects the gradients, one per parameter; `None` for a parameter that the loss does not depend on.
    pub fn of(each: impl Iterator<Item = Option<Tensor>>) -> Self {
        Gradients(each.collect())
    }

    /// Moves the gradients of the parameters out of candle's store.
    pub fn take(store: &mut GradStore, parameters: &[Parameter]) -> Self {
        Gradients(parameters.iter().map(|p| store.remove(&p.var)).collect())
    }

    /// Copies the gradients to a device.
    pub fn on(self, device: &Device) -> candle_core::Result<Self> {
        let copy = |gradient: Option<Tensor>| gradient.map(|g| g.to_device(device)).transpose();
        Ok(Gradients(self.0.into_iter().map(copy).collect::<candle_core::Result<_>>()?))
    }

    /// Adds `more` to these gradients, parameter by parameter. `more` may have gradients for only the first parameters.
    pub fn add(&mut self, more: Gradients) -> Result<()> {
        for (sum, more) in self.0.iter_mut().zip(more.0) {
            *sum = match (sum.take(), more) {
                (Some(a), Some(b)) => Some((a + b).map_err(device::error)?),
                (a, b) => a.or(b),
            };
        }
        Ok(())
    }

    /// Iterates over the gradients, in the order of the parameters.
    pub fn each(&self) -> impl Iterator<Item = Option<&Tensor>> {
        self.0.iter().map(Option::as_ref)
    }

    /// Returns the L2 norm of all gradients, taken as one vector.
    pub fn norm(&self) -> Result<f64> {
        let mut sum = 0.0;
        for gradient in self.each().flatten() {
            sum += squares(gradient).map_err(device::error)?;
        }
        Ok(sum.sqrt())
    }

    /// Returns an error if a parameter has no gradient, or a gradient that is zero or not finite.
    ///
    /// Some operations of candle have no backward pass and report no error. Training would then look fine, but some
    /// parameters would never change.
    pub fn audit(&self, parameters: &[Parameter]) -> Result<()> {
        let mut bad = Vec::new();
        for (parameter, gradient) in parameters.iter().zip(&self.0) {
            let why = match gradient {
                None => "no gradient",
                Some(gradient) => match squares(gradient).map_err(device::error)? {
                    0.0 => "the gradient is zero",
                    sum if !sum.is_finite() => "the gradient is not finite",
                    _ => continue,
                },
            };
            bad.push(format!("{} ({why})", parameter.name));
        }
        let Some(first) = bad.first() else { return Ok(()) };
        let rest = match bad.len() {
            1 => String::new(),
            more => format!(" and {} more of {} parameters", more - 1, parameters.len()),
        };
        Err(Error::data(format!("training stopped before the first update: the loss cannot train {first}{rest}"))
            .with_hint("the first step checks the gradient of every parameter; check the data of the first batch and the training settings"))
    }
}

/// Returns the sum of the squared elements, computed in f64 on the CPU and in f32 on other devices.
fn squares(tensor: &Tensor) -> candle_core::Result<f64> {
    if !tensor.device().is_cpu() {
        return Ok(f64::from(tensor.to_dtype(DType::F32)?.sqr()?.sum_all()?.to_scalar::<f32>()?));
    }
    let tensor = tensor.contiguous()?;
    let numbers = values_of(&tensor);
    // The blocks have a fixed size, so that the sum does not depend on the number of threads.
    let blocks: Vec<f64> = numbers
        .get()?
        .par_chunks(1 << 14)
        .map(|block| block.iter().map(|n| f64::from(*n) * f64::from(*n)).sum())
        .collect();
    Ok(blocks.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &str, numbers: [f32; 2]) -> Parameter {
        Parameter::new(name, numbers.to_vec(), &[2], true, &Device::Cpu).unwrap()
    }

    #[test]
    fn the_audit_names_parameters_without_a_gradient() {
        let parameters = [parameter("a", [1.0, 2.0]), parameter("b", [3.0, 4.0])];
        let (a, b) = (parameters[0].var.as_tensor(), parameters[1].var.as_tensor());
        let audit = |loss: Tensor| {
            let mut store = loss.sum_all().unwrap().backward().unwrap();
            Gradients::take(&mut store, &parameters).audit(&parameters)
        };
        assert!(audit((a * b).unwrap()).is_ok());
        let error = audit(a.sqr().unwrap()).unwrap_err();
        assert!(error.to_string().contains("b (no gradient)"), "{error}");
        let error = audit((a + (b * 0.0).unwrap()).unwrap()).unwrap_err();
        assert!(error.to_string().contains("b ("), "{error}");
        let error = audit((a * (b / 0.0).unwrap()).unwrap()).unwrap_err();
        assert!(error.to_string().contains("not finite") && error.to_string().contains("1 more"), "{error}");
    }

    #[test]
    fn gradients_accumulate() {
        let parameters = [parameter("a", [3.0, 4.0])];
        let of = |factor: f64| {
            let loss = (parameters[0].var.as_tensor() * factor).unwrap().sum_all().unwrap();
            Gradients::take(&mut loss.backward().unwrap(), &parameters)
        };
        let mut sum = of(1.0);
        sum.add(of(2.0)).unwrap();
        assert!((sum.norm().unwrap() - 18f64.sqrt()).abs() < 1e-9);
    }
}
