//! Matrix product (GEMM) of activations and packed weights: cache blocking, and the order of the tiles.

use std::{marker::PhantomData, ops::Range};

use crate::{
    Precision,
    codes::Left,
    format::{Bf16, F32, Format, Int8, Int16},
    network::Activation,
    pack::Packed,
    simd::{Simd, Squared},
    spread::{Shared, Team},
    tile::{ColumnBias, Dequantize, Epilogue, Tiles, UNITS_IN_LINE, with_tile},
};

/// Maximum size in bytes of a block of rows of the left operand. A block stays in the L2 cache.
const LEFT_BLOCK: usize = 256 * 1024;

/// The next weights are prefetched if a column of tiles has at least this number of tiles. With fewer tiles, there is
/// too little work to hide the loads: a single query is faster without prefetching.
const FETCHING_TILES: usize = 8;

/// Output matrix of a matrix product.
pub(super) struct Out<'a> {
    /// Elements of the matrix, row by row.
    pub numbers: &'a mut [f32],
    /// Number of rows.
    pub rows: usize,
    /// Distance between the starts of two rows, in elements.
    pub stride: usize,
}

/// Computes `out = activation(left · weights + bias)`.
///
/// Sums are computed in the same order for every row. So the result of a row does not depend on the other rows.
///
/// # Safety
///
/// The processor must have the features of `S`, and the weights must be packed for `S`.
pub(super) unsafe fn product<S: Simd>(
    left: Left,
    weights: &Packed,
    out: Out,
    activation: Option<Activation>,
    team: &Team,
) {
    assert!(weights.squared == Packed::squared::<S>(weights.precision));
    assert!(weights.squared.is_some() || weights.panel == S::VECTORS * S::LANES);
    assert!(out.stride >= weights.outputs && out.numbers.len() >= out.rows * out.stride);
    let scaled = matches!(weights.precision, Precision::Int16 | Precision::Int8);
    assert!(!scaled || (left.scales.len() >= out.rows && left.lows.len() >= out.rows));
    let to = (Shared::of(out.numbers), out.stride);
    let job = Job { left, weights, rows: out.rows, out: to, activation };
    let biased = |_, column: usize| ColumnBias(weights.bias[column..].as_ptr());
    let parts = team.parts(weights.panels(), out.rows, weights.inputs * weights.panel);
    // Each part writes only the columns of its own panels.
    team.each(&mut vec![(); parts], weights.panels(), |(), panels| {
        // SAFETY: the caller guarantees the processor features; the asserts here and in the called functions check the
        // lengths.
        unsafe {
            match (weights.squared, weights.precision) {
                (Some(squared @ Squared::Bytes), _) => {
                    job.in_squares::<S, Int8, _>(squared, panels, |r, c| job.scaled(r, c))
                }
                (Some(squared), _) => job.in_squares::<S, F32, _>(squared, panels, biased),
                (None, Precision::F32) => job.run::<S::Base, F32, _>(panels, biased),
                (None, Precision::Bf16) if S::BF16 => job.run::<S, Bf16, _>(panels, biased),
                (None, Precision::Bf16) => job.run::<S::Base, Bf16, _>(panels, biased),
                (None, Precision::Int16) => job.run::<S::Whole, Int16, _>(panels, |r, c| job.scaled(r, c)),
                (None, Precision::Int8) => job.run::<S::Whole, Int8, _>(panels, |r, c| job.scaled(r, c)),
                (None, Precision::F16) => unreachable!("weights are never packed in f16"),
            }
        }
    });
}

/// Inputs and output of a matrix product, shared by the threads that compute it.
pub(super) struct Job<'a> {
    pub left: Left<'a>,
    pub weights: &'a Packed,
    pub rows: usize,
    /// Pointer to the first output row, and row stride.
    pub out: (Shared, usize),
    pub activation: Option<Activation>,
}

