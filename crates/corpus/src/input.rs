//! Opens input files and standard input. Compression with gzip or Zstandard is detected from the first bytes. The
//! beginning of the data is buffered so that the format can be detected from it.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use flate2::bufread::MultiGzDecoder;

use turnwise_core::error::{Error, IoContext, Result};

/// Maximum number of bytes at the beginning of an input that are used to detect the format.
const PROBE_BYTES: usize = 256 * 1024;
/// The same for an input that starts with a longer JSON line. The format is only known at the end of this line: a dialogue
/// of thousands of turns is one line.
const PROBE_LINE_BYTES: usize = 8 * 1024 * 1024;
const BUFFER_BYTES: usize = 256 * 1024;
/// Maximum time to wait for more data if standard input starts with a JSON line. After this time, the format is
/// detected from the data that has arrived.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// An open file or stream, decompressed and positioned at its start.
pub struct Input {
    /// The name for messages: the path as given by the user, `-` for standard input, or the name of a stream.
    pub name: String,
    /// The path of a file. `None` for a stream.
    pub path: Option<PathBuf>,
    stream: Box<dyn BufRead + Send>,
    head: Vec<u8>,
    /// Whether `head`, the buffered beginning, is known to be the complete input.
    whole: bool,
}

impl Input {
    /// Opens a file, or standard input for `-`. Returns an error for folders, tar and zip archives, and UTF-16 text.
    pub fn open(path: &Path) -> Result<Self> {
        Input::open_counted(path, &Arc::default())
    }

    /// Opens a file as [`Input::open`] does, and adds the number of bytes read from disk to `read`.
    pub fn open_counted(path: &Path, read: &Arc<AtomicU64>) -> Result<Self> {
        if path == Path::new("-") {
            let (stream, available) = Piped::standard_input()?.probed();
            return Input::with_head("-".into(), None, Box::new(BufReader::new(stream)), available);
        }
        let file = File::open(path).at("open", path)?;
        let kind = file.metadata().at("read", path)?;
        if kind.is_dir() {
            return Err(Error::input(format!("{} is a folder, not a file", path.display())));
        }
        // The format is detected first, and the file is then opened again. A pipe would be empty the second time.
        if !kind.is_file() {
            return Err(Error::input(format!(
                "{} is not a regular file, but a pipe or a device",
                path.display()
            ))
            .with_hint("pass the data on standard input, with - instead of the path"));
        }
        let stream = BufReader::with_capacity(BUFFER_BYTES, Counting { file, read: read.clone() });
        Input::from_stream(path.display().to_string(), Some(path.to_owned()), Box::new(stream))
    }

    /// Creates an input from a stream. `name` is shown in messages. `path` is the file that the stream reads, if any.
    pub fn from_stream(name: String, path: Option<PathBuf>, raw: Box<dyn BufRead + Send>) -> Result<Self> {
        Input::with_head(name, path, raw, None)
    }

    /// Creates an input from a stream that may be slow. The format is detected from the first bytes that arrive.
    pub fn from_slow_stream(name: String, mut raw: Box<dyn BufRead + Send>) -> Result<Self> {
        let available = raw.fill_buf().at("read", &name)?.len();
        Input::with_head(name, None, raw, Some(available))
    }

