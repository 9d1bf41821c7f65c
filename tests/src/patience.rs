//! Waiting for a condition: never a sleep that hopes, always a deadline that slow machines can raise.

use std::time::{Duration, Instant};

/// Between two looks at a condition.
const LOOK: Duration = Duration::from_millis(10);

/// How long a test waits for something that must happen; `TS_TEST_PATIENCE` gives other seconds.
pub fn patience() -> Duration {
    let given = std::env::var("TS_TEST_PATIENCE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(30))
}

/// Looks until there is something.
///
/// # Panics
/// When [`patience`] is at its end; the message names what was waited for.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_or(what, patience(), look)
}

/// Looks until there is something, for so long at most.
///
/// # Panics
/// When the time is over; the message names what was waited for.
pub fn until_or<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        std::thread::sleep(LOOK);
    }
}
