//! API keys. Each key has scopes and can be restricted to some indexes and dialogues.

use std::{fmt, fs, path::Path};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use turnwise_core::error::{Error, IoContext, Result, closest_name};
use turnwise_corpus::filter::Filter;

/// All API keys of a server. Only digests of the secrets are stored.
#[derive(Debug, Clone, Default)]
pub struct Keys(Vec<Key>);

/// API key. It contains a digest of the secret instead of the secret.
#[derive(Clone)]
pub struct Key {
    /// Name of the key. Error messages and stored responses identify the key by its name.
    pub name: String,
    digest: [u8; 32],
    /// Operations that the key allows.
    pub scopes: Scopes,
    /// Filter for the dialogues that are visible with this key. `None` means all dialogues.
    pub filter: Option<Filter>,
    /// Names of the indexes that are accessible with this key. An empty list means all indexes.
    pub indexes: Vec<String>,
}

/// Operations that a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scopes {
    /// Allows reading and searching.
    pub read: bool,
    /// Allows ingesting and deleting.
    pub write: bool,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.name)
    }
}

/// Content of a key file, in TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    #[serde(default, rename = "key")]
    keys: Vec<KeyEntry>,
}

/// A `[[key]]` table of a key file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    name: String,
    secret: Option<String>,
    sha256: Option<String>,
    #[serde(default)]
    scopes: Vec<Scope>,
    filter: Option<Filter>,
    #[serde(default)]
    indexes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    Read,
    Write,
}

/// Names of the fields that the filter of a key may use. They are fields of a whole dialogue. A filter on a field of a
/// turn would hide some turns as hits, but show them as context of other turns.
const DIALOGUE_FIELDS: [&str; 8] =
    ["id", "corpus", "source", "thread", "title", "language", "domain", "meta.KEY"];

impl Keys {
    /// Returns an empty set of keys. Requests then need no authentication.
    pub fn none() -> Self {
        Keys::default()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads a TOML file of `[[key]]` tables. Each table has a `name` and either a `secret` or its `sha256`. The fields
    /// `scopes`, `filter` and `indexes` are optional. Returns an error if the file contains no key, or an invalid or
    /// duplicate key.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).at("read", path)?;
        let file: KeyFile = toml::from_str(&text).map_err(|e| {
            let line =
                e.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            // Use only the first line of the message. The other lines quote the file, including its secrets.
            let what = e.message().lines().next().unwrap_or_default().to_owned();
            Error::data(format!("{}:{line}: {what}", path.display()))
        })?;
        let at = |e: Error| match e {
            Error::Input { message, hint } => {
                Error::Data { message: format!("{}: {message}", path.display()), hint }
            }
            other => other,
        };
        let keys = file.keys.into_iter().map(Key::of).collect::<Result<Vec<Key>>>().map_err(at)?;
        if keys.is_empty() {
            return Err(Error::data(format!("{} contains no [[key]]", path.display())));
        }
        Keys(keys).checked().map_err(at)
    }

    /// Parses a comma-separated list of `SECRET[:read|:write|:read+write]`. A key without a scope has both scopes.
    /// Returns an error if a secret is too short or occurs twice.
    pub fn from_env(text: &str) -> Result<Self> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let key = |(n, part): (usize, &str)| {
            let (secret, scopes) = match part.rsplit_once(':') {
                Some((secret, "read")) => (secret, vec![Scope::Read]),
                Some((secret, "write")) => (secret, vec![Scope::Write]),
                Some((secret, "read+write")) => (secret, vec![Scope::Read, Scope::Write]),
                _ => (part, vec![Scope::Read, Scope::Write]),
            };
            Key::of(KeyEntry {
                name: format!("environment-{}", n + 1),
                secret: Some(secret.to_owned()),
                scopes,
                ..KeyEntry::default()
            })
        };
        Keys(parts.enumerate().map(key).collect::<Result<Vec<Key>>>()?).checked()
    }

    /// Combines two sets of keys. Returns an error if two keys have the same name or secret.
    pub fn and(mut self, others: Keys) -> Result<Self> {
        self.0.extend(others.0);
        self.checked()
    }

    fn checked(self) -> Result<Self> {
        for (n, key) in self.0.iter().enumerate() {
            if let Some(other) = self.0[..n].iter().find(|k| k.name == key.name || k.digest == key.digest) {
                let (a, b) = (&other.name, &key.name);
                return Err(Error::input(format!("the keys `{a}` and `{b}` have the same name or secret")));
            }
        }
        Ok(self)
    }

    /// Returns an error if a key names an index that is not in `indexes`, because the name is probably misspelled.
    pub(super) fn check_indexes<'a>(&self, indexes: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
        for key in &self.0 {
            let Some(wrong) = key.indexes.iter().find(|name| indexes.clone().all(|index| index != *name))
            else {
                continue;
            };
            let message = format!("the key `{}` names an index `{wrong}`, which is not served", key.name);
            let hint = match closest_name(wrong, indexes.clone()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("served indexes: {}", indexes.collect::<Vec<_>>().join(", ")),
            };
            return Err(Error::Input { message, hint: Some(hint) });
        }
        Ok(())
    }

    /// Finds the key with this secret. Always compares all keys, so that an attacker learns nothing from the duration.
    pub(super) fn of(&self, secret: &str) -> Option<&Key> {
        let digest = digest(secret);
        self.0.iter().fold(None, |found, key| if same(&key.digest, &digest) { Some(key) } else { found })
    }
}

