//! How a model is named: a listed name, `org/name`, either with `@revision`.

use std::fmt;

use super::known::Known;
use turnwise_core::error::{Error, Result};

/// The revision that is meant where none is named.
pub const MAIN: &str = "main";

/// A model on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// `org/name`.
    pub repository: String,
    /// The branch, tag or commit, if one was named.
    pub revision: Option<String>,
    /// The listed model that this is.
    pub known: Option<&'static Known>,
}

impl Spec {
    /// Reads a listed name, an alias or `org/name`, with or without `@revision`. `None` if it is neither.
    pub fn parse(text: &str) -> Result<Option<Self>> {
        let (name, revision) = match text.split_once('@') {
            Some((name, revision)) => (name, Some(revision)),
            None => (text, None),
        };
        let known = Known::find(name);
        let repository = match known {
            Some(known) => known.repository,
            None if is_repository(name) => name,
            None => return Ok(None),
        };
        let spec = Spec { repository: repository.to_owned(), revision: None, known };
        revision.map_or(Ok(spec.clone()), |r| spec.at(r)).map(Some)
    }

    /// The same model at another revision.
    pub fn at(self, revision: &str) -> Result<Self> {
        if !is_revision(revision) {
            return Err(Error::Input {
                message: format!("`{revision}` cannot be a revision"),
                hint: Some("a revision is a branch, a tag or a commit, such as main or v1.0".to_owned()),
            });
        }
        Ok(Spec { revision: Some(revision.to_owned()), ..self })
    }

    /// The revision that is meant.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }

    /// The short name of a listed model, else the repository.
    pub fn name(&self) -> &str {
        self.known.map_or(self.repository.as_str(), |known| known.name)
    }

    /// The pinned SHA-256 of `model.safetensors`. Another revision that was asked for may hold other weights.
    pub fn pin(&self) -> Option<&'static str> {
        self.known.filter(|_| self.revision.is_none()).and_then(|known| known.sha256)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.revision.as_ref().map_or(Ok(()), |revision| write!(f, "@{revision}"))
    }
}

/// What may become part of a path and of an address.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !text.starts_with(['.', '-'])
        && !text.ends_with('.')
        && !text.contains("..")
}

fn is_repository(text: &str) -> bool {
    // Two dashes divide organisation and name in the cache.
    text.split_once('/').is_some_and(|(org, name)| is_word(org) && is_word(name)) && !text.contains("--")
}

fn is_revision(text: &str) -> bool {
    text.len() <= 200 && text.split('/').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Spec> {
        Spec::parse(text).unwrap()
    }

    #[test]
    fn names_and_repositories_are_told_from_anything_else() {
        let spec = parse("DEFAULT").unwrap();
        assert_eq!((spec.name(), spec.revision()), ("all-MiniLM-L6-v2", "main"));
        assert!(spec.pin().is_some());
        let spec = parse("some-org/a_model.v2@refs/pr/1").unwrap();
        assert_eq!((spec.name(), spec.revision(), spec.known), ("some-org/a_model.v2", "refs/pr/1", None));
        assert_eq!(spec.to_string(), "some-org/a_model.v2@refs/pr/1");
        for other in
            ["", "name", "a/b/c", "../b", "a/..", "/b", "a/", "a--b/c", "a/b c", "a\\b", "./x", "a/.b"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_revision_never_leaves_the_folder_of_revisions() {
        for revision in ["", "../x", "a//b", "/a", "a/../b", ".", "a?b", "a%2f"] {
            assert!(Spec::parse(&format!("a/b@{revision}")).is_err(), "{revision}");
        }
    }

    #[test]
    fn a_pin_holds_for_the_revision_that_we_have_seen() {
        assert_eq!(parse("default@v1").unwrap().pin(), None);
        assert_eq!(parse("e5-small-v2").unwrap().pin(), None);
    }
}
