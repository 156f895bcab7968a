//! HTTP requests to the hub, with retries. A request can be stopped at any time. This module follows redirects itself,
//! so that the access token is never sent to a different host.

use std::{
    fs,
    io::Read,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use turnwise_core::error::{Error, IoContext, Result};
use ureq::{
    Agent, Body,
    http::{HeaderMap, Response, Uri},
    tls::{PemItem, RootCerts, TlsConfig, parse_pem},
};

use crate::hub::pull::{Hub, Progress, stopped};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which [`Progress::stopped`] is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of consecutive attempts without progress.
const MAX_ATTEMPTS: u32 = 3;
const MAX_REDIRECTS: usize = 10;
/// Maximum size of a text response, in bytes.
const MAX_TEXT: usize = 32 << 20;

/// Error of a request to the hub.
pub(super) enum FetchError {
    /// The hub is unreachable or its response is invalid. The text is the reason. A retry or a different source may
    /// succeed.
    Unreachable(String),
    /// Error that neither a retry nor another source can fix.
    Fatal(Error),
}

impl From<Error> for FetchError {
    fn from(e: Error) -> Self {
        FetchError::Fatal(e)
    }
}

#[derive(Clone)]
pub(super) struct Client {
    agent: Agent,
    pub(super) endpoint: String,
    pub(super) token: Option<String>,
}

/// Response of the hub: its status and headers. [`HubResponse::next`] reads the body in pieces.
pub(super) struct HubResponse {
    pub(super) status: u16,
    /// Length of the body in bytes; `None` if the hub does not send it.
    pub(super) length: Option<u64>,
    /// Byte offset in the file at which the body starts; greater than 0 if the response resumes a download.
    pub(super) from: u64,
    headers: HeaderMap,
    pieces: Receiver<Result<Piece, String>>,
}

/// Part of a response, sent by the thread that makes the request.
enum Piece {
    Head(Box<(u16, HeaderMap)>),
    /// Bytes of the body. An empty vector marks the end of the body.
    Bytes(Vec<u8>),
}

impl Client {
    pub(super) fn new(hub: &Hub) -> Result<Self> {
        let endpoint = hub.endpoint.trim_end_matches('/').to_owned();
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            return Err(Error::input(format!("`{endpoint}` is not a valid hub address"))
                .with_hint("HF_ENDPOINT must begin with https:// or http://"));
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(READ_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT))
            .user_agent(concat!("turnwise/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &hub.authorities {
            let pem = fs::read(path).at("read", path)?;
            let certificates = parse_pem(&pem).filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            });
            let roots = RootCerts::from(certificates);
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        Ok(Client { agent: config.build().new_agent(), endpoint, token: hub.token.clone() })
    }

    /// Requests a text, with retries. Returns the response and the bytes of its body. A response is also returned if it
    /// has an error status that a retry cannot fix, such as 404.
    pub(super) fn text(
        &self,
        url: &str,
        watch: &mut dyn Progress,
    ) -> Result<(HubResponse, Vec<u8>), FetchError> {
        let mut retry = Retry::default();
        loop {
            let whole = self.get(url, 0, watch).and_then(|mut response| {
                let mut text = Vec::new();
                while let Some(bytes) = response.next(watch)? {
                    text.extend(bytes);
                    if text.len() > MAX_TEXT {
                        return Err(FetchError::Unreachable("its response is too long".to_owned()));
                    }
                }
                Ok((response, text))
            });
            match whole {
                Ok(done) => return Ok(done),
                Err(error) => retry.wait(error, watch)?,
            }
        }
    }

    /// Requests a file, starting at byte `from`, without retries. A temporary error status is returned as
    /// [`FetchError::Unreachable`].
    pub(super) fn get(
        &self,
        url: &str,
        from: u64,
        watch: &mut dyn Progress,
    ) -> Result<HubResponse, FetchError> {
        let (sender, pieces) = sync_channel(16);
        // A blocking read cannot be stopped, so it runs on a separate thread. The caller can then stop waiting for that
        // thread.
        let (client, url) = (self.clone(), url.to_owned());
        thread::spawn(move || client.run(&url, from, &sender));
        match wait(&pieces, watch)? {
            Piece::Head(head) => {
                let (status, headers) = *head;
                if status == 429 || status >= 500 {
                    let later = number(&headers, "retry-after").map(|s| format!(", retry after {s} s"));
                    return Err(FetchError::Unreachable(format!(
                        "it returned HTTP status {status}{}",
                        later.unwrap_or_default()
                    )));
                }
                let length = number(&headers, "content-length");
                let from = if status == 206 { range_start(&headers).unwrap_or(0) } else { 0 };
                Ok(HubResponse { status, length, from, headers, pieces })
            }
            Piece::Bytes(_) => Err(Error::Internal("an HTTP body arrived before its head".into()).into()),
        }
    }

    /// Requests a file, starting at byte `from`, and sends the response to `to` in pieces. Stops if the receiver of
    /// `to` was dropped.
    fn run(&self, url: &str, from: u64, to: &SyncSender<Result<Piece, String>>) {
        let response = match self.follow(url, from) {
            Ok(response) => response,
            Err(why) => return drop(to.send(Err(why))),
        };
        let (head, body) = response.into_parts();
        let mut body = body.into_reader();
        let mut sent = to.send(Ok(Piece::Head(Box::new((head.status.as_u16(), head.headers)))));
        let mut more = true;
        while more && sent.is_ok() {
            let mut bytes = vec![0; 1 << 16];
            let piece = body.read(&mut bytes).map_err(|e| e.to_string()).map(|n| {
                bytes.truncate(n);
                Piece::Bytes(bytes)
            });
            more = matches!(&piece, Ok(Piece::Bytes(bytes)) if !bytes.is_empty());
            sent = to.send(piece);
        }
    }

    /// Requests a file, starting at byte `from`, and follows redirects.
    fn follow(&self, url: &str, from: u64) -> Result<Response<Body>, String> {
        let home = origin(url)?;
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let mut request = self.agent.get(&url);
            if from > 0 {
                request = request.header("Range", format!("bytes={}-", from));
            }
            if let Some(token) = self.token.as_ref().filter(|_| origin(&url).is_ok_and(|o| o == home)) {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            let response = request.call().map_err(|e| reason(&e))?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let target = response.headers().get("location").and_then(|l| l.to_str().ok());
            let next = join(&url, target.ok_or("its redirect has no location")?)?;
            if url.starts_with("https://") && !next.starts_with("https://") {
                return Err("it redirects from https to http".to_owned());
            }
            url = next;
        }
        Err(format!("it redirects more than {MAX_REDIRECTS} times"))
    }
}

