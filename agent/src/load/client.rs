//! The event loop: one thread, one epoll set, one read per wake-up, no thread or task per stream.
//!
//! A stamp is the moment at which the kernel took the bytes from the network, which it notes for every segment
//! (`SO_TIMESTAMPNS`); the client may be late to read them and still knows when they came. How late it was is
//! measured with every read, and is what the client certifies itself by. Where the kernel notes nothing, the stamp is
//! the return of the read, before a byte is looked at. The variadic profile always takes the latter, as published.

use std::io::{self, IoSliceMut, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage, connect, recvmsg, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::load::clock::{Bridge, Clock, Stamp, nanos};
use crate::load::histogram::Histogram;
use crate::load::outcome::{Class, Failure};
use crate::load::plan::Profile;
use crate::load::stream::{Over, Reading, Timeline};

/// Bytes that one read takes at most.
const READ: usize = 64 * 1024;
/// Events that one wait returns at most.
const BATCH: usize = 256;
/// How long the end of a body may lag behind `[DONE]` before the connection is given up.
const END_LAG: Duration = Duration::from_secs(1);
/// How long a bridge from the wall clock is used.
const BRIDGE_AGE: Duration = Duration::from_millis(10);
/// Token of the schedule's timer in the epoll set.
const TIMER: u64 = u64::MAX;

/// What the loop needs to know of a leg.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Reading and connections.
    pub profile: Profile,
    /// Addresses of the server, tried in order.
    pub addresses: Vec<SocketAddr>,
    /// Workers of a closed loop; connections opened beforehand.
    pub concurrency: usize,
    /// Most requests in flight in an open loop.
    pub max_in_flight: usize,
    /// Longest silence on a socket.
    pub timeout: Duration,
    /// Longest request.
    pub request_timeout: Option<Duration>,
    /// Whether generated texts are kept.
    pub keep_text: bool,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Finished {
    /// When it should have been sent: the schedule's moment, or the moment its worker was free.
    pub intended: Stamp,
    /// When its clock started: just before the connection was taken or opened, the bytes being ready.
    pub started: Stamp,
    /// When its last byte was handed to the kernel.
    pub sent: Option<Stamp>,
    /// When the connection was made, for a request that had to open one.
    pub connected: Option<Stamp>,
    /// Whether the connection was there before, opened for the window or kept.
    pub ready: bool,
    /// Whether the connection had answered a request before.
    pub reused: bool,
    /// When it was over.
    pub ended: Stamp,
    /// What was seen.
    pub seen: Timeline,
    /// How it ended.
    pub verdict: Result<(), Failure>,
}

/// One phase of a leg.
#[derive(Debug)]
pub struct Phase {
    /// When the first request could be sent.
    pub start: Stamp,
    /// When the last one was over.
    pub end: Stamp,
    /// By queue index.
    pub finished: Vec<Finished>,
    /// From the kernel's stamp to the client's read, per read; empty where the kernel notes nothing.
    pub read_lag: Histogram,
    /// From the intended to the actual start, per request.
    pub send_lag: Histogram,
    /// Most requests in flight at one time.
    pub peak_in_flight: usize,
}

/// The client's machinery could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("the load client's event loop: {0}")]
pub struct Broken(#[from] Errno);

#[derive(Debug)]
enum Link {
    Closed,
    Connecting { stream: TcpStream, since: Stamp },
    Open(TcpStream),
}

#[derive(Debug)]
struct Job {
    item: usize,
    intended: Stamp,
    started: Stamp,
    bytes: Vec<u8>,
    written: usize,
    sent: Option<Stamp>,
    connected: Option<Stamp>,
    ready: bool,
    reused: bool,
    heard: Stamp,
    address: usize,
    reading: Reading,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    link: Link,
    job: Option<Job>,
    stamped: bool,
    /// Whether this connection has answered a request.
    used: bool,
}

/// The client: connections outlive the phases.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    clock: Clock,
    epoll: Epoll,
    timer: TimerFd,
    slots: Vec<Slot>,
    /// Open connections without a request.
    idle: Vec<usize>,
    /// Slots without a connection.
    closed: Vec<usize>,
    buffer: Box<[u8]>,
    control: Vec<u8>,
    /// Address that answered last.
    address: usize,
    bridge: Bridge,
}

/// What is in flight during a phase.
struct Run<'r> {
    render: &'r dyn Fn(usize) -> Vec<u8>,
    finished: Vec<Option<Finished>>,
    done: usize,
    in_flight: usize,
    read_lag: Histogram,
    send_lag: Histogram,
    peak: usize,
    last_end: Stamp,
    on_done: &'r mut dyn FnMut(usize, Duration),
}

