//! Serving.

use std::{net::IpAddr, path::PathBuf};

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "Keys: a file of tables like\n\n  [[key]]\n  name = \"support\"\n  secret = \"…\"            # or sha256 = \"…\" of it\n  scopes = [\"read\"]        # and \"write\"\n  filter = \"corpus=support\" # all it may see\n  indexes = [\"chats\"]\n\nor SECRET[:read|:write|:read+write],… in TURNWISE_API_KEYS."
)]
pub(crate) struct ServeArgs {
    /// More indexes to serve, beside that of -i or what --engine names: names or paths
    #[arg(long = "also", value_name = "NAME|PATH")]
    pub(crate) also: Vec<String>,
    /// Serve every index of the folder of indexes
    #[arg(long, conflicts_with = "also")]
    pub(crate) all: bool,
    /// Speak the Model Context Protocol on standard input and output in place of HTTP (over HTTP it is at /mcp)
    #[arg(long, conflicts_with_all = ["host", "port", "keys", "without_keys", "tls_cert"])]
    pub(crate) mcp: bool,
    /// The address to listen on; others than this machine need keys
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// The port to listen on; 0 is any that is free
    #[arg(long, value_name = "N", default_value_t = 7700)]
    pub(crate) port: u16,
    /// A file of keys (below); without keys nobody is asked for one
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
    /// Let everybody ask who can reach the address, without a key
    #[arg(long)]
    pub(crate) without_keys: bool,
    /// Speak TLS, with this chain of certificates in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Where the results of benchmarks lie, which the page shows
    #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
    pub(crate) results: PathBuf,
    /// Requests that are worked on at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) at_once: usize,
    /// Requests that may wait for that; more are answered with 429
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) waiting: usize,
    /// Megabytes of a request's body, at most; an ingest may have any length
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) body_mb: usize,
    /// Seconds that a request may take
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) timeout: u64,
}
