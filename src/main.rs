//! The `turnwise` program: parses, runs, maps the outcome to an exit code.

use std::process::ExitCode;

/// Ingesting and indexing allocate small things on several threads, and hnsw_rs keeps its graph in millions of them: with
/// the system's allocator an ingest took 1.6 times the processor time, a graph by hnsw_rs 1.3 times (benchmarks/README.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    turnwise::cli::main(std::env::args_os())
}
