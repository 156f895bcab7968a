//! Files of vectors with their ids, in the formats that other tools read. All of them are written as a stream, and
//! appear whole or not at all.

mod arrow;
mod jsonl;
mod npy;
pub(crate) mod reading;
mod safetensors;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::cli::output::Output;
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};
use turnwise_encoder::Vectors;

/// A format of such a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Target {
    Npy,
    Safetensors,
    Jsonl,
    Arrow,
}

impl Target {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Target::Npy => "npy",
            Target::Safetensors => "safetensors",
            Target::Jsonl => "jsonl",
            Target::Arrow => "arrow",
        }
    }

    /// The format that a file's ending names.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let plain = name.trim_end_matches(".gz").trim_end_matches(".zst");
        let ending = plain.rsplit_once('.').map_or("", |(_, ending)| ending);
        match ending {
            _ if path == Path::new("-") => Ok(Target::Jsonl),
            "npy" => Ok(Target::Npy),
            "safetensors" => Ok(Target::Safetensors),
            "jsonl" | "ndjson" => Ok(Target::Jsonl),
            "arrow" | "feather" | "ipc" => Ok(Target::Arrow),
            _ => Err(Error::Input {
                message: format!("the ending of {} names no format of vectors", path.display()),
                hint: Some(
                    "end it in .npy, .safetensors, .jsonl or .arrow, or name the format with --to".to_owned(),
                ),
            }),
        }
    }
}

/// A file of vectors that is being written.
pub(crate) trait Sink {
    /// Adds vectors with their ids.
    fn write(&mut self, ids: &[String], vectors: &Vectors) -> Result<()>;

    /// Ends it. Only now does the file have its name.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Begins a file. `about` says what made the vectors, where the format has room for it.
pub(crate) fn create(
    path: &Path,
    target: Target,
    dim: usize,
    about: &BTreeMap<String, String>,
) -> Result<Box<dyn Sink>> {
    if target == Target::Jsonl {
        return Ok(Box::new(jsonl::Jsonl::new(Output::create(path)?)));
    }
    if path == Path::new("-") {
        return Err(Error::Input {
            message: format!("{} needs a file: its head is written last", target.name()),
            hint: Some("JSONL can be written to standard output".to_owned()),
        });
    }
    if [".gz", ".zst"].iter().any(|end| path.as_os_str().to_string_lossy().ends_with(end)) {
        return Err(Error::input(format!("{} is not written compressed; only JSONL is", target.name())));
    }
    Ok(match target {
        Target::Npy => Box::new(npy::Npy::create(path, dim)?),
        Target::Safetensors => Box::new(safetensors::Safetensors::create(path, dim, about)?),
        _ => Box::new(arrow::Arrow::create(path, dim, about)?),
    })
}

/// Where the ids of a `.npy` file are: `vectors.npy` has `vectors.ids.txt`.
pub(crate) fn ids_beside(path: &Path) -> PathBuf {
    path.with_extension("ids.txt")
}

/// The temporary name of a file until it is complete. Dropped before that, the file is gone.
struct Temporary {
    path: PathBuf,
    temporary: Option<PathBuf>,
}

impl Temporary {
    fn create(path: &Path) -> Result<(Self, File)> {
        if path.is_dir() {
            return Err(Error::input(format!("{} is a folder, not a file", path.display())));
        }
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            fs::create_dir_all(parent).at("create", parent)?;
        }
        let files::Place::File(path) = files::place(path) else {
            return Err(Error::Input {
                message: format!("{} is no file: a device or a pipe", path.display()),
                hint: Some("name a file; JSONL can be written to a pipe, with --to jsonl".to_owned()),
            });
        };
        let temporary = files::beside(&path);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)
            .at("create", &temporary)?;
        Ok((Temporary { path, temporary: Some(temporary) }, file))
    }

    /// Flushes the file to the disk and gives it its name.
    fn keep(mut self, mut file: File) -> Result<()> {
        file.flush().and_then(|()| file.sync_all()).at("flush", &self.path)?;
        drop(file);
        if let Some(temporary) = self.temporary.take() {
            fs::rename(&temporary, &self.path).at("create", &self.path)?;
            let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            files::sync_folder(folder)?;
        }
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// The bytes of rows, little-endian.
fn bytes_of(vectors: &Vectors) -> Vec<u8> {
    vectors.flat().iter().flat_map(|v| v.to_le_bytes()).collect()
}
