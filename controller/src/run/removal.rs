//! Removing what a trial left and proving that it is gone (contract G.4 and G.5; failure scenarios FS-09 to FS-14).
//! Nothing is inferred from an exit status: absence is what a query says, and not knowing is an answer of its own.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::runtime::{Look, RemoveAnswer, Runtime};
use super::timings::{PASSES_UNREAPED, Timings};
use crate::result::observed::Removal;

/// How thorough a removal has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Orders to remove, at least.
    pub passes: u32,
    /// Looks in a row that find nothing, at least.
    pub absences: u32,
    /// Whether something foreign may bear our name, so that a look must come before the first order.
    pub look_first: bool,
}

impl Pace {
    /// The client exited by itself: nothing can create the container any more.
    pub const CLEAN: Self = Self { passes: 1, absences: 1, look_first: false };

    /// What is known about the client decides.
    ///
    /// `reaped`: it is gone for certain. `clean`: it ended by itself. `seen`: the container was there at least once. A
    /// daemon may still be creating what a killed client had asked for, so absence must hold twice, and three times
    /// where nobody ever saw the container (FS-09, FS-18).
    pub const fn of(reaped: bool, clean: bool, seen: bool) -> Self {
        let passes = if reaped { 1 } else { PASSES_UNREAPED };
        let absences = match (reaped && clean, seen) {
            (true, true) => 1,
            (false, true) => 2,
            (_, false) => 3,
        };
        Self { passes, absences, look_first: !seen }
    }
}

/// What a removal found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether absence was proven.
    pub removal: Removal,
    /// Something of another owner bears our name; it was left alone.
    pub foreign: bool,
    /// The first look found our container running.
    pub found_running: bool,
    /// A look found our container at all.
    pub was_there: bool,
}

/// Removes until absence is proven or the deadline passes. The deadline may move while this runs.
pub async fn remove(
    runtime: &dyn Runtime,
    pace: Pace,
    mut deadline: watch::Receiver<Instant>,
    timings: &Timings,
) -> Outcome {
    let mut attempt =
        Attempt { runtime, pace, timings, ordered: 0, absences: 0, last: String::new(), found: None, was_there: false };
    let removal = loop {
        let until = *deadline.borrow_and_update();
        tokio::select! {
            biased;
            done = attempt.run(until) => break done,
            // Starts over with less time; what was counted stays counted.
            Ok(()) = deadline.changed() => {}
        }
    };
    let (found_running, was_there) = (attempt.found == Some(true), attempt.was_there);
    let (removal, foreign) = match removal {
        Some(foreign) => (Removal::Proven, foreign),
        None => (Removal::NotProven { detail: attempt.last, command: runtime.by_hand() }, false),
    };
    Outcome { removal, foreign, found_running, was_there }
}

struct Attempt<'a> {
    runtime: &'a dyn Runtime,
    pace: Pace,
    timings: &'a Timings,
    ordered: u32,
    absences: u32,
    /// Last words of the runtime that explain why there is no proof.
    last: String,
    found: Option<bool>,
    was_there: bool,
}

