//! From a folder to an encoder that runs.

use std::path::Path;

use crate::{
    encoder::{
        Backend, CandleEngine, Device, DeviceChoice, Encoder, Network, Precision,
        cpu::{CpuEngine, SimdChoice},
        folder::ModelFolder,
        transformer::{Settings, Transformer},
    },
    error::Result,
};

/// Opens the encoder that a folder holds, under the name by which it was asked for.
pub fn open(name: &str, folder: &Path, settings: &Settings) -> Result<Box<dyn Encoder>> {
    let folder = ModelFolder::open(folder)?;
    let device = Device::open(settings.device)?;
    let transformer =
        Transformer::load(name, &folder, settings, &|network| engine(network, &device, settings.precision))?;
    Ok(Box::new(transformer))
}

/// The precisions that a device computes in, the most exact first.
pub fn precisions(device: DeviceChoice) -> Result<&'static [Precision]> {
    Ok(match Device::open(device)?.is_cpu() {
        true => &[Precision::F32, Precision::Int16, Precision::Bf16, Precision::Int8],
        false => &[Precision::F32, Precision::Bf16, Precision::F16],
    })
}

fn engine(network: &Network, device: &Device, precision: Option<Precision>) -> Result<Box<dyn Backend>> {
    if device.is_cpu() {
        let simd = SimdChoice::Auto;
        let precision = precision.map_or_else(|| CpuEngine::best_precision(simd), Ok)?;
        return Ok(Box::new(CpuEngine::new(network, precision, simd)?));
    }
    Ok(Box::new(CandleEngine::new(network, device.clone(), precision.unwrap_or(Precision::Bf16))?))
}
