//! The file of a frozen graph.
//!
//! ```text
//! 0     header, 4096 bytes: magic, version, numbers, the table of sections, a CRC-32 of all that
//! 4096  sections, each at a multiple of 64:
//!         nibbles    nodes × stride / 2 bytes (see `nibbles`), or, where they are not fine enough,
//!         codes      nodes × stride bytes, biased by 128, padded with 128 (see `simd`)
//!         originals  nodes × width numbers, f32 or f16
//!         links 0    nodes × 2m u32, a list ended by u32::MAX where it is shorter
//!         links 1 …  the first nodes × m u32
//!         norms      nodes u32: squared lengths of the codes (only for L2)
//!         starts     nodes + 1 u32: where the rows of a node begin
//!         rows       u32: the rows of node 0, of node 1, …
//!         checks     a CRC-32 of each 64 KiB of the file behind the header up to here
//! ```
//!
//! All numbers are little-endian. Nodes are in the order of falling levels, so that those of a level are the first ones
//! and node 0 is where a search begins.

mod header;
mod write;

pub(crate) use header::{BLOCK, HEADER_BYTES, Header, Kind, Section};
pub(crate) use write::{Parts, write};

#[cfg(target_endian = "big")]
compile_error!("files are mapped as they lie, and they are little-endian");
