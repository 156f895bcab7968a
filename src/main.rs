//! The `turnwise` program: parses, runs, maps the outcome to an exit code.

use std::process::ExitCode;

/// Ingesting and indexing allocate small things on several threads, and hnsw_rs keeps its graph in millions of them: what that
/// takes with the system's allocator is in benchmarks/README.md. Training makes and drops the same large ones in every step.
#[global_allocator]
static ALLOCATOR: turnwise_memory::Memory = turnwise_memory::Memory;

fn main() -> ExitCode {
    turnwise::cli::main(std::env::args_os())
}
