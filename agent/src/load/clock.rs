//! One monotonic clock for the client, in nanoseconds since it was made, and the bridge from the wall clock in
//! which the kernel stamps arriving segments.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment on the client's clock, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Time since an earlier moment; zero where it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since a moment, negative when it is later.
    #[expect(clippy::cast_precision_loss, reason = "spans of a leg stay far below 2^53 ns, 104 days")]
    pub fn secs_since(self, other: Self) -> f64 {
        if self >= other { (self.0 - other.0) as f64 / 1e9 } else { -((other.0 - self.0) as f64 / 1e9) }
    }

    /// Later by a span.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

/// Nanoseconds of a span; centuries saturate.
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
    origin_wall: SystemTime,
}

impl Clock {
    /// Starts at zero now.
    pub fn start() -> Self {
        Self { origin: Instant::now(), origin_wall: SystemTime::now() }
    }

    /// Now.
    pub fn now(&self) -> Stamp {
        Stamp(nanos(self.origin.elapsed()))
    }

    /// Wall clock at zero, Unix milliseconds: the one anchor of a leg.
    pub fn wall_anchor_ms(&self) -> u64 {
        self.origin_wall.duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(0))
    }

    /// The bridge from wall-clock stamps, true as long as nobody sets the wall clock: to be renewed now and then.
    pub fn bridge(&self) -> Bridge {
        // A thread that is stopped between the two readings would build it crooked: the closest pair of a few counts.
        let tries = (0..BRIDGE_TRIES).map(|_| {
            let before = self.now();
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanos);
            let apart = self.now().0 - before.0;
            (apart, Bridge { wall_at_zero: wall.saturating_sub(before.0 + apart / 2), built: before })
        });
        let mut best: Option<(u64, Bridge)> = None;
        for (apart, bridge) in tries {
            if best.is_none_or(|(least, _)| apart < least) {
                best = Some((apart, bridge));
            }
            if apart < BRIDGE_GOOD_NS {
                break;
            }
        }
        best.map_or(Bridge { wall_at_zero: 0, built: Stamp(0) }, |(_, bridge)| bridge)
    }
}

/// Readings of both clocks that are made at most for one bridge.
const BRIDGE_TRIES: usize = 5;
/// Readings this close to each other are good enough, nanoseconds.
const BRIDGE_GOOD_NS: u64 = 2_000;

/// Turns Unix time into [`Stamp`]s.
#[derive(Debug, Clone, Copy)]
pub struct Bridge {
    wall_at_zero: u64,
    /// When.
    pub built: Stamp,
}

impl Bridge {
    /// The moment of a wall-clock stamp, nanoseconds since the Unix epoch.
    pub fn stamp(&self, wall_ns: u64) -> Stamp {
        Stamp(wall_ns.saturating_sub(self.wall_at_zero))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_keep_their_sign() {
        assert!((Stamp(1_500_000_000).secs_since(Stamp(500_000_000)) - 1.0).abs() < 1e-12);
        assert!((Stamp(0).secs_since(Stamp(500_000_000)) + 0.5).abs() < 1e-12);
        assert_eq!(Stamp(1).since(Stamp(2)), Duration::ZERO);
    }

    #[test]
    fn bridge_meets_the_monotonic_clock() {
        let clock = Clock::start();
        let before = clock.now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanos);
        let at = clock.bridge().stamp(wall);
        let after = clock.now();
        let slack = Duration::from_millis(50);
        assert!(at.after(slack) >= before && at <= after.after(slack), "{before:?} {at:?} {after:?}");
    }
}
