//! Row reader for delimited text (CSV, TSV) with a maximum row length.
//!
//! A quote that is never closed would make the rest of a file one row. When such a row reaches the maximum length or
//! the end of the file, the reader returns an error with its start line.

use std::io::{self, BufRead};

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

/// Delimiter and quoting rules of a table file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// Delimiter between cells.
    pub delimiter: u8,
    /// Whether cells can be quoted with `"`. If not, `"` is an ordinary character.
    pub quotes: bool,
}

impl Default for Dialect {
    fn default() -> Self {
        Dialect::CSV
    }
}

impl Dialect {
    /// Tab-separated, with quotes as spreadsheets write them.
    pub const TSV: Dialect = Dialect { delimiter: b'\t', quotes: true };
    /// Comma-separated, with quotes.
    pub const CSV: Dialect = Dialect { delimiter: b',', quotes: true };
}

/// A row of a table file.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The line where the row starts, counted from 1.
    pub line: u64,
    bytes: &'a [u8],
    ends: &'a [usize],
}

impl<'a> Row<'a> {
    /// Number of cells in the row.
    pub fn width(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether all cells are empty or white space.
    pub fn is_blank(&self) -> bool {
        self.bytes.iter().all(u8::is_ascii_whitespace)
    }

    /// Total size of the cells in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the cell at an index, counted from 0, or `None` if the row has fewer cells. Quotes are removed.
    pub fn cell(&self, at: usize) -> Option<&'a [u8]> {
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.bytes.get(start..end)
    }

    /// Iterates over the cells, without quotes.
    pub fn cells(&self) -> impl Iterator<Item = &'a [u8]> {
        let row = *self;
        (0..row.width()).filter_map(move |at| row.cell(at))
    }
}

/// Error while reading a row.
#[derive(Debug)]
pub enum RowError {
    /// The row is on one line and longer than the limit. It was skipped, and reading continues.
    TooLong {
        /// Line number of the row, counted from 1.
        line: u64,
        /// Length of the row in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// The row has more than 65,536 cells. It was skipped, and reading continues.
    TooWide {
        /// Line number of the row, counted from 1.
        line: u64,
    },
    /// A quote is not closed within the limit or before the end of the file. No more rows follow.
    Unclosed {
        /// The line where the row with the quote starts.
        line: u64,
    },
    /// The stream failed. No more rows follow.
    Broken {
        /// Line number where reading failed, counted from 1.
        line: u64,
        /// The I/O error of the stream.
        source: io::Error,
    },
}

/// Maximum number of columns. More columns mean a damaged file.
const MAX_COLUMNS: usize = 1 << 16;

/// Reads rows of at most `limit` bytes. Empty lines are skipped.
pub struct Rows<R> {
    stream: R,
    core: Reader,
    limit: usize,
    /// The line of the next byte.
    line: u64,
    out: Vec<u8>,
    ends: Vec<usize>,
    ended: bool,
}

enum Outcome {
    Row,
    End,
    Full { wide: bool },
    Unclosed,
}

impl<R: BufRead> Rows<R> {
    /// Creates a reader.
    pub fn new(stream: R, dialect: Dialect, limit: usize) -> Self {
        let core = ReaderBuilder::new().delimiter(dialect.delimiter).quoting(dialect.quotes).build();
        Rows {
            stream,
            core,
            limit,
            line: 1,
            out: vec![0; 4096.min(limit.max(1))],
            ends: vec![0; 32],
            ended: false,
        }
    }

    /// Reads the next row. Returns `None` at the end.
    pub fn next_row(&mut self) -> Option<Result<Row<'_>, RowError>> {
        if self.ended {
            return None;
        }
        let (mut start, mut length, mut bytes, mut cells) = (self.line, 0u64, 0, 0);
        let outcome = match self.read(&mut start, &mut length, &mut bytes, &mut cells) {
            Ok(outcome) => outcome,
            Err(source) => {
                self.ended = true;
                return Some(Err(RowError::Broken { line: self.line, source }));
            }
        };
        match outcome {
            Outcome::Row => {
                let (bytes, ends) = (self.out.get(..bytes)?, self.ends.get(..cells)?);
                Some(Ok(Row { line: start, bytes, ends }))
            }
            Outcome::End => {
                self.ended = true;
                None
            }
            Outcome::Full { wide: true } => Some(Err(RowError::TooWide { line: start })),
            Outcome::Full { wide: false } => {
                Some(Err(RowError::TooLong { line: start, bytes: length, limit: self.limit }))
            }
            Outcome::Unclosed => {
                self.ended = true;
                Some(Err(RowError::Unclosed { line: start }))
            }
        }
    }

