//! Writers and readers for files of vectors with ids, in common formats. Files are written as a stream. A file gets its
//! final name only when it is complete.

mod arrow;
mod flatbuffers;
mod npy;
mod safetensors;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};
use turnwise_corpus::output::Output;
use turnwise_encoder::{Encoder, Vectors};

use crate::folder::TemporaryFile;

/// File format for vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum VectorFileFormat {
    /// NumPy, with the IDs in a separate text file
    Npy,
    /// Safetensors, with the tensors `embeddings` and `ids`
    Safetensors,
    /// JSON lines, one object per vector
    Jsonl,
    /// Arrow IPC
    Arrow,
}

impl VectorFileFormat {
    /// Returns the name of the format, which is also its file extension.
    pub const fn name(self) -> &'static str {
        match self {
            VectorFileFormat::Npy => "npy",
            VectorFileFormat::Safetensors => "safetensors",
            VectorFileFormat::Jsonl => "jsonl",
            VectorFileFormat::Arrow => "arrow",
        }
    }

    /// Detects the format from the extension of a path. Ignores a final `.gz` or `.zst`. The format of standard output
    /// (`-`) is JSON lines.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if the extension is unknown.
    pub fn of(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let plain = name.trim_end_matches(".gz").trim_end_matches(".zst");
        let ending = plain.rsplit_once('.').map_or("", |(_, ending)| ending);
        match ending {
            _ if path == Path::new("-") => Ok(VectorFileFormat::Jsonl),
            "npy" => Ok(VectorFileFormat::Npy),
            "safetensors" => Ok(VectorFileFormat::Safetensors),
            "jsonl" | "ndjson" => Ok(VectorFileFormat::Jsonl),
            "arrow" | "feather" | "ipc" => Ok(VectorFileFormat::Arrow),
            _ => {
                Err(Error::input(format!("the extension of {} is not a known vector format", path.display()))
                    .with_hint("use .npy, .safetensors, .jsonl or .arrow, or choose the format with --to"))
            }
        }
    }
}

/// Writer of a vector file.
pub trait VectorFileWriter {
    /// Appends vectors with their ids.
    fn write(&mut self, ids: &[String], vectors: &Vectors) -> Result<()>;

