//! A server whose times are known, inside the client's own process, and the client beside it: what the client reports
//! of it minus what is true is the client's error for a load of this shape on this machine.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::load::certify::{Calibration, Errors, pair};
use crate::load::client::{Client, Got, Settings, receive};
use crate::load::clock::{Clock, Stamp};
use crate::load::host;

/// Time that a calibration takes at most, about.
const BUDGET: Duration = Duration::from_millis(1500);
/// Most streams of the mock, which share the process's descriptors with the client's ends.
const STREAMS_MAX: usize = 2000;

/// The load to imitate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    streams: usize,
    requests: usize,
    tokens: usize,
    ttft: Duration,
    itl: Duration,
}

impl Shape {
    /// From a leg's figures, milliseconds; long gaps and long answers are cut so that it takes a second or two.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "clamped to small numbers"
    )]
    pub fn new(streams: usize, ttft_ms: f64, itl_ms: f64, tokens: f64) -> Self {
        let ttft = Duration::from_secs_f64(ttft_ms.clamp(1.0, 200.0) / 1e3);
        let itl = Duration::from_secs_f64(itl_ms.clamp(0.2, 100.0) / 1e3);
        let fit = (BUDGET.saturating_sub(ttft).as_secs_f64() / itl.as_secs_f64()) as usize;
        let tokens = (tokens.clamp(1.0, 1e6) as usize).min(fit.max(2));
        let streams = streams.clamp(1, STREAMS_MAX);
        let one = ttft.as_secs_f64() + itl.as_secs_f64() * tokens as f64;
        let rounds = ((BUDGET.as_secs_f64() / one) as usize).clamp(1, 16);
        Self { streams, requests: streams * rounds, tokens, ttft, itl }
    }
}

/// Runs the client against the mock.
pub fn calibrate(shape: &Shape, settings: &Settings) -> Calibration {
    match measure(shape, settings) {
        Ok(errors) => Calibration::Measured(errors),
        Err(reason) => Calibration::Skipped { reason },
    }
}

fn measure(shape: &Shape, settings: &Settings) -> Result<Errors, String> {
    let text = |error: io::Error| format!("the mock could not be set up: {error}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
    // The default queue is shorter than a burst of a thousand connections.
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::MAXCONN).map_err(|e| text(e.into()))?;
    listener.set_nonblocking(true).map_err(text)?;
    let address = listener.local_addr().map_err(text)?;
    let clock = Clock::start();
    let stop = Arc::new(AtomicBool::new(false));
    let server = {
        let (shape, stop) = (*shape, Arc::clone(&stop));
        std::thread::Builder::new().name("load-mock".to_owned()).spawn(move || {
            keep_off_the_clients_cores();
            Server::new(listener, clock, shape).and_then(|server| server.serve(&stop))
        })
    };
    let server = server.map_err(text)?;
    let report = drive(shape, settings, address, clock);
    stop.store(true, Ordering::Relaxed);
    let truth = server.join().map_err(|_| "the mock failed".to_owned())?.map_err(text)?;
    let (ttfts, gaps) = report?;
    let (Some(said), Some(was)) = (pair(ttfts), pair(truth.ttfts)) else { return Err("no answer came".to_owned()) };
    let none = crate::load::certify::Pair { p50: 0.0, p99: 0.0 };
    let (said_itl, was_itl) = (pair(gaps).unwrap_or(none), pair(truth.gaps).unwrap_or(none));
    Ok(Errors {
        streams: shape.streams,
        tokens: shape.tokens,
        ttft_error_p50_ms: said.p50 - was.p50,
        ttft_error_p99_ms: said.p99 - was.p99,
        itl_error_p50_ms: said_itl.p50 - was_itl.p50,
        itl_error_p99_ms: said_itl.p99 - was_itl.p99,
        true_ttft_p50_ms: was.p50,
        true_itl_p50_ms: was_itl.p50,
    })
}

