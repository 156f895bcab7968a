//! Arguments of `turnwise serve`.

use std::{net::IpAddr, path::PathBuf};

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "API keys: a TOML file with one table per key:\n\n  [[key]]\n  name = \"support\"\n  secret = \"…\"               # or sha256 = \"…\", the hash of the secret\n  scopes = [\"read\"]           # \"read\" and \"write\"\n  filter = \"corpus=support\"   # only these dialogues are visible\n  indexes = [\"chats\"]         # only these indexes are accessible\n\nor SECRET[:read|:write|:read+write],… in the environment variable TURNWISE_API_KEYS."
)]
pub(crate) struct ServeArgs {
    /// Additional index to serve, by name or path; repeatable
    #[arg(long = "also", value_name = "NAME|PATH")]
    pub(crate) also: Vec<String>,
    /// Serve all indexes of the indexes folder
    #[arg(long, conflicts_with = "also")]
    pub(crate) all: bool,
    /// Speak the Model Context Protocol (MCP) on standard input and output instead of HTTP
    ///
    /// The HTTP server also offers MCP, at /mcp.
    #[arg(long, conflicts_with_all = ["host", "port", "keys", "without_keys", "tls_cert"])]
    pub(crate) mcp: bool,
    /// IP address to listen on
    ///
    /// An address that other machines can reach requires API keys or --without-keys.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 chooses a free port
    #[arg(long, value_name = "N", default_value_t = 7700)]
    pub(crate) port: u16,
    /// File of API keys (see the format below)
    ///
    /// If there are no keys, neither here nor in TURNWISE_API_KEYS, requests need no key.
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
    /// Allow requests from other machines without an API key
    #[arg(long)]
    pub(crate) without_keys: bool,
    /// Certificate chain for HTTPS, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Folder of benchmark results to show on the page
    #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
    pub(crate) results: PathBuf,
    /// Maximum number of requests processed at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) at_once: usize,
    /// Maximum number of requests in the queue
    ///
    /// When the queue is full, requests are refused with status 429.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) waiting: usize,
    /// Maximum size of a request body in MiB
    ///
    /// Requests to /v1/ingest have no limit.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) body_mb: usize,
    /// Timeout of a request in seconds
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) timeout: u64,
}
