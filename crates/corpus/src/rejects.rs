//! Rejects file: lists the records that were rejected, one JSON object per line.

use std::{
    fs::{File, OpenOptions},
    io::{BufWriter, Seek, SeekFrom, Write},
    path::PathBuf,
};

use turnwise_core::error::{IoContext, Reject, Result};

/// Writer of the rejects file.
pub struct Rejects {
    file: Option<(PathBuf, BufWriter<File>)>,
    /// Length of the file in bytes, up to the last record written. A resumed ingest continues there.
    pub bytes: u64,
}

impl Rejects {
    /// Opens the file and truncates it to `keep` bytes, the part from an earlier run of the same ingest.
    ///
    /// Without a path, nothing is written.
    pub fn open(path: Option<PathBuf>, keep: u64) -> Result<Self> {
        let Some(path) = path else { return Ok(Rejects { file: None, bytes: 0 }) };
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(false).open(&path).at("create", &path)?;
        let keep = keep.min(file.metadata().at("read", &path)?.len());
        file.set_len(keep).at("write", &path)?;
        file.seek(SeekFrom::Start(keep)).at("write", &path)?;
        Ok(Rejects { file: Some((path, BufWriter::new(file))), bytes: keep })
    }

    /// Appends a record.
    pub fn write(&mut self, reject: &Reject) -> Result<()> {
        if let Some((path, file)) = &mut self.file {
            let mut line = serde_json::to_vec(reject).unwrap_or_default();
            line.push(b'\n');
            file.write_all(&line).at("write", path)?;
            self.bytes += line.len() as u64;
        }
        Ok(())
    }

    /// Writes the buffered records to the file and returns its length in bytes.
    pub fn flush(&mut self) -> Result<u64> {
        if let Some((path, file)) = &mut self.file {
            file.flush().at("write", path)?;
        }
        Ok(self.bytes)
    }
}
