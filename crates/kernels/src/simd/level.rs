//! Which vectors this processor has, and which are to be used.

use std::{fmt, str::FromStr};

use turnwise_core::{Error, Result};

/// The environment variable that chooses the vectors for [`SimdChoice::Auto`]: the name of a [`SimdLevel`].
pub const SIMD_VARIABLE: &str = "TURNWISE_SIMD";

/// Kinds of vectors, from the plainest to the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimdLevel {
    /// What every processor can do.
    Portable,
    /// The portable code at the width of AVX-512, with its newest operations imitated, for tests.
    #[cfg(test)]
    Wide,
    /// The same with squares, imitated.
    #[cfg(test)]
    Squares,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, VL and DQ.
    Avx512,
    /// The same with VNNI.
    Avx512Vnni,
    /// The same with VNNI and BF16.
    Avx512Bf16,
    /// The same with AMX, which multiplies squares of bf16 and of bytes.
    Amx,
}

impl SimdLevel {
    /// All of them, the fastest first.
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

    /// Its name.
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

    /// Whether this processor has it.
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

    /// Whether products of bf16 are faster than those of f32. Intel's vectors multiply no more numbers in it at a time:
    /// there it took half as long again as f32, where AMD's took half.
    pub(in super::super) fn bf16_is_fast(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512Bf16 => super::avx512::of_amd(),
            SimdLevel::Amx => true,
            _ => false,
        }
    }

    /// The fastest that this processor has.
    pub fn best() -> SimdLevel {
        SimdLevel::here().next().unwrap_or(SimdLevel::Portable)
    }

    /// Those that this processor has, the fastest first.
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

/// Which vectors an engine is to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SimdChoice {
    /// What [`SIMD_VARIABLE`] says, else the fastest that this processor has and that proves right.
    #[default]
    Auto,
    /// Exactly this.
    Level(SimdLevel),
}

impl SimdChoice {
    /// The level that is demanded, if one is.
    pub(in super::super) fn demanded(self) -> Result<Option<SimdLevel>> {
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
        Err(Error::input(format!("this processor has no {level}"))
            .with_hint(format!("it has: {}; leave {SIMD_VARIABLE} unset for the fastest", here.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_unknown_ones_are_errors() {
        for level in SimdLevel::ALL {
            assert_eq!(level.name().parse::<SimdLevel>().unwrap(), *level);
        }
        let error = "avx3".parse::<SimdLevel>().unwrap_err();
        assert!(error.to_string().contains("avx3") && error.to_string().contains("avx2"));
    }

    #[test]
    fn what_the_processor_lacks_cannot_be_demanded() {
        assert!(SimdLevel::here().any(|l| l == SimdLevel::Portable));
        for level in SimdLevel::ALL {
            let demanded = SimdChoice::Level(*level).demanded();
            assert_eq!(demanded.is_ok(), level.available(), "{level}");
        }
    }
}
