//! The asking half: request bytes from a template that is made once per leg. The body is serialised as the published
//! client does it (spec `variadic-harness` B.3): blanks after separators, ASCII only.

use std::io;

use serde::Serialize as _;
use serde_json::ser::Formatter;
use serde_json::{Map, Value, json};

use crate::load::plan::{Ask, Endpoint, Profile, Target};

/// Stand for what differs from request to request; NUL cannot come from a command line.
const PROMPT: &str = "\0prompt";
const MAX_TOKENS: &str = "\0max_tokens";

#[derive(Debug, Clone)]
enum Piece {
    Fixed(Vec<u8>),
    Prompt,
    MaxTokens,
}

/// Everything about the requests of a leg that is the same in each.
#[derive(Debug, Clone)]
pub struct Template {
    head: Vec<u8>,
    body: Vec<Piece>,
    max_tokens: u64,
    request_id_prefix: Option<String>,
}

impl Template {
    /// Prepares the requests of a leg.
    pub fn new(target: &Target, ask: &Ask, profile: Profile) -> Self {
        let mut head = format!(
            "POST {}{} HTTP/1.1\r\nHost: {}\r\nAccept-Encoding: identity\r\nContent-Type: application/json\r\n\
             User-Agent: ts-bench/{}\r\n",
            target.base_path,
            ask.endpoint.path(),
            target.host_header,
            env!("CARGO_PKG_VERSION"),
        );
        if profile == Profile::Variadic {
            head.push_str("Connection: close\r\n");
        }
        for (name, value) in &ask.headers {
            head.extend([name.as_str(), ": ", value, "\r\n"]);
        }
        Self {
            head: head.into_bytes(),
            request_id_prefix: ask.request_id_prefix.clone(),
            body: split(&ascii_json(&Value::Object(body(ask)))),
            max_tokens: ask.max_tokens,
        }
    }

    /// The bytes of one request; `index` is that of a measured request, which alone has an `x-request-id`.
    pub fn render(&self, prompt: &str, max_tokens: Option<u64>, index: Option<usize>) -> Vec<u8> {
        let mut body = Vec::with_capacity(prompt.len() + 512);
        for piece in &self.body {
            match piece {
                Piece::Fixed(bytes) => body.extend_from_slice(bytes),
                Piece::Prompt => body.extend_from_slice(&ascii_json(&Value::String(prompt.to_owned()))),
                Piece::MaxTokens => {
                    body.extend_from_slice(max_tokens.unwrap_or(self.max_tokens).to_string().as_bytes());
                }
            }
        }
        let mut request = Vec::with_capacity(self.head.len() + body.len() + 128);
        request.extend_from_slice(&self.head);
        if let (Some(prefix), Some(index)) = (&self.request_id_prefix, index) {
            request.extend_from_slice(format!("x-request-id: {prefix}{index}\r\n").as_bytes());
        }
        request.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        request.extend_from_slice(&body);
        request
    }
}

fn body(ask: &Ask) -> Map<String, Value> {
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| {
        body.insert(key.to_owned(), value);
    };
    put("model", json!(ask.model));
    match ask.endpoint {
        Endpoint::Chat => put("messages", json!([{"role": "user", "content": PROMPT}])),
        Endpoint::Completions => put("prompt", json!(PROMPT)),
    }
    put("max_tokens", json!(MAX_TOKENS));
    if let Some(sampling) = &ask.sampling {
        put("temperature", json!(sampling.temperature));
        put("top_p", json!(sampling.top_p));
        put("top_k", json!(sampling.top_k));
    }
    put("stream", json!(true));
    put("stream_options", json!({"include_usage": true}));
    if let Some(sampling) = &ask.sampling {
        put("seed", json!(sampling.seed));
    }
    if ask.ignore_eos {
        put("ignore_eos", json!(true));
    }
    for (key, value) in &ask.extra_body {
        body.insert(key.clone(), value.clone());
    }
    body
}

fn split(json: &[u8]) -> Vec<Piece> {
    let mut pieces = vec![Piece::Fixed(json.to_vec())];
    for (mark, make) in [(PROMPT, Piece::Prompt), (MAX_TOKENS, Piece::MaxTokens)] {
        let mark = ascii_json(&Value::String(mark.to_owned()));
        pieces = pieces
            .into_iter()
            .flat_map(|piece| match piece {
                Piece::Fixed(bytes) => match memchr::memmem::find(&bytes, &mark) {
                    Some(at) => vec![
                        Piece::Fixed(bytes[..at].to_vec()),
                        make.clone(),
                        Piece::Fixed(bytes[at + mark.len()..].to_vec()),
                    ],
                    None => vec![Piece::Fixed(bytes)],
                },
                other @ (Piece::Prompt | Piece::MaxTokens) => vec![other],
            })
            .collect();
    }
    pieces
}

/// JSON with `", "` and `": "`, every character outside 0x20..0x7E escaped.
pub fn ascii_json(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = serde_json::Serializer::with_formatter(&mut bytes, Ascii);
    // Writing a value into memory cannot fail: no map has keys that are not strings.
    let _ = value.serialize(&mut out);
    bytes
}

struct Ascii;

impl Formatter for Ascii {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let mut plain = 0;
        for (at, c) in fragment.char_indices().filter(|(_, c)| !(' '..='~').contains(c)) {
            out.write_all(&fragment.as_bytes()[plain..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            plain = at + c.len_utf8();
        }
        out.write_all(&fragment.as_bytes()[plain..])
    }
}