/// What one read gave.
#[derive(Debug)]
pub enum Got {
    /// Bytes, and the wall-clock stamp of the last segment among them.
    Bytes {
        /// How many.
        count: usize,
        /// Nanoseconds since the Unix epoch.
        wall_ns: Option<u64>,
    },
    /// None are there.
    Nothing,
    /// The peer has closed.
    End,
    /// The connection is broken.
    Failed(Errno),
}

impl Client {
    /// A client without connections.
    pub fn new(settings: Settings, clock: Clock) -> Result<Self, Broken> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        Ok(Self {
            settings,
            clock,
            epoll,
            timer,
            slots: Vec::new(),
            idle: Vec::new(),
            closed: Vec::new(),
            buffer: vec![0; READ].into_boxed_slice(),
            control: nix::cmsg_space!(TimeSpec),
            address: 0,
            bridge: clock.bridge(),
        })
    }

    /// Opens connections until `count` are idle, each tried once; returns how many are. Only the strict profile does.
    pub fn open_connections(&mut self, count: usize) -> Result<usize, Broken> {
        let deadline = self.clock.now().after(self.settings.timeout.min(Duration::from_secs(10)));
        let mut tries = count.saturating_sub(self.idle.len());
        let mut nobody = |_, _| {};
        let mut run = Run::new(&|_| Vec::new(), 0, &mut nobody);
        // A listen queue is short: connections that it drops come back only after a second.
        let burst = 64;
        loop {
            let connecting = self.slots.iter().filter(|slot| matches!(slot.link, Link::Connecting { .. })).count();
            for _ in connecting..burst.min(connecting + tries) {
                tries -= 1;
                let index = self.vacant();
                let now = self.clock.now();
                if self.connect(index, self.address, now).is_err() {
                    self.close(index);
                }
            }
            let connecting = self.slots.iter().any(|slot| matches!(slot.link, Link::Connecting { .. }));
            if (!connecting && tries == 0) || self.clock.now() >= deadline {
                return Ok(self.idle.len());
            }
            self.wait(Duration::from_millis(50), &mut run)?;
        }
    }

    /// Runs `count` requests to completion. `schedule` gives their times after the start; `None` is the closed loop.
    /// `on_done` is told the number of requests done and the duration of the one that has just ended.
    pub fn run_phase(
        &mut self,
        count: usize,
        schedule: Option<&[Duration]>,
        render: &dyn Fn(usize) -> Vec<u8>,
        on_done: &mut dyn FnMut(usize, Duration),
    ) -> Result<Phase, Broken> {
        let mut run = Run::new(render, count, on_done);
        let start = self.clock.now();
        let mut next = 0;
        let mut armed = None;
        let mut scan_at = start;
        let scan_every = (self.settings.timeout.min(self.settings.request_timeout.unwrap_or(Duration::MAX)) / 20)
            .clamp(Duration::from_millis(5), Duration::from_millis(500));
        while run.done < count {
            match schedule {
                None => self.send_closed(&mut next, count, start, &mut run),
                Some(times) => {
                    self.send_due(&mut next, times, start, &mut run);
                    if armed != Some(next) {
                        self.arm(next, times, start)?;
                        armed = Some(next);
                    }
                }
            }
            if run.done == count {
                break;
            }
            self.wait_sending(scan_every, &mut run, &mut next, count, schedule.is_none(), start)?;
            let now = self.clock.now();
            if now >= scan_at {
                scan_at = now.after(scan_every);
                self.expire(now, &mut run);
            }
        }
        let end = run.last_end.max(start);
        Ok(Phase {
            start,
            end,
            finished: run.finished.into_iter().flatten().collect(),
            read_lag: run.read_lag,
            send_lag: run.send_lag,
            peak_in_flight: run.peak,
        })
    }

    fn send_closed(&mut self, next: &mut usize, count: usize, start: Stamp, run: &mut Run<'_>) {
        while *next < count && run.in_flight < self.settings.concurrency {
            // A worker is free from the start, or since a request has ended.
            let free = if *next < self.settings.concurrency { start } else { run.last_end };
            self.send(*next, free, run);
            *next += 1;
        }
    }

    fn send_due(&mut self, next: &mut usize, times: &[Duration], start: Stamp, run: &mut Run<'_>) {
        while *next < times.len() && run.in_flight < self.settings.max_in_flight {
            let due = start.after(times[*next]);
            if self.clock.now() < due {
                return;
            }
            self.send(*next, due, run);
            *next += 1;
        }
    }

    /// Sets the timer to the next scheduled send.
    fn arm(&self, next: usize, times: &[Duration], start: Stamp) -> Result<(), Broken> {
        let Some(time) = times.get(next) else { return Ok(()) };
        let wait = start.after(*time).since(self.clock.now());
        // Due already, and held back by the limit of requests in flight: the next end sends it.
        if wait.is_zero() {
            return Ok(());
        }
        let expiration = Expiration::OneShot(TimeSpec::from_duration(wait));
        Ok(self.timer.set(expiration, TimerSetTimeFlags::empty())?)
    }

    /// Gives a request to an idle connection, or to one that is opened for it.
    fn send(&mut self, item: usize, intended: Stamp, run: &mut Run<'_>) {
        let bytes = (run.render)(item);
        let reading = Reading::new(self.settings.profile, self.settings.keep_text);
        run.in_flight += 1;
        run.peak = run.peak.max(run.in_flight);
        let (index, ready) = match self.idle.pop() {
            Some(index) => (index, true),
            None => (self.vacant(), false),
        };
        let started = self.clock.now();
        run.send_lag.add(started.since(intended));
        self.slots[index].job = Some(Job {
            item,
            intended,
            started,
            bytes,
            written: 0,
            sent: None,
            connected: None,
            ready,
            reused: ready && self.slots[index].used,
            heard: started,
            address: self.address,
            reading,
        });
        if ready {
            self.write(index, run);
        } else if let Err(errno) = self.connect(index, self.address, started) {
            self.connect_failed(index, errno, run);
        }
    }

    /// A slot without a connection; its slot is the caller's to fill.
    fn vacant(&mut self) -> usize {
        self.closed.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, link: Link::Closed, job: None, stamped: false, used: false });
            self.slots.len() - 1
        })
    }

    fn connect(&mut self, index: usize, address: usize, since: Stamp) -> Result<(), Errno> {
        let address = self.settings.addresses[address % self.settings.addresses.len()];
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let fd: OwnedFd = socket(family, SockType::Stream, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
        let stamped = setsockopt(&fd, sockopt::ReceiveTimestampns, &true).is_ok();
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        (slot.stamped, slot.used) = (stamped, false);
        let stream = TcpStream::from(fd);
        let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        self.epoll.add(&stream, EpollEvent::new(interest, token(index, slot.generation)))?;
        slot.link = Link::Connecting { stream, since };
        Ok(())
    }

    fn connect_failed(&mut self, index: usize, errno: Errno, run: &mut Run<'_>) {
        let now = self.clock.now();
        let others = self.settings.addresses.len();
        self.slots[index].link = Link::Closed;
        let Some(job) = &mut self.slots[index].job else {
            self.close(index);
            return;
        };
        // `localhost` has two addresses; a server that listens on one of them is reached.
        job.address += 1;
        let (address, tried) = (job.address, job.address.saturating_sub(self.address));
        if tried < others && !matches!(errno, Errno::EMFILE | Errno::ENFILE) {
            return match self.connect(index, address, now) {
                Ok(()) => {}
                Err(errno) => self.connect_failed(index, errno, run),
            };
        }
        let class = if ours(errno) { Class::ClientFault } else { Class::Connect };
        job.reading.fail(Failure::new(class, format!("connect: {}", errno.desc())));
        self.finish(index, now, Over { reusable: false }, run);
    }

    /// One wait, without sending: for the time before the window.
    fn wait(&mut self, limit: Duration, run: &mut Run<'_>) -> Result<(), Broken> {
        self.wait_sending(limit, run, &mut 0, 0, false, Stamp::default())
    }

    fn wait_sending(
        &mut self,
        limit: Duration,
        run: &mut Run<'_>,
        next: &mut usize,
        count: usize,
        closed_loop: bool,
        start: Stamp,
    ) -> Result<(), Broken> {
        let mut events = [EpollEvent::empty(); BATCH];
        let timeout = EpollTimeout::try_from(limit).unwrap_or(EpollTimeout::ZERO);
        let ready = match self.epoll.wait(&mut events, timeout) {
            Ok(ready) => ready,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        if self.clock.now().since(self.bridge.built) > BRIDGE_AGE {
            self.bridge = self.clock.bridge();
        }
        let bridge = self.bridge;
        for event in &events[..ready] {
            if event.data() == TIMER {
                let _ = self.timer.wait();
                continue;
            }
            if let Some(index) = self.slot_of(event.data()) {
                self.handle(index, event.events(), bridge, run);
                if closed_loop {
                    self.send_closed(next, count, start, run);
                }
            }
        }
        Ok(())
    }

    /// The slot that a token means, unless its connection has been replaced since.
    fn slot_of(&self, token: u64) -> Option<usize> {
        let index = usize::try_from(token & 0xFFFF_FFFF).ok()?;
        let slot = self.slots.get(index)?;
        (u64::from(slot.generation) == token >> 32).then_some(index)
    }

    fn handle(&mut self, index: usize, flags: EpollFlags, bridge: Bridge, run: &mut Run<'_>) {
        if matches!(self.slots[index].link, Link::Connecting { .. }) {
            self.connected(index, run);
        }
        if flags.contains(EpollFlags::EPOLLOUT) && self.slots[index].job.as_ref().is_some_and(|job| job.sent.is_none())
        {
            self.write(index, run);
        }
        if flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR)
        {
            let closing = flags.intersects(EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
            self.read(index, closing, bridge, run);
        }
    }

    fn connected(&mut self, index: usize, run: &mut Run<'_>) {
        let Link::Connecting { stream, since } = std::mem::replace(&mut self.slots[index].link, Link::Closed) else {
            return;
        };
        match stream.take_error() {
            Ok(None) if stream.peer_addr().is_ok() => {
                self.slots[index].link = Link::Open(stream);
                if let Some(job) = &mut self.slots[index].job {
                    let now = self.clock.now();
                    (job.connected, job.heard) = (Some(now), now);
                    self.address = job.address;
                    self.write(index, run);
                } else {
                    self.idle.push(index);
                }
            }
            // Woken before the handshake was over.
            Ok(None) => self.slots[index].link = Link::Connecting { stream, since },
            Ok(Some(error)) | Err(error) => {
                drop(stream);
                self.connect_failed(index, errno_of(&error), run);
            }
        }
    }

    fn write(&mut self, index: usize, run: &mut Run<'_>) {
        let Slot { link: Link::Open(stream), job: Some(job), .. } = &mut self.slots[index] else { return };
        while job.written < job.bytes.len() {
            match stream.write(&job.bytes[job.written..]) {
                Ok(count) => job.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // An answer that came before the reset says more than the reset.
                    self.read(index, true, self.bridge, run);
                    self.broke(index, errno_of(&error), run);
                    return;
                }
            }
        }
        job.bytes = Vec::new();
        job.sent = Some(self.clock.now());
    }

    /// Reads what has come. A read that does not fill the buffer has emptied the socket; only an edge that announces
    /// an end needs another one.
    fn read(&mut self, index: usize, closing: bool, bridge: Bridge, run: &mut Run<'_>) {
        loop {
            let Slot { link: Link::Open(stream), job, stamped, .. } = &mut self.slots[index] else { return };
            let got = receive(stream, *stamped, &mut self.buffer, &mut self.control);
            let now = self.clock.now();
            match got {
                Got::Nothing => return,
                Got::Failed(errno) => return self.broke(index, errno, run),
                Got::End => {
                    let Some(job) = job else { return self.drop_idle(index) };
                    job.reading.eof(now, job.reused);
                    return self.finish(index, now, Over { reusable: false }, run);
                }
                Got::Bytes { count, wall_ns } => {
                    // Bytes that nobody asked for: the connection is of no more use.
                    let Some(job) = job else { return self.drop_idle(index) };
                    let arrived = wall_ns.map(|wall| bridge.stamp(wall).clamp(job.heard.min(now), now));
                    if let Some(arrived) = arrived {
                        run.read_lag.add(now.since(arrived));
                    }
                    let at = match self.settings.profile {
                        Profile::Strict => arrived.unwrap_or(now),
                        Profile::Variadic => now,
                    };
                    job.heard = at;
                    let full = count == self.buffer.len();
                    if let Some(over) = job.reading.feed(&self.buffer[..count], at) {
                        return self.finish(index, at, Over { reusable: over.reusable && !full && !closing }, run);
                    }
                    if !full && !closing {
                        return;
                    }
                }
            }
        }
    }

    /// The connection failed under a request, or under nothing.
    fn broke(&mut self, index: usize, errno: Errno, run: &mut Run<'_>) {
        let now = self.clock.now();
        let Some(job) = &mut self.slots[index].job else { return self.drop_idle(index) };
        job.reading.eof(now, job.reused);
        let class = if ours(errno) { Class::ClientFault } else { Class::Truncated };
        if !job.reading.only_end_missing() {
            job.reading.fail(Failure::new(class, errno.desc()));
        }
        self.finish(index, now, Over { reusable: false }, run);
    }

    fn drop_idle(&mut self, index: usize) {
        self.idle.retain(|other| *other != index);
        self.close(index);
    }

    fn close(&mut self, index: usize) {
        self.slots[index].link = Link::Closed;
        self.closed.push(index);
    }

    fn finish(&mut self, index: usize, at: Stamp, over: Over, run: &mut Run<'_>) {
        let Some(job) = self.slots[index].job.take() else { return };
        if over.reusable && self.settings.profile == Profile::Strict {
            self.slots[index].used = true;
            self.idle.push(index);
        } else {
            self.close(index);
        }
        let (seen, verdict) = job.reading.finish();
        let ended = match self.settings.profile {
            // Closing is inside the published client's latency (B.4).
            Profile::Variadic => self.clock.now(),
            Profile::Strict => seen.done.unwrap_or(at),
        };
        run.in_flight -= 1;
        run.done += 1;
        run.last_end = run.last_end.max(ended);
        (run.on_done)(run.done, ended.since(job.started));
        run.finished[job.item] = Some(Finished {
            intended: job.intended,
            started: job.started,
            sent: job.sent,
            connected: job.connected,
            ready: job.ready,
            reused: job.reused,
            ended,
            seen,
            verdict,
        });
    }

    /// Ends what has been silent, or has lasted, for too long.
    fn expire(&mut self, now: Stamp, run: &mut Run<'_>) {
        for index in 0..self.slots.len() {
            let Slot { link, job: Some(job), .. } = &mut self.slots[index] else { continue };
            let heard = match link {
                Link::Connecting { since, .. } => *since,
                Link::Closed | Link::Open(_) => job.heard,
            };
            if job.reading.only_end_missing() && now.since(heard) > END_LAG {
                self.finish(index, now, Over { reusable: false }, run);
                continue;
            }
            let silent = now.since(heard) > self.settings.timeout;
            let long = self.settings.request_timeout.is_some_and(|limit| now.since(job.started) > limit);
            if silent || long {
                let limit = if silent { Some(self.settings.timeout) } else { self.settings.request_timeout };
                let what = if silent { "nothing came" } else { "not over" };
                let detail = format!("{what} within {:?}", limit.unwrap_or_default());
                job.reading.fail(Failure::new(Class::Timeout, detail));
                self.finish(index, now, Over { reusable: false }, run);
            }
        }
    }
}

