//! The status service and its client on real sockets, fed by a hub instead of a trial: what a watcher sees,
//! what it may ask, and what happens to one that is slow, cut, foreign or without the secret.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test stops where it fails")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::events::{EventHub, Limits, LogSource as HubSource};
use agent::rpc::{Address, Rpc, RpcConfig, Timing};
use agent::status::{Command, Handle, LogFiles, Status};
use controller::agent_link::{CallError, Client, Follow, Link, LinkEvent, LogSource, Target};
use futures_util::StreamExt;
use proto::event::{Event, EventBody, Phase, ProcessSample, Step, StepKind};
use proto::fault::Fault;
use proto::names::RunToken;
use proto::pb::v1;
use proto::pb::v1::agent_client::AgentClient;
use proto::pb::v1::watch_response::Item;
use tokio::sync::{mpsc, watch};
use tonic::transport::{Channel, Endpoint};

/// Far beyond anything that a healthy run needs.
const PATIENCE: Duration = Duration::from_mins(1);

/// A trial as the service sees it.
struct Trial {
    dir: tempfile::TempDir,
    hub: EventHub,
    status: watch::Sender<Status>,
    commands: mpsc::Receiver<Command>,
    handle: Handle,
    rpc: Option<Rpc>,
}

fn step(number: u32) -> Step {
    Step { kind: StepKind::Measured, number, total: 9 }
}

impl Trial {
    fn new(limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let token = RunToken::parse("7-1").unwrap();
        let hub = EventHub::new(limits);
        let status = watch::Sender::new(Status::new(&token, "model", 1, 3, 64));
        let (send, commands) = mpsc::channel(4);
        let handle = Handle {
            hub: hub.clone(),
            status: status.subscribe(),
            commands: send,
            logs: LogFiles { out_dir: dir.path().to_owned(), token },
        };
        hub.emit(EventBody::Started {
            token: "7-1".into(),
            agent_version: "0.1.0".into(),
            contract_version: 1,
            wall_ms: 1_700_000_000_000,
            model: "model".into(),
            warmup_steps: 1,
            steps: 3,
            num_prompts: 64,
        });
        Self { dir, hub, status, commands, handle, rpc: None }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.7-1.sock")
    }

    fn target(&self) -> Target {
        Target::Unix(self.socket())
    }

    fn serve(&mut self) {
        self.serve_with(RpcConfig { grpc: Some(Address::Unix(self.socket())), ..RpcConfig::default() });
    }

    fn serve_with(&mut self, config: RpcConfig) {
        self.rpc = Some(Rpc::start(config, self.handle.clone()).unwrap());
    }

    fn enter(&self, phase: Phase) {
        self.hub.emit(EventBody::PhaseEntered { phase, deadline_ms: None });
    }

    fn sample(&self) {
        let process = ProcessSample {
            pid: 1,
            parent: 0,
            name: "agent".into(),
            role: "agent".into(),
            cpu_percent: 1.0,
            rss_bytes: 1,
        };
        self.hub.emit(EventBody::ResourcesSampled { processes: vec![process] });
    }

    fn server_log(&self) -> PathBuf {
        self.dir.path().join(proto::names::server_log(&RunToken::parse("7-1").unwrap()))
    }
}

async fn next(link: &mut Link) -> LinkEvent {
    tokio::time::timeout(PATIENCE, link.events.recv()).await.unwrap().unwrap()
}

/// Everything until the agent says that it is over.
async fn to_the_end(link: &mut Link) -> (Vec<Event>, Vec<LinkEvent>) {
    let (mut events, mut rest) = (Vec::new(), Vec::new());
    loop {
        match next(link).await {
            LinkEvent::Event(event) => events.push(event),
            end @ LinkEvent::Ended { .. } => {
                rest.push(end);
                return (events, rest);
            }
            other => rest.push(other),
        }
    }
}

