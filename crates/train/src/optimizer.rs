//! AdamW optimizer and learning rate schedules. The state of the optimizer can be saved and restored.

use std::{cell::RefCell, f64::consts::PI};

use candle_core::{CpuStorage, DType, InplaceOp1, Layout, Tensor, bail};
use rayon::prelude::*;
use turnwise_kernels::training;

use super::{device, gradients::Gradients, model::Parameter, ops::values_of};
use turnwise_core::{
    error::{Error, Result},
    named_enum,
};

/// Settings of the optimizer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Decay rate of the first moment.
    pub beta1: f32,
    /// Decay rate of the second moment.
    pub beta2: f32,
    /// Term added to the denominator for numerical stability.
    pub epsilon: f32,
    /// Weight decay. It is multiplied by the learning rate (decoupled weight decay).
    pub decay: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decay: 0.01 }
    }
}

/// AdamW optimizer with the step count and the moments of each parameter.
pub struct AdamW {
    settings: Settings,
    steps: u64,
    moments: Vec<Moments>,
}

/// Moments of one parameter.
struct Moments {
    /// First moment: exponential moving average of the gradient.
    mean: Tensor,
    /// Second moment: exponential moving average of the squared gradient.
    square: Tensor,
}

/// Number of weights per parallel task.
const CHUNK: usize = 1 << 14;

impl AdamW {
    /// Creates an optimizer with zero moments.
    pub fn new(settings: Settings, parameters: &[Parameter]) -> Result<Self> {
        let zeros = |p: &Parameter| {
            let zeros = || Tensor::zeros(p.var.shape(), DType::F32, p.var.device());
            Ok(Moments { mean: zeros()?, square: zeros()? })
        };
        let moments: candle_core::Result<Vec<Moments>> = parameters.iter().map(zeros).collect();
        Ok(AdamW { settings, steps: 0, moments: moments.map_err(device::error)? })
    }

    /// Number of steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Takes one step with the learning rate `rate` times the factor of each parameter. Multiplies the gradients by
    /// `scale` first.
    pub fn step(
        &mut self,
        parameters: &[Parameter],
        gradients: &Gradients,
        rate: f64,
        scale: f64,
    ) -> Result<()> {
        self.steps += 1;
        let Settings { beta1, beta2, epsilon, decay } = self.settings;
        for ((parameter, gradient), moments) in parameters.iter().zip(gradients.each()).zip(&self.moments) {
            let Some(gradient) = gradient else { continue };
            let with = training::AdamW {
                rate: (rate * parameter.rate) as f32,
                beta1,
                beta2,
                epsilon,
                decay: if parameter.decays { decay } else { 0.0 },
                step: self.steps,
                scale: scale as f32,
            };
            let step = match parameter.var.device().is_cpu() {
                true => moments.step(&parameter.var, gradient, with),
                false => moments.plain(&parameter.var, gradient, with),
            };
            step.map_err(device::error)?;
        }
        Ok(())
    }

    /// Returns the first and the second moment of each parameter, to save them in a checkpoint.
    pub fn state(&self) -> Result<Vec<[Vec<f32>; 2]>> {
        let read = |t: &Tensor| t.flatten_all()?.to_vec1();
        let both = |m: &Moments| Ok([read(&m.mean)?, read(&m.square)?]);
        let all: candle_core::Result<_> = self.moments.iter().map(both).collect();
        all.map_err(device::error)
    }

    /// Restores the step count and the moments from a checkpoint. Returns an error if the moments do not fit the model.
    pub fn restore(&mut self, steps: u64, state: Vec<[Vec<f32>; 2]>) -> Result<()> {
        if state.len() != self.moments.len() {
            return Err(Error::data(format!(
                "the optimizer state has {} parameters, but the model has {}",
                state.len(),
                self.moments.len()
            )));
        }
        for (moments, [mean, square]) in self.moments.iter_mut().zip(state) {
            let tensor =
                |numbers: Vec<f32>, like: &Tensor| Tensor::from_vec(numbers, like.shape(), like.device());
            moments.mean = tensor(mean, &moments.mean).map_err(device::error)?;
            moments.square = tensor(square, &moments.square).map_err(device::error)?;
        }
        self.steps = steps;
        Ok(())
    }
}

impl Moments {
    /// Updates the weights and the moments in place, on the CPU.
    fn step(&self, weights: &Tensor, gradient: &Tensor, with: training::AdamW) -> candle_core::Result<()> {
        let gradient = gradient.contiguous()?;
        let gradient = values_of(&gradient);
        let gradient = gradient.get()?;
        let change =
            |tensor: &Tensor, f: &mut dyn FnMut(&mut [f32])| tensor.inplace_op1(&Change(RefCell::new(f)));
        change(weights, &mut |weights| {
            change(&self.mean, &mut |mean| {
                change(&self.square, &mut |square| {
                    let parts = weights
                        .par_chunks_mut(CHUNK)
                        .zip(gradient.par_chunks(CHUNK))
                        .zip(mean.par_chunks_mut(CHUNK))
                        .zip(square.par_chunks_mut(CHUNK));
                    parts.for_each(|(((w, g), m), s)| training::adamw(&with, w, g, m, s));
                })
                .ok();
            })
            .ok();
        })
    }

