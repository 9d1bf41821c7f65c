//! The bench's HTTP client: one streaming request at a time on a connection, at most 100 connections (the real tool's
//! cap; the wait for one counts as TTFT there and so it does here), never a retry.

use super::args::{Backend, BenchArgs};
use super::dataset::Sample;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Connections of the real tool's HTTP client.
const CONNECTIONS: usize = 100;

/// What became of one request.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// Served, by the tool's own lenient rule.
    pub success: bool,
    /// Tokens of the prompt, as the server says, else as sent.
    pub prompt_len: u32,
    /// `usage.completion_tokens`, if it came in an event of its own.
    pub output_tokens: Option<u32>,
    /// Text of the first choice of each event, in order.
    pub text: String,
    /// Tokens of each choice, counted in its text.
    pub per_choice: Vec<u32>,
    /// Seconds to the first event; 0 without one.
    pub ttft: f64,
    /// Seconds between events.
    pub itl: Vec<f64>,
    /// Seconds to the last event.
    pub latency: f64,
    /// Monotonic seconds.
    pub start: f64,
    /// Why not.
    pub error: String,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<UsageCounts>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    index: usize,
    text: Option<String>,
    delta: Option<Delta>,
}

#[derive(Debug, Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Debug, Deserialize)]
struct UsageCounts {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
}

/// The client.
#[derive(Debug)]
pub struct Client {
    address: String,
    path: String,
    headers: String,
    model: String,
    chat: bool,
    ignore_eos: bool,
    extra_body: serde_json::Map<String, Value>,
    permits: Semaphore,
    idle: Mutex<Vec<TcpStream>>,
    epoch: Instant,
    epoch_monotonic: f64,
}

/// The address in an `http://host:port` URL.
pub fn address_of(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix("http://").ok_or_else(|| format!("{url}: only http is spoken here"))?;
    let authority = rest.split('/').next().unwrap_or_default();
    let authority = authority.replace("localhost", "127.0.0.1");
    Ok(if authority.contains(':') { authority } else { format!("{authority}:80") })
}

impl Client {
    /// For one run.
    pub fn new(args: &BenchArgs, model: &str) -> Result<Self, String> {
        let address = address_of(&args.base_url)?;
        let prefix = args.base_url.trim_start_matches("http://").split_once('/').map_or("", |(_, path)| path);
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{}", prefix.trim_end_matches('/')) };
        let key = std::env::var("OPENAI_API_KEY").ok().map(|key| format!("Authorization: Bearer {key}\r\n"));
        let mut headers = key.unwrap_or_default();
        for (name, value) in &args.headers {
            let _ = write!(headers, "{name}: {value}\r\n");
        }
        Ok(Self {
            path: format!("{prefix}{}", args.endpoint),
            address,
            headers,
            model: args.served_model_name.clone().unwrap_or_else(|| model.to_owned()),
            chat: args.backend == Backend::Chat,
            ignore_eos: args.ignore_eos,
            extra_body: args.extra_body.clone(),
            permits: Semaphore::new(CONNECTIONS),
            idle: Mutex::new(Vec::new()),
            epoch: Instant::now(),
            epoch_monotonic: monotonic_seconds(),
        })
    }

    /// Sends one request and follows its stream to the end.
    pub async fn send(&self, sample: &Sample) -> Output {
        let started = Instant::now();
        let mut output = Output {
            prompt_len: sample.prompt_len,
            start: self.epoch_monotonic + (started - self.epoch).as_secs_f64(),
            ..Output::default()
        };
        if let Err(error) = self.exchange(sample, started, &mut output).await {
            output.success = false;
            output.error = format!(
                "Traceback (most recent call last):\n  File \"bench.py\", line 363, in async_request_openai_completions\n{error}\n"
            );
        }
        output
    }

