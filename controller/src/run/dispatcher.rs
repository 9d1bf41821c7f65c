//! The one loop of a trial: picks what happened, asks the machine, does what it says. All waiting happens in `pick`;
//! everything that takes time is a job whose end is picked like any other news.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use proto::event::{Phase, StepKind};
use proto::exit::controller as status;
use proto::finding::{Finding, FindingId};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::{Client, Streams, status_code};
use super::doubt::Doubt;
use super::gather::{Gathered, gather};
use super::journal::{Journal, Told, phase_name};
use super::machine::{Cause, Effect, Input, Machine, State, Timer};
use super::prepare::{Prepared, prepare};
use super::progress::{Progress, View};
use super::removal::{self, Outcome, Pace};
use super::runtime::Look;
use super::signals::{Arrival, Stops};
use super::timings::{Roots, Timings};
use super::writer::Writer;
use super::{helper, vram};
use crate::agent_link::{Follow, Link, LinkEvent, Target};
use crate::config::trial::Trial;
use crate::error::{ErrorDocument, HostError};
use crate::result::assemble::assemble;
use crate::result::document::{Document, ResultDocument, SignalRecord};
use crate::result::observed::{ClientEnd, GpuMemory, Interruption, Observed, Removal, RunIdentity};
use crate::result::store::ResultTarget;

/// How a run ended for the process that ran it.
#[derive(Debug)]
pub enum End {
    /// A status of the design's table, and the document behind it.
    Status(u8, Box<Document>),
    /// Die by this signal; everything is written.
    Signal(Signal),
}

/// Everything that a run needs.
#[derive(Debug)]
pub struct Setup {
    /// What to run.
    pub trial: Arc<Trial>,
    /// Who it is.
    pub identity: RunIdentity,
    /// Findings of the configuration.
    pub findings: Vec<Finding>,
    /// Waits.
    pub timings: Timings,
    /// Roots.
    pub roots: Roots,
    /// Signals; `None` where the caller handles them.
    pub stops: Option<Stops>,
    /// Where the document goes.
    pub target: ResultTarget,
    /// What people see meanwhile.
    pub progress: Progress,
    /// When the controller started.
    pub started: Instant,
}

/// Runs the trial to its end.
pub async fn execute(setup: Setup) -> End {
    let writer = match Writer::start(setup.target) {
        Ok(writer) => writer,
        Err(error) => {
            let error =
                HostError::new(None, "thread", format!("no thread to be had: {error}"), "raise the process limit");
            return End::Status(status::HOST, Box::new(Document::Error((&error).into())));
        }
    };
    let mut seen = Observed::new(setup.identity);
    seen.findings = setup.findings;
    seen.lease.sec = setup.trial.own.lease_sec;
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let journal = Journal::of(&seen.identity.out_dir, &seen.identity.token);
    let mut driver = Driver {
        machine: Machine::new(setup.timings),
        was: State::Preparing,
        trial: setup.trial,
        timings: setup.timings,
        roots: setup.roots,
        stops: setup.stops,
        writer,
        progress: setup.progress,
        started: setup.started,
        seen,
        told: Told::default(),
        journal,
        prepared: None,
        client: None,
        link: None,
        jobs: JoinSet::new(),
        timer: None,
        deadline: None,
        hurry: None,
        first_stop: None,
        spawned_at: None,
        doubt: Doubt::default(),
        host_error: None,
        streams: None,
        foreign: false,
        end: None,
        tick,
    };
    driver.begin();
    loop {
        if let Some(input) = driver.pick().await {
            driver.take(input).await;
        }
        if let Some(end) = driver.end.take() {
            return end;
        }
    }
}

/// A job's end.
#[derive(Debug)]
enum Done {
    Prepared(Box<Result<Prepared, HostError>>),
    Looked(Look),
    Removed { outcome: Outcome, streams: Option<Streams>, took: Duration },
    Snapshot(Box<Gathered>),
    Collected(Option<Box<Gathered>>),
    Gpu { memory: GpuMemory, waited: Duration },
}

