//! Model specifications: a built-in name or `org/name`, optionally with `@revision`.

use std::fmt;

use super::known::Known;
use turnwise_core::error::{Error, Result};

/// The default revision.
pub const MAIN: &str = "main";

/// A model on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// `org/name`.
    pub repository: String,
    /// Branch, tag or commit, if one was given.
    pub revision: Option<String>,
    /// The built-in model, if it is one.
    pub known: Option<&'static Known>,
}

impl Spec {
    /// Parses a built-in name, an alias or `org/name`, optionally with `@revision`. Returns `None` for other
    /// texts.
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

    /// Returns the same model at another revision.
    pub fn at(self, revision: &str) -> Result<Self> {
        if !is_revision(revision) {
            return Err(Error::Input {
                message: format!("invalid revision `{revision}`"),
                hint: Some("a revision is a branch, a tag or a commit, such as main or v1.0".to_owned()),
            });
        }
        Ok(Spec { revision: Some(revision.to_owned()), ..self })
    }

    /// The given revision, or the default one.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }

    /// Name of a built-in model; otherwise the repository.
    pub fn name(&self) -> &str {
        self.known.map_or(self.repository.as_str(), |known| known.name)
    }

    /// Pinned SHA-256 of `model.safetensors`; `None` if a revision was given, because its weights may differ.
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

/// Whether the text is safe as one component of a path and a URL.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !text.starts_with(['.', '-'])
        && !text.ends_with('.')
        && !text.contains("..")
}

fn is_repository(text: &str) -> bool {
    // The cache separates organization and name with two dashes.
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
    fn only_names_and_repositories_are_parsed() {
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
    fn a_revision_cannot_leave_the_folder_of_revisions() {
        for revision in ["", "../x", "a//b", "/a", "a/../b", ".", "a?b", "a%2f"] {
            assert!(Spec::parse(&format!("a/b@{revision}")).is_err(), "{revision}");
        }
    }

    #[test]
    fn a_pin_applies_only_to_the_default_revision() {
        assert_eq!(parse("default@v1").unwrap().pin(), None);
        assert_eq!(parse("e5-small-v2").unwrap().pin(), None);
    }
}
