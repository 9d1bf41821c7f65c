//! The way out to one reader of a stream: a few messages deep, and with a limit on how long a reader may
//! take nothing.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

/// Messages under way; each is at most 64 KiB and a bit.
const DEPTH: usize = 4;

/// Nothing can be sent any more: the reader left or was cut off.
#[derive(Debug)]
pub(super) struct Closed;

/// The sending end.
#[derive(Debug)]
pub(super) struct Outbox<T> {
    send: mpsc::Sender<T>,
    last: Arc<Mutex<Option<Status>>>,
    stall: Duration,
}

/// The stream that the transport pulls.
#[derive(Debug)]
pub(super) struct Outgoing<T> {
    receive: mpsc::Receiver<T>,
    last: Arc<Mutex<Option<Status>>>,
}

/// A pair.
pub(super) fn outbox<T>(stall: Duration) -> (Outbox<T>, Outgoing<T>) {
    let (send, receive) = mpsc::channel(DEPTH);
    let last = Arc::default();
    (Outbox { send, last: Arc::clone(&last), stall }, Outgoing { receive, last })
}

impl<T> Outbox<T> {
    /// Hands a message over; `Ok(false)` when the reader has taken nothing for too long.
    pub(super) async fn send(&self, message: T) -> Result<bool, Closed> {
        match tokio::time::timeout(self.stall, self.send.send(message)).await {
            Err(_) => Ok(false),
            Ok(Ok(())) => Ok(true),
            Ok(Err(_)) => Err(Closed),
        }
    }

    /// Ends the stream with an error once what is under way was read.
    pub(super) fn fail(self, status: Status) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    }

    /// Returns when the reader has left.
    pub(super) async fn closed(&self) {
        self.send.closed().await;
    }
}

impl<T> Stream for Outgoing<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.receive.poll_recv(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(message)) => Poll::Ready(Some(Ok(message))),
            Poll::Ready(None) => {
                let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
                Poll::Ready(last.map(Err))
            }
        }
    }
}
