//! One watcher: a hello, every event from its number on, log lines within its budget, and an end in words.
//!
//! Events are read from the store at the watcher's own pace and never left out; a number that the store no
//! longer holds is reported as a gap. Lines have a budget per second; what is over it is counted and told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures_util::FutureExt;
use proto::event::Step;
use proto::fault::Fault;
use proto::pb::v1;
use proto::pb::v1::watch_response::Item as Wire;

use super::outbox::{Closed, Outbox};
use super::service::Shared;
use crate::events::{Item, LogLine, LogSource, Subscription};

/// Lines a second for one watcher.
const LINES_PER_SEC: u32 = 2000;
/// Bytes of lines a second for one watcher.
const BYTES_PER_SEC: usize = 1 << 20;
/// Bytes in one message.
const BATCH_BYTES: usize = 64 << 10;

/// Which logs a watcher wants.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    pub(super) server: bool,
    pub(super) bench: bool,
}

impl Wanted {
    const fn any(self) -> bool {
        self.server || self.bench
    }

    const fn has(self, source: LogSource) -> bool {
        match source {
            LogSource::Server => self.server,
            LogSource::Bench(_) => self.bench,
        }
    }
}

/// What is left of this second's budget.
#[derive(Debug)]
struct Budget {
    since: Instant,
    lines: u32,
    bytes: usize,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { since: now, lines: LINES_PER_SEC, bytes: BYTES_PER_SEC }
    }

    /// Takes one line from the budget; false when it is used up.
    fn take(&mut self, bytes: usize, now: Instant) -> bool {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            *self = Self::new(now);
        }
        if self.lines == 0 || self.bytes < bytes {
            return false;
        }
        self.lines -= 1;
        self.bytes -= bytes;
        true
    }
}

/// Lines of one source, gathered for one message.
struct Batch {
    source: LogSource,
    data: BytesMut,
    lines: u32,
    at_ms: u64,
}

/// Lines that this watcher did not get, by source.
#[derive(Debug, Default)]
struct Dropped {
    server: (u64, u64),
    bench: (u64, u64),
    /// Overwritten before this watcher came to them; whose they were is not known.
    missed: u64,
}

impl Dropped {
    fn count(&mut self, line: &LogLine) {
        let slot = match line.source {
            LogSource::Server => &mut self.server,
            LogSource::Bench(_) => &mut self.bench,
        };
        slot.0 += 1;
        slot.1 += line.bytes.len() as u64;
    }

    fn take(&mut self) -> Vec<v1::LogsDropped> {
        let Self { server, bench, missed } = std::mem::take(self);
        let rows =
            [(v1::LogSource::Server, server), (v1::LogSource::Bench, bench), (v1::LogSource::Unspecified, (missed, 0))];
        let told = rows.into_iter().filter(|(_, (lines, _))| *lines > 0);
        told.map(|(source, (lines, bytes))| v1::LogsDropped { source: source.into(), lines, bytes }).collect()
    }
}

/// Why a watcher's stream ends.
enum End {
    /// The reader left.
    Left,
    /// The reader took nothing for too long.
    Stalled,
    /// There is nothing more.
    Over,
}

impl From<Closed> for End {
    fn from(_: Closed) -> Self {
        Self::Left
    }
}

struct Watcher {
    out: Outbox<v1::WatchResponse>,
    shared: Arc<Shared>,
    events: Subscription,
    wanted: Wanted,
    /// The event that must come next.
    next_seq: u64,
    budget: Budget,
    dropped: Dropped,
    told_at: Instant,
}

/// Serves one watcher until it leaves, stalls, or the trial is over.
pub(super) async fn watch(
    shared: Arc<Shared>,
    request: v1::WatchRequest,
    wanted: Wanted,
    out: Outbox<v1::WatchResponse>,
) {
    let from_seq = request.from_seq.max(1);
    let hub = &shared.handle.hub;
    let events = if wanted.any() { hub.subscribe(from_seq) } else { hub.subscribe_events(from_seq) };
    let now = Instant::now();
    let mut watcher = Watcher {
        out,
        events,
        wanted,
        next_seq: from_seq,
        budget: Budget::new(now),
        dropped: Dropped::default(),
        told_at: now,
        shared,
    };
    let end = match watcher.run(request.contract_version).await {
        Ok(never) => match never {},
        Err(end) => end,
    };
    if matches!(end, End::Stalled) {
        watcher.shared.counters.cut();
        let limit = watcher.shared.timing.stall.as_secs_f64();
        let message = format!("this watcher took nothing for {limit} s and was cut off");
        let remedy = format!("read faster, and watch again from_seq {}", watcher.next_seq);
        let fault = Fault::new(tonic::Code::ResourceExhausted, "watcher_stalled", message, remedy);
        tracing::warn!("a watcher stopped reading and was cut off");
        watcher.out.fail(fault.into());
    }
}

