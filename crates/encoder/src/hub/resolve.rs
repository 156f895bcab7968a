//! Resolves a model name or path to a folder. Never uses the network.

use std::path::{Path, PathBuf};

use serde::Serialize;
use turnwise_core::error::{Error, Result};

use crate::{
    folder::name_of,
    hub::{
        Places, Spec,
        cache::{self, Found},
        files, import,
        known::Known,
    },
};

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resolved {
    /// Folder of the model.
    pub path: PathBuf,
    /// Name of the model. It is displayed, and stored in indexes.
    pub name: String,
    /// Repository on the hub, as `org/name`; `None` if the model is not in the Hugging Face cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Name of the snapshot in the Hugging Face cache, usually a commit hash; `None` if the model is not in the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Where the model was found.
    pub origin: Origin,
}

/// Where a model was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A folder that the user specified by its path.
    Folder,
    /// The Hugging Face cache.
    Cache,
    /// The folder of imported models.
    Imported,
}

/// Finds the folder of a model. `spec` is one of:
///
/// * the path of a folder: `.`, `..` or a path with a slash or backslash;
/// * a built-in name or alias, or `org/name`, optionally followed by `@revision`;
/// * the name of an imported model.
///
/// Fails if the model is not on this machine or if its download is incomplete.
pub fn resolve(spec: &str, places: &Places) -> Result<Resolved> {
    let path = Path::new(spec);
    let found = |path: &Path, name: String, origin: Origin| {
        Ok(Resolved { path: path.to_owned(), name, repository: None, revision: None, origin })
    };
    if looks_like_a_path(spec) && path.is_dir() {
        return found(path, name_of(path), Origin::Folder);
    }
    if let Some(spec) = Spec::parse(spec)? {
        return in_cache(&spec, places);
    }
    if import::is_name(spec) && places.imported(spec).is_dir() {
        return found(&places.imported(spec), spec.to_owned(), Origin::Imported);
    }
    Err(not_found(spec, places))
}

fn looks_like_a_path(text: &str) -> bool {
    text.contains(['/', '\\']) || text == "." || text == ".."
}

fn in_cache(spec: &Spec, places: &Places) -> Result<Resolved> {
    let message = match cache::find(spec, places)? {
        Found::Complete(snapshot) => {
            return Ok(Resolved {
                path: snapshot.path,
                name: spec.name().to_owned(),
                repository: Some(spec.repository.clone()),
                revision: Some(snapshot.revision),
                origin: Origin::Cache,
            });
        }
        Found::Incomplete(why) => format!("the model `{spec}` is incomplete in the cache: {why}"),
        Found::Missing => format!("the model `{spec}` is not in the cache ({})", places.cache.display()),
    };
    Err(Error::input(message).with_hint(format!("download it with `turnwise model pull {spec}`")))
}

fn not_found(spec: &str, places: &Places) -> Error {
    let path = Path::new(spec);
    if path.is_file() {
        return Error::input(format!("{spec} is a file; a model is a folder"))
            .with_hint(format!("use the folder that contains it and its {}", files::CONFIG));
    }
    if looks_like_a_path(spec) {
        return Error::input(format!("folder {spec} does not exist"))
            .with_hint("a model is a folder, a built-in name (see `turnwise model list`) or org/name");
    }
    let imported = import::names(&places.imports);
    let mut names: Vec<&str> = Known::names().collect();
    names.extend(imported.iter().map(String::as_str));
    let e = Error::unknown_name("model", spec, names);
    match path.is_dir() {
        true => e.with_hint(format!("to use the folder {spec}, write ./{spec}")),
        false => e,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn places(root: &Path) -> Places {
        Places { cache: root.join("hub"), imports: root.join("models") }
    }

    #[test]
    fn paths_and_imported_names_resolve_to_folders() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let folder = dir.path().join("mine");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(places.imported("ours")).unwrap();
        let r = resolve(folder.to_str().unwrap(), &places).unwrap();
        assert_eq!((r.name.as_str(), r.origin, r.path), ("mine", Origin::Folder, folder));
        let r = resolve("ours", &places).unwrap();
        assert_eq!((r.name.as_str(), r.origin, r.path), ("ours", Origin::Imported, places.imported("ours")));
    }

    #[test]
    fn a_missing_model_is_reported_with_the_command_to_download_it() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let fails = |spec: &str| {
            let e = resolve(spec, &places).unwrap_err();
            (e.to_string(), e.hint().unwrap_or_default())
        };
        let (message, hint) = fails("default");
        assert!(message.starts_with("the model `all-MiniLM-L6-v2` is not in the cache ("), "{message}");
        assert_eq!(hint, "download it with `turnwise model pull all-MiniLM-L6-v2`");
        assert_eq!(fails("o/m@v2").1, "download it with `turnwise model pull o/m@v2`");
        assert_eq!(fails("all-minilm-l6-v3").1, "did you mean `all-MiniLM-L6-v2`?");
        assert!(fails("xyz").1.contains("known: default, all-MiniLM-L6-v2"));
        assert_eq!(fails("./none").0, "folder ./none does not exist");
        assert_eq!(fails("..x").0, "unknown model `..x`");
        let file = dir.path().join("model.safetensors");
        fs::write(&file, "").unwrap();
        assert!(fails(file.to_str().unwrap()).0.ends_with("is a file; a model is a folder"));
    }
}
