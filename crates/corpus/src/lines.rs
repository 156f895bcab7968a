//! Lines of any stream, one at a time, with a bound on their length.
//!
//! A line that is too long or not UTF-8 is an item of its own, and reading goes on after it; memory never holds more
//! than the bound.

use std::io::{self, BufRead};

/// A line, without its line end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Counted from 1.
    pub number: u64,
    /// The text.
    pub text: &'a str,
}

/// Why a line cannot be given.
#[derive(Debug)]
pub enum LineError {
    /// The line is over the bound; it was skipped.
    TooLong {
        /// Its number.
        number: u64,
        /// Its whole length in bytes.
        bytes: u64,
        /// The bound.
        limit: usize,
    },
    /// The line is not UTF-8; it was skipped.
    NotUtf8 {
        /// Its number.
        number: u64,
        /// The first byte that is wrong, counted from 1 within the line.
        column: usize,
    },
    /// The stream broke off after this many lines: a truncated archive, a disk error.
    Broken {
        /// The line in which it happened.
        number: u64,
        /// The answer of the stream.
        source: io::Error,
    },
}

/// Reads lines of at most `limit` bytes.
pub struct Lines<R> {
    stream: R,
    limit: usize,
    number: u64,
    buffer: Vec<u8>,
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    /// Lines of a stream.
    pub fn new(stream: R, limit: usize) -> Self {
        Lines { stream, limit, number: 0, buffer: Vec::new(), ended: false }
    }

    /// The next line, or `None` at the end.
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
            let end = memchr_newline(available);
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
            // A single huge line must not keep its buffer for the rest of the file.
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

fn memchr_newline(bytes: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], limit: usize) -> Vec<String> {
        // A tiny buffer, so that lines cross its border.
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
    fn lines_end_in_any_way() {
        assert_eq!(all(b"a\r\nbcdef\n\nlast", 10), ["1:a", "2:bcdef", "3:", "4:last"]);
        assert_eq!(all(b"", 10), Vec::<String>::new());
        assert_eq!(all(b"\n", 10), ["1:"]);
    }

    #[test]
    fn a_long_or_broken_line_does_not_stop_the_rest() {
        assert_eq!(all(b"0123456789a\nok\nx\xff\nend", 10), ["1!11", "2:ok", "3?2", "4:end"]);
    }
}
