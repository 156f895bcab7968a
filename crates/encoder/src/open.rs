//! Opens the encoder in a folder.

use std::path::{Path, PathBuf};

use turnwise_core::error::{Error, Result};

use crate::{
    Backend, CandleEngine, Device, DeviceChoice, Encoder, Fingerprint, Network, Precision,
    cpu::{CpuEngine, SimdChoice},
    folder::ModelFolder,
    statics,
    transformer::{Settings, Transformer},
};

/// Opens the static encoder or transformer in `folder`. `name` is the display name of a transformer. For a static
/// encoder, only error messages use `name`.
///
/// Fails if the folder is not a valid model or the device is not available. Also fails if the model does not support an
/// option in `settings`. For example, static encoders do not support token options.
pub fn open(name: &str, folder: &Path, settings: &Settings) -> Result<Box<dyn Encoder>> {
    if statics::is_static(folder) {
        // A static encoder can ignore device and precision, which are only preferences. It cannot ignore the other
        // settings, because they are meant to change the vectors.
        let how = Settings { device: settings.device, precision: settings.precision, ..Settings::default() };
        if *settings != how {
            return Err(Error::input(format!(
                "{name} is a static encoder: it has no tokens, layers or maximum length"
            ))
            .with_hint("leave these options out, or use a transformer"));
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

/// Opens the model in a folder, but uses the weights of `network` instead of the weights in the folder. Training
/// evaluates checkpoints this way.
///
/// Ignores `settings.precision`: computes in the fastest precision, but not in int8. int8 is not used, because its quality was measured only for
/// published weights.
pub fn open_with(
    name: &str,
    folder: &ModelFolder,
    network: &Network,
    settings: &Settings,
) -> Result<Transformer> {
    let device = Device::open(settings.device)?;
    let precision = fastest(&device, &ACCURATE)?;
    Transformer::with(name, folder, network, settings, &|network, model| {
        engine(network, &device, Some(precision), model)
    })
}

/// Returns the precisions that a device supports, starting with f32. Fails if the device is not available.
pub fn precisions(device: DeviceChoice) -> Result<&'static [Precision]> {
    Ok(match Device::open(device)?.is_cpu() {
        true => &[Precision::F32, Precision::Int16, Precision::Bf16, Precision::Int8],
        false => &[Precision::F32, Precision::Bf16, Precision::F16],
    })
}

/// Fingerprints of the models that can run in int8 by default on the CPU. int8 reduces their MAP by less than 0.1
/// percentage points; see "Precision and search quality" in `benchmarks/README.md`.
const MEASURED_IN_INT8: [&str; 1] = [
    // all-MiniLM-L6-v2
    "715a30c8c97665b41d86323595c1f0ed",
];

/// Precisions of the CPU that lose almost no quality with any model.
pub const ACCURATE: [Precision; 3] = [Precision::F32, Precision::Int16, Precision::Bf16];

/// Returns the fastest of the precisions in `among` on the CPU. The speed is measured once and kept in the user's cache
/// folder.
pub fn fastest_on_cpu(among: &[Precision]) -> Result<Precision> {
    let folder = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    let file = caches.map(|caches| caches.join("turnwise").join("speed.tsv"));
    CpuEngine::fastest(among, SimdChoice::Auto, file.as_deref())
}

/// Creates the backend for a selector. By default, it does not compute in int8, which was measured only for encoders.
pub(crate) fn selector_engine(
    network: &Network,
    device: DeviceChoice,
    precision: Option<Precision>,
) -> Result<Box<dyn Backend>> {
    let device = Device::open(device)?;
    let precision = precision.map_or_else(|| fastest(&device, &ACCURATE), Ok)?;
    backend(network, &device, precision)
}

/// Returns the fastest precision of a device. On the CPU, it is one of those in `among`.
fn fastest(device: &Device, among: &[Precision]) -> Result<Precision> {
    match device.is_cpu() {
        true => fastest_on_cpu(among),
        false => Ok(Precision::Bf16),
    }
}

/// Creates the backend for a network on a device.
fn backend(network: &Network, device: &Device, precision: Precision) -> Result<Box<dyn Backend>> {
    match device.is_cpu() {
        true => Ok(Box::new(CpuEngine::new(network, precision, SimdChoice::Auto)?)),
        false => Ok(Box::new(CandleEngine::new(network, device.clone(), precision)?)),
    }
}

fn engine(
    network: &Network,
    device: &Device,
    precision: Option<Precision>,
    model: Fingerprint,
) -> Result<Box<dyn Backend>> {
    let is_measured = || MEASURED_IN_INT8.contains(&model.to_string().as_str());
    let precision = match precision {
        Some(precision) => precision,
        // Precisions other than f32 only speed up layers.
        None if network.layers.is_empty() => Precision::F32,
        None if is_measured() => fastest(device, &[&ACCURATE[..], &[Precision::Int8]].concat())?,
        None => fastest(device, &ACCURATE)?,
    };
    backend(network, device, precision)
}