/// What was picked.
enum News {
    Stop(Arrival),
    Reaped(std::io::Result<std::process::ExitStatus>),
    Job(Result<Done, tokio::task::JoinError>),
    Timer,
    Deadline,
    Link(Option<LinkEvent>),
    Tick,
}

struct Driver {
    machine: Machine,
    /// Where it was before the input that is being acted on.
    was: State,
    trial: Arc<Trial>,
    timings: Timings,
    roots: Roots,
    stops: Option<Stops>,
    writer: Writer,
    progress: Progress,
    started: Instant,
    seen: Observed,
    told: Told,
    journal: Journal,
    prepared: Option<Prepared>,
    client: Option<Client>,
    link: Option<Link>,
    jobs: JoinSet<Done>,
    timer: Option<(Timer, Instant)>,
    deadline: Option<Instant>,
    hurry: Option<watch::Sender<tokio::time::Instant>>,
    first_stop: Option<Arrival>,
    spawned_at: Option<Instant>,
    doubt: Doubt,
    host_error: Option<HostError>,
    streams: Option<Streams>,
    foreign: bool,
    end: Option<End>,
    tick: tokio::time::Interval,
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => pending().await,
    }
}

impl Driver {
    fn begin(&mut self) {
        let trial = Arc::clone(&self.trial);
        let (identity, roots, timings) = (self.seen.identity.clone(), self.roots.clone(), self.timings);
        let note = self.progress.noter();
        self.jobs.spawn(async move { Done::Prepared(Box::new(prepare(trial, identity, roots, timings, note).await)) });
        self.show();
    }

    /// Waits for the next piece of news and turns it into an input, where it is one.
    async fn pick(&mut self) -> Option<Input> {
        let Self { stops, client, jobs, timer, deadline, link, tick, .. } = self;
        let stop = async {
            match stops {
                Some(stops) => stops.arrivals.recv().await,
                None => pending().await,
            }
        };
        let reaped = async {
            match client {
                Some(client) => client.wait().await,
                None => pending().await,
            }
        };
        let told = async {
            match link {
                Some(link) => link.events.recv().await,
                None => pending().await,
            }
        };
        let news = tokio::select! {
            biased;
            Some(arrival) = stop => News::Stop(arrival),
            status = reaped => News::Reaped(status),
            Some(done) = jobs.join_next() => News::Job(done),
            () = until(timer.map(|(_, at)| at)) => News::Timer,
            () = until(*deadline) => News::Deadline,
            event = told => News::Link(event),
            _ = tick.tick() => News::Tick,
        };
        self.understand(news)
    }

    fn understand(&mut self, news: News) -> Option<Input> {
        match news {
            News::Stop(arrival) => {
                let at_ms = u64::try_from((arrival.at - self.started).as_millis()).unwrap_or(u64::MAX);
                self.seen.signals.push(SignalRecord { signal: arrival.stop.name().to_owned(), at_ms });
                let first = *self.first_stop.get_or_insert(arrival);
                tracing::warn!("{}: stopping; the trial dies by {}", arrival.stop.name(), first.stop.signal());
                Some(Input::Signal)
            }
            News::Reaped(result) => Some(self.reaped(result)),
            News::Job(Ok(done)) => self.job_done(done),
            News::Job(Err(error)) => self.job_lost(&error),
            News::Timer => self.timer.take().map(|(timer, _)| Input::Timer(timer)),
            News::Deadline => {
                self.deadline = None;
                tracing::warn!("timeout_sec={} is over: stopping the container", self.trial.timing.timeout_sec);
                Some(Input::Deadline)
            }
            News::Link(event) => {
                self.link_said(event);
                None
            }
            News::Tick => {
                // The journal says the same as the stream; without a stream it is all there is.
                if self.client.is_some() {
                    self.journal.poll(&mut self.told);
                }
                self.ask_for_container();
                self.show();
                None
            }
        }
    }

