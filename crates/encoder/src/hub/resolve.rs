//! From what the user types to a folder. Never touches the network.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{
    Places, Spec,
    cache::{self, Found},
    files, import,
    known::Known,
};
use crate::folder::name_of;
use turnwise_core::error::{Error, Result};

/// A model that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resolved {
    /// Its folder.
    pub path: PathBuf,
    /// Its name, for people and for an index.
    pub name: String,
    /// Its repository on the hub, where it is in the hub's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The commit, where it is in the hub's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Where it was found.
    pub origin: Origin,
}

/// Where a model was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// In a folder that was named by its path.
    Folder,
    /// In the hub's cache.
    Cache,
    /// Among the imported models.
    Imported,
}

/// Finds the folder of a model: of a path (`.`, or anything with a slash that is a folder), a listed name or alias,
/// `org/name`, `org/name@revision`, or the name of an import.
pub fn resolve(spec: &str, places: &Places) -> Result<Resolved> {
    let path = Path::new(spec);
    if looks_like_a_path(spec) && path.is_dir() {
        let (path, name) = (path.to_owned(), name_of(path));
        return Ok(Resolved { path, name, repository: None, revision: None, origin: Origin::Folder });
    }
    if let Some(spec) = Spec::parse(spec)? {
        return in_cache(&spec, places);
    }
    if import::is_name(spec) && places.imported(spec).is_dir() {
        let path = places.imported(spec);
        let name = spec.to_owned();
        return Ok(Resolved { path, name, repository: None, revision: None, origin: Origin::Imported });
    }
    Err(nowhere(spec, places))
}

fn looks_like_a_path(text: &str) -> bool {
    text.contains(['/', '\\']) || text == "." || text == ".."
}

fn in_cache(spec: &Spec, places: &Places) -> Result<Resolved> {
    let message = match cache::find(spec, places)? {
        Found::Whole(snapshot) => {
            return Ok(Resolved {
                path: snapshot.path,
                name: spec.name().to_owned(),
                repository: Some(spec.repository.clone()),
                revision: Some(snapshot.revision),
                origin: Origin::Cache,
            });
        }
        Found::Part(why) => format!("the cache has only a part of the model `{spec}`: {why}"),
        Found::Nothing => format!("the model `{spec}` is not in the cache ({})", places.cache.display()),
    };
    Err(Error::Input { message, hint: Some(format!("`turnwise model pull {spec}` fetches it")) })
}

fn nowhere(spec: &str, places: &Places) -> Error {
    let path = Path::new(spec);
    if path.is_file() {
        return Error::Input {
            message: format!("{spec} is a file, and a model is a folder"),
            hint: Some(format!("name the folder that holds it, with its {}", files::CONFIG)),
        };
    }
    if looks_like_a_path(spec) {
        return Error::Input {
            message: format!("there is no folder {spec}"),
            hint: Some("a model is a folder, a listed name (`turnwise model list`) or org/name".to_owned()),
        };
    }
    let imported = import::names(&places.imports);
    let mut names: Vec<&str> = Known::names().collect();
    names.extend(imported.iter().map(String::as_str));
    let e = Error::unknown_name("model", spec, names);
    match path.is_dir() {
        true => e.with_hint(format!("for the folder {spec}, write ./{spec}")),
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
    fn each_way_to_name_a_model_leads_to_its_folder() {
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
    fn what_is_not_there_is_told_with_the_command_that_fetches_it() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let fails = |spec: &str| {
            let e = resolve(spec, &places).unwrap_err();
            (e.to_string(), e.hint().unwrap_or_default())
        };
        let (message, hint) = fails("default");
        assert!(message.starts_with("the model `all-MiniLM-L6-v2` is not in the cache ("), "{message}");
        assert_eq!(hint, "`turnwise model pull all-MiniLM-L6-v2` fetches it");
        assert_eq!(fails("o/m@v2").1, "`turnwise model pull o/m@v2` fetches it");
        assert_eq!(fails("all-minilm-l6-v3").1, "did you mean `all-MiniLM-L6-v2`?");
        assert!(fails("xyz").1.contains("known: default, all-MiniLM-L6-v2"));
        assert_eq!(fails("./none").0, "there is no folder ./none");
        assert_eq!(fails("..x").0, "unknown model `..x`");
        let file = dir.path().join("model.safetensors");
        fs::write(&file, "").unwrap();
        assert!(fails(file.to_str().unwrap()).0.ends_with("is a file, and a model is a folder"));
    }
}
