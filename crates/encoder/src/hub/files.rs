//! Selects the files of a model that an encoder needs, and detects missing files.

use std::{collections::BTreeSet, fs, path::Path};

use serde::Deserialize;
use turnwise_core::error::{Error, IoContext, Result};

use crate::hub::{ONNX, SUPPORTED};

/// Weight file of a model that is not sharded.
pub const WEIGHTS: &str = "model.safetensors";
/// Index of a sharded model: maps each tensor to its weight file.
pub const WEIGHTS_INDEX: &str = "model.safetensors.index.json";
/// List of the modules of a sentence-transformers model.
pub const MODULES: &str = "modules.json";
/// Configuration of the network.
pub const CONFIG: &str = "config.json";

/// Names of the files, other than weights, that an encoder can need. Such a file can be in the model's folder or in the
/// folder of a module.
const SMALL: [&str; 18] = [
    CONFIG,
    MODULES,
    WEIGHTS_INDEX,
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_xlm-roberta_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "tokenizer.model",
];

/// Tokenizer files. A model needs at least one of them.
const TOKENIZERS: [&str; 4] = ["tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model"];

/// Returns true if an encoder can need the file with this path, relative to the model's folder.
pub fn is_wanted(path: &str) -> bool {
    let (in_place, name) = match path.rsplit_once('/') {
        Some((folder, name)) => (is_module_folder(folder), name),
        None => (true, path),
    };
    in_place && (SMALL.contains(&name) || name == WEIGHTS || is_shard(name))
}

