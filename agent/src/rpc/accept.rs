//! Connections, at most [`CONNECTIONS`] at a time; a failing accept waits instead of spinning.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::socket;

/// Further clients wait until one leaves.
const CONNECTIONS: usize = 256;

/// Starts to accept; ends when the stream is dropped.
pub(super) fn incoming(listener: socket::Listener) -> io::Result<ReceiverStream<io::Result<Connection>>> {
    let listener = match listener {
        socket::Listener::Unix(listener) => Listener::Unix(UnixListener::from_std(listener)?),
        socket::Listener::Tcp(listener) => Listener::Tcp(TcpListener::from_std(listener)?),
    };
    let (send, receive) = mpsc::channel(1);
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    tokio::spawn(async move {
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = send.closed() => return,
            };
            match accepted {
                Ok(io) => {
                    if send.send(Ok(Connection { io, _permit: permit })).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection to the status service could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok(ReceiverStream::new(receive))
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Io> {
        match self {
            Self::Unix(listener) => Ok(Io::Unix(listener.accept().await?.0)),
            Self::Tcp(listener) => {
                let stream = listener.accept().await?.0;
                stream.set_nodelay(true)?;
                Ok(Io::Tcp(stream))
            }
        }
    }
}

/// One client.
#[derive(Debug)]
pub(super) struct Connection {
    io: Io,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Io {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Connected for Connection {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

/// The same call on either kind.
macro_rules! either {
    ($self:ident, $io:ident => $call:expr) => {
        match &mut $self.get_mut().io {
            Io::Unix($io) => $call,
            Io::Tcp($io) => $call,
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, io => Pin::new(io).poll_read(cx, buf))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, io => Pin::new(io).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, io => Pin::new(io).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, io => Pin::new(io).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Unix(io) => io.is_write_vectored(),
            Io::Tcp(io) => io.is_write_vectored(),
        }
    }
}
