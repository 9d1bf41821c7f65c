//! HTTP to the server: literal loopback, one connection per question, no proxy, no redirect, no name, a
//! limit on every wait (failure scenarios FS-44 to FS-47).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use proto::limits::SamplingBackend;
use tokio::net::TcpStream;

/// Largest answer that is read, bytes.
const BODY_MAX: usize = 4 << 20;

/// Why a question got no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// Not reached, cut off, or not HTTP.
    Connection(String),
    /// Nothing within the limit.
    TimedOut(Duration),
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connection(error) => f.write_str(error),
            Self::TimedOut(limit) => write!(f, "no answer within {:.1} s", limit.as_secs_f64()),
        }
    }
}

fn broken(error: &dyn std::error::Error) -> NoAnswer {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    NoAnswer::Connection(text)
}

/// Sends one request on a connection of its own.
async fn send(port: u16, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, NoAnswer> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect(address).await.map_err(|e: io::Error| broken(&e))?;
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| broken(&e))?;
    // Ends by itself when the response has been read or dropped.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|e| broken(&e))
}

fn request(method: Method, port: u16, path: &str, body: Bytes) -> Option<Request<Full<Bytes>>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", format!("127.0.0.1:{port}"))
        .header("connection", "close")
        .header("content-type", "application/json")
        .body(Full::new(body))
        .ok()
}

async fn limited<T>(limit: Duration, work: impl Future<Output = Result<T, NoAnswer>>) -> Result<T, NoAnswer> {
    tokio::time::timeout(limit, work).await.unwrap_or(Err(NoAnswer::TimedOut(limit)))
}

async fn get(port: u16, path: &str) -> Result<Response<Incoming>, NoAnswer> {
    let request = request(Method::GET, port, path, Bytes::new())
        .ok_or_else(|| NoAnswer::Connection("the request cannot be written".into()))?;
    send(port, request).await
}

/// Asks a health endpoint: only the head counts.
pub(super) async fn health(port: u16, path: &str, limit: Duration) -> Result<StatusCode, NoAnswer> {
    limited(limit, async { get(port, path).await.map(|response| response.status()) }).await
}

/// What the engine says about its sampling backend (contract B.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadBack {
    /// Exactly what was asked for.
    Same,
    /// Argmax decoding: nothing is sampled.
    Greedy,
    /// Another backend.
    Other(String),
    /// No usable answer; says why.
    Unverified(String),
}

/// Asks `/get_server_info` once.
pub(super) async fn read_back(port: u16, expected: SamplingBackend, limit: Duration) -> ReadBack {
    let asked = limited(limit, async {
        let response = get(port, "/get_server_info").await?;
        let status = response.status();
        let body = collect(response.into_body()).await?;
        Ok((status, body))
    });
    match asked.await {
        Err(error) => ReadBack::Unverified(format!("/get_server_info: {error}")),
        Ok((StatusCode::OK, body)) => judge_info(&body, expected),
        Ok((status, _)) => ReadBack::Unverified(format!("/get_server_info answered {status}")),
    }
}

async fn collect(mut body: Incoming) -> Result<Vec<u8>, NoAnswer> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| broken(&e))?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > BODY_MAX {
                return Err(NoAnswer::Connection(format!("the answer is longer than {BODY_MAX} bytes")));
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

/// The key at the top level, else under `server_args`; compared exactly.
fn judge_info(body: &[u8], expected: SamplingBackend) -> ReadBack {
    const KEY: &str = "sampling_backend";
    let unverified = |why: String| ReadBack::Unverified(format!("/get_server_info {why}"));
    let value: serde_json::Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(error) => return unverified(format!("is not JSON ({error})")),
    };
    let Some(object) = value.as_object() else { return unverified("is not a JSON object".into()) };
    let found = object.get(KEY).or_else(|| object.get("server_args").and_then(|args| args.get(KEY)));
    match found {
        None => unverified(format!("has no {KEY}, neither at the top level nor under server_args")),
        Some(serde_json::Value::String(name)) if name == expected.as_str() => ReadBack::Same,
        Some(serde_json::Value::String(name)) if name == "greedy" => ReadBack::Greedy,
        Some(serde_json::Value::String(name)) => ReadBack::Other(name.chars().take(100).collect()),
        Some(other) => unverified(format!("has {KEY}={other}, which is not a string")),
    }
}

/// One try of the generate probe (design section 3a).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstToken {
    /// A token was streamed; milliseconds since the request was sent.
    Seen(u64),
    /// Worth another try: a connection error or a 5xx.
    Again(String),
    /// An answer that no retry will change.
    Refused(String),
}

