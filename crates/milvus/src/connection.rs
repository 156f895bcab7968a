//! A connection to a Milvus. Its client is asynchronous and everything above is not: what is asked of it runs on a few threads
//! of its own, and who asks waits.

use std::{
    future::Future,
    net::{TcpStream, ToSocketAddrs},
    sync::OnceLock,
    time::Duration,
};

use milvus::v2::{
    ClientV2, ConnectConfig, ConsistencyLevel, RetryConfig, TelemetryConfig, error::Error as Failure,
};
use tokio::runtime::{Builder, Runtime};

use super::target::{Consistency, Target};
use turnwise_core::error::{Error, Result};

/// Whether anybody listens there is known after this time.
const TO_CONNECT: Duration = Duration::from_secs(10);
/// Threads that wait for servers.
const THREADS: usize = 2;

/// An open connection.
pub(super) struct Connection {
    pub(super) client: ClientV2,
    pub(super) target: Target,
}

fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let start = || {
        Builder::new_multi_thread().worker_threads(THREADS).thread_name("milvus").enable_all().build().ok()
    };
    RUNTIME.get_or_init(start).as_ref().ok_or_else(|| Error::Unavailable {
        message: "no thread can be started that talks to Milvus".to_owned(),
        hint: None,
    })
}

/// Whether somebody listens there at all. The client tries for as long as it may, and then cannot say what was wrong.
fn reach(target: &Target) -> Result<()> {
    let host = target.host.trim_matches(['[', ']']);
    let places = (host, target.port)
        .to_socket_addrs()
        .map_err(|e| unreachable(target, "connecting", &e.to_string()))?;
    let mut why = "its name has no address".to_owned();
    for place in places {
        match TcpStream::connect_timeout(&place, target.timeout.min(TO_CONNECT)) {
            Ok(_) => return Ok(()),
            Err(e) => why = e.to_string(),
        }
    }
    Err(unreachable(target, "connecting", &why))
}

/// Waits for what a future gives.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    Ok(runtime()?.block_on(future))
}

impl Connection {
    pub(super) fn open(target: &Target) -> Result<Self> {
        reach(target)?;
        let retry = RetryConfig::new()
            .max_attempts(target.attempts)
            .max_retry_timeout(target.timeout)
            .initial_backoff(Duration::from_millis(50))
            .max_backoff(Duration::from_secs(2));
        let mut config = ConnectConfig::new()
            .uri(target.uri())
            .secure(target.tls)
            // Somebody listens there: it may take as long to greet as to answer.
            .connect_timeout(target.timeout)
            .rpc_timeout(target.timeout)
            .retry(retry)
            // Nobody is told what is searched for.
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

    /// Asks something of the server. `what` says what was tried if that fails: `searching`.
    pub(super) fn ask<T>(&self, what: &str, future: impl Future<Output = Result<T, Failure>>) -> Result<T> {
        wait(future)?.map_err(|e| failed(&self.target, what, &e))
    }

    pub(super) fn consistency(&self) -> ConsistencyLevel {
        match self.target.consistency {
            Consistency::Strong => ConsistencyLevel::Strong,
            Consistency::Session => ConsistencyLevel::Session,
            Consistency::Bounded => ConsistencyLevel::Bounded,
            Consistency::Eventually => ConsistencyLevel::Eventually,
        }
    }
}

/// The failure at the bottom of those that only say that they were tried again.
fn last(failure: &Failure) -> &Failure {
    match failure {
        Failure::RetryExhausted { source, .. } => last(source),
        other => other,
    }
}

/// Whether an answer was larger than the client takes.
pub(super) fn is_too_large(failure: &Failure) -> bool {
    match last(failure) {
        Failure::Grpc(status) => status.message().contains("message length too large"),
        _ => false,
    }
}

/// What went wrong, in words.
pub(super) fn failed(target: &Target, what: &str, failure: &Failure) -> Error {
    let server = target.server();
    match last(failure) {
        Failure::Grpc(status) => {
            let code = format!("{:?}", status.code());
            match code.as_str() {
                "Unauthenticated" | "PermissionDenied" => Error::Unavailable {
                    message: format!("Milvus at {server} lets nobody in ({what}): {}", status.message()),
                    hint: Some("give it `user:password` or its key in TURNWISE_MILVUS_TOKEN".to_owned()),
                },
                "DeadlineExceeded" | "Cancelled" => slow(target, what),
                _ => unreachable(target, what, status.message()),
            }
        }
        Failure::Timeout(_) | Failure::Cancelled(_) => slow(target, what),
        Failure::Server(e) if is_login(e.code()) => Error::Unavailable {
            message: format!("Milvus at {server} lets nobody in ({what}): {}", e.reason()),
            hint: Some("give it `user:password` or its key in TURNWISE_MILVUS_TOKEN".to_owned()),
        },
        Failure::Server(e) => Error::Unavailable {
            message: format!("Milvus at {server} failed {what}: {} (code {})", e.reason(), e.code()),
            hint: None,
        },
        other => unreachable(target, what, &other.to_string()),
    }
}

/// The codes of Milvus for a missing or a wrong login.
fn is_login(code: i32) -> bool {
    matches!(code, 1400..=1402)
}

fn slow(target: &Target, what: &str) -> Error {
    Error::Unavailable {
        message: format!(
            "Milvus at {} did not answer within {} s ({what})",
            target.server(),
            target.timeout.as_secs()
        ),
        hint: Some("put `?timeout=SECONDS` behind its address to wait longer".to_owned()),
    }
}

fn unreachable(target: &Target, what: &str, why: &str) -> Error {
    Error::Unavailable {
        message: format!("Milvus at {} cannot be reached ({what}): {why}", target.server()),
        hint: Some("is it running there, and is that its port?".to_owned()),
    }
}
