//! The store behind every view: numbered events kept, samples and log lines in bounded rings.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use proto::event::{Event, EventBody, Step};
use tokio::sync::watch;

/// Whose output a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogSource {
    /// `tokenspeed serve`.
    Server,
    /// One bench step.
    Bench(Step),
}

impl LogSource {
    /// `server`, `bench` or `bench-warmup`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Bench(step) => match step.kind {
                proto::event::StepKind::Measured => "bench",
                proto::event::StepKind::Warmup => "bench-warmup",
            },
        }
    }
}

/// One line of a child's output, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Counts log lines of this trial from 1.
    pub number: u64,
    /// Milliseconds since the agent started.
    pub at_ms: u64,
    /// Whose.
    pub source: LogSource,
    /// Without the newline, at most [`Limits::line_bytes`].
    pub bytes: Vec<u8>,
}

/// What a watcher gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A numbered event.
    Event(Arc<Event>),
    /// A log line.
    Log(Arc<LogLine>),
    /// Log lines that this watcher was too slow for.
    LogsMissed(u64),
}

/// Bounds of the store.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Log lines kept.
    pub log_lines: usize,
    /// Bytes of log lines kept.
    pub log_bytes: usize,
    /// Longest log line; longer ones are split.
    pub line_bytes: usize,
    /// Log lines taken per second; the rest is counted.
    pub lines_per_sec: u32,
    /// Resource samples kept.
    pub samples: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { log_lines: 4000, log_bytes: 1 << 20, line_bytes: 4096, lines_per_sec: 2000, samples: 900 }
    }
}

/// The hub. Clones share one store.
#[derive(Debug, Clone)]
pub struct EventHub {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    limits: Limits,
    store: Mutex<Store>,
    /// Counts changes; watchers wait for it to move.
    changed: watch::Sender<u64>,
    /// Counts events only, so that lines wake nobody who does not want them.
    events_changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Store {
    events: VecDeque<Arc<Event>>,
    last_seq: u64,
    samples: usize,
    logs: VecDeque<Arc<LogLine>>,
    log_bytes: usize,
    last_log: u64,
    /// Second in which lines are being counted, lines taken in it.
    rate: (u64, u32),
    /// Lines refused and not yet reported: whose, how many.
    refused: Option<(LogSource, u64)>,
    closed: bool,
}

impl EventHub {
    /// An empty hub whose clock starts now.
    pub fn new(limits: Limits) -> Self {
        Self::starting_at(Instant::now(), limits)
    }

