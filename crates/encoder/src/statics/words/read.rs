//! Reads word vector files: detection of the format, and code shared by all formats.

use std::{
    fmt,
    io::{BufRead, Cursor, Read},
    path::Path,
};

use turnwise_core::error::{Error, IoContext, Result};
use turnwise_corpus::input::Input;

use crate::statics::words::{WordTable, formats};

/// Maximum number of bytes read to detect the format.
const HEAD_BYTES: usize = 256 * 1024;
/// Maximum number of columns (width of the vectors). A larger number in a header is an error.
const MAX_COLUMNS: usize = 65_536;

/// Format of a word vector file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordFormat {
    /// One line per word: the word, followed by the elements of its vector.
    Glove,
    /// A header line with the number of words and the number of columns, then lines as in [`WordFormat::Glove`].
    Word2vecText,
    /// A header line as in [`WordFormat::Word2vecText`], then each word with the elements of its vector as
    /// little-endian f32.
    Word2vecBinary,
}

impl fmt::Display for WordFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WordFormat::Glove => "GloVe text",
            WordFormat::Word2vecText => "word2vec text",
            WordFormat::Word2vecBinary => "word2vec binary",
        })
    }
}

/// Statistics of reading a word vector file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordReading {
    /// Format of the file.
    pub format: WordFormat,
    /// Number of words read, including words that were skipped.
    pub words: u64,
    /// Number of duplicate words. Only the first vector of a word is kept.
    pub duplicates: u64,
    /// Number of skipped words: words that are not UTF-8 or contain a line break.
    pub not_utf8: u64,
}

/// Reads a word vector file and detects its format. `.gz` and `.zst` files are decompressed while reading. Reading
/// stops after `limit` words; `None` reads all words. Fails if the file cannot be read or has an invalid line.
pub fn read_words(path: &Path, limit: Option<usize>) -> Result<(WordTable, WordReading)> {
    let input = Input::open(path)?;
    let name = input.name.clone();
    read_words_from(&name, input.into_stream(), limit)
}

/// Reads word vectors from a stream, as in [`read_words`]. `name` is used in error messages.
fn read_words_from(
    name: &str,
    mut stream: impl BufRead,
    limit: Option<usize>,
) -> Result<(WordTable, WordReading)> {
    let mut head = Vec::new();
    // A read error is kept until the parser reaches it, so that the message can name the line.
    let error = (&mut stream).take(HEAD_BYTES as u64).read_to_end(&mut head).err();
    if head.iter().all(u8::is_ascii_whitespace) {
        if let Some(e) = error {
            return Err(e).at("read", name);
        }
        return Err(wrong(name, "the file is empty", formats::OTHER_FORMAT));
    }
    let (format, header) = detect_format(name, &head)?;
    let rest = FailingReader { error, stream };
    let stream = Cursor::new(head).chain(std::io::BufReader::with_capacity(HEAD_BYTES, rest));
    let reading = WordReading { format, words: 0, duplicates: 0, not_utf8: 0 };
    let mut collector = Collector { limit, table: WordTable::default(), reading };
    match (format, header) {
        (WordFormat::Word2vecBinary, Some(header)) => {
            formats::read_binary(name, stream, header, &mut collector)?
        }
        (_, header) => formats::read_text(name, stream, header, &mut collector)?,
    }
    let Collector { table, reading, .. } = collector;
    if table.is_empty() {
        let what = format!("none of its {} words was selected", reading.words);
        return Err(wrong(name, &what, "select more words, or words that are in the file"));
    }
    Ok((table, reading))
}

/// The rest of a stream after format detection. If a read error occurred during the detection, the first read returns
/// that error.
struct FailingReader<R> {
    error: Option<std::io::Error>,
    stream: R,
}

impl<R: Read> Read for FailingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.error.take() {
            Some(e) => Err(e),
            None => self.stream.read(buffer),
        }
    }
}

/// The header line of word2vec's formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub words: u64,
    pub columns: usize,
}

fn detect_format(name: &str, head: &[u8]) -> Result<(WordFormat, Option<Header>)> {
    let end = memchr::memchr(b'\n', head).unwrap_or(head.len());
    let (first, rest) = (&head[..end], head.get(end + 1..).unwrap_or_default());
    let Some((words, columns)) = two_counts(first) else { return Ok((WordFormat::Glove, None)) };
    if columns == 0 || columns > MAX_COLUMNS as u64 || words == 0 {
        let what = format!("line 1 gives {words} words with {columns} columns, which is impossible");
        return Err(wrong(name, &what, "the line must have the number of words and the number of columns"));
    }
    let header = Header { words, columns: columns as usize };
    let format =
        if is_text(rest, header.columns) { WordFormat::Word2vecText } else { WordFormat::Word2vecBinary };
    Ok((format, Some(header)))
}