impl<'r> Run<'r> {
    fn new(render: &'r dyn Fn(usize) -> Vec<u8>, count: usize, on_done: &'r mut dyn FnMut(usize, Duration)) -> Self {
        Self {
            render,
            finished: std::iter::repeat_with(|| None).take(count).collect(),
            done: 0,
            in_flight: 0,
            read_lag: Histogram::default(),
            send_lag: Histogram::default(),
            peak: 0,
            last_end: Stamp::default(),
            on_done,
        }
    }
}

fn token(index: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | (index as u64 & 0xFFFF_FFFF)
}

/// Whether this side ran out of something.
fn ours(errno: Errno) -> bool {
    matches!(errno, Errno::EMFILE | Errno::ENFILE | Errno::EADDRNOTAVAIL | Errno::ENOBUFS | Errno::ENOMEM)
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)
}

/// One read, with the kernel's stamp where it gives one.
pub fn receive(stream: &TcpStream, stamped: bool, buffer: &mut [u8], control: &mut Vec<u8>) -> Got {
    let fd = stream.as_fd();
    let mut slices = [IoSliceMut::new(buffer)];
    loop {
        let control = if stamped { Some(control.as_mut_slice()) } else { None };
        let got = recvmsg::<()>(fd.as_raw_fd(), &mut slices, control, MsgFlags::empty());
        return match got {
            Ok(message) if message.bytes == 0 => Got::End,
            Ok(message) => Got::Bytes {
                count: message.bytes,
                wall_ns: message.cmsgs().ok().and_then(|mut all| all.find_map(|one| stamp_of(&one))),
            },
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) => Got::Nothing,
            Err(errno) => Got::Failed(errno),
        };
    }
}

/// The kernel's stamp, nanoseconds since the Unix epoch.
fn stamp_of(message: &ControlMessageOwned) -> Option<u64> {
    if let ControlMessageOwned::ScmTimestampns(at) = message { Some(nanos(Duration::from(*at))) } else { None }
}
