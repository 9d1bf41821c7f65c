//! Which benchmark step a process or a request belongs to, from the names that the contract gives them (D.2).

use super::script::{Step, StepKind};

/// The step in a bench label (`bench-step3`, `bench-warmup-step1`).
pub fn of_label(label: &str) -> Option<Step> {
    let (prefix, number) = label.rsplit_once("-step")?;
    Some(Step { kind: kind(prefix)?, number: number.parse().ok()? })
}

/// The step in an export's name (`bench.<token>.step3.json`).
pub fn of_export(path: &str) -> Option<Step> {
    let name = path.rsplit('/').next()?;
    let (prefix, rest) = name.split_once('.')?;
    let (_, number) = rest.strip_suffix(".json")?.rsplit_once("step")?;
    Some(Step { kind: kind(prefix)?, number: number.parse().ok()? })
}

fn kind(prefix: &str) -> Option<StepKind> {
    match prefix {
        "bench" => Some(StepKind::Measured),
        "bench-warmup" => Some(StepKind::Warmup),
        _ => None,
    }
}

/// Follows the steps through `x-request-id`.
///
/// The tool glues the index to the prefix (`aorta-<token>-bench-s1` + `0`), so `s110` is step 1 or step 11: which of
/// them, only the order of the steps tells.
#[derive(Debug, Default)]
pub struct StepTracker {
    current: Option<Step>,
}

impl StepTracker {
    /// The step of a request, if its id names one.
    pub fn of_request(&mut self, id: &str) -> Option<Step> {
        let (head, digits) = id.rsplit_once("-s")?;
        let kind = if head.ends_with("-bench-warmup") {
            StepKind::Warmup
        } else if head.ends_with("-bench") {
            StepKind::Measured
        } else {
            return None;
        };
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let current = self.current.filter(|step| step.kind == kind).map_or(0, |step| step.number);
        let fits = |number: u32| {
            let index = digits.strip_prefix(&number.to_string())?;
            (index == "0" || (!index.is_empty() && !index.starts_with('0'))).then_some(number)
        };
        let first_index = || digits.strip_suffix('0')?.parse().ok();
        let number =
            (current > 0).then(|| fits(current)).flatten().or_else(|| fits(current + 1)).or_else(first_index)?;
        let step = Step { kind, number };
        self.current = Some(step);
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_exports() {
        let measured = |number| Some(Step { kind: StepKind::Measured, number });
        assert_eq!(of_label("bench-step3"), measured(3));
        assert_eq!(of_label("bench-warmup-step12"), Some(Step { kind: StepKind::Warmup, number: 12 }));
        assert_eq!(of_label("something else"), None);
        assert_eq!(of_export("/out/bench.tok.en-1.step10.json"), measured(10));
        assert_eq!(of_export("out.json"), None);
    }

    #[test]
    fn request_ids_of_many_steps_in_a_row() {
        let mut tracker = StepTracker::default();
        for (kind, prefix) in [(StepKind::Warmup, "bench-warmup"), (StepKind::Measured, "bench")] {
            for number in 1..=23 {
                for index in 0..150 {
                    let id = format!("aorta-t-s9-{prefix}-s{number}{index}");
                    assert_eq!(tracker.of_request(&id), Some(Step { kind, number }), "{id}");
                }
            }
        }
        assert_eq!(tracker.of_request("bench-17"), None);
    }
}
