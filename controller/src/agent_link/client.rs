//! Single calls to the agent, each with a deadline, in domain types.

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use proto::convert::ConvertError;
use proto::event::{Phase, Step};
use proto::fault::Fault;
use proto::pb::v1;
use proto::pb::v1::agent_client::AgentClient;
use proto::status::Status;
use tonic::Request;

use super::connect::AgentChannel;
use super::{LogSource, Peer, Target};

/// Every single call is over by then.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// Largest reply read; the agent sends pieces far below it (FS-57).
const MESSAGE_MAX: usize = 8 << 20;

/// A call that did not give what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody there.
    #[error("cannot connect to {target}: {detail}")]
    Connect {
        /// Whom.
        target: Target,
        /// What the system says.
        detail: String,
    },
    /// The agent refused, in words.
    #[error("{0}")]
    Refused(#[from] Fault),
    /// The transport or a peer that is not ours refused.
    #[error("{code:?}: {message}")]
    Failed {
        /// Canonical code.
        code: tonic::Code,
        /// Its words.
        message: String,
    },
    /// No answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// An answer that this build cannot read.
    #[error("cannot read the answer: {0}")]
    Unreadable(#[from] ConvertError),
}

impl From<tonic::Status> for CallError {
    fn from(status: tonic::Status) -> Self {
        match Fault::from_status(&status) {
            Some(fault) => Self::Refused(fault),
            None => Self::Failed { code: status.code(), message: status.message().to_owned() },
        }
    }
}

impl CallError {
    /// Whether trying again cannot help: wrong secret, no such call, refused request.
    pub fn is_final(&self) -> bool {
        use tonic::Code;
        let code = match self {
            Self::Refused(fault) => fault.code,
            Self::Failed { code, .. } => *code,
            Self::Connect { .. } | Self::Timeout(_) | Self::Unreadable(_) => return false,
        };
        matches!(
            code,
            Code::Unauthenticated
                | Code::PermissionDenied
                | Code::Unimplemented
                | Code::InvalidArgument
                | Code::NotFound
        )
    }
}

/// Figures of the service itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServiceFigures {
    /// Oldest event that can still be had.
    pub oldest_seq: u64,
    /// Number that the next event will have.
    pub next_seq: u64,
    /// Watch streams now.
    pub watchers: u32,
    /// Watch streams cut off.
    pub watchers_cut: u64,
    /// Log lines left out for single watchers.
    pub log_lines_dropped: u64,
}

/// A piece of a log file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    /// Where in the file it begins.
    pub offset: u64,
    /// Bytes as they are.
    pub data: Vec<u8>,
}

/// One connection for single calls.
#[derive(Debug, Clone)]
pub struct Client {
    inner: AgentClient<AgentChannel>,
}

impl Client {
    /// Connects once; `Connect` where nobody is there.
    pub async fn connect(target: &Target) -> Result<Self, CallError> {
        let refused = |detail| CallError::Connect { target: target.clone(), detail };
        let channel = match tokio::time::timeout(CALL_DEADLINE, target.connect()).await {
            Err(_) => return Err(CallError::Timeout(CALL_DEADLINE)),
            Ok(Err(error)) => return Err(refused(root_cause(&error))),
            Ok(Ok(channel)) => channel,
        };
        Ok(Self { inner: AgentClient::new(channel).max_decoding_message_size(MESSAGE_MAX) })
    }

    /// The trial as it stands.
    pub async fn status(&mut self) -> Result<(Peer, Status, ServiceFigures), CallError> {
        let request = v1::GetStatusRequest { contract_version: proto::CONTRACT_VERSION };
        let reply = within(CALL_DEADLINE, self.inner.get_status(request)).await?;
        let status = Status::try_from(reply.status.ok_or(ConvertError::Missing("status"))?)?;
        let peer = peer(reply.agent, &status.token, status.wall_ms, status.at_ms)?;
        let figures = reply.service.unwrap_or_default();
        let figures = ServiceFigures {
            oldest_seq: figures.oldest_seq,
            next_seq: figures.next_seq,
            watchers: figures.watchers,
            watchers_cut: figures.watchers_cut,
            log_lines_dropped: figures.log_lines_dropped,
        };
        Ok((peer, status, figures))
    }

    /// Asks for an ordered stop. False: the trial was being stopped already.
    pub async fn abort(&mut self, reason: &str) -> Result<(bool, Phase), CallError> {
        let request = v1::AbortRequest { reason: reason.to_owned() };
        let reply = within(CALL_DEADLINE, self.inner.abort(request)).await?;
        let phase = reply.phase.ok_or(ConvertError::Missing("abort.phase"))?.try_into()?;
        Ok((reply.accepted, phase))
    }

    /// Bytes of a log: the last `tail` lines (`None`: from the beginning), then what is appended if `follow`.
    /// Without `follow` each piece must come within the call deadline.
    pub async fn logs(
        &mut self,
        source: LogSource,
        step: Option<Step>,
        tail: Option<u64>,
        follow: bool,
    ) -> Result<impl Stream<Item = Result<LogChunk, CallError>> + use<>, CallError> {
        let request = v1::LogsRequest { source: wire_source(source).into(), step: step.map(Into::into), tail, follow };
        let stream = within(CALL_DEADLINE, self.inner.logs(request)).await?;
        Ok(stream.map(|piece| match piece {
            Ok(v1::LogsResponse { data, offset }) => Ok(LogChunk { offset, data: data.into() }),
            Err(status) => Err(status.into()),
        }))
    }

    /// The raw event stream; the deadline covers its start.
    pub(super) async fn watch(
        &mut self,
        from_seq: u64,
        logs: &[LogSource],
    ) -> Result<tonic::Streaming<v1::WatchResponse>, CallError> {
        let request = Request::new(v1::WatchRequest {
            from_seq,
            contract_version: proto::CONTRACT_VERSION,
            logs: logs.iter().map(|source| wire_source(*source).into()).collect(),
        });
        within(CALL_DEADLINE, self.inner.watch(request)).await
    }
}

/// Runs a call under its deadline.
async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Err(_) => Err(CallError::Timeout(limit)),
        Ok(reply) => Ok(reply?.into_inner()),
    }
}

/// The innermost cause, which is the one that says something.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

pub(super) fn peer(wire: Option<v1::Peer>, token: &str, wall_ms: u64, at_ms: u64) -> Result<Peer, ConvertError> {
    let v1::Peer { version, contract_version, notice } = wire.ok_or(ConvertError::Missing("agent"))?;
    Ok(Peer { version, contract_version, notice, token: token.to_owned(), wall_ms, at_ms })
}

pub(super) const fn wire_source(source: LogSource) -> v1::LogSource {
    match source {
        LogSource::Server => v1::LogSource::Server,
        LogSource::Bench => v1::LogSource::Bench,
    }
}

pub(super) fn log_source(wire: i32) -> Result<LogSource, ConvertError> {
    match v1::LogSource::try_from(wire) {
        Ok(v1::LogSource::Server) => Ok(LogSource::Server),
        Ok(v1::LogSource::Bench) => Ok(LogSource::Bench),
        Err(_) | Ok(v1::LogSource::Unspecified) => {
            Err(ConvertError::Unknown { field: "log source", value: wire.to_string() })
        }
    }
}
