//! From a folder to an encoder that runs.

use std::path::Path;

use crate::{
    encoder::{
        Backend, CandleEngine, Device, DeviceChoice, Encoder, Network, Precision,
        cpu::{CpuEngine, SimdChoice},
        folder::ModelFolder,
        statics,
        transformer::{Settings, Transformer},
    },
    error::{Error, Result},
};

/// Opens the encoder that a folder holds, static or transformer, under the name by which it was asked for.
pub fn open(name: &str, folder: &Path, settings: &Settings) -> Result<Box<dyn Encoder>> {
    if statics::is_static(folder) {
        // Device and precision are wishes about how, which a static encoder fulfils as it is; the rest is not.
        let how = Settings { device: settings.device, precision: settings.precision, ..Settings::default() };
        if *settings != how {
            return Err(Error::Input {
                message: format!("{name} is a static encoder: it has no tokens, layers or maximum length"),
                hint: Some("leave those options out, or take a transformer".to_owned()),
            });
        }
        return statics::open(folder);
    }
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
