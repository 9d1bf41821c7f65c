//! `tokenspeed serve`: starts engine and gateway, waits for both, ends as the real orchestrator ends (CLI facts 3.5).

use super::argparse::{self, Options, Takes};
use super::control;
use super::gateway;
use super::helper;
use super::journal::Journal;
use super::link::{Link, Message};
use super::script::{Action, ChildName, Script, Spam, Trigger};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The arguments of `serve` that matter here; the children get them as JSON.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct ServeArgs {
    /// The model.
    pub model: String,
    /// Gateway address.
    pub host: String,
    /// Gateway port.
    pub port: u16,
    /// Control port.
    pub control_port: u16,
    /// The name under which it is served.
    pub served_model_name: Option<String>,
    /// As asked.
    pub sampling_backend: Option<String>,
    /// Longest drain, in seconds.
    pub drain_timeout: u64,
}

const OPTIONS: Options = &[
    ("--model", Takes::One),
    ("--host", Takes::One),
    ("--port", Takes::One),
    ("--control-port", Takes::One),
    ("--served-model-name", Takes::One),
    ("--sampling-backend", Takes::One),
    ("--gateway-startup-timeout", Takes::One),
    ("--engine-startup-timeout", Takes::One),
    ("--drain-timeout", Takes::One),
];

const BACKENDS: [&str; 5] = ["greedy", "flashinfer", "flashinfer_full", "triton", "triton_full"];

impl ServeArgs {
    /// Reads the command line; unknown flags (with or without a value) are accepted, as the real one's are.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let given = argparse::parse(OPTIONS, &without_unknown_values(words))?;
        let number = |name: &str, default: u64| match given.one(name) {
            None => Ok(default),
            Some(text) => match text.parse::<u64>() {
                Ok(n) if n > 0 => Ok(n),
                _ => Err(format!("argument {name}: invalid positive int value: '{text}'")),
            },
        };
        let port = |name: &str, default: u64| {
            u16::try_from(number(name, default)?).map_err(|_| format!("argument {name}: not a port"))
        };
        let mut positionals = given.positionals.iter();
        let model = match (given.one("--model"), positionals.next()) {
            (Some(_), Some(_)) => return Err("model given twice: as a positional and as --model".into()),
            (Some(model), None) => model.to_owned(),
            (None, Some(model)) => model.clone(),
            (None, None) => return Err("a model is required".into()),
        };
        if let Some(extra) = positionals.next() {
            return Err(format!("unexpected positional argument: {extra}"));
        }
        let sampling_backend = given.one("--sampling-backend").map(str::to_owned);
        if let Some(backend) = sampling_backend.as_deref().filter(|b| !BACKENDS.contains(b)) {
            return Err(format!("argument --sampling-backend: invalid choice: '{backend}'"));
        }
        for name in ["--gateway-startup-timeout", "--engine-startup-timeout"] {
            number(name, 1)?;
        }
        let gateway_port = port("--port", 8000)?;
        Ok(Self {
            model,
            host: given.one("--host").unwrap_or("0.0.0.0").to_owned(),
            port: gateway_port,
            control_port: port("--control-port", u64::from(gateway_port) + 1)?,
            served_model_name: given.one("--served-model-name").map(str::to_owned),
            sampling_backend,
            drain_timeout: number("--drain-timeout", 30)?,
        })
    }

    /// The name that `/v1/models` lists.
    pub fn served_name(&self) -> &str {
        self.served_model_name.as_deref().unwrap_or(&self.model)
    }
}

/// Leaves out `value` in `--unknown value`: only the real engine knows which of its flags take one.
fn without_unknown_values(words: &[String]) -> Vec<String> {
    let ours = |word: &str| {
        let name = word.split('=').next().unwrap_or_default();
        OPTIONS.iter().any(|(option, _)| option.starts_with(name))
    };
    let mut kept = Vec::new();
    let mut after_unknown = false;
    for word in words {
        let flag = word.starts_with("--");
        if flag || !after_unknown {
            kept.push(word.clone());
        }
        after_unknown = flag && !ours(word) && !word.contains('=');
    }
    kept
}

/// Signals as descriptor: SIGTERM and SIGINT, and SIGCHLD where somebody waits for children.
#[derive(Debug)]
pub struct SignalFeed {
    fd: SignalFd,
    deaf: bool,
}

