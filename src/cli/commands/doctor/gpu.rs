//! `turnwise doctor --gpu`: compares a GPU with the CPU, on a small network with random weights.

use std::time::Instant;

use super::Finding;
use crate::cli::prelude::*;
use turnwise_core::vectors::cosine;
use turnwise_encoder::{
    Backend, Batch, CandleEngine, Device, DeviceChoice, Network, Precision, Sequence,
    cpu::{CpuEngine, SimdChoice},
    network::Shape,
    open::{ACCURATE, fastest_on_cpu},
};

/// For each precision of a GPU, a lower bound of the cosine between its hidden states and those of f32 on the CPU.
const LEAST_COSINES: [(Precision, f32); 3] =
    [(Precision::F32, 0.99999), (Precision::F16, 0.999), (Precision::Bf16, 0.99)];

/// Number of sequences in the batch, and number of tokens in each.
const BATCH: (usize, usize) = (64, 64);

/// Returns the device that `--gpu` tests.
fn choice() -> DeviceChoice {
    if cfg!(feature = "metal") { DeviceChoice::Metal } else { DeviceChoice::Cuda(0) }
}

/// Tests the GPU of this machine.
pub(super) fn findings() -> Vec<Finding> {
    match Device::open(choice()).and_then(|device| compare(&device)) {
        Ok(findings) => findings,
        Err(e) => {
            let problem = match e.hint() {
                Some(hint) => format!("{e}; {hint}"),
                None => e.to_string(),
            };
            vec![finding("gpu", "not usable".to_owned(), Some(problem))]
        }
    }
}

fn finding(what: &str, is: String, problem: Option<String>) -> Finding {
    Finding { what: what.to_owned(), is, problem }
}

/// Runs the network on a device in every precision, and compares the hidden states and the speed with those of the CPU.
fn compare(device: &Device) -> Result<Vec<Finding>> {
    // Widths and number of layers are those of the default model.
    let network = Network::random(Shape::bert(384, 12, 1536), 6, 1000, BATCH.1, 1);
    let sequences: Vec<Sequence> = (0..BATCH.0 as u32)
        .map(|n| Sequence::new((0..BATCH.1 as u32).map(|token| (n * 31 + token * 7) % 1000).collect()))
        .collect();
    let reference = CpuEngine::new(&network, Precision::F32, SimdChoice::Auto)?;
    let expected = states(&reference, &sequences)?;
    let mut findings = Vec::new();
    let mut fastest: Option<(Precision, f64)> = None;
    for (precision, least) in LEAST_COSINES {
        let engine = match CandleEngine::new(&network, device.clone(), precision) {
            Ok(engine) => engine,
            Err(e) => {
                findings.push(finding(&format!("gpu {precision}"), "fails".to_owned(), Some(e.to_string())));
                continue;
            }
        };
        let got = states(&engine, &sequences)?;
        let width = network.shape.hidden;
        let cosines = expected.chunks_exact(width).zip(got.chunks_exact(width)).map(|(a, b)| cosine(a, b));
        // `min` ignores a NaN, but the problem below must not.
        let worst = cosines.fold(1.0f32, |worst, c| if c.is_nan() { c } else { worst.min(c) });
        let speed = speed(&engine, &sequences)?;
        let is_wrong = worst.is_nan() || worst < least;
        findings.push(finding(
            &format!("gpu {precision}"),
            format!("{} tokens/s; lowest cosine with f32 on the CPU {worst:.6}", grouped(speed as u64)),
            is_wrong.then(|| {
                format!(
                    "the results are wrong: the lowest cosine must be at least {least}; do not use this GPU"
                )
            }),
        ));
        if !is_wrong && fastest.is_none_or(|(_, other)| speed > other) {
            fastest = Some((precision, speed));
        }
    }
    let precision = fastest_on_cpu(&ACCURATE)?;
    let cpu = speed(&CpuEngine::new(&network, precision, SimdChoice::Auto)?, &sequences)?;
    let is = format!("{} tokens/s in {precision}", grouped(cpu as u64));
    findings.push(match fastest {
        Some((on_gpu, speed)) => finding(
            "cpu",
            format!("{is}; the GPU in {on_gpu} is {:.1} times as fast", speed / cpu),
            (speed < cpu).then(|| "the GPU is slower than the CPU; use --device cpu".to_owned()),
        ),
        None => finding("cpu", is, None),
    });
    findings.push(finding(
        "tested",
        "turnwise was tested on one NVIDIA H200, with up to 44,445 utterances/s; see docs/cuda.md".to_owned(),
        None,
    ));
    Ok(findings)
}

/// Returns the hidden states after the last layer.
fn states(engine: &dyn Backend, sequences: &[Sequence]) -> Result<Vec<f32>> {
    let sequences: Vec<&Sequence> = sequences.iter().collect();
    let batch = Batch { sequences: &sequences, threads: rayon::current_num_threads() };
    let mut states = Vec::new();
    engine.run(&batch, &[6], &mut |_, all| states.extend_from_slice(all))?;
    Ok(states)
}

/// Returns the number of tokens per second, of the fastest of several runs.
fn speed(engine: &dyn Backend, sequences: &[Sequence]) -> Result<f64> {
    let mut fastest = f64::INFINITY;
    for _ in 0..4 {
        let start = Instant::now();
        states(engine, sequences)?;
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    Ok((BATCH.0 * BATCH.1) as f64 / fastest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_with_right_results_is_fit() {
        // The test uses the CPU instead of a GPU. candle is slower there, so only the results are checked.
        let findings = compare(&Device::cpu()).unwrap();
        for (precision, finding) in ["gpu f32", "gpu f16", "gpu bf16"].into_iter().zip(&findings) {
            assert_eq!(finding.what, precision);
            assert!(finding.problem.is_none(), "{:?}: {:?}", finding.is, finding.problem);
            assert!(
                finding.is.contains("tokens/s; lowest cosine with f32 on the CPU 0.99")
                    || finding.is.contains("1.0")
            );
        }
        assert!(findings[3].is.contains("the GPU in"), "{}", findings[3].is);
    }

    #[cfg(not(any(feature = "cuda", feature = "metal")))]
    #[test]
    fn a_build_without_gpus_says_how_to_build_one() {
        let [finding] = &findings()[..] else { panic!("one finding") };
        let problem = finding.problem.as_deref().unwrap();
        assert!(
            problem.contains(
                "built without cuda support; build it with `cargo build --release --features cuda`"
            )
        );
    }
}
