//! Compares the forward and backward pass of each operation with candle's operations and with finite differences.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Result, Shape, Tensor, Var};
use turnwise_kernels::network::Activation;

use super::{
    Dropout, add_norm,
    attention::{self, Attention},
    drop_of, dropout, linear, norm, pool, values_of,
};
use turnwise_core::random::hash64;
use turnwise_encoder::Part;

/// Returns a tensor of pseudo-random values from -1 to 1.
pub(crate) fn numbers(shape: (usize, usize), seed: u64) -> Tensor {
    let n = shape.0 * shape.1;
    let data: Vec<f32> =
        (0..n as u64).map(|i| (hash64(seed, i) >> 40) as f32 / (1 << 23) as f32 - 1.0).collect();
    Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
}

fn var(t: &Tensor) -> Var {
    Var::from_tensor(t).unwrap()
}

fn flat(t: &Tensor) -> Vec<f32> {
    t.flatten_all().unwrap().to_vec1().unwrap()
}

fn near(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() < 2e-5 * b.abs().max(1.0), "{what} {i}: {a} {b}");
    }
}

/// Compares the value and the gradients of `ours` with those of `plain`. Also compares the gradients with finite
/// differences.
fn check(
    arguments: &[Tensor],
    ours: impl Fn(&[Tensor]) -> Result<Tensor>,
    plain: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let out = |f: &dyn Fn(&[Tensor]) -> Result<Tensor>, at: &[Tensor]| f(at).unwrap();
    let weights = {
        let shape = out(&plain, arguments).dims2().unwrap();
        numbers(shape, 99)
    };
    let loss = |f: &dyn Fn(&[Tensor]) -> Result<Tensor>, at: &[Tensor]| {
        (out(f, at) * &weights).unwrap().sum_all().unwrap()
    };
    near(&flat(&out(&ours, arguments)), &flat(&out(&plain, arguments)), "value");
    let gradients = |f: &dyn Fn(&[Tensor]) -> Result<Tensor>| -> Vec<Vec<f32>> {
        let vars: Vec<Var> = arguments.iter().map(var).collect();
        let tensors: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
        let all = loss(f, &tensors).backward().unwrap();
        tensors.iter().map(|t| flat(all.get(t).unwrap())).collect()
    };
    let (ours, expected) = (gradients(&ours), gradients(&plain));
    for (n, (ours, expected)) in ours.iter().zip(&expected).enumerate() {
        near(ours, expected, &format!("gradient of argument {n}"));
        let start: Vec<f64> = flat(&arguments[n]).into_iter().map(f64::from).collect();
        for i in (0..start.len()).step_by(1 + start.len() / 20) {
            // Compute in f64, so that a small step is not lost to rounding.
            let at = |by: f64| {
                let mut moved = start.clone();
                moved[i] += by;
                let mut all: Vec<Tensor> =
                    arguments.iter().map(|t| t.to_dtype(DType::F64).unwrap()).collect();
                all[n] = Tensor::from_vec(moved, arguments[n].shape(), &Device::Cpu).unwrap();
                let weights = weights.to_dtype(DType::F64).unwrap();
                (plain(&all).unwrap() * weights).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap()
            };
            let difference = (at(1e-5) - at(-1e-5)) / 2e-5;
            assert!(
                (f64::from(ours[i]) - difference).abs() < 2e-5 * difference.abs().max(1.0),
                "argument {n}, number {i}: {} {difference}",
                ours[i]
            );
        }
    }
}

#[test]
fn linear_layers() {
    for activation in [None, Some(Activation::Gelu), Some(Activation::GeluTanh), Some(Activation::Relu)] {
        // Use more rows than one block has, so that several blocks are summed.
        let bias = numbers((1, 9), 3).flatten_all().unwrap();
        let arguments = [numbers((131, 7), 1), numbers((9, 7), 2), bias];
        check(
            &arguments,
            |t| linear(&t[0], &t[1], &t[2], activation),
            |t| linear::plain(&t[0], &t[1], &t[2], activation),
        );
    }
}

#[test]
fn a_trained_weight_has_a_gradient_even_if_the_bias_is_frozen() {
    let x = numbers((5, 7), 1);
    let (weight, bias) = (numbers((9, 7), 2), numbers((1, 9), 3).flatten_all().unwrap());
    let [var_weight, var_bias] = [&weight, &bias].map(|t| Var::from_tensor(t).unwrap());
    let store = linear(&x, &var_weight, &bias, None).unwrap().sum_all().unwrap().backward().unwrap();
    assert!(store.get(&var_weight).is_some());
    let store = linear(&x, &weight, &var_bias, None).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(flat(store.get(&var_bias).unwrap()), [5.0; 9]);
}