impl SignalFeed {
    /// Takes the stop signals over; a deaf process reads and forgets them.
    pub fn take(deaf: bool) -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
            set.add(signal);
        }
        set.thread_block()?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { fd, deaf })
    }

    /// The next SIGTERM or SIGINT that is to be obeyed.
    pub fn next_stop(&mut self) -> io::Result<Option<Signal>> {
        while let Some(info) = self.fd.read_signal()? {
            let signal = i32::try_from(info.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok());
            if let Some(signal @ (Signal::SIGTERM | Signal::SIGINT)) = signal.filter(|_| !self.deaf) {
                return Ok(Some(signal));
            }
        }
        Ok(None)
    }
}

impl AsFd for SignalFeed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

struct Member {
    child: Child,
    link: Link,
    ended: Option<std::process::ExitStatus>,
}

impl Member {
    fn start(command: &str, args: &ServeArgs) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = helper::myself(command)?
            .arg(serde_json::to_string(args)?)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .spawn()?;
        Ok(Self { child, link: Link::new(ours)?, ended: None })
    }

    fn look(&mut self) -> io::Result<()> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if self.ended.is_none()
            && let Ok(pid) = i32::try_from(self.child.id())
        {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
        }
    }
}

/// Start-up in order; each phase waits for its time or for a child's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Loading,
    StartingGateway,
    GatewayUp,
    Opening,
    Ready,
}

struct Orchestrator {
    script: Script,
    args: ServeArgs,
    journal: Journal,
    signals: SignalFeed,
    engine: Member,
    gateway: Option<Member>,
    started: Instant,
    loading_fired: bool,
    frozen: bool,
    phase: Phase,
    /// Ports that were taken away from the children.
    occupied: Vec<TcpListener>,
}

/// The orchestrator's main.
pub fn main(script: Script, words: &[String]) -> io::Result<ExitCode> {
    let args = match ServeArgs::parse(words) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("tokenspeed serve: error: {message}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let journal = Journal::new(&script, "orchestrator");
    let signals = SignalFeed::take(script.deaf.leader)?;
    journal.start();
    let engine = Member::start(control::COMMAND, &args)?;
    let now = Instant::now();
    let mut orchestrator = Orchestrator {
        script,
        args,
        journal,
        signals,
        engine,
        gateway: None,
        started: now,
        loading_fired: false,
        frozen: false,
        phase: Phase::Loading,
        occupied: Vec::new(),
    };
    for action in orchestrator.due(&Trigger::Start) {
        if let Some(code) = orchestrator.act(&action)? {
            return Ok(ExitCode::from(code));
        }
    }
    let code = orchestrator.run()?;
    orchestrator.journal.note("exit", json!({"code": code}));
    Ok(ExitCode::from(code))
}

/// Actions that need neither children nor an exit.
fn alone(action: &Action) -> io::Result<()> {
    match action {
        Action::Die(signal) => die(*signal),
        Action::StopGroup => {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(0), Signal::SIGSTOP);
            Ok(())
        }
        Action::ForkStorm(count) => helper::fork_storm(*count),
        Action::Zombies(count) => helper::zombies(*count),
        Action::Spam(spam) => write_spam(spam),
        Action::PrintEnv => print_env(&mut io::stderr().lock()),
        Action::Spawn(what) => helper::spawn(what, None).map(drop),
        Action::Hang | Action::Exit(_) | Action::ChildExit(_) | Action::Occupy(_) => Ok(()),
    }
}

/// Dies by a signal, even where PID 1 or a mask would let it live.
pub fn die(signal: i32) -> io::Result<()> {
    let signal = Signal::try_from(signal)?;
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    SigSet::all().thread_unblock()?;
    if signal != Signal::SIGKILL {
        #[expect(unsafe_code, reason = "the default action is wanted, no handler is installed")]
        // SAFETY: SIG_DFL is a valid disposition for every signal but SIGKILL and SIGSTOP.
        let _ = unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigDfl) };
    }
    nix::sys::signal::raise(signal)?;
    Ok(())
}

/// Writes all variables, a line each, the longest first: a tail shows the short ones.
pub fn print_env(to: &mut impl Write) -> io::Result<()> {
    let mut all: Vec<_> = std::env::vars_os().collect();
    all.sort_by_key(|(name, value)| std::cmp::Reverse(name.len() + value.len()));
    for (name, value) in all {
        writeln!(to, "{}={}", name.display(), value.display())?;
    }
    to.flush()
}

