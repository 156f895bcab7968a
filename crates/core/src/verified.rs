//! Items of a file whose checksums were verified since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

/// Set of the items of a file that were verified. An item is verified when it is read for the first time, and not again
/// until the file is opened again. Each item takes one bit. Several threads can use one set.
#[derive(Debug, Default)]
pub struct Verified {
    bits: Vec<AtomicU64>,
}

impl Verified {
    /// Creates an empty set for items with the numbers from 0 to `items` (exclusive).
    pub fn new(items: usize) -> Self {
        Verified { bits: (0..items.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Calls `verify`, unless it returned `Ok` for this item before. If the number of the item is too high, always calls
    /// it.
    pub fn once<E>(&self, item: usize, verify: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let (word, bit) = (self.bits.get(item / 64), 1 << (item % 64));
        if word.is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0) {
            return Ok(());
        }
        verify()?;
        if let Some(word) = word {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_verified_until_it_is_found_undamaged() {
        let verified = Verified::new(65);
        let mut calls = 0;
        for (item, outcome) in
            [(64, Err(())), (64, Ok(())), (64, Ok(())), (63, Ok(())), (128, Ok(())), (128, Ok(()))]
        {
            let found = verified.once(item, || {
                calls += 1;
                outcome
            });
            assert_eq!(found, outcome);
        }
        assert_eq!(calls, 5);
    }
}
