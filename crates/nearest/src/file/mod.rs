//! File format of a frozen graph.
//!
//! ```text
//! 0     header, 4096 bytes: magic, version, parameters, table of sections, CRC-32 of the header
//! 4096  sections, each at a multiple of 64:
//!         nibbles    nodes × stride / 2 bytes (see `nibbles`); if nibbles are not accurate enough, instead:
//!         codes      nodes × stride bytes, biased by 128, padded with 128 (see `distances`)
//!         originals  nodes × dimensions numbers, f32 or f16
//!         links 0    nodes × 2m u32; a shorter list ends with u32::MAX
//!         links 1 …  nodes of the level × m u32
//!         norms      nodes u32: squared norms of the codes (only for L2)
//!         starts     nodes + 1 u32: start of each node's rows, and the end of the last
//!         rows       u32: the rows of node 0, of node 1, …
//!         checks     CRC-32 of each block of 64 KiB, from the end of the header to the start of this section
//! ```
//!
//! All numbers are little-endian. Nodes are sorted by level, the highest first. So the nodes of a level are always
//! the first ones, and a search starts at node 0.

mod header;
mod write;

pub(crate) use header::{BLOCK, HEADER_BYTES, Header, Kind, Section};
pub(crate) use write::{Parts, write};

#[cfg(target_endian = "big")]
compile_error!("graph files are memory-mapped and little-endian; big-endian targets are not supported");
