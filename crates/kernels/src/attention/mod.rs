//! Attention of the tokens of one sequence to each other, head by head.

mod floats;
mod squares;

use std::ops::Range;

use super::{
    buffer::Buffer,
    pack::GRAIN,
    simd::{Simd, Squared},
    spread::{Shared, Team},
};

/// The heads of a layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    /// How many.
    pub count: usize,
    /// The width of each in memory, a multiple of the grain.
    pub stride: usize,
    /// Whether queries, keys and values are multiplied in bf16, by squares; else as floats, by vectors.
    pub squares: bool,
}

impl Heads {
    /// How heads are multiplied where weights are of these squares: floats stay floats.
    pub fn in_squares(weights: Option<Squared>) -> bool {
        matches!(weights, Some(Squared::Bf16 | Squared::Bytes))
    }

    /// The width of all of them.
    pub fn width(self) -> usize {
        self.count * self.stride
    }
}

/// Room for what one head needs.
#[derive(Default)]
pub(super) struct HeadRoom {
    queries: Buffer,
    keys: Buffer,
    values: Buffer,
    scores: Buffer,
    weights: Buffer,
    factors: Vec<f32>,
}

/// Rows beyond the last one that may be read (never used): keys are transposed in whole squares.
pub(super) const SPARE_ROWS: usize = GRAIN;

/// Writes to `context` (rows of all heads) what each of `tokens` takes from the others. `projected` holds rows of
/// queries, keys and values, already scaled, and [`SPARE_ROWS`] more.
///
/// # Safety
///
/// The processor has the features of `S`.
pub(super) unsafe fn attend<S: Simd>(
    heads: Heads,
    projected: &[f32],
    tokens: Range<usize>,
    context: &mut [f32],
    rooms: &mut Vec<HeadRoom>,
    team: &Team,
) {
    let (stride, width) = (3 * heads.width(), heads.width());
    assert!(heads.stride.is_multiple_of(GRAIN));
    assert!(projected.len() >= (tokens.end + SPARE_ROWS) * stride && context.len() >= tokens.end * width);
    let parts = team.parts(heads.count, tokens.len(), 2 * tokens.len() * heads.stride);
    if rooms.len() < parts {
        rooms.resize_with(parts, HeadRoom::default);
    }
    let context = Shared::of(context);
    // A part writes the columns of its own heads.
    team.each(&mut rooms[..parts], heads.count, |room, which| {
        let tokens = tokens.clone();
        // SAFETY: the features by our caller, the lengths by the asserts.
        unsafe {
            if heads.squares {
                squares::attend_heads::<S>(heads, which, projected, tokens, context, room);
            } else {
                floats::attend_heads::<S::Base>(heads, which, projected, tokens, context, room);
            }
        }
    });
}
