//! From `--engine ADDRESS` to something that is searched and filled.

use crate::cli::Context;
use turnwise_core::error::{Error, Result};
use turnwise_search::Searcher;

#[cfg(feature = "milvus")]
mod milvus {
    use crate::cli::{Context, env_vars, printer::counted};
    use turnwise_core::error::{Error, Result};
    use turnwise_milvus::{Milvus, MilvusWriter, Target};
    use turnwise_search::Searcher;

    #[cfg(feature = "serve")]
    use turnwise_serve::Place;

    impl Context<'_> {
        /// What `--engine` names, with what lets in.
        pub(crate) fn far(&self) -> Result<Target> {
            self.far_at(self.settings.engine.as_deref().unwrap_or_default())
        }

        /// What an address names, with what lets in.
        pub(crate) fn far_at(&self, address: &str) -> Result<Target> {
            let target: Target = address.parse()?;
            let token = std::env::var(env_vars::MILVUS_TOKEN).ok().filter(|token| !token.is_empty());
            if token.is_some() && !target.tls && !is_here(&target.host) {
                return Err(Error::Input {
                    message: format!("{target} would be sent a password that everybody on the way can read"),
                    hint: Some("write milvuss:// for an encrypted connection".to_owned()),
                });
            }
            Ok(target.with_token(token))
        }

        /// What came is there as a whole, and not all of it is found by its words.
        pub(crate) fn tell_cut(&self, home: &MilvusWriter) {
            let texts = match home.cut() {
                0 => return,
                1 => "1 text is".to_owned(),
                n => format!("{} are", counted(n, "text")),
            };
            self.printer.warn(format!(
                "{texts} longer than a column of Milvus: what comes behind 65,535 bytes of words is not found by words"
            ));
        }

        pub(super) fn far_searcher(&self) -> Result<Searcher> {
            Ok(Searcher::of(Box::new(Milvus::open(&self.far()?)?)))
        }

        /// What `--engine` names, to be served under its name there.
        #[cfg(feature = "serve")]
        pub(crate) fn far_to_serve(&self) -> Result<(String, Place)> {
            let target = self.far()?;
            Ok((target.name.clone(), Place::Milvus(target)))
        }
    }

    fn is_here(host: &str) -> bool {
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

    /// What stands in for an address.
    pub(crate) enum Nothing {}

    impl Context<'_> {
        pub(crate) fn far(&self) -> Result<Nothing> {
            Err(Error::Unavailable {
                message: "this turnwise was built without Milvus, and --engine needs it".to_owned(),
                hint: Some("`cargo build --release --features milvus` builds one with it".to_owned()),
            })
        }

        pub(super) fn far_searcher(&self) -> Result<Searcher> {
            match self.far()? {}
        }

        #[cfg(feature = "serve")]
        pub(crate) fn far_to_serve(&self) -> Result<(String, Place)> {
            match self.far()? {}
        }
    }
}

/// That `--engine` was given to a command that would go past it. As a setting it is for those commands that heed it.
pub(crate) fn not_heeded() -> Error {
    Error::Input {
        message: "--engine is for what searches or fills a Milvus, and this command does neither".to_owned(),
        hint: Some(
            "leave it out; `turnwise migrate` brings what is in a Milvus to an index on this machine"
                .to_owned(),
        ),
    }
}

impl Context<'_> {
    /// What is searched: the Milvus of `--engine`, or the index of `-i`.
    pub(crate) fn searcher(&self) -> Result<Searcher> {
        match self.settings.engine {
            Some(_) => self.far_searcher(),
            None => Searcher::open(self.existing_index()?),
        }
    }
}
