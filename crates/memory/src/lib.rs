//! Memory allocator of the program `turnwise`: mimalloc, with a cache of large blocks that training enables.
//!
//! A training step allocates and frees hundreds of tensors of tens of megabytes. If this memory is returned to the
//! operating system, its pages must be mapped and zeroed again in every step. The sizes are similar in each step, so
//! the cache keeps freed blocks and reuses them for allocations of about the same size.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: turnwise_memory::Memory = turnwise_memory::Memory;
//!
//! turnwise_memory::enable_block_cache(1 << 30);
//! ```

use std::{
    alloc::{GlobalAlloc, Layout},
    ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use mimalloc::MiMalloc;

/// Minimum size in bytes of an allocation that uses the cache.
const LARGE: usize = 1 << 17;
/// Alignment of cached blocks in bytes, and maximum alignment of an allocation that uses the cache. Matrix
/// multiplication needs this alignment for its packed copies of matrices.
const ALIGNED: usize = 128;
/// Number of size classes between two powers of two. Sizes are rounded up to a class, by at most 1/8. A block can then
/// be reused for an allocation of a slightly different size. This is frequent in training, because batches differ in
/// their number of tokens.
const CLASSES_PER_POWER: usize = 8;
/// Maximum number of cached blocks.
const MAX_BLOCKS: usize = 1024;

/// Global allocator: mimalloc with a cache of large blocks. See [`enable_block_cache`].
pub struct Memory;

/// Cache of freed blocks.
struct BlockCache {
    enabled: AtomicBool,
    free: Mutex<FreeBlocks>,
}

struct FreeBlocks {
    /// Size and address of each cached block. Only the first `count` entries are valid.
    blocks: [(usize, usize); MAX_BLOCKS],
    count: usize,
    /// Number of bytes that can still be added to the cache.
    capacity: usize,
}

static CACHE: BlockCache = BlockCache::new();

/// Enables the cache of freed blocks of at least 128 KiB. The cache keeps at most `bytes` bytes and 1024 blocks.
/// Without this call, nothing is cached. Call this function only once: each call sets the limit in bytes as if the
/// cache were empty.
pub fn enable_block_cache(bytes: usize) {
    CACHE.enable(bytes);
}

impl BlockCache {
    const fn new() -> Self {
        let free = FreeBlocks { blocks: [(0, 0); MAX_BLOCKS], count: 0, capacity: 0 };
        BlockCache { enabled: AtomicBool::new(false), free: Mutex::new(free) }
    }

    fn enable(&self, bytes: usize) {
        self.lock().capacity = bytes;
        self.enabled.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, FreeBlocks> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a block of exactly `size` bytes from the cache and returns it. Returns `None` if there is no such block,
    /// or if the cache is disabled.
    fn take(&self, size: usize) -> Option<*mut u8> {
        if !self.enabled.load(Ordering::Relaxed) {
            return None;
        }
        let mut free = self.lock();
        let count = free.count;
        // Search from the end: a recently freed block is more likely to be in a CPU cache.
        let found = free.blocks[..count].iter().rposition(|(s, _)| *s == size)?;
        let (_, address) = free.blocks[found];
        free.blocks[found] = free.blocks[count - 1];
        free.count -= 1;
        free.capacity += size;
        Some(ptr::with_exposed_provenance_mut(address))
    }

    /// Adds a block to the cache and returns true. Returns false if the cache is disabled or full; the caller must then
    /// free the block.
    fn put(&self, block: *mut u8, size: usize) -> bool {
        if !self.enabled.load(Ordering::Relaxed) {
            return false;
        }
        let mut free = self.lock();
        let count = free.count;
        if count == MAX_BLOCKS || free.capacity < size {
            return false;
        }
        free.blocks[count] = (size, block.expose_provenance());
        free.count += 1;
        free.capacity -= size;
        true
    }
}

/// Returns the layout that is actually allocated for a requested layout. For a cacheable layout, the size is rounded up
/// to a size class, and the alignment is [`ALIGNED`]. Other layouts are unchanged.
fn actual_layout(layout: Layout) -> Layout {
    if !is_cacheable(layout) {
        return layout;
    }
    let grain = layout.size().next_power_of_two() / 2 / CLASSES_PER_POWER;
    Layout::from_size_align(layout.size().next_multiple_of(grain), ALIGNED).unwrap_or(layout)
}

fn is_cacheable(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= ALIGNED
}

// SAFETY: every block is allocated by mimalloc with the layout that `actual_layout` returns, and is freed with the
// same layout. A cached block has no other user, and it is taken from the cache only once.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let actual = actual_layout(layout);
        if is_cacheable(layout)
            && let Some(block) = CACHE.take(actual.size())
        {
            return block;
        }
        // SAFETY: the size of `actual` is at least `layout.size()`, which the caller guarantees to be nonzero.
        unsafe { MiMalloc.alloc(actual) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let actual = actual_layout(layout);
        if is_cacheable(layout)
            && let Some(block) = CACHE.take(actual.size())
        {
            // SAFETY: the block has `actual.size()` bytes, at least `layout.size()`.
            unsafe { ptr::write_bytes(block, 0, layout.size()) };
            return block;
        }
        // SAFETY: the size of `actual` is at least `layout.size()`, which the caller guarantees to be nonzero.
        unsafe { MiMalloc.alloc_zeroed(actual) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let actual = actual_layout(layout);
        if is_cacheable(layout) && CACHE.put(block, actual.size()) {
            return;
        }
        // SAFETY: the block was allocated with the layout `actual`.
        unsafe { MiMalloc.dealloc(block, actual) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return ptr::null_mut() };
        if actual_layout(wanted) == actual_layout(layout) {
            return block;
        }
        if is_cacheable(layout) != is_cacheable(wanted) {
            // The alignment of the block can change, so allocate a new block.
            // SAFETY: both blocks are at least as long as the copied range, and they do not overlap.
            unsafe {
                let new = self.alloc(wanted);
                if !new.is_null() {
                    ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                    self.dealloc(block, layout);
                }
                return new;
            }
        }
        // SAFETY: the block was allocated with the layout `actual_layout(layout)`, and the new size is that of
        // `actual_layout(wanted)`.
        unsafe { MiMalloc.realloc(block, actual_layout(layout), actual_layout(wanted).size()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_together_do_not_exceed_the_capacity() {
        static CACHE: BlockCache = BlockCache::new();
        CACHE.enable(3 * LARGE);
        let stored = std::thread::scope(|scope| {
            let put = |n: usize| scope.spawn(move || CACHE.put(ptr::without_provenance_mut(n), LARGE));
            let threads: Vec<_> = (1..=16).map(put).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum::<usize>()
        });
        let free = CACHE.lock();
        assert_eq!((stored, free.count, free.capacity), (3, 3, 0));
    }

    #[test]
    fn freed_blocks_are_reused_and_zeroed_on_request() {
        let layout = |size| Layout::from_size_align(size, 4).unwrap();
        // SAFETY: blocks are written only within their layouts, and are freed with the layouts they were allocated
        // with.
        unsafe {
            enable_block_cache(8 * LARGE);
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
            // Grow a small block to a large one and shrink it again.
            Memory.dealloc(grown, layout(5 * LARGE));
            let small = Memory.alloc(layout(100));
            ptr::write_bytes(small, 9, 100);
            let large = Memory.realloc(small, layout(100), 2 * LARGE);
            assert!((0..100).all(|n| *large.add(n) == 9) && large.addr().is_multiple_of(ALIGNED));
            let small = Memory.realloc(large, layout(2 * LARGE), 50);
            assert!((0..50).all(|n| *small.add(n) == 9));
            Memory.dealloc(small, layout(50));
            // Blocks with an alignment above `ALIGNED` are not cached.
            let page = Layout::from_size_align(2 * LARGE, 4096).unwrap();
            let aligned = Memory.alloc(page);
            assert!(aligned.addr().is_multiple_of(4096));
            Memory.dealloc(aligned, page);
            Memory.dealloc(other, layout(3 * LARGE + 5));
            CACHE.enabled.store(false, Ordering::Relaxed);
            // The cache rejects a block that is larger than its remaining capacity.
            let left = CACHE.lock().capacity;
            assert!(left <= 8 * LARGE && !CACHE.put(first, left + 1));
        }
    }
}
