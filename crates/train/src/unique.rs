//! Different texts in their order, of a corpus of any size: sorted in memory by heaps of bounded size, which go to a file
//! and are merged from there.

use std::{cmp::Reverse, collections::BinaryHeap, mem, path::Path};

use super::spool::{Records, Spool};
use turnwise_core::error::{Error, Result};

/// Bytes of texts that are sorted in memory.
const HEAP: usize = 64 << 20;

/// The texts.
pub struct Unique {
    spool: Spool,
    /// Where each sorted heap begins and ends in the file.
    heaps: Vec<(u64, u64)>,
    texts: Vec<String>,
    bytes: usize,
    most: usize,
}

impl Unique {
    /// None yet; what does not fit goes to a file beside what is in this folder.
    pub fn new(folder: &Path) -> Result<Self> {
        Ok(Unique { spool: Spool::new(folder)?, heaps: Vec::new(), texts: Vec::new(), bytes: 0, most: HEAP })
    }

    /// Adds a text, if it is not there.
    pub fn push(&mut self, text: &str) -> Result<()> {
        self.bytes += text.len() + size_of::<String>();
        self.texts.push(text.to_owned());
        if self.bytes >= self.most {
            self.put_away()?;
        }
        Ok(())
    }

    /// Gives each text once, in order.
    pub fn each(&mut self, take: &mut dyn FnMut(String)) -> Result<()> {
        self.put_away()?;
        let mut heaps: Vec<Records<'_>> =
            self.heaps.iter().map(|(from, to)| self.spool.records(*from, *to)).collect();
        let mut first = BinaryHeap::with_capacity(heaps.len());
        for (n, heap) in heaps.iter_mut().enumerate() {
            first.extend(heap.read_next()?.map(|text| Reverse((text, n))));
        }
        let mut last: Option<Vec<u8>> = None;
        while let Some(Reverse((text, n))) = first.pop() {
            first.extend(heaps[n].read_next()?.map(|text| Reverse((text, n))));
            if last.as_ref() != Some(&text) {
                last = Some(text.clone());
                take(String::from_utf8(text).map_err(|e| Error::Internal(e.to_string()))?);
            }
        }
        Ok(())
    }

    fn put_away(&mut self) -> Result<()> {
        let mut texts = mem::take(&mut self.texts);
        self.bytes = 0;
        texts.sort_unstable();
        texts.dedup();
        let from = self.spool.end();
        texts.iter().try_for_each(|text| self.spool.push(text.as_bytes()).map(drop))?;
        self.heaps.push((from, self.spool.end()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::random::Random;

    #[test]
    fn many_heaps_are_one_sorted_list() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random::new(5, 0);
        let drawn: Vec<String> =
            (0..3_000).map(|_| "ab é".repeat(random.below(4)) + &random.below(400).to_string()).collect();
        let mut unique = Unique::new(folder.path()).unwrap();
        unique.most = 4_000;
        drawn.iter().for_each(|text| unique.push(text).unwrap());
        let mut expected = drawn;
        expected.sort_unstable();
        expected.dedup();
        // As often as is asked.
        for _ in 0..2 {
            let mut found = Vec::new();
            unique.each(&mut |text| found.push(text)).unwrap();
            assert_eq!(found, expected);
        }
        assert!(unique.heaps.len() > 10);
    }
}
