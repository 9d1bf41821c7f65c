//! The gateway process: the OpenAI surface, `/truth` and `/fault`. One thread, one epoll, one ticker: at each step
//! every stream that is due gets its chunk, so thousands of streams cost one timer.

pub mod conn;
pub mod stream;
pub mod truth;

use super::helper;
use super::http::{self, Head, Parsed};
use super::journal::Journal;
use super::link::{Link, Message};
use super::orchestrator::{ServeArgs, SignalFeed};
use super::script::{Action, RequestFault, Script, Step, Trigger};
use super::steps::StepTracker;
use conn::{Conn, Seen};
use nix::poll::{PollFd, PollFlags};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use serde_json::json;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use stream::{After, Body, Refused, Stream};
use truth::Truth;

/// The hidden sub-command.
pub const COMMAND: &str = "__gateway";

const SIGNALS: u64 = 0;
const LINK: u64 = 1;
const LISTENER: u64 = 2;
const FIRST_CONN: u64 = 3;
/// Connections that may wait to be accepted: a closed-loop client opens all of its own at once.
const BACKLOG: i32 = 4096;
/// Streams that are served between two looks at what has come in.
const STREAMS_BETWEEN_LOOKS: usize = 64;
/// Step of a stream that waits for its first token when tokens themselves are unpaced.
const UNPACED_WAIT: Duration = Duration::from_millis(1);

struct Gateway {
    script: Script,
    args: ServeArgs,
    epoll: Epoll,
    listener: Option<TcpListener>,
    link: Link,
    conns: Vec<Option<Conn>>,
    free: Vec<usize>,
    /// Running streams: connection and request number, since a connection's slot may be used again.
    active: Vec<(usize, u64)>,
    running: usize,
    next_step: Instant,
    truth: Truth,
    tracker: StepTracker,
    generations: u64,
    in_step: HashMap<(bool, u32), u64>,
    in_rule: Vec<u64>,
    eos_turn: usize,
    registered: bool,
    hang: bool,
    scratch: Vec<u8>,
    /// A fault that a client has asked for.
    asked_fault: Option<Action>,
}

/// The gateway's main: ends on SIGTERM when the last stream has ended, or when told to.
pub fn main(script: Script, args: ServeArgs) -> io::Result<ExitCode> {
    let journal = Journal::new(&script, "gateway");
    let mut signals = SignalFeed::take(script.deaf.children)?;
    journal.start();
    let host = script.gateway.host.as_deref().unwrap_or(&args.host);
    let listener = match listen(host, args.port) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("[smg] error: cannot bind {host}:{}: {error}", args.port);
            return Ok(ExitCode::FAILURE);
        }
    };
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let mut link = Link::from_stdin()?;
    epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))?;
    epoll.add(&link, EpollEvent::new(EpollFlags::EPOLLIN, LINK))?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    link.send(&Message::Bound);
    let rules = script.requests.len();
    let mut gateway = Gateway {
        script,
        args,
        epoll,
        listener: Some(listener),
        link,
        conns: Vec::new(),
        free: Vec::new(),
        active: Vec::new(),
        running: 0,
        next_step: Instant::now(),
        truth: Truth::start(),
        tracker: StepTracker::default(),
        generations: 0,
        in_step: HashMap::new(),
        in_rule: vec![0; rules],
        eos_turn: 0,
        registered: false,
        hang: false,
        scratch: Vec::new(),
        asked_fault: None,
    };
    let mut events = vec![EpollEvent::empty(); 1024];
    loop {
        gateway.wait()?;
        let ready = match gateway.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Ok(n) => n,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        for event in &events[..ready] {
            match event.data() {
                SIGNALS => {
                    if let Some(signal) = signals.next_stop()? {
                        journal.note("signal", json!({"signal": signal.as_str()}));
                        gateway.stop_accepting()?;
                    }
                }
                LINK => {
                    if let Some(code) = gateway.obey()? {
                        return Ok(code);
                    }
                }
                LISTENER => gateway.accept()?,
                token => gateway.serve(usize::try_from(token - FIRST_CONN).unwrap_or(usize::MAX), event.events()),
            }
        }
        gateway.step_if_due()?;
        // Only now: a fault that stops this process would keep its asker waiting for the end of the answer.
        if let Some(action) = gateway.asked_fault.take() {
            gateway.link.send(&Message::Fire(action));
        }
        if gateway.listener.is_none() && gateway.running == 0 {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let host = if host == "localhost" { "127.0.0.1" } else { host };
    let ip: IpAddr = host.parse().map_err(|_| io::Error::new(ErrorKind::InvalidInput, "not an IP address"))?;
    let listener = TcpListener::bind(SocketAddr::new(ip, port))?;
    listener.set_nonblocking(true)?;
    // A second listen(2) only changes the backlog, which the standard library fixes at a small number.
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(BACKLOG)?)?;
    Ok(listener)
}

