//! Row reader for delimited text (CSV, TSV) with a maximum row length.
//!
//! For a row that is too long or has too many cells, the reader returns an error and continues with the next row. If a
//! quote is never closed, the rest of the file is one row. The reader then returns an error with the line where this
//! row starts.

use std::io::{self, BufRead};

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

/// Delimiter and quoting rule of a table file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// Delimiter between cells.
    pub delimiter: u8,
    /// Whether cells can be quoted with `"`. If not, `"` is an ordinary character.
    pub quotes: bool,
}

impl Dialect {
    /// Tab-separated cells that can be quoted, as spreadsheets write them.
    pub const TSV: Dialect = Dialect { delimiter: b'\t', quotes: true };
    /// Comma-separated cells that can be quoted.
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
    /// Returns the number of cells in the row.
    pub fn width(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether all cells are empty or white space.
    pub fn is_blank(&self) -> bool {
        self.bytes.iter().all(u8::is_ascii_whitespace)
    }

    /// Returns the total length of the cells in bytes, without delimiters and quotes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the cell at an index, counted from 0, without its quotes. Returns `None` if the row has fewer cells.
    pub fn cell(&self, at: usize) -> Option<&'a [u8]> {
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.bytes.get(start..end)
    }

    /// Iterates over the cells, without their quotes.
    pub fn cells(&self) -> impl Iterator<Item = &'a [u8]> {
        let row = *self;
        (0..row.width()).filter_map(move |at| row.cell(at))
    }
}

/// Error while reading a row.
#[derive(Debug)]
pub enum RowError {
    /// The total length of the cells is greater than the limit. The row was skipped, and reading continues.
    TooLong {
        /// The line where the row starts, counted from 1.
        line: u64,
        /// Length of the row in bytes, with delimiters and quotes.
        bytes: u64,
        /// Maximum total length of the cells of a row, in bytes.
        limit: usize,
    },
    /// The row has more than 65,536 cells. The row was skipped, and reading continues.
    TooWide {
        /// The line where the row starts, counted from 1.
        line: u64,
    },
    /// A quote is not closed before the end of the file. No more rows follow.
    Unclosed {
        /// The line where the row with the unclosed quote starts, counted from 1.
        line: u64,
    },
    /// The stream failed. No more rows follow.
    Broken {
        /// The line where reading failed, counted from 1.
        line: u64,
        /// The I/O error of the stream.
        source: io::Error,
    },
}

/// Maximum number of cells in a row. A row with more cells is probably damaged, and is skipped.
const MAX_COLUMNS: usize = 1 << 16;

/// Reader for rows with a maximum length. Empty lines are skipped.
pub struct Rows<R> {
    stream: R,
    core: Reader,
    limit: usize,
    /// Number of the line that contains the next byte, counted from 1.
    line: u64,
    out: Vec<u8>,
    ends: Vec<usize>,
    ended: bool,
}

impl<R: BufRead> Rows<R> {
    /// Creates a reader for rows whose cells have at most `limit` bytes in total.
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

    /// Reads the next row. Returns `None` at the end of the stream, and after an error that ends reading.
    pub fn next_row(&mut self) -> Option<Result<Row<'_>, RowError>> {
        if self.ended {
            return None;
        }
        match self.read() {
            Ok(Some((line, bytes, cells))) => {
                Some(Ok(Row { line, bytes: self.out.get(..bytes)?, ends: self.ends.get(..cells)? }))
            }
            Ok(None) => {
                self.ended = true;
                None
            }
            Err(e) => {
                self.ended = matches!(e, RowError::Unclosed { .. } | RowError::Broken { .. });
                Some(Err(e))
            }
        }
    }

    /// Reads a row into the buffers. Returns its start line, number of bytes and number of cells, or `None` at the end.
    fn read(&mut self) -> Result<Option<(u64, usize, usize)>, RowError> {
        if !self.skip_line_endings()? {
            return Ok(None);
        }
        let (line, limit) = (self.line, self.limit);
        let (mut length, mut bytes, mut cells) = (0, 0, 0);
        // `Some(true)` if the row has too many cells, `Some(false)` if its cells are too long. The rest of such a row
        // is not stored.
        let mut too_wide = None;
        self.core.reset();
        loop {
            let available = filled(&mut self.stream, self.line)?;
            let at_end = available.is_empty();
            // At the end of the stream, an added line ending completes the last row, unless a quote is still open.
            let input: &[u8] = if at_end { b"\n" } else { available };
            let (out, ends) = (&mut self.out[bytes..], &mut self.ends[cells..]);
            let (result, read, written, ended) = self.core.read_record(input, out, ends);
            bytes += written;
            cells += ended;
            if !at_end {
                self.line += newlines(&input[..read]);
                length += read as u64;
                self.stream.consume(read);
            }
            match result {
                ReadRecordResult::Record => {
                    // The length does not include the line ending.
                    let bytes_read = length - u64::from(!at_end);
                    return match too_wide {
                        None => Ok(Some((line, bytes, cells))),
                        Some(true) => Err(RowError::TooWide { line }),
                        Some(false) => Err(RowError::TooLong { line, bytes: bytes_read, limit }),
                    };
                }
                ReadRecordResult::End => return Ok(None),
                ReadRecordResult::InputEmpty if at_end => return Err(RowError::Unclosed { line }),
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if too_wide.is_none() && self.out.len() < limit => {
                    let larger = (self.out.len() * 2).min(limit);
                    self.out.resize(larger, 0);
                }
                ReadRecordResult::OutputEndsFull if too_wide.is_none() && self.ends.len() < MAX_COLUMNS => {
                    let larger = self.ends.len() * 2;
                    self.ends.resize(larger, 0);
                }
                full => {
                    if too_wide.is_none() {
                        too_wide = Some(full == ReadRecordResult::OutputEndsFull);
                        // Free the buffer, which may be as large as the limit.
                        self.out = vec![0; 4096.min(limit.max(1))];
                    }
                    (bytes, cells) = (0, 0);
                }
            }
        }
    }

    /// Skips line endings. Returns whether more bytes follow.
    fn skip_line_endings(&mut self) -> Result<bool, RowError> {
        while let Some(&byte) = filled(&mut self.stream, self.line)?.first() {
            if byte != b'\n' && byte != b'\r' {
                return Ok(true);
            }
            self.line += u64::from(byte == b'\n');
            self.stream.consume(1);
        }
        Ok(false)
    }
}

/// Returns the next bytes of a stream, or an empty slice at its end.
fn filled<R: BufRead>(stream: &mut R, line: u64) -> Result<&[u8], RowError> {
    while let Err(source) = stream.fill_buf() {
        if source.kind() != io::ErrorKind::Interrupted {
            return Err(RowError::Broken { line, source });
        }
    }
    stream.fill_buf().map_err(|source| RowError::Broken { line, source })
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], dialect: Dialect, limit: usize) -> Vec<String> {
        // The buffer is tiny, so that rows cross its boundary.
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
    fn a_long_row_over_several_lines_is_skipped_and_the_next_is_read() {
        assert_eq!(all(b"ab\n\"01234\n56789\",b\nok,x\n", Dialect::CSV, 8), ["1:ab", "2!15", "4:ok|x"]);
        assert_eq!(all(b"\"01234\n56789\"", Dialect::CSV, 8), ["1!13"]);
    }

    #[test]
    fn an_unclosed_quote_ends_reading_at_any_length() {
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
