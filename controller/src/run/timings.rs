//! Every wait of a run and every root it reads from, in one struct: the defaults are the contract's constants, tests
//! give shorter ones. Given to the library, never to the command line (design section 4).

use std::path::PathBuf;
use std::time::Duration;

/// Waits and bounds of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// SIGTERM to SIGKILL for the client, outside the signal path (contract G.4).
    pub client_grace: Duration,
    /// SIGKILL to giving up on reaping the client, outside the signal path (contract G.4).
    pub client_kill_wait: Duration,
    /// Draining the pipes of a client that is gone (contract G.4).
    pub drain: Duration,
    /// One `rm -f` (contract G.5).
    pub remove_call: Duration,
    /// Between removal passes (contract G.5).
    pub remove_spacing: Duration,
    /// All of a removal with its proofs, outside the signal path.
    pub remove_total: Duration,
    /// One query of the container.
    pub query_call: Duration,
    /// Between two looks at a container that is going, or that may still be coming.
    pub look_spacing: Duration,
    /// A client that lives on although its container is gone (failure scenario FS-03).
    pub hung_client: Duration,
    /// GPU memory: between samples (contract G.7).
    pub gpu_poll: Duration,
    /// GPU memory: longest wait (contract G.7).
    pub gpu_wait: Duration,
    /// GPU memory: growth that counts as held, bytes (contract G.7).
    pub gpu_held_bytes: u64,
    /// Signal path, from the signal: client killed (design section 6).
    pub signal_kill: Duration,
    /// Signal path, from the kill: client reaped or given up.
    pub signal_reap: Duration,
    /// Signal path, from the signal: end of removal and proof.
    pub signal_remove: Duration,
    /// Signal path, from the signal: default disposition restored, signal raised again.
    pub signal_death: Duration,
    /// Life of the detached helper (design section 6).
    pub helper: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            client_grace: Duration::from_secs(5),
            client_kill_wait: Duration::from_secs(5),
            drain: Duration::from_secs(5),
            remove_call: Duration::from_mins(1),
            remove_spacing: Duration::from_secs(1),
            remove_total: Duration::from_secs(190),
            query_call: Duration::from_secs(20),
            look_spacing: Duration::from_millis(400),
            hung_client: Duration::from_secs(10),
            gpu_poll: Duration::from_secs(5),
            gpu_wait: Duration::from_mins(5),
            gpu_held_bytes: 8 << 30,
            signal_kill: Duration::from_millis(1500),
            signal_reap: Duration::from_millis(300),
            signal_remove: Duration::from_millis(3600),
            signal_death: Duration::from_millis(3900),
            helper: Duration::from_mins(3),
        }
    }
}

/// How often a container is removed when its client could not be reaped (contract G.4).
pub const PASSES_UNREAPED: u32 = 3;

/// Where the host is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// `/sys`
    pub sysfs: PathBuf,
    /// `/dev/kfd`: there is a GPU that may be used
    pub kfd: PathBuf,
    /// Registry of living trials; `None` is the place of design section 6.
    pub registry: Option<PathBuf>,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sysfs: PathBuf::from("/sys"), kfd: PathBuf::from("/dev/kfd"), registry: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract G.4, G.5, G.7 and design section 6, figure by figure.
    #[test]
    fn constants_are_the_contracts() {
        let t = Timings::default();
        let ms = |d: Duration| d.as_millis();
        assert_eq!([ms(t.client_grace), ms(t.client_kill_wait), ms(t.drain)], [5000, 5000, 5000]);
        assert_eq!([ms(t.remove_call), ms(t.remove_spacing)], [60_000, 1000]);
        assert_eq!(PASSES_UNREAPED, 3);
        assert_eq!([ms(t.gpu_poll), ms(t.gpu_wait)], [5000, 300_000]);
        assert_eq!(t.gpu_held_bytes, 8 * 1024 * 1024 * 1024);
        assert_eq!([ms(t.signal_kill), ms(t.signal_reap)], [1500, 300]);
        assert_eq!([ms(t.signal_remove), ms(t.signal_death), ms(t.helper)], [3600, 3900, 180_000]);
        // Three bounded calls and the pauses between them fit into the whole.
        assert!(t.remove_total >= t.remove_call * PASSES_UNREAPED + t.remove_spacing * 2);
        let roots = Roots::default();
        assert_eq!((roots.sysfs, roots.kfd), (PathBuf::from("/sys"), PathBuf::from("/dev/kfd")));
    }
}