/// The client's side: TTFTs and gaps as it reports them, milliseconds.
fn drive(
    shape: &Shape,
    settings: &Settings,
    address: SocketAddr,
    clock: Clock,
) -> Result<(Vec<f64>, Vec<f64>), String> {
    let settings = Settings {
        addresses: vec![address],
        concurrency: shape.streams,
        max_in_flight: usize::MAX,
        timeout: Duration::from_secs(5),
        request_timeout: None,
        keep_text: false,
        ..settings.clone()
    };
    let profile = settings.profile;
    let mut client = Client::new(settings, clock).map_err(|e| e.to_string())?;
    if profile == crate::load::plan::Profile::Strict {
        client.open_connections(shape.streams).map_err(|e| e.to_string())?;
    }
    let request = b"POST / HTTP/1.1\r\nHost: mock\r\nContent-Length: 0\r\n\r\n";
    let phase = client.run_phase(shape.requests, None, &|_| request.to_vec(), &mut |_, _| {});
    let phase = phase.map_err(|e| e.to_string())?;
    let answered = || phase.finished.iter().filter(|finished| finished.verdict.is_ok());
    let ttfts = answered().filter_map(|f| f.seen.first_piece.map(|at| at.secs_since(f.started) * 1e3)).collect();
    let gaps = answered().flat_map(|f| f.seen.gaps.iter().map(|ns| Stamp(*ns).secs_since(Stamp(0)) * 1e3)).collect();
    if answered().count() < shape.requests {
        return Err(format!("{} of {} mock requests failed", shape.requests - answered().count(), shape.requests));
    }
    Ok((ttfts, gaps))
}

/// A client that is bound to cores leaves the others to the mock, as it leaves them to a real server.
fn keep_off_the_clients_cores() {
    let mine = host::allowed();
    let others: Vec<usize> = (0..nix::sched::CpuSet::count()).filter(|cpu| !mine.contains(cpu)).collect();
    // Without any other core the two share, and the error shows it.
    let _ = host::bind(&others);
}

#[derive(Debug, Default)]
struct Truth {
    ttfts: Vec<f64>,
    gaps: Vec<f64>,
}

#[derive(Debug)]
struct Stream {
    socket: TcpStream,
    unread: Vec<u8>,
    /// When the request that is being answered came, how many tokens have gone, and when the last one went.
    answering: Option<(Stamp, usize, Stamp)>,
    waiting: VecDeque<Stamp>,
}

struct Server {
    listener: TcpListener,
    clock: Clock,
    shape: Shape,
    epoll: Epoll,
    streams: HashMap<u64, Stream>,
    next: u64,
    due: BinaryHeap<std::cmp::Reverse<(Stamp, u64)>>,
    truth: Truth,
    token: String,
}

const LISTENER: u64 = 0;
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const TOKEN: &str = "data: {\"id\":\"cmpl-calibration\",\"object\":\"text_completion\",\"created\":1,\"model\":\"mock\",\
                     \"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"finish_reason\":null}]}\n\n";
const LAST: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n";

