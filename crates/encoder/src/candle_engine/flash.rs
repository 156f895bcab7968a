//! Attention without padding, with FlashAttention kernels.

use candle_core::{DType, Device, Result, Tensor};

use crate::candle_engine::{layout::Packed, staging::Sent};

/// Maximum head size that the kernels support.
const MAX_HEAD: usize = 256;

/// Returns true if the kernels support this device, data type and head size.
pub(super) fn supports(device: &Device, dtype: DType, head: usize) -> bool {
    device.is_cuda()
        && matches!(dtype, DType::F16 | DType::BF16)
        && head.is_multiple_of(8)
        && head <= MAX_HEAD
}

/// Computes attention for all heads. `qkv` has one row per token: query, key and value, concatenated. The query must
/// already be scaled. Returns one row per token.
pub(super) fn attention(qkv: &Tensor, heads: usize, packed: &Packed, sent: &Sent) -> Result<Tensor> {
    let (tokens, columns) = qkv.dims2()?;
    let qkv = qkv.reshape((tokens, 3, heads, columns / 3 / heads))?;
    let part = |n: usize| qkv.narrow(1, n, 1)?.squeeze(1);
    let bounds = sent.indices(&packed.bounds)?;
    let longest = packed.longest;
    let (q, k, v) = (part(0)?, part(1)?, part(2)?);
    candle_flash_attn::flash_attn_varlen(&q, &k, &v, &bounds, &bounds, longest, longest, 1.0, false)?
        .reshape((tokens, columns / 3))
}
