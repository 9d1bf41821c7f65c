//! The one loop: signals, answers, deadlines and commands become inputs; effects are performed at once.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::panic::AssertUnwindSafe;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use proto::event::{EventBody, Phase, ProcessSample};
use proto::exit::AgentExit;
use proto::finding::{Finding, FindingId};
use proto::marker::Marker;
use proto::secret::Secrets;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::Setup;
use super::follow::Follower;
use super::group::Group;
use super::lease::{self, LeaseEvent};
use super::machine::{FirstToken, Input, Machine, StopCause, Timer, Who};
use super::out::Out;
use super::perform::{Asking, Queries};
use super::signals::Signals;
use super::tree::Sampler;
use crate::config::{Listen, StepId};
use crate::events::{EventHub, Limits, LineSplitter, LogSource, write_journal};
use crate::rpc::{Rpc, RpcConfig};
use crate::status::{Command, Handle, LeaseStatus, LogFiles, Status};

/// What tasks and threads tell the loop.
#[derive(Debug)]
pub(super) enum Msg {
    /// For the machine.
    Input(Input),
    /// An answer of an endpoint, for whoever watches.
    Health { path: &'static str, answer: String },
    /// A sample was taken.
    Sampled(Sampler, Vec<ProcessSample>),
    /// News of the lease.
    Lease(LeaseEvent),
}

/// A group that is being waited for.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) who: Who,
    pub(super) next: Instant,
    pub(super) looks: u32,
}

/// The heartbeat of a controller that shares no file system with us.
#[derive(Debug)]
struct Beats {
    /// Until when the next one must come; `None` before the first, where nobody asked for a lease by name.
    until: Option<Instant>,
}

/// Everything that the loop owns.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) setup: Setup,
    pub(super) machine: Machine,
    pub(super) hub: EventHub,
    pub(super) status: watch::Sender<Status>,
    pub(super) out: Out,
    pub(super) tx: mpsc::Sender<Msg>,
    rx: mpsc::Receiver<Msg>,
    commands: mpsc::Receiver<Command>,
    pub(super) queue: VecDeque<Input>,
    pub(super) server: Option<Group>,
    pub(super) server_started: Option<Instant>,
    pub(super) bench: Option<Group>,
    pub(super) bench_started: Option<Instant>,
    pub(super) queries: Option<Queries>,
    pub(super) asked_groups: Vec<i32>,
    pub(super) asking: Option<Asking>,
    pub(super) phase_deadline: Option<Instant>,
    pub(super) ready_deadline: Option<Instant>,
    pub(super) ladder_deadline: Option<Instant>,
    pub(super) term_sent: Option<Instant>,
    pub(super) watched: Option<Watched>,
    pub(super) server_lines: Follower<LogSource>,
    pub(super) bench_lines: Follower<LogSource>,
    pub(super) bench_copy: Follower<StepId>,
    beats: Option<Beats>,
    sampler: Option<Sampler>,
    next_sample: Instant,
    health_shown: Option<Instant>,
    pub(super) bench_elapsed: Option<Duration>,
    pub(super) tokenspeed_version: String,
    pub(super) write_failed: bool,
    pub(super) finished: Option<AgentExit>,
    /// The status service, as long as there is one.
    rpc: Option<Rpc>,
}

/// Runs one trial on a runtime of its own.
pub(super) fn run(setup: Setup) -> AgentExit {
    record_panics();
    // The loop has the main thread; probes, audits and the status stream share another one.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).max_blocking_threads(4).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("agent: no runtime: {error}");
            return AgentExit::Internal;
        }
    };
    let trial = AssertUnwindSafe(|| runtime.block_on(async { Driver::open(setup).drive().await }));
    let exit = match std::panic::catch_unwind(trial) {
        Ok(Ok(exit)) => exit,
        Ok(Err(error)) => {
            eprintln!("agent: {error}");
            AgentExit::Internal
        }
        // The hook has said why; the parent of the pair, or the end of the namespace, ends the children.
        Err(_) => AgentExit::Internal,
    };
    runtime.shutdown_background();
    exit
}

/// A panic anywhere leaves its reason on stdout, where failures are looked for.
fn record_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        use std::io::Write;
        let line: String = format!("TS_BENCH_FAIL: internal_error {info}")
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let _ = writeln!(std::io::stdout(), "{line}");
        before(info);
    }));
}

fn follow_lines(hub: &EventHub, secrets: &Secrets, name: &str, every: Duration) -> Follower<LogSource> {
    let (hub, secrets) = (hub.clone(), secrets.clone());
    let mut splitter = LineSplitter::new(Limits::default().line_bytes);
    Follower::start(name, every, move |source, bytes: &[u8]| {
        if bytes.is_empty() {
            splitter.finish(|line| hub.log(source, &secrets.hide(line)));
        } else {
            splitter.push(bytes, |line| hub.log(source, &secrets.hide(line)));
        }
    })
}