/// Writes nonsense to stderr, which ends up in the server's log.
fn write_spam(spam: &Spam) -> io::Result<()> {
    let mut err = io::stderr().lock();
    let mut left = spam.bytes;
    let block: Vec<u8> = (0..4096u32)
        .map(|i| match (spam.binary, spam.newlines && i % 80 == 79) {
            (_, true) => b'\n',
            (true, false) => u8::try_from(i % 256).unwrap_or(0),
            (false, false) => b'a' + u8::try_from(i % 26).unwrap_or(0),
        })
        .filter(|byte| spam.newlines || *byte != b'\n')
        .collect();
    while left > 0 {
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        err.write_all(&block[..take])?;
        left -= take as u64;
    }
    Ok(())
}

impl Orchestrator {
    /// Until the end; the value is the exit status.
    fn run(&mut self) -> io::Result<u8> {
        loop {
            self.wait()?;
            if let Some(signal) = self.signals.next_stop()? {
                self.journal.note("signal", json!({"signal": signal.as_str()}));
                let due: Vec<Action> = self.due(&Trigger::Sigterm);
                for action in due {
                    if let Some(code) = self.act(&action)? {
                        return Ok(code);
                    }
                }
                std::thread::sleep(Duration::from_millis(self.script.stop.drain_ms));
                self.stop()?;
                return Ok(self.script.stop.exit);
            }
            if let Some(code) = self.follow_children()? {
                return Ok(code);
            }
            if let Some(code) = self.listen()? {
                return Ok(code);
            }
            if let Some(code) = self.advance()? {
                return Ok(code);
            }
        }
    }

    fn due(&self, trigger: &Trigger) -> Vec<Action> {
        self.script.faults.iter().filter(|f| f.at == *trigger).map(|f| f.action.clone()).collect()
    }

