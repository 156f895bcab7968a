//! Selects and opens the device (CPU or GPU) that a network runs on.

use std::{fmt, str::FromStr};

use candle_core::DType;
use turnwise_core::error::{Error, Result};

use crate::Precision;

/// The user's choice of the device to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// A GPU if this build supports GPUs and the GPU can be opened, otherwise the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The NVIDIA GPU with this number, starting at 0.
    Cuda(usize),
    /// The Apple GPU.
    Metal,
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = |text: &str| text.parse().ok();
        match text {
            "auto" => Some(DeviceChoice::Auto),
            "cpu" => Some(DeviceChoice::Cpu),
            "cuda" => Some(DeviceChoice::Cuda(0)),
            "metal" => Some(DeviceChoice::Metal),
            other => other.strip_prefix("cuda:").and_then(number).map(DeviceChoice::Cuda),
        }
        .ok_or_else(|| Error::unknown_name("device", text, ["auto", "cpu", "cuda", "cuda:1", "metal"]))
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda(n) => write!(f, "cuda:{n}"),
            DeviceChoice::Metal => f.write_str("metal"),
        }
    }
}

/// An opened device.
#[derive(Debug, Clone)]
pub struct Device(candle_core::Device);

impl Device {
    /// Returns the CPU.
    pub fn cpu() -> Self {
        Device(candle_core::Device::Cpu)
    }

    /// Opens a device. `Auto` falls back to the CPU. Fails if a GPU is chosen explicitly and is not available.
    pub fn open(choice: DeviceChoice) -> Result<Self> {
        match choice {
            DeviceChoice::Cpu => Ok(Device::cpu()),
            DeviceChoice::Cuda(n) => opened(choice, candle_core::Device::new_cuda(n)),
            DeviceChoice::Metal => opened(choice, candle_core::Device::new_metal(0)),
            DeviceChoice::Auto if cfg!(feature = "cuda") => {
                Ok(Device::open(DeviceChoice::Cuda(0)).unwrap_or_else(|_| Device::cpu()))
            }
            DeviceChoice::Auto if cfg!(feature = "metal") => {
                Ok(Device::open(DeviceChoice::Metal).unwrap_or_else(|_| Device::cpu()))
            }
            DeviceChoice::Auto => Ok(Device::cpu()),
        }
    }

    /// Returns true if this is the CPU.
    pub fn is_cpu(&self) -> bool {
        self.0.is_cpu()
    }

    /// Returns candle's own representation of the device.
    pub fn inner(&self) -> &candle_core::Device {
        &self.0
    }

    pub(super) fn dtype(&self, precision: Precision) -> Result<DType> {
        match precision {
            Precision::F32 => Ok(DType::F32),
            Precision::Bf16 => Ok(DType::BF16),
            Precision::F16 => Ok(DType::F16),
            Precision::Int16 | Precision::Int8 => {
                Err(Error::input(format!("{precision} is supported only on the CPU, not on {self}"))
                    .with_hint("use bf16, f16 or f32, or --device cpu"))
            }
        }
    }

    pub(super) fn error(&self, error: &candle_core::Error) -> Error {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let lower = first.to_lowercase();
        if lower.contains("out of memory") || lower.contains("out_of_memory") {
            Error::DeviceMemory { device: self.to_string() }
        } else {
            Error::Internal(format!("candle on {self}: {first}"))
        }
    }
}

fn opened(choice: DeviceChoice, device: candle_core::Result<candle_core::Device>) -> Result<Device> {
    use candle_core::Error as E;
    let why = match device {
        Ok(device) => return Ok(Device(device)),
        Err(e) => e,
    };
    let feature = if choice == DeviceChoice::Metal { "metal" } else { "cuda" };
    let (message, hint) = match why {
        E::NotCompiledWithCudaSupport | E::NotCompiledWithMetalSupport => (
            format!("this turnwise was built without {feature} support"),
            format!("build it with `cargo build --release --features {feature}`, or use --device cpu"),
        ),
        why => (
            format!("{choice} is not available: {}", why.to_string().lines().next().unwrap_or_default()),
            "check the GPU driver, or use --device cpu".to_owned(),
        ),
    };
    Err(Error::unavailable(message).with_hint(hint))
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.location() {
            candle_core::DeviceLocation::Cpu => f.write_str("cpu"),
            candle_core::DeviceLocation::Cuda { gpu_id } => write!(f, "cuda:{gpu_id}"),
            candle_core::DeviceLocation::Metal { .. } => f.write_str("metal"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names() {
        for name in ["auto", "cpu", "cuda:0", "cuda:3", "metal"] {
            assert_eq!(name.parse::<DeviceChoice>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse::<DeviceChoice>().unwrap(), DeviceChoice::Cuda(0));
        assert_eq!(
            "cud".parse::<DeviceChoice>().unwrap_err().hint().as_deref(),
            Some("did you mean `cuda`?")
        );
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_device_that_was_not_built_in_is_reported() {
        let error = Device::open(DeviceChoice::Cuda(0)).unwrap_err();
        assert_eq!(error.class(), turnwise_core::error::Class::Unavailable);
        assert!(error.hint().unwrap().contains("--features cuda"));
        assert!(Device::open(DeviceChoice::Auto).unwrap().is_cpu());
    }
}