    fn reaped(&mut self, result: std::io::Result<std::process::ExitStatus>) -> Input {
        self.seen.phases.client_ms = self.spawned_at.map(|at| ms(at.elapsed()));
        if let Some(client) = self.client.take() {
            self.streams = Some(client.into_streams());
        }
        let stopping = matches!(self.machine.state(), State::Stopping(..));
        match result {
            Ok(exit) => {
                let code = status_code(exit);
                self.seen.agent_exit = Some(code);
                let hung = matches!(self.machine.state(), State::Stopping(Cause::Hung, _));
                let end = match (hung, stopping) {
                    (true, _) => Some(ClientEnd::Hung(code)),
                    (false, true) => None,
                    (false, false) => Some(ClientEnd::Exited(code)),
                };
                if let Some(end) = end {
                    self.seen.end = Some(end);
                }
            }
            Err(error) if !stopping => self.seen.end = Some(ClientEnd::Lost { error: error.to_string() }),
            Err(_) => {}
        }
        Input::ClientReaped
    }

    fn job_done(&mut self, done: Done) -> Option<Input> {
        match done {
            Done::Prepared(result) => Some(self.prepared(*result)),
            Done::Looked(look) => {
                self.doubt.answered();
                match look {
                    Look::Absent => {
                        // Ordinary for an instant at every end; a client that never notices is `Cause::Hung`.
                        tracing::debug!("the container is gone and its client is still there");
                        Some(Input::ContainerGone)
                    }
                    Look::Ours { .. } | Look::Foreign { .. } | Look::Unknown { .. } => None,
                }
            }
            Done::Removed { outcome, streams, took } => {
                self.removed(outcome, streams, took);
                Some(Input::Removed)
            }
            Done::Snapshot(gathered) => {
                gathered.into_seen(&mut self.seen);
                if self.machine.state() != State::Over {
                    let document = self.document();
                    self.writer.write(Document::Result(Box::new(document)));
                }
                None
            }
            Done::Collected(gathered) => {
                if let Some(gathered) = gathered {
                    gathered.into_seen(&mut self.seen);
                } else {
                    tracing::warn!("the exports could not be read in the time that the signal left");
                }
                Some(Input::Collected)
            }
            Done::Gpu { memory, waited } => {
                self.seen.phases.gpu_memory_wait_ms = Some(ms(waited));
                self.seen.gpu_memory = memory;
                Some(Input::GpuDone)
            }
        }
    }

    /// A job panicked: what it was for is not known to have happened.
    fn job_lost(&mut self, error: &tokio::task::JoinError) -> Option<Input> {
        if error.is_cancelled() {
            return None;
        }
        tracing::error!("a task of the controller failed: {error}");
        self.doubt.answered();
        match self.machine.state() {
            State::Preparing => {
                self.host_error = Some(HostError::new(None, "prepare", format!("{error}"), "this is a bug: report it"));
                Some(Input::PrepareFailed)
            }
            State::Removing(_) => {
                let command = self.prepared.as_ref().map(|p| p.runtime.by_hand()).unwrap_or_default();
                self.seen.removal = Removal::NotProven { detail: error.to_string(), command };
                Some(Input::Removed)
            }
            State::Collecting(_) => Some(Input::Collected),
            State::WaitingForGpu => Some(Input::GpuDone),
            State::Spawning | State::Running | State::Lingering | State::Stopping(..) | State::Over => None,
        }
    }

    fn prepared(&mut self, result: Result<Prepared, HostError>) -> Input {
        self.seen.phases.prepare_ms = Some(ms(self.started.elapsed()));
        match result {
            Ok(prepared) => {
                self.seen.identity.gateway_port = Some(prepared.ports.gateway);
                self.seen.identity.control_port = Some(prepared.ports.control);
                self.seen.agent.clone_from(&prepared.agent);
                self.seen.lease.held = prepared.lease.is_some();
                self.seen.findings.extend(prepared.findings.iter().cloned());
                self.seen.phases.pull_ms = prepared.pull.map(ms);
                self.prepared = Some(prepared);
                Input::Prepared
            }
            Err(error) => {
                self.host_error = Some(error);
                Input::PrepareFailed
            }
        }
    }

