//! Reusable memory that is aligned to cache lines, so that no vector load crosses a line boundary.

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// Plain number types: every bit pattern is a valid value.
///
/// # Safety
///
/// The type has no padding, no invalid patterns and no destructor, and its size divides 64.
pub(super) unsafe trait Plain: Copy {}
// SAFETY: plain numbers, of 1, 2 and 4 bytes.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for i8 {}
// SAFETY: as above.
unsafe impl Plain for i16 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}

/// Aligned memory that can be viewed as a slice of any plain type.
#[derive(Default, Clone)]
pub(super) struct Buffer {
    lines: Vec<Line>,
}

impl Buffer {
    /// Allocates `n` elements, all zero.
    pub fn zeros<T: Plain>(n: usize) -> Self {
        let mut buffer = Buffer::default();
        buffer.reserve::<T>(n);
        buffer
    }

    /// Grows the buffer to at least `n` elements and keeps the contents. New elements are zero. The buffer never
    /// shrinks.
    pub fn reserve<T: Plain>(&mut self, n: usize) {
        let lines = (n * size_of::<T>()).div_ceil(size_of::<Line>());
        if lines > self.lines.len() {
            self.lines.resize(lines, Line([0; 16]));
        }
    }

    /// Returns the whole buffer.
    pub fn of<T: Plain>(&self) -> &[T] {
        let n = self.lines.len() * (size_of::<Line>() / size_of::<T>());
        // SAFETY: the memory is initialized, aligned to 64 and `n` numbers of a plain type long.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), n) }
    }

    /// Returns the whole buffer for writing.
    pub fn of_mut<T: Plain>(&mut self) -> &mut [T] {
        let n = self.lines.len() * (size_of::<Line>() / size_of::<T>());
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), n) }
    }
}

/// Reinterprets floats as 32-bit units.
pub(super) fn units(numbers: &[f32]) -> &[u32] {
    // SAFETY: both are plain numbers of the same size and alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_kept() {
        let mut b = Buffer::zeros::<f32>(17);
        assert_eq!((b.of::<f32>().len(), b.of::<u8>().len()), (32, 128));
        assert_eq!(b.of::<f32>().as_ptr() as usize % 64, 0);
        assert!(b.of::<f32>().iter().all(|v| *v == 0.0));
        b.of_mut::<f32>()[16] = 1.0;
        b.reserve::<u8>(1000);
        assert_eq!(b.of::<u32>()[16], 1.0f32.to_bits());
        b.reserve::<u8>(1);
        assert_eq!(b.of::<u8>().len(), 1024);
        assert_eq!(units(&[1.0, 2.0]), [1.0f32.to_bits(), 2.0f32.to_bits()]);
    }
}
