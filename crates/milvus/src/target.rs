//! Milvus addresses, such as `milvus://host:19530/chats?index=diskann&consistency=session`.

use std::{fmt, str::FromStr, time::Duration};

use milvus::v2::{ConsistencyLevel, IndexType};
use turnwise_core::error::{Error, Result};

const PORT: u16 = 19530;
/// Maximum length of [`Target::name`], in bytes. The names of the collections consist of this name and a suffix. Milvus
/// limits the length of collection names.
const LONGEST_NAME: usize = 200;

/// Address of dialogues in Milvus, with connection options.
#[derive(Clone, PartialEq)]
pub struct Target {
    /// Host name or IP address.
    pub host: String,
    /// TCP port; 19530 by default.
    pub port: u16,
    /// True for an encrypted connection (`milvuss://`).
    pub tls: bool,
    /// Name of the database; empty for the default database.
    pub database: String,
    /// Name of the dialogues. It is an alias in Milvus.
    pub name: String,
    /// Credentials: `user:password` or an API key. They are never part of the displayed address.
    pub token: Option<String>,
    /// Consistency level of reads.
    pub consistency: ConsistencyLevel,
    /// Timeout of one request.
    pub timeout: Duration,
    /// Maximum number of attempts per request.
    pub attempts: u32,
    /// Type of the vector index: HNSW, DiskANN or IVF with RaBitQ. It is used when collections are created.
    pub graph: IndexType,
    /// Number of shards. It is used when collections are created.
    pub shards: i32,
    /// Name of the Milvus analyzer that splits texts into terms. `None` for the turnwise analyzer. It is used when
    /// collections are created.
    pub analyzer: Option<String>,
}

const CONSISTENCIES: [(&str, ConsistencyLevel); 4] = [
    ("strong", ConsistencyLevel::Strong),
    ("session", ConsistencyLevel::Session),
    ("bounded", ConsistencyLevel::Bounded),
    ("eventually", ConsistencyLevel::Eventually),
];
const GRAPHS: [(&str, IndexType); 3] =
    [("hnsw", IndexType::Hnsw), ("diskann", IndexType::DiskAnn), ("ivf_rabitq", IndexType::IvfRabitq)];
const OPTIONS: [&str; 7] = ["analyzer", "attempts", "consistency", "database", "index", "shards", "timeout"];
/// Names of analyzers that every Milvus server has. They are passed to the server unchanged.
const ANALYZERS: [&str; 3] = ["standard", "english", "chinese"];

impl Target {
    /// Returns whether a text is a Milvus address.
    pub fn is_address(text: &str) -> bool {
        text.starts_with("milvus://") || text.starts_with("milvuss://")
    }

    /// Sets the credentials: `user:password` or an API key.
    pub fn with_token(self, token: Option<String>) -> Self {
        Target { token, ..self }
    }

    /// Returns the host and the port as one text, for example for messages.
    pub fn server(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(super) fn uri(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.server())
    }

