//! The engine process: it holds the control port. A thread per connection; the answers come from the script.

use super::helper;
use super::http::{self, Parsed};
use super::journal::Journal;
use super::link::{Link, Message};
use super::orchestrator::{ServeArgs, SignalFeed};
use super::script::{Answer, Answers, InfoShape, Script, Silence, Trigger};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde_json::{Value, json};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The hidden sub-command.
pub const COMMAND: &str = "__engine";

struct Port {
    script: Script,
    args: ServeArgs,
    started: Instant,
    hang: AtomicBool,
    asked: [AtomicUsize; 3],
    good: [AtomicUsize; 3],
    link: Mutex<Link>,
}

/// Endpoints that are counted.
#[derive(Debug, Clone, Copy)]
enum Endpoint {
    Health = 0,
    Generate = 1,
    Info = 2,
}

/// What was answered.
enum Reply {
    /// A scripted endpoint, with this status.
    Given(Endpoint, u16),
    /// Something else.
    Plain,
    /// Nothing: the connection is to be closed.
    None,
}

/// The engine's main: ends on SIGTERM, or when told to.
pub fn main(script: Script, args: ServeArgs) -> io::Result<ExitCode> {
    let journal = Journal::new(&script, "engine");
    let mut signals = SignalFeed::take(script.deaf.children)?;
    journal.start();
    let mut link = Link::from_stdin()?;
    let port = Arc::new(Port {
        script,
        args,
        started: Instant::now(),
        hang: AtomicBool::new(false),
        asked: Default::default(),
        good: Default::default(),
        link: Mutex::new(link.try_clone()?),
    });
    let mut listener: Option<TcpListener> = None;
    loop {
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if !link.ended() {
            fds.push(PollFd::new(link.as_fd(), PollFlags::POLLIN));
        }
        poll(&mut fds)?;
        if let Some(signal) = signals.next_stop()? {
            journal.note("signal", json!({"signal": signal.as_str()}));
            return Ok(ExitCode::SUCCESS);
        }
        for message in link.receive() {
            match message {
                Message::Open => {
                    listener = open(&port)?;
                    journal.note("ready", json!({}));
                    link.send(&Message::Bound);
                }
                Message::Hang => port.hang.store(true, Ordering::Relaxed),
                Message::Hold(what) => {
                    helper::spawn(&what, listener.as_ref().map(std::os::fd::AsFd::as_fd))?;
                }
                Message::Exit(code) => return Ok(ExitCode::from(code)),
                Message::Bound | Message::Fire(_) | Message::Registered => {}
            }
        }
    }
}