    /// An empty hub with a given start of its clock.
    pub fn starting_at(start: Instant, limits: Limits) -> Self {
        let shared = Shared {
            start,
            limits,
            store: Mutex::default(),
            changed: watch::Sender::new(0),
            events_changed: watch::Sender::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Milliseconds since the agent started, monotonic.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.shared.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The clock's start.
    pub fn started(&self) -> Instant {
        self.shared.start
    }

    /// Numbers an event and shows it to everybody. Never waits for a watcher.
    pub fn emit(&self, body: EventBody) -> u64 {
        let at_ms = self.now_ms();
        let seq = {
            let mut store = self.shared.lock();
            store.push(at_ms, body, &self.shared.limits)
        };
        self.shared.wake_all();
        seq
    }

    /// Shows a log line, or counts it where there are too many.
    pub fn log(&self, source: LogSource, bytes: &[u8]) {
        let at_ms = self.now_ms();
        let overrun = {
            let limits = &self.shared.limits;
            let mut store = self.shared.lock();
            let second = at_ms / 1000;
            let mut overrun = false;
            if store.rate.0 != second {
                store.rate = (second, 0);
                overrun = store.report_refused(at_ms, limits);
            }
            if store.rate.1 >= limits.lines_per_sec {
                if store.refused.is_some_and(|(whose, _)| whose != source) {
                    store.report_refused(at_ms, limits);
                }
                store.refused.get_or_insert((source, 0)).1 += 1;
                return;
            }
            store.rate.1 += 1;
            store.last_log += 1;
            let line = LogLine {
                number: store.last_log,
                at_ms,
                source,
                bytes: bytes[..bytes.len().min(limits.line_bytes)].to_vec(),
            };
            store.log_bytes += line.bytes.len();
            store.logs.push_back(Arc::new(line));
            while store.logs.len() > limits.log_lines || store.log_bytes > limits.log_bytes {
                let Some(old) = store.logs.pop_front() else { break };
                store.log_bytes -= old.bytes.len();
            }
            overrun
        };
        if overrun {
            self.shared.wake_all();
        } else {
            self.shared.wake();
        }
    }

    /// No event will follow: watchers end once they have seen everything.
    pub fn close(&self) {
        let at_ms = self.now_ms();
        {
            let mut store = self.shared.lock();
            store.report_refused(at_ms, &self.shared.limits);
            store.closed = true;
        }
        self.shared.wake_all();
    }

    /// Follows the trial from event `from_seq` (0 and 1: from the start). Old log lines that are still
    /// kept come along, but none from before the event where a resumed watcher stopped.
    pub fn subscribe(&self, from_seq: u64) -> Subscription {
        let changed = self.shared.changed.subscribe();
        let store = self.shared.lock();
        let before = |e: &&Arc<Event>| e.seq < from_seq;
        let resumed_at = if from_seq > 1 { store.events.iter().rev().find(before).map_or(0, |e| e.at_ms) } else { 0 };
        let next_log = store.logs.iter().find(|l| l.at_ms >= resumed_at).map_or(store.last_log + 1, |l| l.number);
        drop(store);
        Subscription { shared: Arc::clone(&self.shared), changed, next_seq: from_seq.max(1), next_log: Some(next_log) }
    }

    /// Follows the events from `from_seq` on, without log lines and without being woken by them.
    pub fn subscribe_events(&self, from_seq: u64) -> Subscription {
        let changed = self.shared.events_changed.subscribe();
        Subscription { shared: Arc::clone(&self.shared), changed, next_seq: from_seq.max(1), next_log: None }
    }

    /// Number of the oldest event that is kept, and the number that the next event will have.
    pub fn range(&self) -> (u64, u64) {
        let store = self.shared.lock();
        let next = store.last_seq + 1;
        (store.events.front().map_or(next, |e| e.seq), next)
    }

    /// Every event that is kept, from `from_seq`.
    pub fn snapshot(&self, from_seq: u64) -> Vec<Arc<Event>> {
        self.shared.lock().events.iter().filter(|e| e.seq >= from_seq).cloned().collect()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Store> {
        // A panicking emitter leaves the store usable: every change to it is complete before it can panic.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        self.events_changed.send_modify(|n| *n = n.wrapping_add(1));
        self.wake();
    }

    fn wake(&self) {
        self.changed.send_modify(|n| *n = n.wrapping_add(1));
    }
}

impl Store {
    /// Turns the count of refused lines into an event; whether there was one.
    fn report_refused(&mut self, at_ms: u64, limits: &Limits) -> bool {
        let Some((source, lines)) = self.refused.take() else { return false };
        self.push(at_ms, EventBody::LogsDropped { source: source.name().to_owned(), lines }, limits);
        true
    }

    fn push(&mut self, at_ms: u64, body: EventBody, limits: &Limits) -> u64 {
        self.last_seq += 1;
        let is_sample = |e: &EventBody| matches!(e, EventBody::ResourcesSampled { .. });
        self.samples += usize::from(is_sample(&body));
        if self.samples > limits.samples
            && let Some(oldest) = self.events.iter().position(|e| is_sample(&e.body))
        {
            self.events.remove(oldest);
            self.samples -= 1;
        }
        self.events.push_back(Arc::new(Event { seq: self.last_seq, at_ms, body }));
        self.last_seq
    }

    fn next(&self, cursor: &mut (u64, Option<u64>)) -> Option<Item> {
        let at = self.events.partition_point(|e| e.seq < cursor.0);
        let event = self.events.get(at);
        let Some(next_log) = cursor.1 else {
            let event = event?;
            cursor.0 = event.seq + 1;
            return Some(Item::Event(Arc::clone(event)));
        };
        let oldest = self.logs.front().map_or(self.last_log + 1, |l| l.number);
        if next_log < oldest {
            cursor.1 = Some(oldest);
            return Some(Item::LogsMissed(oldest - next_log));
        }
        let line = usize::try_from(next_log - oldest).ok().and_then(|i| self.logs.get(i));
        match (event, line) {
            (Some(event), line) if line.is_none_or(|l| event.at_ms <= l.at_ms) => {
                cursor.0 = event.seq + 1;
                Some(Item::Event(Arc::clone(event)))
            }
            (_, Some(line)) => {
                cursor.1 = Some(line.number + 1);
                Some(Item::Log(Arc::clone(line)))
            }
            (_, None) => None,
        }
    }
}

/// One watcher's place in the stream.
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<Shared>,
    changed: watch::Receiver<u64>,
    next_seq: u64,
    /// `None`: no log lines wanted.
    next_log: Option<u64>,
}

impl Subscription {
    /// The next item; `None` when the trial is over and everything was seen. Cancel-safe.
    pub async fn next(&mut self) -> Option<Item> {
        loop {
            self.changed.borrow_and_update();
            let closed = {
                let store = self.shared.lock();
                let mut cursor = (self.next_seq, self.next_log);
                let item = store.next(&mut cursor);
                (self.next_seq, self.next_log) = cursor;
                if item.is_some() {
                    return item;
                }
                store.closed
            };
            if closed || self.changed.changed().await.is_err() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::event::Phase;

    fn entered(phase: Phase) -> EventBody {
        EventBody::PhaseEntered { phase, deadline_ms: None }
    }

    fn seqs(items: &[Item]) -> Vec<u64> {
        items
            .iter()
            .filter_map(|i| match i {
                Item::Event(e) => Some(e.seq),
                Item::Log(_) | Item::LogsMissed(_) => None,
            })
            .collect()
    }

    async fn drain(mut sub: Subscription) -> Vec<Item> {
        let mut items = Vec::new();
        while let Some(item) = sub.next().await {
            items.push(item);
        }
        items
    }

    #[tokio::test]
    async fn events_are_numbered_without_gaps_and_resumable() {
        let hub = EventHub::new(Limits::default());
        let early = hub.subscribe(0);
        for _ in 0..5 {
            hub.emit(entered(Phase::Boot));
        }
        hub.close();
        assert_eq!(seqs(&drain(early).await), [1, 2, 3, 4, 5]);
        assert_eq!(seqs(&drain(hub.subscribe(4)).await), [4, 5]);
    }

    #[tokio::test]
    async fn a_slow_watcher_loses_lines_not_events() {
        let limits = Limits { log_lines: 10, lines_per_sec: 1000, ..Limits::default() };
        let hub = EventHub::new(limits);
        let slow = hub.subscribe(0);
        for n in 0..100 {
            hub.log(LogSource::Server, format!("line {n}").as_bytes());
        }
        hub.emit(entered(Phase::Done));
        hub.close();
        let items = drain(slow).await;
        assert_eq!(items.first(), Some(&Item::LogsMissed(90)));
        assert_eq!(items.iter().filter(|i| matches!(i, Item::Log(_))).count(), 10);
        assert_eq!(seqs(&items), [1]);
    }

    #[test]
    fn too_many_lines_a_second_are_counted() {
        let hub = EventHub::new(Limits { lines_per_sec: 3, ..Limits::default() });
        for _ in 0..10 {
            hub.log(LogSource::Server, b"x");
        }
        let store = hub.shared.lock();
        // The loop may straddle a second; then both seconds were limited.
        assert!(store.logs.len() <= 6 && store.logs.len() >= 3, "{}", store.logs.len());
        assert!(store.refused.is_some() || store.last_seq > 0);
    }

    #[tokio::test]
    async fn refused_lines_are_reported_at_the_latest_at_the_end() {
        let hub = EventHub::new(Limits { lines_per_sec: 3, ..Limits::default() });
        let lines_only_wake_who_wants_them = hub.subscribe_events(0);
        for _ in 0..10 {
            hub.log(LogSource::Server, b"x");
        }
        hub.close();
        let items = drain(lines_only_wake_who_wants_them).await;
        let dropped: u64 = items
            .iter()
            .filter_map(|item| {
                let Item::Event(event) = item else { return None };
                let EventBody::LogsDropped { lines, .. } = event.body else { return None };
                Some(lines)
            })
            .sum();
        let taken = hub.shared.lock().last_log;
        assert_eq!(taken + dropped, 10);
        assert_eq!(hub.range(), (1, items.len() as u64 + 1));
    }

    #[test]
    fn old_samples_go_and_everything_else_stays() {
        let hub = EventHub::new(Limits { samples: 2, ..Limits::default() });
        hub.emit(entered(Phase::Boot));
        for _ in 0..5 {
            hub.emit(EventBody::ResourcesSampled { processes: vec![] });
        }
        hub.emit(entered(Phase::Done));
        let kept: Vec<u64> = hub.snapshot(1).iter().map(|e| e.seq).collect();
        assert_eq!(kept, [1, 5, 6, 7]);
    }

    #[test]
    fn long_lines_are_cut_in_the_store() {
        let hub = EventHub::new(Limits { line_bytes: 4, ..Limits::default() });
        hub.log(LogSource::Server, b"123456");
        assert_eq!(hub.shared.lock().logs[0].bytes, b"1234");
    }
}
