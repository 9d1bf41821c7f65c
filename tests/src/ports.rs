//! Free ports for servers under test: below the ephemeral range, so that no outgoing connection takes one between
//! the choice and the bind, and locked, so that tests in other processes choose others.

use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::net::TcpListener;

/// Where the search begins; `ip_local_port_range` begins at 32768.
const FIRST: u16 = 20_000;
const LAST: u16 = 29_999;

/// A port that is ours as long as this lives.
#[derive(Debug)]
pub struct FreePort {
    number: u16,
    _lock: Flock<File>,
}

impl FreePort {
    /// Finds one.
    ///
    /// # Panics
    /// When ten thousand ports are taken.
    pub fn find() -> Self {
        let folder = std::env::temp_dir().join("ts-test-ports");
        let _ = std::fs::create_dir_all(&folder);
        // Another place to begin for each process and call: fewer collisions, and no port used again at once.
        let spread = u64::from(std::process::id()) * 7919 + rotation();
        let count = u64::from(LAST - FIRST) + 1;
        (0..count)
            .filter_map(|i| u16::try_from((spread + i) % count).ok())
            .map(|offset| FIRST + offset)
            .find_map(|number| {
                let file =
                    OpenOptions::new().create(true).truncate(false).write(true).open(folder.join(number.to_string()));
                let lock = Flock::lock(file.ok()?, FlockArg::LockExclusiveNonblock).ok()?;
                TcpListener::bind(("0.0.0.0", number)).ok()?;
                Some(Self { number, _lock: lock })
            })
            .expect("a free port")
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn rotation() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(13, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_while_they_live() {
        let ports: Vec<FreePort> = (0..50).map(|_| FreePort::find()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(FreePort::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
        assert!(ports.iter().all(|port| TcpListener::bind(("127.0.0.1", port.number())).is_ok()));
    }
}
