//! The dialogue ids of a segment, by ordinal.

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tantivy::{DocId, columnar::StrColumn};

/// Approximate number of ids that must be decoded to read one id: all ids before it in the same block of the
/// dictionary.
const READ_FOR_ONE: u64 = 500;

/// Reads ids from the compressed dictionary. When searches have decoded about as many ids as the dictionary
/// contains, all ids are decoded once and cached. The total cost is at most twice the cost of caching at once.
pub(super) struct Names {
    column: StrColumn,
    read: AtomicU64,
    all: OnceLock<All>,
}

/// All ids, concatenated, and the end offset of each id.
struct All {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Names {
    pub(super) fn of(column: StrColumn) -> Self {
        Names { column, read: AtomicU64::new(0), all: OnceLock::new() }
    }

    /// Returns the ordinal of a document's dialogue. Ordinals are in id order.
    pub(super) fn number(&self, doc: DocId) -> Option<u64> {
        self.column.ords().first(doc)
    }

    /// Calls `name` with the id of each ordinal. The ordinals must be sorted.
    pub(super) fn each(&self, numbers: &[u64], mut name: impl FnMut(&[u8])) -> io::Result<()> {
        let some = (numbers.len() as u64).saturating_mul(READ_FOR_ONE);
        let before = self.read.fetch_add(some, Ordering::Relaxed);
        if before < self.column.num_terms() as u64 {
            return self.column.dictionary().sorted_ords_to_term_cb(numbers, name).map(|_| ());
        }
        let all = match self.all.get() {
            Some(all) => all,
            None => {
                let all = self.read_all()?;
                self.all.get_or_init(|| all)
            }
        };
        numbers.iter().filter_map(|number| all.get(*number)).for_each(&mut name);
        Ok(())
    }

    fn read_all(&self) -> io::Result<All> {
        let mut all = All { bytes: Vec::new(), ends: Vec::with_capacity(self.column.num_terms()) };
        let mut names = self.column.dictionary().stream()?;
        while names.advance() {
            all.bytes.extend_from_slice(names.key());
            all.ends.push(all.bytes.len());
        }
        all.bytes.shrink_to_fit();
        Ok(all)
    }
}

impl All {
    fn get(&self, number: u64) -> Option<&[u8]> {
        let number = usize::try_from(number).ok()?;
        let start = number.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.bytes.get(start..*self.ends.get(number)?)
    }
}
