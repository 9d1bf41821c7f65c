//! Where the agent listens, and a channel to it. Connecting has a deadline; an idle connection is probed, so
//! that a peer that was frozen or vanished is noticed in [`KEEP_ALIVE`] + [`KEEP_ALIVE_TIMEOUT`] (FS-56).

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use proto::names::SOCKET_PATH_MAX;
use tokio::net::UnixStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};

/// Idle time after which the peer is asked whether it lives.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Time it has to answer.
pub(super) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Where an agent listens.
#[derive(Clone, PartialEq, Eq)]
pub enum Target {
    /// A unix socket, or a link to one; the path may be longer than a socket address.
    Unix(PathBuf),
    /// `http://host:port`, with the trial's token where it has one.
    Tcp {
        /// Host and port.
        authority: String,
        /// The secret.
        token: Option<String>,
    },
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

/// Never shows the secret.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { authority, .. } => write!(f, "http://{authority}"),
        }
    }
}

/// A target that cannot be one.
#[derive(Debug, thiserror::Error)]
#[error("target {value:?} {rule}")]
pub struct BadTarget {
    value: String,
    rule: &'static str,
}

impl Target {
    /// Reads `http://host:port`. The token is the trial's `TS_GRPC_TOKEN`.
    pub fn tcp(url: &str, token: Option<String>) -> Result<Self, BadTarget> {
        let bad = |rule| BadTarget { value: url.to_owned(), rule };
        if url.starts_with("https://") {
            return Err(bad("asks for TLS, which the agent does not speak; write http://host:port"));
        }
        let authority = url
            .strip_prefix("http://")
            .or_else(|| url.strip_prefix("tcp://"))
            .ok_or_else(|| bad("must begin with http://"))?
            .trim_end_matches('/');
        let port = authority.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then_some(port));
        if authority.contains(['/', '?', '#', '@', ' ']) || port.is_none_or(|port| port.parse::<u16>().is_err()) {
            return Err(bad("must be http://host:port"));
        }
        if token.as_ref().is_some_and(|token| bearer(token).is_none()) {
            return Err(bad("cannot be used: TS_GRPC_TOKEN holds characters that fit into no header"));
        }
        Ok(Self::Tcp { authority: authority.to_owned(), token })
    }

    fn credentials(&self) -> Credentials {
        match self {
            Self::Unix(_) | Self::Tcp { token: None, .. } => Credentials(None),
            Self::Tcp { token: Some(token), .. } => Credentials(bearer(token)),
        }
    }

    /// One attempt to connect.
    pub(super) async fn connect(&self) -> Result<AgentChannel, tonic::transport::Error> {
        let uri = match self {
            // grpcio and tonic agree on this authority for unix sockets.
            Self::Unix(_) => "http://localhost".to_owned(),
            Self::Tcp { authority, .. } => format!("http://{authority}"),
        };
        let endpoint = Endpoint::try_from(uri)?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let channel = match self {
            Self::Tcp { .. } => endpoint.connect().await?,
            Self::Unix(path) => {
                let path = path.clone();
                let connector = tower::service_fn(move |_| {
                    let path = path.clone();
                    async move { connect_unix(&path).await.map(TokioIo::new) }
                });
                endpoint.connect_with_connector(connector).await?
            }
        };
        Ok(InterceptedService::new(channel, self.credentials()))
    }
}

/// Connects to a socket whatever the length of its path: a long one is reached through its folder.
async fn connect_unix(path: &Path) -> std::io::Result<UnixStream> {
    let file_name = path.file_name();
    match (path.parent(), file_name) {
        (Some(folder), Some(name)) if path.as_os_str().len() > SOCKET_PATH_MAX => {
            let folder = File::options().read(true).custom_flags(nix::libc::O_DIRECTORY).open(folder)?;
            let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
            UnixStream::connect(short).await
        }
        _ => UnixStream::connect(path).await,
    }
}

fn bearer(token: &str) -> Option<MetadataValue<Ascii>> {
    let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Adds the secret to every call.
#[derive(Debug, Clone)]
pub(super) struct Credentials(Option<MetadataValue<Ascii>>);

impl Interceptor for Credentials {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// A connection.
pub(super) type AgentChannel = InterceptedService<Channel, Credentials>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_targets_are_read_strictly_and_keep_their_secret() {
        for bad in [
            "https://h:1",
            "h:1",
            "http://h",
            "http://:1",
            "http://h:x",
            "http://h:1/x",
            "http://u@h:1",
            "http://h:70000",
        ] {
            assert!(Target::tcp(bad, None).is_err(), "{bad}");
        }
        let target = Target::tcp("http://127.0.0.1:7001/", Some("s3cret".into())).unwrap();
        assert_eq!(target.to_string(), "http://127.0.0.1:7001");
        assert!(!format!("{target:?} {:?}", target.credentials()).contains("s3cret"));
        assert!(Target::tcp("http://h:1", Some("a\nb".into())).is_err());
    }
}