impl Attempt<'_> {
    /// `Some(foreign)` once absence is proven, `None` at the deadline.
    async fn run(&mut self, until: Instant) -> Option<bool> {
        let mut id: Option<String> = None;
        let mut must_look = self.pace.look_first;
        let mut next_order = Instant::now();
        loop {
            if Instant::now() >= until {
                return None;
            }
            if !must_look && (self.ordered < self.pace.passes || id.is_some()) && Instant::now() >= next_order {
                self.order(id.as_deref(), until).await;
                next_order = Instant::now() + self.timings.remove_spacing;
            }
            must_look = false;
            let limit = until.saturating_duration_since(Instant::now()).min(self.timings.query_call);
            match self.runtime.look(limit).await {
                Look::Absent => {
                    id = None;
                    self.found.get_or_insert(false);
                    self.absences += 1;
                    if self.ordered >= self.pace.passes && self.absences >= self.pace.absences {
                        return Some(false);
                    }
                }
                Look::Foreign { id: theirs } => {
                    tracing::warn!("a container of somebody else bears our name ({theirs}); it is left alone");
                    return Some(true);
                }
                Look::Ours { id: ours, running } => {
                    self.found.get_or_insert(running);
                    self.absences = 0;
                    self.was_there = true;
                    if self.last.is_empty() {
                        self.last = format!("it is still there ({ours})");
                    }
                    if id.replace(ours).is_none() && self.ordered > 0 {
                        // It came after the last order: no reason to wait.
                        next_order = Instant::now();
                        continue;
                    }
                }
                Look::Unknown { why } => {
                    self.absences = 0;
                    self.last = format!("nobody could say whether it is there: {why}");
                }
            }
            self.pause(id.is_some(), next_order, until).await;
        }
    }

    async fn order(&mut self, id: Option<&str>, until: Instant) {
        self.ordered += 1;
        let limit = until.saturating_duration_since(Instant::now()).min(self.timings.remove_call);
        match self.runtime.remove(id, limit).await {
            RemoveAnswer::Accepted => tracing::info!("removal accepted"),
            RemoveAnswer::NoSuch => tracing::debug!("no such container: it was gone already"),
            RemoveAnswer::InProgress => tracing::debug!("removal is already in progress"),
            RemoveAnswer::Failed { code, words } => {
                let code = code.map_or_else(|| "no exit status".to_owned(), |c| format!("exit {c}"));
                tracing::warn!("removal failed ({code}): {words}; by hand: {}", self.runtime.by_hand());
                self.last = format!("{code}: {words}");
            }
        }
    }

    /// Until the next order or look makes sense, but not beyond the deadline.
    async fn pause(&self, present: bool, next_order: Instant, until: Instant) {
        let look = Instant::now() + self.timings.look_spacing;
        let wanted = if !present && self.ordered < self.pace.passes { next_order.max(look) } else { look };
        tokio::time::sleep_until(wanted.min(until)).await;
    }
}

