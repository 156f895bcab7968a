//! Output to files and standard output. Files are replaced atomically. Files that end in `.gz` or `.zst` are
//! compressed.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

/// Output file or standard output. Files that end in `.gz` or `.zst` are compressed.
///
/// Data is written to a temporary file. [`Output::finish`] renames the file to its final name. If `finish` is not
/// called, dropping the output removes the temporary file. A device or a pipe is written directly.
pub struct Output {
    name: PathBuf,
    stream: Stream,
    /// Temporary path and final path. `None` for standard output, a device or a pipe.
    temporary: Option<(PathBuf, PathBuf)>,
}

enum Stream {
    Plain(BufWriter<Box<dyn Write>>),
    Gz(flate2::write::GzEncoder<BufWriter<Box<dyn Write>>>),
    Zst(zstd::Encoder<'static, BufWriter<Box<dyn Write>>>),
    Ended,
}

impl Output {
    /// Opens an output file, or standard output for the path `-`. Missing parent folders are created.
    pub fn create(path: &Path) -> Result<Self> {
        let name = path.to_owned();
        if path == Path::new("-") {
            let stream = Stream::Plain(BufWriter::with_capacity(1 << 16, Box::new(io::stdout())));
            return Ok(Output { name: "standard output".into(), stream, temporary: None });
        }
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            fs::create_dir_all(parent).at("create", parent)?;
        }
        let (file, temporary) = match files::write_target(path) {
            files::WriteTarget::Stream => (File::options().write(true).open(path).at("open", path)?, None),
            files::WriteTarget::File(path) => {
                let temporary = files::temporary_path(&path);
                (File::create(&temporary).at("create", &temporary)?, Some((temporary, path)))
            }
        };
        let file: Box<dyn Write> = Box::new(file);
        let file = BufWriter::with_capacity(1 << 18, file);
        let stream = match path.extension().and_then(|e| e.to_str()) {
            Some("gz") => Stream::Gz(flate2::write::GzEncoder::new(file, flate2::Compression::default())),
            Some("zst") => Stream::Zst(zstd::Encoder::new(file, 3).at("write", path)?),
            _ => Stream::Plain(file),
        };
        Ok(Output { name, stream, temporary })
    }

    /// Calls `f` with the stream of the output. If `f` returns an error, the name of the output is added to the error.
    pub fn with<T>(&mut self, f: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> Result<T> {
        let stream: &mut dyn Write = match &mut self.stream {
            Stream::Plain(s) => s,
            Stream::Gz(s) => s,
            Stream::Zst(s) => s,
            Stream::Ended => return Err(Error::Internal("an output was used after it was finished".into())),
        };
        f(stream).at("write to", &self.name)
    }

    /// Flushes the output and renames the temporary file to its final name.
    pub fn finish(mut self) -> Result<()> {
        self.with(|out| out.flush())?;
        let rest = match std::mem::replace(&mut self.stream, Stream::Ended) {
            Stream::Plain(_) | Stream::Ended => None,
            Stream::Gz(s) => Some(s.finish().at("write to", &self.name)?),
            Stream::Zst(s) => Some(s.finish().at("write to", &self.name)?),
        };
        rest.map_or(Ok(()), |mut s| s.flush()).at("write to", &self.name)?;
        match self.temporary.take() {
            Some((temporary, path)) => fs::rename(&temporary, path).at("create", &self.name),
            None => Ok(()),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // If the temporary file still exists, the output was not finished and the file is incomplete.
        if let Some((temporary, _)) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}
