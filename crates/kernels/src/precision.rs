//! Choice of the numeric precision and of the SIMD level, and the self-test of the levels.
//!
//! Before a SIMD level becomes the default, its results are compared with those of the portable level. The self-test
//! takes about a millisecond: it runs a small network in every precision except f16. A level that fails is skipped, and
//! `CpuEngine::describe` reports it.

use std::{fmt, str::FromStr, sync::OnceLock};

use turnwise_core::{Error, Result, vectors::cosine};

use crate::{Batch, CpuEngine, Network, Sequence, network::Shape};

/// Numeric precision of the matrix products of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// 32-bit floating point: the reference.
    F32,
    /// 16-bit floating point with the range of f32.
    Bf16,
    /// 16-bit floating point; GPUs only.
    F16,
    /// 16-bit integers, scaled like int8. More accurate than bf16, and with AVX2 as fast as int8.
    Int16,
    /// 8-bit integers, with one scale per token of the input and one per output column of the weights.
    Int8,
}

impl Precision {
    /// All precisions.
    pub const ALL: [Precision; 5] =
        [Precision::F32, Precision::Bf16, Precision::F16, Precision::Int16, Precision::Int8];

    /// Returns the name of the precision in options and files.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
            Precision::Int16 => "int16",
            Precision::Int8 => "int8",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Precision::ALL;
        known
            .into_iter()
            .find(|p| p.name() == text)
            .ok_or_else(|| Error::unknown_name("precision", text, known.map(Precision::name)))
    }
}

/// Environment variable that sets the level for [`SimdChoice::Auto`]. Its value is the name of a [`SimdLevel`].
pub const SIMD_VARIABLE: &str = "TURNWISE_SIMD";

/// SIMD instruction sets, from the slowest to the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimdLevel {
    /// Portable code for every processor.
    Portable,
    /// Portable code that emulates the vector width and the newest operations of AVX-512, for tests.
    #[cfg(test)]
    Wide,
    /// The level `Wide` with an emulation of AMX tiles, for tests.
    #[cfg(test)]
    Squares,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, VL and DQ.
    Avx512,
    /// AVX-512 with VNNI.
    Avx512Vnni,
    /// AVX-512 with VNNI and BF16.
    Avx512Bf16,
    /// AVX-512 with VNNI, BF16 and AMX, which multiplies tiles of bf16 and of bytes.
    Amx,
    /// NEON.
    Neon,
    /// NEON with dot products of bytes.
    NeonDot,
    /// NEON with dot products of bytes and of bf16.
    NeonBf16,
}

impl SimdLevel {
    /// All levels, the fastest first.
    pub const ALL: &[SimdLevel] = &[
        SimdLevel::Amx,
        SimdLevel::Avx512Bf16,
        SimdLevel::Avx512Vnni,
        SimdLevel::Avx512,
        SimdLevel::Avx2,
        SimdLevel::NeonBf16,
        SimdLevel::NeonDot,
        SimdLevel::Neon,
        #[cfg(test)]
        SimdLevel::Squares,
        #[cfg(test)]
        SimdLevel::Wide,
        SimdLevel::Portable,
    ];

    /// Returns the name of the level in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            SimdLevel::Portable => "portable",
            #[cfg(test)]
            SimdLevel::Wide => "wide",
            #[cfg(test)]
            SimdLevel::Squares => "squares",
            SimdLevel::Avx2 => "avx2",
            SimdLevel::Avx512 => "avx512",
            SimdLevel::Avx512Vnni => "avx512-vnni",
            SimdLevel::Avx512Bf16 => "avx512-bf16",
            SimdLevel::Amx => "amx",
            SimdLevel::Neon => "neon",
            SimdLevel::NeonDot => "neon-dotprod",
            SimdLevel::NeonBf16 => "neon-bf16",
        }
    }

    /// Returns true if this processor supports the level.
    pub fn available(self) -> bool {
        #[cfg(target_arch = "aarch64")]
        use std::arch::is_aarch64_feature_detected as has;
        #[cfg(target_arch = "x86_64")]
        use std::arch::is_x86_feature_detected as has;
        match self {
            SimdLevel::Portable => true,
            #[cfg(test)]
            SimdLevel::Wide | SimdLevel::Squares => true,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => {
                let integers = has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt");
                has!("avx2") && has!("fma") && integers
            }
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => {
                let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512dq");
                SimdLevel::Avx2.available() && avx512
            }
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512Vnni => SimdLevel::Avx512.available() && has!("avx512vnni"),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512Bf16 => SimdLevel::Avx512Vnni.available() && has!("avx512bf16"),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Amx => SimdLevel::Avx512Bf16.available() && crate::simd::amx::granted(),
            #[cfg(target_arch = "aarch64")]
            SimdLevel::Neon => has!("neon"),
            #[cfg(target_arch = "aarch64")]
            SimdLevel::NeonDot => SimdLevel::Neon.available() && has!("dotprod"),
            #[cfg(target_arch = "aarch64")]
            SimdLevel::NeonBf16 => SimdLevel::NeonDot.available() && has!("bf16"),
            _ => false,
        }
    }

    /// Returns the fastest level of this processor.
    pub fn best() -> SimdLevel {
        SimdLevel::here().next().unwrap_or(SimdLevel::Portable)
    }

    /// Returns the levels that this processor supports, the fastest first.
    pub fn here() -> impl Iterator<Item = SimdLevel> {
        SimdLevel::ALL.iter().copied().filter(|level| level.available())
    }
}

