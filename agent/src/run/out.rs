//! What the trial says: markers to stdout and to their file, behind a queue that never blocks the supervisor.
//!
//! A reader that pauses or goes away, and a disk that is full, change nothing about the trial; what could
//! not be written is counted.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use proto::marker::Marker;

use super::child::create_log;

/// Texts that stdout may lag behind before some are lost.
const QUEUE: usize = 8192;

/// The markers file and stdout.
#[derive(Debug)]
pub(super) struct Out {
    file: Option<File>,
    queue: Option<SyncSender<Vec<u8>>>,
    done: Receiver<()>,
    lost: u64,
}

impl Out {
    /// Opens the markers file and starts the writer of stdout. The error is the file's; stdout goes on without it.
    pub(super) fn open(markers: &Path) -> (Self, Option<std::io::Error>) {
        let (file, error) = match create_log(markers) {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error)),
        };
        let (queue, texts) = sync_channel::<Vec<u8>>(QUEUE);
        let (finished, done) = sync_channel(1);
        let write = move || {
            let mut stdout = std::io::stdout();
            for text in texts {
                // Once the reader is gone every write fails; the queue must be drained all the same.
                let _ = stdout.write_all(&text).and_then(|()| stdout.flush());
            }
            let _ = finished.send(());
        };
        let started = std::thread::Builder::new().name("stdout".into()).spawn(write).is_ok();
        (Self { file, queue: started.then_some(queue), done, lost: 0 }, error)
    }

    /// Says a marker: to the file first, since the file is what decides.
    pub(super) fn say(&mut self, marker: &Marker) -> Result<(), std::io::Error> {
        let line = format!("{}\n", one_line(&marker.to_string())).into_bytes();
        let written = match &mut self.file {
            Some(file) if marker.is_recorded() => file.write_all(&line),
            Some(_) | None => Ok(()),
        };
        self.raw(line);
        written
    }

    /// Text for people, stdout only.
    pub(super) fn raw(&mut self, text: Vec<u8>) {
        if let Some(queue) = &self.queue {
            match queue.try_send(text) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => {}
                Err(TrySendError::Full(_)) => self.lost += 1,
            }
        }
    }

    /// Texts that stdout was too slow for.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Waits until stdout has taken everything, for a bounded time.
    pub(super) fn close(&mut self, limit: Duration) {
        if self.queue.take().is_some() {
            let _ = self.done.recv_timeout(limit);
        }
    }
}

/// A marker is one line whatever was quoted in it.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