impl Watcher {
    async fn run(&mut self, client_version: u32) -> Result<std::convert::Infallible, End> {
        let hello = self.shared.hello(client_version);
        self.say(Wire::Hello(hello)).await?;
        let mut lines_came = false;
        loop {
            let item = match self.events.next().now_or_never() {
                Some(item) => item,
                None if lines_came => {
                    // Lines come in batches instead of a wake-up each: fifty watchers of a noisy log must
                    // cost next to nothing.
                    lines_came = false;
                    tokio::time::sleep(self.shared.timing.pace).await;
                    continue;
                }
                None => tokio::select! {
                    item = self.events.next() => item,
                    () = self.out.closed() => return Err(End::Left),
                },
            };
            let Some(item) = item else {
                self.tell_dropped().await?;
                self.say(Wire::Closing(v1::Closing { reason: "trial over".into() })).await?;
                return Err(End::Over);
            };
            let mut pending = Some(item);
            while let Some(item) = pending.take() {
                match item {
                    Item::Event(event) => {
                        if event.seq > self.next_seq {
                            let gap = v1::Gap { first_seq: self.next_seq, last_seq: event.seq - 1 };
                            self.say(Wire::Gap(gap)).await?;
                        }
                        self.say(Wire::Event((*event).clone().into())).await?;
                        // Only now: a reader that is cut off here must be told to come back for this one.
                        self.next_seq = event.seq + 1;
                    }
                    Item::LogsMissed(lines) => {
                        self.shared.counters.dropped(lines);
                        self.dropped.missed += lines;
                    }
                    Item::Log(line) => {
                        lines_came = true;
                        let (batch, next) = self.gather(&line);
                        pending = next;
                        if let Some(batch) = batch {
                            self.say(Wire::LogLines(batch.into())).await?;
                        }
                    }
                }
            }
            if self.told_at.elapsed() >= Duration::from_secs(1) {
                self.tell_dropped().await?;
            }
        }
    }

    /// Gathers what is there already of the same source, within the budget; also the item that ended it.
    fn gather(&mut self, first: &LogLine) -> (Option<Batch>, Option<Item>) {
        let mut batch: Option<Batch> = None;
        let now = Instant::now();
        self.take_line(&mut batch, first, now);
        loop {
            match self.events.next().now_or_never().flatten() {
                Some(Item::Log(line)) => {
                    let fits = batch.as_ref().is_none_or(|batch| {
                        batch.source == line.source && batch.data.len() + line.bytes.len() < BATCH_BYTES
                    });
                    if !fits {
                        return (batch, Some(Item::Log(line)));
                    }
                    self.take_line(&mut batch, &line, now);
                }
                other => return (batch, other),
            }
        }
    }

    fn take_line(&mut self, batch: &mut Option<Batch>, line: &LogLine, now: Instant) {
        if !self.wanted.has(line.source) {
            return;
        }
        if !self.budget.take(line.bytes.len() + 1, now) {
            self.dropped.count(line);
            self.shared.counters.dropped(1);
            return;
        }
        let batch = batch.get_or_insert_with(|| Batch {
            source: line.source,
            data: BytesMut::new(),
            lines: 0,
            at_ms: line.at_ms,
        });
        batch.data.extend_from_slice(&line.bytes);
        batch.data.extend_from_slice(b"\n");
        batch.lines += 1;
        batch.at_ms = line.at_ms;
    }

    async fn tell_dropped(&mut self) -> Result<(), End> {
        self.told_at = Instant::now();
        for dropped in self.dropped.take() {
            self.say(Wire::LogsDropped(dropped)).await?;
        }
        Ok(())
    }

    async fn say(&self, item: Wire) -> Result<(), End> {
        if self.out.send(v1::WatchResponse { item: Some(item) }).await? { Ok(()) } else { Err(End::Stalled) }
    }
}

/// The wire's name of a source, and its bench step.
pub(super) fn wire_source(source: LogSource) -> (v1::LogSource, Option<Step>) {
    match source {
        LogSource::Server => (v1::LogSource::Server, None),
        LogSource::Bench(step) => (v1::LogSource::Bench, Some(step)),
    }
}

impl From<Batch> for v1::LogLines {
    fn from(batch: Batch) -> Self {
        let (source, step) = wire_source(batch.source);
        Self {
            source: source.into(),
            step: step.map(Into::into),
            data: batch.data.freeze(),
            lines: batch.lines,
            at_ms: batch.at_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_holds_for_lines_and_for_bytes_and_comes_back() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let taken = (0..5000).filter(|_| budget.take(10, start)).count();
        assert_eq!(taken, 2000);
        assert!(budget.take(10, start + Duration::from_secs(1)));
        let mut budget = Budget::new(start);
        let taken = (0..1000).filter(|_| budget.take(4097, start)).count();
        assert_eq!(taken, (1 << 20) / 4097);
    }
}
