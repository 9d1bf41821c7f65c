//! The status service: what the agent shows while it works, and the stop that it takes orders for.
//!
//! It runs on a thread and a runtime of its own, fed by the [`Handle`] alone: cursors into the event store,
//! a snapshot, a bounded command channel. Nothing here can make the supervisor wait, and nothing that fails
//! here can fail the trial. Every buffer is bounded, every connection is probed, a watcher that stops
//! reading is cut off with a reason.
//!
//! | module | job |
//! |---|---|
//! | `socket` | addresses, modes, what is unlinked when |
//! | `accept` | connections, at most so many |
//! | `gate` | the secret, and `GET /metrics` on the same port |
//! | `service` | the calls |
//! | `outbox` | the way out to one reader, and when it is cut off |
//! | `watcher` | one watcher: events, log lines within its budget, stalls |
//! | `logs` | bytes of log files |
//! | `metrics` | the OpenMetrics page |

mod accept;
mod gate;
mod logs;
mod metrics;
mod outbox;
mod service;
mod socket;
mod watcher;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use proto::event::Phase;
use proto::pb::v1::agent_server::AgentServer;
use tokio::sync::{oneshot, watch};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::ServingStatus;

use crate::config::{LaunchPlan, Listen};
use crate::status::Handle;
use gate::Gate;
use service::{Service, Shared};
pub use socket::BindError;
use socket::Bound;

/// Where something listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A unix socket, mode 0600.
    Unix(PathBuf),
    /// TCP, an address literal.
    Tcp(SocketAddr),
}

/// What to serve, and where.
#[derive(Clone, Default)]
pub struct RpcConfig {
    /// The status service; `None` is off.
    pub grpc: Option<Address>,
    /// Metrics on an address of their own; they are on the status service's too.
    pub metrics: Option<Address>,
    /// The secret that every call must carry.
    pub token: Option<String>,
    /// Time within which a lease must be renewed; `None` is off.
    pub lease: Option<Duration>,
    /// How long things may take.
    pub timing: Timing,
}

/// Never shows the secret.
impl std::fmt::Debug for RpcConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = if self.token.is_some() { "set" } else { "none" };
        write!(f, "RpcConfig {{ grpc: {:?}, metrics: {:?}, token: {token} }}", self.grpc, self.metrics)
    }
}

impl RpcConfig {
    /// What the plan asks for; the default is a socket in the output directory.
    pub fn of(plan: &LaunchPlan, lease: Duration) -> Self {
        let address = |listen: &Listen| match listen {
            Listen::Off => None,
            Listen::Default => Some(Address::Unix(plan.out_dir.join(proto::names::socket(&plan.token)))),
            Listen::Unix(path) => Some(Address::Unix(path.clone())),
            Listen::Tcp(address) => Some(Address::Tcp(*address)),
        };
        Self {
            grpc: address(&plan.grpc_listen),
            metrics: address(&plan.metrics_listen),
            token: plan.grpc_token.as_ref().map(|token| token.expose().to_owned()),
            lease: Some(lease),
            timing: Timing::default(),
        }
    }
}

/// Times and bounds; the defaults are the product's, tests use shorter ones.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// A watcher that takes nothing for so long is cut off.
    pub stall: Duration,
    /// Idle time after which a connection is probed.
    pub keep_alive: Duration,
    /// Time a probe has.
    pub keep_alive_timeout: Duration,
    /// Time between two looks at a followed log, and between two batches of log lines.
    pub pace: Duration,
    /// Time that watchers have to read the end of the trial.
    pub drain: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            stall: Duration::from_secs(30),
            keep_alive: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(10),
            pace: Duration::from_millis(50),
            drain: Duration::from_secs(1),
        }
    }
}

/// The running service.
#[derive(Debug)]
pub struct Rpc {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    sockets: Vec<Bound>,
}

impl Rpc {
    /// Binds, and serves until [`Rpc::stop`]. Binding is done when this returns: a client that connects
    /// afterwards is answered. An error leaves nothing behind; the trial goes on without the service.
    pub fn start(config: RpcConfig, handle: Handle) -> Result<Self, BindError> {
        let mut sockets = Vec::new();
        let mut listeners = Vec::new();
        for (address, what) in [(&config.grpc, What::Service), (&config.metrics, What::Metrics)] {
            if let Some(address) = address {
                let (bound, listener) = socket::bind(address)?;
                sockets.push(bound);
                listeners.push((listener, what));
            }
        }
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("status".into())
            .spawn(move || run(listeners, config, handle, stopped))
            .map_err(BindError::Thread)?;
        Ok(Self { stop: Some(stop), thread: Some(thread), sockets })
    }

    /// Where it can be reached, for the log: one line per listener.
    pub fn describe(&self) -> Vec<String> {
        self.sockets.iter().map(Bound::describe).collect()
    }

    /// The TCP address that was bound, where there is one; port 0 is resolved.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.sockets.iter().find_map(Bound::tcp_address)
    }

    /// Ends the service: watchers get a bounded time to read the end, then the sockets are gone. The hub
    /// should be closed before, so that there is an end to read.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread bounds its own end; a panic in it has been reported by the hook.
            let _ = thread.join();
        }
        self.sockets.clear();
    }
}

