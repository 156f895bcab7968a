//! The `turnwise` command-line program.

use std::process::ExitCode;

/// Allocator of the program.
///
/// Ingesting and indexing make many small allocations on several threads, and hnsw_rs stores its graph in millions
/// of them. Training allocates and frees the same large buffers in every step. benchmarks/README.md compares this
/// allocator with the one of the system.
#[global_allocator]
static ALLOCATOR: turnwise_memory::Memory = turnwise_memory::Memory;

fn main() -> ExitCode {
    turnwise::cli::main(std::env::args_os())
}