    fn link_said(&mut self, event: Option<LinkEvent>) {
        match event {
            Some(LinkEvent::Event(event)) => {
                self.doubt.settle();
                self.told.apply(&event);
                self.ask_for_container();
                self.show();
            }
            Some(LinkEvent::Connected { peer, .. }) => {
                tracing::debug!("status stream of agent {} connected", peer.version);
                if !peer.notice.is_empty() {
                    tracing::warn!("{}", peer.notice);
                }
            }
            Some(LinkEvent::Lost { reason } | LinkEvent::Ended { reason }) => {
                tracing::debug!("status stream: {reason}");
                self.doubt.raise(Instant::now());
                self.ask_for_container();
            }
            Some(LinkEvent::Waiting { reason }) => tracing::debug!("status stream: {reason}"),
            Some(LinkEvent::Unreadable { reason }) => tracing::debug!("status stream: unreadable: {reason}"),
            Some(LinkEvent::Gap { .. } | LinkEvent::Log(_) | LinkEvent::LogsDropped { .. }) => {}
            None => self.link = None,
        }
    }

    /// Asks whether the container is still there, where there is a reason to: a lost stream, or the agent's last word.
    fn ask_for_container(&mut self) {
        if self.machine.state() != State::Running || !self.trial.own.runtime.is_container() {
            return;
        }
        let now = Instant::now();
        if self.told.status.finished.is_some() {
            self.doubt.raise(now);
        }
        let Some(prepared) = &self.prepared else { return };
        if self.doubt.ask(now) {
            let (runtime, limit) = (Arc::clone(&prepared.runtime), self.timings.query_call);
            self.jobs.spawn(async move { Done::Looked(runtime.look(limit).await) });
        }
    }

