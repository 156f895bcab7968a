//! Copies a model from a folder into the folder of imported models, where it can be found by name. Never uses the
//! network.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::Serialize;
use turnwise_core::{
    error::{Error, IoContext, Result},
    files::sync_parent,
};

use crate::{
    folder::save::{TemporaryFolder, create_parent},
    hub::{Known, Places, files, incomplete, names_in},
    statics,
};

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// Name of the imported model.
    pub name: String,
    /// Folder of the imported model.
    pub path: PathBuf,
    /// Number of bytes copied.
    pub bytes: u64,
    /// Paths of the copied files, relative to the folder of the model.
    pub files: Vec<String>,
    /// Paths of the files that were not copied, because turnwise does not need them.
    pub left_out: Vec<String>,
}

/// Returns true if a model can be imported with this name. A name has 1 to 100 bytes and must not start with a dot or
/// dash. White space, control characters, slashes, backslashes, colons and `@` are not allowed.
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 100
        && !text.starts_with(['.', '-'])
        && !text.contains(['/', '\\', ':', '@'])
        && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// Returns the names of the imported models, sorted.
pub fn names(imports: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        names_in(imports).filter(|name| is_name(name) && imports.join(name).is_dir()).collect();
    names.sort();
    names
}

/// Copies a model to the folder of imported models. If `name` is `None`, the model gets the name of `folder`. `check`
/// is called with a temporary folder that contains the copy, before the model is imported.
///
/// Fails if the model is incomplete or a static encoder, if the name is invalid or already used, or if `check` fails.
pub fn import(
    folder: &Path,
    name: Option<&str>,
    places: &Places,
    check: &dyn Fn(&Path) -> Result<()>,
) -> Result<Imported> {
    let whole = fs::canonicalize(folder).at("open", folder)?;
    if !whole.is_dir() {
        return Err(Error::input(format!("{} is a file; a model is a folder", folder.display())));
    }
    let own_name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = free_name(name.unwrap_or(&own_name), places)?;
    if statics::is_static(&whole) {
        return Err(Error::input(format!(
            "{} is a static encoder, which cannot be imported",
            folder.display()
        ))
        .with_hint("use its path: --model ./folder"));
    }
    let all = files::walk(&whole)?;
    let shown = folder.display().to_string();
    let chosen = files::choose(&shown, all.iter().map(String::as_str))?;
    if let Some(file) = files::missing(&whole)? {
        return Err(incomplete(&shown, &file));
    }
    // The name of the temporary folder starts with a dot. Such folders are not listed, so an interrupted import does
    // not look like a model.
    let temporary = places.imports.join(format!(".{name}.{}.tmp", std::process::id()));
    let temporary = TemporaryFolder::create(temporary)?;
    let mut bytes = 0;
    for path in &chosen {
        bytes += copy(&whole.join(path), &temporary.0.join(path))?;
    }
    check(&temporary.0)?;
    let target = places.imported(&name);
    match fs::rename(&temporary.0, &target) {
        Err(e) if matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty) => {
            return Err(name_taken(&name, &target));
        }
        other => other.at("create", &target)?,
    }
    sync_parent(&target)?;
    Ok(Imported {
        name,
        path: target,
        bytes,
        left_out: all.iter().filter(|path| !chosen.contains(&path.as_str())).cloned().collect(),
        files: chosen.into_iter().map(str::to_owned).collect(),
    })
}

fn free_name(name: &str, places: &Places) -> Result<String> {
    let hint = "choose another name with --name".to_owned();
    if !is_name(name) {
        return Err(Error::input(format!("invalid model name `{name}`"))
            .with_hint(format!("{hint}; use letters, digits, dots and dashes")));
    }
    if let Some(known) = Known::find(name) {
        return Err(Error::input(format!("`{name}` is the name of a built-in model ({})", known.repository))
            .with_hint(hint));
    }
    let path = places.imported(name);
    if path.exists() { Err(name_taken(name, &path)) } else { Ok(name.to_owned()) }
}

fn name_taken(name: &str, path: &Path) -> Error {
    Error::input(format!("a model `{name}` already exists in {}", path.display()))
        .with_hint("choose another name with --name, or remove that folder")
}

fn copy(from: &Path, to: &Path) -> Result<u64> {
    create_parent(to)?;
    let bytes = fs::copy(from, to).at("copy", from)?;
    File::open(to).and_then(|file| file.sync_all()).at("flush", to)?;
    sync_parent(to)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(folder: &Path) {
        fs::create_dir_all(folder.join("onnx")).unwrap();
        for file in
            ["config.json", "model.safetensors", "vocab.txt", "pytorch_model.bin", "onnx/model.onnx", ".x"]
        {
            fs::write(folder.join(file), "{}").unwrap();
        }
    }

    #[test]
    fn needed_files_are_copied_and_the_others_listed() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { cache: dir.path().join("hub"), imports: dir.path().join("models") };
        model(&dir.path().join("mine"));
        let from = dir.path().join("mine");
        let done = import(&from, None, &places, &|_| Ok(())).unwrap();
        assert_eq!((done.name.as_str(), done.bytes), ("mine", 6));
        assert_eq!(done.files, ["config.json", "model.safetensors", "vocab.txt"]);
        assert_eq!(done.left_out, ["onnx/model.onnx", "pytorch_model.bin"]);
        assert_eq!(names(&places.imports), ["mine"]);
        let again = import(&from, None, &places, &|_| Ok(())).unwrap_err();
        assert!(again.to_string().starts_with("a model `mine` already exists"), "{again}");
        import(&from, Some("other"), &places, &|_| Ok(())).unwrap();
        assert_eq!(names(&places.imports), ["mine", "other"]);
    }

    #[test]
    fn a_model_that_does_not_open_is_not_imported() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { cache: dir.path().join("hub"), imports: dir.path().join("models") };
        let from = dir.path().join("mine");
        model(&from);
        let e = import(&from, None, &places, &|_| Err(Error::data("bad weights"))).unwrap_err();
        assert_eq!(e.to_string(), "bad weights");
        assert_eq!(fs::read_dir(&places.imports).unwrap().count(), 0);
        for name in ["default", "all-minilm-l6-v2", "a/b", "..", "a b", ""] {
            assert!(import(&from, Some(name), &places, &|_| Ok(())).is_err(), "{name}");
        }
        fs::remove_file(from.join("vocab.txt")).unwrap();
        let e = import(&from, None, &places, &|_| Ok(())).unwrap_err();
        assert!(e.to_string().contains("tokenizer.json is missing"), "{e}");
    }
}