    /// Creates an input from a stream and buffers its beginning: `available` bytes, or [`PROBE_BYTES`] if `available`
    /// is `None`, or more if it starts with a long JSON line.
    fn with_head(
        name: String,
        path: Option<PathBuf>,
        mut raw: Box<dyn BufRead + Send>,
        available: Option<usize>,
    ) -> Result<Self> {
        let magic = raw.fill_buf().at("read", &name)?;
        let mut stream: Box<dyn BufRead + Send> = if magic.starts_with(&[0x1f, 0x8b]) {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(raw)))
        } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(raw).at("read", &name)?;
            decoder.window_log_max(31).at("read", &name)?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        } else {
            raw
        };
        let mut head = Vec::new();
        let wanted = available.unwrap_or(PROBE_BYTES).min(PROBE_BYTES);
        // A read error is ignored here. The format reader reports it later, with the line number.
        let _ = (&mut stream).take(wanted as u64).read_to_end(&mut head);
        let mut whole = head.len() < wanted;
        if head.len() == PROBE_BYTES && head.trim_ascii_start().starts_with(b"{") && !head.contains(&b'\n') {
            let _ = (&mut stream).take((PROBE_LINE_BYTES - PROBE_BYTES) as u64).read_until(b'\n', &mut head);
            whole = head.len() < PROBE_LINE_BYTES && !head.ends_with(b"\n");
        }
        let refused = |why: &str, hint: &str| Error::data(format!("{name}: {why}")).with_hint(hint);
        if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
            return Err(refused(
                "the text is UTF-16, but turnwise reads UTF-8",
                "convert it: iconv -f UTF-16 -t UTF-8 FILE",
            ));
        }
        if head.get(257..262) == Some(b"ustar") {
            return Err(refused("this is a tar archive", "unpack it (tar -xf FILE) and pass the folder"));
        }
        if head.starts_with(b"PK\x03\x04") {
            return Err(refused("this is a zip archive", "unpack it (unzip FILE) and pass the folder"));
        }
        #[cfg(not(feature = "parquet"))]
        if head.starts_with(b"PAR1") {
            return Err(refused(
                "this turnwise was built without Parquet support",
                "build it with `--features parquet`",
            ));
        }
        if head.starts_with(&[0xef, 0xbb, 0xbf]) {
            head.drain(..3);
        }
        Ok(Input { name, path, stream, head, whole })
    }

    /// Returns whether the input is empty or consists of white space.
    pub fn is_blank(&self) -> bool {
        self.head.len() < PROBE_BYTES && self.head.iter().all(u8::is_ascii_whitespace)
    }

    /// Returns the beginning of the input, for format detection.
    pub fn probe(&self) -> Probe<'_> {
        // The head can end in the middle of a character. The text ends before this character.
        let text = match std::str::from_utf8(&self.head) {
            Ok(text) => text,
            Err(e) => std::str::from_utf8(&self.head[..e.valid_up_to()]).unwrap_or_default(),
        };
        Probe { path: self.path.as_deref(), text, whole: self.whole }
    }

    /// Returns the file name without folder and extensions. For a stream, returns `stdin-` followed by a hash of the
    /// first line that is not blank.
    pub fn stem(&self) -> String {
        let Some(name) = self.path.as_deref().and_then(Path::file_name).and_then(|n| n.to_str()) else {
            let line = self.head.split(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty());
            return format!("stdin-{}", &blake3::hash(line.unwrap_or_default()).to_hex()[..8]);
        };
        let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
        name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem }).to_owned()
    }

    /// Returns the name of the folder that contains the file. A relative path is made absolute first. Returns `None`
    /// for a stream.
    pub fn folder_name(&self) -> Option<String> {
        let path = std::path::absolute(self.path.as_deref()?).ok()?;
        Some(path.parent()?.file_name()?.to_str()?.to_owned())
    }

    /// Returns a stream of the complete decompressed input, including the buffered beginning.
    pub fn into_stream(self) -> Box<dyn BufRead + Send> {
        Box::new(Cursor::new(self.head).chain(self.stream))
    }
}

/// Reader that counts the bytes read from a file.
struct Counting {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Standard input. It is read by a separate thread, so that waiting for data can time out.
struct Piped {
    parts: Receiver<io::Result<Vec<u8>>>,
    current: Cursor<Vec<u8>>,
    /// Error that occurred while the beginning was read. `read` returns this error after the bytes of `current`.
    broken: Option<io::Error>,
}

impl Piped {
    fn standard_input() -> Result<Self> {
        let (sender, parts) = mpsc::sync_channel(4);
        // A read of standard input cannot be canceled. The thread therefore runs until the stream or the process ends.
        let spawned = thread::Builder::new().name("stdin".into()).spawn(move || {
            let mut stdin = io::stdin().lock();
            let mut buffer = vec![0; 1 << 16];
            loop {
                let part = match stdin.read(&mut buffer) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    read => read.map(|n| buffer[..n].to_vec()),
                };
                let last = part.as_ref().map_or(true, Vec::is_empty);
                if sender.send(part).is_err() || last {
                    return;
                }
            }
        });
        spawned.map_err(|e| Error::Internal(format!("no thread for standard input: {e}")))?;
        Ok(Piped { parts, current: Cursor::default(), broken: None })
    }

    /// Reads and buffers the beginning of the stream. If the wait for more data times out, also returns the number of
    /// bytes that have arrived. Otherwise, [`PROBE_BYTES`] or the whole stream has been read, and the number is `None`.
    ///
    /// The wait can time out only if the stream starts with a JSON line, because this line is enough to detect the
    /// format.
    fn probed(mut self) -> (Self, Option<usize>) {
        let mut head = Vec::new();
        let mut available = None;
        let mut has_json_line = false;
        while head.len() < PROBE_BYTES {
            let part = match has_json_line {
                true => self.parts.recv_timeout(PROBE_TIMEOUT).ok(),
                false => self.parts.recv().ok(),
            };
            match part {
                Some(Ok(part)) if !part.is_empty() => head.extend(part),
                Some(end) => {
                    self.broken = end.err();
                    break;
                }
                None => {
                    available = Some(head.len());
                    break;
                }
            }
            has_json_line = has_json_line || begins_with_json_line(&head);
        }
        self.current = Cursor::new(head);
        (self, available)
    }
}

fn begins_with_json_line(head: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b'\n', head) else { return false };
    serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&head[..end]).is_ok()
}

