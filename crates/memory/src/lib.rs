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
const LARGE: usize = 1 << 17;
/// What they are aligned to: what products of matrices ask of the copies that they make of their factors.
const ALIGNED: usize = 128;
/// Sizes are rounded up by at most an eighth, so that nearly equal ones serve each other: no two batches have as many tokens.
const PARTS: usize = 8;
/// How many blocks are kept at most.
const PLACES: usize = 1024;

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

/// What is really asked for: large sizes rounded up and aligned alike, whether kept or not, so that any large block can be
/// kept and serve any other of its size.
fn real(layout: Layout) -> Layout {
    if !is_kept(layout) {
        return layout;
    }
    let grain = layout.size().next_power_of_two() / 2 / PARTS;
    Layout::from_size_align(layout.size().next_multiple_of(grain), ALIGNED).unwrap_or(layout)
}

/// Whether a block of this layout may be kept.
fn is_kept(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= ALIGNED
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
        if is_kept(layout) != is_kept(wanted) {
            // Aligned otherwise from here on.
            // SAFETY: both blocks are as long as is copied, and not the same.
            unsafe {
                let new = self.alloc(wanted);
                if !new.is_null() {
                    ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                    self.dealloc(block, layout);
                }
                return new;
            }
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
            // Of a small one a large one, and back.
            Memory.dealloc(grown, layout(5 * LARGE));
            let small = Memory.alloc(layout(100));
            ptr::write_bytes(small, 9, 100);
            let large = Memory.realloc(small, layout(100), 2 * LARGE);
            assert!((0..100).all(|n| *large.add(n) == 9) && large.addr().is_multiple_of(ALIGNED));
            let small = Memory.realloc(large, layout(2 * LARGE), 50);
            assert!((0..50).all(|n| *small.add(n) == 9));
            Memory.dealloc(small, layout(50));
            // What asks for more than others are aligned to is not kept.
            let page = Layout::from_size_align(2 * LARGE, 4096).unwrap();
            let aligned = Memory.alloc(page);
            assert!(aligned.addr().is_multiple_of(4096));
            Memory.dealloc(aligned, page);
            Memory.dealloc(other, layout(3 * LARGE + 5));
            STATE.keeps.store(false, Ordering::Relaxed);
            // What is kept is no more than there is room for.
            let left = STATE.room.load(Ordering::Relaxed);
            assert!(left <= 8 * LARGE && !STATE.put(first, left + 1));
        }
    }
}