/// The bench's words reach our stderr, as if it had inherited it.
fn copy_to_stderr(every: Duration) -> Follower<StepId> {
    let mut gone = false;
    Follower::start("stderr", every, move |_, bytes: &[u8]| {
        use std::io::Write;
        gone = gone || std::io::stderr().write_all(bytes).is_err();
    })
}

impl Driver {
    fn open(setup: Setup) -> Self {
        let plan = &setup.plan;
        let hub = EventHub::new(Limits::default());
        let secrets = Secrets::among(setup.environment.iter().map(|(name, value)| (name, value)));
        let status = Status::new(&plan.token, &plan.model, plan.warmup_steps, plan.steps, plan.load.num_prompts);
        let (out, error) = Out::open(&plan.out_dir.join(proto::names::markers(&plan.token)));
        let (tx, rx) = mpsc::channel(256);
        let (command_tx, commands) = mpsc::channel(16);
        let every = setup.timings.follow_every;
        let now = Instant::now();
        let mut driver = Self {
            machine: Machine::new(Arc::clone(plan), setup.timings.read_back_tries),
            server_lines: follow_lines(&hub, &secrets, "server-log", every),
            bench_lines: follow_lines(&hub, &secrets, "bench-log", every),
            bench_copy: copy_to_stderr(every),
            sampler: Some(Sampler::new(setup.roots.proc.clone())),
            status: watch::Sender::new(status),
            setup,
            hub,
            out,
            tx,
            rx,
            commands,
            queue: VecDeque::new(),
            server: None,
            server_started: None,
            bench: None,
            bench_started: None,
            queries: None,
            asked_groups: Vec::new(),
            asking: None,
            phase_deadline: None,
            ready_deadline: None,
            ladder_deadline: None,
            term_sent: None,
            watched: None,
            beats: None,
            next_sample: now,
            health_shown: None,
            bench_elapsed: None,
            tokenspeed_version: String::new(),
            write_failed: false,
            finished: None,
            rpc: None,
        };
        driver.announce();
        if let Some(error) = error {
            driver.write_failed(&error);
        }
        driver.serve_status(command_tx);
        driver.watch_lease();
        driver
    }

    /// The first event: the wall-clock anchor.
    fn announce(&self) {
        let plan = &self.setup.plan;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX).saturating_sub(self.hub.now_ms());
        self.hub.emit(EventBody::Started {
            token: plan.token.to_string(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            contract_version: proto::CONTRACT_VERSION,
            wall_ms,
            model: plan.model.clone(),
            warmup_steps: plan.warmup_steps,
            steps: plan.steps,
            num_prompts: plan.load.num_prompts,
        });
    }

    fn serve_status(&mut self, commands: mpsc::Sender<Command>) {
        let plan = Arc::clone(&self.setup.plan);
        let handle = Handle {
            hub: self.hub.clone(),
            status: self.status.subscribe(),
            commands,
            logs: LogFiles { out_dir: plan.out_dir.clone(), token: plan.token.clone() },
        };
        match Rpc::start(RpcConfig::of(&plan, self.setup.timings.seconds(plan.lease_sec)), handle) {
            Ok(rpc) => {
                for place in rpc.describe() {
                    self.say(&Marker::Info(format!("status service at {place}")));
                }
                self.rpc = Some(rpc);
            }
            Err(error) => self.find(Finding::new(
                FindingId::StatusStreamLost,
                format!("this trial cannot be watched: {error}"),
                "the result is not touched; free the address, or set TS_GRPC_LISTEN",
            )),
        }
    }

    fn watch_lease(&mut self) {
        let plan = Arc::clone(&self.setup.plan);
        let off = |why: &str| {
            Finding::new(
                FindingId::LeaseOff,
                format!("the trial runs without a lease: {why}"),
                "nothing ends this trial when whoever started it dies; a controller takes a lease by itself",
            )
        };
        let grace = self.setup.timings.seconds(plan.lease_sec);
        if plan.lease_sec == 0 {
            return self.find(off("TS_LEASE_SEC is 0"));
        }
        let path = plan.out_dir.join(proto::names::lease(&plan.token));
        match lease::open(&path) {
            Ok(Some(file)) => {
                let tx = self.tx.clone();
                if let Err(error) = lease::watch(file, grace, move |event| drop(tx.blocking_send(Msg::Lease(event)))) {
                    self.find(off(&format!("no thread to watch it: {error}")));
                }
            }
            Ok(None) if matches!(plan.grpc_listen, Listen::Tcp(_)) => {
                self.beats = Some(Beats { until: plan.lease_named.then(|| Instant::now() + grace) });
            }
            Ok(None) => self.find(off("there is no lease file")),
            Err(error) => self.find(off(&format!("{}: {error}", path.display()))),
        }
    }

