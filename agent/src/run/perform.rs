//! Effects, performed: nothing here decides.

use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2};
use proto::event::{EventBody, Phase};
use proto::exit::AgentExit;
use proto::finding::{Finding, FindingId};
use proto::marker::Marker;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::child::{Apart, Output, create_log, spawn};
use super::driver::{Driver, Msg, Watched};
use super::group::Group;
use super::machine::{Ask, BenchListed, Effect, FirstToken, Input, Limit, Listening, Timer, Who};
use super::{audit, listeners, probe, query, tree};
use crate::config::{Argv, Data, StepId};
use crate::events::LogSource;
use crate::status::{Status, StepStatus};
use crate::timing::Timings;

/// Lines of the server's log that a failure shows (contract B.1).
const TAIL_LINES: usize = 40;
/// How far back they are looked for, bytes.
const TAIL_BYTES: u64 = 256 << 10;

/// The two questions to `tokenspeed` itself.
#[derive(Debug)]
pub(super) struct Queries {
    version: Query,
    help: Query,
    pub(super) deadline: Instant,
}

#[derive(Debug)]
enum Query {
    Asked { group: Group, answer: OwnedFd },
    Answered(String),
    NotAsked,
}

impl Query {
    /// What it answered; it is over, or has to be.
    fn end(&mut self) -> String {
        match std::mem::replace(self, Self::NotAsked) {
            Self::Asked { group, answer } => {
                group.signal(Signal::SIGKILL);
                read_all(answer)
            }
            Self::Answered(text) => text,
            Self::NotAsked => String::new(),
        }
    }

    const fn is_open(&self) -> bool {
        matches!(self, Self::Asked { .. })
    }
}

/// What a pipe holds now; it was made non-blocking, and its capacity bounds the answer.
fn read_all(answer: OwnedFd) -> String {
    let mut file = std::fs::File::from(answer);
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = file.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..n]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A question to the server that is being asked.
#[derive(Debug)]
pub(super) struct Asking {
    task: AbortHandle,
    last: watch::Sender<bool>,
}