fn two_counts(line: &[u8]) -> Option<(u64, u64)> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let counts = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    fields.next().is_none().then_some(counts)
}

/// Returns true if `rest`, the data after the header line, is text. If its first line can be parsed, the data is text.
/// Otherwise, the data is binary if it contains control characters or invalid UTF-8.
fn is_text(rest: &[u8], columns: usize) -> bool {
    let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    let readable =
        std::str::from_utf8(&rest[..end]).is_ok_and(|line| formats::numbers_of(line, columns).is_some());
    let start = &rest[..rest.len().min(4096)];
    let cut_only = |e: std::str::Utf8Error| e.error_len().is_none() && start.len() < rest.len();
    let is_utf8 = std::str::from_utf8(start).map_or_else(cut_only, |_| true);
    let no_control = start.iter().all(|b| *b >= 0x20 || b.is_ascii_whitespace());
    readable || (is_utf8 && no_control)
}

pub(super) struct Collector {
    limit: Option<usize>,
    pub table: WordTable,
    pub reading: WordReading,
}

impl Collector {
    /// Returns true if the limit of words is reached.
    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.reading.words >= limit as u64)
    }

    /// Adds a word. `None` means that the word is not UTF-8. Such a word is counted but not added.
    pub fn add(&mut self, word: Option<&str>, vector: &[f32]) {
        if self.table.dim() == 0 {
            self.table = WordTable::new(vector.len());
        }
        self.reading.words += 1;
        // A word with a line break cannot be saved in `words.txt`, and is never looked up.
        match word.filter(|w| !w.contains('\n')) {
            None => self.reading.not_utf8 += 1,
            Some(word) if self.table.push(word, vector) => {}
            Some(_) => self.reading.duplicates += 1,
        }
    }
}

pub(super) fn wrong(name: &str, what: &str, hint: &str) -> Error {
    Error::data(format!("{name}: {what}")).with_hint(hint)
}

