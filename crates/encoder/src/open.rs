//! From a folder to an encoder that runs.

use std::path::Path;

use crate::{
    Backend, CandleEngine, Device, DeviceChoice, Encoder, Fingerprint, Network, Precision,
    cpu::{CpuEngine, SimdChoice},
    folder::ModelFolder,
    statics,
    transformer::{Settings, Transformer},
};
use turnwise_core::error::{Error, Result};

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
    let transformer = Transformer::load(name, &folder, settings, &|network, model| {
        engine(network, &device, settings.precision, model)
    })?;
    Ok(Box::new(transformer))
}

/// Opens a folder's model with another network in the place of its own, as it is while it is trained. It computes in 16
/// bits: what was found out of the folder's own weights holds no more.
pub fn open_with(
    name: &str,
    folder: &ModelFolder,
    network: &Network,
    settings: &Settings,
) -> Result<Transformer> {
    let device = Device::open(settings.device)?;
    let precision = match device.is_cpu() {
        true => CpuEngine::best_of_16_bits(SimdChoice::Auto)?,
        false => Precision::Bf16,
    };
    Transformer::with(name, folder, network, settings, &|network, model| {
        engine(network, &device, Some(precision), model)
    })
}

/// The precisions that a device computes in, the most exact first.
pub fn precisions(device: DeviceChoice) -> Result<&'static [Precision]> {
    Ok(match Device::open(device)?.is_cpu() {
        true => &[Precision::F32, Precision::Int16, Precision::Bf16, Precision::Int8],
        false => &[Precision::F32, Precision::Bf16, Precision::F16],
    })
}

/// The models of which int8 was measured to lose less than 0.1 of MAP on BANKING77 and SGD dev: "What a precision
/// costs" in `benchmarks/README.md` has the numbers, and the command for another model.
const MEASURED_IN_INT8: [&str; 1] = [
    // all-MiniLM-L6-v2
    "715a30c8c97665b41d86323595c1f0ed",
];

/// Whether a model may run in int8 unasked.
fn int8_is_as_good(model: Fingerprint) -> bool {
    MEASURED_IN_INT8.contains(&model.to_string().as_str())
}

fn engine(
    network: &Network,
    device: &Device,
    precision: Option<Precision>,
    model: Fingerprint,
) -> Result<Box<dyn Backend>> {
    if device.is_cpu() {
        let simd = SimdChoice::Auto;
        let precision = match precision {
            Some(precision) => precision,
            None if int8_is_as_good(model) => Precision::Int8,
            None => CpuEngine::best_of_16_bits(simd)?,
        };
        return Ok(Box::new(CpuEngine::new(network, precision, simd)?));
    }
    Ok(Box::new(CandleEngine::new(network, device.clone(), precision.unwrap_or(Precision::Bf16))?))
}
