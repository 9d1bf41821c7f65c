//! A server that says exactly the bytes it is told to say, on real sockets, and keeps what it was asked.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No test waits longer than this for anything.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// `POST /v1/... HTTP/1.1`
    pub(crate) line: String,
    /// Names in lower case.
    pub(crate) headers: HashMap<String, String>,
    /// Body.
    pub(crate) body: Vec<u8>,
    /// Which connection, from 0.
    pub(crate) connection: usize,
}

/// What the peer does with a request.
pub(crate) type Script = dyn Fn(&Asked, &mut TcpStream) -> Next + Send + Sync;

/// What happens to the connection afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Waits for another request.
    Keep,
    /// Closes in order.
    Close,
}

/// A running peer; its threads end with their connections.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Peer {
    /// Listens on loopback.
    pub(crate) fn start(script: impl Fn(&Asked, &mut TcpStream) -> Next + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Script> = Arc::new(script);
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                let Ok(stream) = stream else { return };
                std::thread::spawn(move || serve(stream, connection, &*script, &log));
            }
        });
        Self { address, asked }
    }

    /// Everything asked so far, but for `/metrics`.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let all = self.asked.lock().unwrap();
        all.iter().filter(|asked| !asked.line.contains("/metrics")).cloned().collect()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn serve(mut stream: TcpStream, connection: usize, script: &Script, log: &Mutex<Vec<Asked>>) {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut unread = Vec::new();
    while let Some(asked) = read_request(&mut stream, &mut unread, connection) {
        log.lock().unwrap().push(asked.clone());
        if script(&asked, &mut stream) == Next::Close {
            let _ = stream.shutdown(Shutdown::Write);
            return;
        }
    }
}

fn read_request(stream: &mut TcpStream, unread: &mut Vec<u8>, connection: usize) -> Option<Asked> {
    let mut buffer = [0; 16384];
    let head_end = loop {
        if let Some(at) = unread.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        unread.extend_from_slice(&buffer[..count]);
    };
    let head = String::from_utf8(unread[..head_end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap().to_owned();
    let headers: HashMap<String, String> = lines
        .map(|field| field.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    while unread.len() < head_end + 4 + length {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        unread.extend_from_slice(&buffer[..count]);
    }
    let body = unread[head_end + 4..head_end + 4 + length].to_vec();
    unread.drain(..head_end + 4 + length);
    Some(Asked { line, headers, body, connection })
}

/// Writes; a client that has gone away is no error of the peer.
pub(crate) fn say(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
}

pub(crate) const EVENT_STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";

/// A whole event stream in chunks of at most `size` bytes, each its own write.
pub(crate) fn say_chunked(stream: &mut TcpStream, body: &[u8], size: usize) {
    say(stream, format!("{EVENT_STREAM}Transfer-Encoding: chunked\r\n\r\n").as_bytes());
    for piece in body.chunks(size) {
        say(stream, &[format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    }
    say(stream, b"0\r\n\r\n");
}

/// A port on which nothing listens.
pub(crate) fn refused() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

/// A corpus of `count` prompts.
pub(crate) fn corpus(dir: &Path, count: usize) -> PathBuf {
    let items: Vec<Value> = (0..count)
        .map(|i| {
            serde_json::json!({"id": format!("S-{i:04}"), "band": "S",
            "conversations": [{"from": "human", "value": format!("prompt {i}")}, {"from": "gpt", "value": ""}]})
        })
        .collect();
    let path = dir.join("corpus.json");
    std::fs::write(&path, serde_json::to_vec(&items).unwrap()).unwrap();
    path
}

/// Runs `agent load`, killed at the deadline.
pub(crate) fn load(args: &[String]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_agent"))
        .arg("load")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let late = Instant::now() + DEADLINE;
    // Its output is a few lines: the pipes never fill while nobody reads.
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > late {
            let _ = child.kill();
            panic!("agent load {args:?} was not over in time: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

/// A leg against `url`: the file and the exit status.
pub(crate) fn leg(url: &str, corpus: &Path, more: &[&str]) -> (i32, Value) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("leg.json");
    let args =
        [&["--url", url, "--dataset", corpus.to_str().unwrap(), "--out", out.to_str().unwrap()][..], more].concat();
    let output = load(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
    let status = output.status.code().unwrap_or(-1);
    assert!(out.exists(), "no leg file: {output:?}");
    (status, json(&out))
}