impl Drop for Rpc {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a listener serves.
#[derive(Debug, Clone, Copy)]
enum What {
    Service,
    Metrics,
}

/// The thread's body.
fn run(listeners: Vec<(socket::Listener, What)>, config: RpcConfig, handle: Handle, stopped: oneshot::Receiver<()>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::warn!(%error, "no status service: the runtime does not start");
            return;
        }
    };
    runtime.block_on(serve(listeners, config, handle, stopped));
    runtime.shutdown_background();
}

/// Serves everything until told to stop or the trial's end was read.
async fn serve(
    listeners: Vec<(socket::Listener, What)>,
    config: RpcConfig,
    handle: Handle,
    stopped: oneshot::Receiver<()>,
) {
    let (over, over_seen) = watch::channel(false);
    let tcp = matches!(config.grpc, Some(Address::Tcp(_)));
    let shared = Arc::new(Shared {
        handle: handle.clone(),
        timing: config.timing,
        counters: service::Counters::default(),
        over: over_seen,
        lease: config.lease.filter(|lease| tcp && !lease.is_zero()),
    });
    let (health, health_service) = tonic_health::server::health_reporter();
    tokio::spawn(report_health(health, handle.status.clone(), shared.over.clone()));
    let mut events = handle.hub.subscribe_events(u64::MAX);
    tokio::spawn(async move {
        while events.next().await.is_some() {}
        over.send_replace(true);
    });

    let secret = config.token.as_deref().map(gate::Secret::new);
    let (drained, drain) = watch::channel(());
    let mut servers = Vec::new();
    for (listener, what) in listeners {
        let routes = match what {
            What::Metrics => Routes::default(),
            What::Service => {
                let service = Service { shared: Arc::clone(&shared) };
                let routes = Routes::new(AgentServer::new(service).max_decoding_message_size(REQUEST_MAX))
                    .add_service(health_service.clone());
                reflection(routes)
            }
        };
        let gate = Gate { routes: routes.prepare(), shared: Arc::clone(&shared), secret: secret.clone() };
        match accept::incoming(listener) {
            Ok(incoming) => {
                let mut drain = drain.clone();
                let server = Server::builder()
                    .accept_http1(true)
                    .http2_keepalive_interval(Some(config.timing.keep_alive))
                    .http2_keepalive_timeout(Some(config.timing.keep_alive_timeout))
                    .max_concurrent_streams(STREAMS_PER_CONNECTION)
                    .serve_with_incoming_shutdown(gate, incoming, async move {
                        let _ = drain.changed().await;
                    });
                servers.push(tokio::spawn(server));
            }
            Err(error) => tracing::warn!(%error, "no status service on one address"),
        }
    }
    // An error is the sender's end: the owner is gone.
    let _ = stopped.await;
    drop(drained);
    let ended = async {
        for server in servers {
            let _ = server.await;
        }
    };
    if tokio::time::timeout(config.timing.drain, ended).await.is_err() {
        tracing::debug!("the status service ended with watchers that had not read everything");
    }
}

/// Largest request read; ours are tiny.
const REQUEST_MAX: usize = 64 << 10;
/// Calls at a time on one connection.
const STREAMS_PER_CONNECTION: u32 = 64;

/// Reflection in both versions: newer tools ask v1, Python's client only v1alpha.
fn reflection(routes: Routes) -> Routes {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::pb::v1::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    match (builder().build_v1(), builder().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => routes.add_service(v1).add_service(v1alpha),
        (Err(error), _) | (_, Err(error)) => {
            tracing::warn!(%error, "no reflection");
            routes
        }
    }
}

/// Health names, and when each is SERVING: the service as long as there is a trial to see, the engine while
/// it can answer requests.
async fn report_health(
    health: tonic_health::server::HealthReporter,
    mut status: watch::Receiver<crate::status::Status>,
    mut over: watch::Receiver<bool>,
) {
    loop {
        let (phase, stopping, exit) = {
            let now = status.borrow_and_update();
            (now.phase, now.stopping.is_some(), now.exit)
        };
        let service = exit.is_none() && phase != Phase::Done && !*over.borrow_and_update();
        let engine = service && !stopping && can_generate(phase);
        let word = |serving| if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for (name, serving) in [("", service), (SERVICE_NAME, service), (ENGINE_NAME, engine)] {
            health.set_service_status(name, word(serving)).await;
        }
        if !service {
            return;
        }
        tokio::select! {
            changed = status.changed() => if changed.is_err() {
                // The supervisor is gone; only the end is left to be said.
                let _ = over.wait_for(|over| *over).await;
            },
            _ = over.changed() => {}
        }
    }
}

/// Name of our service in grpc.health.v1.
const SERVICE_NAME: &str = "tsbench.v1.Agent";
/// Name of the engine in grpc.health.v1.
const ENGINE_NAME: &str = "tokenspeed";

/// Whether the engine has shown that it generates.
const fn can_generate(phase: Phase) -> bool {
    match phase {
        Phase::Boot | Phase::WaitHealth | Phase::WaitGenerate | Phase::Teardown | Phase::Done => false,
        Phase::ReadBack | Phase::GenerateProbe | Phase::Warmup(_) | Phase::Measure(_) => true,
    }
}