    /// Blocks until a signal, a word from a child, or the next phase's time.
    fn wait(&self) -> io::Result<()> {
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let links = std::iter::once(&self.engine).chain(&self.gateway).map(|m| &m.link);
        fds.extend(links.filter(|l| !l.ended()).map(|l| PollFd::new(l.as_fd(), PollFlags::POLLIN)));
        let timeout = match self.next_time() {
            None => PollTimeout::NONE,
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        match nix::poll::poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn share(&self, percent: u64) -> Instant {
        self.started + Duration::from_millis(self.script.startup.ms) * u32::try_from(percent).unwrap_or(100) / 100
    }

    fn next_time(&self) -> Option<Instant> {
        match self.phase {
            _ if self.frozen => None,
            Phase::Loading if !self.loading_fired => Some(self.share(30)),
            Phase::Loading => Some(self.share(60)),
            Phase::GatewayUp => Some(self.share(80)),
            Phase::StartingGateway | Phase::Ready => None,
            Phase::Opening => Some(self.share(100)),
        }
    }

    /// Moves start-up on where its time has come.
    fn advance(&mut self) -> io::Result<Option<u8>> {
        let now = Instant::now();
        if self.frozen {
            return Ok(None);
        }
        if self.phase == Phase::Loading && !self.loading_fired && now >= self.share(30) {
            self.loading_fired = true;
            for action in self.due(&Trigger::Loading) {
                if let Some(code) = self.act(&action)? {
                    return Ok(Some(code));
                }
            }
            return Ok(None);
        }
        if self.phase == Phase::Loading && now >= self.share(60) {
            self.gateway = Some(Member::start(gateway::COMMAND, &self.args)?);
            self.phase = Phase::StartingGateway;
        }
        if self.phase == Phase::GatewayUp && now >= self.share(80) {
            self.tell(ChildName::Gateway, &Message::Registered);
            self.phase = Phase::Opening;
        }
        if self.phase == Phase::Opening && now >= self.share(100) {
            self.phase = Phase::Ready;
            let host = &self.args.host;
            say(&format!("ts serve ready on http://{host}:{}", self.args.port));
            for action in self.due(&Trigger::Ready) {
                if let Some(code) = self.act(&action)? {
                    return Ok(Some(code));
                }
            }
            self.tell(ChildName::Engine, &Message::Open);
        }
        Ok(None)
    }

    fn member(&mut self, name: ChildName) -> Option<&mut Member> {
        match name {
            ChildName::Engine => Some(&mut self.engine),
            ChildName::Gateway => self.gateway.as_mut(),
        }
    }

    fn tell(&mut self, name: ChildName, message: &Message) {
        if let Some(member) = self.member(name) {
            member.link.send(message);
        }
    }

    /// What the children say.
    fn listen(&mut self) -> io::Result<Option<u8>> {
        let mut inbox: Vec<(ChildName, Message)> = Vec::new();
        inbox.extend(self.engine.link.receive().into_iter().map(|m| (ChildName::Engine, m)));
        if let Some(gateway) = &mut self.gateway {
            inbox.extend(gateway.link.receive().into_iter().map(|m| (ChildName::Gateway, m)));
        }
        for (from, message) in inbox {
            match message {
                Message::Fire(action) => {
                    self.journal.note("fault", json!({"action": action}));
                    if let Some(code) = self.act(&action)? {
                        return Ok(Some(code));
                    }
                }
                Message::Bound if from == ChildName::Gateway => self.phase = self.phase.max(Phase::GatewayUp),
                Message::Bound => {
                    say(&format!("ts control server ready on http://127.0.0.1:{}", self.args.control_port));
                }
                Message::Registered | Message::Open | Message::Hang | Message::Hold(_) | Message::Exit(_) => {}
            }
        }
        Ok(None)
    }

    /// Performs a fault; an exit status where it ends the orchestrator.
    fn act(&mut self, action: &Action) -> io::Result<Option<u8>> {
        match action {
            Action::Exit(exit) => {
                if !exit.leave_children {
                    self.stop()?;
                }
                return Ok(Some(exit.code));
            }
            Action::ChildExit(end) => {
                if let Some(signal) = end.signal {
                    let signal = Signal::try_from(signal)?;
                    if let Some(member) = self.member(end.child) {
                        member.signal(signal);
                    }
                } else {
                    self.tell(end.child, &Message::Exit(end.code));
                }
            }
            Action::Hang => {
                self.frozen = true;
                self.tell(ChildName::Engine, &Message::Hang);
                self.tell(ChildName::Gateway, &Message::Hang);
            }
            Action::Occupy(name) => {
                let port = match name {
                    ChildName::Engine => self.args.control_port,
                    ChildName::Gateway => self.args.port,
                };
                self.occupied.push(TcpListener::bind(("127.0.0.1", port))?);
            }
            Action::Spawn(what) => match what.holds {
                Some(name) => self.tell(name, &Message::Hold(what.clone())),
                None => alone(action)?,
            },
            Action::Die(_)
            | Action::StopGroup
            | Action::ForkStorm(_)
            | Action::Zombies(_)
            | Action::Spam(_)
            | Action::PrintEnv => alone(action)?,
        }
        Ok(None)
    }

    /// A child that ended takes the rest with it: its status while ready, 1 during start-up.
    fn follow_children(&mut self) -> io::Result<Option<u8>> {
        self.engine.look()?;
        if let Some(gateway) = &mut self.gateway {
            gateway.look()?;
        }
        let ended = self.engine.ended.or_else(|| self.gateway.as_ref().and_then(|g| g.ended));
        let Some(status) = ended else { return Ok(None) };
        self.stop()?;
        if self.phase < Phase::Ready {
            return Ok(Some(1));
        }
        // Python's returncode is minus the signal; the exit status is its low byte (-9 shows as 247).
        let code = status.code().unwrap_or_else(|| -status.signal().unwrap_or(1));
        Ok(Some(code.to_le_bytes()[0]))
    }

    /// Gateway first, then the engine; each gets SIGTERM, the drain timeout, SIGKILL.
    fn stop(&mut self) -> io::Result<()> {
        let limit = Duration::from_secs(self.args.drain_timeout);
        if let Some(gateway) = &mut self.gateway {
            end(gateway, &self.signals, limit)?;
        }
        end(&mut self.engine, &self.signals, limit)
    }
}

/// SIGTERM, a limit, SIGKILL.
fn end(member: &mut Member, signals: &SignalFeed, limit: Duration) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    member.signal(Signal::SIGTERM);
    loop {
        // SIGCHLD makes the descriptor readable; what it says is then asked of the child itself.
        while signals.fd.read_signal()?.is_some() {}
        member.look()?;
        if member.ended.is_some() {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            member.signal(Signal::SIGKILL);
            member.ended = Some(member.child.wait()?);
            return Ok(());
        }
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let _ = nix::poll::poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
    }
}

/// A line on stdout, flushed: the log is read while we run.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ServeArgs, String> {
        ServeArgs::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn serve_arguments() {
        let line = "m --host 127.0.0.1 --port 9000 --max-num-seqs 8 --quantization --served-model-name x --drain 4";
        let args = parse(line).expect("arguments");
        assert_eq!((args.model.as_str(), args.port, args.control_port), ("m", 9000, 9001));
        assert_eq!((args.served_name(), args.drain_timeout), ("x", 4));
        for bad in ["m m2", "--port 9000", "m --port 0", "m --sampling-backend cuda", "m --model m"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
