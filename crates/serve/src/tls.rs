//! TLS configuration of the server.

use std::{fs, path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

use super::options::Tls;
use turnwise_core::error::{Error, IoContext, Result};

pub(super) fn acceptor(tls: &Tls) -> Result<TlsAcceptor> {
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
