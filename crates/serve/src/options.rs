//! How a server is set up.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{Keys, tls};
use turnwise_core::error::{Error, Result};

/// Where it listens, who may ask, and how much.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens. The port 0 is any that is free.
    pub listen: SocketAddr,
    /// Who may ask; nobody is asked for a key where there are none.
    pub keys: Keys,
    /// Whether an address that others can reach is listened on although there are no keys.
    pub open_to_all: bool,
    /// Certificate and key, where it speaks TLS itself.
    pub tls: Option<Tls>,
    /// How much is taken.
    pub limits: Limits,
}

/// The files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The chain of certificates, in PEM.
    pub certificate: PathBuf,
    /// The private key, in PEM.
    pub key: PathBuf,
}

/// How much is taken at once, and how long it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Requests that are worked on at the same time.
    pub at_once: usize,
    /// Requests that wait for that; more are told to come again.
    pub waiting: usize,
    /// Open connections.
    pub connections: usize,
    /// Bytes of a body; an ingest has none.
    pub body: usize,
    /// How long a request may take from its head to its answer; an ingest as long as it goes on. Also how long who takes nothing
    /// of an answer is waited for.
    pub time: Duration,
    /// How long a connection may take to say what it wants.
    pub head: Duration,
    /// How long requests that are under way are waited for when the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            at_once: 16,
            waiting: 256,
            connections: 4096,
            body: 8 << 20,
            time: Duration::from_secs(30),
            head: Duration::from_secs(15),
            drain: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// On this machine alone, for everybody on it.
    pub fn local(port: u16) -> Self {
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], port)),
            keys: Keys::none(),
            open_to_all: false,
            tls: None,
            limits: Limits::default(),
        }
    }

    /// Refuses what would open an index to everybody unasked, and certificates that are none.
    pub fn check(&self) -> Result<()> {
        self.tls.as_ref().map(tls::acceptor).transpose()?;
        if self.listen.ip().is_loopback() || !self.keys.is_empty() || self.open_to_all {
            return Ok(());
        }
        Err(Error::Input {
            message: format!(
                "on {} others than this machine can ask, and nobody needs a key",
                self.listen.ip()
            ),
            hint: Some(
                "give keys with --keys FILE or TURNWISE_API_KEYS, or say that this is meant: --without-keys"
                    .to_owned(),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_opens_an_index_to_everybody_unasked() {
        let public = Options { listen: "0.0.0.0:80".parse().unwrap(), ..Options::local(0) };
        let e = public.check().unwrap_err();
        assert!(e.to_string().contains("0.0.0.0") && e.hint().unwrap().contains("--keys"), "{e}");
        assert!(Options { open_to_all: true, ..public.clone() }.check().is_ok());
        assert!(Options { keys: Keys::from_env("a-long-secret").unwrap(), ..public }.check().is_ok());
        assert!(Options::local(1).check().is_ok());
    }
}
