//! Write timeout: disconnects clients that stop reading a response.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Stream that fails if a write makes no progress for some time.
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
            // Takes longer than the timeout in total, but each write makes progress in time.
            let (sent, ()) = tokio::join!(near.write_all(&[7; 48]), slow);
            sent.unwrap();
            let stuck = near.write_all(&[7; 8]).await.unwrap_err();
            assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
        });
    }
}
