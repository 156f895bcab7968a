//! Tests of the program's behavior: files, processes, exit codes and messages.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(feature = "milvus")]
mod assembled;
mod bad_input;
mod bench;
mod bench_build;
mod bench_memory;
mod bench_recipes;
mod bench_respond;
mod bench_speed;
mod changes;
#[cfg(feature = "serve")]
mod clients;
mod compact;
mod context_cca;
mod conversations;
mod corpus;
mod dense;
mod embed;
mod encode;
mod eval;
mod frozen;
#[cfg(feature = "serve")]
mod http;
mod hub;
mod hybrid;
mod interrupts;
#[cfg(feature = "milvus")]
mod milvus;
#[cfg(all(feature = "milvus", feature = "serve"))]
mod milvus_serve;
mod mining;
mod models;
#[cfg(feature = "milvus")]
mod moving;
#[cfg(feature = "serve")]
mod page;
mod pulls;
mod search;
mod selector;
#[cfg(feature = "serve")]
mod serve;
mod settings;
mod shards;
mod shards_launchers;
#[cfg(feature = "remote")]
mod shards_remote;
mod sources;
mod summary;
mod support;
mod surface;
mod threads;
#[cfg(feature = "serve")]
mod tls;
mod train;
#[cfg(feature = "serve")]
mod webdriver;
