//! Line reader with a maximum line length.
//!
//! For a line that is too long or not UTF-8, the reader returns an error. The next line can still be read. The reader
//! buffers at most one line of the maximum length.

use std::io::{self, BufRead};

/// A line of a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Number of the line, counted from 1.
    pub number: u64,
    /// Text of the line, without the line ending.
    pub text: &'a str,
}

/// Error while reading a line.
#[derive(Debug)]
pub enum LineError {
    /// The line is longer than the limit. It was skipped.
    TooLong {
        /// Number of the line, counted from 1.
        number: u64,
        /// Length of the line in bytes.
        bytes: u64,
        /// Maximum length of a line in bytes.
        limit: usize,
    },
    /// The line is not UTF-8. It was skipped.
    NotUtf8 {
        /// Number of the line, counted from 1.
        number: u64,
        /// Position of the first invalid byte in the line, counted from 1.
        column: usize,
    },
    /// The stream failed, for example because of a truncated archive or a disk error. No more lines follow.
    Broken {
        /// Number of the line where reading failed, counted from 1.
        number: u64,
        /// The I/O error of the stream.
        source: io::Error,
    },
}

/// Reader for lines with a maximum length.
pub struct Lines<R> {
    stream: R,
    limit: usize,
    number: u64,
    buffer: Vec<u8>,
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    /// Creates a reader for lines of at most `limit` bytes.
    pub fn new(stream: R, limit: usize) -> Self {
        Lines { stream, limit, number: 0, buffer: Vec::new(), ended: false }
    }

    /// Reads the next line. Returns `None` at the end of the stream, and after [`LineError::Broken`].
    pub fn next_line(&mut self) -> Option<Result<Line<'_>, LineError>> {
        if self.ended {
            return None;
        }
        self.buffer.clear();
        let mut length = 0u64;
        let mut any = false;
        loop {
            let available = match self.stream.fill_buf() {
                Ok(bytes) => bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => {
                    self.ended = true;
                    return Some(Err(LineError::Broken { number: self.number + 1, source }));
                }
            };
            if available.is_empty() {
                self.ended = true;
                if !any {
                    return None;
                }
                break;
            }
            any = true;
            let end = memchr::memchr(b'\n', available);
            let take = end.unwrap_or(available.len());
            length += take as u64;
            if length <= self.limit as u64 {
                self.buffer.extend_from_slice(&available[..take]);
            }
            let consumed = take + usize::from(end.is_some());
            self.stream.consume(consumed);
            if end.is_some() {
                break;
            }
        }
        self.number += 1;
        let number = self.number;
        if length > self.limit as u64 {
            // Free the buffer, which may be as large as the limit.
            self.buffer = Vec::new();
            return Some(Err(LineError::TooLong { number, bytes: length, limit: self.limit }));
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Some(Ok(Line { number, text })),
            Err(e) => Some(Err(LineError::NotUtf8 { number, column: e.valid_up_to() + 1 })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], limit: usize) -> Vec<String> {
        // The buffer is tiny, so that lines cross its boundary.
        let mut lines = Lines::new(io::BufReader::with_capacity(3, bytes), limit);
        let mut out = Vec::new();
        while let Some(line) = lines.next_line() {
            out.push(match line {
                Ok(line) => format!("{}:{}", line.number, line.text),
                Err(LineError::TooLong { number, bytes, .. }) => format!("{number}!{bytes}"),
                Err(LineError::NotUtf8 { number, column }) => format!("{number}?{column}"),
                Err(LineError::Broken { number, .. }) => format!("{number}#"),
            });
        }
        out
    }

    #[test]
    fn all_line_endings_are_accepted() {
        assert_eq!(all(b"a\r\nbcdef\n\nlast", 10), ["1:a", "2:bcdef", "3:", "4:last"]);
        assert_eq!(all(b"", 10), Vec::<String>::new());
        assert_eq!(all(b"\n", 10), ["1:"]);
    }

    #[test]
    fn reading_continues_after_a_bad_line() {
        assert_eq!(all(b"0123456789a\nok\nx\xff\nend", 10), ["1!11", "2:ok", "3?2", "4:end"]);
    }
}
