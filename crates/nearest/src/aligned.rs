//! Memory whose first byte stands at a multiple of 64, as vector instructions like it.

const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// Bytes that begin at a multiple of 64.
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
        // SAFETY: the lines are one run of at least `length` bytes, and bytes have no other needs.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.length) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.length) }
    }
}
