//! Names of all environment variables that turnwise reads.

/// Prefix of the environment variables that override settings. `turnwise config show` lists the settings.
pub(crate) const PREFIX: &str = "TURNWISE_";

/// Credentials for Milvus: `user:password` or an API key.
#[cfg(feature = "milvus")]
pub(crate) const MILVUS_TOKEN: &str = "TURNWISE_MILVUS_TOKEN";

/// API keys that the server (`turnwise serve`) accepts.
#[cfg(feature = "serve")]
pub(crate) const KEYS: &str = "TURNWISE_API_KEYS";

/// The user's configuration folder (XDG). Default: `$HOME/.config`.
pub(crate) const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// The user's home folder.
pub(crate) const HOME: &str = "HOME";

/// The user's cache folder (XDG). Default: `$HOME/.cache`.
pub(crate) const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// The user's data folder (XDG). Default: `$HOME/.local/share`.
pub(crate) const XDG_DATA_HOME: &str = "XDG_DATA_HOME";

// The Hugging Face libraries use the variables below with the same meaning. The HTTP client reads ALL_PROXY,
// HTTPS_PROXY, HTTP_PROXY and NO_PROXY itself.

/// Folder of the Hugging Face libraries. The model cache is its subfolder `hub`.
pub(crate) const HF_HOME: &str = "HF_HOME";
/// Folder of the model cache.
pub(crate) const HF_HUB_CACHE: &str = "HF_HUB_CACHE";
/// URL of a mirror to use instead of the hub.
pub(crate) const HF_ENDPOINT: &str = "HF_ENDPOINT";
/// Access token for the hub.
pub(crate) const HF_TOKEN: &str = "HF_TOKEN";
/// Disables network access if the value is `1`, `on`, `yes` or `true`.
pub(crate) const HF_HUB_OFFLINE: &str = "HF_HUB_OFFLINE";
/// PEM file of trusted certificate authorities.
pub(crate) const SSL_CERT_FILE: &str = "SSL_CERT_FILE";
/// PEM file of trusted certificate authorities, under the name that Python's requests library uses. Read only if
/// `SSL_CERT_FILE` is not set.
pub(crate) const REQUESTS_CA_BUNDLE: &str = "REQUESTS_CA_BUNDLE";

/// Returns the value of an environment variable; `None` if it is empty, not set or not UTF-8.
pub(crate) fn get(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the name of the environment variable for a setting, such as `TURNWISE_INGEST_MAX_ERRORS` for
/// `ingest.max_errors`.
pub(crate) fn of_setting(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}
