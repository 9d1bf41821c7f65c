//! The kept inputs of every fuzz target, run by the ordinary tests: seeds, what coverage found, and what once broke one.

#[path = "../fuzz/src/targets.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

/// All inputs of one target together; each takes well under a millisecond.
const DEADLINE: Duration = Duration::from_mins(1);

#[test]
fn every_kept_input_holds() {
    for (name, target) in targets::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let mut files: Vec<_> = folder.read_dir().expect(name).map(|entry| entry.expect(name).path()).collect();
        files.sort();
        assert!(files.len() >= 10, "{name} has {} inputs", files.len());
        let (done, finished) = channel();
        std::thread::spawn(move || {
            for file in files {
                let input = std::fs::read(&file).expect("an input");
                let broken = catch_unwind(AssertUnwindSafe(|| target(&input))).is_err();
                if done.send((file, broken)).is_err() {
                    return;
                }
            }
        });
        loop {
            match finished.recv_timeout(DEADLINE) {
                Ok((file, broken)) => assert!(!broken, "{name} breaks at {}", file.display()),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{name} hangs at the next input"),
            }
        }
    }
}
