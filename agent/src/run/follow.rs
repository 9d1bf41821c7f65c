//! Reading logs that children write straight to disk. Children never wait for us: where a reader of ours is
//! slow, it lags behind the file.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Thread;
use std::time::Duration;

/// One file to follow from its beginning until its writer is gone.
#[derive(Debug)]
struct Job<T> {
    path: PathBuf,
    tag: T,
    over: Arc<AtomicBool>,
}

/// A thread that follows files one after the other.
#[derive(Debug)]
pub(super) struct Follower<T> {
    jobs: Option<Sender<Job<T>>>,
    thread: Option<Thread>,
    current: Option<Arc<AtomicBool>>,
    done: Receiver<()>,
}

impl<T: Copy + Send + 'static> Follower<T> {
    /// Starts the thread. `sink` gets the bytes; an empty slice says that a file is over.
    pub(super) fn start(name: &str, every: Duration, mut sink: impl FnMut(T, &[u8]) + Send + 'static) -> Self {
        let (jobs, queue) = channel::<Job<T>>();
        let (finished, done) = channel();
        let follow = move || {
            for job in queue {
                if let Ok(file) = File::open(&job.path) {
                    follow(file, &job.over, every, |bytes| sink(job.tag, bytes));
                }
                sink(job.tag, &[]);
            }
            let _ = finished.send(());
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(follow).ok();
        let thread = thread.map(|handle| handle.thread().clone());
        Self { jobs: thread.is_some().then_some(jobs), thread, current: None, done }
    }

    /// Follows a file that exists; the one before it is read to its end first.
    pub(super) fn follow(&mut self, path: PathBuf, tag: T) {
        self.end_current();
        let over = Arc::new(AtomicBool::new(false));
        self.current = Some(Arc::clone(&over));
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(Job { path, tag, over });
        }
    }

    /// The writer of the current file is gone: read to the end, then stop.
    pub(super) fn end_current(&mut self) {
        if let Some(over) = self.current.take() {
            over.store(true, Ordering::Release);
            // It may be resting between two looks: the end of a trial does not wait for that.
            if let Some(thread) = &self.thread {
                thread.unpark();
            }
        }
    }

    /// Waits for the thread to have read everything, for a bounded time; `false` if it has not.
    pub(super) fn close(&mut self, limit: Duration) -> bool {
        self.end_current();
        self.jobs = None;
        !matches!(self.done.recv_timeout(limit), Err(RecvTimeoutError::Timeout))
    }
}

fn follow(mut file: File, over: &AtomicBool, every: Duration, mut sink: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        // Asked before the read: what was written before the end is then read for certain.
        let last = over.load(Ordering::Acquire);
        loop {
            match file.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(n) => sink(&buffer[..n]),
            }
        }
        if last {
            return;
        }
        std::thread::park_timeout(every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Mutex;

    type Seen = Mutex<Vec<(u8, Vec<u8>)>>;

    #[test]
    fn files_are_read_whole_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let seen: Arc<Seen> = Arc::default();
        let copy = Arc::clone(&seen);
        let mut follower = Follower::start("t", Duration::from_millis(1), move |tag, bytes: &[u8]| {
            copy.lock().unwrap().push((tag, bytes.to_vec()));
        });
        for tag in [1, 2] {
            let path = dir.path().join(tag.to_string());
            let mut file = File::create(&path).unwrap();
            follower.follow(path, tag);
            for _ in 0..100 {
                file.write_all(b"0123456789").unwrap();
            }
        }
        assert!(follower.close(Duration::from_secs(20)));
        let seen = seen.lock().unwrap();
        for tag in [1, 2] {
            let bytes: usize = seen.iter().filter(|(t, _)| *t == tag).map(|(_, b)| b.len()).sum();
            assert_eq!(bytes, 1000, "file {tag}");
        }
        assert!(seen.iter().map(|(t, _)| *t).is_sorted());
    }
}
