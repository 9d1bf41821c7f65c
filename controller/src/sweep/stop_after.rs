//! `stop_after` of a recipe: collect events until there are enough (integration notes, section 5).

use serde_json::{Value, json};

use super::trial::Verdict;

/// Collect events until there are enough, or the cap is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopAfter {
    /// How many events are enough.
    pub events: u32,
    /// Never more trials than this.
    pub max_trials: u32,
    /// What counts as an event.
    pub event: Verdict,
}

impl StopAfter {
    /// As the recipe says it.
    pub fn to_json(self) -> Value {
        let event = match self.event {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Error => "error",
        };
        json!({"events": self.events, "max_trials": self.max_trials, "event_verdict": event})
    }

    /// Whether these trials, from the first on, are enough.
    pub fn is_met(self, verdicts: &[Verdict]) -> bool {
        self.events_in(verdicts) >= self.events as usize || verdicts.len() >= self.max_trials as usize
    }

    fn events_in(self, verdicts: &[Verdict]) -> usize {
        verdicts.iter().filter(|verdict| **verdict == self.event).count()
    }

    /// What it did, in AORTA's words.
    pub fn note(self, verdicts: &[Verdict]) -> String {
        let (events, run) = (self.events_in(verdicts), verdicts.len());
        let what =
            format!("{events} {} event(s) in {run} trial(s)", self.to_json()["event_verdict"].as_str().unwrap_or(""));
        if run >= self.max_trials as usize {
            format!("cap reached: {what}")
        } else if events >= self.events as usize {
            format!("stopped early: {what}")
        } else {
            what
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Error, Fail, Pass};

    #[test]
    fn enough_events_or_the_cap() {
        let stop = StopAfter { events: 2, max_trials: 4, event: Fail };
        for (verdicts, met, note) in [
            (&[][..], false, "0 fail event(s) in 0 trial(s)"),
            (&[Fail, Pass, Error], false, "1 fail event(s) in 3 trial(s)"),
            (&[Fail, Pass, Fail], true, "stopped early: 2 fail event(s) in 3 trial(s)"),
            (&[Pass, Pass, Pass, Pass], true, "cap reached: 0 fail event(s) in 4 trial(s)"),
            // Reached with the very last trial: the whole budget was spent.
            (&[Pass, Pass, Fail, Fail], true, "cap reached: 2 fail event(s) in 4 trial(s)"),
        ] {
            assert_eq!((stop.is_met(verdicts), stop.note(verdicts).as_str()), (met, note), "{verdicts:?}");
        }
    }
}
