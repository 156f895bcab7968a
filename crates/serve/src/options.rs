//! Server options, including the TLS configuration.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

use super::Keys;
use turnwise_core::error::{Error, IoContext, Result};

/// Options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address to listen on. If the port is 0, the operating system chooses a free port.
    pub listen: SocketAddr,
    /// API keys. Without keys, requests need no authentication.
    pub keys: Keys,
    /// Whether the server may listen on a non-loopback address without API keys.
    pub allow_without_keys: bool,
    /// Certificate and private key for HTTPS. `None` for plain HTTP.
    pub tls: Option<Tls>,
    /// Limits on concurrency, size and time of requests.
    pub limits: Limits,
}

/// Paths of a TLS certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Path of the certificate chain, in PEM format.
    pub certificate: PathBuf,
    /// Path of the private key, in PEM format.
    pub key: PathBuf,
}

/// Limits on concurrency, size and time of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of requests that run at the same time. Ingest requests and operations on a whole index do not
    /// count.
    pub max_concurrent: usize,
    /// Maximum number of requests that wait until they can run. Further requests get status 429.
    pub max_queue: usize,
    /// Maximum number of open connections.
    pub max_connections: usize,
    /// Maximum size of a request body in bytes. Ingest requests have no limit.
    pub max_body: usize,
    /// Maximum time from receiving the headers of a request to its response. Ingest requests have no such limit. A
    /// client that does not read its response for this time is disconnected.
    pub timeout: Duration,
    /// Maximum time for the TLS handshake, and also for receiving the headers of a request.
    pub header_timeout: Duration,
    /// Maximum time that the server waits for running requests when it stops.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_concurrent: 16,
            max_queue: 256,
            max_connections: 4096,
            max_body: 8 << 20,
            timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(15),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// Returns the options for local access without API keys, on a port of the loopback address.
    pub fn local(port: u16) -> Self {
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], port)),
            keys: Keys::none(),
            allow_without_keys: false,
            tls: None,
            limits: Limits::default(),
        }
    }

    /// Checks the options. A server on a non-loopback address needs API keys or [`Options::allow_without_keys`];
    /// otherwise, returns an error. Also returns an error if a TLS file is missing or invalid.
    pub fn check(&self) -> Result<()> {
        self.tls.as_ref().map(tls_acceptor).transpose()?;
        if self.listen.ip().is_loopback() || !self.keys.is_empty() || self.allow_without_keys {
            return Ok(());
        }
        let address = self.listen.ip();
        let message = format!("{address} is reachable from other machines, but no API keys are configured");
        Err(Error::input(message).with_hint(
            "configure keys with --keys FILE or TURNWISE_API_KEYS, or allow access without keys with --without-keys",
        ))
    }
}

/// Creates a TLS acceptor from the files of the certificate and the private key. Returns an error if a file is missing
/// or invalid.
pub(super) fn tls_acceptor(tls: &Tls) -> Result<TlsAcceptor> {
    let wrong = |path: &Path, what: &str| {
        Error::data(format!("{}: {what}", path.display())).with_hint(
            "both files must be in PEM format: --tls-cert contains the certificate chain, --tls-key the private key",
        )
    };
    let bytes = fs::read(&tls.certificate).at("read", &tls.certificate)?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .map_err(|e| wrong(&tls.certificate, &format!("not a certificate: {e}")))?;
    if chain.is_empty() {
        return Err(wrong(&tls.certificate, "contains no certificate"));
    }
    let bytes = fs::read(&tls.key).at("read", &tls.key)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|e| wrong(&tls.key, &format!("not a private key: {e}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|e| wrong(&tls.key, &format!("the private key does not match the certificate: {e}")))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_address_without_keys_must_be_allowed_explicitly() {
        let public = Options { listen: "0.0.0.0:80".parse().unwrap(), ..Options::local(0) };
        let e = public.check().unwrap_err();
        assert!(e.to_string().contains("0.0.0.0") && e.hint().unwrap().contains("--keys"), "{e}");
        assert!(Options { allow_without_keys: true, ..public.clone() }.check().is_ok());
        assert!(Options { keys: Keys::from_env("a-long-secret").unwrap(), ..public }.check().is_ok());
        assert!(Options::local(1).check().is_ok());
    }
}