impl Server {
    fn new(listener: TcpListener, clock: Clock, shape: Shape) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        let (streams, due, truth) = (HashMap::new(), BinaryHeap::new(), Truth::default());
        Ok(Self { listener, clock, shape, epoll, streams, next: LISTENER + 1, due, truth, token: chunk(TOKEN) })
    }

    fn serve(mut self, stop: &AtomicBool) -> io::Result<Truth> {
        let mut events = [EpollEvent::empty(); 256];
        let mut buffer = vec![0; 64 * 1024];
        let mut control = nix::cmsg_space!(TimeSpec);
        while !stop.load(Ordering::Relaxed) {
            self.send_due();
            let now = self.clock.now();
            let wait = self.due.peek().map_or(Duration::from_millis(10), |due| due.0.0.since(now));
            let timeout = EpollTimeout::try_from(wait.min(Duration::from_millis(10))).unwrap_or(EpollTimeout::ZERO);
            let ready = self.epoll.wait(&mut events, timeout).unwrap_or(0);
            for event in &events[..ready] {
                match event.data() {
                    LISTENER => self.accept()?,
                    id => self.read(id, &mut buffer, &mut control),
                }
                self.send_due();
            }
        }
        Ok(self.truth)
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            self.epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, self.next))?;
            let stream = Stream { socket, unread: Vec::new(), answering: None, waiting: VecDeque::new() };
            self.streams.insert(self.next, stream);
            self.next += 1;
        }
    }

    fn read(&mut self, id: u64, buffer: &mut [u8], control: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let bridge = self.clock.bridge();
        match receive(&stream.socket, true, buffer, control) {
            Got::Nothing => {}
            Got::End | Got::Failed(_) => drop(self.streams.remove(&id)),
            Got::Bytes { count, wall_ns } => {
                let now = self.clock.now();
                let arrived = wall_ns.map_or(now, |wall| bridge.stamp(wall).min(now));
                stream.unread.extend_from_slice(&buffer[..count]);
                while let Some(at) = memchr::memmem::find(&stream.unread, b"\r\n\r\n") {
                    stream.unread.drain(..at + 4);
                    stream.waiting.push_back(arrived);
                }
                self.begin(id);
            }
        }
    }

    fn begin(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.answering.is_none()
            && let Some(arrived) = stream.waiting.pop_front()
        {
            stream.answering = Some((arrived, 0, arrived));
            self.due.push(std::cmp::Reverse((arrived.after(self.shape.ttft), id)));
        }
    }

    fn send_due(&mut self) {
        while let Some(std::cmp::Reverse((at, id))) = self.due.peek().copied() {
            let now = self.clock.now();
            if at > now {
                return;
            }
            self.due.pop();
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let Some((arrived, sent, before)) = stream.answering else { continue };
            let last = sent + 1 == self.shape.tokens;
            let head = if sent == 0 { HEAD } else { "" };
            let end = if last { chunk(LAST) + "0\r\n\r\n" } else { String::new() };
            let bytes = [head, &self.token, &end].concat();
            let now = self.clock.now();
            // Its few bytes fit into any socket buffer whose reader lives; one that does not is dropped.
            if stream.socket.write_all(bytes.as_bytes()).is_err() {
                self.streams.remove(&id);
                continue;
            }
            match sent {
                0 => self.truth.ttfts.push(now.secs_since(arrived) * 1e3),
                _ => self.truth.gaps.push(now.secs_since(before) * 1e3),
            }
            if last {
                stream.answering = None;
                self.begin(id);
            } else {
                stream.answering = Some((arrived, sent + 1, now));
                self.due.push(std::cmp::Reverse((at.after(self.shape.itl).max(now), id)));
            }
        }
    }
}

fn chunk(event: &str) -> String {
    format!("{:x}\r\n{event}\r\n", event.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::plan::Profile;

    fn settings(profile: Profile) -> Settings {
        Settings {
            profile,
            addresses: Vec::new(),
            concurrency: 1,
            max_in_flight: usize::MAX,
            timeout: Duration::from_secs(1),
            request_timeout: None,
            keep_text: false,
        }
    }

    #[test]
    fn shapes_stay_within_the_budget() {
        for (streams, ttft, itl, tokens) in [(1, 50.0, 25.0, 100.0), (5000, 60_000.0, 900.0, 1e9), (8, 0.0, 0.0, 0.0)] {
            let shape = Shape::new(streams, ttft, itl, tokens);
            let one = shape.ttft + shape.itl * u32::try_from(shape.tokens).unwrap();
            assert!(shape.tokens >= 1 && shape.streams <= STREAMS_MAX, "{shape:?}");
            assert!(one <= BUDGET + Duration::from_millis(200), "{shape:?}");
        }
    }

    #[test]
    fn the_mock_answers_and_its_truth_is_near_what_the_client_says() {
        for profile in [Profile::Strict, Profile::Variadic] {
            let errors = measure(&Shape::new(4, 20.0, 5.0, 8.0), &settings(profile)).unwrap();
            // Loose bounds: a shared machine may stop either side for a while. The sign of a mix-up is larger by far.
            assert!(errors.true_ttft_p50_ms >= 20.0 && errors.true_itl_p50_ms >= 4.0, "{errors:?}");
            assert!(errors.ttft_error_p50_ms.abs() < 15.0 && errors.itl_error_p50_ms.abs() < 4.0, "{errors:?}");
        }
    }
}