impl Gateway {
    /// Blocks until something is readable or the next step is due.
    fn wait(&self) -> io::Result<()> {
        let timeout = if self.running == 0 || self.hang {
            None
        } else {
            Some(TimeSpec::from_duration(self.next_step.saturating_duration_since(Instant::now())))
        };
        // epoll's own timeout counts whole milliseconds, which is too coarse for a step: ppoll waits on its descriptor.
        let mut fds = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        match nix::poll::ppoll(&mut fds, timeout, None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn stop_accepting(&mut self) -> io::Result<()> {
        if let Some(listener) = self.listener.take() {
            self.epoll.delete(&listener)?;
        }
        if self.hang {
            self.running = 0;
        }
        Ok(())
    }

    fn obey(&mut self) -> io::Result<Option<ExitCode>> {
        for message in self.link.receive() {
            match message {
                Message::Registered => self.registered = true,
                Message::Hang => self.freeze()?,
                Message::Hold(what) => {
                    helper::spawn(&what, self.listener.as_ref().map(std::os::fd::AsFd::as_fd))?;
                }
                Message::Exit(code) => return Ok(Some(ExitCode::from(code))),
                Message::Bound | Message::Fire(_) | Message::Open => {}
            }
        }
        if self.link.ended() {
            // The orchestrator is gone; we serve on until somebody ends us, as orphaned workers do.
            self.epoll.delete(&self.link)?;
        }
        Ok(None)
    }

    /// Stays connectable and answers nothing any more.
    fn freeze(&mut self) -> io::Result<()> {
        self.hang = true;
        if let Some(listener) = &self.listener {
            self.epoll.delete(listener)?;
        }
        for conn in self.conns.iter().flatten() {
            self.epoll.delete(&conn.socket)?;
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let Some(listener) = &self.listener else { return Ok(()) };
            match listener.accept() {
                Ok((socket, _)) => {
                    let conn = Conn::new(socket)?;
                    self.truth.connections += 1;
                    let index = self.free.pop().unwrap_or(self.conns.len());
                    let interest = EpollEvent::new(EpollFlags::EPOLLIN, index as u64 + FIRST_CONN);
                    self.epoll.add(&conn.socket, interest)?;
                    if index == self.conns.len() {
                        self.conns.push(Some(conn));
                    } else {
                        self.conns[index] = Some(conn);
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Closes a connection; a stream on it has ended with that.
    fn close(&mut self, index: usize) {
        if let Some(conn) = self.conns[index].take() {
            self.running -= usize::from(conn.stream.is_some());
            let _ = self.epoll.delete(&conn.socket);
            self.free.push(index);
        }
    }

    fn serve(&mut self, index: usize, events: EpollFlags) {
        if self.hang {
            return;
        }
        let Some(Some(conn)) = self.conns.get_mut(index) else { return };
        let mut alive = true;
        if events.contains(EpollFlags::EPOLLOUT) {
            alive = conn.flush();
            if alive && !conn.pending() {
                if conn.closing {
                    alive = false;
                } else {
                    self.watch(index);
                }
            }
        }
        if alive && events.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            let Some(Some(conn)) = self.conns.get_mut(index) else { return };
            alive = conn.read() == Seen::Alive;
        }
        if alive {
            self.take_requests(index);
        } else {
            let streaming = self.conns[index].as_ref().is_some_and(|conn| conn.stream.is_some());
            if streaming {
                self.truth.client_gone += 1;
            }
            self.close(index);
        }
    }

    /// Asks epoll for what the connection needs now.
    fn watch(&mut self, index: usize) {
        if let Some(Some(conn)) = self.conns.get(index) {
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, conn.pending());
            let _ = self.epoll.modify(&conn.socket, &mut EpollEvent::new(flags, index as u64 + FIRST_CONN));
        }
    }

    /// Writes an answer. False: the connection is closed.
    fn send(&mut self, index: usize, bytes: &[u8]) -> bool {
        let Some(Some(conn)) = self.conns.get_mut(index) else { return false };
        let was_pending = conn.pending();
        if !conn.write(bytes) {
            return false;
        }
        if conn.pending() != was_pending {
            self.watch(index);
        }
        true
    }

    /// Deals with every complete request of a connection that is not busy.
    fn take_requests(&mut self, index: usize) {
        loop {
            let Some(Some(conn)) = self.conns.get_mut(index) else { return };
            if conn.stream.is_some() || conn.closing || conn.inbox.is_empty() {
                return;
            }
            let (answer, close) = match http::parse_head(&conn.inbox) {
                Parsed::Partial => return,
                Parsed::Bad(status) => (Some(http::json(status, &json!({}), true)), true),
                Parsed::Head(head) if conn.inbox.len() < head.length + head.body => {
                    if head.expects_continue && conn.inbox.len() == head.length {
                        conn.write(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    return;
                }
                Parsed::Head(head) => {
                    let rest = conn.inbox.split_off(head.length + head.body);
                    let request = std::mem::replace(&mut conn.inbox, rest);
                    (self.answer(index, &head, &request[head.length..]), head.close)
                }
            };
            let Some(Some(conn)) = self.conns.get_mut(index) else { return };
            conn.closing = close;
            let sent = answer.is_none_or(|bytes| self.send(index, &bytes));
            let Some(Some(conn)) = self.conns.get_mut(index) else { return };
            if !sent || (conn.closing && conn.stream.is_none() && !conn.pending()) {
                self.close(index);
                return;
            }
        }
    }

    /// Answers at once, or starts a stream and answers nothing yet.
    fn answer(&mut self, index: usize, head: &Head, body: &[u8]) -> Option<Vec<u8>> {
        let close = head.close;
        let reply = |status, value| Some(http::json(status, &value, close));
        match (head.method.as_str(), head.path.as_str()) {
            ("POST", path @ ("/v1/completions" | "/v1/chat/completions")) => {
                self.generate(index, head, path.contains("chat"), body)
            }
            ("GET", "/v1/models") => {
                let id = self.args.served_name();
                reply(200, json!({"object": "list", "data": [{"id": id, "object": "model", "root": self.args.model}]}))
            }
            ("GET", "/health" | "/liveness") => Some(http::answer(200, "text/plain", "OK", None, close)),
            ("GET", "/readiness") => reply(if self.registered { 200 } else { 503 }, json!({})),
            ("GET", "/health_generate" | "/get_server_info" | "/get_model_info") => {
                reply(501, json!({"error": "not implemented for gRPC workers"}))
            }
            ("GET", "/truth") => {
                let report = serde_json::to_value(self.truth.report(self.running));
                reply(200, report.unwrap_or_default())
            }
            ("POST", "/truth/reset") => {
                self.truth = Truth::start();
                reply(200, json!({}))
            }
            ("POST", "/fault") => match serde_json::from_slice::<Action>(body) {
                Ok(action) => {
                    self.asked_fault = Some(action);
                    reply(200, json!({}))
                }
                Err(error) => reply(400, json!({"error": error.to_string()})),
            },
            ("GET" | "POST", _) => reply(404, json!({"error": {"message": "not found"}})),
            _ => reply(405, json!({"error": {"message": "method not allowed"}})),
        }
    }

    fn generate(&mut self, index: usize, head: &Head, chat: bool, body: &[u8]) -> Option<Vec<u8>> {
        let error = |status, message: String, code: &str| {
            Some(http::json(status, &json!({"error": {"message": message, "code": code}}), head.close))
        };
        let body: Body = match serde_json::from_slice(body) {
            Ok(body) => body,
            Err(e) => return error(400, e.to_string(), "invalid_request"),
        };
        if let Some(model) = body.model.as_deref().filter(|m| *m != self.args.served_name()) {
            return error(404, format!("model {model:?} is not served"), "model_not_found");
        }
        self.generations += 1;
        self.truth.requests += 1;
        let step = head.request_id.as_deref().and_then(|id| self.tracker.of_request(id));
        let fault = self.fault_of(step);
        self.fire_due(step);
        self.truth.faults += u64::from(fault.is_some());
        match fault {
            Some(RequestFault::Status(status)) => return error(status, "injected".into(), "injected"),
            Some(RequestFault::Close) => {
                if let Some(conn) = &mut self.conns[index] {
                    conn.closing = true;
                    conn.inbox.clear();
                }
                // Nothing is written: the connection just ends.
                let _ = self.conns[index].as_ref().map(|c| c.socket.shutdown(std::net::Shutdown::Both));
                return None;
            }
            Some(
                RequestFault::Cut
                | RequestFault::Eof
                | RequestFault::ErrorFirst
                | RequestFault::ErrorLate
                | RequestFault::Short
                | RequestFault::NoUsage
                | RequestFault::Stall,
            )
            | None => {}
        }
        let engine = &self.script.engine;
        let name = self.args.served_name();
        match Stream::new(self.generations, &body, chat, engine, &mut self.eos_turn, fault, name) {
            Err(Refused(message)) => error(400, message, "invalid_request"),
            Ok(stream) => {
                let opening = stream.opening();
                if self.running == 0 {
                    self.next_step = stream.arrived + self.first_wait();
                }
                let conn = self.conns[index].as_mut()?;
                self.truth.reused += u64::from(conn.served > 0);
                conn.served += 1;
                conn.stream = Some(stream);
                self.active.push((index, self.generations));
                self.running += 1;
                self.truth.max_active = self.truth.max_active.max(self.running);
                Some(opening.to_vec())
            }
        }
    }

    /// With nothing running, the engine begins its steps with this request.
    fn first_wait(&self) -> Duration {
        Duration::from_secs_f64(self.script.engine.ttft_ms / 1e3)
    }

    /// The scripted fault of this request, by the first rule that hits.
    fn fault_of(&mut self, step: Option<Step>) -> Option<RequestFault> {
        let mut hit = None;
        for (rule, count) in self.script.requests.iter().zip(&mut self.in_rule) {
            let counts = match (&rule.on, step) {
                (None, _) => true,
                (Some(on), Some(step)) => on.matches(step),
                (Some(_), None) => false,
            };
            if !counts {
                continue;
            }
            *count += 1;
            let turn = count.checked_sub(rule.skip_first).filter(|turn| *turn > 0 && turn % rule.every == 0);
            hit = hit.or(turn.map(|_| rule.fault));
        }
        hit
    }

    /// Tells the orchestrator of faults that are due with this request.
    fn fire_due(&mut self, step: Option<Step>) {
        let mut in_step = 0;
        if let Some(step) = step {
            let count = self.in_step.entry((step.kind == super::script::StepKind::Measured, step.number)).or_default();
            *count += 1;
            in_step = *count;
        }
        for fault in &self.script.faults {
            let due = match (&fault.at, step) {
                (Trigger::Request(n), _) => *n == self.generations,
                (Trigger::Step(at), Some(step)) => {
                    at.kind == step.kind && at.step == step.number && at.request == in_step
                }
                (
                    Trigger::Step(_)
                    | Trigger::Start
                    | Trigger::Loading
                    | Trigger::Ready
                    | Trigger::Health(_)
                    | Trigger::HealthGenerate(_)
                    | Trigger::Sigterm,
                    _,
                ) => false,
            };
            if due {
                self.link.send(&Message::Fire(fault.action.clone()));
            }
        }
    }

    /// One step, if its time has come: a chunk for every stream that is old enough.
    fn step_if_due(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.running == 0 || self.hang || now < self.next_step {
            return Ok(());
        }
        let scheduled = self.next_step;
        self.truth.late.push(now - scheduled);
        let step = Duration::from_secs_f64(self.script.engine.itl_ms / 1e3);
        let ttft = self.first_wait();
        let mut wrote = false;
        // Streams that begin meanwhile are added to the empty list and wait for the next step.
        let mut batch = std::mem::take(&mut self.active);
        let mut kept = 0;
        for position in 0..batch.len() {
            let (index, id) = batch[position];
            if self.advance(index, id, now, ttft, &mut wrote) {
                batch[kept] = batch[position];
                kept += 1;
            } else {
                // A pipelined request may be waiting behind the answer that has just ended.
                self.take_requests(index);
            }
            if position % STREAMS_BETWEEN_LOOKS == STREAMS_BETWEEN_LOOKS - 1 {
                self.look_for_requests()?;
            }
        }
        batch.truncate(kept);
        batch.append(&mut self.active);
        self.active = batch;
        // A step that could not be held is not made up for: a slow engine is slow.
        let pace = if step.is_zero() && !wrote { UNPACED_WAIT } else { step };
        if self.next_step == scheduled {
            self.next_step = (scheduled + pace).max(Instant::now());
        }
        Ok(())
    }

    /// In the middle of a step: requests that have come are read now, so that their age counts from when they came.
    fn look_for_requests(&mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); STREAMS_BETWEEN_LOOKS];
        let ready = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..ready] {
            match event.data() {
                SIGNALS | LINK => {}
                LISTENER => self.accept()?,
                token => self.serve(usize::try_from(token - FIRST_CONN).unwrap_or(usize::MAX), event.events()),
            }
        }
        Ok(())
    }

    /// Gives one stream its chunk. False: the stream has ended.
    fn advance(&mut self, index: usize, id: u64, now: Instant, ttft: Duration, wrote: &mut bool) -> bool {
        let Some(Some(conn)) = self.conns.get_mut(index) else { return false };
        let clogged = conn.clogged();
        let Some(stream) = conn.stream.as_mut().filter(|stream| stream.id() == id) else { return false };
        if stream.last.is_none() && now < stream.arrived + ttft {
            return true;
        }
        if clogged {
            self.truth.stalled += 1;
            return true;
        }
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        let (tokens, after) = stream.step(&self.script.engine, &mut bytes);
        if tokens > 0 {
            let stamp = Instant::now();
            match stream.last {
                None => self.truth.ttft.push(stamp - stream.arrived),
                Some(last) => self.truth.itl.push(stamp - last),
            }
            stream.last = Some(stamp);
            self.truth.tokens += u64::from(tokens);
            self.truth.writes += 1;
            *wrote = true;
        }
        let sent = bytes.is_empty() || self.send(index, &bytes);
        self.scratch = bytes;
        if !sent {
            self.truth.client_gone += 1;
            self.close(index);
            return false;
        }
        if after == After::More {
            return true;
        }
        let Some(Some(conn)) = self.conns.get_mut(index) else { return false };
        conn.stream = None;
        self.running -= 1;
        if after == After::Done {
            self.truth.completed += 1;
        }
        conn.closing |= after == After::Cut;
        if conn.closing && !conn.pending() {
            self.close(index);
        }
        false
    }
}
