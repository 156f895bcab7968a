//! Cosines and the loss that pulls one of several likenesses above the others.

use candle_core::{D, Result, Tensor};

/// Rows of length 1. Of what is nearly nothing, nearly nothing is left.
pub(super) fn unit(x: &Tensor) -> Result<Tensor> {
    x.broadcast_div(&(x.sqr()?.sum_keepdim(D::Minus1)? + 1e-12)?.sqrt()?)
}

/// The cosines of rows with rows.
pub(super) fn cosines(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    (unit(a)? * unit(b)?)?.sum(D::Minus1)
}

/// `log softmax(scores/τ)` of each row.
pub(super) fn log_shares(scores: &Tensor, temperature: f64) -> Result<Tensor> {
    let scores = (scores / temperature)?;
    // Against the largest of the row, so that no power overflows.
    let scores = scores.broadcast_sub(&scores.max_keepdim(1)?.detach())?;
    scores.broadcast_sub(&scores.exp()?.sum_keepdim(1)?.log()?)
}

/// The mean over rows of `-log softmax(scores/τ)` at the first place.
pub(super) fn first_of(scores: &Tensor, temperature: f64) -> Result<Tensor> {
    log_shares(scores, temperature)?.narrow(1, 0, 1)?.mean_all()?.neg()
}

/// The mean over rows of `-log softmax(scores/τ)` at the row's own place.
pub(super) fn diagonal_of(scores: &Tensor, temperature: f64) -> Result<Tensor> {
    let own = Tensor::eye(scores.dim(0)?, scores.dtype(), scores.device())?;
    (log_shares(scores, temperature)? * own)?.sum(1)?.mean_all()?.neg()
}
