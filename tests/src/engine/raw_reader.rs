//! The physical limit: reads the same streams with as little work as can be. One thread, one epoll; a stamp per
//! read, events counted by their prefix, nothing parsed. What a client adds to these figures is its own.

use super::argparse::{self, Options, Takes};
use super::bench::client::address_of;
use super::gateway::truth::{Distribution, Samples, usage_seconds};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::UsageWho;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What to read.
#[derive(Debug, Clone)]
pub struct Load {
    /// `http://host:port` of the gateway.
    pub url: String,
    /// Streams at a time (closed loop).
    pub concurrency: usize,
    /// Requests in all.
    pub num_prompts: usize,
    /// Tokens each.
    pub max_tokens: u32,
    /// Tokens in an event, as the server is set: a complete stream has `max_tokens / tokens_per_chunk` events.
    pub tokens_per_chunk: u32,
    /// The request's model; none: the server's only one.
    pub model: Option<String>,
    /// Ends the run with an error.
    pub deadline: Duration,
}

/// What was read.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct RawReport {
    /// Requests whose stream ended properly.
    pub completed: u64,
    /// The others.
    pub failed: u64,
    /// Token events; equal to the tokens where an event holds one.
    pub tokens: u64,
    /// Seconds from the first request to the last byte.
    pub duration_s: f64,
    /// Tokens per second over the run.
    pub tokens_per_s: f64,
    /// Request written to first token event read.
    pub ttft_ms: Distribution,
    /// Between token events; those of one read count as 0 apart.
    pub itl_ms: Distribution,
    /// CPU time of the reading thread.
    pub cpu_s: f64,
    /// The same per token event.
    pub cpu_us_per_token: f64,
}

const EVENT: &[u8] = b"data: {";
const DONE: &[u8] = b"data: [DONE]";
const END: &[u8] = b"\r\n0\r\n\r\n";

struct Slot {
    socket: TcpStream,
    sent: Instant,
    last: Option<Instant>,
    events: u32,
    /// End of the bytes so far, in case a prefix is split over two reads.
    tail: Vec<u8>,
    done: bool,
    busy: bool,
}