    fn option(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "database" => value.clone_into(&mut self.database),
            "consistency" => self.consistency = named("consistency", value, &CONSISTENCIES)?,
            "index" => self.graph = named("index of Milvus", value, &GRAPHS)?,
            "timeout" => self.timeout = Duration::from_secs(number(name, value, 1, 3_600)?),
            "attempts" => self.attempts = number(name, value, 1, 100)? as u32,
            "analyzer" if ANALYZERS.contains(&value) => self.analyzer = Some(value.to_owned()),
            "analyzer" => return Err(Error::unknown_name("analyzer of Milvus", value, ANALYZERS)),
            "shards" => self.shards = number(name, value, 1, 64)? as i32,
            _ => return Err(Error::unknown_name("option of a Milvus address", name, OPTIONS)),
        }
        Ok(())
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (tls, rest) = match (text.strip_prefix("milvus://"), text.strip_prefix("milvuss://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong(text, "it does not begin with milvus:// or milvuss://")),
        };
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let Some((server, name)) = place.split_once('/') else {
            return Err(wrong(text, "it contains no collection name"));
        };
        if server.contains('@') {
            return Err(Error::input(
                "a Milvus address must not contain a user or a password: addresses are displayed and stored",
            )
            .with_hint("set the environment variable TURNWISE_MILVUS_TOKEN to `user:password`"));
        }
        let (host, port) = match server.rsplit_once(':') {
            // An IPv6 address contains colons and is enclosed in brackets.
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong(text, &format!("`{port}` is not a port number")))?)
            }
            _ => (server, PORT),
        };
        if host.is_empty() {
            return Err(wrong(text, "it contains no host"));
        }
        check_name(text, name)?;
        let mut target = Target {
            host: host.to_owned(),
            port,
            tls,
            database: String::new(),
            name: name.to_owned(),
            token: None,
            consistency: ConsistencyLevel::Strong,
            timeout: Duration::from_secs(30),
            attempts: 4,
            graph: IndexType::Hnsw,
            shards: 1,
            analyzer: None,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let Some((name, value)) = option.split_once('=') else {
                return Err(wrong(text, &format!("`{option}` does not have the form name=value")));
            };
            target.option(name, value)?;
        }
        Ok(target)
    }
}

/// Displays the address without options and credentials.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "milvuss" } else { "milvus" };
        write!(f, "{scheme}://{}/{}", self.server(), self.name)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn check_name(text: &str, name: &str) -> Result<()> {
    let usable = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if begins && name.chars().all(usable) && name.len() <= LONGEST_NAME {
        return Ok(());
    }
    let what = format!(
        "`{name}` is not a valid collection name: use ASCII letters, digits and `_`, no digit first, at most \
         {LONGEST_NAME} characters"
    );
    Err(wrong(text, &what))
}

fn wrong(text: &str, what: &str) -> Error {
    Error::input(format!("`{text}` is not a Milvus address: {what}"))
        .with_hint("example: milvus://localhost:19530/chats")
}

fn named<T: Copy>(kind: &'static str, name: &str, known: &[(&str, T)]) -> Result<T> {
    let found = known.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    found.ok_or_else(|| Error::unknown_name(kind, name, known.iter().map(|(known, _)| *known)))
}

fn number(name: &str, value: &str, least: u64, most: u64) -> Result<u64> {
    let number = value.parse().ok().filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| {
        Error::input(format!(
            "`{name}` in a Milvus address must be a number from {least} to {most}, not `{value}`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_errors_are_specific() {
        let target: Target = "milvuss://db.example:1234/chats?index=diskann&timeout=5".parse().unwrap();
        assert_eq!((target.host.as_str(), target.port, target.tls), ("db.example", 1234, true));
        assert_eq!((target.graph, target.timeout), (IndexType::DiskAnn, Duration::from_secs(5)));
        assert_eq!(target.with_token(Some("secret".into())).to_string(), "milvuss://db.example:1234/chats");
        let six: Target = "milvus://[::1]/chats".parse().unwrap();
        assert_eq!((six.host.as_str(), six.port), ("[::1]", PORT));
        for (text, says) in [
            ("http://x/y", "does not begin"),
            ("milvus://x", "contains no collection name"),
            ("milvus:///c", "contains no host"),
            ("milvus://x:y/c", "`y` is not a port"),
            ("milvus://x/a-b", "`a-b` is not a valid collection name"),
            ("milvus://x/1b", "`1b` is not a valid collection name"),
            ("milvus://u:p@x/c", "must not contain a user or a password"),
            ("milvus://x/c?index=flat", "unknown index of Milvus `flat`"),
            ("milvus://x/c?analyzer=klingon", "unknown analyzer of Milvus `klingon`"),
            ("milvus://x/c?tiemout=3", "unknown option"),
            ("milvus://x/c?timeout=0", "a number from 1"),
        ] {
            let e = text.parse::<Target>().unwrap_err().to_string();
            assert!(e.contains(says) && !e.contains("u:p"), "{text}: {e}");
        }
    }
}
