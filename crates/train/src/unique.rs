//! Distinct texts of a corpus of any size, in sorted order.
//!
//! An external merge sort: blocks of bounded size are sorted in memory, written to a file and merged from there.

use std::{cmp::Reverse, collections::BinaryHeap, mem, path::Path};

use super::spool::{Records, Spool};
use turnwise_core::error::{Error, Result};

/// Maximum memory for the texts of a block, in bytes. When the limit is reached, the block is sorted and written to the
/// file.
const BLOCK: usize = 64 << 20;

/// Set of texts on disk. The set can be larger than the memory.
pub struct Unique {
    spool: Spool,
    /// Start and end of each sorted block in the file, in bytes.
    blocks: Vec<(u64, u64)>,
    /// Texts that are not yet in the file.
    texts: Vec<String>,
    bytes: usize,
    max_bytes: usize,
}

impl Unique {
    /// Creates an empty set with a temporary file in `folder`.
    pub fn new(folder: &Path) -> Result<Self> {
        Ok(Unique {
            spool: Spool::new(folder)?,
            blocks: Vec::new(),
            texts: Vec::new(),
            bytes: 0,
            max_bytes: BLOCK,
        })
    }

    /// Adds a text, which may already be in the set.
    pub fn push(&mut self, text: &str) -> Result<()> {
        self.bytes += text.len() + size_of::<String>();
        self.texts.push(text.to_owned());
        if self.bytes >= self.max_bytes {
            self.flush()?;
        }
        Ok(())
    }

    /// Calls `take` once with each distinct text, in byte order.
    pub fn each(&mut self, take: &mut dyn FnMut(String)) -> Result<()> {
        self.flush()?;
        let mut blocks: Vec<Records<'_>> =
            self.blocks.iter().map(|(from, to)| self.spool.records(*from, *to)).collect();
        let mut first = BinaryHeap::with_capacity(blocks.len());
        for (n, block) in blocks.iter_mut().enumerate() {
            first.extend(block.read_next()?.map(|text| Reverse((text, n))));
        }
        let mut last: Option<Vec<u8>> = None;
        while let Some(Reverse((text, n))) = first.pop() {
            first.extend(blocks[n].read_next()?.map(|text| Reverse((text, n))));
            if last.as_ref() != Some(&text) {
                last = Some(text.clone());
                take(String::from_utf8(text).map_err(|e| Error::Internal(e.to_string()))?);
            }
        }
        Ok(())
    }

    /// Writes the texts in memory to the file as a sorted block.
    fn flush(&mut self) -> Result<()> {
        let mut texts = mem::take(&mut self.texts);
        self.bytes = 0;
        texts.sort_unstable();
        texts.dedup();
        let from = self.spool.end();
        texts.iter().try_for_each(|text| self.spool.push(text.as_bytes()).map(drop))?;
        self.blocks.push((from, self.spool.end()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::random::Random;

    #[test]
    fn many_blocks_are_merged_into_one_sorted_list() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random::new(5, 0);
        let drawn: Vec<String> =
            (0..3_000).map(|_| "ab é".repeat(random.below(4)) + &random.below(400).to_string()).collect();
        let mut unique = Unique::new(folder.path()).unwrap();
        unique.max_bytes = 4_000;
        drawn.iter().for_each(|text| unique.push(text).unwrap());
        let mut expected = drawn;
        expected.sort_unstable();
        expected.dedup();
        // The texts can be read more than once.
        for _ in 0..2 {
            let mut found = Vec::new();
            unique.each(&mut |text| found.push(text)).unwrap();
            assert_eq!(found, expected);
        }
        assert!(unique.blocks.len() > 10);
    }
}