/// Streams one completion of one token and waits for it. The caller bounds the wait.
pub(super) async fn first_token(port: u16, model: &str) -> FirstToken {
    let body = serde_json::json!({ "model": model, "prompt": "Hello", "max_tokens": 1, "stream": true });
    let Some(request) = request(Method::POST, port, "/v1/completions", body.to_string().into()) else {
        return FirstToken::Refused("the request cannot be written".into());
    };
    let sent = std::time::Instant::now();
    let response = match send(port, request).await {
        Ok(response) => response,
        Err(error) => return FirstToken::Again(error.to_string()),
    };
    let status = response.status();
    let mut body = response.into_body();
    if status.is_server_error() {
        return FirstToken::Again(format!("/v1/completions answered {status}"));
    }
    if status != StatusCode::OK {
        let text = collect(body).await.unwrap_or_default();
        let text: String = String::from_utf8_lossy(&text).chars().take(200).collect();
        return FirstToken::Refused(format!("/v1/completions answered {status}: {text}"));
    }
    let mut lines = crate::events::LineSplitter::new(BODY_MAX);
    let mut seen = false;
    while let Some(frame) = body.frame().await {
        match frame {
            Err(error) => return FirstToken::Again(broken(&error).to_string()),
            Ok(frame) => {
                if let Some(data) = frame.data_ref() {
                    lines.push(data, |line| seen |= is_token(line));
                }
            }
        }
        if seen {
            return FirstToken::Seen(u64::try_from(sent.elapsed().as_millis()).unwrap_or(u64::MAX));
        }
    }
    FirstToken::Refused("the stream of /v1/completions ended without a token".into())
}

/// Whether a line of the stream is an event that carries a choice. Its text may be empty: a token can be half
/// a character.
fn is_token(line: &[u8]) -> bool {
    let Some(data) = line.strip_prefix(b"data:") else { return false };
    let Ok(event) = serde_json::from_slice::<serde_json::Value>(data.trim_ascii()) else { return false };
    event.get("error").is_none()
        && event.get("choices").and_then(serde_json::Value::as_array).is_some_and(|choices| !choices.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_back_rows_107_to_113() {
        let judge = |body: &str| judge_info(body.as_bytes(), SamplingBackend::Triton);
        assert_eq!(judge(r#"{"sampling_backend": "triton"}"#), ReadBack::Same);
        assert_eq!(judge(r#"{"server_args": {"sampling_backend": "triton"}}"#), ReadBack::Same);
        assert_eq!(judge(r#"{"sampling_backend": "greedy"}"#), ReadBack::Greedy);
        for other in ["triton_full", "Triton", "triton "] {
            let body = format!(r#"{{"sampling_backend": "{other}"}}"#);
            assert_eq!(judge(&body), ReadBack::Other(other.into()));
        }
        let full = judge_info(br#"{"sampling_backend": "triton"}"#, SamplingBackend::TritonFull);
        assert_eq!(full, ReadBack::Other("triton".into()));
        for bad in ["not json", "[]", "{}", r#"{"sampling_backend": null}"#, r#"{"server_args": []}"#, "\u{feff}{}", ""]
        {
            assert!(matches!(judge(bad), ReadBack::Unverified(_)), "{bad}");
        }
        // The top level decides where both are there.
        let both = r#"{"sampling_backend": "greedy", "server_args": {"sampling_backend": "triton"}}"#;
        assert_eq!(judge(both), ReadBack::Greedy);
    }

    #[test]
    fn tokens_in_a_stream() {
        for token in [r#"data: {"choices":[{"text":"a"}]}"#, r#"data:{"choices":[{"text":""}]}"#] {
            assert!(is_token(token.as_bytes()), "{token}");
        }
        for none in ["data: [DONE]", r#"data: {"choices":[]}"#, r#"data: {"error":{},"choices":[1]}"#, ": ping", "x"] {
            assert!(!is_token(none.as_bytes()), "{none}");
        }
    }

    /// FS-47.
    #[tokio::test]
    async fn only_the_asked_server_counts() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            for head in ["302 Found\r\nlocation: /ok", "204 No Content", "200 OK"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await.unwrap();
                let answer = format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            // Accepts, reads, never answers.
            let (stream, _) = listener.accept().await.unwrap();
            tokio::time::sleep(Duration::from_mins(1)).await;
            drop(stream);
        });
        let ask = |limit| health(port, "/health", limit);
        let long = Duration::from_secs(20);
        assert_eq!(ask(long).await.unwrap(), StatusCode::FOUND);
        assert_eq!(ask(long).await.unwrap(), StatusCode::NO_CONTENT);
        assert_eq!(ask(long).await.unwrap(), StatusCode::OK);
        assert!(matches!(ask(Duration::from_millis(100)).await, Err(NoAnswer::TimedOut(_))));
        server.abort();
    }
}
