//! Every environment variable that turnwise reads, in one place.

/// The settings that an environment variable can give, with what they mean. `config show` lists them.
pub(crate) const PREFIX: &str = "TURNWISE_";

/// The user's configuration folder (XDG); `$HOME/.config` where it is not set.
pub(crate) const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// The user's home.
pub(crate) const HOME: &str = "HOME";

/// The variable of a setting: `ingest.max_errors` is `TURNWISE_INGEST_MAX_ERRORS`.
pub(crate) fn of_setting(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}
