//! The following task: connect, hello, items, and again after a cut.

use std::time::Duration;

use futures_util::StreamExt;
use proto::event::Event;
use proto::pb::v1;
use proto::pb::v1::watch_response::Item;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::client::{CALL_DEADLINE, CallError, Client, log_source, peer};
use super::{LinkEvent, LogLines, LogSource, Target};

/// First wait between attempts; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF_MIN: Duration = Duration::from_millis(20);
/// Longest wait between attempts.
const BACK_OFF_MAX: Duration = Duration::from_millis(500);
/// Items between the task and its reader. A reader that stops stops the task, which stops the agent's
/// stream, which the agent bounds.
const CHANNEL: usize = 256;

/// What to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follow {
    /// First event wanted; 1 is the beginning.
    pub from_seq: u64,
    /// Logs whose lines are wanted too.
    pub logs: Vec<LogSource>,
}

impl Default for Follow {
    fn default() -> Self {
        Self { from_seq: 1, logs: Vec::new() }
    }
}

/// A followed agent. Dropping it ends the task and its connection.
#[derive(Debug)]
pub struct Link {
    /// What it tells; ends after [`LinkEvent::Ended`].
    pub events: mpsc::Receiver<LinkEvent>,
    task: JoinHandle<()>,
}

impl Link {
    /// Starts to follow. Must be called inside a tokio runtime; never fails, never waits.
    pub fn open(target: Target, follow: Follow) -> Self {
        let (tell, events) = mpsc::channel(CHANNEL);
        let task = tokio::spawn(async move {
            let follower = Follower { target, next_seq: follow.from_seq.max(1), logs: follow.logs, tell };
            follower.run().await;
        });
        Self { events, task }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The reader of the channel is gone.
struct ReaderGone;

/// How one connection ended.
enum End {
    /// Nobody answered.
    NotThere(String),
    /// Came back later helps.
    Cut(String),
    /// Nothing more will come.
    Final(String),
}

struct Follower {
    target: Target,
    next_seq: u64,
    logs: Vec<LogSource>,
    tell: mpsc::Sender<LinkEvent>,
}

impl Follower {
    async fn run(mut self) {
        let mut back_off = BACK_OFF_MIN;
        let mut said = String::new();
        loop {
            let before = self.next_seq;
            let Ok(end) = self.once().await else { return };
            let told = match end {
                End::NotThere(reason) if reason == said => Ok(()),
                End::NotThere(reason) => {
                    said.clone_from(&reason);
                    self.say(LinkEvent::Waiting { reason }).await
                }
                End::Cut(reason) => {
                    said.clear();
                    self.say(LinkEvent::Lost { reason }).await
                }
                End::Final(reason) => {
                    let _ = self.say(LinkEvent::Ended { reason }).await;
                    return;
                }
            };
            if told.is_err() {
                return;
            }
            if self.next_seq > before {
                back_off = BACK_OFF_MIN;
            }
            tokio::time::sleep(back_off).await;
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
    }

    async fn say(&self, event: LinkEvent) -> Result<(), ReaderGone> {
        self.tell.send(event).await.map_err(|_| ReaderGone)
    }

    /// One connection, from the first byte to its end.
    async fn once(&mut self) -> Result<End, ReaderGone> {
        let opened = async {
            let mut client = Client::connect(&self.target).await?;
            client.watch(self.next_seq, &self.logs).await
        };
        let mut stream = match opened.await {
            Ok(stream) => stream,
            Err(error) if error.is_final() => return Ok(End::Final(error.to_string())),
            Err(CallError::Connect { detail, .. }) => return Ok(End::NotThere(detail)),
            Err(error) => return Ok(End::NotThere(error.to_string())),
        };
        // Only the hello has a deadline of its own: afterwards a quiet trial is normal, and the connection's
        // keep-alive notices a peer that is gone.
        let Ok(mut next) = tokio::time::timeout(CALL_DEADLINE, stream.next()).await else {
            return Ok(End::Cut(format!("no hello within {} s", CALL_DEADLINE.as_secs())));
        };
        loop {
            let end = match next {
                None => return Ok(End::Cut("the stream ended without a word".into())),
                Some(Err(status)) => {
                    let error = CallError::from(status);
                    let last = error.is_final();
                    let text = error.to_string();
                    return Ok(if last { End::Final(text) } else { End::Cut(text) });
                }
                Some(Ok(v1::WatchResponse { item })) => self.take(item).await?,
            };
            if let Some(reason) = end {
                return Ok(End::Final(reason));
            }
            next = stream.next().await;
        }
    }

    /// Passes one item on; the reason when it was the last one.
    async fn take(&mut self, item: Option<Item>) -> Result<Option<String>, ReaderGone> {
        let event = match item {
            None => LinkEvent::Unreadable { reason: "an item of a kind that this build does not know".into() },
            Some(Item::Hello(hello)) => match peer(hello.agent, &hello.token, hello.wall_ms, hello.at_ms) {
                Ok(peer) => LinkEvent::Connected { peer, from_seq: self.next_seq },
                Err(error) => LinkEvent::Unreadable { reason: error.to_string() },
            },
            Some(Item::Event(wire)) => {
                // The number counts even where the rest cannot be read.
                self.next_seq = self.next_seq.max(wire.seq.saturating_add(1));
                match Event::try_from(wire) {
                    Ok(event) => LinkEvent::Event(event),
                    Err(error) => LinkEvent::Unreadable { reason: error.to_string() },
                }
            }
            Some(Item::Gap(v1::Gap { first_seq, last_seq })) => {
                self.next_seq = self.next_seq.max(last_seq.saturating_add(1));
                LinkEvent::Gap { first: first_seq, last: last_seq }
            }
            Some(Item::LogLines(lines)) => match log_lines(lines) {
                Ok(lines) => LinkEvent::Log(lines),
                Err(error) => LinkEvent::Unreadable { reason: error.to_string() },
            },
            Some(Item::LogsDropped(v1::LogsDropped { source, lines, .. })) => {
                LinkEvent::LogsDropped { source: log_source(source).ok(), lines }
            }
            Some(Item::Closing(v1::Closing { reason })) => return Ok(Some(reason)),
        };
        self.say(event).await.map(|()| None)
    }
}

fn log_lines(wire: v1::LogLines) -> Result<LogLines, proto::convert::ConvertError> {
    Ok(LogLines {
        source: log_source(wire.source)?,
        step: wire.step.map(TryInto::try_into).transpose()?,
        at_ms: wire.at_ms,
        data: wire.data.into(),
    })
}
