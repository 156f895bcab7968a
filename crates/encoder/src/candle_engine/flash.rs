//! Attention over sequences that lie end to end, without padding, by FlashAttention's kernels.

use candle_core::{DType, Device, Result, Tensor};

use super::{layout::Packed, staging::Sent};

/// The longest head that is given to them.
const MAX_HEAD: usize = 256;

/// Whether the kernels are made for this.
pub(super) fn takes(device: &Device, dtype: DType, head: usize) -> bool {
    device.is_cuda()
        && matches!(dtype, DType::F16 | DType::BF16)
        && head.is_multiple_of(8)
        && head <= MAX_HEAD
}

/// `qkv` holds query, key and value side by side, one row a token; the query is scaled already.
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
