//! Conversion of errors of candle, the tensor library.

use turnwise_core::error::Error;

/// Converts an error of candle to [`Error::DeviceMemory`] if the device ran out of memory, otherwise to
/// [`Error::Internal`].
pub fn error(e: candle_core::Error) -> Error {
    let text = e.to_string();
    let first = text.lines().next().unwrap_or_default();
    let lower = first.to_lowercase();
    if lower.contains("out of memory") || lower.contains("out_of_memory") {
        return Error::DeviceMemory { device: "the device".to_owned() };
    }
    Error::Internal(format!("candle: {first}"))
}
