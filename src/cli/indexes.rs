//! Finds the index given by `-i`, or the collection of a remote engine given by `--engine`.

#[cfg(feature = "milvus")]
use crate::cli::env_vars;
use crate::cli::prelude::*;
use turnwise_core::error::closest_name;
use turnwise_index::{embedded::Folder, location::Location};
#[cfg(feature = "milvus")]
use turnwise_milvus::{MilvusLocation, Target};
use turnwise_search::Searcher;
use turnwise_store::{IndexPaths, Manifest, Snapshot};

/// Returns the sorted names of the indexes in a folder.
pub(crate) fn list(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| Manifest::exists(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

impl Context<'_> {
    /// Returns the folder of the index given by `-i` or by the setting `index`. Does not check whether the folder
    /// exists.
    pub(crate) fn index(&self) -> Result<PathBuf> {
        if let Some(address) = &self.settings.engine {
            return Err(Error::input(format!("this command needs an index on this machine, not {address}"))
                .with_hint("use -i NAME"));
        }
        let Some(name) = &self.settings.index else {
            let known = list(&self.settings.indexes_dir);
            return Err(Error::input("no index given").with_hint(match known.len() {
                0 => "use -i NAME, for example -i chats".to_owned(),
                _ => format!("use -i NAME; available indexes: {}", known.join(", ")),
            }));
        };
        Ok(self.folder_of(name))
    }

    /// Returns the folder of an index: `name` itself if it is a path, else the subfolder `name` of the indexes folder.
    pub(crate) fn folder_of(&self, name: &str) -> PathBuf {
        let is_path = name.contains(['/', '\\']) || name == "." || name == "..";
        if is_path { PathBuf::from(name) } else { self.settings.indexes_dir.join(name) }
    }

    /// Returns the folder of the index given by `-i`. Fails if the index does not exist.
    pub(crate) fn existing_index(&self) -> Result<PathBuf> {
        existing(self.index()?)
    }

    /// Returns the folder of an index, given by name or path. Fails if the index does not exist.
    #[cfg(feature = "serve")]
    pub(crate) fn existing(&self, name: &str) -> Result<PathBuf> {
        existing(self.folder_of(name))
    }

    /// Opens the index given by `-i` for reading.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::open(&self.existing_index()?)
    }
}

fn existing(path: PathBuf) -> Result<PathBuf> {
    if Manifest::exists(&path) || IndexPaths::newest(&path).is_some() {
        return Ok(path);
    }
    let parent = path.parent().unwrap_or(Path::new("."));
    let known = list(parent);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hint = match closest_name(&name, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "`turnwise ingest -i NAME FILE…` creates one".to_owned(),
        None => format!("available indexes in {}: {}", parent.display(), known.join(", ")),
    };
    Err(Error::NoIndex { path, hint: Some(hint) })
}

/// Returns the Milvus collection at an address. To support another engine, add it here.
fn at(address: &str, context: &Context<'_>) -> Result<Box<dyn Location>> {
    milvus(address, context)
}

#[cfg(feature = "milvus")]
fn milvus(address: &str, context: &Context<'_>) -> Result<Box<dyn Location>> {
    Ok(Box::new(MilvusLocation::new(context.milvus_target_at(address)?)))
}

#[cfg(feature = "milvus")]
impl Context<'_> {
    /// Returns the Milvus collection given by `--engine`, with the credentials.
    pub(crate) fn milvus_target(&self) -> Result<Target> {
        self.milvus_target_at(self.settings.engine.as_deref().unwrap_or_default())
    }

    /// Returns the Milvus collection at an address, with the credentials. Returns an error if the credentials would be
    /// sent unencrypted to another machine.
    pub(crate) fn milvus_target_at(&self, address: &str) -> Result<Target> {
        let target: Target = address.parse()?;
        let token = env_vars::get(env_vars::MILVUS_TOKEN);
        let is_local =
            ["localhost", "[::1]"].contains(&target.host.as_str()) || target.host.starts_with("127.");
        if token.is_some() && !target.tls && !is_local {
            return Err(Error::input(format!("the credentials for {target} would be sent unencrypted"))
                .with_hint("use milvuss:// for an encrypted connection"));
        }
        Ok(target.with_token(token))
    }
}

/// Type of a Milvus collection in builds without Milvus support. The type has no values, because these builds cannot
/// open a collection.
#[cfg(not(feature = "milvus"))]
pub(crate) enum NoTarget {}

#[cfg(not(feature = "milvus"))]
fn milvus(_: &str, context: &Context<'_>) -> Result<Box<dyn Location>> {
    match context.milvus_target()? {}
}

#[cfg(not(feature = "milvus"))]
impl Context<'_> {
    pub(crate) fn milvus_target(&self) -> Result<NoTarget> {
        Err(Error::unavailable("--engine needs Milvus support, and this turnwise was built without it")
            .with_hint("build it with `cargo build --release --features milvus`"))
    }
}

/// Returns the error for the option `--engine` on a command that does not use it. Such commands ignore the setting
/// `engine` without an error.
pub(crate) fn unused_engine() -> Error {
    Error::input("this command does not support --engine, because it neither searches nor fills Milvus")
        .with_hint("leave it out; `turnwise migrate` copies a Milvus collection to an index on this machine")
}

impl Context<'_> {
    /// Returns the location given by `--engine`, or else the index given by `-i`. Does not check whether the location
    /// exists.
    pub(crate) fn location(&self) -> Result<Box<dyn Location>> {
        match &self.settings.engine {
            Some(address) => at(address, self),
            None => Ok(Box::new(Folder::new(self.index()?))),
        }
    }

    /// Returns the location given by `--engine`, or else the index given by `-i`. Fails if that index does not exist.
    /// Does not check whether a location given by `--engine` exists.
    pub(crate) fn existing_location(&self) -> Result<Box<dyn Location>> {
        match &self.settings.engine {
            Some(address) => at(address, self),
            None => Ok(Box::new(Folder::new(self.existing_index()?))),
        }
    }

    /// Opens the collection given by `--engine`, or else the index given by `-i`, for searching.
    pub(crate) fn searcher(&self) -> Result<Searcher> {
        Searcher::at(self.existing_location()?.as_ref())
    }
}
