//! Connection to a Milvus server. The Milvus client is asynchronous. Its requests run on a small thread pool, and
//! callers block until the response arrives.

use std::{
    future::Future,
    net::{TcpStream, ToSocketAddrs},
    sync::OnceLock,
    time::Duration,
};

use milvus::v2::{ClientV2, ConnectConfig, RetryConfig, TelemetryConfig, error::Error as Failure};
use tokio::runtime::{Builder, Runtime};

use super::target::Target;
use turnwise_core::error::{Error, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Open connection to a Milvus server, with the target for which it was opened.
pub(super) struct Connection {
    pub(super) client: ClientV2,
    pub(super) target: Target,
}

fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let start =
        || Builder::new_multi_thread().worker_threads(2).thread_name("milvus").enable_all().build().ok();
    let failed = || Error::unavailable("the threads for the connection to Milvus cannot be started");
    RUNTIME.get_or_init(start).as_ref().ok_or_else(failed)
}

/// Returns an error if the port of the server cannot be reached. Without this check, the client would retry until its
/// timeout and hide the cause.
fn check_reachable(target: &Target) -> Result<()> {
    let host = target.host.trim_matches(['[', ']']);
    let failed = |why: &str| unreachable(target, "connecting", why);
    let addresses = (host, target.port).to_socket_addrs().map_err(|e| failed(&e.to_string()))?;
    let mut why = "the host name has no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, target.timeout.min(CONNECT_TIMEOUT)) {
            Ok(_) => return Ok(()),
            Err(e) => why = e.to_string(),
        }
    }
    Err(failed(&why))
}

pub(super) fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    Ok(runtime()?.block_on(future))
}

impl Connection {
    pub(super) fn open(target: &Target) -> Result<Self> {
        check_reachable(target)?;
        let retry = RetryConfig::new()
            .max_attempts(target.attempts)
            .max_retry_timeout(target.timeout)
            .initial_backoff(Duration::from_millis(50))
            .max_backoff(Duration::from_secs(2));
        let mut config = ConnectConfig::new()
            .uri(target.uri())
            .secure(target.tls)
            // `check_reachable` has shown that the port is open, so allow the handshake as much time as a request.
            .connect_timeout(target.timeout)
            .rpc_timeout(target.timeout)
            .retry(retry)
            // Disable telemetry, because it could send queries to a third party.
            .telemetry(TelemetryConfig::new().enabled(false));
        if let Some(token) = &target.token {
            config = config.token(token.as_str());
        }
        if !target.database.is_empty() {
            config = config.database(target.database.as_str());
        }
        let client = wait(ClientV2::new(&config))?.map_err(|e| failed(target, "connecting", &e))?;
        Ok(Connection { client, target: target.clone() })
    }

    /// Sends a request to the server, and blocks until the response arrives. `what` names the operation for the error
    /// message, such as `searching`.
    pub(super) fn call<T>(&self, what: &str, future: impl Future<Output = Result<T, Failure>>) -> Result<T> {
        wait(future)?.map_err(|e| failed(&self.target, what, &e))
    }
}

fn last(failure: &Failure) -> &Failure {
    match failure {
        Failure::RetryExhausted { source, .. } => last(source),
        other => other,
    }
}

/// Returns whether a request failed because its response was larger than the client accepts.
pub(super) fn is_too_large(failure: &Failure) -> bool {
    match last(failure) {
        Failure::Grpc(status) => status.message().contains("message length too large"),
        _ => false,
    }
}

/// Converts a failure of the client to an error with a message for users. `what` names the failed operation.
pub(super) fn failed(target: &Target, what: &str, failure: &Failure) -> Error {
    let server = target.server();
    let denied = |why: &str| {
        Error::unavailable(format!("Milvus at {server} denied access ({what}): {why}"))
            .with_hint("set TURNWISE_MILVUS_TOKEN to `user:password` or to an API key")
    };
    let slow = || {
        let seconds = target.timeout.as_secs();
        Error::unavailable(format!("Milvus at {server} did not answer within {seconds} s ({what})"))
            .with_hint("append `?timeout=SECONDS` to the address to wait longer")
    };
    match last(failure) {
        Failure::Grpc(status) => match format!("{:?}", status.code()).as_str() {
            "Unauthenticated" | "PermissionDenied" => denied(status.message()),
            "DeadlineExceeded" | "Cancelled" => slow(),
            _ => unreachable(target, what, status.message()),
        },
        Failure::Timeout(_) | Failure::Cancelled(_) => slow(),
        // Milvus returns these codes for missing or wrong credentials.
        Failure::Server(e) if matches!(e.code(), 1400..=1402) => denied(e.reason()),
        Failure::Server(e) => {
            let (reason, code) = (e.reason(), e.code());
            Error::unavailable(format!("Milvus at {server} failed {what}: {reason} (code {code})"))
        }
        other => unreachable(target, what, &other.to_string()),
    }
}

fn unreachable(target: &Target, what: &str, why: &str) -> Error {
    Error::unavailable(format!("Milvus at {} cannot be reached ({what}): {why}", target.server()))
        .with_hint("check that the server runs and that the port is correct")
}
