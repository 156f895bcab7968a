//! Every environment variable that turnwise reads, in one place.

/// The settings that an environment variable can give, with what they mean. `config show` lists them.
pub(crate) const PREFIX: &str = "TURNWISE_";

/// What lets in to a Milvus: `user:password` or a key.
#[cfg(feature = "milvus")]
pub(crate) const MILVUS_TOKEN: &str = "TURNWISE_MILVUS_TOKEN";

/// Keys of `serve`.
#[cfg(feature = "serve")]
pub(crate) const KEYS: &str = "TURNWISE_API_KEYS";

/// The user's configuration folder (XDG); `$HOME/.config` where it is not set.
pub(crate) const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// The user's home.
pub(crate) const HOME: &str = "HOME";

/// The user's caches (XDG); `$HOME/.cache` where it is not set.
pub(crate) const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// The user's data (XDG); `$HOME/.local/share` where it is not set.
pub(crate) const XDG_DATA_HOME: &str = "XDG_DATA_HOME";

// The ones below are those of the Hugging Face libraries, and mean the same here. Proxies are taken from ALL_PROXY,
// HTTPS_PROXY, HTTP_PROXY and NO_PROXY by the HTTP client itself.

/// The folder of all that the libraries keep; the cache is `hub` in it.
pub(crate) const HF_HOME: &str = "HF_HOME";
/// The cache itself.
pub(crate) const HF_HUB_CACHE: &str = "HF_HUB_CACHE";
/// A mirror in place of the hub.
pub(crate) const HF_ENDPOINT: &str = "HF_ENDPOINT";
/// Who asks.
pub(crate) const HF_TOKEN: &str = "HF_TOKEN";
/// Forbids the network.
pub(crate) const HF_HUB_OFFLINE: &str = "HF_HUB_OFFLINE";
/// The certificate authorities to trust, in a PEM file.
pub(crate) const SSL_CERT_FILE: &str = "SSL_CERT_FILE";
/// The same, as Python's requests calls it.
pub(crate) const REQUESTS_CA_BUNDLE: &str = "REQUESTS_CA_BUNDLE";

/// The variable of a setting: `ingest.max_errors` is `TURNWISE_INGEST_MAX_ERRORS`.
pub(crate) fn of_setting(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}