fn seqs(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

async fn raw(path: &Path) -> AgentClient<Channel> {
    let path = path.to_owned();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { tokio::net::UnixStream::connect(path).await.map(hyper_util::rt::TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost").initial_stream_window_size(65_535);
    AgentClient::new(endpoint.connect_with_connector(connector).await.unwrap())
}

/// FS-58.
#[tokio::test]
async fn a_link_waits_for_the_agent_follows_it_and_sees_its_end() {
    let mut trial = Trial::new(Limits::default());
    let mut link = Link::open(trial.target(), Follow::default());
    assert!(matches!(next(&mut link).await, LinkEvent::Waiting { .. }));
    trial.serve();
    let LinkEvent::Connected { peer, from_seq: 1 } = next(&mut link).await else { panic!("no hello") };
    assert_eq!((peer.token.as_str(), peer.contract_version, peer.notice.as_str()), ("7-1", 1, ""));
    assert_eq!(peer.wall_ms, 1_700_000_000_000);
    trial.enter(Phase::WaitHealth);
    trial.enter(Phase::Measure(1));
    assert!(matches!(next(&mut link).await, LinkEvent::Event(Event { seq: 1, body: EventBody::Started { .. }, .. })));
    let LinkEvent::Event(event) = next(&mut link).await else { panic!() };
    assert_eq!(event.body, EventBody::PhaseEntered { phase: Phase::WaitHealth, deadline_ms: None });
    trial.hub.emit(EventBody::Finished { exit: 0, reason: "pass".into() });
    trial.hub.close();
    trial.rpc.take().unwrap().stop();
    let (events, rest) = to_the_end(&mut link).await;
    assert_eq!(seqs(&events), [3, 4]);
    assert_eq!(rest, [LinkEvent::Ended { reason: "trial over".into() }]);
    assert!(!trial.socket().exists());
}

#[tokio::test]
async fn a_cut_stream_is_resumed_where_it_stopped() {
    let mut trial = Trial::new(Limits::default());
    trial.serve();
    let mut link = Link::open(trial.target(), Follow::default());
    for _ in 0..2 {
        next(&mut link).await;
    }
    // The service goes and comes back, as after a broken connection; the trial goes on meanwhile.
    trial.rpc.take().unwrap().stop();
    trial.enter(Phase::WaitHealth);
    trial.enter(Phase::WaitGenerate);
    trial.serve();
    trial.hub.close();
    let (events, rest) = to_the_end(&mut link).await;
    assert_eq!(seqs(&events), [2, 3]);
    assert!(rest.iter().any(|event| matches!(event, LinkEvent::Lost { .. })), "{rest:?}");
    assert!(rest.iter().any(|event| matches!(event, LinkEvent::Connected { from_seq: 2, .. })), "{rest:?}");
}

#[tokio::test]
async fn what_is_no_longer_held_is_a_gap() {
    let mut trial = Trial::new(Limits { samples: 2, ..Limits::default() });
    trial.serve();
    for _ in 0..5 {
        trial.sample();
    }
    trial.hub.close();
    let mut link = Link::open(trial.target(), Follow::default());
    let (events, rest) = to_the_end(&mut link).await;
    assert_eq!(seqs(&events), [1, 5, 6]);
    assert!(rest.contains(&LinkEvent::Gap { first: 2, last: 4 }), "{rest:?}");
}

#[tokio::test]
async fn a_watcher_that_stops_reading_is_cut_off_and_slows_nobody() {
    let generous = Limits { lines_per_sec: u32::MAX, log_lines: 100_000, log_bytes: 1 << 30, ..Limits::default() };
    let mut trial = Trial::new(generous);
    let stall = Duration::from_millis(300);
    trial.serve_with(RpcConfig {
        grpc: Some(Address::Unix(trial.socket())),
        timing: Timing { stall, ..Timing::default() },
        ..RpcConfig::default()
    });
    let request = v1::WatchRequest { from_seq: 1, contract_version: 1, logs: vec![v1::LogSource::Server.into()] };
    let mut sleeper = raw(&trial.socket()).await.watch(request).await.unwrap().into_inner();
    let mut reader = Link::open(trial.target(), Follow::default());
    // More than the transport and the service hold for one reader.
    for _ in 0..40_000 {
        trial.enter(Phase::WaitHealth);
    }
    let mut last = 0;
    while last < 40_001 {
        if let LinkEvent::Event(event) = next(&mut reader).await {
            assert_eq!(event.seq, last + 1);
            last = event.seq;
        }
    }
    let mut client = Client::connect(&trial.target()).await.unwrap();
    let cut = async {
        while client.status().await.unwrap().2.watchers_cut == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, cut).await.unwrap();
    let mut seen = Vec::new();
    let error = loop {
        match tokio::time::timeout(PATIENCE, sleeper.message()).await.unwrap() {
            Ok(Some(v1::WatchResponse { item: Some(Item::Event(event)) })) => seen.push(event.seq),
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended without a reason after {} events", seen.len()),
            Err(status) => break status,
        }
    };
    assert_eq!(error.code(), tonic::Code::ResourceExhausted);
    let fault = Fault::from_status(&error).unwrap();
    assert_eq!(fault.reason, "watcher_stalled");
    let last = *seen.last().unwrap();
    assert!(fault.remedy.contains(&format!("from_seq {}", last + 1)), "{} after {last}", fault.remedy);
    assert_eq!(seen, (1..=last).collect::<Vec<_>>());
    // Coming back where it stopped, it gets all the rest.
    trial.hub.close();
    let mut again = Link::open(trial.target(), Follow { from_seq: last + 1, logs: vec![] });
    let (events, _) = to_the_end(&mut again).await;
    assert_eq!(seqs(&events), (last + 1..=40_001).collect::<Vec<_>>());
}

#[tokio::test]
async fn lines_come_between_events_within_a_budget_and_the_rest_is_counted() {
    let generous = Limits { lines_per_sec: u32::MAX, log_lines: 100_000, log_bytes: 1 << 30, ..Limits::default() };
    let mut trial = Trial::new(generous);
    trial.serve();
    let started = std::time::Instant::now();
    trial.hub.log(HubSource::Server, b"\xff\x00 \x1b[31mred");
    trial.enter(Phase::WaitHealth);
    for n in 0..20_000 {
        trial.hub.log(HubSource::Server, format!("line {n}").as_bytes());
        if n % 1000 == 0 {
            trial.hub.log(HubSource::Bench(step(1)), b"bench");
            trial.enter(Phase::Measure(1));
        }
    }
    trial.hub.close();
    let mut link = Link::open(trial.target(), Follow { from_seq: 1, logs: vec![LogSource::Server] });
    let (events, rest) = to_the_end(&mut link).await;
    let seconds = started.elapsed().as_secs() + 2;
    assert_eq!(seqs(&events), (1..=22).collect::<Vec<_>>());
    let (mut data, mut dropped) = (Vec::new(), 0);
    for event in rest {
        match event {
            LinkEvent::Log(lines) => {
                assert_eq!((lines.source, lines.step), (LogSource::Server, None));
                data.extend(lines.data);
            }
            LinkEvent::LogsDropped { lines, .. } => dropped += lines,
            LinkEvent::Connected { .. } | LinkEvent::Ended { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let lines = data.split(|byte| *byte == b'\n').count() as u64 - 1;
    assert!(data.starts_with(b"\xff\x00 \x1b[31mred\nline 0\n"), "bytes are passed on as they are");
    assert_eq!(lines + dropped, 20_001);
    assert!(dropped > 0 && lines <= 2000 * seconds, "{lines} lines in {seconds} s");
}

#[tokio::test]
async fn bench_lines_name_their_step() {
    let mut trial = Trial::new(Limits::default());
    trial.serve();
    trial.hub.log(HubSource::Bench(step(2)), b"progress");
    trial.hub.close();
    let mut link = Link::open(trial.target(), Follow { from_seq: 1, logs: vec![LogSource::Bench] });
    let (_, rest) = to_the_end(&mut link).await;
    let lines = rest.into_iter().find_map(|event| if let LinkEvent::Log(lines) = event { Some(lines) } else { None });
    let lines = lines.unwrap();
    assert_eq!(
        (lines.source, lines.step, lines.data.as_slice()),
        (LogSource::Bench, Some(step(2)), &b"progress\n"[..])
    );
}

#[tokio::test]
async fn another_contract_version_is_told_in_words_and_served() {
    let mut trial = Trial::new(Limits::default());
    trial.serve();
    for (version, says) in [(0, ""), (1, ""), (2, "you speak contract version 2, this agent speaks 1")] {
        let request = v1::WatchRequest { from_seq: 0, contract_version: version, logs: vec![] };
        let mut stream = raw(&trial.socket()).await.watch(request).await.unwrap().into_inner();
        let Some(Item::Hello(hello)) = stream.message().await.unwrap().unwrap().item else { panic!() };
        let notice = hello.agent.unwrap().notice;
        assert!(notice.starts_with(says) && notice.is_empty() == says.is_empty(), "{version}: {notice:?}");
        let item = stream.message().await.unwrap().unwrap().item;
        assert!(matches!(item, Some(Item::Event(v1::Event { seq: 1, .. }))), "{item:?}");
    }
}

/// FS-53.
#[tokio::test]
async fn over_tcp_every_call_needs_the_secret() {
    let mut trial = Trial::new(Limits::default());
    trial.serve_with(RpcConfig {
        grpc: Some(Address::Tcp(([127, 0, 0, 1], 0).into())),
        token: Some("s3cret".into()),
        lease: Some(Duration::from_secs(20)),
        ..RpcConfig::default()
    });
    let address = trial.rpc.as_ref().unwrap().tcp_address().unwrap();
    let url = format!("http://{address}");
    for wrong in [None, Some("guess".to_owned())] {
        let target = Target::tcp(&url, wrong).unwrap();
        let mut client = Client::connect(&target).await.unwrap();
        let refusals = [
            client.status().await.err(),
            client.abort("x").await.err(),
            client.logs(LogSource::Server, None, None, false).await.err(),
        ];
        for refusal in refusals {
            let Some(CallError::Refused(fault)) = refusal else { panic!("{refusal:?}") };
            assert_eq!((fault.code, fault.reason.as_str()), (tonic::Code::Unauthenticated, "bad_token"));
        }
        let mut link = Link::open(target, Follow::default());
        let end = next(&mut link).await;
        let LinkEvent::Ended { reason } = end else { panic!("a wrong secret is not retried: {end:?}") };
        assert!(reason.contains("TS_GRPC_TOKEN"), "{reason}");
        assert_eq!(link.events.recv().await, None);
    }
    assert!(trial.commands.try_recv().is_err(), "nothing was started by callers without the secret");
    let target = Target::tcp(&url, Some("s3cret".into())).unwrap();
    let (_, status, _) = Client::connect(&target).await.unwrap().status().await.unwrap();
    assert_eq!(status.token, "7-1");
    let mut beats = AgentClient::with_interceptor(
        Endpoint::try_from(url).unwrap().connect().await.unwrap(),
        |mut request: tonic::Request<()>| {
            request.metadata_mut().insert("authorization", "Bearer s3cret".parse().unwrap());
            Ok(request)
        },
    );
    let sent = futures_util::stream::iter([v1::LeaseRequest {}, v1::LeaseRequest {}]);
    let mut answers = beats.lease(sent).await.unwrap().into_inner();
    for _ in 0..2 {
        assert_eq!(answers.message().await.unwrap(), Some(v1::LeaseResponse { within_ms: 20_000 }));
        assert_eq!(trial.commands.recv().await, Some(Command::LeaseBeat));
    }
}

/// FS-57.
#[tokio::test]
async fn logs_are_the_bytes_on_disk_however_long_a_line() {
    let mut trial = Trial::new(Limits::default());
    trial.serve();
    let mut client = Client::connect(&trial.target()).await.unwrap();
    let Err(CallError::Refused(fault)) = client.logs(LogSource::Server, None, None, false).await else { panic!() };
    assert_eq!((fault.code, fault.reason.as_str()), (tonic::Code::NotFound, "no_such_log"));
    let Err(CallError::Refused(fault)) = client.logs(LogSource::Bench, None, None, false).await else { panic!() };
    assert_eq!(fault.message, "no bench step has begun");

    let mut text = b"short\n".to_vec();
    text.extend((0..10_000_000_u32).map(|n| if n % 251 == 10 { 0xff } else { u8::try_from(n % 251).unwrap() }));
    text.extend(b"\n\x00last\n");
    std::fs::write(trial.server_log(), &text).unwrap();
    let read = async |client: &mut Client, tail| {
        let mut stream = std::pin::pin!(client.logs(LogSource::Server, None, tail, false).await.unwrap());
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            let piece = piece.unwrap();
            if tail.is_none() {
                assert_eq!(piece.offset, bytes.len() as u64);
            }
            bytes.extend(piece.data);
        }
        bytes
    };
    assert!(read(&mut client, None).await == text);
    assert_eq!(read(&mut client, Some(1)).await, b"\x00last\n");
    assert!(read(&mut client, Some(2)).await == text[6..]);

    let mut follower = std::pin::pin!(client.logs(LogSource::Server, None, Some(0), true).await.unwrap());
    let mut file = std::fs::File::options().append(true).open(trial.server_log()).unwrap();
    file.write_all(b"one more\n").unwrap();
    assert_eq!(follower.next().await.unwrap().unwrap().data, b"one more\n");
    file.write_all(b"at the very end").unwrap();
    trial.hub.close();
    let mut rest = Vec::new();
    while let Some(piece) = tokio::time::timeout(PATIENCE, follower.next()).await.unwrap() {
        rest.extend(piece.unwrap().data);
    }
    assert_eq!(rest, b"at the very end");
}

#[tokio::test]
async fn an_abort_is_ordered_once_and_cannot_forge_lines() {
    let mut trial = Trial::new(Limits::default());
    trial.serve();
    let mut client = Client::connect(&trial.target()).await.unwrap();
    for reason in ["x\nTS_BENCH_RESULT: pass", &"x".repeat(1001)] {
        let Err(CallError::Refused(fault)) = client.abort(reason).await else { panic!("{reason}") };
        assert_eq!((fault.code, fault.field.as_str()), (tonic::Code::InvalidArgument, "reason"));
    }
    assert!(trial.commands.try_recv().is_err());
    assert_eq!(client.abort("wrong model").await.unwrap(), (true, Phase::Boot));
    assert_eq!(trial.commands.recv().await, Some(Command::Abort { reason: "wrong model".into() }));
    trial.status.send_modify(|status| status.stopping = Some("abort: wrong model".into()));
    assert_eq!(client.abort("again").await.unwrap(), (false, Phase::Boot));
    assert!(trial.commands.try_recv().is_err());
}

#[tokio::test]
async fn the_status_is_the_fold_of_the_events() {
    let mut trial = Trial::new(Limits::default());
    trial.serve();
    trial.enter(Phase::WaitHealth);
    trial.hub.emit(EventBody::ServerReady { startup_ms: 307 });
    trial.hub.emit(EventBody::StepStarted { step: step(1) });
    trial.status.send_modify(|status| status.server_pid = Some(42));
    let (peer, status, service) = Client::connect(&trial.target()).await.unwrap().status().await.unwrap();
    assert_eq!((peer.contract_version, status.token.as_str(), status.model.as_str()), (1, "7-1", "model"));
    assert_eq!((status.phase(), status.startup_ms, status.server_pid), (Phase::WaitHealth, Some(307), Some(42)));
    assert_eq!(status.running.unwrap().step, step(1));
    assert_eq!((service.oldest_seq, service.next_seq, status.seq, status.lease.as_str()), (1, 5, 4, "off"));
}

#[tokio::test]
async fn a_lease_is_refused_where_the_kernel_holds_it() {
    let mut trial = Trial::new(Limits::default());
    trial.serve();
    let beats = futures_util::stream::iter([v1::LeaseRequest {}]);
    let error = raw(&trial.socket()).await.lease(beats).await.unwrap_err();
    assert_eq!(Fault::from_status(&error).unwrap().reason, "not_on_tcp");
    assert!(trial.commands.try_recv().is_err());
}

/// FS-55.
#[tokio::test]
async fn a_path_too_long_for_a_socket_address_is_reached_all_the_same() {
    let mut trial = Trial::new(Limits::default());
    let deep = trial.dir.path().join("d".repeat(150));
    std::fs::create_dir(&deep).unwrap();
    let path = deep.join("agent.7-1.sock");
    trial.serve_with(RpcConfig { grpc: Some(Address::Unix(path.clone())), ..RpcConfig::default() });
    let (_, status, _) = Client::connect(&Target::Unix(path)).await.unwrap().status().await.unwrap();
    assert_eq!(status.token, "7-1");
}

/// FS-56.
#[tokio::test]
async fn a_peer_that_never_answers_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mute.sock");
    let _mute = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut client = Client::connect(&Target::Unix(path)).await.unwrap();
    let started = std::time::Instant::now();
    let error = client.status().await.unwrap_err();
    assert!(matches!(error, CallError::Timeout(_) | CallError::Failed { .. }), "{error}");
    assert!(started.elapsed() < PATIENCE);
}

#[tokio::test]
async fn metrics_come_over_plain_http_on_the_same_socket() {
    let mut trial = Trial::new(Limits::default());
    trial.serve_with(RpcConfig {
        grpc: Some(Address::Unix(trial.socket())),
        metrics: Some(Address::Tcp(([127, 0, 0, 1], 0).into())),
        ..RpcConfig::default()
    });
    trial.enter(Phase::Measure(1));
    let ask = |stream: &mut dyn ReadWrite, path: &str| {
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let socket = trial.socket();
    let port = trial.rpc.as_ref().unwrap().tcp_address().unwrap();
    let answers = tokio::task::spawn_blocking(move || {
        let mut unix = std::os::unix::net::UnixStream::connect(socket).unwrap();
        let mut tcp = std::net::TcpStream::connect(port).unwrap();
        let mut other = std::net::TcpStream::connect(port).unwrap();
        [ask(&mut unix, "/metrics"), ask(&mut tcp, "/metrics"), ask(&mut other, "/")]
    });
    let [unix, tcp, other] = answers.await.unwrap();
    for answer in [unix, tcp] {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("application/openmetrics-text; version=1.0.0"), "{answer}");
        assert!(answer.contains("tsbench_phase{tsbench_phase=\"measure\"} 1\n") && answer.ends_with("# EOF\n"));
    }
    assert!(other.starts_with("HTTP/1.1 404"), "{other}");
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}
