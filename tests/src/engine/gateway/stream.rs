//! One generation request: what was asked, and its events rendered step by step.

use crate::engine::script::{Engine, RequestFault, Usage};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::Instant;

/// Choices that one request may ask for.
const MOST_CHOICES: u32 = 128;

/// The body of `/v1/completions` and `/v1/chat/completions`, as far as it matters.
#[derive(Debug, Deserialize)]
pub struct Body {
    /// The model's name.
    pub model: Option<String>,
    prompt: Option<Value>,
    messages: Option<Vec<Message>>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    n: Option<u32>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    ignore_eos: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    content: Value,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// Prompt tokens: a word is a token, and so is a number in a list.
fn count_tokens(value: &Value) -> u32 {
    let count = match value {
        Value::String(text) => text.split_whitespace().count(),
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::Number(_) => 1,
                Value::Object(part) => part.get("text").map_or(0, |text| count_tokens(text) as usize),
                Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) => count_tokens(item) as usize,
            })
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => 0,
    };
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A running request.
#[expect(clippy::struct_excessive_bools, reason = "three of them are what the client asked for")]
#[derive(Debug)]
pub struct Stream {
    /// When it was completely read.
    pub arrived: Instant,
    /// When its last token was written.
    pub last: Option<Instant>,
    id: u64,
    chat: bool,
    streaming: bool,
    include_usage: bool,
    prompt_tokens: u32,
    lens: Vec<u32>,
    asked: u32,
    position: u32,
    fault: Option<RequestFault>,
    stalled: bool,
    /// JSON up to the choice, the same for every event.
    head: String,
    texts: Vec<String>,
}

/// What follows a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// More to come.
    More,
    /// The response is complete.
    Done,
    /// Close the connection right after these bytes.
    Cut,
}

/// A request that is refused with 400.
#[derive(Debug)]
pub struct Refused(pub String);

