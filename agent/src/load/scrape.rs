//! The counters of speculative decoding around the measured phase (spec `variadic-harness` B.7). A failed scrape never
//! looks like an empty one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::load::http::{AtEof, Decoder, Part};
use crate::load::plan::Target;

/// For the whole exchange.
const LIMIT: Duration = Duration::from_secs(10);
/// Largest page that is read, bytes.
const PAGE_MAX: usize = 16 * 1024 * 1024;

/// What `/metrics` said.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Scrape {
    /// The counters of speculative decoding; none is an answer too.
    Available {
        /// Always true.
        available: True,
        /// By name and label set.
        counters: Map<String, Value>,
    },
    /// Nothing to be had.
    Unavailable {
        /// Always false.
        available: False,
        /// Why.
        error: String,
    },
}

/// Writes `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct True;
/// Writes `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct False;

impl Serialize for True {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bool(true)
    }
}

impl Serialize for False {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bool(false)
    }
}

/// Asks once.
pub fn scrape(target: &Target) -> Scrape {
    match page(target) {
        Ok(text) => Scrape::Available { available: True, counters: counters(&text) },
        Err(error) => Scrape::Unavailable { available: False, error },
    }
}

fn page(target: &Target) -> Result<String, String> {
    let deadline = Instant::now() + LIMIT;
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(format!("timed out after {LIMIT:?}")) } else { Ok(left) }
    };
    let text = |error: std::io::Error| error.to_string();
    let mut connection = Err("no address".to_owned());
    for address in &target.addresses {
        connection = TcpStream::connect_timeout(address, left()?).map_err(text);
        if connection.is_ok() {
            break;
        }
    }
    let mut stream = connection?;
    stream.set_write_timeout(Some(left()?)).map_err(text)?;
    let request = format!(
        "GET {}/metrics HTTP/1.1\r\nHost: {}\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n",
        target.base_path, target.host_header
    );
    stream.write_all(request.as_bytes()).map_err(text)?;
    let (mut decoder, mut body, mut status) = (Decoder::default(), Vec::new(), 0);
    let mut buffer = vec![0; 64 * 1024];
    while !decoder.ended() {
        stream.set_read_timeout(Some(left()?)).map_err(text)?;
        let count = stream.read(&mut buffer).map_err(text)?;
        if count == 0 {
            match decoder.at_eof() {
                AtEof::Complete => break,
                cut @ (AtEof::Nothing | AtEof::InHead | AtEof::ShortLength | AtEof::ShortChunks) => {
                    return Err(format!("the answer was cut ({cut:?})"));
                }
            }
        }
        let mut input = &buffer[..count];
        while let Some(part) = decoder.next(&mut input).map_err(|e| e.to_string())? {
            match part {
                Part::Head(head) => status = head.status,
                Part::Body(bytes) => body.extend_from_slice(bytes),
                Part::End => {}
            }
        }
        if body.len() > PAGE_MAX {
            return Err(format!("the page is larger than {PAGE_MAX} bytes"));
        }
    }
    if !(200..300).contains(&status) {
        return Err(format!("HTTP {status}"));
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

fn counters(page: &str) -> Map<String, Value> {
    let lines = page.lines().filter(|line| !line.starts_with('#') && line.contains("spec_decode"));
    let pairs = lines.filter_map(|line| {
        let (key, value) = line.rsplit_once(' ')?;
        let number = serde_json::Number::from_f64(value.trim().parse().ok()?)?;
        Some((key.trim().to_owned(), Value::Number(number)))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_readable_counters_of_speculation() {
        let page = "# HELP vllm:spec_decode_x y\nvllm:spec_decode_a{m=\"b c\"} 1.5e3\nvllm:other 4\n\
                    vllm:spec_decode_b\nvllm:spec_decode_c x\nvllm:spec_decode_d 40\n";
        let found = serde_json::to_string(&counters(page)).unwrap();
        assert_eq!(found, r#"{"vllm:spec_decode_a{m=\"b c\"}":1500.0,"vllm:spec_decode_d":40.0}"#);
    }
}