/// Reads the streams; connections are opened before the clock starts.
pub fn raw_reader(load: &Load) -> io::Result<RawReport> {
    let address = address_of(&load.url).map_err(io::Error::other)?;
    let model = load.model.as_ref().map(|m| format!("\"model\":{},", serde_json::Value::from(m.as_str())));
    let body = format!(
        "{{{}\"prompt\":\"w0001 w0002 w0003\",\"max_tokens\":{},\"stream\":true,\"ignore_eos\":true}}",
        model.unwrap_or_default(),
        load.max_tokens
    );
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes();
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let mut slots = Vec::new();
    for index in 0..load.concurrency.min(load.num_prompts) {
        let socket = TcpStream::connect(&address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
        let now = Instant::now();
        slots.push(Slot { socket, sent: now, last: None, events: 0, tail: Vec::new(), done: false, busy: false });
    }
    let cpu_before = usage_seconds(UsageWho::RUSAGE_THREAD);
    let started = Instant::now();
    let (mut ttft, mut itl) = (Samples::default(), Samples::default());
    let (mut completed, mut failed, mut tokens) = (0, 0, 0u64);
    for slot in &mut slots {
        slot.start(&request)?;
    }
    let (mut running, mut sent) = (slots.len(), slots.len());
    let mut events = vec![EpollEvent::empty(); 1024];
    let mut buffer = vec![0; 256 * 1024];
    while running > 0 {
        if started.elapsed() > load.deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the streams did not end in time"));
        }
        let ready = match epoll.wait(&mut events, EpollTimeout::from(200u8)) {
            Ok(n) => n,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        for event in &events[..ready] {
            let slot = usize::try_from(event.data()).ok().and_then(|i| slots.get_mut(i)).filter(|slot| slot.busy);
            let Some(slot) = slot else { continue };
            let Some(end) = slot.read(&mut buffer, &mut ttft, &mut itl) else { continue };
            tokens += u64::from(slot.events);
            let good = end == End::Proper && slot.events == load.max_tokens.div_ceil(load.tokens_per_chunk);
            *(if good { &mut completed } else { &mut failed }) += 1;
            if good && sent < load.num_prompts {
                slot.start(&request)?;
                sent += 1;
            } else {
                slot.busy = false;
                epoll.delete(&slot.socket)?;
                running -= 1;
            }
        }
    }
    let duration = started.elapsed().as_secs_f64();
    let cpu_s = usage_seconds(UsageWho::RUSAGE_THREAD) - cpu_before;
    #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
    let count = tokens as f64;
    Ok(RawReport {
        completed,
        failed,
        tokens,
        duration_s: duration,
        tokens_per_s: count / duration,
        ttft_ms: ttft.distribution(),
        itl_ms: itl.distribution(),
        cpu_s,
        cpu_us_per_token: if tokens == 0 { 0.0 } else { cpu_s * 1e6 / count },
    })
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// `[DONE]` and the last chunk.
    Proper,
    /// Anything else.
    Broken,
}

impl Slot {
    fn start(&mut self, request: &[u8]) -> io::Result<()> {
        (self.last, self.events, self.done, self.busy) = (None, 0, false, true);
        self.tail.clear();
        self.sent = Instant::now();
        self.socket.write_all(request)
    }

    /// Reads once; how the stream ended, if it did.
    fn read(&mut self, buffer: &mut [u8], ttft: &mut Samples, itl: &mut Samples) -> Option<End> {
        let n = match self.socket.read(buffer) {
            Ok(0) => return Some(End::Broken),
            Ok(n) => n,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return None,
            Err(_) => return Some(End::Broken),
        };
        let now = Instant::now();
        let (count, end) = self.take(&buffer[..n]);
        for _ in 0..count {
            match self.last.replace(now) {
                None => ttft.push(now - self.sent),
                Some(last) => itl.push(now - last),
            }
        }
        self.events += count;
        end.then_some(if self.done { End::Proper } else { End::Broken })
    }

    /// Token events in these bytes, and whether the response is complete.
    fn take(&mut self, bytes: &[u8]) -> (u32, bool) {
        // The last few bytes are looked at again: too few to hold a whole prefix twice.
        let kept = self.tail.len();
        self.tail.extend_from_slice(bytes);
        let mut count = 0;
        let mut at = 0;
        while let Some(found) = self.tail[at..].iter().position(|b| *b == b'd').map(|i| at + i) {
            if self.tail[found..].starts_with(EVENT) && found + EVENT.len() > kept {
                count += 1;
                at = found + EVENT.len();
            } else {
                self.done |= self.tail[found..].starts_with(DONE);
                at = found + 1;
            }
        }
        let end = self.tail.ends_with(END);
        let keep = self.tail.len().saturating_sub(DONE.len() - 1);
        self.tail.drain(..keep);
        (count, end)
    }
}

const OPTIONS: Options = &[
    ("--url", Takes::One),
    ("--concurrency", Takes::One),
    ("--num-prompts", Takes::One),
    ("--max-tokens", Takes::One),
    ("--tokens-per-chunk", Takes::One),
    ("--model", Takes::One),
    ("--deadline-sec", Takes::One),
];

/// `tokenspeed raw-reader`: the report as JSON on stdout.
pub fn main(words: &[String]) -> io::Result<ExitCode> {
    let load = argparse::parse(OPTIONS, words).and_then(|given| {
        let number = |name: &str, default: usize| match given.one(name) {
            None => Ok(default),
            Some(text) => text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("argument {name}: '{text}'")),
        };
        Ok(Load {
            url: given.one("--url").ok_or("the following arguments are required: --url")?.to_owned(),
            concurrency: number("--concurrency", 1)?,
            num_prompts: number("--num-prompts", 1)?,
            max_tokens: u32::try_from(number("--max-tokens", 100)?).unwrap_or(u32::MAX),
            tokens_per_chunk: u32::try_from(number("--tokens-per-chunk", 1)?).unwrap_or(u32::MAX),
            model: given.one("--model").map(str::to_owned),
            deadline: Duration::from_secs(number("--deadline-sec", 600)? as u64),
        })
    });
    match load {
        Err(message) => {
            eprintln!(
                "usage: tokenspeed raw-reader --url URL [--concurrency C] [--num-prompts N] [--max-tokens M]\nerror: {message}"
            );
            Ok(ExitCode::from(2))
        }
        Ok(load) => {
            let report = raw_reader(&load)?;
            writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)?;
            Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_whatever_the_reads() {
        let text = b"HTTP/1.1 200 OK\r\n\r\n20\r\ndata: {\"x\":\"data\"}\n\n\r\n20\r\ndata: {\"x\":1}\n\n\r\nc\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        for size in 1..text.len() {
            let socket = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
            let now = Instant::now();
            let mut slot = Slot { socket, sent: now, last: None, events: 0, tail: Vec::new(), done: false, busy: true };
            let mut seen = (0, false);
            for piece in text.chunks(size) {
                let (count, end) = slot.take(piece);
                seen = (seen.0 + count, end);
            }
            assert_eq!((seen, slot.done), ((2, true), true), "reads of {size}");
        }
    }
}
