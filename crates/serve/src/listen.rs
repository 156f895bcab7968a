//! Connections: taking them, not waiting for slow ones, and ending in good order.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::Semaphore,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::{App, Options, metrics::Metrics, routes, tls, write_timeout::WriteTimeout};
use turnwise_core::error::{Error, IoContext, Result};

/// How often is looked for what other processes have written.
const LOOK: Duration = Duration::from_millis(250);
/// How often is asked whether to stop.
const STOP: Duration = Duration::from_millis(50);
/// After connections could not be taken, for want of file handles, say.
const BREATH: Duration = Duration::from_millis(100);

/// A server that has its address and answers from when it is run.
pub struct Bound {
    app: App,
    options: Options,
    listener: std::net::TcpListener,
    tls: Option<TlsAcceptor>,
    /// Where it can be reached.
    pub address: SocketAddr,
}

/// Takes the address.
pub fn bind(app: App, options: Options) -> Result<Bound> {
    options.check()?;
    let tls = options.tls.as_ref().map(tls::acceptor).transpose()?;
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::AddrInUse => Error::unavailable(format!("{} is in use", options.listen)).with_hint(
            "another server listens there; take another with --port N, or --port 0 for any that is free",
        ),
        io::ErrorKind::PermissionDenied => {
            Error::unavailable(format!("{} may not be listened on", options.listen))
                .with_hint("ports below 1024 are the administrator's; take another with --port N")
        }
        _ => Error::unavailable(format!("cannot listen on {}: {e}", options.listen)),
    };
    let listener = std::net::TcpListener::bind(options.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(Bound { app, options, listener, tls, address })
}

impl Bound {
    /// Answers until it is to stop, then lets what is under way come to its end.
    pub fn run(self, stops: impl Fn() -> bool) -> Result<()> {
        let runtime = runtime()?;
        let stop = async {
            while !stops() {
                tokio::time::sleep(STOP).await;
            }
        };
        let done = runtime.block_on(self.serve(stop));
        // Work on threads of its own that nobody waits for any more ends with the process.
        runtime.shutdown_timeout(Duration::from_secs(1));
        done
    }

    async fn serve(self, stop: impl Future<Output = ()>) -> Result<()> {
        let listener = TcpListener::from_std(self.listener).at("listen on", self.address.to_string())?;
        let service = TowerToHyperService::new(routes::router(self.app.clone()));
        let graceful = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(self.options.limits.connections));
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.options.limits.head);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(self.options.limits.head));
        let following = tokio::spawn(follow(self.app.clone()));
        tokio::pin!(stop);
        loop {
            let taken = tokio::select! {
                () = &mut stop => break,
                taken = take(&listener, &room) => taken,
            };
            let Some((stream, place)) = taken else { continue };
            let _ = stream.set_nodelay(true);
            let stream = WriteTimeout::new(stream, self.options.limits.time);
            let (builder, service, tls) = (builder.clone(), service.clone(), self.tls.clone());
            let watcher = graceful.watcher();
            let counted = Counted::new(self.app.metrics.clone());
            let head = self.options.limits.head;
            tokio::spawn(async move {
                let _held = (place, counted);
                let served = async |io: Box<dyn Both>| {
                    let connection = builder.serve_connection(TokioIo::new(io), service).into_owned();
                    // What a client does to its own connection is its own affair.
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
        let _ = tokio::time::timeout(self.options.limits.drain, graceful.shutdown()).await;
        Ok(())
    }
}

/// A stream, encrypted or not.
trait Both: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Both for T {}

/// A connection that is counted as long as it is open.
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

/// The next connection, when there is room for it.
async fn take(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = room.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(_) => {
            tokio::time::sleep(BREATH).await;
            None
        }
    }
}

/// Each by itself: one that does not answer keeps nobody from seeing what changed of the others.
async fn follow(app: App) {
    let mut all = JoinSet::new();
    for hosted in app.indexes.iter() {
        let hosted = hosted.clone();
        all.spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let hosted = hosted.clone();
                let _ = tokio::task::spawn_blocking(move || hosted.follow()).await;
            }
        });
    }
    while all.join_next().await.is_some() {}
}

fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // Connections are little work; what is much runs on threads of its own.
    builder.worker_threads(2).enable_all().thread_name("serving");
    builder.build().map_err(|e| Error::unavailable(format!("cannot start threads: {e}")))
}