/// Returns true if the name has the form `1_Pooling`, `2_Dense`, ….
fn is_module_folder(name: &str) -> bool {
    name.split_once('_').is_some_and(|(number, kind)| {
        !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
            && !kind.is_empty()
            && kind.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// Returns true if the name has the form `model-00001-of-00003.safetensors`.
fn is_shard(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.strip_prefix("model-")
        .and_then(|rest| rest.strip_suffix(".safetensors"))
        .and_then(|rest| rest.split_once("-of-"))
        .is_some_and(|(n, of)| digits(n) && digits(of))
}

/// Returns true if the name of a file suggests that it contains a model's weights as a Python pickle.
fn is_pickle(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let by_ending = [".pt", ".pth", ".ckpt", ".pkl", ".pickle"].iter().any(|end| name.ends_with(end));
    // The state of a training run, such as the optimizer state, is not part of the model.
    let of_training =
        ["optimizer", "scheduler", "rng_state", "training_args"].iter().any(|t| name.starts_with(t));
    !of_training && (by_ending || name.starts_with("pytorch_model") && name.ends_with(".bin"))
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns the files that an encoder needs, sorted. `all` lists all files of the model. Fails if there are no weights
/// in safetensors format. Also fails if the weights of the network, or the weights of a module, exist only as a pickle.
/// `model` is the name for error messages.
pub fn choose<'a>(model: &str, all: impl IntoIterator<Item = &'a str>) -> Result<Vec<&'a str>> {
    let all: Vec<&str> = all.into_iter().collect();
    let mut chosen: BTreeSet<&str> = all.iter().copied().filter(|path| is_wanted(path)).collect();
    let weighted: BTreeSet<&str> =
        chosen.iter().filter(|p| p.ends_with(".safetensors")).map(|p| folder_of(p)).collect();
    let is_refused = |path: &str| {
        is_pickle(path)
            && match folder_of(path) {
                "" => weighted.is_empty(),
                inner => is_module_folder(inner) && !weighted.contains(inner),
            }
    };
    if let Some(pickle) = all.iter().find(|path| is_refused(path)) {
        return Err(Error::data(format!(
            "{model} has weights only as a pickle ({pickle}); loading a pickle can run arbitrary code, so turnwise \
             reads only safetensors"
        ))
        .with_hint(format!(
            "if you trust the model, convert it with Python: `from sentence_transformers import \
             SentenceTransformer; SentenceTransformer(\"{model}\").save(\"converted\")`, then run `turnwise model \
             import converted`"
        )));
    }
    if let Some(exported) = all.iter().find(|path| weighted.is_empty() && path.ends_with(".onnx")) {
        return Err(
            Error::data(format!("{model} has weights only in ONNX format ({exported})")).with_hint(ONNX)
        );
    }
    if weighted.is_empty() {
        return Err(Error::data(format!("{model} has no weights in safetensors format ({WEIGHTS})"))
            .with_hint(SUPPORTED));
    }
    // If both a single file and shards exist, keep the single file, which the loaders prefer.
    if chosen.contains(WEIGHTS) {
        chosen.retain(|path| *path != WEIGHTS_INDEX && !is_shard(path));
    }
    Ok(chosen.into_iter().collect())
}

#[derive(Deserialize)]
struct Module {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct WeightsIndex {
    weight_map: std::collections::BTreeMap<String, String>,
}

/// Returns the path of the first file that is missing in a model's folder; `None` if the model is complete. Fails if a
/// JSON file is invalid or cannot be read.
pub fn missing(folder: &Path) -> Result<Option<String>> {
    let mut network = String::new();
    let mut config: &[&str] = &[CONFIG];
    if folder.join(MODULES).is_file() {
        for module in read::<Vec<Module>>(&folder.join(MODULES))? {
            let lacks = |name: &str| {
                let path = inside(&module.path, name);
                (!folder.join(&path).is_file()).then_some(path)
            };
            let needed: &[&str] = match module.kind.rsplit('.').next().unwrap_or_default() {
                // This module has no settings, so its folder may not exist.
                "Normalize" => &[],
                "Transformer" => {
                    network.clone_from(&module.path);
                    &[]
                }
                // This module has no settings, either.
                "StaticEmbedding" => {
                    network.clone_from(&module.path);
                    config = &[];
                    &[]
                }
                "Dense" => &[CONFIG, WEIGHTS],
                _ => &[CONFIG],
            };
            if let Some(path) = needed.iter().find_map(|name| lacks(name)) {
                return Ok(Some(path));
            }
        }
    }
    let has = |name: &str| folder.join(inside(&network, name)).is_file();
    if let Some(name) = config.iter().find(|name| !has(name)) {
        return Ok(Some(inside(&network, name)));
    }
    if !has(WEIGHTS) {
        if !has(WEIGHTS_INDEX) {
            return Ok(Some(inside(&network, WEIGHTS)));
        }
        let index: WeightsIndex = read(&folder.join(inside(&network, WEIGHTS_INDEX)))?;
        if let Some(shard) = index.weight_map.values().find(|shard| !has(shard)) {
            return Ok(Some(inside(&network, shard)));
        }
    }
    Ok((!TOKENIZERS.iter().any(|name| has(name))).then(|| inside(&network, TOKENIZERS[0])))
}

fn inside(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).at("read", path)?;
    serde_json::from_slice(&text).map_err(|e| Error::data(format!("{}: {e}", path.display())))
}

/// Lists all files in a folder recursively, except hidden files and hidden folders. Does not follow links to folders.
/// The paths are sorted, relative to the folder and separated with `/`.
pub fn walk(folder: &Path) -> Result<Vec<String>> {
    let (mut found, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(inner) = folders.pop() {
        let absolute = folder.join(&inner);
        for entry in fs::read_dir(&absolute).at("read", &absolute)? {
            let entry = entry.at("read", &absolute)?;
            let name = entry.file_name().into_string().unwrap_or_default();
            let path = inside(&inner, &name);
            // Follow links to files, because the files of a snapshot in the cache are symbolic links.
            match fs::metadata(entry.path()) {
                _ if name.is_empty() || name.starts_with('.') => {}
                Ok(m) if m.is_dir() && !entry.path().is_symlink() => folders.push(path),
                Ok(m) if m.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the total size in bytes of the files that [`walk`] lists. A symbolic link counts with the size of its
/// target. Returns 0 if the folder cannot be read.
pub fn bytes(folder: &Path) -> u64 {
    let sizes = walk(folder).unwrap_or_default();
    sizes.iter().filter_map(|path| fs::metadata(folder.join(path)).ok()).map(|m| m.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_an_encoder_reads_are_wanted() {
        for path in [
            "config.json",
            "1_Pooling/config.json",
            "2_Dense/model.safetensors",
            "model-00001-of-00002.safetensors",
        ] {
            assert!(is_wanted(path), "{path}");
        }
        for path in [
            "README.md",
            "pytorch_model.bin",
            "onnx/model.onnx",
            "onnx/config.json",
            "../config.json",
            "/config.json",
            "1_Pooling/../config.json",
            "1_/config.json",
            "model.fp16.safetensors",
            "model-x-of-2.safetensors",
            "..\\config.json",
            "1_Pooling/2_X/config.json",
        ] {
            assert!(!is_wanted(path), "{path}");
        }
    }

    #[test]
    fn one_form_of_the_weights_is_chosen() {
        let all = [
            "README.md",
            "model-00001-of-00001.safetensors",
            WEIGHTS,
            WEIGHTS_INDEX,
            "pytorch_model.bin",
            CONFIG,
        ];
        assert_eq!(choose("m", all).unwrap(), [CONFIG, WEIGHTS]);
        let sharded = [WEIGHTS_INDEX, "model-00001-of-00001.safetensors", CONFIG, "optimizer.pt"];
        assert_eq!(
            choose("m", sharded).unwrap(),
            [CONFIG, "model-00001-of-00001.safetensors", WEIGHTS_INDEX]
        );
    }

    #[test]
    fn pickles_are_refused_with_the_reason() {
        let e = choose("org/old", [CONFIG, "pytorch_model.bin"]).unwrap_err();
        assert!(
            e.to_string().contains("org/old has weights only as a pickle (pytorch_model.bin); loading"),
            "{e}"
        );
        assert!(e.hint().unwrap().contains("turnwise model import"));
        // One module with only a pickle is enough to refuse the model.
        let e =
            choose("m", [CONFIG, WEIGHTS, "2_Dense/config.json", "2_Dense/pytorch_model.bin"]).unwrap_err();
        assert!(e.to_string().contains("2_Dense/pytorch_model.bin"), "{e}");
        let e = choose("m", [CONFIG, "onnx/model.onnx"]).unwrap_err();
        assert!(e.to_string().contains("m has weights only in ONNX format (onnx/model.onnx)"), "{e}");
        assert!(e.hint().unwrap().contains("the model from which it was exported"));
        let e = choose("m", [CONFIG, "vocab.txt"]).unwrap_err();
        assert!(e.to_string().contains("has no weights"), "{e}");
    }

    #[test]
    fn the_missing_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let lacks = || missing(dir.path()).unwrap();
        assert_eq!(lacks().as_deref(), Some(CONFIG));
        write(CONFIG, "{}");
        assert_eq!(lacks().as_deref(), Some(WEIGHTS));
        write(WEIGHTS_INDEX, r#"{"weight_map": {"a": "model-00001-of-00001.safetensors"}}"#);
        assert_eq!(lacks().as_deref(), Some("model-00001-of-00001.safetensors"));
        write("model-00001-of-00001.safetensors", "");
        assert_eq!(lacks().as_deref(), Some("tokenizer.json"));
        write("vocab.txt", "");
        assert_eq!(lacks(), None);
        let module = |n: u32, kind: &str| format!(r#"{{"path": "{n}_{kind}", "type": "x.models.{kind}"}}"#);
        let first = r#"{"path": "", "type": "x.models.Transformer"}"#;
        write(
            MODULES,
            &format!("[{first},{},{},{}]", module(1, "Pooling"), module(2, "Dense"), module(3, "Normalize")),
        );
        assert_eq!(lacks().as_deref(), Some("1_Pooling/config.json"));
        write("1_Pooling/config.json", "{}");
        write("2_Dense/config.json", "{}");
        assert_eq!(lacks().as_deref(), Some("2_Dense/model.safetensors"));
        write("2_Dense/model.safetensors", "");
        assert_eq!(lacks(), None);
        write(MODULES, "[");
        assert!(missing(dir.path()).is_err());
    }
}
