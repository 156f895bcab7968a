//! Which Milvus, and how: `milvus://host:19530/chats?index=diskann&consistency=session`.

use std::{fmt, str::FromStr, time::Duration};

use turnwise_core::error::{Error, Result};

/// Where Milvus listens unless it is told otherwise.
const PORT: u16 = 19530;
/// The longest name of a collection that leaves room for ours in it.
const LONGEST_NAME: usize = 200;

/// A name in a Milvus, and how it is talked to.
#[derive(Clone, PartialEq)]
pub struct Target {
    /// The host's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether the connection is encrypted (`milvuss://`).
    pub tls: bool,
    /// The database; empty for the default one.
    pub database: String,
    /// The name under which the dialogues are known.
    pub name: String,
    /// What lets in, `user:password` or an API key. It is never part of an address.
    pub token: Option<String>,
    /// How fresh what is read has to be.
    pub consistency: Consistency,
    /// How long one request may take.
    pub timeout: Duration,
    /// How often a request is tried.
    pub attempts: u32,
    /// Which graph is built over the vectors, when a collection is made.
    pub graph: Graph,
    /// How many shards take writes, when a collection is made.
    pub shards: i32,
    /// The analyzer of Milvus that makes words of texts, when a collection is made; turnwise's own if none is named.
    pub analyzer: Option<String>,
}

/// How fresh what is read has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Everything that was acknowledged before.
    Strong,
    /// Everything that this process wrote.
    Session,
    /// Nothing is older than some seconds.
    Bounded,
    /// Whatever is there.
    Eventually,
}

/// An index over vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Graph {
    /// A graph in memory.
    Hnsw,
    /// A graph on disk.
    DiskAnn,
    /// Clusters of vectors of one bit a number, in memory, with the vectors themselves for the last word.
    IvfRabitq,
}

const CONSISTENCIES: [(&str, Consistency); 4] = [
    ("strong", Consistency::Strong),
    ("session", Consistency::Session),
    ("bounded", Consistency::Bounded),
    ("eventually", Consistency::Eventually),
];
const GRAPHS: [(&str, Graph); 3] =
    [("hnsw", Graph::Hnsw), ("diskann", Graph::DiskAnn), ("ivf_rabitq", Graph::IvfRabitq)];
const OPTIONS: [&str; 7] = ["analyzer", "attempts", "consistency", "database", "index", "shards", "timeout"];
/// Those that every Milvus has by name. They are asked for as they are called; what they do is Milvus' own.
const ANALYZERS: [&str; 3] = ["standard", "english", "chinese"];

impl Target {
    /// Whether a text is an address of Milvus.
    pub fn is_address(text: &str) -> bool {
        text.starts_with("milvus://") || text.starts_with("milvuss://")
    }

    /// With what lets in.
    pub fn with_token(self, token: Option<String>) -> Self {
        Target { token, ..self }
    }

    /// Host and port, for people.
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
            return Err(wrong(text, "it names no collection"));
        };
        if server.contains('@') {
            return Err(Error::Input {
                message: "a Milvus address holds no user and no password: it would be seen and kept"
                    .to_owned(),
                hint: Some("put `user:password` into the environment as TURNWISE_MILVUS_TOKEN".to_owned()),
            });
        }
        let (host, port) = match server.rsplit_once(':') {
            // An address of six groups has colons of its own, within brackets.
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong(text, &format!("`{port}` is no port")))?)
            }
            _ => (server, PORT),
        };
        if host.is_empty() {
            return Err(wrong(text, "it names no host"));
        }
        check_name(text, name)?;
        let mut target = Target {
            host: host.to_owned(),
            port,
            tls,
            database: String::new(),
            name: name.to_owned(),
            token: None,
            consistency: Consistency::Strong,
            timeout: Duration::from_secs(30),
            attempts: 4,
            graph: Graph::Hnsw,
            shards: 1,
            analyzer: None,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let Some((name, value)) = option.split_once('=') else {
                return Err(wrong(text, &format!("`{option}` is no name=value")));
            };
            target.option(name, value)?;
        }
        Ok(target)
    }
}

/// As it is written, without what lets in.
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
        "`{name}` is no name of a collection: letters without accents, digits and `_`, no digit first, at most \
         {LONGEST_NAME}"
    );
    Err(wrong(text, &what))
}

fn wrong(text: &str, what: &str) -> Error {
    Error::Input {
        message: format!("`{text}` is no address of Milvus: {what}"),
        hint: Some("write it like milvus://localhost:19530/chats".to_owned()),
    }
}

fn named<T: Copy>(kind: &'static str, name: &str, known: &[(&str, T)]) -> Result<T> {
    let found = known.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    found.ok_or_else(|| Error::unknown_name(kind, name, known.iter().map(|(known, _)| *known)))
}

fn number(name: &str, value: &str, least: u64, most: u64) -> Result<u64> {
    let number = value.parse().ok().filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| {
        Error::input(format!(
            "`{name}` of a Milvus address is a number from {least} to {most}, not `{value}`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_what_is_wrong_is_said() {
        let target: Target = "milvuss://db.example:1234/chats?index=diskann&timeout=5".parse().unwrap();
        assert_eq!((target.host.as_str(), target.port, target.tls), ("db.example", 1234, true));
        assert_eq!((target.graph, target.timeout), (Graph::DiskAnn, Duration::from_secs(5)));
        assert_eq!(target.with_token(Some("secret".into())).to_string(), "milvuss://db.example:1234/chats");
        let six: Target = "milvus://[::1]/chats".parse().unwrap();
        assert_eq!((six.host.as_str(), six.port), ("[::1]", PORT));
        for (text, says) in [
            ("http://x/y", "does not begin"),
            ("milvus://x", "names no collection"),
            ("milvus:///c", "names no host"),
            ("milvus://x:y/c", "`y` is no port"),
            ("milvus://x/a-b", "`a-b` is no name"),
            ("milvus://x/1b", "`1b` is no name"),
            ("milvus://u:p@x/c", "no user and no password"),
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
