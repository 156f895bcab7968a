//! Dropout masks as tensors, for operations that are composed of candle's operations. The masks are equal on all
//! devices.

use candle_core::{Device, Result, Shape, Tensor};
use rayon::prelude::*;

use super::Dropout;

/// Returns the dropout factor of every element of a tensor with this shape.
pub(super) fn mask(dropout: Dropout, shape: &Shape, device: &Device) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        return gpu::mask(dropout, shape, device);
    }
    let factors: Vec<f32> =
        (0..shape.elem_count() as u32).into_par_iter().map(|n| dropout.factor(n)).collect();
    Tensor::from_vec(factors, shape, device)
}

/// Returns the dropout factors of attention weights with the shape (sequences, heads, `longest`, `longest`), where
/// `longest` is the greatest of `lengths`. Factors of padding are 0.
///
/// Each sequence has its own mask, which does not depend on the amount of padding.
pub(super) fn attention_mask(
    dropout: Dropout,
    lengths: &[usize],
    heads: usize,
    device: &Device,
) -> Result<Tensor> {
    let (count, longest) = (lengths.len(), lengths.iter().copied().max().unwrap_or(0));
    let shape = (count, heads, longest, longest);
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        return gpu::attention_mask(dropout, lengths, heads, &shape.into(), device);
    }
    let mut factors = vec![0f32; count * heads * longest * longest];
    let blocks = factors.par_chunks_mut((heads * longest * longest).max(1));
    blocks.zip(lengths).enumerate().for_each(|(n, (factors, length))| {
        let dropout = dropout.of(n as u32);
        for row in 0..heads * length {
            let (head, i) = (row / length, row % length);
            for j in 0..*length {
                factors[(head * longest + i) * longest + j] = dropout.factor((row * length + j) as u32);
            }
        }
    });
    Tensor::from_vec(factors, shape, device)
}

/// The masks on NVIDIA GPUs, computed by a kernel that is compiled at the first use.
#[cfg(feature = "cuda")]
mod gpu {
    use std::sync::OnceLock;

    use candle_core::{
        CpuStorage, CudaStorage, DType, Device, InplaceOp2, Layout, Result, Shape, Tensor,
        cuda_backend::cudarc::{
            driver::{LaunchConfig, PushKernelArg},
            nvrtc::compile_ptx,
        },
    };

    use crate::ops::Dropout;

    /// CUDA kernel that computes `Dropout::factor` for every element. `sequences` has three numbers per sequence: its
    /// length, and the two parts of its key. If `longest` is 0, there is one sequence, and elements are numbered in
    /// order.
    const SOURCE: &str = r#"
__device__ unsigned mix(unsigned x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

extern "C" __global__ void turnwise_dropout(float *out, const unsigned *sequences, unsigned long long count,
                                            unsigned heads, unsigned longest, unsigned threshold, float scale) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const unsigned *sequence = sequences;
        unsigned index = (unsigned)i;
        if (longest) {
            unsigned long long row = i / longest;
            unsigned column = i % longest, query = row % longest, head = (row / longest) % heads;
            sequence += 3 * (row / longest / heads);
            unsigned length = sequence[0];
            if (query >= length || column >= length) {
                out[i] = 0.0f;
                continue;
            }
            index = (head * length + query) * length + column;
        }
        out[i] = mix(mix(index ^ sequence[1]) + sequence[2]) >= threshold ? scale : 0.0f;
    }
}
"#;

    pub(super) fn mask(dropout: Dropout, shape: &Shape, device: &Device) -> Result<Tensor> {
        let (key, ..) = dropout.parts();
        filled(dropout, vec![0, key[0], key[1]], (1, 0), shape, device)
    }

    pub(super) fn attention_mask(
        dropout: Dropout,
        lengths: &[usize],
        heads: usize,
        shape: &Shape,
        device: &Device,
    ) -> Result<Tensor> {
        let sequence = |(n, length): (usize, &usize)| {
            let (key, ..) = dropout.of(n as u32).parts();
            [*length as u32, key[0], key[1]]
        };
        let sequences = lengths.iter().enumerate().flat_map(sequence).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        filled(dropout, sequences, (heads as u32, longest as u32), shape, device)
    }

    fn filled(
        dropout: Dropout,
        sequences: Vec<u32>,
        (heads, longest): (u32, u32),
        shape: &Shape,
        device: &Device,
    ) -> Result<Tensor> {
        let out = Tensor::zeros(shape, DType::F32, device)?;
        let length = sequences.len();
        let sequences = Tensor::from_vec(sequences, length, device)?;
        out.inplace_op2(&sequences, &Mask { dropout, heads, longest })?;
        Ok(out)
    }

    /// In-place operation of candle that writes the mask to a tensor.
    struct Mask {
        dropout: Dropout,
        heads: u32,
        longest: u32,
    }

    impl InplaceOp2 for Mask {
        fn name(&self) -> &'static str {
            "dropout mask"
        }

        fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<()> {
            candle_core::bail!("{} is supported only on a GPU", self.name())
        }

        fn cuda_fwd(
            &self,
            out: &mut CudaStorage,
            _: &Layout,
            sequences: &CudaStorage,
            _: &Layout,
        ) -> Result<()> {
            let device = out.device.clone();
            let function = device.get_or_load_custom_func("turnwise_dropout", "turnwise_dropout", ptx()?)?;
            let (_, threshold, scale) = self.dropout.parts();
            let (out, sequences) = (out.as_cuda_slice_mut::<f32>()?, sequences.as_cuda_slice::<u32>()?);
            let count = out.len() as u64;
            let launch = LaunchConfig::for_num_elems(count.min(1 << 22) as u32);
            let mut builder = function.builder();
            builder.arg(out).arg(sequences).arg(&count).arg(&self.heads).arg(&self.longest);
            builder.arg(&threshold).arg(&scale);
            // SAFETY: the arguments have the types of the kernel's parameters, and the kernel writes only the `count`
            // elements of `out`.
            unsafe { builder.launch(launch) }.map_err(candle_core::Error::wrap)?;
            Ok(())
        }
    }

    /// Returns the compiled kernel.
    fn ptx() -> Result<&'static str> {
        static PTX: OnceLock<std::result::Result<String, String>> = OnceLock::new();
        let compile = || compile_ptx(SOURCE).map(|ptx| ptx.to_src()).map_err(|e| e.to_string());
        PTX.get_or_init(compile).as_deref().map_err(|e| candle_core::Error::Msg(e.clone()))
    }
}
