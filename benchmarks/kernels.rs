//! Throughput of the inference kernels at every SIMD level.
//!
//!     cargo bench --bench kernels -- [TOKENS] [LENGTH]
//!
//! Runs a network with the layer sizes of all-MiniLM-L6 on one thread, with every precision and every SIMD level of
//! this processor. The batch has about TOKENS tokens (256 by default) in sequences of LENGTH tokens (16 by default).
//! The variants alternate; each reports the fastest of 30 rounds. For comparison, also computes only the matrix
//! products of the layers with the crate `gemm`, which candle uses.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::{Duration, Instant};

use turnwise_encoder::{
    Batch, Network, Precision, Sequence,
    cpu::{CpuEngine, SimdChoice, SimdLevel},
    network::Shape,
};

const HIDDEN: usize = 384;
const INNER: usize = 1536;
const LAYERS: usize = 6;
const ROUNDS: usize = 30;

fn main() {
    let mut sizes = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let (tokens, length) = (sizes.next().unwrap_or(256), sizes.next().unwrap_or(16));
    let network = Network::random(Shape::bert(HIDDEN, 12, INNER), LAYERS, 1000, length.max(8), 1);
    let sequences: Vec<Sequence> = (0..tokens / length)
        .map(|s| Sequence::new((0..length).map(|i| ((i * 7 + s * 13) % 1000) as u32).collect()))
        .collect();
    let sequences: Vec<&Sequence> = sequences.iter().collect();
    let batch = Batch::new(&sequences);
    let products = (4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER) * LAYERS * batch.tokens();

    let mut engines = Vec::new();
    for level in SimdLevel::here() {
        for precision in [Precision::F32, Precision::Bf16, Precision::Int16, Precision::Int8] {
            engines.push(CpuEngine::new(&network, precision, SimdChoice::Level(level)).unwrap());
        }
    }
    let mut best = vec![Duration::MAX; engines.len() + 1];
    for _ in 0..ROUNDS {
        for (best, engine) in best.iter_mut().zip(&engines) {
            let start = Instant::now();
            engine.run(&batch, &[LAYERS], &mut |_, _| ()).unwrap();
            *best = start.elapsed().min(*best);
        }
        let last = best.len() - 1;
        best[last] = gemm_alone(batch.tokens()).min(best[last]);
    }
    println!("{} tokens in sequences of {length}, one thread", batch.tokens());
    let names = engines.iter().map(|e| e.describe()).chain(["f32, only products (gemm crate)".to_owned()]);
    for (name, time) in names.zip(&best) {
        let seconds = time.as_secs_f64();
        println!(
            "{name:<34} {:>7.1} GMAC/s {:>9.0} tokens/s",
            products as f64 / seconds / 1e9,
            batch.tokens() as f64 / seconds
        );
    }
}

/// Returns the time that the crate `gemm` needs for the matrix products of all layers in f32, without attention.
fn gemm_alone(rows: usize) -> Duration {
    let weights = vec![0.01f32; HIDDEN * INNER];
    let left = vec![0.5f32; rows * INNER];
    let mut out = vec![0f32; rows * INNER];
    let start = Instant::now();
    for _ in 0..LAYERS {
        for (inputs, outputs) in [(HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, INNER), (INNER, HIDDEN)] {
            // SAFETY: the strides fit the sizes, and the buffers are large enough for each of the four products.
            unsafe {
                gemm::gemm(
                    rows,
                    outputs,
                    inputs,
                    out.as_mut_ptr(),
                    1,
                    outputs as isize,
                    false,
                    left.as_ptr(),
                    1,
                    inputs as isize,
                    weights.as_ptr(),
                    inputs as isize,
                    1,
                    0f32,
                    1f32,
                    false,
                    false,
                    false,
                    gemm::Parallelism::None,
                );
            }
        }
    }
    std::hint::black_box(&out);
    start.elapsed()
}
