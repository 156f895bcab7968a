//! word2vec's binary format: a header line, then words, each followed by a space and the little-endian f32 elements
//! of the vector.

use std::io::{BufRead, Read};

use super::read::{Collector, Header, broken, wrong};
use turnwise_core::error::{IoContext, Result};

/// Maximum length of a word in bytes. A longer word means that the file has a different format.
const LONGEST_WORD: u64 = 4096;

/// Reads the number of words given in the header.
pub(super) fn read(name: &str, mut stream: impl BufRead, header: Header, into: &mut Collector) -> Result<()> {
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
                let what = format!(
                    "word {number} is too long: the file is neither text nor word2vec's binary format"
                );
                return Err(wrong(name, &what, "use a file in GloVe or word2vec format"));
            }
            return Err(broken(name, &place, &std::io::ErrorKind::UnexpectedEof.into()));
        }
        stream.read_exact(&mut bytes).map_err(|e| broken(name, &place, &e))?;
        vector.clear();
        vector.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        // Some writers add a line end after the numbers.
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
    let n = stream.read(&mut rest).map_err(|e| broken(name, "its end", &e))?;
    match rest[..n].trim_ascii().is_empty() {
        true => Ok(()),
        false => {
            let what = format!("the file has more data after the {} words given in line 1", header.words);
            Err(wrong(name, &what, "download the file again: its first line or its length is wrong"))
        }
    }
}
