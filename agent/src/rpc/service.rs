//! The calls of the `Agent` service, and what they share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use proto::event::{EventBody, Step};
use proto::fault::Fault;
use proto::pb::v1;
use proto::pb::v1::agent_server::Agent;
use proto::status::Status;
use tokio::sync::{mpsc, watch};
use tonic::{Code, Request, Response, Streaming};

use super::outbox::{Outgoing, outbox};
use super::watcher::Wanted;
use super::{Timing, logs};
use crate::events::LogSource;
use crate::status::{Command, Handle, LeaseStatus};

/// Watch and log streams at a time.
const STREAMS: u32 = 256;
/// Bytes of an abort's reason.
const REASON_MAX: usize = 1000;

/// What the calls share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) handle: Handle,
    pub(super) timing: Timing,
    pub(super) counters: Counters,
    /// Turns true when no event will follow.
    pub(super) over: watch::Receiver<bool>,
    /// Time within which a lease must be renewed; `None` where this service carries none.
    pub(super) lease: Option<Duration>,
}

/// Figures of the service itself.
#[derive(Debug, Default)]
pub(super) struct Counters {
    streams: AtomicU32,
    cut: AtomicU64,
    lines_dropped: AtomicU64,
}

impl Counters {
    pub(super) fn cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self, lines: u64) {
        self.lines_dropped.fetch_add(lines, Ordering::Relaxed);
    }
}

/// A stream that counts while it lives.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counters.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn count(self: &Arc<Self>) -> Result<Counted, Fault> {
        if self.counters.streams.fetch_add(1, Ordering::Relaxed) >= STREAMS {
            self.counters.streams.fetch_sub(1, Ordering::Relaxed);
            let message = format!("there are {STREAMS} streams already");
            return Err(Fault::new(Code::ResourceExhausted, "too_many_streams", message, "close one and try again"));
        }
        Ok(Counted(Arc::clone(self)))
    }

    /// The trial now: the fold of its events, and what only the supervisor knows.
    pub(super) fn status(&self) -> Status {
        let mut status = Status::default();
        for event in self.handle.hub.snapshot(1) {
            status.apply(&event);
        }
        let now = self.handle.status.borrow();
        status.token.clone_from(&now.token);
        status.model.clone_from(&now.model);
        status.warmup_steps = now.warmup_steps;
        status.steps = now.steps;
        status.num_prompts = now.num_prompts;
        status.server_pid = now.server_pid;
        status.bench_pid = now.bench_pid;
        lease_name(now.lease).clone_into(&mut status.lease);
        status.at_ms = self.handle.hub.now_ms();
        status
    }

    pub(super) fn figures(&self) -> v1::ServiceFigures {
        let (oldest_seq, next_seq) = self.handle.hub.range();
        v1::ServiceFigures {
            oldest_seq,
            next_seq,
            watchers: self.counters.streams.load(Ordering::Relaxed),
            watchers_cut: self.counters.cut.load(Ordering::Relaxed),
            log_lines_dropped: self.counters.lines_dropped.load(Ordering::Relaxed),
        }
    }

    /// The first item of every watch.
    pub(super) fn hello(&self, client_version: u32) -> v1::Hello {
        let (oldest_seq, next_seq) = self.handle.hub.range();
        let first = self.handle.hub.snapshot(1).into_iter().next();
        let anchor = first
            .and_then(|first| if let EventBody::Started { wall_ms, .. } = first.body { Some(wall_ms) } else { None });
        v1::Hello {
            agent: Some(peer(client_version)),
            token: self.handle.status.borrow().token.clone(),
            wall_ms: anchor.unwrap_or_default(),
            at_ms: self.handle.hub.now_ms(),
            oldest_seq,
            next_seq,
        }
    }

    /// The bench step whose log is the newest.
    fn newest_step(&self) -> Option<Step> {
        let events = self.handle.hub.snapshot(1);
        events.iter().rev().find_map(
            |event| {
                if let EventBody::StepStarted { step } = event.body { Some(step) } else { None }
            },
        )
    }
}