    fn request(&self, sample: &Sample) -> Vec<u8> {
        let mut body = json!({"model": self.model, "repetition_penalty": 1.0, "max_tokens": sample.output_len,
            "logprobs": null, "stream": true, "stream_options": {"include_usage": true}});
        if let Some(map) = body.as_object_mut() {
            if self.chat {
                map.insert("messages".into(), json!([{"role": "user", "content": sample.prompt}]));
            } else {
                map.insert("prompt".into(), sample.prompt.clone().into());
            }
            if self.ignore_eos {
                map.insert("ignore_eos".into(), true.into());
            }
            map.extend(self.extra_body.clone());
        }
        let body = body.to_string();
        let id = sample.request_id.as_ref().map(|id| format!("x-request-id: {id}\r\n")).unwrap_or_default();
        format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{id}{}Content-Length: {}\r\n\r\n{body}",
            self.path,
            self.address,
            self.headers,
            body.len()
        )
        .into_bytes()
    }

    async fn exchange(&self, sample: &Sample, started: Instant, output: &mut Output) -> Result<(), String> {
        let _permit = self.permits.acquire().await.map_err(|e| e.to_string())?;
        let request = self.request(sample);
        let idle = self.idle.lock().map_err(|e| e.to_string())?.pop();
        let mut socket = match idle {
            Some(socket) => socket,
            None => self.connect().await?,
        };
        let broken = |e: std::io::Error| format!("aiohttp.client_exceptions.ClientOSError: {e}");
        socket.write_all(&request).await.map_err(broken)?;
        let mut reader = Reader { socket: &mut socket, bytes: Vec::new(), ended: false };
        let head = reader.head().await?;
        if head.status != 200 {
            reader.skip_body(&head).await?;
            output.error.clone_from(&head.reason);
            self.keep(socket, head.close);
            return Ok(());
        }
        let mut events = EventSplitter::default();
        let mut seen = Seen { started, last: started, first: false, text: String::new(), counts: HashMap::new() };
        while let Some(piece) = reader.piece(&head).await? {
            for message in events.push(&piece) {
                seen.take(&message, output)?;
            }
        }
        output.success = seen.first;
        if !seen.first {
            output.error =
                "Never received a valid chunk to calculate TTFT.This response will be marked as failed!".into();
        }
        output.latency = (seen.last - started).as_secs_f64();
        let choices = seen.counts.keys().max().map_or(0, |most| most + 1);
        output.per_choice = (0..choices).map(|i| seen.counts.get(&i).copied().unwrap_or(0)).collect();
        output.text = seen.text;
        self.keep(socket, head.close);
        Ok(())
    }

    async fn connect(&self) -> Result<TcpStream, String> {
        let refused =
            |e| format!("aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host {}: {e}", self.address);
        let socket = TcpStream::connect(&self.address).await.map_err(refused)?;
        socket.set_nodelay(true).map_err(|e| e.to_string())?;
        Ok(socket)
    }

    fn keep(&self, socket: TcpStream, close: bool) {
        if let (false, Ok(mut idle)) = (close, self.idle.lock()) {
            idle.push(socket);
        }
    }

    /// The first model of `/v1/models`.
    pub async fn first_model(base_url: &str) -> Result<String, String> {
        let document: Value = serde_json::from_slice(&simple("GET", base_url, "/v1/models", "").await?)
            .map_err(|e| format!("/v1/models: {e}"))?;
        document["data"][0]["id"].as_str().map(str::to_owned).ok_or_else(|| "no model".to_owned())
    }
}

/// Posts JSON and forgets the answer.
pub async fn post(base_url: &str, path: &str, body: &str) -> Result<(), String> {
    simple("POST", base_url, path, body).await.map(drop)
}

/// A request on a connection of its own; the answer's body.
async fn simple(method: &str, base_url: &str, path: &str, body: &str) -> Result<Vec<u8>, String> {
    let address = address_of(base_url)?;
    let mut socket = TcpStream::connect(&address).await.map_err(|e| format!("{address}: {e}"))?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.map_err(|e| e.to_string())?;
    let start = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or("no answer")? + 4;
    Ok(answer.split_off(start))
}

/// The stream as the tool counts it.
struct Seen {
    started: Instant,
    last: Instant,
    first: bool,
    text: String,
    counts: HashMap<usize, u32>,
}

impl Seen {
    fn take(&mut self, message: &[u8], output: &mut Output) -> Result<(), String> {
        let text = message.strip_prefix(b"data: ").unwrap_or(message);
        if message.starts_with(b":") || text == b"[DONE]" {
            return Ok(());
        }
        let event: Event = serde_json::from_slice(text).map_err(|e| format!("json.decoder.JSONDecodeError: {e}"))?;
        if let Some(choice) = event.choices.first() {
            let now = Instant::now();
            if self.first {
                output.itl.push((now - self.last).as_secs_f64());
            } else {
                self.first = true;
                output.ttft = (now - self.started).as_secs_f64();
            }
            self.last = now;
            let text = choice.text.as_deref().or(choice.delta.as_ref().and_then(|d| d.content.as_deref()));
            let text = text.unwrap_or_default();
            self.text.push_str(text);
            *self.counts.entry(choice.index).or_default() += count_words(text);
        } else if let Some(usage) = event.usage {
            output.output_tokens = usage.completion_tokens;
            output.prompt_len = usage.prompt_tokens.unwrap_or(output.prompt_len);
        }
        Ok(())
    }
}