    async fn take(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.was = self.machine.state();
            let effects = self.machine.step(input);
            tracing::debug!("{:?} + {input:?} -> {:?}", self.was, self.machine.state());
            for effect in effects {
                inputs.extend(self.act(effect).await);
            }
        }
        self.show();
    }

    async fn act(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Spawn => return Some(self.spawn()),
            Effect::TermClient => {
                if let State::Stopping(cause, _) = self.machine.state() {
                    self.note_cause(cause);
                }
                if let Some(client) = &self.client {
                    client.terminate();
                }
            }
            Effect::KillClient => {
                if let Some(client) = &self.client {
                    client.kill();
                }
            }
            Effect::Arm(timer, after) => self.timer = Some((timer, Instant::now() + after)),
            Effect::Remove { reaped } => self.remove(reaped),
            Effect::HurryRemoval => {
                if let (Some(hurry), Some(stop)) = (&self.hurry, &self.first_stop) {
                    let _ = hurry.send((stop.at + self.timings.signal_remove).into());
                }
            }
            Effect::Collect => self.collect(),
            Effect::WaitForGpu => return self.wait_for_gpu(),
            Effect::WriteInterrupted => self.write_interrupted(),
            Effect::Finish => self.finish().await,
            Effect::Die => self.die().await,
        }
        None
    }

    /// What the client's end will have been.
    fn note_cause(&mut self, cause: Cause) {
        match cause {
            Cause::Deadline => self.seen.end = Some(ClientEnd::TimedOut),
            // Known once it is reaped, or said by the signal's own note.
            Cause::Exit | Cause::Hung | Cause::Error | Cause::Signal => {}
        }
    }

    fn spawn(&mut self) -> Input {
        let Some(prepared) = &mut self.prepared else { return Input::SpawnFailed };
        let now = Instant::now();
        self.spawned_at = Some(now);
        self.seen.started_at = Some(wall_clock());
        tracing::info!(
            "{}: model {}, {} + {} steps, token {}",
            self.trial.own.runtime.as_str(),
            self.trial.model.model,
            self.trial.load.warmup_steps,
            self.trial.load.steps,
            self.seen.identity.token
        );
        match Client::spawn(&prepared.launch) {
            Ok(client) => {
                prepared.spawned(client.pid().as_raw());
                self.deadline = now.checked_add(Duration::from_secs(self.trial.timing.timeout_sec));
                let socket = self.seen.identity.out_dir.join(proto::names::socket(&self.seen.identity.token));
                if socket.as_os_str().len() <= proto::names::SOCKET_PATH_MAX {
                    self.link = Some(Link::open(Target::Unix(socket), Follow::default()));
                }
                self.client = Some(client);
                Input::Spawned
            }
            Err(error) => {
                self.host_error = Some(prepared.spawn_error(&self.trial, &error));
                self.seen.end = Some(ClientEnd::Lost { error: error.to_string() });
                Input::SpawnFailed
            }
        }
    }

    fn remove(&mut self, reaped: bool) {
        self.timer = None;
        self.deadline = None;
        self.drain_link();
        // Unreaped: the handle goes, the process is reaped by whoever inherits it.
        let streams = self.streams.take().or_else(|| self.client.take().map(Client::into_streams));
        if !reaped {
            tracing::warn!("could not stop the client; the container is removed three times");
        }
        self.journal.poll(&mut self.told);
        let Some(prepared) = &self.prepared else { return };
        // A client that ended before the agent was ever heard may have left the daemon creating what it asked for.
        let heard = self.told.status.seq > 0 || streams.as_ref().is_some_and(Streams::spoke);
        let clean = heard && matches!(self.seen.end, Some(ClientEnd::Exited(0..=124)));
        // A process tree has no daemon that could still be creating something.
        let settled = reaped && (clean || !self.trial.own.runtime.is_container());
        let pace = if settled { Pace::CLEAN } else { Pace::of(reaped, clean, heard) };
        let until = match &self.first_stop {
            Some(stop) => (stop.at + self.timings.signal_remove).into(),
            None => tokio::time::Instant::now() + self.timings.remove_total,
        };
        let drain = if self.first_stop.is_some() { Duration::from_millis(200) } else { self.timings.drain };
        let (hurry, deadline) = watch::channel(until);
        self.hurry = Some(hurry);
        let (runtime, timings) = (Arc::clone(&prepared.runtime), self.timings);
        self.jobs.spawn(async move {
            let begun = Instant::now();
            let mut streams = streams;
            let read = async {
                if let Some(streams) = &mut streams {
                    streams.finish(drain).await;
                }
            };
            let (outcome, ()) = tokio::join!(removal::remove(runtime.as_ref(), pace, deadline, &timings), read);
            Done::Removed { outcome, streams, took: begun.elapsed() }
        });
    }

    /// What the stream still holds once the client is gone.
    fn drain_link(&mut self) {
        if let Some(mut link) = self.link.take() {
            while let Ok(event) = link.events.try_recv() {
                if let LinkEvent::Event(event) = event {
                    self.told.apply(&event);
                }
            }
        }
    }

    fn removed(&mut self, outcome: Outcome, streams: Option<Streams>, took: Duration) {
        self.hurry = None;
        self.seen.phases.removal_ms = Some(ms(took));
        self.seen.container_elapsed = self.spawned_at.map(|at| at.elapsed());
        if let Some(streams) = streams {
            (self.seen.stdout_tail, self.seen.stderr_tail) = streams.tails();
            self.seen.markers = streams.markers();
        }
        self.foreign = outcome.foreign;
        let by_itself = matches!(self.seen.end, Some(ClientEnd::Exited(_)));
        self.seen.container_outlived_client =
            by_itself && outcome.found_running && self.trial.own.runtime.is_container();
        self.seen.removal = outcome.removal;
        if let Some(prepared) = &self.prepared {
            let survivors = prepared.survivors();
            // Where we killed the agent ourselves, sweeping is part of it; what resists is told in every case.
            self.seen.survivors = survivors.into_iter().filter(|s| by_itself || !s.killed).collect();
            if !self.trial.own.runtime.is_container() {
                self.seen.removal = Removal::NotNeeded;
            }
        }
    }

    fn collect(&mut self) {
        let work = self.gathering();
        let limit = self.first_stop.map(|stop| {
            (stop.at + self.timings.signal_death).saturating_duration_since(Instant::now() + Duration::from_millis(250))
        });
        self.jobs.spawn(async move {
            let gathered = match limit {
                Some(limit) => tokio::time::timeout(limit, work).await.ok().flatten(),
                None => work.await,
            };
            Done::Collected(gathered.map(Box::new))
        });
    }

    fn gathering(&self) -> impl Future<Output = Option<Gathered>> + use<> {
        let identity = self.seen.identity.clone();
        let (steps, told) = (self.trial.load.steps, self.told.clone());
        async move { tokio::task::spawn_blocking(move || gather(&identity, steps, told)).await.ok() }
    }

    fn wait_for_gpu(&mut self) -> Option<Input> {
        let before = self.prepared.as_mut().and_then(|p| p.gpu_before.take());
        let Some(before) = before.filter(|_| self.host_error.is_none()) else { return Some(Input::GpuDone) };
        let (sysfs, hip) = (self.roots.sysfs.clone(), self.trial.gpus.hip_visible_devices.clone());
        let mut timings = self.timings;
        if matches!(self.seen.removal, Removal::NotProven { .. }) {
            // Release cannot be expected while the container may live (failure scenario FS-14).
            timings.gpu_wait = Duration::ZERO;
        }
        self.jobs.spawn(async move {
            let begun = Instant::now();
            let memory = vram::wait(&sysfs, &before, hip.as_deref(), &timings).await;
            Done::Gpu { memory, waited: begun.elapsed() }
        });
        None
    }

    fn write_interrupted(&mut self) {
        self.journal.poll(&mut self.told);
        let signal = self.first_stop.map(|stop| stop.stop.signal().as_str().to_owned());
        let (phase, step) = self.phase(self.was);
        self.seen.end = Some(ClientEnd::Interrupted(Interruption { signal, phase: Some(phase), step }));
        let document = self.document();
        self.writer.write(Document::Result(Box::new(document)));
        // The steps audited so far follow as soon as they are read; the client is signalled meanwhile.
        let work = self.gathering();
        self.jobs.spawn(async move {
            match work.await {
                Some(gathered) => Done::Snapshot(Box::new(gathered)),
                None => pending().await,
            }
        });
    }

    /// Name of a state in documents and on screens, and the measured step under way.
    fn phase(&self, state: State) -> (String, Option<u32>) {
        let name = match state {
            State::Preparing => "prepare",
            State::Spawning => "start",
            State::Running | State::Lingering => {
                return match self.told.status.phases.last().map(|span| span.phase) {
                    None => ("start".to_owned(), None),
                    Some(phase @ Phase::Measure(step)) => (phase_name(phase).to_owned(), Some(step)),
                    Some(phase) => (phase_name(phase).to_owned(), None),
                };
            }
            State::Stopping(..) => "stopping",
            State::Removing(_) => "removal",
            State::Collecting(_) => "collect",
            State::WaitingForGpu => "gpu_memory_wait",
            State::Over => "done",
        };
        (name.to_owned(), None)
    }

    fn document(&mut self) -> ResultDocument {
        self.seen.elapsed = self.spawned_at.map_or(Duration::ZERO, |at| at.elapsed());
        assemble(&self.trial, &self.seen)
    }

    async fn finish(&mut self) {
        let host_error = self.host_error.take().or_else(|| self.not_a_measurement());
        let (code, document) = if let Some(error) = host_error {
            tracing::error!("{error}; {}", error.hint);
            (status::HOST, Document::Error(ErrorDocument::from(&error)))
        } else {
            let document = self.document();
            let code = if document.passed { status::OK } else { status::NOT_PASSED };
            (code, Document::Result(Box::new(document)))
        };
        self.tidy();
        self.progress.finish();
        let written = self.writer.finish(document.clone(), Duration::from_mins(1)).await;
        let code = match written {
            Ok(()) => code,
            Err(error) => {
                tracing::error!("the result document could not be written: {error}");
                code.max(status::NOT_PASSED)
            }
        };
        self.end = Some(End::Status(code, Box::new(document)));
    }

    /// The client says that nothing was ever run: the host's fault, not a result.
    fn not_a_measurement(&self) -> Option<HostError> {
        let Some(ClientEnd::Exited(code)) = self.seen.end else { return None };
        let silent = self.told.status.seq == 0 && self.seen.markers == proto::marker::Markers::default();
        self.prepared.as_ref().filter(|_| silent)?.client_error(&self.trial, code, self.foreign, &self.seen.stderr_tail)
    }

    async fn die(&mut self) {
        let Some(stop) = self.first_stop else { return };
        let _ = tokio::time::timeout(Duration::from_millis(200), self.give_up_jobs()).await;
        if let Removal::NotProven { .. } = self.seen.removal
            && let Some(prepared) = &self.prepared
        {
            self.seen.reaper = helper::spawn(prepared, &self.seen.identity, &self.timings);
            if self.seen.reaper.is_some() {
                self.seen.findings.push(Finding::new(
                    FindingId::CleanupContinues,
                    "the container could not be removed before the controller had to die; a detached helper goes on",
                    "read its log, named in trial.reaper",
                ));
            }
        }
        self.tidy();
        let document = Document::Result(Box::new(self.document()));
        let left = (stop.at + self.timings.signal_death).saturating_duration_since(Instant::now());
        self.progress.finish();
        if let Err(error) = self.writer.finish(document, left).await {
            tracing::error!("the result document could not be written: {error}");
        }
        self.end = Some(End::Signal(stop.stop.signal()));
    }

    /// A job that is given up ends its client; nobody would once this process is gone. A preparation that was just
    /// done is taken over, since its lease and its entry on the list are there.
    async fn give_up_jobs(&mut self) {
        self.jobs.abort_all();
        while let Some(joined) = self.jobs.join_next().await {
            if let Ok(Done::Prepared(result)) = joined {
                self.prepared = result.ok();
            }
        }
    }

    /// Gives back what ties the trial to this process, once nothing of it can be left.
    fn tidy(&mut self) {
        let proven = !matches!(self.seen.removal, Removal::NotProven { .. });
        let ended = self.seen.survivors.iter().all(|s| s.killed);
        if let Some(prepared) = &mut self.prepared
            && proven
            && ended
        {
            prepared.release(&self.seen.identity, self.trial.place.keep_work_dir);
        }
    }

    fn show(&mut self) {
        let (phase, _) = self.phase(self.machine.state());
        self.progress.update(&View {
            phase: &phase,
            told: &self.told,
            elapsed: self.started.elapsed(),
            steps: self.trial.load.steps,
            warmup_steps: self.trial.load.warmup_steps,
        });
    }
}

/// A duration in milliseconds.
fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn wall_clock() -> String {
    let format = &time::format_description::well_known::Rfc3339;
    time::OffsetDateTime::now_utc().format(format).unwrap_or_default()
}

/// The running step of a kind, as people count.
pub fn step_label(kind: StepKind, number: u32, total: u32) -> String {
    match kind {
        StepKind::Warmup => format!("warmup {number}/{total}"),
        StepKind::Measured => format!("step {number}/{total}"),
    }
}