const fn lease_name(lease: LeaseStatus) -> &'static str {
    match lease {
        LeaseStatus::Off => "off",
        LeaseStatus::Held => "held",
        LeaseStatus::Free => "free",
        LeaseStatus::Lost => "lost",
    }
}

/// Who we are, and in words what a caller of another contract version must know.
fn peer(client_version: u32) -> v1::Peer {
    let ours = proto::CONTRACT_VERSION;
    let notice = match client_version {
        0 => String::new(),
        theirs if theirs == ours => String::new(),
        theirs if theirs < ours => format!(
            "you speak contract version {theirs}, this agent speaks {ours}: items and fields that are new since {theirs} \
             will look empty to you; use a client of version {ours}"
        ),
        theirs => format!(
            "you speak contract version {theirs}, this agent speaks {ours}: you get what version {ours} knows; use an \
             agent of version {theirs} for the rest"
        ),
    };
    v1::Peer { version: env!("CARGO_PKG_VERSION").into(), contract_version: ours, notice }
}

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) shared: Arc<Shared>,
}

impl Service {
    fn wanted(sources: &[i32]) -> Result<Wanted, Fault> {
        let mut wanted = Wanted::default();
        for source in sources {
            match v1::LogSource::try_from(*source) {
                Ok(v1::LogSource::Server) => wanted.server = true,
                Ok(v1::LogSource::Bench) => wanted.bench = true,
                Ok(v1::LogSource::Unspecified) | Err(_) => return Err(no_such_source(*source, "logs")),
            }
        }
        Ok(wanted)
    }

    fn source(&self, request: &v1::LogsRequest) -> Result<LogSource, Fault> {
        match v1::LogSource::try_from(request.source) {
            Ok(v1::LogSource::Server) => Ok(LogSource::Server),
            Ok(v1::LogSource::Bench) => {
                let step = match request.step {
                    Some(step) => Step::try_from(step).map_err(|error| {
                        let remedy = "name STEP_KIND_WARMUP or STEP_KIND_MEASURED and a number from 1";
                        Fault::new(Code::InvalidArgument, "bad_step", error.to_string(), remedy).field("step")
                    })?,
                    None => self.shared.newest_step().ok_or_else(|| {
                        let remedy = "wait for the event step_started";
                        Fault::new(Code::NotFound, "no_such_log", "no bench step has begun", remedy).field("source")
                    })?,
                };
                Ok(LogSource::Bench(step))
            }
            Ok(v1::LogSource::Unspecified) | Err(_) => Err(no_such_source(request.source, "source")),
        }
    }
}

fn no_such_source(value: i32, field: &str) -> Fault {
    let remedy = "name LOG_SOURCE_SERVER or LOG_SOURCE_BENCH";
    Fault::new(Code::InvalidArgument, "no_such_source", format!("{value} is no log source"), remedy).field(field)
}

fn over() -> Fault {
    let remedy = "read the result with GetStatus, or the journal";
    Fault::new(Code::FailedPrecondition, "trial_over", "the trial is over", remedy)
}