impl Key {
    fn of(entry: KeyEntry) -> Result<Self> {
        let KeyEntry { name, secret, sha256, scopes, filter, indexes } = entry;
        let wrong = |what: String| Err(Error::input(format!("the key `{name}` {what}")));
        let digest = match (&secret, &sha256) {
            (Some(secret), None) if secret.len() >= 8 => digest(secret),
            (Some(_), None) => return wrong("needs a secret of at least eight characters".to_owned()),
            (None, Some(hex)) => match bytes(hex) {
                Some(digest) => digest,
                None => return wrong("has a sha256 that is not 64 hexadecimal digits".to_owned()),
            },
            _ => return wrong("needs either `secret` or `sha256`".to_owned()),
        };
        if let Some(field) = filter.as_ref().and_then(|filter| filter.first_field_not_in(&DIALOGUE_FIELDS)) {
            let allowed = DIALOGUE_FIELDS.join(", ");
            return wrong(format!(
                "has a filter on `{field}`, but only fields of a whole dialogue are allowed: {allowed}"
            ));
        }
        let has = |scope| scopes.is_empty() && scope == Scope::Read || scopes.contains(&scope);
        Ok(Key {
            scopes: Scopes { read: has(Scope::Read), write: has(Scope::Write) },
            name,
            digest,
            filter,
            indexes,
        })
    }

    /// Returns whether an index is accessible with this key.
    pub fn allows_index(&self, index: &str) -> bool {
        self.indexes.is_empty() || self.indexes.iter().any(|name| name == index)
    }
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Returns whether two digests are equal. Takes constant time, so that an attacker learns nothing from the duration.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0u8, |differs, (a, b)| differs | (a ^ b))) == 0
}

fn bytes(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0u8; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Keys> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.toml");
        fs::write(&path, text).unwrap();
        Keys::read(&path)
    }

    #[test]
    fn a_key_file_defines_scopes_filters_and_indexes() {
        let hashed = Sha256::digest(b"another secret").iter().map(|b| format!("{b:02x}")).collect::<String>();
        let keys = read(&format!(
            "[[key]]\nname = \"a\"\nsecret = \"first secret\"\nfilter = \"corpus=a\"\nindexes = [\"x\"]\n\
             [[key]]\nname = \"b\"\nsha256 = \"{hashed}\"\nscopes = [\"write\"]\n"
        ))
        .unwrap();
        let a = keys.of("first secret").unwrap();
        assert_eq!((a.name.as_str(), a.scopes), ("a", Scopes { read: true, write: false }));
        assert!(a.allows_index("x") && !a.allows_index("y"));
        assert_eq!(a.filter.as_ref().unwrap().as_str(), "corpus=a");
        let b = keys.of("another secret").unwrap();
        assert_eq!((b.name.as_str(), b.scopes), ("b", Scopes { read: false, write: true }));
        assert!(b.allows_index("y"));
        assert!(keys.of("first secre").is_none() && keys.of("").is_none());
        assert!(!format!("{keys:?}").contains("secret"), "{keys:?}");
    }

    #[test]
    fn errors_in_a_key_file_do_not_reveal_secrets() {
        for (text, says) in [
            ("", "contains no [[key]]"),
            ("[[key]]\nname = \"a\"\n", "either `secret` or `sha256`"),
            ("[[key]]\nname = \"a\"\nsecret = \"short\"\n", "eight"),
            ("[[key]]\nname = \"a\"\nsha256 = \"12\"\n", "64 hexadecimal"),
            ("[[key]]\nname = \"a\"\nsecret = \"hush-hush\"\nfilter = \"role=user\"\n", "`role`"),
            (
                "[[key]]\nname = \"a\"\nsecret = \"hush-hush\"\nfilter = \"domian=x\"\n",
                "did you mean `domain`",
            ),
            ("[[key]]\nname = \"a\"\nsecrt = \"hush-hush\"\n", "keys.toml:3"),
            (
                "[[key]]\nname = \"a\"\nsecret = \"hush-hush\"\n[[key]]\nname = \"b\"\nsecret = \"hush-hush\"\n",
                "`a` and `b`",
            ),
        ] {
            let e = read(text).unwrap_err().to_string();
            assert!(e.contains(says) && !e.contains("hush"), "{text}: {e}");
        }
    }

    #[test]
    fn keys_come_from_the_environment() {
        let keys = Keys::from_env("one-secret:read, two:secret,three-secret:read+write").unwrap();
        assert_eq!(keys.of("one-secret").unwrap().scopes, Scopes { read: true, write: false });
        assert_eq!(keys.of("two:secret").unwrap().scopes, Scopes { read: true, write: true });
        assert_eq!(keys.of("three-secret").unwrap().name, "environment-3");
        assert!(Keys::from_env("").unwrap().is_empty());
    }
}
