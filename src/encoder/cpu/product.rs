//! Many rows times packed weights: which tile is computed when, so that what is needed next is near.

use std::{marker::PhantomData, ops::Range};

use super::{
    codes::Left,
    format::{Bf16, F32, Format, Int8, Int16},
    pack::Packed,
    simd::Simd,
    tile::{Activate, Biased, Ending, Scaled, Tile, with_tile},
};
use crate::encoder::{Precision, network::Activation};

/// Bytes of the left side that are worked on together: they stay in the second-level cache.
const LEFT_BLOCK: usize = 256 * 1024;

/// Units of a row that are worked on together: a panel's part of that depth stays in the first-level cache.
const DEPTH_BLOCK: usize = 384;

/// Where the rows of a result begin and how far it is from one to the next. Threads that share one write to different
/// columns.
#[derive(Clone, Copy)]
pub(super) struct Out {
    start: *mut f32,
    stride: usize,
    rows: usize,
}

// SAFETY: who uses one from several threads gives each its own panels (`product`'s contract).
unsafe impl Send for Out {}
// SAFETY: as above.
unsafe impl Sync for Out {}

impl Out {
    /// Rows of `stride` numbers.
    pub fn new(numbers: &mut [f32], rows: usize, stride: usize) -> Self {
        assert!(numbers.len() >= rows * stride);
        Out { start: numbers.as_mut_ptr(), stride, rows }
    }
}

/// `out = activation(left · weights + bias)` for some of the panels of the weights.
///
/// Sums are made in the same order for every row, whatever rows are beside it: a row's result does not depend on them.
///
/// # Safety
///
/// The processor has the features of `S`, for which the weights were packed; nobody else touches these panels' columns
/// of `out` meanwhile.
pub(super) unsafe fn product<S: Simd>(
    left: Left,
    weights: &Packed,
    panels: Range<usize>,
    out: Out,
    activation: Option<Activation>,
) {
    assert!(weights.panel == S::VECTORS * S::LANES && panels.end <= weights.panels());
    assert!(out.stride >= weights.outputs);
    let scaled = matches!(weights.precision, Precision::Int16 | Precision::Int8);
    assert!(!scaled || (left.scales.len() >= out.rows && left.lows.len() >= out.rows));
    let job = Job { left, weights, panels, out, activation };
    // SAFETY: features and columns by our caller; lengths by the asserts here and in `run`.
    unsafe {
        match weights.precision {
            Precision::F32 => job.run::<S::Base, F32, _>(|_, column| Biased(weights.bias[column..].as_ptr())),
            Precision::Bf16 => job.run::<S, Bf16, _>(|_, column| Biased(weights.bias[column..].as_ptr())),
            Precision::Int16 => job.run::<S, Int16, _>(|row, column| job.scaled(row, column)),
            Precision::Int8 => job.run::<S, Int8, _>(|row, column| job.scaled(row, column)),
            Precision::F16 => unreachable!("weights are never packed in f16"),
        }
    }
}

struct Job<'a> {
    left: Left<'a>,
    weights: &'a Packed,
    panels: Range<usize>,
    out: Out,
    activation: Option<Activation>,
}

impl Job<'_> {
    fn scaled(&self, row: usize, column: usize) -> Scaled {
        Scaled {
            rows: self.left.scales[row..].as_ptr(),
            lows: self.left.lows[row..].as_ptr(),
            columns: self.weights.scales[column..].as_ptr(),
            weights: self.weights.sums[column..].as_ptr(),
            bias: self.weights.bias[column..].as_ptr(),
        }
    }

    unsafe fn run<S: Simd, F: Format<S>, E: Ending<S>>(&self, ending: impl Fn(usize, usize) -> E) {
        let Job { left, weights, out, .. } = self;
        let units = weights.inputs / Packed::numbers_in_unit(weights.precision);
        let (left_units, steps) = (units / F::RIGHT * F::LEFT, units / F::RIGHT);
        assert!(out.rows == 0 || left.units.len() >= (out.rows - 1) * left.stride + left_units);
        let right = &weights.units.of::<u32>()[..units * weights.outputs];
        let most = (LEFT_BLOCK / (4 * left_units) / F::ROWS).max(1) * F::ROWS;
        let depth = DEPTH_BLOCK / F::RIGHT;
        for rows in even_parts(0..out.rows, most) {
            for panel in self.panels.clone() {
                let column = panel * weights.panel;
                let width = weights.panel.min(weights.outputs - column);
                let panel_units = &right[column * units..(column + width) * units];
                for step in (0..steps).step_by(depth) {
                    let until = (step + depth).min(steps);
                    for tile in even_parts(rows.clone(), F::ROWS) {
                        macro_rules! run {
                            ($m:literal, $v:literal) => {
                                // SAFETY: rows, columns and units lie within what the asserts have seen.
                                unsafe {
                                    S::enter(Tile::<F, E, $m, $v> {
                                        left: (
                                            left.units
                                                .as_ptr()
                                                .add(tile.start * left.stride + step * F::LEFT),
                                            left.stride,
                                        ),
                                        right: panel_units.as_ptr().add(step * F::RIGHT * width),
                                        steps: until - step,
                                        out: (out.start.add(tile.start * out.stride + column), out.stride),
                                        first: step == 0,
                                        last: until == steps,
                                        ending: ending(tile.start, column),
                                        format: PhantomData,
                                    })
                                }
                            };
                        }
                        with_tile!(tile.len(), width / S::LANES, F::ROWS, S::VECTORS, run);
                        if let (Some(activation), true) = (self.activation, until == steps) {
                            // SAFETY: the same rows and columns.
                            unsafe {
                                S::Base::enter(Activate {
                                    out: (out.start.add(tile.start * out.stride + column), out.stride),
                                    rows: tile.len(),
                                    columns: width,
                                    activation,
                                });
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Cuts a range into the fewest parts of at most `most`, as even as can be: a tile of one or two rows at the end would
/// take as long as a whole one.
pub(super) fn even_parts(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = range.len().div_ceil(most);
    (0..parts).map(move |part| {
        let at = |part: usize| range.start + range.len() * part / parts;
        at(part)..at(part + 1)
    })
}
