//! Memory that is aligned to 64 bytes, for fast vector loads.

const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// Byte buffer that is aligned to 64 bytes.
#[derive(Clone, Default)]
pub(crate) struct Aligned {
    lines: Vec<Line>,
    length: usize,
}

impl Aligned {
    pub(crate) fn filled(length: usize, with: u8) -> Self {
        Aligned { lines: vec![Line([with; LINE]); length.div_ceil(LINE)], length }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the lines are contiguous and have at least `length` bytes; bytes need no alignment.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.length) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.length) }
    }
}
