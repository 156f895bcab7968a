//! Vectors that are used again. A step makes the same large ones as the step before; to clear new ones, or to have the
//! system clear them, costs as much as some of what is computed in them.

use std::sync::{Mutex, PoisonError};

/// Vectors that nobody uses at the moment.
#[derive(Default)]
pub(super) struct BufferPool(Mutex<Vec<Vec<f32>>>);

impl BufferPool {
    /// So many numbers, whatever was there before.
    pub(super) fn take(&self, length: usize) -> Vec<f32> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = (0..free.len()).filter(|n| free[*n].capacity() >= length);
        let mut taken = match fits.min_by_key(|n| free[*n].capacity()) {
            Some(n) => free.swap_remove(n),
            None => {
                // In the place of one that is too small; batches differ a little in length.
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

    /// Takes them back.
    pub(super) fn give(&self, vectors: impl IntoIterator<Item = Vec<f32>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(vectors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_used_again_by_those_that_fit() {
        let room = BufferPool::default();
        let long = room.take(1000);
        let at = long.as_ptr();
        room.give([long]);
        let again = room.take(900);
        assert_eq!((again.as_ptr(), again.len()), (at, 900));
        room.give([again, vec![1.0; 10]]);
        assert_eq!(room.take(8).capacity(), 10);
        assert_eq!(room.take(5000).len(), 5000);
        assert!(room.0.lock().unwrap().is_empty());
    }
}
