//! The HTTP API: the same requests and answers as in the library and on the command line, for programs and for people.
//!
//! A request goes through `listen` (connections), `guard` (who asks, limits, headers, what is counted) and its route;
//! what takes time runs in `pool`, where waiting is bounded; single queries of many requests are encoded together by
//! `batching`; `hosted` keeps an index open and follows what other processes write to it, wherever it lies (`source`).

mod app;
mod batching;
mod body;
mod guard;
mod hosted;
mod keys;
mod listen;
mod mcp;
mod metrics;
mod openapi;
mod options;
mod page;
mod pool;
mod problem;
mod repeated;
mod routes;
mod source;
mod stream;
mod surveys;
mod tls;
mod write_timeout;

pub use app::{App, Opened};
pub use hosted::ServerHooks;
pub use keys::Keys;
pub use listen::{Bound, bind};
pub use openapi::document;
pub use options::{Limits, Options, Tls};
pub use source::Place;