impl fmt::Display for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SimdLevel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        SimdLevel::ALL.iter().copied().find(|level| level.name() == text).ok_or_else(|| {
            Error::unknown_name("SIMD level", text, SimdLevel::ALL.iter().map(|level| level.name()))
        })
    }
}

/// Requested SIMD level of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SimdChoice {
    /// The level that the environment variable [`SIMD_VARIABLE`] names. If the variable is unset or empty, the fastest
    /// level of this processor that passes the self-test.
    #[default]
    Auto,
    /// Exactly this level.
    Level(SimdLevel),
}

impl SimdChoice {
    /// Returns the requested level, or `None` if neither the choice nor the environment variable names a level.
    ///
    /// Returns an error if the name in the environment variable is unknown, or if this processor does not support the
    /// level.
    pub(crate) fn requested(self) -> Result<Option<SimdLevel>> {
        let level = match self {
            SimdChoice::Level(level) => level,
            SimdChoice::Auto => match std::env::var(SIMD_VARIABLE) {
                Ok(name) if !name.is_empty() => name.parse()?,
                _ => return Ok(None),
            },
        };
        if level.available() {
            return Ok(Some(level));
        }
        let here: Vec<_> = SimdLevel::here().map(SimdLevel::name).collect();
        Err(Error::input(format!("this processor does not support the SIMD level {level}"))
            .with_hint(format!("supported: {}; unset {SIMD_VARIABLE} to use the fastest", here.join(", "))))
    }
}

/// For each precision, a lower bound of the cosine similarity between a hidden state and the portable f32 result. The
/// self-test passes if all similarities are above the bound.
const NEAR: [(Precision, f32); 4] = [
    (Precision::F32, 0.999_999),
    (Precision::Bf16, 0.999),
    (Precision::Int16, 0.999_99),
    (Precision::Int8, 0.98),
];

/// Returns the fastest level that passes the self-test, and all faster levels, which failed the self-test. The portable
/// level is not tested, so there is always a result.
pub(super) fn best_verified() -> (SimdLevel, Vec<SimdLevel>) {
    static BEST: OnceLock<(SimdLevel, Vec<SimdLevel>)> = OnceLock::new();
    BEST.get_or_init(|| {
        let mut failed = Vec::new();
        for level in SimdLevel::here() {
            if level == SimdLevel::Portable || agrees(level).unwrap_or(false) {
                return (level, failed);
            }
            failed.push(level);
        }
        (SimdLevel::Portable, failed)
    })
    .clone()
}

/// Runs the self-test: returns true if the results of a level agree with the portable f32 results.
pub(super) fn agrees(level: SimdLevel) -> Result<bool> {
    // None of these sizes is a multiple of the tile or vector sizes, to test the remainders as well.
    let network = Network::random(Shape::bert(72, 3, 100), 2, 50, 40, 3);
    let sequences = [1, 37, 18].map(|n| Sequence::new((0..n).map(|i| i * 7 % 50).collect()));
    let expected = states(&network, Precision::F32, SimdLevel::Portable, &sequences)?;
    for (precision, near) in NEAR {
        let got = states(&network, precision, level, &sequences)?;
        let rows = expected.chunks_exact(72).zip(got.chunks_exact(72));
        // The condition is written so that a NaN fails the self-test.
        if got.len() != expected.len() || !rows.map(|(a, b)| cosine(a, b)).all(|c| c > near) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn states(
    network: &Network,
    precision: Precision,
    level: SimdLevel,
    sequences: &[Sequence],
) -> Result<Vec<f32>> {
    let engine = CpuEngine::at(network, precision, level)?;
    let sequences: Vec<&Sequence> = sequences.iter().collect();
    let mut all = Vec::new();
    engine.run(&Batch::new(&sequences), &[2], &mut |_, states| all.extend_from_slice(states))?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_unknown_names_are_errors() {
        for level in SimdLevel::ALL {
            assert_eq!(level.name().parse::<SimdLevel>().unwrap(), *level);
        }
        let error = "avx3".parse::<SimdLevel>().unwrap_err();
        assert!(error.to_string().contains("avx3") && error.hint().is_some_and(|hint| hint.contains("avx2")));
    }

    #[test]
    fn unsupported_levels_are_errors() {
        assert!(SimdLevel::here().any(|l| l == SimdLevel::Portable));
        for level in SimdLevel::ALL {
            let requested = SimdChoice::Level(*level).requested();
            assert_eq!(requested.is_ok(), level.available(), "{level}");
        }
    }

    #[test]
    fn all_levels_of_this_processor_pass() {
        for level in SimdLevel::here() {
            assert!(agrees(level).unwrap(), "{level}");
        }
        let (best, failed) = best_verified();
        assert_eq!((Some(best), failed), (SimdLevel::here().next(), Vec::new()));
    }
}
