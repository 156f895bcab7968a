//! Self-attention within one sequence, head by head.

mod floats;
mod squares;

use std::ops::Range;

use super::{
    buffer::Buffer,
    pack::GRAIN,
    simd::{Simd, Squared},
    spread::{Shared, Team},
};

/// Attention heads of a layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    /// Number of heads.
    pub count: usize,
    /// Padded width of a head, a multiple of [`GRAIN`].
    pub stride: usize,
    /// True if attention is computed in bf16 with squares (AMX tiles). Otherwise it is computed in f32 with vectors.
    pub squares: bool,
}

impl Heads {
    /// Returns true if attention uses squares. `weights` is the kind of squares that the weights use. In f32
    /// precision, attention does not use squares.
    pub fn in_squares(weights: Option<Squared>) -> bool {
        matches!(weights, Some(Squared::Bf16 | Squared::Bytes))
    }

    /// Returns the padded width of all heads.
    pub fn width(self) -> usize {
        self.count * self.stride
    }
}

/// Buffers for the attention of one head.
#[derive(Default)]
pub(super) struct HeadWorkspace {
    queries: Buffer,
    keys: Buffer,
    values: Buffer,
    scores: Buffer,
    weights: Buffer,
    factors: Vec<f32>,
}

/// Number of rows after the last token that must be readable. Keys are transposed in whole blocks; the extra rows are
/// read but not used.
pub(super) const SPARE_ROWS: usize = GRAIN;

/// Computes self-attention over a sequence of `tokens` tokens, and writes the attention output of all heads to the
/// rows of `context`. The rows of `projected` hold the scaled queries, the keys and the values. [`SPARE_ROWS`] more
/// rows must follow.
///
/// # Safety
///
/// The processor has the features of `S`.
pub(super) unsafe fn attend<S: Simd>(
    heads: Heads,
    projected: &[f32],
    tokens: Range<usize>,
    context: &mut [f32],
    workspaces: &mut Vec<HeadWorkspace>,
    team: &Team,
) {
    let (stride, width) = (3 * heads.width(), heads.width());
    assert!(heads.stride.is_multiple_of(GRAIN));
    assert!(projected.len() >= (tokens.end + SPARE_ROWS) * stride && context.len() >= tokens.end * width);
    let parts = team.parts(heads.count, tokens.len(), 2 * tokens.len() * heads.stride);
    if workspaces.len() < parts {
        workspaces.resize_with(parts, HeadWorkspace::default);
    }
    let context = Shared::of(context);
    // Each part writes only the columns of its own heads.
    team.each(&mut workspaces[..parts], heads.count, |workspace, which| {
        let tokens = tokens.clone();
        // SAFETY: the caller guarantees the features; the asserts check the lengths.
        unsafe {
            if heads.squares {
                squares::attend_heads::<S>(heads, which, projected, tokens, context, workspace);
            } else {
                floats::attend_heads::<S::Base>(heads, which, projected, tokens, context, workspace);
            }
        }
    });
}