impl Driver {
    pub(super) fn perform_all(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Enter(phase) => self.enter(phase),
            Effect::Say(marker) => self.say(&marker),
            Effect::Find(finding) => self.find(finding),
            Effect::Query => self.query(),
            Effect::Preamble => self.preamble(),
            Effect::StartServer => self.start_server(),
            Effect::ReportReady => self.report_ready(),
            Effect::StartBench(step) => self.start_bench(step),
            Effect::ClearBench => self.clear_bench(),
            Effect::Ask(ask) => self.ask(ask),
            Effect::AskLast => {
                if let Some(asking) = &self.asking {
                    asking.last.send_replace(true);
                }
            }
            Effect::StopAsking => {
                if let Some(asking) = self.asking.take() {
                    asking.task.abort();
                }
            }
            Effect::Audit(step) => self.audit(step),
            Effect::StepOver { step, verdict, detail, figures, sha256 } => {
                self.step_over(step, verdict, detail, figures, sha256);
            }
            Effect::ServerTail { header } => self.server_tail(header),
            Effect::Arm(timer, limit) => self.arm(timer, limit),
            Effect::Disarm(Timer::Phase) => self.phase_deadline = None,
            Effect::Disarm(Timer::Ladder) => self.ladder_deadline = None,
            Effect::Terminate(who) => self.terminate(who),
            Effect::Kill(who) => self.kill(who),
            Effect::Watch(who) => {
                self.watched = Some(Watched { who, next: Instant::now(), looks: 0 });
                self.look_at_watched();
            }
            Effect::Stopping(cause) => {
                self.status.send_modify(|s| s.stopping = Some(cause.clone()));
                self.hub.emit(EventBody::Stopping { cause });
            }
            Effect::ReportSurvivors => {
                let left = tree::strays(&self.setup.roots.proc).unwrap_or_default();
                let detail = format!("SIGKILL did not end {}", tree::describe(&left));
                let hint =
                    "they are stuck in the kernel, most likely in the GPU driver; look at them before the next trial";
                self.find(Finding::new(FindingId::ProcessSurvivors, detail, hint));
            }
            Effect::Finish(exit) => self.finished = Some(exit),
        }
    }

    fn enter(&mut self, phase: Phase) {
        let at_ms = self.hub.now_ms();
        let start = self.hub.started();
        let deadline_ms =
            self.phase_deadline.and_then(|at| u64::try_from(at.saturating_duration_since(start).as_millis()).ok());
        self.status.send_modify(|s| {
            s.phase = phase;
            s.phase_since_ms = at_ms;
            s.deadline_ms = deadline_ms;
            s.step = None;
        });
        self.hub.emit(EventBody::PhaseEntered { phase, deadline_ms });
    }

    fn arm(&mut self, timer: Timer, limit: Limit) {
        let (plan, timings) = (&self.setup.plan, &self.setup.timings);
        let now = Instant::now();
        let at = now
            + match limit {
                Limit::Ready => timings.seconds(plan.ready_timeout_sec),
                Limit::Generate => timings.generate_window,
                Limit::ReadBackPause => timings.read_back_pause,
                Limit::FirstToken => {
                    let rest = self.ready_deadline.map(|at| at.saturating_duration_since(now)).unwrap_or_default();
                    rest.max(timings.generate_probe_min)
                }
                Limit::Step => timings.seconds(plan.bench_timeout_sec),
                Limit::BenchKill => timings.bench_kill_after,
                Limit::BenchKillSoon => timings.bench_kill_soon,
                Limit::Grace => timings.seconds(plan.teardown_grace_sec),
                Limit::StrayGrace => timings.stray_grace,
                Limit::KillWait => timings.kill_wait,
            };
        if limit == Limit::Ready {
            self.ready_deadline = Some(at);
        }
        match timer {
            Timer::Phase => self.phase_deadline = Some(at),
            Timer::Ladder => self.ladder_deadline = Some(at),
        }
    }

    fn query(&mut self) {
        let plan = Arc::clone(&self.setup.plan);
        if let Some(port) = [plan.gateway_port, plan.control_port].into_iter().find(|port| !listeners::is_free(*port)) {
            let by = listeners::holder(&self.setup.roots.proc, port);
            return self.queue.push_back(Input::PortTaken(by));
        }
        let version = self.ask_tokenspeed("version");
        let help = self.ask_tokenspeed("--help");
        let deadline = Instant::now() + self.setup.timings.query_limit;
        self.queries = Some(Queries { version, help, deadline });
        self.end_queries_if_answered();
    }

    fn ask_tokenspeed(&mut self, word: &str) -> Query {
        let argv = Argv { program: self.setup.tokenspeed.clone(), args: vec![word.to_owned()] };
        let started =
            pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(std::io::Error::from).and_then(|(read, write)| {
                // Only our end is non-blocking: the child's must behave as usual.
                nix::fcntl::fcntl(&write, nix::fcntl::FcntlArg::F_SETFL(OFlag::empty()))?;
                spawn(&self.setup, &argv, Apart::Group, Output::Pipe(write)).map(|group| (group, read))
            });
        match started {
            Ok((group, answer)) => {
                self.asked_groups.push(group.pid().as_raw());
                Query::Asked { group, answer }
            }
            Err(_) => Query::NotAsked,
        }
    }

    pub(super) fn query_exited(&mut self, pid: i32, status: ExitStatus) {
        let Some(queries) = &mut self.queries else { return };
        for query in [&mut queries.version, &mut queries.help] {
            if matches!(query, Query::Asked { group, .. } if group.pid().as_raw() == pid) {
                let text = query.end();
                *query = Query::Answered(if status.success() { text } else { String::new() });
            }
        }
        self.end_queries_if_answered();
    }

    fn end_queries_if_answered(&mut self) {
        if self.queries.as_ref().is_some_and(|q| !q.version.is_open() && !q.help.is_open()) {
            self.end_queries();
        }
    }

    pub(super) fn end_queries(&mut self) {
        let Some(mut queries) = self.queries.take() else { return };
        // A help that did not end in time is no list, whatever it has printed so far.
        let listed = if queries.help.is_open() {
            queries.help.end();
            BenchListed::NoList
        } else {
            query::bench_listed(&queries.help.end())
        };
        self.tokenspeed_version = query::one_line(&queries.version.end());
        self.queue.push_back(Input::Queried(listed));
    }

    /// Contract B.0.
    fn preamble(&mut self) {
        let plan = Arc::clone(&self.setup.plan);
        let load = &plan.load;
        let (isl, osl) = match &load.data {
            Data::Random { input_len } => (input_len.to_string(), load.output_len.to_string()),
            Data::Sharegpt { .. } => ("from-dataset".to_owned(), "from-dataset".to_owned()),
        };
        let rocm = std::fs::read_to_string(&self.setup.roots.rocm_version);
        let unknown = |text: String| if text.is_empty() { "unknown".to_owned() } else { text };
        let mut lines = vec![
            format!("model={} gateway_port={} control_port={}", plan.model, plan.gateway_port, plan.control_port),
            format!(
                "steps={} num_prompts={} dataset={} isl={isl} osl={osl}",
                plan.steps,
                load.num_prompts,
                load.data.dataset().as_str()
            ),
            format!(
                "max_concurrency={} request_rate={} warmups={}",
                load.max_concurrency.as_deref().unwrap_or("unbounded"),
                load.request_rate,
                load.num_warmups
            ),
            format!("tokenspeed={}", unknown(self.tokenspeed_version.clone())),
            format!("rocm={}", unknown(query::one_line(&rocm.unwrap_or_default()))),
        ];
        if let (Some(body), Some(rollout)) = (plan.extra_body(), &plan.rollout) {
            lines
                .push(format!("rollout=1 extra_body={body} min_mean_output_tokens={}", rollout.min_mean_output_tokens));
        }
        for line in lines {
            self.say(&Marker::Info(line));
        }
    }

    fn start_server(&mut self) {
        let plan = Arc::clone(&self.setup.plan);
        let (argv, path) = (plan.serve_argv(self.setup.tokenspeed.clone()), plan.server_log());
        let started = create_log(&path).and_then(|log| spawn(&self.setup, &argv, Apart::Session, Output::File(log)));
        match started {
            Err(error) => self.queue.push_back(Input::NotStarted(Who::Server, error.to_string())),
            Ok(group) => {
                let pid = group.pid().as_raw().unsigned_abs();
                self.server = Some(group);
                self.server_started = Some(Instant::now());
                self.status.send_modify(|s| s.server_pid = Some(pid));
                self.say(&Marker::Info(format!("server pid={pid}, log={}", path.display())));
                self.hub.emit(EventBody::ServerStarted { pid });
                self.server_lines.follow(path, LogSource::Server);
            }
        }
    }

    fn report_ready(&mut self) {
        let elapsed = self.server_started.map(|at| at.elapsed()).unwrap_or_default();
        let sec = elapsed.as_secs();
        self.say(&Marker::Ok(format!("health after {sec}s")));
        self.say(&Marker::ServerStartupSec(sec));
        self.hub.emit(EventBody::ServerReady { startup_ms: millis(elapsed) });
    }

    fn start_bench(&mut self, step: StepId) {
        let plan = Arc::clone(&self.setup.plan);
        let (argv, path) = (self.bench_argv(step), plan.bench_log(step));
        let started = remove_old(&plan.export(step))
            .and_then(|()| create_log(&path))
            .and_then(|log| spawn(&self.setup, &argv, Apart::Group, Output::File(log)));
        let described = plan.describe(step);
        self.bench_started = Some(Instant::now());
        self.status.send_modify(|s| s.step = Some(described));
        self.hub.emit(EventBody::StepStarted { step: described });
        match started {
            Err(error) => self.queue.push_back(Input::NotStarted(Who::Bench, error.to_string())),
            Ok(group) => {
                self.bench = Some(group);
                self.status.send_modify(|s| s.bench_pid = Some(group.pid().as_raw().unsigned_abs()));
                self.bench_lines.follow(path.clone(), LogSource::Bench(described));
                self.bench_copy.follow(path, step);
            }
        }
    }

    fn bench_argv(&self, step: StepId) -> Argv {
        self.setup.plan.step_argv(&self.setup.tokenspeed, &self.setup.agent, step)
    }

    /// The bench's leader is gone; helpers of its group must not run into the next step.
    fn clear_bench(&mut self) {
        self.bench_lines.end_current();
        self.bench_copy.end_current();
        let Some(group) = self.bench.take() else { return };
        if !group.is_populated() {
            return;
        }
        let members = tree::all(&self.setup.roots.proc);
        let left: Vec<_> = members.into_iter().filter(|p| p.group == group.pid().as_raw() && p.is_alive()).collect();
        group.signal(Signal::SIGKILL);
        if !left.is_empty() {
            let detail = format!("the bench left {} in its group; killed", tree::describe(&left));
            self.find(Finding::new(
                FindingId::ProcessSurvivors,
                detail,
                "look at what the bench starts besides itself",
            ));
        }
    }

    fn step_over(
        &mut self,
        step: StepId,
        verdict: String,
        detail: String,
        figures: proto::event::Figures,
        sha256: Option<String>,
    ) {
        let step = self.setup.plan.describe(step);
        let elapsed_ms =
            self.bench_elapsed.or(self.bench_started.map(|at| at.elapsed())).map(millis).unwrap_or_default();
        self.bench_elapsed = None;
        let passed = verdict == AgentExit::Pass.reason();
        let status = StepStatus { step, verdict: verdict.clone(), elapsed_ms, figures: figures.clone() };
        self.status.send_modify(|s| {
            match step.kind {
                proto::event::StepKind::Warmup => {}
                proto::event::StepKind::Measured if passed => s.steps_passed += 1,
                proto::event::StepKind::Measured => s.steps_failed += 1,
            }
            if s.finished.len() >= Status::STEPS_KEPT {
                s.finished.remove(0);
            }
            s.finished.push(status);
        });
        self.hub.emit(EventBody::StepFinished { step, verdict, detail, elapsed_ms, figures, sha256 });
    }

    fn server_tail(&mut self, header: bool) {
        let mut text = if header { b"--- last 40 lines of server log ---\n".to_vec() } else { Vec::new() };
        let lines = last_lines(&self.setup.plan.server_log());
        for line in &lines {
            // A marker that the server printed must not be taken for one of ours.
            if line.starts_with(b"TS_BENCH_") {
                text.push(b' ');
            }
            text.extend(line.iter().filter(|b| **b == b'\t' || !b.is_ascii_control()));
            text.push(b'\n');
        }
        self.out.raw(text);
        if let Some(hint) = header.then(|| bind_hint(&lines)).flatten() {
            self.say(&Marker::Info(hint));
        }
    }

    fn group(&self, who: Who) -> Option<Group> {
        match who {
            Who::Server => self.server,
            Who::Bench => self.bench,
            Who::Strays => None,
        }
    }

    fn terminate(&mut self, who: Who) {
        match who {
            Who::Strays => {
                let who = tree::strays(&self.setup.roots.proc).map(|strays| {
                    // A question to `tokenspeed` that was cut short is no leftover of the trial.
                    let left = strays.into_iter().filter(|p| !self.asked_groups.contains(&p.group));
                    tree::describe(&left.collect::<Vec<_>>())
                });
                let who = who.unwrap_or_else(|| "processes that cannot be seen from here".to_owned());
                if !who.is_empty() {
                    let detail = format!("{who} had left the group of server and bench and were ended");
                    let hint = "nothing to do; a server that leaves processes behind would have held its GPU memory";
                    self.find(Finding::new(FindingId::ProcessSurvivors, detail, hint));
                }
                self.signal_strays(Signal::SIGTERM);
                self.signal_strays(Signal::SIGCONT);
            }
            Who::Server | Who::Bench => {
                let Some(group) = self.group(who) else { return };
                if who == Who::Server {
                    self.term_sent = Some(Instant::now());
                    let grace = self.setup.plan.teardown_grace_sec;
                    self.say(&Marker::Info(format!("tearing down server pgid {} (grace {grace}s)", group.pid())));
                }
                group.terminate();
            }
        }
    }

    fn kill(&mut self, who: Who) {
        match who {
            Who::Strays => self.signal_strays(Signal::SIGKILL),
            Who::Server | Who::Bench => {
                if let Some(group) = self.group(who) {
                    group.signal(Signal::SIGKILL);
                }
            }
        }
    }

    fn signal_strays(&self, signal: Signal) {
        match tree::strays(&self.setup.roots.proc) {
            Some(strays) => {
                for stray in strays {
                    let _ = kill(Pid::from_raw(stray.pid), signal);
                }
            }
            // Without a /proc that shows us, PID 1 can still reach everybody in its namespace.
            None if Pid::this().as_raw() == 1 => {
                let _ = kill(Pid::from_raw(-1), signal);
            }
            None => {}
        }
    }

    /// Looks whether what is waited for is gone, and says so; otherwise looks again soon.
    pub(super) fn look_at_watched(&mut self) {
        let Some(mut watched) = self.watched.take() else { return };
        let alive = match watched.who {
            Who::Server | Who::Bench => self.group_alive(watched.who, watched.looks),
            Who::Strays => self.strays_alive(),
        };
        let first = watched.looks == 0;
        if alive {
            watched.looks += 1;
            watched.next = Instant::now() + self.setup.timings.group_poll;
            let again = first || watched.who == Who::Strays;
            if again {
                self.queue.push_back(Input::Alive(watched.who, true));
            }
            self.watched = Some(watched);
        } else {
            if watched.who == Who::Server {
                self.server_stopped();
            }
            self.queue.push_back(Input::Alive(watched.who, false));
        }
    }

    /// A group of zombies alone is dead: their parent may be a process outside it that does not reap. The walk
    /// over /proc that tells is taken now and then.
    fn group_alive(&self, who: Who, looks: u32) -> bool {
        let Some(group) = self.group(who) else { return false };
        group.is_populated()
            && (!looks.is_multiple_of(12)
                || tree::group_lives(&self.setup.roots.proc, group.pid().as_raw()) != Some(false))
    }

    fn strays_alive(&self) -> bool {
        match tree::strays(&self.setup.roots.proc) {
            Some(strays) => !strays.is_empty(),
            None => Pid::this().as_raw() == 1 && kill(Pid::from_raw(-1), None).is_ok(),
        }
    }

    fn server_stopped(&mut self) {
        self.server_lines.end_current();
        let elapsed = self.term_sent.map(|at| at.elapsed()).unwrap_or_default();
        let detail = if self.term_sent.is_some() { "its group is gone" } else { "its group was gone already" };
        self.hub.emit(EventBody::ServerStopped { detail: detail.to_owned(), elapsed_ms: millis(elapsed) });
    }

    fn audit(&mut self, step: StepId) {
        self.bench_elapsed = self.bench_started.map(|at| at.elapsed());
        let (path, expectation) = (self.setup.plan.export(step), self.setup.plan.expectation());
        self.background(async move {
            let judged = tokio::task::spawn_blocking(move || audit::audit(&path, &expectation)).await;
            match judged {
                Ok(audit) => Input::Audited(audit),
                Err(error) => Input::Bug(format!("the audit ended: {error}")),
            }
        });
    }

    /// Runs work beside the loop; its result is an input, and so is its panic.
    fn background(&self, work: impl Future<Output = Input> + Send + 'static) -> AbortHandle {
        let tx = self.tx.clone();
        let task = tokio::spawn(work);
        let handle = task.abort_handle();
        tokio::spawn(async move {
            let input = match task.await {
                Ok(input) => input,
                Err(error) if error.is_panic() => Input::Bug(format!("a task ended: {error}")),
                // Aborted: nobody waits for it any more.
                Err(_) => return,
            };
            let _ = tx.send(Msg::Input(input)).await;
        });
        handle
    }

    fn ask(&mut self, ask: Ask) {
        let plan = Arc::clone(&self.setup.plan);
        let (last, is_last) = watch::channel(false);
        let asker = Asker { tx: self.tx.clone(), timings: self.setup.timings.clone(), is_last, ask };
        let (gateway, control) = (plan.gateway_port, plan.control_port);
        let task = match ask {
            Ask::Health => {
                let server = self.server.map_or(0, |g| g.pid().as_raw());
                let proc = self.setup.roots.proc.clone();
                self.background(
                    asker.until_ok(control, "/health", move || judge_ports(&proc, [control, gateway], server)),
                )
            }
            Ask::Generate => self.background(asker.until_ok(control, "/health_generate", || Input::Generates)),
            Ask::ReadBack => {
                let limit = asker.timings.read_back_limit;
                let expected = plan.rollout.as_ref().map(|r| r.backend);
                self.background(async move {
                    match expected {
                        Some(expected) => Input::ReadBack(probe::read_back(control, expected, limit).await),
                        None => Input::Bug("read-back outside rollout".into()),
                    }
                })
            }
            Ask::FirstToken => {
                let model = plan.served_model.clone();
                self.background(asker.first_token(gateway, model))
            }
        };
        if let Some(before) = self.asking.replace(Asking { task, last }) {
            before.task.abort();
        }
    }
}

