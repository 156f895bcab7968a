//! The `turnwise` command-line program.

use std::process::ExitCode;

/// Allocator of the program.
///
/// Indexing makes many small allocations on several threads; hnsw_rs makes millions for one graph. Training allocates
/// and frees the same large buffers in every step. benchmarks/README.md compares the speed with the system allocator.
#[global_allocator]
static ALLOCATOR: turnwise_memory::Memory = turnwise_memory::Memory;

fn main() -> ExitCode {
    turnwise::cli::main(std::env::args_os())
}
