//! Server-sent events from bytes that may be cut anywhere. [`Strict`] follows the WHATWG rules; [`Lines`] is the
//! published client's line reader (spec `variadic-harness` B.4). Neither knows what an event's data mean.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// Largest event, or line, that is read; a server that sends more is not answering a benchmark.
pub const EVENT_MAX: usize = 32 * 1024 * 1024;
/// Room that a decoder keeps between events.
const KEEP: usize = 64 * 1024;

/// An event beyond [`EVENT_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {EVENT_MAX} bytes")]
pub struct TooLarge;

/// One dispatched event.
#[derive(Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its type; empty for the default, `message`.
    pub kind: &'a [u8],
    /// Its data lines, joined by line feeds. Not necessarily UTF-8.
    pub data: &'a [u8],
}

/// Incremental reader of an event stream by the WHATWG rules.
///
/// A stream's unfinished last event is dropped, as the rules say.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about the bytes before, not one state")]
pub struct Strict {
    line: Vec<u8>,
    data: Vec<u8>,
    kind: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    past_first_line: bool,
    dispatched: bool,
}

impl Strict {
    /// The next event that ends within `input`, which advances past it.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Event<'_>>, TooLarge> {
        if self.dispatched {
            self.dispatched = false;
            reset(&mut self.data);
            self.kind.clear();
        }
        loop {
            if self.after_cr && !input.is_empty() {
                self.after_cr = false;
                if input[0] == b'\n' {
                    *input = &input[1..];
                }
            }
            let Some(end) = memchr2(b'\n', b'\r', input) else {
                self.line.extend_from_slice(input);
                *input = &[];
                return if self.line.len() + self.data.len() > EVENT_MAX { Err(TooLarge) } else { Ok(None) };
            };
            let (head, rest) = input.split_at(end);
            self.after_cr = rest[0] == b'\r';
            *input = &rest[1..];
            let ends = if self.line.is_empty() {
                self.take_line(head)
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                let ends = self.take_line(&line);
                reset(&mut line);
                self.line = line;
                ends
            };
            if self.data.len() > EVENT_MAX {
                return Err(TooLarge);
            }
            if ends {
                self.dispatched = true;
                return Ok(Some(Event { kind: &self.kind, data: &self.data }));
            }
        }
    }

    /// Whether bytes of an event that never ended are left.
    pub fn unfinished(&self) -> bool {
        !self.line.is_empty() || self.has_data
    }

    /// Processes one line; true when it dispatches an event.
    fn take_line(&mut self, line: &[u8]) -> bool {
        let line = if self.past_first_line {
            line
        } else {
            self.past_first_line = true;
            line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line)
        };
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                return true;
            }
            self.kind.clear();
            return false;
        }
        let (field, value) = match memchr(b':', line) {
            None => (line, &[][..]),
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
        };
        // `id` and `retry` serve reconnection, which a benchmark never does; a comment has an empty name.
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.kind.clear();
                self.kind.extend_from_slice(value);
            }
            _ => {}
        }
        false
    }
}

/// The published client's reader: lines ended by LF alone, `data:` at the start after stripping, never joined.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    held: bool,
}

impl Lines {
    /// The payload of the next `data:` line that ends within `input`, which advances past it.
    pub fn next<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Result<Option<Cow<'s, str>>, TooLarge> {
        if std::mem::take(&mut self.held) {
            reset(&mut self.line);
        }
        loop {
            let Some(end) = memchr(b'\n', input) else {
                self.line.extend_from_slice(input);
                *input = &[];
                return if self.line.len() > EVENT_MAX { Err(TooLarge) } else { Ok(None) };
            };
            let (head, rest) = input.split_at(end);
            *input = &rest[1..];
            if self.line.is_empty() {
                if let Some(payload) = payload(head) {
                    return Ok(Some(payload));
                }
                continue;
            }
            self.line.extend_from_slice(head);
            if payload(&self.line).is_some() {
                self.held = true;
                return Ok(payload(&self.line));
            }
            reset(&mut self.line);
        }
    }

    /// The payload of a last line that the end of the stream cut off, which counts as a line.
    pub fn rest(&mut self) -> Option<Cow<'_, str>> {
        if std::mem::take(&mut self.held) {
            reset(&mut self.line);
        }
        payload(&self.line)
    }
}

fn payload(line: &[u8]) -> Option<Cow<'_, str>> {
    match String::from_utf8_lossy(line) {
        Cow::Borrowed(text) => data_of(text).map(Cow::Borrowed),
        Cow::Owned(text) => data_of(&text).map(|data| Cow::Owned(data.to_owned())),
    }
}

fn data_of(line: &str) -> Option<&str> {
    line.trim_matches(blank).strip_prefix("data:").map(|data| data.trim_matches(blank))
}

/// White space as the published client strips it: Unicode's, and the four ASCII separators.
fn blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Empties a buffer and gives back the room of an unusually large event.
fn reset(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > KEEP {
        buffer.shrink_to(KEEP);
    }
}
