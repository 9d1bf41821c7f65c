//! When to ask whether the container is still there: a lost status stream or the agent's last word decides nothing, it
//! is a reason to ask, and to ask again until the stream is back or the container is gone (design section 5; failure
//! scenarios FS-03, FS-08). Pure: the clock is an argument.

use std::time::{Duration, Instant};

/// Between the first questions.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// Between questions in the long run: a measurement may be under way.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Whether somebody should be asked.
#[derive(Debug, Default)]
pub struct Doubt {
    /// The next question may be asked from here on; `None` while nothing is in doubt.
    due: Option<Instant>,
    last: Option<Instant>,
    pause: Duration,
    asking: bool,
}

impl Doubt {
    /// There is a reason to ask; another one while there is one changes nothing.
    pub fn raise(&mut self, now: Instant) {
        if self.due.is_none() {
            self.pause = PAUSE_MIN;
            self.due = Some(self.last.map_or(now, |last| (last + PAUSE_MIN).max(now)));
        }
    }

    /// The agent has been heard.
    pub fn settle(&mut self) {
        self.due = None;
    }

    /// Whether to ask now; if so it counts as asked.
    pub fn ask(&mut self, now: Instant) -> bool {
        if self.asking || self.due.is_none_or(|due| now < due) {
            return false;
        }
        self.asking = true;
        self.last = Some(now);
        self.due = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }

    /// An answer came that left the question open.
    pub fn answered(&mut self) {
        self.asking = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds at which it is asked when it is looked at four times a second.
    fn asked(doubt: &mut Doubt, from: Instant, seconds: u64) -> Vec<u64> {
        let ticks = (0..seconds * 4).map(|n| Duration::from_millis(n * 250));
        let asks = ticks.filter(|after| {
            let asks = doubt.ask(from + *after);
            doubt.answered();
            asks
        });
        asks.map(|after| after.as_secs()).collect()
    }

    /// FS-03, FS-08: a container that is still going when first asked for is asked for again.
    #[test]
    fn it_asks_until_it_is_settled() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        assert_eq!(asked(&mut doubt, now, 60), [0_u64; 0]);
        doubt.raise(now);
        assert_eq!(asked(&mut doubt, now, 100), [0, 2, 6, 14, 30, 60, 90]);
        doubt.raise(now);
        doubt.settle();
        assert_eq!(asked(&mut doubt, now, 60), [0_u64; 0]);
        // Soon after the last question: not at once.
        doubt.raise(now + Duration::from_secs(91));
        assert_eq!(asked(&mut doubt, now, 100), [92, 94, 98]);
    }

    #[test]
    fn one_question_at_a_time() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        doubt.raise(now);
        assert!(doubt.ask(now));
        assert!(!doubt.ask(now + PAUSE_MAX), "the answer is still to come");
        doubt.answered();
        assert!(doubt.ask(now + PAUSE_MAX));
    }
}
