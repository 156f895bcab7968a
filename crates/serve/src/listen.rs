//! Network connections: accepts them, disconnects clients that stop reading a response, and shuts down gracefully.

use std::{
    future::Future,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::Semaphore,
    task::JoinSet,
    time::{Sleep, sleep},
};
use tokio_rustls::TlsAcceptor;

use super::{App, Options, metrics::Metrics, options::tls_acceptor, routes};
use turnwise_core::error::{Error, IoContext, Result};

/// Interval between two checks of an index for changes by other processes.
const CHANGE_INTERVAL: Duration = Duration::from_millis(250);
/// Interval between two checks for a request to stop the server.
const STOP_INTERVAL: Duration = Duration::from_millis(50);
/// Pause after a connection could not be accepted, for example because no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Server that is bound to its address. It answers requests only while [`BoundServer::run`] runs.
pub struct BoundServer {
    app: App,
    options: Options,
    listener: std::net::TcpListener,
    tls: Option<TlsAcceptor>,
    /// Bound address, with the actual port.
    pub address: SocketAddr,
}

/// Binds the server to its address. Returns an error if the options are invalid or the address is not available.
pub fn bind(app: App, options: Options) -> Result<BoundServer> {
    options.check()?;
    let tls = options.tls.as_ref().map(tls_acceptor).transpose()?;
    let failed = |e: io::Error| {
        match e.kind() {
        io::ErrorKind::AddrInUse => Error::unavailable(format!("{} is already in use", options.listen)).with_hint(
            "another server uses this address; choose another port with --port N, or any free port with --port 0",
        ),
        io::ErrorKind::PermissionDenied => {
            Error::unavailable(format!("no permission to listen on {}", options.listen))
                .with_hint("ports below 1024 need administrator rights; choose another port with --port N")
        }
        _ => Error::unavailable(format!("cannot listen on {}: {e}", options.listen)),
    }
    };
    let listener = std::net::TcpListener::bind(options.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(BoundServer { app, options, listener, tls, address })
}

impl BoundServer {
    /// Serves requests until `stops` returns true. Then waits until the running requests are complete, at most for the
    /// time [`Limits::drain_timeout`](crate::Limits::drain_timeout).
    pub fn run(self, stops: impl Fn() -> bool) -> Result<()> {
        let runtime = runtime()?;
        let stop = async {
            while !stops() {
                tokio::time::sleep(STOP_INTERVAL).await;
            }
        };
        let done = runtime.block_on(self.serve(stop));
        // Blocking work of requests that are not complete after this time ends with the process.
        runtime.shutdown_timeout(Duration::from_secs(1));
        done
    }

    async fn serve(self, stop: impl Future<Output = ()>) -> Result<()> {
        let listener = TcpListener::from_std(self.listener).at("listen on", self.address.to_string())?;
        let service = TowerToHyperService::new(routes::router(self.app.clone()));
        let graceful = GracefulShutdown::new();
        let permits = Arc::new(Semaphore::new(self.options.limits.max_connections));
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.options.limits.header_timeout);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(self.options.limits.header_timeout));
        let following = tokio::spawn(follow(self.app.clone()));
        tokio::pin!(stop);
        loop {
            let taken = tokio::select! {
                () = &mut stop => break,
                taken = accept(&listener, &permits) => taken,
            };
            let Some((stream, permit)) = taken else { continue };
            let _ = stream.set_nodelay(true);
            let stream = WriteTimeout::new(stream, self.options.limits.timeout);
            let (builder, service, tls) = (builder.clone(), service.clone(), self.tls.clone());
            let watcher = graceful.watcher();
            let counted = Counted::new(self.app.metrics.clone());
            let head = self.options.limits.header_timeout;
            tokio::spawn(async move {
                let _held = (permit, counted);
                let served = async |io: Box<dyn Stream>| {
                    let connection = builder.serve_connection(TokioIo::new(io), service).into_owned();
                    // Ignore a connection error, because it affects only the client of this connection.
                    let _ = watcher.watch(connection).await;
                };
                match tls {
                    None => served(Box::new(stream)).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) = tokio::time::timeout(head, tls.accept(stream)).await {
                            served(Box::new(stream)).await;
                        }
                    }
                }
            });
        }
        drop(listener);
        following.abort();
        let _ = tokio::time::timeout(self.options.limits.drain_timeout, graceful.shutdown()).await;
        Ok(())
    }
}

/// Byte stream of a connection, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Guard that counts an open connection in the metrics until it is dropped.
struct Counted(Arc<Metrics>);

impl Counted {
    fn new(metrics: Arc<Metrics>) -> Self {
        metrics.connected();
        Counted(metrics)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}

/// Waits for a free permit and accepts the next connection. Returns `None` if no connection could be accepted.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = permits.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(_) => {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Regularly checks every index for changes. Each index has its own task, so an index whose engine does not
/// respond does not delay the checks of the other indexes.
async fn follow(app: App) {
    let mut all = JoinSet::new();
    for hosted in app.indexes.iter() {
        let hosted = hosted.clone();
        all.spawn(async move {
            loop {
                tokio::time::sleep(CHANGE_INTERVAL).await;
                let hosted = hosted.clone();
                let _ = tokio::task::spawn_blocking(move || hosted.follow()).await;
            }
        });
    }
    while all.join_next().await.is_some() {}
}

fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // Connections need little CPU time; expensive work runs on blocking threads.
    builder.worker_threads(2).enable_all().thread_name("serving");
    builder.build().map_err(|e| Error::unavailable(format!("cannot start threads: {e}")))
}

/// Stream that returns an error if a write makes no progress for the duration `time`.
pub(super) struct WriteTimeout<S> {
    inner: S,
    time: Duration,
    /// Deadline of the pending write, if there is one.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> WriteTimeout<S> {
    pub(super) fn new(inner: S, time: Duration) -> Self {
        WriteTimeout { inner, time, until: None }
    }

    fn with<T>(
        &mut self,
        context: &mut Context<'_>,
        step: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let done = step(Pin::new(&mut self.inner), context);
        if done.is_ready() {
            self.until = None;
            return done;
        }
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(self.time)));
        until.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(context, |inner, context| inner.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(context, |inner, context| inner.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(context, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(context, AsyncWrite::poll_shutdown)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_slow_reader_is_kept_and_a_stopped_reader_is_disconnected() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(8);
            let mut near = WriteTimeout::new(near, Duration::from_millis(200));
            let slow = async {
                let mut eight = [0; 8];
                for _ in 0..5 {
                    sleep(Duration::from_millis(80)).await;
                    far.read_exact(&mut eight).await.unwrap();
                }
            };
            // The transfer takes longer than the timeout in total, but each write makes progress within the timeout.
            let (sent, ()) = tokio::join!(near.write_all(&[7; 48]), slow);
            sent.unwrap();
            let stuck = near.write_all(&[7; 8]).await.unwrap_err();
            assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
        });
    }
}
