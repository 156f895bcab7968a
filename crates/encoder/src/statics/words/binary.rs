//! word2vec's binary format: a line with counts, then words, each with a space and its numbers in little endian.

use std::io::{BufRead, Read};

use super::read::{Gathering, Header, broken, wrong};
use turnwise_core::error::{IoContext, Result};

/// No word has more bytes; where one seems to, the file is no such file.
const LONGEST_WORD: u64 = 4096;

/// Reads all words that the header promises.
pub(super) fn read(name: &str, mut stream: impl BufRead, header: Header, into: &mut Gathering) -> Result<()> {
    let mut first = Vec::new();
    stream.read_until(b'\n', &mut first).at("read", name)?;
    let mut bytes = vec![0; header.columns * 4];
    let mut word = Vec::new();
    let mut vector = Vec::with_capacity(header.columns);
    for number in 1..=header.words {
        if into.is_full() {
            return Ok(());
        }
        let place = format!("word {number} of {}", header.words);
        word.clear();
        (&mut stream).take(LONGEST_WORD).read_until(b' ', &mut word).map_err(|e| broken(name, &place, &e))?;
        if word.pop() != Some(b' ') {
            if word.len() as u64 >= LONGEST_WORD - 1 {
                let what =
                    format!("word {number} has no end: this is neither text nor word2vec's binary format");
                return Err(wrong(name, &what, "give a file in GloVe's or word2vec's format"));
            }
            return Err(broken(name, &place, &std::io::ErrorKind::UnexpectedEof.into()));
        }
        stream.read_exact(&mut bytes).map_err(|e| broken(name, &place, &e))?;
        vector.clear();
        vector.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        // Some writers end the line behind the numbers, and some do not.
        let trimmed = std::str::from_utf8(word.trim_ascii_start());
        if let Some(at) = vector.iter().position(|v| !v.is_finite()) {
            let shown = trimmed.unwrap_or("not UTF-8");
            let what = format!("word {number} (`{shown}`): number {} is {}", at + 1, vector[at]);
            return Err(wrong(
                name,
                &what,
                "fetch the file again: it is damaged, or was written for another machine",
            ));
        }
        into.take(trimmed.ok(), &vector);
    }
    let mut rest = [0; 64];
    let n = stream.read(&mut rest).map_err(|e| broken(name, "its end", &e))?;
    match rest[..n].trim_ascii().is_empty() {
        true => Ok(()),
        false => {
            let what = format!("the file goes on after the {} words that line 1 promises", header.words);
            Err(wrong(name, &what, "fetch the file again: its first line or its length is wrong"))
        }
    }
}