impl HubResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the next bytes of the body, or `None` at its end.
    pub(super) fn next(&mut self, watch: &mut dyn Progress) -> Result<Option<Vec<u8>>, FetchError> {
        match wait(&self.pieces, watch)? {
            Piece::Bytes(bytes) => Ok(Some(bytes).filter(|bytes| !bytes.is_empty())),
            Piece::Head(_) => Err(Error::Internal("a second HTTP head arrived".into()).into()),
        }
    }
}

/// Waits for the next part of a response. Fails if the request failed, or if `watch` stops the pull.
fn wait(pieces: &Receiver<Result<Piece, String>>, watch: &mut dyn Progress) -> Result<Piece, FetchError> {
    loop {
        if watch.stopped() {
            return Err(stopped().into());
        }
        match pieces.recv_timeout(POLL_INTERVAL) {
            Ok(piece) => return piece.map_err(FetchError::Unreachable),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Internal("a request thread ended without a result".into()).into());
            }
        }
    }
}

/// Retry policy: [`MAX_ATTEMPTS`] attempts with increasing pauses. Progress resets the number of failed attempts.
#[derive(Default)]
pub(super) struct Retry {
    /// Number of failed attempts since the last progress.
    pub(super) failed: u32,
}

impl Retry {
    /// Pauses before the next attempt. Returns the error instead if no attempt is left or a retry cannot fix the error.
    pub(super) fn wait(&mut self, error: FetchError, watch: &mut dyn Progress) -> Result<(), FetchError> {
        self.failed += 1;
        if matches!(error, FetchError::Fatal(_)) || self.failed >= MAX_ATTEMPTS {
            return Err(error);
        }
        if let FetchError::Unreachable(why) = &error {
            watch.say(&format!("the hub: {why}; retrying"));
        }
        let until = Instant::now() + Duration::from_millis(250) * 4u32.pow(self.failed - 1);
        while Instant::now() < until {
            if watch.stopped() {
                return Err(stopped().into());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// Formats an error without the prefix that ureq adds to I/O errors.
fn reason(e: &ureq::Error) -> String {
    match e {
        ureq::Error::Io(e) => e.to_string(),
        other => other.to_string(),
    }
}

/// Returns the scheme, host and port of a URL, such as `https://huggingface.co`.
fn origin(url: &str) -> Result<String, String> {
    let uri: Uri = url.parse().map_err(|e| format!("`{url}` is not a valid address: {e}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some(scheme), Some(authority)) => Ok(format!("{scheme}://{authority}").to_lowercase()),
        _ => Err(format!("`{url}` is not a valid address")),
    }
}

/// Resolves the target of a redirect, which can be relative to the URL `base`. Returns a full URL.
fn join(base: &str, target: &str) -> Result<String, String> {
    if target.starts_with("https://") || target.starts_with("http://") {
        return Ok(target.to_owned());
    }
    let home = origin(base)?;
    if target.starts_with("//") {
        let scheme = home.split("//").next().unwrap_or_default();
        return Ok(format!("{scheme}{target}"));
    }
    if target.starts_with('/') {
        return Ok(home + target);
    }
    let path = base.split(['?', '#']).next().unwrap_or(base);
    let folder = path.rsplit_once('/').map_or(path, |(folder, _)| folder);
    Ok(format!("{folder}/{target}"))
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Returns the start of the byte range in the header `content-range`: 100 for `bytes 100-199/200`. Returns `None` if
/// the header is missing or invalid.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get("content-range")?.to_str().ok()?;
    range.trim().strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_joined_as_browsers_do() {
        let base = "https://Hub.example:1/a/b?x=/y";
        let to = |target: &str| join(base, target).unwrap();
        assert_eq!(to("https://other/z"), "https://other/z");
        assert_eq!(to("//other/z"), "https://other/z");
        assert_eq!(to("/z"), "https://hub.example:1/z");
        assert_eq!(to("z"), "https://Hub.example:1/a/z");
        assert!(origin("nonsense").is_err());
        assert_ne!(origin("https://h/a"), origin("http://h/a"));
        assert_ne!(origin("https://h/a"), origin("https://h.other/a"));
    }

    #[test]
    fn the_start_of_a_range_is_read() {
        let mut headers = HeaderMap::new();
        assert_eq!(range_start(&headers), None);
        headers.insert("content-range", "bytes 100-199/200".parse().unwrap());
        assert_eq!(range_start(&headers), Some(100));
    }
}
