//! The `turnwise` command-line program.

use std::process::ExitCode;

/// Allocator of the program.
///
/// Indexing makes many small allocations on several threads, and hnsw_rs stores a graph in millions of them. Training
/// allocates and frees the same large buffers in every step. benchmarks/README.md compares the speed of this allocator with
/// that of the system's.
#[global_allocator]
static ALLOCATOR: turnwise_memory::Memory = turnwise_memory::Memory;

fn main() -> ExitCode {
    turnwise::cli::main(std::env::args_os())
}