/// Whoever answers must be the server: strangers first, then anything worth saying.
fn judge_ports(proc: &Path, ports: [u16; 2], server: i32) -> Input {
    let all = tree::all(proc);
    let judged = ports.map(|port| listeners::judge(proc, &all, port, server));
    let stranger = judged.iter().find(|l| matches!(l, Listening::Stranger(_)));
    let open = judged.iter().find(|l| matches!(l, Listening::OursBeyondLoopback(_)));
    Input::Healthy(stranger.or(open).or(judged.first()).cloned().unwrap_or(Listening::Unknown))
}

/// One question, asked again and again.
struct Asker {
    tx: mpsc::Sender<Msg>,
    timings: Timings,
    is_last: watch::Receiver<bool>,
    ask: Ask,
}

impl Asker {
    /// Asks a health endpoint until it answers 200, every 50 ms at first and slowing to every 100.
    async fn until_ok(
        mut self,
        port: u16,
        path: &'static str,
        found: impl FnOnce() -> Input + Send + 'static,
    ) -> Input {
        let mut pause = self.timings.probe_first;
        loop {
            let last = *self.is_last.borrow_and_update();
            let answer = probe::health(port, path, self.timings.probe_limit).await;
            let words = match &answer {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            let _ = self.tx.send(Msg::Health { path, answer: words }).await;
            if answer.is_ok_and(|status| status == 200) {
                return tokio::task::spawn_blocking(found)
                    .await
                    .unwrap_or_else(|error| Input::Bug(format!("a look at the ports ended: {error}")));
            }
            if last {
                return Input::LastAskFailed(self.ask);
            }
            // Woken early when the window is over: then this was not the last question, the next one is.
            let _ = tokio::time::timeout(pause, self.is_last.changed()).await;
            pause = (pause + pause / 100).min(self.timings.probe_slowest);
        }
    }

    /// Tries for a token until an answer settles it. The phase's deadline ends the task.
    async fn first_token(self, port: u16, model: String) -> Input {
        loop {
            match probe::first_token(port, &model).await {
                FirstToken::Again(why) => {
                    let _ = self.tx.send(Msg::Health { path: "/v1/completions", answer: why }).await;
                }
                settled @ (FirstToken::Seen(_) | FirstToken::Refused(_)) => return Input::FirstToken(settled),
            }
            tokio::time::sleep(self.timings.generate_probe_pause).await;
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A stale export must not be taken for a new one (contract B.4).
fn remove_old(export: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(export) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(std::io::Error::other(format!("{} cannot be removed: {error}", export.display())))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A port that is taken looks like a broken engine; beside ours the gateway binds a third one (review finding C-02).
fn bind_hint(lines: &[Vec<u8>]) -> Option<String> {
    let shown = |line: &Vec<u8>| String::from_utf8_lossy(line).into_owned();
    let line = lines.iter().map(shown).find(|line| line.to_ascii_lowercase().contains("address already in use"))?;
    Some(format!(
        "hint: the server could not bind a port: {:?}; besides gateway and control port the gateway binds a metrics \
         port: name a free one with serve_args [\"--prometheus-port\", \"PORT\"]",
        line.chars().take(300).collect::<String>()
    ))
}

/// The last lines of a log, looked for from its end.
fn last_lines(path: &PathBuf) -> Vec<Vec<u8>> {
    let read = || {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let lines: Vec<Vec<u8>> = text.split(|b| *b == b'\n').map(|l| l[..l.len().min(2000)].to_vec()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FS-39.
    #[test]
    fn tails_are_forty_lines_of_any_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(last_lines(&path), [b""]);
        let text = (0..100).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
        std::fs::write(&path, text).unwrap();
        let lines = last_lines(&path);
        assert_eq!((lines.len(), lines[0].as_slice(), lines[39].as_slice()), (40, &b"line 60"[..], &b"line 99"[..]));
        std::fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(last_lines(&path).len(), 1);
        assert_eq!(last_lines(&path)[0].len(), 2000);
    }

    /// FS-50.
    #[test]
    fn a_bind_failure_names_the_third_port() {
        let lines = |text: &str| text.lines().map(|l| l.as_bytes().to_vec()).collect::<Vec<_>>();
        let hint = bind_hint(&lines("a\n[smg] Error: Address already in use (os error 98): 0.0.0.0:29000\n")).unwrap();
        assert!(hint.contains("29000") && hint.contains("--prometheus-port"), "{hint}");
        assert_eq!(bind_hint(&lines("a\nb")), None);
    }

    /// FS-69.
    #[test]
    fn old_exports_go_and_folders_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e.json");
        remove_old(&path).unwrap();
        std::fs::write(&path, "{}").unwrap();
        remove_old(&path).unwrap();
        assert!(!path.exists());
        std::fs::create_dir(&path).unwrap();
        assert!(remove_old(&path).is_err());
    }
}
