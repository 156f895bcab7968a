//! Tests of a server with TLS. The tests create the certificate.

// Printing is allowed, because a skipped test prints the reason.
#![allow(clippy::print_stderr)]

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use crate::{
    serve::with_index,
    support::{Started, Turnwise},
};

/// Creates `certificate.pem` and `key.pem` for `localhost`. Returns false if openssl is not installed.
fn create_certificate(t: &Turnwise) -> bool {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-days", "2"])
        .args(["-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(t.path(""))
        .stderr(Stdio::null())
        .status();
    match made {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(e) => eprintln!("skipped: there is no openssl here ({e})"),
    }
    t.path("certificate.pem").exists()
}

/// Sends a request over TLS. Only the certificate of the test is trusted.
fn ask(t: &Turnwise, address: &str, path: &str) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(t.path("certificate.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn with_a_certificate_the_server_accepts_only_tls() {
    let t = with_index();
    if !create_certificate(&t) {
        return;
    }
    let mut args = vec!["serve", "-i", "x", "--port", "0"];
    args.extend(["--tls-cert", "certificate.pem", "--tls-key", "key.pem"]);
    let mut started = Started::spawn(t.command(&args));
    let line = started.wait_for_message("https://");
    let address = line.split("https://").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();

    assert!(ask(&t, &address, "/v1/stats").contains("\"dialogues\":280"));
    assert!(ask(&t, &address, "/health/live").starts_with("HTTP/1.1 200"));
    // A client without TLS gets no HTTP response, and does not affect other clients.
    let mut plain = TcpStream::connect(&address).unwrap();
    plain.write_all(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut outcome = Vec::new();
    let _ = plain.read_to_end(&mut outcome);
    assert!(!outcome.starts_with(b"HTTP"), "{outcome:?}");
    assert!(ask(&t, &address, "/health/ready").starts_with("HTTP/1.1 200"));
    started.child.kill().unwrap();

    // Invalid files are reported before the server listens.
    t.write("nothing.pem", "nothing");
    let wrong = t.run("serve -i x --port 0 --tls-cert nothing.pem --tls-key key.pem");
    assert!(wrong.code == 3 && wrong.err.contains("nothing.pem"), "{wrong:?}");
}