/// Tokens of a text by the offline tokenizer: a word each.
pub fn count_words(text: &str) -> u32 {
    u32::try_from(text.split_whitespace().count()).unwrap_or(u32::MAX)
}

/// CLOCK_MONOTONIC, which the export's `start_times` show.
fn monotonic_seconds() -> f64 {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    uptime.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

#[derive(Debug)]
struct ResponseHead {
    status: u16,
    reason: String,
    chunked: bool,
    length: Option<usize>,
    close: bool,
}

struct Reader<'a> {
    socket: &'a mut TcpStream,
    bytes: Vec<u8>,
    ended: bool,
}

impl Reader<'_> {
    /// More bytes; `false` at the end of the connection.
    async fn more(&mut self) -> Result<bool, String> {
        let n = self.socket.read_buf(&mut self.bytes).await;
        n.map(|n| n > 0).map_err(|e| format!("aiohttp.client_exceptions.ClientOSError: {e}"))
    }

    async fn need(&mut self, what: &str) -> Result<(), String> {
        if self.more().await? { Ok(()) } else { Err(format!("aiohttp.client_exceptions.{what}")) }
    }

    async fn head(&mut self) -> Result<ResponseHead, String> {
        let end = loop {
            if let Some(end) = self.bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break end;
            }
            self.need("ServerDisconnectedError: Server disconnected").await?;
        };
        let head: Vec<u8> = self.bytes.drain(..end + 4).collect();
        let text = String::from_utf8_lossy(&head);
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().splitn(3, ' ').skip(1);
        let status = words.next().and_then(|word| word.parse().ok()).ok_or("bad status line")?;
        let reason = words.next().unwrap_or_default().to_owned();
        let mut found = ResponseHead { status, reason, chunked: false, length: None, close: false };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            match (name.to_ascii_lowercase().as_str(), value.trim().to_ascii_lowercase().as_str()) {
                ("transfer-encoding", "chunked") => found.chunked = true,
                ("content-length", length) => found.length = length.parse().ok(),
                ("connection", "close") => found.close = true,
                _ => {}
            }
        }
        found.close |= !found.chunked && found.length.is_none();
        Ok(found)
    }

    /// The next piece of a body; `None` at its end. All chunks that have arrived are one piece.
    async fn piece(&mut self, head: &ResponseHead) -> Result<Option<Vec<u8>>, String> {
        let mut piece = Vec::new();
        while !self.ended {
            if !head.chunked {
                match head.length {
                    Some(length) if self.bytes.len() < length => {
                        self.need("ClientPayloadError: Response payload is not completed").await?;
                        continue;
                    }
                    Some(length) => piece.extend(self.bytes.drain(..length)),
                    None => {
                        while self.more().await? {}
                        piece.append(&mut self.bytes);
                    }
                }
                self.ended = true;
                break;
            }
            match take_chunk(&mut self.bytes)? {
                Chunk::Data(data) => piece.extend_from_slice(&data),
                Chunk::End => self.ended = true,
                Chunk::Partial if !piece.is_empty() => break,
                Chunk::Partial => {
                    self.need("ClientPayloadError: Response payload is not completed: TransferEncodingError").await?;
                }
            }
        }
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }

    async fn skip_body(&mut self, head: &ResponseHead) -> Result<(), String> {
        while self.piece(head).await?.is_some() {}
        Ok(())
    }
}

enum Chunk {
    Data(Vec<u8>),
    End,
    Partial,
}

fn take_chunk(bytes: &mut Vec<u8>) -> Result<Chunk, String> {
    let Some(line) = bytes.windows(2).position(|w| w == b"\r\n") else { return Ok(Chunk::Partial) };
    let size = std::str::from_utf8(&bytes[..line]).ok().and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
    let size = size.ok_or("aiohttp.http_exceptions.TransferEncodingError: bad chunk size")?;
    let end = line + 2 + size + 2;
    if bytes.len() < end {
        return Ok(Chunk::Partial);
    }
    let data = bytes[line + 2..line + 2 + size].to_vec();
    bytes.drain(..end);
    Ok(if size == 0 { Chunk::End } else { Chunk::Data(data) })
}

/// Splits a byte stream into messages at blank lines.
#[derive(Debug, Default)]
struct EventSplitter {
    rest: Vec<u8>,
}

impl EventSplitter {
    fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.rest.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some(end) = self.rest.windows(2).position(|w| w == b"\n\n") {
            let message: Vec<u8> = self.rest.drain(..end + 2).take(end).collect();
            if !message.is_empty() {
                messages.push(message);
            }
        }
        messages
    }
}

/// Longest a single request may take, as the real tool's default.
pub const REQUEST_LIMIT: Duration = Duration::from_hours(1);
