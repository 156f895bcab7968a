//! HTTP server: the REST API, the Model Context Protocol and the web page. Requests and responses are the same as in
//! the library and on the command line.
//!
//! A request passes through `listen` (connections), `guard` (authentication, time limit, headers, metrics) and its
//! route. Slow work runs in `pool`, which bounds the queue. `batching` encodes the queries of concurrent requests
//! together. `hosted` keeps an index open and reloads it when another process changes it. A `Location` of the crate
//! `turnwise-index` opens the index: a folder, or a name on a server.

mod app;
mod batching;
mod body;
mod guard;
mod hosted;
mod keys;
mod listen;
mod metrics;
mod openapi;
mod options;
mod page;
mod pool;
mod problem;
mod routes;
mod stream;
mod tls;
mod write_timeout;

pub use app::{App, Opened};
pub use hosted::ServerHooks;
pub use keys::Keys;
pub use listen::{Bound, bind};
pub use openapi::document;
pub use options::{Limits, Options, Tls};
