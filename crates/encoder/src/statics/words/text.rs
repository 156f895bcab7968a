//! A word and its numbers a line.

use std::io::BufRead;

use super::read::{Gathering, Header, broken, wrong};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::lines::{LineError, Lines};

/// A line is a word and at most some ten thousand numbers.
const LONGEST_LINE: usize = 4 << 20;

/// Reads lines to the end; without a header the first line says how many columns there are.
pub(super) fn read(
    name: &str,
    stream: impl BufRead,
    header: Option<Header>,
    into: &mut Gathering,
) -> Result<()> {
    let mut lines = Lines::new(stream, LONGEST_LINE);
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
                promised(name, header, into)?;
                into.take(Some(word), &vector);
            }
            // Such words are in files that were cut out of others by bytes; the rest of the file is good.
            Some(Err(LineError::NotUtf8 { .. })) if columns.is_some() => {
                promised(name, header, into)?;
                into.take(None, &vec![0.0; columns.unwrap_or_default()]);
            }
            Some(Err(LineError::NotUtf8 { number, column })) => {
                let what = format!("line {number}: byte {column} is not UTF-8");
                return Err(wrong(name, &what, "give a file in GloVe's or word2vec's format"));
            }
            Some(Err(LineError::TooLong { number, bytes, limit })) => {
                let what = format!(
                    "line {number} has {bytes} bytes, and a line of word vectors has at most {limit}"
                );
                return Err(wrong(name, &what, "give a file in GloVe's or word2vec's format"));
            }
            Some(Err(LineError::Broken { number, source })) => {
                return Err(broken(name, &format!("line {number}"), &source));
            }
        }
    }
    match header {
        Some(header) if !into.is_full() && into.reading.words < header.words => {
            let what =
                format!("line 1 promises {} words, and there are {}", header.words, into.reading.words);
            Err(wrong(
                name,
                &what,
                "fetch the file again: it is not whole; or put the right number into line 1",
            ))
        }
        _ => Ok(()),
    }
}

fn promised(name: &str, header: Option<Header>, into: &Gathering) -> Result<()> {
    match header {
        Some(header) if into.reading.words >= header.words => {
            let what = format!("line 1 promises {} words, and there are more", header.words);
            Err(wrong(name, &what, "put the right number into line 1"))
        }
        _ => Ok(()),
    }
}

/// The word of a line and its numbers. A word may hold spaces, as some in GloVe's files do (`. . .`), if what is before
/// the last so many columns is not a number but the word's.
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

/// Why a line could not be read.
fn explain(name: &str, number: u64, line: &str, columns: usize) -> Error {
    let fields: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    let bad = fields.iter().rev().take(columns).find(|f| !f.parse::<f32>().is_ok_and(f32::is_finite));
    let (what, hint) = match bad {
        _ if columns == 0 => {
            ("there are no numbers behind the word".to_owned(), "give a file in GloVe's or word2vec's format")
        }
        _ if fields.len() < columns => (
            format!("there are {} numbers, and there must be {columns}", fields.len()),
            "fetch the file again, or remove the line",
        ),
        Some(bad) if bad.parse::<f32>().is_ok() => {
            (format!("`{bad}` is no number that a vector can hold"), "remove the line")
        }
        Some(bad) => (format!("`{bad}` is not a number"), "remove the line, or mend the number"),
        None => (
            format!("there are {} numbers, and there must be {columns}", fields.len()),
            "fetch the file again, or remove the line",
        ),
    };
    wrong(name, &format!("line {number}: {what}"), hint)
}
