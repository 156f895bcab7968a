//! Numeric precision of inference.

use std::{fmt, str::FromStr};

use turnwise_core::{Error, Result};

/// Numeric precision of the matrix products of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// 32-bit floating point: the reference.
    F32,
    /// 16-bit floating point with the range of f32.
    Bf16,
    /// 16-bit floating point; GPUs only.
    F16,
    /// 16-bit integers with one scale per token and one per output. More accurate than bf16. As fast as int8 on
    /// processors that multiply 16-bit integers as fast as 8-bit ones (AVX2).
    Int16,
    /// 8-bit integers with one scale per token and one per output.
    Int8,
}

impl Precision {
    /// All precisions.
    pub const ALL: [Precision; 5] =
        [Precision::F32, Precision::Bf16, Precision::F16, Precision::Int16, Precision::Int8];

    /// Returns the name that options and files use.
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
