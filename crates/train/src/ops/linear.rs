//! Linear layer with an optional activation: `activation(x·Wᵀ + b)`, and parallel matrix products on the CPU.
//!
//! Each element of a product is summed by one thread in a fixed order. The result therefore does not depend on the
//! number of threads.

use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};
use gemm::{Parallelism, gemm};
use rayon::prelude::*;
use turnwise_kernels::{network::Activation, training};

use super::{CHUNK, is_ours, numbers, over_rows, values_of};

/// Computes `activation(x·Wᵀ + b)`. `weight` has one row per output.
pub fn linear(x: &Tensor, weight: &Tensor, bias: &Tensor, activation: Option<Activation>) -> Result<Tensor> {
    if is_ours(x) {
        return x.contiguous()?.apply_op3(weight, bias, Linear { activation, before: OnceLock::new() });
    }
    plain(x, weight, bias, activation)
}

/// Computes [`linear()`] with candle's operations, for tensors that the CPU kernels do not support.
pub(super) fn plain(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    activation: Option<Activation>,
) -> Result<Tensor> {
    let y = x.matmul(&weight.t()?)?.broadcast_add(bias)?;
    match activation {
        None => Ok(y),
        Some(Activation::Gelu) => y.gelu_erf(),
        Some(Activation::GeluTanh) => y.gelu(),
        Some(Activation::Relu) => y.relu(),
        Some(Activation::Silu) => y.silu(),
    }
}

/// Writes `x·Wᵀ + b` to `out`.
pub(crate) fn apply(x: &[f32], weight: &[f32], bias: &[f32], out: &mut [f32]) {
    let inputs = weight.len() / bias.len();
    out.par_chunks_mut(bias.len()).for_each(|row| row.copy_from_slice(bias));
    product(Matrix::new(x, inputs), Matrix::new(weight, inputs).transposed(), out, true);
}

/// Writes `activation(before)` to `after`.
pub(crate) fn activate(activation: Activation, before: &[f32], after: &mut [f32]) {
    after.par_chunks_mut(CHUNK).zip(before.par_chunks(CHUNK)).for_each(|(after, before)| {
        training::activate(activation, before, after);
    });
}

/// Writes the gradient with respect to the input of an activation function to `of_before`. `before` is that input.
pub(crate) fn activate_back(activation: Activation, before: &[f32], gradient: &[f32], of_before: &mut [f32]) {
    of_before.par_chunks_mut(CHUNK).zip(before.par_chunks(CHUNK)).zip(gradient.par_chunks(CHUNK)).for_each(
        |((out, before), gradient)| {
            training::activate_backward(activation, before, gradient, out);
        },
    );
}

/// Computes the gradient with respect to the input of a linear layer. Overwrites `of_x`, or adds to it if `add` is
/// true.
pub(crate) fn of_input(gradient: &[f32], weight: &[f32], outputs: usize, of_x: &mut [f32], add: bool) {
    product(Matrix::new(gradient, outputs), Matrix::new(weight, weight.len() / outputs), of_x, add);
}

/// Returns the gradient with respect to the weight matrix.
pub(crate) fn of_weight(gradient: &[f32], x: &[f32], outputs: usize, inputs: usize) -> Vec<f32> {
    let mut of_weight = vec![0.0; outputs * inputs];
    product(Matrix::new(gradient, outputs).transposed(), Matrix::new(x, inputs), &mut of_weight, false);
    of_weight
}

/// Returns the gradient with respect to the bias.
pub(crate) fn of_bias(gradient: &[f32], outputs: usize) -> Vec<f32> {
    over_rows(gradient, outputs, outputs, |_, rows, sum| {
        for row in rows.chunks_exact(outputs) {
            sum.iter_mut().zip(row).for_each(|(s, g)| *s += g);
        }
    })
}

struct Linear {
    activation: Option<Activation>,
    /// Input of the activation. The backward pass needs it, but it is not a tensor of the graph.
    before: OnceLock<Vec<f32>>,
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, weight, bias) =
            (numbers(x, x_layout)?, numbers(weight, weight_layout)?, numbers(bias, bias_layout)?);
        let (outputs, inputs) = weight_layout.shape().dims2()?;
        let (rows, width) = x_layout.shape().dims2()?;
        if width != inputs || bias.len() != outputs {
            bail!("shape mismatch: input {rows}×{width}, weight {outputs}×{inputs}, bias {}", bias.len());
        }
        let mut out = vec![0.0; rows * outputs];
        apply(x, weight, bias, &mut out);
        if let Some(activation) = self.activation {
            let mut after = vec![0.0; out.len()];
            activate(activation, &out, &mut after);
            self.before.set(out).ok();
            out = after;
        }
        Ok((CpuStorage::F32(out), (rows, outputs).into()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let (x_numbers, weight_numbers, gradient) = (values_of(x), values_of(weight), values_of(&gradient));
        let ((outputs, inputs), rows) = (weight.dims2()?, x.dim(0)?);
        let mut gradient = std::borrow::Cow::Borrowed(gradient.get()?);
        if let (Some(activation), Some(before)) = (self.activation, self.before.get()) {
            let mut of_before = vec![0.0; before.len()];
            activate_back(activation, before, &gradient, &mut of_before);
            gradient = of_before.into();
        }
        // Skip gradients that no variable needs.
        let of_x = match x.track_op() {
            false => None,
            true => {
                let mut of_x = vec![0.0; rows * inputs];
                of_input(&gradient, weight_numbers.get()?, outputs, &mut of_x, false);
                Some(Tensor::from_vec(of_x, (rows, inputs), x.device())?)
            }
        };
        let of_weight = match weight.track_op() {
            false => None,
            true => {
                let of_weight = of_weight(&gradient, x_numbers.get()?, outputs, inputs);
                Some(Tensor::from_vec(of_weight, (outputs, inputs), x.device())?)
            }
        };
        let of_bias = match bias.track_op() {
            false => None,
            true => Some(Tensor::from_vec(of_bias(&gradient, outputs), outputs, bias.device())?),
        };
        Ok((of_x, of_weight, of_bias))
    }
}

/// A row-major matrix, or its transpose.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    transposed: bool,
}

impl<'a> Matrix<'a> {
    /// Creates a matrix with `columns` columns.
    pub(crate) fn new(numbers: &'a [f32], columns: usize) -> Self {
        let rows = numbers.len() / columns.max(1);
        assert!(numbers.len() == rows * columns);
        Matrix { numbers, rows, columns, transposed: false }
    }

    /// Returns the transpose.
    pub(crate) fn transposed(self) -> Self {
        Matrix { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }

    /// Returns the column stride and the row stride.
    fn strides(&self) -> (isize, isize) {
        match self.transposed {
            false => (1, self.columns as isize),
            true => (self.rows as isize, 1),
        }
    }
}

/// Computes `out = left · right`, or `out += left · right` if `add` is true.
pub(crate) fn product(left: Matrix, right: Matrix, out: &mut [f32], add: bool) {
    assert!(left.columns == right.rows && out.len() == left.rows * right.columns);
    let ((left_cs, left_rs), (right_cs, right_rs)) = (left.strides(), right.strides());
    let threads = rayon::current_num_threads();
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    // SAFETY: the assertion above checks the sizes, and the strides follow from them.
    unsafe {
        gemm(
            left.rows,
            right.columns,
            left.columns,
            out.as_mut_ptr(),
            1,
            right.columns as isize,
            add,
            left.numbers.as_ptr(),
            left_cs,
            left_rs,
            right.numbers.as_ptr(),
            right_cs,
            right_rs,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}
