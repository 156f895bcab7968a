//! Opens the engine given by `--engine ADDRESS`, or else the index given by `-i`.

use crate::cli::Context;
use turnwise_core::error::{Error, Result};
use turnwise_search::Searcher;

#[cfg(feature = "milvus")]
mod milvus {
    use crate::cli::{Context, env_vars};
    use turnwise_core::error::{Error, Result};
    use turnwise_milvus::{Milvus, MilvusWriter, Target};
    use turnwise_search::Searcher;

    #[cfg(feature = "serve")]
    use turnwise_serve::Place;

    impl Context<'_> {
        /// Milvus target given by `--engine`, with its credentials.
        pub(crate) fn far(&self) -> Result<Target> {
            self.milvus_target_at(self.settings.engine.as_deref().unwrap_or_default())
        }

        /// Milvus target at an address, with its credentials.
        pub(crate) fn milvus_target_at(&self, address: &str) -> Result<Target> {
            let target: Target = address.parse()?;
            let token = std::env::var(env_vars::MILVUS_TOKEN).ok().filter(|token| !token.is_empty());
            if token.is_some() && !target.tls && !is_local(&target.host) {
                return Err(Error::Input {
                    message: format!("the credentials for {target} would be sent unencrypted"),
                    hint: Some("use milvuss:// for an encrypted connection".to_owned()),
                });
            }
            Ok(target.with_token(token))
        }

        /// Warns about texts that are stored in full, but only partly searchable by keywords.
        pub(crate) fn warn_truncated(&self, home: &MilvusWriter) {
            if let Some(warning) = turnwise_shards::migrate::truncation_warning(home) {
                self.printer.warn(warning);
            }
        }

        pub(super) fn milvus_searcher(&self) -> Result<Searcher> {
            Ok(Searcher::of(Box::new(Milvus::open(&self.far()?)?)))
        }

        /// Collection given by `--engine`, with the name to serve it under.
        #[cfg(feature = "serve")]
        pub(crate) fn milvus_to_serve(&self) -> Result<(String, Place)> {
            let target = self.far()?;
            Ok((target.name.clone(), Place::Milvus(target)))
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
    use turnwise_search::Searcher;

    #[cfg(feature = "serve")]
    use turnwise_serve::Place;

    /// Target type of a build without Milvus. It has no values.
    pub(crate) enum NoTarget {}

    impl Context<'_> {
        pub(crate) fn far(&self) -> Result<NoTarget> {
            Err(Error::Unavailable {
                message: "--engine needs Milvus support, and this turnwise was built without it".to_owned(),
                hint: Some("build it with `cargo build --release --features milvus`".to_owned()),
            })
        }

        pub(super) fn milvus_searcher(&self) -> Result<Searcher> {
            match self.far()? {}
        }

        #[cfg(feature = "serve")]
        pub(crate) fn milvus_to_serve(&self) -> Result<(String, Place)> {
            match self.far()? {}
        }
    }
}

/// Error for `--engine` on a command that does not use it. The setting `engine` is ignored by such commands instead.
pub(crate) fn unused_engine() -> Error {
    Error::Input {
        message: "this command does not support --engine, because it neither searches nor fills Milvus"
            .to_owned(),
        hint: Some(
            "leave it out; `turnwise migrate` copies a Milvus collection to an index on this machine"
                .to_owned(),
        ),
    }
}

impl Context<'_> {
    /// Opens the Milvus collection of `--engine`, or the index of `-i`, for searching.
    pub(crate) fn searcher(&self) -> Result<Searcher> {
        match self.settings.engine {
            Some(_) => self.milvus_searcher(),
            None => Searcher::open(self.existing_index()?),
        }
    }
}
