//! Arguments of `turnwise serve`.

use std::{net::IpAddr, path::PathBuf};

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "API keys are given in the file of --keys (TOML), with one table per key:\n\n  [[key]]\n  name = \"support\"\n  secret = \"…\"               # or sha256 = \"…\", the SHA-256 hash of the secret\n  scopes = [\"read\"]           # \"read\" (search), \"write\" (ingest, delete), or both; default: read\n  filter = \"corpus=support\"   # only these dialogues are visible; default: all\n  indexes = [\"chats\"]         # only these indexes are accessible; default: all\n\nor in the environment variable TURNWISE_API_KEYS, separated by commas: SECRET, SECRET:read, SECRET:write or \
SECRET:read+write. There, a key without a scope can read and write. A request sends its key in the header `Authorization: Bearer SECRET`."
)]
pub(crate) struct ServeArgs {
    /// Name or path of another index to serve, in addition to the index of -i; repeatable
    ///
    /// Requests select an index by the parameter `index`, such as /v1/search?index=chats.
    #[arg(long = "also", value_name = "NAME|PATH")]
    pub(crate) also: Vec<String>,
    /// Serve all indexes of the indexes folder
    #[arg(long, conflicts_with = "also")]
    pub(crate) all: bool,
    /// Selector that chooses replies, and that reranks: the folder of a run of `turnwise train selector`, or a cross-encoder
    ///
    /// /v1/respond and the MCP tool `respond` use it by default. /v1/search uses it with "rerank": {"by": "selector"},
    /// and /v1/rerank unless the request names another model.
    #[arg(long, value_name = "MODEL")]
    pub(crate) selector: Option<String>,
    /// Speak the Model Context Protocol (MCP) on standard input and output instead of HTTP
    ///
    /// The HTTP server also offers MCP, at /mcp.
    #[arg(long, conflicts_with_all = ["host", "port", "keys", "without_keys", "tls_cert"])]
    pub(crate) mcp: bool,
    /// IP address to listen on
    ///
    /// The default accepts connections from this machine only. 0.0.0.0 accepts connections from other machines, and
    /// requires API keys or --without-keys.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 chooses a free port
    #[arg(long, value_name = "N", default_value_t = 7700)]
    pub(crate) port: u16,
    /// File of API keys (its format is shown at the end)
    ///
    /// If neither this file nor TURNWISE_API_KEYS contains a key, requests need no key.
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
    /// Allow requests without API keys when --host accepts connections from other machines
    ///
    /// Everyone who can reach the address can then read, change and delete all dialogues.
    #[arg(long)]
    pub(crate) without_keys: bool,
    /// Certificate chain for HTTPS, in PEM format
    ///
    /// Without it, the server uses HTTP.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Folder of the results of `turnwise bench`, to show on the search page
    #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
    pub(crate) results: PathBuf,
    /// Maximum number of requests processed at the same time
    ///
    /// Further requests wait in a queue (--max-queue).
    #[arg(long, alias = "at-once", value_name = "N", default_value_t = 16)]
    pub(crate) max_concurrent: usize,
    /// Maximum number of requests that wait in the queue
    ///
    /// When the queue is full, new requests are refused with status 429.
    #[arg(long, alias = "waiting", value_name = "N", default_value_t = 256)]
    pub(crate) max_queue: usize,
    /// Maximum size of a request body in MiB (1,048,576 bytes)
    ///
    /// Requests to /v1/ingest have no limit.
    #[arg(long, aliases = ["max-body-mb", "body-mb"], value_name = "N", default_value_t = 8)]
    pub(crate) max_body_mib: usize,
    /// Timeout of a request in seconds
    ///
    /// A request that takes longer is answered with status 504. Requests to /v1/ingest have no timeout as long as the
    /// client keeps sending.
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) timeout: u64,
}