    fn read(
        &mut self,
        start: &mut u64,
        length: &mut u64,
        bytes: &mut usize,
        cells: &mut usize,
    ) -> io::Result<Outcome> {
        if !self.skip(|b| b == b'\n' || b == b'\r', length)? {
            return Ok(Outcome::End);
        }
        *start = self.line;
        *length = 0;
        self.core.reset();
        loop {
            let available = filled(&mut self.stream)?;
            let at_end = available.is_empty();
            // A line ending after the last byte completes the last row, unless a quote is still open.
            let input: &[u8] = if at_end { b"\n" } else { available };
            let (out, ends) = (&mut self.out[*bytes..], &mut self.ends[*cells..]);
            let (result, read, written, ended) = self.core.read_record(input, out, ends);
            *bytes += written;
            *cells += ended;
            if !at_end {
                self.line += newlines(&input[..read]);
                *length += read as u64;
                self.stream.consume(read);
            }
            match result {
                ReadRecordResult::Record => return Ok(Outcome::Row),
                ReadRecordResult::End => return Ok(Outcome::End),
                ReadRecordResult::InputEmpty if at_end => return Ok(Outcome::Unclosed),
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if self.out.len() < self.limit => {
                    let larger = (self.out.len() * 2).min(self.limit);
                    self.out.resize(larger, 0);
                }
                ReadRecordResult::OutputEndsFull if self.ends.len() < MAX_COLUMNS => {
                    let larger = self.ends.len() * 2;
                    self.ends.resize(larger, 0);
                }
                full => {
                    if self.line > *start {
                        return Ok(Outcome::Unclosed);
                    }
                    // Free the buffer of an oversized row.
                    self.out = vec![0; 4096.min(self.limit.max(1))];
                    self.skip(|b| b != b'\n', length)?;
                    return Ok(Outcome::Full { wide: full == ReadRecordResult::OutputEndsFull });
                }
            }
        }
    }

    /// Skips bytes while `matches` holds. Returns whether more bytes follow.
    fn skip(&mut self, matches: impl Fn(u8) -> bool, length: &mut u64) -> io::Result<bool> {
        loop {
            let available = filled(&mut self.stream)?;
            if available.is_empty() {
                return Ok(false);
            }
            let end = available.iter().position(|&b| !matches(b));
            let take = end.unwrap_or(available.len());
            self.line += newlines(&available[..take]);
            *length += take as u64;
            self.stream.consume(take);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

fn filled<R: BufRead>(stream: &mut R) -> io::Result<&[u8]> {
    while let Err(e) = stream.fill_buf() {
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
    stream.fill_buf()
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], dialect: Dialect, limit: usize) -> Vec<String> {
        // A tiny buffer, to test rows that cross its boundary.
        let mut rows = Rows::new(io::BufReader::with_capacity(3, bytes), dialect, limit);
        let mut out = Vec::new();
        while let Some(row) = rows.next_row() {
            out.push(match row {
                Ok(row) => {
                    let cells: Vec<_> = row.cells().map(String::from_utf8_lossy).collect();
                    format!("{}:{}", row.line, cells.join("|"))
                }
                Err(RowError::TooLong { line, bytes, .. }) => format!("{line}!{bytes}"),
                Err(RowError::TooWide { line }) => format!("{line}*"),
                Err(RowError::Unclosed { line }) => format!("{line}\""),
                Err(RowError::Broken { line, .. }) => format!("{line}#"),
            });
        }
        out
    }

    #[test]
    fn cells_may_contain_delimiters_quotes_and_line_endings() {
        let text = b"a,b\r\n\r\n\"x, \"\"y\"\"\nz\",1\n,\nlast";
        assert_eq!(all(text, Dialect::CSV, 100), ["1:a|b", "3:x, \"y\"\nz|1", "5:|", "6:last"]);
        assert_eq!(all(b"", Dialect::CSV, 100), Vec::<String>::new());
        assert_eq!(all(b"\n\n", Dialect::CSV, 100), Vec::<String>::new());
        assert_eq!(all(b"\"a\"", Dialect::CSV, 100), ["1:a"]);
        let literal = Dialect { delimiter: b'\t', quotes: false };
        assert_eq!(all(b"\"a\tb\nc", literal, 100), ["1:\"a|b", "2:c"]);
    }

    #[test]
    fn a_long_row_is_skipped_and_the_next_is_read() {
        assert_eq!(all(b"ab\n0123456789a,b\nok,x\n", Dialect::CSV, 8), ["1:ab", "2!13", "3:ok|x"]);
    }

    #[test]
    fn an_unclosed_quote_ends_at_the_limit_or_at_the_end() {
        assert_eq!(all(b"a,b\n\"open,\nc,d\n", Dialect::CSV, 100), ["1:a|b", "2\""]);
        assert_eq!(all(b"a,b\n\"open,\nc,d\ne,f\n", Dialect::CSV, 8), ["1:a|b", "2\""]);
    }

    #[test]
    fn a_row_of_too_many_cells_is_skipped() {
        let mut text = vec![b','; 1 << 17];
        text.extend_from_slice(b"\nok");
        assert_eq!(all(&text, Dialect::CSV, 1 << 20), ["1*", "2:ok"]);
    }
}