impl Stream {
    /// Plans a request: how long each choice becomes and where it fails.
    pub fn new(
        id: u64,
        body: &Body,
        chat: bool,
        engine: &Engine,
        eos_turn: &mut usize,
        fault: Option<RequestFault>,
        model: &str,
    ) -> Result<Self, Refused> {
        let n = body.n.unwrap_or(1);
        let asked = body.max_tokens.or(body.max_completion_tokens).unwrap_or(16);
        if !(1..=MOST_CHOICES).contains(&n) || asked == 0 {
            return Err(Refused(format!("n must be 1 to {MOST_CHOICES} and max_tokens at least 1")));
        }
        let prompt_tokens = match (chat, &body.prompt, &body.messages) {
            (false, Some(prompt), _) => count_tokens(prompt),
            (true, _, Some(messages)) => messages.iter().map(|m| count_tokens(&m.content)).sum(),
            (false, None, _) => return Err(Refused("prompt is required".into())),
            (true, _, None) => return Err(Refused("messages is required".into())),
        };
        let mut lens = vec![asked; n as usize];
        if fault == Some(RequestFault::Short) {
            lens.fill((asked / 2).max(1));
        } else if !body.ignore_eos.unwrap_or(false) && !engine.eos_lens.is_empty() {
            for len in &mut lens {
                *len = asked.min(engine.eos_lens[*eos_turn % engine.eos_lens.len()]);
                *eos_turn += 1;
            }
        }
        let object = if chat { "chat.completion.chunk" } else { "text_completion" };
        let prefix = if chat { "chatcmpl" } else { "cmpl" };
        let name = serde_json::to_string(model).unwrap_or_default();
        let head =
            format!(r#"{{"id":"{prefix}-{id}","object":"{object}","created":1795988981,"model":{name},"choices":["#);
        Ok(Self {
            arrived: Instant::now(),
            last: None,
            id,
            chat,
            streaming: body.stream,
            include_usage: body.stream_options.as_ref().is_some_and(|o| o.include_usage),
            prompt_tokens,
            texts: vec![String::new(); lens.len()],
            lens,
            asked,
            position: 0,
            fault,
            stalled: false,
            head,
        })
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Bytes that go out as soon as the request is accepted.
    pub fn opening(&self) -> &'static [u8] {
        if self.streaming {
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
        } else {
            b""
        }
    }

    /// Renders one step: a chunk for every choice that is not complete. Returns the tokens in it, and what follows.
    pub fn step(&mut self, engine: &Engine, out: &mut Vec<u8>) -> (u32, After) {
        if self.stalled {
            return (0, After::More);
        }
        if self.fault == Some(RequestFault::ErrorFirst) {
            error_event(out);
            finish(out, true);
            return (0, After::Done);
        }
        let longest = self.lens.iter().copied().max().unwrap_or(0);
        let upto = self.position.saturating_add(engine.tokens_per_chunk).min(longest);
        let last_step = upto == longest;
        let mut tokens = 0;
        for choice in 0..self.lens.len() {
            let len = self.lens[choice];
            if self.position >= len {
                continue;
            }
            let end = upto.min(len);
            tokens += end - self.position;
            let ends = end == len;
            let beside = ends && last_step && engine.usage == Usage::WithLast;
            self.token_event(choice, end, ends && !engine.finish_event, beside, out);
            if ends && engine.finish_event {
                self.event(choice, "", true, false, out);
            }
        }
        self.position = upto;
        if upto >= longest / 2 {
            match self.fault {
                Some(RequestFault::Cut) => return (tokens, After::Cut),
                Some(RequestFault::Eof) => {
                    finish(out, false);
                    return (tokens, After::Done);
                }
                Some(RequestFault::ErrorLate) => {
                    error_event(out);
                    finish(out, true);
                    return (tokens, After::Done);
                }
                Some(RequestFault::Stall) => {
                    self.stalled = true;
                    return (tokens, After::More);
                }
                Some(
                    RequestFault::Status(_)
                    | RequestFault::ErrorFirst
                    | RequestFault::Short
                    | RequestFault::NoUsage
                    | RequestFault::Close,
                )
                | None => {}
            }
        }
        if !last_step {
            return (tokens, After::More);
        }
        if self.streaming {
            if self.include_usage && engine.usage == Usage::OwnEvent && self.fault != Some(RequestFault::NoUsage) {
                let text = format!("{}],\"usage\":{}}}", self.head, self.usage());
                chunk(out, &[b"data: ", text.as_bytes(), b"\n\n"]);
            }
            finish(out, true);
        } else {
            self.whole_answer(engine, out);
        }
        (tokens, After::Done)
    }

    fn usage(&self) -> Value {
        let completion: u32 = self.lens.iter().sum();
        json!({"prompt_tokens": self.prompt_tokens, "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion})
    }

    fn token_event(&mut self, choice: usize, end: u32, ends: bool, usage: bool, out: &mut Vec<u8>) {
        let mut text = String::with_capacity(8);
        for position in self.position..end {
            text.push_str(&word(self.id + choice as u64 * 31, position));
        }
        if self.streaming {
            if self.chat && self.position == 0 {
                let role = format!(
                    r#"{}{{"index":{choice},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}]}}"#,
                    self.head
                );
                chunk(out, &[b"data: ", role.as_bytes(), b"\n\n"]);
            }
            self.event(choice, &text, ends, usage, out);
        } else {
            self.texts[choice].push_str(&text);
        }
    }

    fn event(&self, choice: usize, text: &str, ends: bool, usage: bool, out: &mut Vec<u8>) {
        if !self.streaming {
            return;
        }
        let mut event = String::with_capacity(self.head.len() + 120);
        event.push_str(&self.head);
        let (open, close) = if self.chat { (r#""delta":{"content":""#, r#""}"#) } else { (r#""text":""#, r#"""#) };
        let reason = match (ends, self.lens[choice] < self.asked) {
            (false, _) => "null",
            (true, true) => r#""stop""#,
            (true, false) => r#""length""#,
        };
        let parts = [r#"{"index":"#, &choice.to_string(), ",", open, text, close];
        event.extend(parts);
        event.push_str(r#","logprobs":null,"finish_reason":"#);
        event.push_str(reason);
        event.push_str("}]");
        if usage {
            event.push_str(",\"usage\":");
            event.push_str(&self.usage().to_string());
        }
        event.push('}');
        chunk(out, &[b"data: ", event.as_bytes(), b"\n\n"]);
    }

    fn whole_answer(&self, engine: &Engine, out: &mut Vec<u8>) {
        let choices: Vec<Value> = self
            .texts
            .iter()
            .zip(&self.lens)
            .enumerate()
            .map(|(index, (text, len))| {
                let reason = if *len < self.asked { "stop" } else { "length" };
                if self.chat {
                    json!({"index": index, "message": {"role": "assistant", "content": text},
                        "logprobs": null, "finish_reason": reason})
                } else {
                    json!({"index": index, "text": text, "logprobs": null, "finish_reason": reason})
                }
            })
            .collect();
        let object = if self.chat { "chat.completion" } else { "text_completion" };
        let mut document =
            json!({"id": format!("cmpl-{}", self.id), "object": object, "created": 1_795_988_981, "choices": choices});
        if engine.usage != Usage::None && self.fault != Some(RequestFault::NoUsage) {
            document["usage"] = self.usage();
        }
        out.extend_from_slice(&crate::engine::http::json(200, &document, false));
    }
}

/// Words of the offline tokenizer (`w0000` to `w4092`), one token each.
pub fn word(stream: u64, position: u32) -> String {
    let number = (stream.wrapping_mul(2_654_435_761).wrapping_add(u64::from(position) * 40_503)) % 4093;
    format!("w{number:04} ")
}

fn chunk(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let _ = write!(out, "{length:x}\r\n");
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\r\n");
}

fn error_event(out: &mut Vec<u8>) {
    chunk(out, &[b"data: {\"error\": {\"message\": \"engine died\", \"type\": \"server_error\", \"code\": 500}}\n\n"]);
}

fn finish(out: &mut Vec<u8>, done: bool) {
    if done {
        chunk(out, &[b"data: [DONE]\n\n"]);
    }
    out.extend_from_slice(b"0\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(body: &str, engine: &Engine, fault: Option<RequestFault>) -> (String, u32, After) {
        let body: Body = serde_json::from_str(body).expect("body");
        let chat = body.messages.is_some();
        let mut stream = Stream::new(7, &body, chat, engine, &mut 0, fault, "m").expect("stream");
        let (mut out, mut tokens) = (Vec::new(), 0);
        for _ in 0..1000 {
            let (n, after) = stream.step(engine, &mut out);
            tokens += n;
            if after != After::More {
                return (String::from_utf8(out).expect("text"), tokens, after);
            }
        }
        (String::from_utf8(out).expect("text"), tokens, After::More)
    }

    const ASK: &str =
        r#"{"prompt":"a b c","max_tokens":8,"n":2,"stream":true,"stream_options":{"include_usage":true}}"#;

    #[test]
    fn choices_interleave_and_usage_sums_over_them() {
        let (text, tokens, after) = run(ASK, &Engine::default(), None);
        assert_eq!((tokens, after), (16, After::Done));
        let order: Vec<&str> = text.split("\"index\":").skip(1).map(|rest| &rest[..1]).collect();
        assert_eq!(order.len(), 16);
        assert!(order.chunks(2).all(|pair| pair == ["0", "1"]), "{order:?}");
        assert!(text.contains(r#""choices":[],"usage":{"prompt_tokens":3,"completion_tokens":16,"total_tokens":19}"#));
        assert!(text.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{text}");
    }

    #[test]
    fn eos_ends_each_choice_on_its_own() {
        let engine = Engine { eos_lens: vec![3, 5], ..Engine::default() };
        let (text, tokens, _) = run(ASK, &engine, None);
        assert_eq!((tokens, text.matches("\"stop\"").count()), (8, 2));
        let forced = ASK.replace("\"n\":2", "\"n\":2,\"ignore_eos\":true");
        assert_eq!(run(&forced, &engine, None).1, 16);
    }

    #[test]
    fn faults_half_way() {
        let engine = Engine { tokens_per_chunk: 2, ..Engine::default() };
        for (fault, tokens, after, terminated, done) in [
            (RequestFault::Cut, 8, After::Cut, false, false),
            (RequestFault::Eof, 8, After::Done, true, false),
            (RequestFault::ErrorLate, 8, After::Done, true, true),
            (RequestFault::ErrorFirst, 0, After::Done, true, true),
            (RequestFault::Short, 8, After::Done, true, true),
            (RequestFault::NoUsage, 16, After::Done, true, true),
            (RequestFault::Stall, 8, After::More, false, false),
        ] {
            let (text, seen, then) = run(ASK, &engine, Some(fault));
            assert_eq!((seen, then), (tokens, after), "{fault:?}");
            assert_eq!(text.ends_with("0\r\n\r\n"), terminated, "{fault:?}");
            assert_eq!(text.contains("[DONE]"), done, "{fault:?}");
            assert_eq!(text.contains("usage"), fault == RequestFault::Short, "{fault:?}");
        }
    }

    #[test]
    fn chat_begins_with_a_role() {
        let body = r#"{"messages":[{"role":"user","content":"a b"}],"max_tokens":1,"stream":true}"#;
        let (text, tokens, _) = run(body, &Engine::default(), None);
        assert_eq!(tokens, 1);
        let role = text.find(r#""delta":{"role":"assistant","content":""}"#).expect("role");
        assert!(role < text.find(r#""delta":{"content":"w"#).expect("content"));
    }
}
