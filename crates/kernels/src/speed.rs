//! Choice of the fastest precision by a short measurement.
//!
//! Which precision is fastest depends on the processor: some multiply bf16 twice as fast as f32, others slower. A small
//! network is therefore run once in every precision, which takes about 20 milliseconds. The times can be kept in a file, in
//! which every processor and SIMD level has a line of its own.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use turnwise_core::Result;

use crate::{Batch, CpuEngine, Network, Precision, Sequence, SimdLevel, network::Shape};

/// The precisions of the CPU, from the most accurate to the least accurate.
const PRECISIONS: [Precision; 4] = [Precision::F32, Precision::Int16, Precision::Bf16, Precision::Int8];

/// Times of the small network, in the order of [`PRECISIONS`].
type Times = [Duration; PRECISIONS.len()];

/// Number of runs for each precision, of which the fastest counts.
const RUNS: usize = 5;

/// A less accurate precision is chosen only if it takes at most this share of the time.
const WORTH: f64 = 0.9;

/// Returns the fastest of the precisions in `among` at a SIMD level. `cache` is a file with the times of earlier processes.
pub(crate) fn fastest(level: SimdLevel, among: &[Precision], cache: Option<&Path>) -> Result<Precision> {
    let times = times(level, cache)?;
    Ok(choose(&times, among))
}

/// Chooses among precisions by their times. Without a choice, returns f32.
fn choose(times: &Times, among: &[Precision]) -> Precision {
    let mut best: Option<(Precision, Duration)> = None;
    for (precision, time) in PRECISIONS.into_iter().zip(times).filter(|(p, _)| among.contains(p)) {
        if best.is_none_or(|(_, fastest)| time.as_secs_f64() < WORTH * fastest.as_secs_f64()) {
            best = Some((precision, *time));
        }
    }
    best.map_or(Precision::F32, |(precision, _)| precision)
}

/// Returns the times at a level: those of this process, of the file, or of a new measurement.
fn times(level: SimdLevel, cache: Option<&Path>) -> Result<Times> {
    static KNOWN: Mutex<Option<HashMap<SimdLevel, Times>>> = Mutex::new(None);
    // A poisoned lock is harmless: an entry is inserted after its measurement.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if let Some(times) = known.get(&level) {
        return Ok(*times);
    }
    let key = key(level);
    let stored = cache.and_then(|path| fs::read_to_string(path).ok()).and_then(|text| stored(&text, &key));
    let times = match stored {
        Some(times) => times,
        None => {
            let times = measure(level)?;
            // Without the file, the next process measures again.
            cache.map(|path| store(path, &key, &times).ok());
            times
        }
    };
    known.insert(level, times);
    Ok(times)
}

/// Runs a small network in every precision.
fn measure(level: SimdLevel) -> Result<Times> {
    let network = Network::random(Shape::bert(192, 6, 768), 1, 64, 64, 1);
    let sequences = [0, 1].map(|start| Sequence::new((start..start + 32).collect()));
    let sequences: Vec<&Sequence> = sequences.iter().collect();
    let mut times = [Duration::MAX; PRECISIONS.len()];
    for (precision, time) in PRECISIONS.into_iter().zip(&mut times) {
        let engine = CpuEngine::at(&network, precision, level)?;
        for _ in 0..RUNS {
            let start = Instant::now();
            engine.run(&Batch::new(&sequences), &[1], &mut |_, _| {})?;
            *time = start.elapsed().min(*time);
        }
    }
    Ok(times)
}

/// Name of a processor and a level in the file. It contains the version of turnwise, because the kernels can change.
fn key(level: SimdLevel) -> String {
    format!("{} {} {}", processor(), level, env!("CARGO_PKG_VERSION"))
}

#[cfg(target_arch = "x86_64")]
fn processor() -> String {
    let maker = std::arch::x86_64::__cpuid(0);
    let maker = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).concat();
    let model = std::arch::x86_64::__cpuid(1).eax;
    format!("{}-{model:x}", String::from_utf8_lossy(&maker))
}

#[cfg(not(target_arch = "x86_64"))]
fn processor() -> String {
    std::env::consts::ARCH.to_owned()
}

/// Finds the times of a processor and level in the text of the file: the key, and the nanoseconds of every precision.
fn stored(text: &str, key: &str) -> Option<Times> {
    text.lines().find_map(|line| {
        let numbers = line.strip_prefix(key)?.strip_prefix('\t')?.split('\t');
        let times: Vec<Duration> =
            numbers.map(|n| n.parse().ok().map(Duration::from_nanos)).collect::<Option<_>>()?;
        times.try_into().ok().filter(|times: &Times| times.iter().all(|time| !time.is_zero()))
    })
}

/// Appends a line to the file, and creates its folder if necessary.
fn store(path: &Path, key: &str, times: &Times) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let numbers: String = times.iter().map(|time| format!("\t{}", time.as_nanos())).collect();
    // The line is written at once, so that lines of several processes do not mix.
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?
        .write_all(format!("{key}{numbers}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(times: [u64; 4]) -> Times {
        times.map(Duration::from_micros)
    }

    #[test]
    fn a_less_accurate_precision_must_be_faster_by_a_tenth() {
        let bits_16 = [Precision::F32, Precision::Int16, Precision::Bf16];
        let all = PRECISIONS;
        for (times, among, best) in [
            ([100, 60, 50, 20], &bits_16[..], Precision::Bf16),
            ([100, 60, 55, 20], &bits_16, Precision::Int16),
            ([100, 95, 120, 20], &bits_16, Precision::F32),
            ([100, 60, 50, 20], &all, Precision::Int8),
            ([100, 60, 50, 49], &all, Precision::Bf16),
        ] {
            assert_eq!(choose(&micros(times), among), best, "{times:?}");
        }
        assert_eq!(choose(&micros([100, 10, 10, 10]), &[]), Precision::F32);
    }

    #[test]
    fn times_are_stored_for_each_processor_and_level() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("speed.tsv");
        let (one, other) = (micros([9, 8, 7, 6]), micros([5, 4, 3, 2]));
        store(&path, "a avx2", &one).unwrap();
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"a avx512\t1\t2\ndamaged\n")
            .unwrap();
        store(&path, "a avx512", &other).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(stored(&text, "a avx2"), Some(one));
        assert_eq!(stored(&text, "a avx512"), Some(other));
        assert_eq!(
            (stored(&text, "a avx"), stored("", "a"), stored("a\t0\t1\t1\t1", "a")),
            (None, None, None)
        );
    }

    #[test]
    fn all_precisions_are_measured_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("speed.tsv");
        let first = times(SimdLevel::Portable, Some(&path)).unwrap();
        assert!(first.iter().all(|time| !time.is_zero() && *time < Duration::MAX));
        assert_eq!(times(SimdLevel::Portable, None).unwrap(), first);
        let precision = fastest(SimdLevel::Portable, &PRECISIONS, Some(&path)).unwrap();
        assert_eq!(precision, choose(&first, &PRECISIONS));
        // Another test of this process may have measured this level before.
        if let Ok(text) = fs::read_to_string(&path) {
            assert_eq!(stored(&text, &key(SimdLevel::Portable)), Some(first));
        }
    }
}