impl Read for Piped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.current.position() == self.current.get_ref().len() as u64 {
            if let Some(e) = self.broken.take() {
                return Err(e);
            }
            // A closed channel means that the stream has ended.
            self.current = Cursor::new(self.parts.recv().unwrap_or_else(|_| Ok(Vec::new()))?);
        }
        self.current.read(buffer)
    }
}

/// Beginning of an input, for format detection.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'a> {
    /// The path of a file. `None` for a stream.
    pub path: Option<&'a Path>,
    /// The first characters, up to 256 KiB.
    pub text: &'a str,
    /// Whether `text` is known to be the complete input.
    pub whole: bool,
}

impl<'a> Probe<'a> {
    /// Returns the file name in lower case, without `.gz` and `.zst`. For a stream, returns an empty string.
    pub fn file_name(&self) -> String {
        let name = self.path.and_then(Path::file_name).and_then(|n| n.to_str()).unwrap_or_default();
        name.to_lowercase().trim_end_matches(".gz").trim_end_matches(".zst").to_owned()
    }

    /// Returns whether the result of [`Probe::file_name`] ends with `extension`, such as `.csv`.
    pub fn has_extension(&self, extension: &str) -> bool {
        self.file_name().ends_with(extension)
    }

    /// Returns the lines that are complete and not blank. If the probed text has no line ending, returns the whole text
    /// as one line, although it may be cut off.
    pub fn lines(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let end = if self.whole { self.text.len() } else { self.text.rfind('\n').unwrap_or(self.text.len()) };
        self.text[..end].lines().filter(|line| !line.trim().is_empty())
    }

    /// Returns the first value at nesting depth `depth` of a JSON document. The first item of the pair is the path of
    /// keys to this value. Returns `None` if the beginning of the document contains no complete value at this depth.
    pub fn first_element(&self, depth: usize) -> Option<(Vec<String>, serde_json::Value)> {
        if !self.text.trim_start().starts_with(['[', '{']) {
            return None;
        }
        let mut elements = crate::json_elements::Elements::at_depth(self.text.as_bytes(), depth, PROBE_BYTES);
        let element = elements.next()?.ok()?;
        Some((element.keys, serde_json::from_slice(&element.json).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: Vec<u8>) -> Result<String> {
        let input = Input::from_stream("x".into(), None, Box::new(Cursor::new(bytes)))?;
        let mut text = String::new();
        input.into_stream().read_to_string(&mut text).at("read", "x")?;
        Ok(text)
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_refused() {
        let Err(e) = Input::open(Path::new("/dev/null")) else { panic!() };
        assert!(e.to_string().contains("not a regular file") && e.hint().unwrap().contains(" - "), "{e}");
    }

    #[test]
    fn a_long_first_line_of_json_is_probed_up_to_its_end() {
        let probed = |text: String| {
            let input =
                Input::from_stream("x".into(), None, Box::new(Cursor::new(text.into_bytes()))).unwrap();
            (input.probe().lines().next().map(str::len), input.probe().text.len(), input.whole)
        };
        let line = |bytes: usize| format!("{{\"text\":\"{}\"}}", "x".repeat(bytes - 11));
        let long = 2 * PROBE_BYTES;
        assert_eq!(probed(line(long)), (Some(long), long, true));
        assert_eq!(probed(line(long) + "\n" + &line(20)), (Some(long), long + 1, false));
        assert_eq!(probed(line(20) + "\n" + &line(long)), (Some(20), PROBE_BYTES, false));
        assert_eq!(probed(line(2 * PROBE_LINE_BYTES)).1, PROBE_LINE_BYTES);
        assert_eq!(probed("x".repeat(long)).1, PROBE_BYTES);
    }

    #[test]
    fn compression_is_detected_by_magic_bytes() {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(b"hello").unwrap();
        assert_eq!(read(gz.finish().unwrap()).unwrap(), "hello");
        assert_eq!(read(zstd::encode_all(&b"hello"[..], 1).unwrap()).unwrap(), "hello");
        assert_eq!(read(b"\xef\xbb\xbfhello".to_vec()).unwrap(), "hello");
        assert_eq!(read(Vec::new()).unwrap(), "");
    }

    #[test]
    fn unsupported_encodings_and_archives_are_rejected_with_a_hint() {
        let e = read(b"\xff\xfeh\0i\0".to_vec()).unwrap_err();
        assert!(e.to_string().contains("UTF-16") && e.hint().unwrap().contains("iconv"));
        let e = read(b"PK\x03\x04....".to_vec()).unwrap_err();
        assert!(e.hint().unwrap().contains("unzip"));
    }

    #[test]
    fn the_stem_drops_folder_and_extensions() {
        let stem = |p: &str| {
            Input::from_stream(p.into(), Some(p.into()), Box::new(Cursor::new(Vec::new()))).unwrap().stem()
        };
        assert_eq!(stem("a/b/chats.jsonl.gz"), "chats");
        assert_eq!(stem("a/chats"), "chats");
        assert_eq!(stem(".hidden"), ".hidden");
    }
}