#[test]
fn norms_of_sums() {
    for dropped in [None, Some(Dropout::new(0.25, 5))] {
        let arguments = [numbers((131, 20), 1), numbers((131, 20), 2), numbers((2, 20), 3)];
        check(
            &arguments,
            |t| add_norm(&t[0], &t[1], &t[2], 1e-5, dropped),
            |t| norm::plain(&t[0], &t[1], &t[2], 1e-5, dropped),
        );
    }
}

/// Custom operation of candle that calls a forward and a backward function.
struct Ours<F, B> {
    forward: F,
    /// Backward pass: computes the gradient of the input from the input and the gradient of the output.
    back: B,
}

impl<F, B> CustomOp1 for Ours<F, B>
where
    F: Fn(&[f32]) -> Vec<f32> + Send + Sync,
    B: Fn(&[f32], &[f32]) -> Vec<f32> + Send + Sync,
{
    fn name(&self) -> &'static str {
        "ours"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let out = (self.forward)(super::numbers(x, layout)?);
        let (rows, _) = layout.shape().dims2()?;
        let shape = (rows, out.len() / rows).into();
        Ok((CpuStorage::F32(out), shape))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let of_x = (self.back)(values_of(x).get()?, values_of(&gradient).get()?);
        Ok(Some(Tensor::from_vec(of_x, x.shape(), x.device())?))
    }
}

/// Computes attention with the CPU kernels, for two heads of width 4.
fn attended(lengths: &Arc<[usize]>, dropped: Option<Dropout>, x: &Tensor) -> Result<Tensor> {
    let with = Attention { lengths: lengths.clone(), heads: 2, bias: None, dropped };
    let back = with.clone();
    x.apply_op1(Ours {
        forward: move |x: &[f32]| {
            let mut out = vec![0.0; x.len() / 3];
            with.apply(x, 8, &mut out);
            out
        },
        back: move |x: &[f32], gradient: &[f32]| {
            let mut of_x = vec![0.0; x.len()];
            back.backward(x, 8, gradient, &mut of_x, None);
            of_x
        },
    })
}

#[test]
fn attention_stays_within_sequences() {
    let lengths: Arc<[usize]> = vec![3, 1, 7].into();
    for dropped in [None, Some(Dropout::new(0.25, 5))] {
        check(
            &[numbers((11, 24), 1)],
            |t| attended(&lengths, dropped, &t[0]),
            |t| attention::attention(&t[0], &lengths, 2, None, dropped),
        );
    }
    let whole = flat(&attended(&lengths, None, &numbers((11, 24), 1)).unwrap());
    let first = numbers((11, 24), 1).narrow(0, 0, 3).unwrap();
    let alone = flat(&attended(&vec![3].into(), None, &first).unwrap());
    assert_eq!(whole[..24], alone[..]);
}

#[test]
fn pools() {
    let part = |from, to, weight| Part { rows: from..to, weight };
    let sums = vec![vec![part(0, 3, 0.5)], vec![], vec![part(2, 5, 0.25), part(7, 8, -1.0)]];
    check(&[numbers((8, 5), 1)], |t| pool(&t[0], sums.clone()), |t| pool::plain(&t[0], &sums));
}

#[test]
fn dropping() {
    let dropped = Dropout::new(0.4, 8);
    let drops = move |numbers: &[f32]| {
        let mut numbers = numbers.to_vec();
        drop_of(dropped, &mut numbers);
        numbers
    };
    let ours = |t: &[Tensor]| {
        t[0].apply_op1(Ours { forward: drops, back: move |_: &[f32], gradient: &[f32]| drops(gradient) })
    };
    check(&[numbers((70, 300), 1)], ours, |t| dropout(&t[0], Some(dropped)));
    let x = numbers((4, 4), 1);
    assert_eq!(flat(&dropout(&x, None).unwrap()), flat(&x));
}

#[test]
fn linear_layers_do_not_depend_on_the_number_of_threads() {
    let (x, w) = (numbers((517, 96), 1), numbers((130, 96), 2));
    let b = numbers((1, 130), 3).flatten_all().unwrap();
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (x, w, b) = (var(&x), var(&w), var(&b));
            let y = linear(&x, &w, &b, Some(Activation::Gelu)).unwrap();
            let all = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            let of = |v: &Var| flat(all.get(v).unwrap());
            (flat(&y), of(&x), of(&w), of(&b))
        })
    };
    let one = run(1);
    assert!(one == run(2) && one == run(3));
}