    /// Updates the weights and the moments with candle's tensor operations, for devices other than the CPU.
    fn plain(&self, weights: &Tensor, gradient: &Tensor, with: training::AdamW) -> candle_core::Result<()> {
        let f = f64::from;
        let gradient = (gradient.to_dtype(DType::F32)? * f(with.scale))?;
        let mean = ((&self.mean * f(with.beta1))? + (&gradient * (1.0 - f(with.beta1)))?)?;
        let square = ((&self.square * f(with.beta2))? + (gradient.sqr()? * (1.0 - f(with.beta2)))?)?;
        let steps = i32::try_from(with.step).unwrap_or(i32::MAX);
        let bias_correction = |beta: f32| 1.0 - f(beta).powi(steps);
        let denominator = ((&square / bias_correction(with.beta2))?.sqrt()? + f(with.epsilon))?;
        let change = ((&mean / denominator)? * (f(with.rate) / bias_correction(with.beta1)))?;
        let kept = (weights * (1.0 - f(with.rate) * f(with.decay)))?;
        put(weights, &(kept - change)?)?;
        put(&self.mean, &mean)?;
        put(&self.square, &square)
    }
}

/// Overwrites the elements of `to` with those of `from`.
fn put(to: &Tensor, from: &Tensor) -> candle_core::Result<()> {
    to.slice_set(&from.contiguous()?, 0, 0)
}

/// Function that changes the elements of a tensor.
type ChangeFn<'f> = dyn FnMut(&mut [f32]) + 'f;

/// Candle operation that changes the elements of a CPU tensor in place.
struct Change<'f>(RefCell<&'f mut ChangeFn<'f>>);

impl InplaceOp1 for Change<'_> {
    fn name(&self) -> &'static str {
        "change"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let Some((from, to)) = layout.contiguous_offsets() else { bail!("the tensor is not contiguous") };
        match storage {
            CpuStorage::F32(numbers) => (self.0.borrow_mut())(&mut numbers[from..to]),
            _ => bail!("the tensor is not f32"),
        }
        Ok(())
    }
}

named_enum! {
    /// Shape of the schedule after the warm-up.
    pub enum Shape: "schedule" {
        /// Constant learning rate.
        Constant = "constant",
        /// Linear decay to 0.
        #[default]
        Linear = "linear",
        /// Cosine decay to 0.
        Cosine = "cosine",
    }
}

/// Learning rate schedule over a known number of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Shape after the warm-up.
    pub shape: Shape,
    /// Number of warm-up steps, in which the rate grows linearly.
    pub warm_up: u64,
    /// Total number of steps.
    pub steps: u64,
}

impl Schedule {
    /// Returns the factor for the learning rate in a step. The first step is 0. The factor is above 0 for every step
    /// below `steps`.
    pub fn factor(&self, step: u64) -> f64 {
        if step < self.warm_up {
            return (step + 1) as f64 / (self.warm_up + 1) as f64;
        }
        let length = self.steps.saturating_sub(self.warm_up).max(1) as f64;
        let progress = ((step - self.warm_up) as f64 / length).min(1.0);
        match self.shape {
            Shape::Constant => 1.0,
            Shape::Linear => 1.0 - progress,
            Shape::Cosine => 0.5 * (1.0 + (PI * progress).cos()),
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    #[test]
    fn both_implementations_agree_and_a_restored_state_continues() {
        let start: Vec<f32> = (0..40_000).map(|n| (n as f32 * 0.37).sin()).collect();
        let parameter = |decays, factor| {
            let parameter = Parameter::new("w", start.clone(), &[200, 200], decays, &Device::Cpu);
            parameter.unwrap().with_rate(factor)
        };
        let gradient = |p: &Parameter| {
            let loss = p.var.as_tensor().sqr().unwrap().sqr().unwrap().sum_all().unwrap();
            Gradients::take(&mut loss.backward().unwrap(), std::slice::from_ref(p))
        };
        for (decays, factor) in [(true, 1.0), (false, 4.0)] {
            let (a, b) = ([parameter(decays, factor)], [parameter(decays, factor)]);
            let mut ours = AdamW::new(Settings::default(), &a).unwrap();
            let plain = AdamW::new(Settings::default(), &b).unwrap();
            for step in 1..=4 {
                ours.step(&a, &gradient(&a[0]), 0.01 / factor, 0.5).unwrap();
                let with = training::AdamW {
                    rate: 0.01,
                    beta1: 0.9,
                    beta2: 0.999,
                    epsilon: 1e-8,
                    decay: if decays { 0.01 } else { 0.0 },
                    step,
                    scale: 0.5,
                };
                let g = gradient(&b[0]);
                plain.moments[0].plain(&b[0].var, g.each().next().unwrap().unwrap(), with).unwrap();
            }
            let (x, y) = (a[0].numbers().unwrap(), b[0].numbers().unwrap());
            assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-6));
            assert!(x != start);
            // A restored optimizer continues with identical bits.
            let c = [Parameter {
                var: Var::from_tensor(&a[0].var.as_tensor().copy().unwrap()).unwrap(),
                ..a[0].clone()
            }];
            let mut again = AdamW::new(Settings::default(), &c).unwrap();
            again.restore(ours.steps(), ours.state().unwrap()).unwrap();
            ours.step(&a, &gradient(&a[0]), 0.01, 1.0).unwrap();
            again.step(&c, &gradient(&c[0]), 0.01, 1.0).unwrap();
            assert_eq!(a[0].numbers().unwrap(), c[0].numbers().unwrap());
        }
    }

    #[test]
    fn factors_of_each_shape() {
        let of = |shape| {
            let schedule = Schedule { shape, warm_up: 3, steps: 7 };
            (0..7).map(|step| (schedule.factor(step) * 1000.0).round() / 1000.0).collect::<Vec<_>>()
        };
        assert_eq!(of(Shape::Constant), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(of(Shape::Linear), [0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25]);
        assert_eq!(of(Shape::Cosine), [0.25, 0.5, 0.75, 1.0, 0.854, 0.5, 0.146]);
        assert_eq!(Schedule { shape: Shape::Linear, warm_up: 0, steps: 1 }.factor(0), 1.0);
        assert!("step".parse::<Shape>().is_err());
    }
}
