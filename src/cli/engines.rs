//! Turns `--engine ADDRESS`, or else `-i`, into a location: a collection of a remote engine, or an index folder.

#[cfg(feature = "milvus")]
use crate::cli::env_vars;
use crate::cli::prelude::*;
use turnwise_index::{embedded::Folder, location::Location};
use turnwise_search::Searcher;

#[cfg(feature = "milvus")]
use turnwise_milvus::{MilvusLocation, Target};

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
    /// Milvus collection given by `--engine`, with the credentials.
    pub(crate) fn milvus_target(&self) -> Result<Target> {
        self.milvus_target_at(self.settings.engine.as_deref().unwrap_or_default())
    }

    /// Milvus collection at an address, with the credentials. Returns an error if the credentials would be sent
    /// unencrypted to another machine.
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

/// Type of the Milvus collection in a build without Milvus. It has no values.
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

/// Error for `--engine` on a command that does not use it. The setting `engine` is ignored by such commands instead.
pub(crate) fn unused_engine() -> Error {
    Error::input("this command does not support --engine, because it neither searches nor fills Milvus")
        .with_hint("leave it out; `turnwise migrate` copies a Milvus collection to an index on this machine")
}

impl Context<'_> {
    /// Location given by `--engine`, or else the index given by `-i`. Does not check whether the location exists.
    pub(crate) fn location(&self) -> Result<Box<dyn Location>> {
        match &self.settings.engine {
            Some(address) => at(address, self),
            None => Ok(Box::new(Folder::new(self.index()?))),
        }
    }

    /// Location given by `--engine`, or else the index given by `-i`. Fails if the index does not exist.
    pub(crate) fn existing_location(&self) -> Result<Box<dyn Location>> {
        match &self.settings.engine {
            Some(address) => at(address, self),
            None => Ok(Box::new(Folder::new(self.existing_index()?))),
        }
    }

    /// Opens the dialogues of `--engine`, or else the index of `-i`, for searching.
    pub(crate) fn searcher(&self) -> Result<Searcher> {
        Searcher::at(self.existing_location()?.as_ref())
    }
}
