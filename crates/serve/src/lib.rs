//! HTTP server: the REST API, the Model Context Protocol (MCP) and the web page. Search requests and responses have the
//! same format as in the library and on the command line.
//!
//! A request passes through `listen` (connections), `guard` (authentication, time limit, headers, metrics) and its
//! route. Slow work runs in `pool`, which limits the number of waiting requests. `batching` encodes the queries of
//! concurrent requests in one batch. `hosted` keeps an index open and reloads it when another process changes it. A
//! `Location` of the crate `turnwise-index` opens an index: a folder, or a collection of a remote engine.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use turnwise_index::{embedded::Folder, location::Location};
//! use turnwise_serve::{App, Options, ServerHooks, bind};
//!
//! # fn serve(hooks: Arc<dyn ServerHooks>) -> turnwise_core::error::Result<()> {
//! let options = Options::local(7700);
//! let chats: Box<dyn Location> = Box::new(Folder::new("indexes/chats".into()));
//! let indexes = vec![("chats".to_owned(), chats)];
//! let app = App::open(indexes, &hooks, &options)?;
//! bind(app, options)?.run(|| false)
//! # }
//! ```

#![warn(missing_docs)]

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
mod stored_responses;

pub use app::{App, OpenIndex};
pub use hosted::ServerHooks;
pub use keys::Keys;
pub use listen::{BoundServer, bind};
pub use openapi::document;
pub use options::{Limits, Options, Tls};