/// Waits until one of the descriptors has something.
fn poll(fds: &mut [PollFd<'_>]) -> io::Result<()> {
    match nix::poll::poll(fds, PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Binds the port and serves it from a thread; a taken port is only a warning, as in the real one.
fn open(port: &Arc<Port>) -> io::Result<Option<TcpListener>> {
    if port.script.control.absent {
        return Ok(None);
    }
    let host = port.script.control.host.clone().unwrap_or_else(|| "127.0.0.1".into());
    let address = format!("{host}:{}", port.args.control_port);
    let listener = match TcpListener::bind(&address) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("[ts] WARNING: control server could not bind {address}: {error}; continuing without it");
            return Ok(None);
        }
    };
    let (accepting, port) = (listener.try_clone()?, Arc::clone(port));
    std::thread::spawn(move || {
        for socket in accepting.incoming().filter_map(Result::ok) {
            let port = Arc::clone(&port);
            std::thread::spawn(move || {
                // A client that breaks off is its own affair.
                let _ = port.serve(socket);
            });
        }
    });
    Ok(Some(listener))
}

impl Port {
    fn serve(&self, mut socket: TcpStream) -> io::Result<()> {
        let mut bytes = Vec::new();
        loop {
            let head = match http::parse_head(&bytes) {
                Parsed::Head(head) if bytes.len() >= head.length + head.body => head,
                Parsed::Bad(status) => return socket.write_all(&http::json(status, &json!({}), true)),
                Parsed::Head(_) | Parsed::Partial => {
                    let mut buffer = [0; 8192];
                    match socket.read(&mut buffer)? {
                        0 => return Ok(()),
                        n => bytes.extend_from_slice(&buffer[..n]),
                    }
                    continue;
                }
            };
            bytes.drain(..head.length + head.body);
            self.freeze_if_asked();
            match self.answer(&mut socket, &head)? {
                Reply::Given(endpoint, 200) => self.count_good(endpoint),
                Reply::Given(..) | Reply::Plain => {}
                Reply::None => return Ok(()),
            }
            if head.close {
                return Ok(());
            }
        }
    }

    fn freeze_if_asked(&self) {
        while self.hang.load(Ordering::Relaxed) {
            std::thread::park();
        }
    }

    /// Writes the answer.
    fn answer(&self, socket: &mut TcpStream, head: &http::Head) -> io::Result<Reply> {
        let control = &self.script.control;
        let (endpoint, answers): (Endpoint, &Answers) = match head.path.as_str() {
            "/health" => (Endpoint::Health, &control.health),
            "/health_generate" => (Endpoint::Generate, &control.health_generate),
            "/get_server_info" => (Endpoint::Info, &control.server_info.status),
            "/get_model_info" => {
                let body = json!({"model_path": self.args.model, "served_model_name": self.args.served_name(),
                    "max_context_length": 8192, "vocab_size": 4096, "model_type": "llama"});
                socket.write_all(&http::json(200, &body, head.close))?;
                return Ok(Reply::Plain);
            }
            _ => {
                socket.write_all(&http::json(404, &json!({"error": "not found"}), head.close))?;
                return Ok(Reply::Plain);
            }
        };
        let status = match answers.at(self.asked[endpoint as usize].fetch_add(1, Ordering::Relaxed)) {
            Answer::Status(status) => status,
            Answer::Silence(Silence::Close) => return Ok(Reply::None),
            Answer::Silence(Silence::Hang) => loop {
                std::thread::park();
            },
        };
        let location = (300..400).contains(&status).then_some(control.location.as_deref()).flatten();
        let body = match (endpoint, status) {
            (Endpoint::Info, 200) => self.info(),
            (Endpoint::Info, _) => json!({"error": "engine unavailable", "detail": "scripted"}).to_string(),
            (Endpoint::Health | Endpoint::Generate, _) => String::new(),
        };
        socket.write_all(&http::answer(status, "application/json", &body, location, head.close))?;
        Ok(Reply::Given(endpoint, status))
    }

    fn count_good(&self, endpoint: Endpoint) {
        let n = self.good[endpoint as usize].fetch_add(1, Ordering::Relaxed) as u64 + 1;
        let trigger = match endpoint {
            Endpoint::Health => Trigger::Health(n),
            Endpoint::Generate => Trigger::HealthGenerate(n),
            Endpoint::Info => return,
        };
        for fault in self.script.faults.iter().filter(|fault| fault.at == trigger) {
            if let Ok(mut link) = self.link.lock() {
                link.send(&Message::Fire(fault.action.clone()));
            }
        }
    }

    /// `/get_server_info` as protobuf's JSON shows it: numbers in the two objects are floats.
    fn info(&self) -> String {
        let info = &self.script.control.server_info;
        if let Some(body) = &info.body {
            return body.clone();
        }
        let resolved = || Value::from(self.args.sampling_backend.as_deref().unwrap_or("greedy"));
        let backend = info.sampling_backend.clone().unwrap_or_else(resolved);
        let mut server_args = json!({"model": self.args.model, "served_model_name": self.args.served_name(),
            "host": self.args.host, "port": f64::from(self.args.port), "max_num_seqs": 256.0});
        let mut document = json!({"scheduler_info": {"num_running": 0.0}, "max_total_num_tokens": 8192,
            "uptime_seconds": self.started.elapsed().as_secs_f64(), "tokenspeed_version": "0.1.0",
            "start_time": "2026-11-29T00:00:00Z"});
        if matches!(info.shape, InfoShape::Nested | InfoShape::Flat) {
            server_args["sampling_backend"] = backend.clone();
        }
        if matches!(info.shape, InfoShape::Flat | InfoShape::TopOnly) {
            document["sampling_backend"] = backend;
        }
        document["server_args"] = server_args;
        document.to_string()
    }
}
