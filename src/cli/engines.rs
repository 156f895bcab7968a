//! The factory of engines: turns `--engine ADDRESS`, or else `-i`, into a location.

use crate::cli::prelude::*;
use turnwise_index::{embedded::Folder, location::Location};
use turnwise_search::Searcher;

#[cfg(feature = "milvus")]
mod milvus {
    use crate::cli::{Context, env_vars};
    use turnwise_core::error::{Error, Result};
    use turnwise_index::location::Location;
    use turnwise_milvus::{MilvusLocation, Target};

    /// Returns the location at an address.
    pub(super) fn location(address: &str, context: &Context<'_>) -> Result<Box<dyn Location>> {
        Ok(Box::new(MilvusLocation::new(context.milvus_target_at(address)?)))
    }

    impl Context<'_> {
        /// Milvus target given by `--engine`, with its credentials.
        pub(crate) fn milvus_target(&self) -> Result<Target> {
            self.milvus_target_at(self.settings.engine.as_deref().unwrap_or_default())
        }

        /// Milvus target at an address, with its credentials.
        pub(crate) fn milvus_target_at(&self, address: &str) -> Result<Target> {
            let target: Target = address.parse()?;
            let token = env_vars::get(env_vars::MILVUS_TOKEN);
            if token.is_some() && !target.tls && !is_local(&target.host) {
                return Err(Error::input(format!("the credentials for {target} would be sent unencrypted"))
                    .with_hint("use milvuss:// for an encrypted connection"));
            }
            Ok(target.with_token(token))
        }
    }

    fn is_local(host: &str) -> bool {
        host == "localhost" || host == "[::1]" || host.starts_with("127.")
    }
}

#[cfg(not(feature = "milvus"))]
mod milvus {
    use crate::cli::Context;
    use turnwise_core::error::{Error, Result};
    use turnwise_index::location::Location;

    /// Target type of a build without Milvus. It has no values.
    pub(crate) enum NoTarget {}

    pub(super) fn location(_: &str, context: &Context<'_>) -> Result<Box<dyn Location>> {
        match context.milvus_target()? {}
    }

    impl Context<'_> {
        pub(crate) fn milvus_target(&self) -> Result<NoTarget> {
            Err(Error::unavailable("--engine needs Milvus support, and this turnwise was built without it")
                .with_hint("build it with `cargo build --release --features milvus`"))
        }
    }
}

/// Error for `--engine` on a command that does not use it. The setting `engine` is ignored by such commands instead.
pub(crate) fn unused_engine() -> Error {
    Error::input("this command does not support --engine, because it neither searches nor fills Milvus")
        .with_hint("leave it out; `turnwise migrate` copies a Milvus collection to an index on this machine")
}

/// Returns the location at an address. Add new engines here.
fn at(address: &str, context: &Context<'_>) -> Result<Box<dyn Location>> {
    milvus::location(address, context)
}

impl Context<'_> {
    /// Location given by `--engine`, or else the index given by `-i`. It need not exist.
    pub(crate) fn location(&self) -> Result<Box<dyn Location>> {
        match &self.settings.engine {
            Some(address) => at(address, self),
            None => Ok(Box::new(Folder::new(self.index()?))),
        }
    }

    /// Like `location`, but an index folder must exist.
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
