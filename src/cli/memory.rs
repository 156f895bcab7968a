//! The program's allocator: mimalloc, and while training large blocks are kept.
//!
//! A step of training makes and drops hundreds of tensors of tens of megabytes. Given back to the system and asked for
//! again, each of their pages is zeroed by the kernel and mapped in every step. The sizes are the
//! same few from step to step, so a block that is dropped is kept for the next of its size.

use std::{
    alloc::{GlobalAlloc, Layout},
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use mimalloc::MiMalloc;

/// Blocks from this size are kept.
const LARGE: usize = 1 << 20;
/// Sizes are rounded up by at most an eighth, so that nearly equal ones serve each other: no two batches have as many tokens.
const PARTS: usize = 8;
/// How many blocks are kept at most.
const PLACES: usize = 512;

/// The allocator. The program names it; a library's user is not made to.
pub struct Memory;

/// Whether blocks are kept, and which.
struct State {
    keeps: AtomicBool,
    /// Bytes that may still be kept.
    room: AtomicUsize,
    kept: Mutex<Kept>,
}

/// Blocks that nobody uses: their sizes and where they begin.
struct Kept {
    blocks: [(usize, usize); PLACES],
    count: usize,
}

static STATE: State = State {
    keeps: AtomicBool::new(false),
    room: AtomicUsize::new(0),
    kept: Mutex::new(Kept { blocks: [(0, 0); PLACES], count: 0 }),
};

/// From now on large blocks are kept, up to so many bytes.
pub fn keep_large_blocks(bytes: usize) {
    STATE.room.store(bytes, Ordering::Relaxed);
    STATE.keeps.store(true, Ordering::Relaxed);
}

impl State {
    /// A kept block of this size.
    fn take(&self, size: usize) -> Option<*mut u8> {
        if !self.keeps.load(Ordering::Relaxed) {
            return None;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let count = kept.count;
        // The last one dropped is the likeliest to be in a cache still.
        let found = kept.blocks[..count].iter().rposition(|(s, _)| *s == size)?;
        let (_, at) = kept.blocks[found];
        kept.blocks[found] = kept.blocks[count - 1];
        kept.count -= 1;
        drop(kept);
        self.room.fetch_add(size, Ordering::Relaxed);
        Some(ptr::with_exposed_provenance_mut(at))
    }

    /// Keeps a block of this size, if there is room.
    fn put(&self, block: *mut u8, size: usize) -> bool {
        if !self.keeps.load(Ordering::Relaxed) || self.room.load(Ordering::Relaxed) < size {
            return false;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let count = kept.count;
        if count == PLACES {
            return false;
        }
        kept.blocks[count] = (size, block.expose_provenance());
        kept.count += 1;
        self.room.fetch_sub(size, Ordering::Relaxed);
        true
    }
}

/// What is really asked for: large sizes rounded up, whether kept or not, so that any large block can be kept.
fn real(layout: Layout) -> Layout {
    if layout.size() < LARGE {
        return layout;
    }
    let grain = layout.size().next_power_of_two() / 2 / PARTS;
    Layout::from_size_align(layout.size().next_multiple_of(grain), layout.align()).unwrap_or(layout)
}

/// Kept blocks have mimalloc's own alignment, which is enough for all but a few.
fn is_kept(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= 16
}

// SAFETY: every block comes from mimalloc with the layout `real` gives, and goes back with the same; a kept one is in
// nobody's hands until it is taken, once.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let real = real(layout);
        if is_kept(layout)
            && let Some(block) = STATE.take(real.size())
        {
            return block;
        }
        // SAFETY: a layout that is no smaller than our caller's, which is not empty.
        unsafe { MiMalloc.alloc(real) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let real = real(layout);
        if is_kept(layout)
            && let Some(block) = STATE.take(real.size())
        {
            // SAFETY: the block is `real` long, which is no less.
            unsafe { ptr::write_bytes(block, 0, layout.size()) };
            return block;
        }
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(real) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let real = real(layout);
        if is_kept(layout) && STATE.put(block, real.size()) {
            return;
        }
        // SAFETY: it came with this layout.
        unsafe { MiMalloc.dealloc(block, real) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return ptr::null_mut() };
        if real(wanted) == real(layout) {
            return block;
        }
        // SAFETY: the block has the layout that `real` gives; the new one is what `real` gives for the new size.
        unsafe { MiMalloc.realloc(block, real(layout), real(wanted).size()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_block_serves_the_next_of_its_size_and_is_zeroed_where_asked() {
        let layout = |size| Layout::from_size_align(size, 4).unwrap();
        // SAFETY: blocks are written within their layouts, and go back with those that they came with.
        unsafe {
            STATE.room.store(8 * LARGE, Ordering::Relaxed);
            STATE.keeps.store(true, Ordering::Relaxed);
            let first = Memory.alloc(layout(3 * LARGE + 5));
            ptr::write_bytes(first, 7, 3 * LARGE + 5);
            Memory.dealloc(first, layout(3 * LARGE + 5));
            let again = Memory.alloc_zeroed(layout(3 * LARGE + 1));
            assert_eq!(again, first);
            assert!((0..3 * LARGE + 1).all(|n| *again.add(n) == 0));
            let other = Memory.alloc(layout(3 * LARGE + 5));
            assert_ne!(other, first);
            let grown = Memory.realloc(again, layout(3 * LARGE + 1), 5 * LARGE);
            assert_eq!(*grown.add(3 * LARGE), 0);
            Memory.dealloc(grown, layout(5 * LARGE));
            Memory.dealloc(other, layout(3 * LARGE + 5));
            STATE.keeps.store(false, Ordering::Relaxed);
            // What is kept is no more than there is room for.
            let left = STATE.room.load(Ordering::Relaxed);
            assert!(left <= 8 * LARGE && !STATE.put(first, left + 1));
        }
    }
}