/// A deadline that can be moved.
pub fn deadline(after: Duration) -> (watch::Sender<Instant>, watch::Receiver<Instant>) {
    watch::channel(Instant::now() + after)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::BoxFuture;

    use super::*;

    /// A runtime that follows a script and notes its orders with their time since the start.
    #[derive(Debug)]
    struct Scripted {
        looks: Mutex<Vec<Look>>,
        answers: Mutex<Vec<RemoveAnswer>>,
        orders: Mutex<Vec<(Option<String>, Duration)>>,
        started: Instant,
    }

    impl Scripted {
        /// The last look and the last answer repeat for ever.
        fn new(looks: &[Look], answers: &[RemoveAnswer]) -> Self {
            let reversed = |n: &[Look]| n.iter().rev().cloned().collect();
            Self {
                looks: Mutex::new(reversed(looks)),
                answers: Mutex::new(answers.iter().rev().cloned().collect()),
                orders: Mutex::default(),
                started: Instant::now(),
            }
        }

        fn orders(&self) -> Vec<(Option<String>, u128)> {
            self.orders.lock().unwrap().iter().map(|(id, at)| (id.clone(), at.as_millis())).collect()
        }
    }

    fn next<T: Clone>(list: &Mutex<Vec<T>>) -> T {
        let mut list = list.lock().unwrap();
        if list.len() > 1 { list.pop().unwrap() } else { list[0].clone() }
    }

    impl Runtime for Scripted {
        fn look(&self, _limit: Duration) -> BoxFuture<'_, Look> {
            Box::pin(async { next(&self.looks) })
        }
        fn remove<'a>(&'a self, id: Option<&'a str>, limit: Duration) -> BoxFuture<'a, RemoveAnswer> {
            self.orders.lock().unwrap().push((id.map(str::to_owned), self.started.elapsed()));
            Box::pin(async move {
                let answer = next(&self.answers);
                if matches!(answer, RemoveAnswer::Failed { code: None, .. }) {
                    // Hangs as long as it is allowed to.
                    tokio::time::sleep(limit).await;
                }
                answer
            })
        }
        fn by_hand(&self) -> String {
            "docker rm -f t-1".into()
        }
    }

    fn ours() -> Look {
        Look::Ours { id: "abc".into(), running: true }
    }

    async fn run(runtime: &Scripted, pace: Pace, after: Duration) -> Outcome {
        let (_keep, until) = deadline(after);
        remove(runtime, pace, until, &Timings::default()).await
    }

    const LONG: Duration = Duration::from_secs(190);

    #[tokio::test(start_paused = true)]
    async fn clean_run_orders_once_row_214() {
        let runtime = Scripted::new(&[Look::Absent], &[RemoveAnswer::NoSuch]);
        let outcome = run(&runtime, Pace::CLEAN, LONG).await;
        assert_eq!(outcome.removal, Removal::Proven);
        assert_eq!(runtime.orders(), [(None, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn unreaped_client_three_orders_a_second_apart_row_216() {
        let runtime = Scripted::new(&[Look::Absent], &[RemoveAnswer::NoSuch]);
        let outcome = run(&runtime, Pace::of(false, false, true), LONG).await;
        assert_eq!(outcome.removal, Removal::Proven);
        assert_eq!(runtime.orders().iter().map(|o| o.1).collect::<Vec<_>>(), [0, 1000, 2000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_that_comes_late_is_removed_fs09() {
        let late = [Look::Absent, Look::Absent, ours(), Look::Absent];
        let runtime = Scripted::new(&late, &[RemoveAnswer::Accepted]);
        let outcome = run(&runtime, Pace::of(true, false, false), LONG).await;
        assert_eq!(outcome.removal, Removal::Proven);
        let orders = runtime.orders();
        assert_eq!(orders[0].0, None);
        assert_eq!(orders.last().unwrap().0.as_deref(), Some("abc"), "removed by id: {orders:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn removal_in_progress_is_waited_for_fs10() {
        let looks = [ours(), ours(), Look::Absent];
        let runtime = Scripted::new(&looks, &[RemoveAnswer::InProgress]);
        assert_eq!(run(&runtime, Pace::CLEAN, LONG).await.removal, Removal::Proven);
        let stuck = Scripted::new(&[ours()], &[RemoveAnswer::InProgress]);
        let outcome = run(&stuck, Pace::CLEAN, Duration::from_secs(30)).await;
        assert!(matches!(outcome.removal, Removal::NotProven { .. }), "{outcome:?}");
        assert!(outcome.found_running);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_with_our_name_is_left_alone_fs11() {
        let runtime = Scripted::new(&[Look::Foreign { id: "x".into() }], &[RemoveAnswer::Accepted]);
        let outcome = run(&runtime, Pace::of(true, true, false), LONG).await;
        assert!(outcome.foreign);
        assert_eq!(runtime.orders(), []);
    }

    /// FS-09.
    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_refuses_is_no_proof_row_217_fs14() {
        let refused = RemoveAnswer::Failed { code: Some(1), words: "Cannot connect to the Docker daemon".into() };
        let runtime = Scripted::new(&[ours()], &[refused]);
        let outcome = run(&runtime, Pace::CLEAN, Duration::from_secs(5)).await;
        let Removal::NotProven { detail, command } = outcome.removal else { panic!("{outcome:?}") };
        assert!(detail.contains("exit 1") && detail.contains("Cannot connect"), "{detail}");
        assert_eq!(command, "docker rm -f t-1");
        let unknown = Scripted::new(&[Look::Unknown { why: "no daemon".into() }], &[RemoveAnswer::Accepted]);
        let outcome = run(&unknown, Pace::CLEAN, Duration::from_secs(5)).await;
        assert!(matches!(outcome.removal, Removal::NotProven { .. }), "exit 0 alone proves nothing: {outcome:?}");
    }

    /// FS-14.
    #[tokio::test(start_paused = true)]
    async fn a_signal_shortens_a_removal_that_hangs() {
        let hung = RemoveAnswer::Failed { code: None, words: "no answer".into() };
        let runtime = Scripted::new(&[ours()], &[hung]);
        let (hurry, until) = deadline(LONG);
        let started = Instant::now();
        let timings = Timings::default();
        let (outcome, ()) = tokio::join!(remove(&runtime, Pace::CLEAN, until, &timings), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            hurry.send(Instant::now() + Duration::from_secs(2)).unwrap();
        });
        assert!(matches!(outcome.removal, Removal::NotProven { .. }));
        assert_eq!(started.elapsed(), Duration::from_secs(3));
    }
}
