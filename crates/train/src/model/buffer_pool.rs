//! Pool of reusable buffers.
//!
//! Every step needs buffers of about the same sizes. Without the pool, zeroing new memory would take as long as some of
//! the computations.

use std::sync::{Mutex, PoisonError};

/// Pool of `f32` buffers that are not in use, to avoid allocations.
#[derive(Default)]
pub(super) struct BufferPool(Mutex<Vec<Vec<f32>>>);

impl BufferPool {
    /// Returns a buffer of `length` elements with arbitrary contents.
    pub(super) fn take(&self, length: usize) -> Vec<f32> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = (0..free.len()).filter(|n| free[*n].capacity() >= length);
        let mut taken = match fits.min_by_key(|n| free[*n].capacity()) {
            Some(n) => free.swap_remove(n),
            None => {
                // Replace the largest buffer, which is too small. The extra capacity is for longer batches.
                if let Some(n) = (0..free.len()).max_by_key(|n| free[*n].capacity()) {
                    free.swap_remove(n);
                }
                Vec::with_capacity(length + length / 4)
            }
        };
        drop(free);
        taken.resize(length, 0.0);
        taken
    }

    pub(super) fn give(&self, vectors: impl IntoIterator<Item = Vec<f32>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(vectors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_if_it_is_large_enough() {
        let buffers = BufferPool::default();
        let long = buffers.take(1000);
        let at = long.as_ptr();
        buffers.give([long]);
        let again = buffers.take(900);
        assert_eq!((again.as_ptr(), again.len()), (at, 900));
        buffers.give([again, vec![1.0; 10]]);
        assert_eq!(buffers.take(8).capacity(), 10);
        assert_eq!(buffers.take(5000).len(), 5000);
        assert!(buffers.0.lock().unwrap().is_empty());
    }
}