    async fn drive(mut self) -> std::io::Result<AgentExit> {
        let mut signals = Signals::open()?;
        let journal = self.start_journal();
        let first = self.machine.start();
        self.perform_all(first);
        while self.finished.is_none() {
            self.settle();
            if self.finished.is_some() {
                break;
            }
            let wake = self.next_wake();
            tokio::select! {
                biased;
                arrived = signals.arrived() => {
                    let arrived = arrived?;
                    if let Some(signal) = arrived.stop {
                        self.queue.push_back(Input::Stop(StopCause::Signal(signal)));
                    }
                    if arrived.child {
                        self.reap();
                    }
                }
                Some(msg) = self.rx.recv() => self.message(msg),
                Some(command) = self.commands.recv() => self.command(command),
                () = tokio::time::sleep_until(wake.into()) => self.timers(),
            }
        }
        let exit = self.finished.unwrap_or(AgentExit::Internal);
        self.close(exit, journal).await;
        Ok(exit)
    }

    /// Feeds the machine until it has nothing more to do at once.
    fn settle(&mut self) {
        while let Some(input) = self.queue.pop_front() {
            let effects = self.machine.step(input);
            self.perform_all(effects);
        }
    }

    fn message(&mut self, msg: Msg) {
        match msg {
            Msg::Input(input) => {
                if let Input::FirstToken(FirstToken::Seen(elapsed_ms)) = input {
                    self.hub.emit(EventBody::FirstToken { elapsed_ms });
                }
                self.queue.push_back(input);
            }
            Msg::Health { path, answer } => self.health(path, &answer),
            Msg::Sampled(sampler, processes) => {
                self.sampler = Some(sampler);
                self.status.send_modify(|s| s.processes.clone_from(&processes));
                self.hub.emit(EventBody::ResourcesSampled { processes });
            }
            Msg::Lease(LeaseEvent::Now(lease)) => self.status.send_modify(|s| s.lease = lease),
            Msg::Lease(LeaseEvent::Lost(how)) => {
                self.status.send_modify(|s| s.lease = LeaseStatus::Lost);
                self.queue.push_back(Input::Stop(StopCause::LeaseLost(how)));
            }
        }
    }

    fn health(&mut self, path: &'static str, answer: &str) {
        let at_ms = self.hub.now_ms();
        let mut changed = false;
        self.status.send_modify(|s| changed = s.note_health(path, answer, at_ms));
        // An endpoint that flaps at every probe must not fill the store.
        let rested = self.health_shown.is_none_or(|t| t.elapsed() >= Duration::from_secs(1));
        if changed && (rested || answer.starts_with("200")) {
            self.health_shown = Some(Instant::now());
            self.hub.emit(EventBody::HealthChanged { path: path.to_owned(), answer: answer.to_owned() });
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Abort { reason } => self.queue.push_back(Input::Stop(StopCause::Abort(reason))),
            Command::LeaseBeat => {
                let grace = self.setup.timings.seconds(self.setup.plan.lease_sec);
                if let Some(beats) = &mut self.beats {
                    beats.until = Some(Instant::now() + grace);
                    self.status.send_modify(|s| s.lease = LeaseStatus::Held);
                }
            }
        }
    }

    fn next_wake(&self) -> Instant {
        let beats = self.beats.as_ref().and_then(|b| b.until);
        let queries = self.queries.as_ref().map(|q| q.deadline);
        let watched = self.watched.as_ref().map(|w| w.next);
        [self.phase_deadline, self.ladder_deadline, beats, queries, watched]
            .into_iter()
            .flatten()
            .fold(self.next_sample, Instant::min)
    }

