//! Every window, grace and root in one place, with the contract's constants as defaults (design section 4).
//!
//! They are given to the library, not to the command line; tests use short ones.

use std::path::PathBuf;
use std::time::Duration;

/// How long things may take beside what the environment says.
#[derive(Debug, Clone)]
pub struct Timings {
    /// Length of one configured second. Tests shorten every configured figure at once by it.
    pub second: Duration,
    /// First distance between two health probes.
    pub probe_first: Duration,
    /// Largest distance between two health probes.
    pub probe_slowest: Duration,
    /// One probe, from connect to the last byte of the head.
    pub probe_limit: Duration,
    /// `/health_generate`: ten attempts three seconds apart.
    pub generate_window: Duration,
    /// The generate probe's window is the rest of the readiness deadline, but at least this: a first request
    /// compiles kernels.
    pub generate_probe_min: Duration,
    /// Between two tries of the generate probe.
    pub generate_probe_pause: Duration,
    /// One try of the sampling-backend read-back.
    pub read_back_limit: Duration,
    /// Tries of the read-back.
    pub read_back_tries: u32,
    /// Between two tries of the read-back.
    pub read_back_pause: Duration,
    /// `tokenspeed version` and `tokenspeed --help`.
    pub query_limit: Duration,
    /// Between SIGTERM and SIGKILL for a bench at its own deadline.
    pub bench_kill_after: Duration,
    /// The same on a signal, a lost lease or a server exit.
    pub bench_kill_soon: Duration,
    /// How long a killed group may take to vanish before it is called a survivor.
    pub kill_wait: Duration,
    /// Between two looks at a group that is being stopped; its end is otherwise learned from its reaped members.
    pub group_poll: Duration,
    /// Between SIGTERM and SIGKILL for descendants that left their group.
    pub stray_grace: Duration,
    /// How long stdout and stderr may take to swallow what is left at the end.
    pub flush_limit: Duration,
    /// Between two samples of CPU and memory.
    pub sample_every: Duration,
    /// Between two looks at the children's logs.
    pub follow_every: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        let (ms, sec) = (Duration::from_millis, Duration::from_secs);
        Self {
            second: sec(1),
            probe_first: ms(50),
            probe_slowest: ms(100),
            probe_limit: sec(5),
            generate_window: sec(30),
            generate_probe_min: sec(120),
            generate_probe_pause: ms(250),
            read_back_limit: sec(10),
            read_back_tries: 3,
            read_back_pause: sec(3),
            query_limit: sec(2),
            bench_kill_after: sec(60),
            bench_kill_soon: sec(5),
            kill_wait: sec(10),
            group_poll: ms(20),
            stray_grace: sec(2),
            flush_limit: sec(5),
            sample_every: sec(1),
            follow_every: ms(100),
        }
    }
}

impl Timings {
    /// A configured number of seconds.
    pub fn seconds(&self, count: u64) -> Duration {
        self.second.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }
}

/// Where the system is looked at.
#[derive(Debug, Clone)]
pub struct Roots {
    /// Process file system.
    pub proc: PathBuf,
    /// Version file of ROCm.
    pub rocm_version: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), rocm_version: "/opt/rocm/.info/version".into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contract's constants (B.1 to B.4, D; design section 3a), pinned.
    #[test]
    fn constants_are_the_contracts() {
        let t = Timings::default();
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap();
        assert_eq!(
            [t.second, t.probe_first, t.probe_slowest, t.probe_limit, t.generate_window].map(ms),
            [1000, 50, 100, 5000, 30_000]
        );
        assert_eq!([t.generate_probe_min, t.generate_probe_pause].map(ms), [120_000, 250]);
        assert_eq!((ms(t.read_back_limit), t.read_back_tries, ms(t.read_back_pause)), (10_000, 3, 3000));
        assert_eq!([t.query_limit, t.bench_kill_after, t.bench_kill_soon].map(ms), [2000, 60_000, 5000]);
        assert_eq!([t.kill_wait, t.group_poll, t.stray_grace, t.flush_limit].map(ms), [10_000, 20, 2000, 5000]);
        assert_eq!([t.sample_every, t.follow_every].map(ms), [1000, 100]);
        assert_eq!(ms(t.seconds(1801)), 1_801_000);
    }
}