    /// Completes the file and renames it to the final name.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Creates a writer for vectors with `dim` dimensions. `about` is metadata about the encoder, which is stored if the
/// format supports metadata.
///
/// # Errors
///
/// [`Error::Input`] if the format is not JSON lines, and `path` is standard output or ends in `.gz` or `.zst`.
pub fn create(
    path: &Path,
    target: VectorFileFormat,
    dim: usize,
    about: &BTreeMap<String, String>,
) -> Result<Box<dyn VectorFileWriter>> {
    if target == VectorFileFormat::Jsonl {
        return Ok(Box::new(Jsonl { out: Output::create(path)? }));
    }
    if path == Path::new("-") {
        return Err(Error::input(format!(
            "{} needs a file, because its header is written last",
            target.name()
        ))
        .with_hint("JSONL can be written to standard output"));
    }
    if [".gz", ".zst"].iter().any(|end| path.as_os_str().to_string_lossy().ends_with(end)) {
        return Err(Error::input(format!("{} cannot be compressed; only JSONL can", target.name())));
    }
    Ok(match target {
        VectorFileFormat::Npy => Box::new(npy::Npy::create(path, dim)?),
        VectorFileFormat::Safetensors => Box::new(safetensors::Safetensors::create(path, dim, about)?),
        _ => Box::new(arrow::Arrow::create(path, dim, about)?),
    })
}

/// Callback for the id and the vector of each row.
pub type RowCallback<'a> = &'a mut dyn FnMut(&str, &[f32]) -> Result<()>;

/// Reads an Arrow or safetensors file that turnwise has written. Calls `row` for each row, in order. Keeps at most one
/// batch of rows in memory.
///
/// # Errors
///
/// [`Error::Data`] or [`Error::Io`] if the file was not written by turnwise, is damaged or cannot be read.
pub fn read_rows(path: &Path, target: VectorFileFormat, row: RowCallback<'_>) -> Result<()> {
    match target {
        VectorFileFormat::Arrow => arrow::read_rows(path, row),
        VectorFileFormat::Safetensors => safetensors::read_rows(path, row),
        VectorFileFormat::Npy | VectorFileFormat::Jsonl => {
            Err(Error::Internal(format!("{} files cannot be read back", target.name())))
        }
    }
}

/// Returns the error for a file that turnwise did not write.
fn foreign_file(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::data(format!("{} is not a vector file written by turnwise: {what}", path.display()))
}

/// Returns the path of the text file with the ids of a `.npy` file: `vectors.ids.txt` for `vectors.npy`.
pub fn ids_path(path: &Path) -> PathBuf {
    path.with_extension("ids.txt")
}

/// Returns metadata about the encoder, for [`create`]. `more` contains additional fields.
pub(crate) fn metadata<const N: usize>(
    encoder: &dyn Encoder,
    model: &str,
    dim: usize,
    more: [(&str, String); N],
) -> BTreeMap<String, String> {
    let fields = [
        ("turnwise", env!("CARGO_PKG_VERSION").to_owned()),
        ("model", model.to_owned()),
        ("fingerprint", encoder.fingerprint().to_string()),
        ("runs", encoder.describe()),
        ("dim", dim.to_string()),
    ];
    fields.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Output file under a temporary name. It is removed when dropped, unless it was renamed to its final name.
struct PendingFile {
    path: PathBuf,
    // Fields are dropped in this order, so the file is closed before `temporary` removes it.
    out: BufWriter<File>,
    temporary: TemporaryFile,
}

impl PendingFile {
    fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Error::input(format!("{} is a folder, not a file", path.display())));
        }
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            fs::create_dir_all(parent).at("create", parent)?;
        }
        let files::WriteTarget::File(path) = files::write_target(path) else {
            return Err(Error::input(format!("{} is a device or a pipe, not a file", path.display()))
                .with_hint("use a file; only JSONL can be written to a pipe, with --to jsonl"));
        };
        let temporary = TemporaryFile::removed_on_drop(files::temporary_path(&path));
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&temporary.path);
        let out = BufWriter::with_capacity(1 << 18, file.at("create", &temporary.path)?);
        Ok(PendingFile { path, out, temporary })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).at("write", &self.path)
    }

    /// Overwrites the start of the file with `bytes`.
    fn write_at_start(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.seek(SeekFrom::Start(0)).at("write", &self.path)?;
        self.write(bytes)
    }

    /// Flushes the file to disk and renames it to its final name.
    fn keep(self) -> Result<()> {
        let PendingFile { path, out, mut temporary } = self;
        let file = out.into_inner().map_err(|e| e.into_error()).at("write", &path)?;
        file.sync_all().at("flush", &path)?;
        drop(file);
        fs::rename(&temporary.path, &path).at("create", &path)?;
        temporary.keep();
        files::sync_parent(&path)
    }
}

/// Returns the rows as little-endian f32 bytes.
fn bytes_of(vectors: &Vectors) -> Vec<u8> {
    vectors.flat().iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// JSON lines `{"id": …, "embedding": […]}`. Each number has as few digits as possible, but parsing it results in the
/// same f32.
struct Jsonl {
    out: Output,
}

#[derive(Serialize)]
struct Record<'a> {
    id: &'a str,
    embedding: &'a [f32],
}

impl VectorFileWriter for Jsonl {
    fn write(&mut self, ids: &[String], vectors: &Vectors) -> Result<()> {
        ids.iter().zip(vectors.rows()).try_for_each(|(id, embedding)| {
            self.out.with(|out| {
                serde_json::to_writer(&mut *out, &Record { id, embedding })?;
                out.write_all(b"\n")
            })
        })
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.out.finish()
    }
}