pub(super) fn ends_early(name: &str, position: &str, source: &std::io::Error) -> Error {
    wrong(
        name,
        &format!("the file ends early in {position}: {source}"),
        "download the file again: it is damaged or incomplete",
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<(WordTable, WordReading)> {
        read_words_from("v", bytes, None)
    }

    fn as_text(words: &[(String, Vec<f32>)], header: bool) -> Vec<u8> {
        let mut out = Vec::new();
        if header {
            writeln!(out, "{} {}", words.len(), words[0].1.len()).unwrap();
        }
        for (word, vector) in words {
            let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
            writeln!(out, "{word} {}", numbers.join(" ")).unwrap();
        }
        out
    }

    fn as_binary(words: &[(String, Vec<f32>)], line_ends: bool) -> Vec<u8> {
        let mut out = format!("{} {}\n", words.len(), words[0].1.len()).into_bytes();
        for (word, vector) in words {
            out.extend(word.as_bytes());
            out.push(b' ');
            vector.iter().for_each(|v| out.extend(v.to_le_bytes()));
            if line_ends {
                out.push(b'\n');
            }
        }
        out
    }

    fn example() -> Vec<(String, Vec<f32>)> {
        let row = |n: usize| (0..5).map(|k| ((n * 5 + k) as f32).sin() * 0.3).collect();
        ["the", "of", "Paris", "don't", "退款"]
            .iter()
            .enumerate()
            .map(|(n, w)| ((*w).to_owned(), row(n)))
            .collect()
    }

    fn same(table: &WordTable, words: &[(String, Vec<f32>)]) {
        assert_eq!(table.len(), words.len());
        for (word, vector) in words {
            assert_eq!(table.vector(table.row_of(word).unwrap()), vector, "{word}");
        }
    }

    #[test]
    fn all_formats_are_detected_and_give_the_same_table() {
        let words = example();
        for (bytes, format) in [
            (as_text(&words, false), WordFormat::Glove),
            (as_text(&words, true), WordFormat::Word2vecText),
            (as_binary(&words, true), WordFormat::Word2vecBinary),
            (as_binary(&words, false), WordFormat::Word2vecBinary),
        ] {
            let (table, reading) = read(&bytes).unwrap();
            assert_eq!((reading.format, reading.words), (format, 5));
            same(&table, &words);
        }
    }

    #[test]
    fn packed_files_are_unpacked() {
        let words = example();
        let folder = tempfile::tempdir().unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&as_binary(&words, true)).unwrap();
        let gz = gz.finish().unwrap();
        let zst = zstd::encode_all(as_text(&words, false).as_slice(), 1).unwrap();
        for (name, bytes) in [("v.bin.gz", &gz), ("v.txt.zst", &zst)] {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            same(&read_words(&path, None).unwrap().0, &words);
        }
        let path = folder.path().join("cut.gz");
        std::fs::write(&path, &gz[..gz.len() / 2]).unwrap();
        let e = read_words(&path, None).unwrap_err();
        assert!(e.to_string().contains("ends early") || e.to_string().contains("ends"), "{e}");
    }

    #[test]
    fn reading_stops_at_the_limit() {
        let bytes = as_text(&example(), true);
        let (table, reading) = read_words_from("v", &bytes[..], Some(2)).unwrap();
        assert_eq!((table.words(), reading.words), (vec!["the", "of"], 2));
    }

    #[test]
    fn every_error_is_reported_with_its_position() {
        for (bytes, want) in [
            (&b""[..], "empty"),
            (b" \n\n", "empty"),
            (b"a 1 2\nb 1\n", "line 2: 1 numbers"),
            (b"a 1 2\nb 1 2 3\n", "line 2: 3 numbers"),
            (b"a 1 2\nb 1 x\n", "line 2: `x` is not a number"),
            (b"a 1 2\nb NaN 2\n", "line 2: `NaN`"),
            (b"a 1 2\nb 1 inf\n", "line 2: `inf`"),
            (b"a 1 2\nb 1 1e99\n", "line 2: `1e99`"),
            (b"word\n", "line 1: no numbers"),
            (b"3 2\na 1 2\nb 1 2\n", "gives 3 words, but the file has 2"),
            (b"1 2\na 1 2\nb 1 2\n", "gives 1 words, but the file has more"),
            (b"2 2\na 1 2\nb 1\n", "line 3: 1 numbers"),
            (b"0 300\n", "line 1 gives"),
            (b"5 99999999999\n", "line 1 gives"),
            (b"2 1\na \0\0\0\0\nb \0\0", "ends early in word 2"),
            (b"2 1\na \0\0\0\0\nb", "ends early in word 2"),
            (b"2 1\na \0\0\0\0\n", "ends early in word 2"),
            (b"1 1\na \0\0\xc0\x7f\n", "word 1 (`a`): number 1 is NaN"),
            (b"1 1\na \0\0\0\0\nb \0\0\0\0", "more data after the 1 words"),
            (b"1 1\n\xff \0\0\0\0", "none of its 1 words was selected"),
        ] {
            let e = read(bytes).unwrap_err();
            assert!(e.to_string().starts_with("v: "), "{e}");
            assert!(e.to_string().contains(want), "{e} is not {want}");
            assert!(e.hint().is_some(), "{e}");
        }
    }

    #[test]
    fn unusual_but_usable_files_are_read() {
        let (table, reading) = read(b"a 1 2 \r\n. . . 3 4\na 5 6\n\xff\xfe 7 8\n\nb\t9\t1").unwrap();
        assert_eq!(table.words(), ["a", ". . .", "b"]);
        assert_eq!((reading.words, reading.duplicates, reading.not_utf8), (5, 1, 1));
        assert_eq!(table.vector(0), [1.0, 2.0]);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), header in any::<bool>()) {
            let bytes = if header { [b"3 2\n".to_vec(), bytes].concat() } else { bytes };
            if let Ok((table, _)) = read(&bytes) {
                prop_assert!(table.vectors().iter().all(|v| v.is_finite()));
            }
        }

        #[test]
        fn random_text_never_panics(text in "[ab0-9. \n\t-]{0,80}") {
            let _ = read(text.as_bytes());
        }

        #[test]
        fn written_files_are_read_back(
            words in prop::collection::btree_map("[a-zéß退款]{1,6}", prop::collection::vec(-1e6f32..1e6, 8), 1..12),
            line_ends: bool,
            header: bool,
        ) {
            let words: Vec<(String, Vec<f32>)> = words.into_iter().collect();
            same(&read(&as_text(&words, header)).unwrap().0, &words);
            let (table, reading) = read(&as_binary(&words, line_ends)).unwrap();
            prop_assert_eq!(reading.format, WordFormat::Word2vecBinary);
            same(&table, &words);
        }

        #[test]
        fn a_truncated_binary_file_is_an_error(cut in 1usize..130) {
            let bytes = as_binary(&example(), true);
            let end = (bytes.len() - 1).saturating_sub(cut).max(4);
            prop_assert!(read(&bytes[..end]).is_err());
        }
    }
}