    fn timers(&mut self) {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.phase_deadline) {
            self.phase_deadline = None;
            self.queue.push_back(Input::Expired(Timer::Phase));
        }
        if due(self.ladder_deadline) {
            self.ladder_deadline = None;
            self.queue.push_back(Input::Expired(Timer::Ladder));
        }
        if due(self.beats.as_ref().and_then(|b| b.until)) {
            self.beats = None;
            let how = format!("no heartbeat for {} s", self.setup.plan.lease_sec);
            self.message(Msg::Lease(LeaseEvent::Lost(how)));
        }
        if due(self.queries.as_ref().map(|q| q.deadline)) {
            self.end_queries();
        }
        if due(self.watched.as_ref().map(|w| w.next)) {
            self.look_at_watched();
        }
        if self.next_sample <= now {
            self.next_sample = now + self.setup.timings.sample_every;
            self.sample();
        }
    }

    /// Takes a sample on another thread, unless the last one is still being taken.
    fn sample(&mut self) {
        let Some(mut sampler) = self.sampler.take() else { return };
        let pid = |group: Option<Group>| group.map(|g| g.pid().as_raw());
        let (server, bench, tx) = (pid(self.server), pid(self.bench), self.tx.clone());
        tokio::task::spawn_blocking(move || {
            let processes = sampler.sample(server, bench);
            let _ = tx.blocking_send(Msg::Sampled(sampler, processes));
        });
    }

    /// Reaps everything that can be: the managed children, and in passing every orphan that ended up here.
    fn reap(&mut self) {
        let mut exits: Vec<(i32, ExitStatus)> = Vec::new();
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => exits.push((pid.as_raw(), ExitStatus::from_raw(code << 8))),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    exits.push((pid.as_raw(), ExitStatus::from_raw(signal as i32)));
                }
                Err(Errno::EINTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        let of = |group: Option<Group>, pid: i32| group.is_some_and(|g| g.pid().as_raw() == pid);
        // The server first: a bench that ended because of it must not be blamed.
        if let Some((_, status)) = exits.iter().find(|(pid, _)| of(self.server, *pid)) {
            self.status.send_modify(|s| s.server_pid = None);
            self.queue.push_back(Input::ServerExited(*status));
        }
        if let Some((_, status)) = exits.iter().find(|(pid, _)| of(self.bench, *pid)) {
            self.status.send_modify(|s| s.bench_pid = None);
            self.queue.push_back(Input::BenchExited(*status));
        }
        for (pid, status) in &exits {
            self.query_exited(*pid, *status);
        }
        if self.watched.is_some() {
            self.look_at_watched();
        }
    }

    fn start_journal(&mut self) -> Option<JoinHandle<std::io::Result<()>>> {
        let plan = &self.setup.plan;
        let path = plan.out_dir.join(proto::names::journal(&plan.token));
        match super::child::create_log(&path) {
            Ok(file) => Some(tokio::spawn(journal(self.hub.clone(), file))),
            Err(error) => {
                self.write_failed(&error);
                None
            }
        }
    }

    /// A file of ours could not be written: said once, and the trial goes on.
    pub(super) fn write_failed(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.write_failed, true) {
            let detail = format!("a file in {} could not be written: {error}", self.setup.plan.out_dir.display());
            self.find(Finding::new(FindingId::WriteFailed, detail, "free space there, or check who owns the files"));
        }
    }

    /// Raises a finding: to whoever watches, and in words.
    pub(super) fn find(&mut self, finding: Finding) {
        let id = serde_json::to_value(finding.id).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        self.say(&Marker::Info(format!("finding {id}: {}; {}", finding.detail, finding.hint)));
        self.status.send_modify(|s| s.findings.push(finding.clone()));
        self.hub.emit(EventBody::FindingRaised { finding });
    }

    /// Says a marker line.
    pub(super) fn say(&mut self, marker: &Marker) {
        if let Err(error) = self.out.say(marker) {
            self.write_failed(&error);
        }
    }

    async fn close(&mut self, exit: AgentExit, journal: Option<JoinHandle<std::io::Result<()>>>) {
        let limit = self.setup.timings.flush_limit;
        self.server_lines.close(limit);
        self.bench_lines.close(limit);
        if !self.bench_copy.close(limit) {
            let detail = "stderr did not take all of the bench's output in time; the rest is in its log file";
            self.find(Finding::new(FindingId::OutputCut, detail, "read the bench-log files of this token"));
        }
        if self.out.lost() > 0 {
            let detail = format!("stdout was too slow for {} lines", self.out.lost());
            self.find(Finding::new(FindingId::OutputCut, detail, "read the markers file of this token"));
        }
        self.status.send_modify(|s| {
            s.exit = Some(exit.code());
            s.phase = Phase::Done;
        });
        self.hub.emit(EventBody::Finished { exit: exit.code(), reason: exit.reason().to_owned() });
        self.hub.close();
        if let Some(journal) = journal {
            let _ = tokio::time::timeout(limit, journal).await;
        }
        // Watchers have its own bounded time to read the end.
        if let Some(rpc) = self.rpc.take() {
            rpc.stop();
        }
        self.out.close(limit);
    }
}

async fn journal(hub: EventHub, file: File) -> std::io::Result<()> {
    write_journal(hub.subscribe_events(1), file).await
}