impl Job<'_> {
    fn scaled(&self, row: usize, column: usize) -> Dequantize {
        Dequantize {
            rows: self.left.scales[row..].as_ptr(),
            lows: self.left.lows[row..].as_ptr(),
            columns: self.weights.scales[column..].as_ptr(),
            weights: self.weights.sums[column..].as_ptr(),
            bias: self.weights.bias[column..].as_ptr(),
        }
    }

    unsafe fn run<S: Simd, F: Format<S>, E: Epilogue<S>>(
        &self,
        panels: Range<usize>,
        epilogue: impl Fn(usize, usize) -> E,
    ) {
        let Job { left, weights, .. } = self;
        let units = weights.depth;
        let (left_units, steps) = (units / F::RIGHT * F::LEFT, units / F::RIGHT);
        assert!(self.rows == 0 || left.units.len() >= (self.rows - 1) * left.stride + left_units);
        let right = &weights.units.of::<u32>()[..units * weights.outputs];
        let depth = F::DEPTH / F::RIGHT;
        let most = (LEFT_BLOCK / (4 * F::LEFT * depth.min(steps)) / F::ROWS).max(1) * F::ROWS;
        let part = |panel: usize, step: usize| {
            let column = panel * weights.panel;
            let width = weights.panel.min(weights.outputs - column);
            (right.as_ptr().wrapping_add(column * units + step * F::RIGHT * width), width)
        };
        for rows in even_parts(0..self.rows, most) {
            for step in (0..steps).step_by(depth) {
                let until = (step + depth).min(steps);
                for panel in panels.clone() {
                    let (panel_units, width) = part(panel, step);
                    let column = panel * weights.panel;
                    // `next` is the part of the weights that is needed next. Each tile prefetches a share of it.
                    let next = match (panel + 1 < panels.end, until < steps) {
                        (true, _) => part(panel + 1, step).0,
                        (false, true) => part(panels.start, until).0,
                        (false, false) => part(panels.start, 0).0,
                    };
                    let tiles = rows.len().div_ceil(F::ROWS);
                    let fetch = match tiles {
                        ..FETCHING_TILES => 0,
                        _ => ((until - step) * F::RIGHT * width)
                            .div_ceil(tiles)
                            .next_multiple_of(UNITS_IN_LINE),
                    };
                    let mut fetched = 0;
                    for (count, high, row) in even_tiles(rows.clone(), F::ROWS) {
                        macro_rules! run {
                            ($m:literal, $v:literal) => {
                                // SAFETY: rows, columns and units are within the bounds that the asserts have
                                // checked.
                                unsafe {
                                    S::enter(Tiles::<F, E, $m, $v> {
                                        count,
                                        left: (
                                            left.units.as_ptr().add(row * left.stride + step * F::LEFT),
                                            left.stride,
                                        ),
                                        right: panel_units,
                                        steps: until - step,
                                        out: (self.out.0.at(row * self.out.1 + column), self.out.1),
                                        first: step == 0,
                                        last: until == steps,
                                        epilogue: epilogue(row, column),
                                        activation: self.activation,
                                        next: (next.wrapping_add(fetched), fetch),
                                        format: PhantomData,
                                    })
                                }
                            };
                        }
                        with_tile!(high, width / S::LANES, F::ROWS, S::VECTORS, run);
                        fetched += count * fetch;
                    }
                }
            }
        }
    }
}

/// Divides rows as evenly as possible among the smallest number of tiles with at most `most` rows each. An uneven
/// division could leave a last tile with only one or two rows, which takes as long as a full tile. Returns at most two
/// runs of tiles, each as (number of tiles, rows per tile, first row).
pub(super) fn even_tiles(rows: Range<usize>, most: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let tiles = rows.len().div_ceil(most);
    let low = rows.len().checked_div(tiles).unwrap_or(0);
    let higher = rows.len() - low * tiles;
    let runs = [(higher, low + 1, rows.start), (tiles - higher, low, rows.start + higher * (low + 1))];
    runs.into_iter().filter(|(count, ..)| *count > 0)
}

/// Splits a range as evenly as possible into the smallest number of parts with at most `most` elements each.
pub(super) fn even_parts(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = range.len().div_ceil(most);
    (0..parts).map(move |part| {
        let at = |part: usize| range.start + range.len() * part / parts;
        at(part)..at(part + 1)
    })
}