#[tonic::async_trait]
impl Agent for Service {
    type WatchStream = Outgoing<v1::WatchResponse>;
    type LogsStream = Outgoing<v1::LogsResponse>;
    type LeaseStream = Outgoing<v1::LeaseResponse>;

    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, tonic::Status> {
        Ok(Response::new(v1::GetStatusResponse {
            agent: Some(peer(request.get_ref().contract_version)),
            status: Some(self.shared.status().into()),
            service: Some(self.shared.figures()),
        }))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, tonic::Status> {
        let request = request.into_inner();
        let wanted = Self::wanted(&request.logs)?;
        let counted = self.shared.count()?;
        let (out, stream) = outbox(self.shared.timing.stall);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            super::watcher::watch(shared, request, wanted, out).await;
            drop(counted);
        });
        Ok(Response::new(stream))
    }

    async fn logs(&self, request: Request<v1::LogsRequest>) -> Result<Response<Self::LogsStream>, tonic::Status> {
        let request = request.into_inner();
        let path = self.shared.handle.logs.path(self.source(&request)?);
        let unreadable = |error: std::io::Error| {
            let message = format!("{} cannot be read: {error}", path.display());
            let (code, remedy) = if error.kind() == std::io::ErrorKind::NotFound {
                (Code::NotFound, "wait until what writes it has been started")
            } else {
                (Code::Internal, "look at the file itself")
            };
            Fault::new(code, "no_such_log", message, remedy).field("source")
        };
        let file = logs::open(&path).map_err(unreadable)?;
        let offset = match request.tail {
            None => 0,
            Some(lines) => logs::tail_offset(&file, lines).map_err(unreadable)?,
        };
        let counted = self.shared.count()?;
        let (out, stream) = outbox(self.shared.timing.stall);
        let (over, timing) = (self.shared.over.clone(), self.shared.timing);
        tokio::spawn(async move {
            logs::send(file, offset, request.follow, over, timing, out).await;
            drop(counted);
        });
        Ok(Response::new(stream))
    }

    async fn abort(&self, request: Request<v1::AbortRequest>) -> Result<Response<v1::AbortResponse>, tonic::Status> {
        let reason = request.into_inner().reason;
        // It ends up in lines that people and programs read: one line, nothing that could pose as another.
        if reason.len() > REASON_MAX || reason.chars().any(char::is_control) {
            let message = format!("the reason has {} bytes or holds control characters", reason.len());
            let remedy = format!("send one line of at most {REASON_MAX} bytes");
            return Err(Fault::new(Code::InvalidArgument, "bad_reason", message, remedy).field("reason").into());
        }
        let (phase, stopping) = {
            let now = self.shared.handle.status.borrow();
            (now.phase, now.stopping.is_some() || now.exit.is_some())
        };
        if stopping {
            return Ok(Response::new(v1::AbortResponse { accepted: false, phase: Some(phase.into()) }));
        }
        tracing::info!(%reason, "an abort was ordered");
        match self.shared.handle.commands.try_send(Command::Abort { reason }) {
            Ok(()) => Ok(Response::new(v1::AbortResponse { accepted: true, phase: Some(phase.into()) })),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(over().into()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                let remedy = "ask GetStatus whether it is stopping, and try again";
                let message = "too many requests are waiting";
                Err(Fault::new(Code::Unavailable, "busy", message, remedy).into())
            }
        }
    }

    async fn lease(
        &self,
        request: Request<Streaming<v1::LeaseRequest>>,
    ) -> Result<Response<Self::LeaseStream>, tonic::Status> {
        let Some(within) = self.shared.lease else {
            let remedy = "hold the lock on <out>/lease.<token>, or run the agent with TS_GRPC_LISTEN=tcp://... and TS_LEASE_SEC above 0";
            let message = "this agent takes no lease over its status service";
            return Err(Fault::new(Code::FailedPrecondition, "not_on_tcp", message, remedy).into());
        };
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let counted = self.shared.count()?;
        let mut beats = request.into_inner();
        let (out, stream) = outbox(self.shared.timing.stall);
        let commands = self.shared.handle.commands.clone();
        let mut over_now = self.shared.over.clone();
        tokio::spawn(async move {
            let _counted = counted;
            loop {
                let beat = tokio::select! {
                    beat = beats.message() => beat,
                    _ = over_now.wait_for(|over| *over) => return,
                };
                // The stream's end is not the lease's: another stream may renew it within the time.
                let Ok(Some(v1::LeaseRequest {})) = beat else { return };
                // A full channel holds a beat already, or the trial is being stopped.
                if let Err(mpsc::error::TrySendError::Closed(_)) = commands.try_send(Command::LeaseBeat) {
                    out.fail(over().into());
                    return;
                }
                if !matches!(out.send(v1::LeaseResponse { within_ms }).await, Ok(true)) {
                    return;
                }
            }
        });
        Ok(Response::new(stream))
    }
}
