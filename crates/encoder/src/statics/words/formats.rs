//! Parsers for the formats of word vectors. In the text formats, each line contains a word and the elements of its
//! vector. word2vec's binary format has a header line, followed by the words. After each word, there are a space and
//! the little-endian f32 elements of the word's vector.

use std::io::{BufRead, Read};

use turnwise_core::error::{Error, IoContext, Result};
use turnwise_corpus::lines::{LineError, Lines};

use crate::statics::words::read::{Collector, Header, ends_early, wrong};

/// Hint for a file that contains no word vectors in a supported format.
pub(super) const OTHER_FORMAT: &str = "use a file in GloVe or word2vec format";

/// Maximum length of a line in bytes. A line of this length has space for tens of thousands of numbers.
const MAX_LINE_BYTES: usize = 4 << 20;

/// Reads the lines of a text format. Without a header, the first line determines the number of columns.
pub(super) fn read_text(
    name: &str,
    stream: impl BufRead,
    header: Option<Header>,
    into: &mut Collector,
) -> Result<()> {
    let mut lines = Lines::new(stream, MAX_LINE_BYTES);
    let mut columns = header.map(|h| h.columns);
    if header.is_some() {
        lines.next_line();
    }
    while !into.is_full() {
        match lines.next_line() {
            None => break,
            Some(Ok(line)) if line.text.trim_ascii().is_empty() => {}
            Some(Ok(line)) => {
                let columns = *columns.get_or_insert_with(|| line.text.split_ascii_whitespace().count() - 1);
                let vector = numbers_of(line.text, columns);
                let (word, vector) = vector.ok_or_else(|| explain(name, line.number, line.text, columns))?;
                check_word_count(name, header, into)?;
                into.add(Some(word), &vector);
            }
            // Some files contain words that are cut in the middle of a character. Such words are skipped.
            Some(Err(LineError::NotUtf8 { .. })) if columns.is_some() => {
                check_word_count(name, header, into)?;
                into.add(None, &vec![0.0; columns.unwrap_or_default()]);
            }
            Some(Err(e)) => {
                let what = match e {
                    LineError::NotUtf8 { number, column } => {
                        format!("line {number}: byte {column} is not UTF-8")
                    }
                    LineError::TooLong { number, bytes, limit } => {
                        format!("line {number} has {bytes} bytes; a line of word vectors has at most {limit}")
                    }
                    LineError::Broken { number, source } => {
                        return Err(ends_early(name, &format!("line {number}"), &source));
                    }
                };
                return Err(wrong(name, &what, OTHER_FORMAT));
            }
        }
    }
    match header {
        Some(header) if !into.is_full() && into.reading.words < header.words => {
            let what =
                format!("line 1 gives {} words, but the file has {}", header.words, into.reading.words);
            Err(wrong(
                name,
                &what,
                "download the file again if it is incomplete, or correct the number in line 1",
            ))
        }
        _ => Ok(()),
    }
}

fn check_word_count(name: &str, header: Option<Header>, into: &Collector) -> Result<()> {
    match header {
        Some(header) if into.reading.words >= header.words => {
            let what = format!("line 1 gives {} words, but the file has more", header.words);
            Err(wrong(name, &what, "correct the number in line 1"))
        }
        _ => Ok(()),
    }
}

/// Splits a line into the word and the numbers. Returns `None` if the line is invalid. A word may contain spaces (`. .
/// .` in GloVe's files), unless the text after its last space is a number.
pub(super) fn numbers_of(line: &str, columns: usize) -> Option<(&str, Vec<f32>)> {
    let mut word = line.trim_ascii_end();
    let mut numbers = Vec::with_capacity(columns);
    for _ in 0..columns {
        let (before, number) = word.rsplit_once([' ', '\t'])?;
        numbers.push(number.parse().ok().filter(|n: &f32| n.is_finite())?);
        word = before.trim_ascii_end();
    }
    let last_is_number = word.rsplit_once([' ', '\t']).is_some_and(|(_, last)| last.parse::<f32>().is_ok());
    if word.is_empty() || columns == 0 || last_is_number {
        return None;
    }
    numbers.reverse();
    Some((word.trim_ascii_start(), numbers))
}

fn explain(name: &str, number: u64, line: &str, columns: usize) -> Error {
    let fields: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    let bad = fields.iter().rev().take(columns).find(|f| !f.parse::<f32>().is_ok_and(f32::is_finite));
    let (what, hint) = match bad.filter(|_| fields.len() >= columns) {
        _ if columns == 0 => ("no numbers after the word".to_owned(), OTHER_FORMAT),
        Some(bad) if bad.parse::<f32>().is_ok() => {
            (format!("`{bad}` is out of the range of a vector"), "remove the line")
        }
        Some(bad) => (format!("`{bad}` is not a number"), "remove the line, or correct the number"),
        None => (
            format!("{} numbers instead of {columns}", fields.len()),
            "download the file again, or remove the line",
        ),
    };
    wrong(name, &format!("line {number}: {what}"), hint)
}

/// Maximum length of a word in bytes. A longer word means that the file has a different format.
const MAX_WORD_BYTES: u64 = 4096;

/// Reads word2vec's binary format. The header specifies the number of words.
pub(super) fn read_binary(
    name: &str,
    mut stream: impl BufRead,
    header: Header,
    into: &mut Collector,
) -> Result<()> {
    let mut first = Vec::new();
    stream.read_until(b'\n', &mut first).at("read", name)?;
    let mut bytes = vec![0; header.columns * 4];
    let mut word = Vec::new();
    let mut vector = Vec::with_capacity(header.columns);
    for number in 1..=header.words {
        if into.is_full() {
            return Ok(());
        }
        let position = format!("word {number} of {}", header.words);
        word.clear();
        (&mut stream)
            .take(MAX_WORD_BYTES)
            .read_until(b' ', &mut word)
            .map_err(|e| ends_early(name, &position, &e))?;
        if word.pop() != Some(b' ') {
            if word.len() as u64 >= MAX_WORD_BYTES - 1 {
                let what = format!(
                    "word {number} is too long: the file is neither text nor word2vec's binary format"
                );
                return Err(wrong(name, &what, OTHER_FORMAT));
            }
            return Err(ends_early(name, &position, &std::io::ErrorKind::UnexpectedEof.into()));
        }
        stream.read_exact(&mut bytes).map_err(|e| ends_early(name, &position, &e))?;
        vector.clear();
        vector.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        // Some writers add a line break after the numbers of a word, so remove the line break before the next word.
        let trimmed = std::str::from_utf8(word.trim_ascii_start());
        if let Some(at) = vector.iter().position(|v| !v.is_finite()) {
            let shown = trimmed.unwrap_or("not UTF-8");
            let what = format!("word {number} (`{shown}`): number {} is {}", at + 1, vector[at]);
            return Err(wrong(
                name,
                &what,
                "download the file again: it is damaged, or has a different byte order",
            ));
        }
        into.add(trimmed.ok(), &vector);
    }
    let mut rest = [0; 64];
    let n = stream.read(&mut rest).map_err(|e| ends_early(name, "its end", &e))?;
    match rest[..n].trim_ascii().is_empty() {
        true => Ok(()),
        false => {
            let what = format!("the file has more data after the {} words given in line 1", header.words);
            Err(wrong(name, &what, "download the file again: its first line or its length is wrong"))
        }
    }
}
