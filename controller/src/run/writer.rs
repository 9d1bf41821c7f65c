//! The document's writer: a thread of its own, so that a hanging disk delays neither a signal nor a removal.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::result::document::Document;
use crate::result::store::ResultTarget;

/// Takes documents in order; the thread ends with its handle.
#[derive(Debug)]
pub struct Writer {
    queue: mpsc::Sender<Order>,
}

#[derive(Debug)]
struct Order {
    document: Document,
    last: bool,
    done: oneshot::Sender<io::Result<()>>,
}

impl Writer {
    /// Starts the thread.
    pub fn start(target: ResultTarget) -> io::Result<Self> {
        let (queue, orders) = mpsc::channel::<Order>();
        thread::Builder::new().name("result".into()).spawn(move || {
            for order in orders {
                let _ = order.done.send(target.write(&order.document, order.last));
            }
        })?;
        Ok(Self { queue })
    }

    /// Hands a document over and does not wait; a failure is logged when it shows.
    pub fn write(&self, document: Document) {
        let (done, written) = oneshot::channel();
        if self.queue.send(Order { document, last: false, done }).is_ok() {
            tokio::spawn(async move {
                if let Ok(Err(error)) = written.await {
                    tracing::warn!("the result document could not be written: {error}");
                }
            });
        }
    }

    /// Hands the last document over and waits for the disk, at most the limit.
    pub async fn finish(&self, document: Document, limit: Duration) -> io::Result<()> {
        let (done, written) = oneshot::channel();
        self.queue.send(Order { document, last: true, done }).map_err(|_| io::Error::other("the writer is gone"))?;
        match tokio::time::timeout(limit, written).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(io::Error::other("the writer is gone")),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the disk did not answer in time")),
        }
    }
}
