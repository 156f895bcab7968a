//! SIMD levels: detection of the supported levels, and choice of the level to use.

use std::{fmt, str::FromStr};

use turnwise_core::{Error, Result};

/// Environment variable that sets the level for [`SimdChoice::Auto`]. Its value is the name of a [`SimdLevel`].
pub const SIMD_VARIABLE: &str = "TURNWISE_SIMD";

/// SIMD instruction sets, from the slowest to the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimdLevel {
    /// Portable code for every processor.
    Portable,
    /// Portable code with the vector width of AVX-512 and an emulation of its newest operations, for tests.
    #[cfg(test)]
    Wide,
    /// Like `Wide`, with an emulation of AMX tiles (called squares in this crate), for tests.
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
}

impl SimdLevel {
    /// All levels, the fastest first.
    pub const ALL: &[SimdLevel] = &[
        SimdLevel::Amx,
        SimdLevel::Avx512Bf16,
        SimdLevel::Avx512Vnni,
        SimdLevel::Avx512,
        SimdLevel::Avx2,
        #[cfg(test)]
        SimdLevel::Squares,
        #[cfg(test)]
        SimdLevel::Wide,
        SimdLevel::Portable,
    ];

    /// Returns the name that options use.
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
        }
    }

    /// Returns true if this processor supports the level.
    pub fn available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let integers = || has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt");
            let avx2 = || has!("avx2") && has!("fma") && integers();
            let avx512 =
                || avx2() && has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512dq");
            match self {
                SimdLevel::Portable => true,
                #[cfg(test)]
                SimdLevel::Wide | SimdLevel::Squares => true,
                SimdLevel::Avx2 => avx2(),
                SimdLevel::Avx512 => avx512(),
                SimdLevel::Avx512Vnni => avx512() && has!("avx512vnni"),
                SimdLevel::Avx512Bf16 => avx512() && has!("avx512vnni") && has!("avx512bf16"),
                SimdLevel::Amx => SimdLevel::Avx512Bf16.available() && super::amx::granted(),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            match self {
                SimdLevel::Portable => true,
                #[cfg(test)]
                SimdLevel::Wide | SimdLevel::Squares => true,
                _ => false,
            }
        }
    }

    /// Returns true if products in bf16 are faster than in f32. On Intel processors without AMX, bf16 took 1.5 times
    /// as long as f32, because a vector instruction multiplies no more elements per cycle. On AMD processors, bf16
    /// took half as long as f32.
    pub(in super::super) fn bf16_is_fast(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512Bf16 => super::avx512::is_amd(),
            SimdLevel::Amx => true,
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

/// Choice of the SIMD level of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SimdChoice {
    /// The level in [`SIMD_VARIABLE`]. By default, the fastest level of this processor that passes the self-test.
    #[default]
    Auto,
    /// Exactly this level.
    Level(SimdLevel),
}

impl SimdChoice {
    /// Returns the requested level, or `None` if no level is requested.
    ///
    /// Returns an error if the name is unknown or if this processor does not support the level.
    pub(in super::super) fn requested(self) -> Result<Option<SimdLevel>> {
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
}
