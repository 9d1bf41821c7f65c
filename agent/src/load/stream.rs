//! One answer, from bytes and stamps to a timeline and a verdict. Pure: no socket, no clock. Both profiles live
//! here, because they differ only in how lines become events and in what ends a stream.

use std::borrow::Cow;

use crate::load::chunk::{self, Facts, NoChunk, Pieces};
use crate::load::clock::Stamp;
use crate::load::http::{AtEof, Decoder, Head, HttpError, Part};
use crate::load::outcome::{Class, Failure};
use crate::load::plan::Profile;
use crate::load::sse;

/// Bytes of an error response that are kept for the record.
const ERROR_BODY_MAX: usize = 2048;

/// What an answer showed, and when.
#[derive(Debug, Default)]
pub struct Timeline {
    /// First byte of the response.
    pub first_byte: Option<Stamp>,
    /// First event, of whatever content.
    pub first_event: Option<Stamp>,
    /// First piece of text.
    pub first_piece: Option<Stamp>,
    /// Last piece of text.
    pub last_piece: Option<Stamp>,
    /// First event with choices, which the engine's own bench tool takes for the first token.
    pub first_choice: Option<Stamp>,
    /// Last event with choices.
    pub last_choice: Option<Stamp>,
    /// Gaps between successive pieces, nanoseconds.
    pub gaps: Vec<u64>,
    /// Pieces.
    pub chunks: u64,
    /// Code points of the first piece.
    pub first_chars: u64,
    /// Code points of all pieces.
    pub total_chars: u64,
    /// The last full `usage` object, as sent.
    pub usage: Option<String>,
    /// `[DONE]`.
    pub done: Option<Stamp>,
    /// Some choice named its finish reason.
    pub finished: bool,
    /// Data events that were not JSON and were passed over.
    pub skipped: u64,
    /// The generated text, where it is wanted.
    pub text: Option<String>,
}

/// The answer is over for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over {
    /// The connection stands at a clean boundary and the server keeps it open.
    pub reusable: bool,
}

#[derive(Debug)]
enum Events {
    Strict(sse::Strict),
    Published(sse::Lines),
}

/// The reader of one answer.
#[derive(Debug)]
pub struct Reading {
    http: Decoder,
    events: Events,
    keep_alive: bool,
    error_body: Option<Vec<u8>>,
    failure: Option<Failure>,
    body_complete: bool,
    seen: Timeline,
}

impl Reading {
    /// A reader for the next answer on a connection; `keep_text` also collects what was generated.
    pub fn new(profile: Profile, keep_text: bool) -> Self {
        Self {
            http: Decoder::default(),
            events: match profile {
                Profile::Strict => Events::Strict(sse::Strict::default()),
                Profile::Variadic => Events::Published(sse::Lines::default()),
            },
            keep_alive: false,
            error_body: None,
            failure: None,
            body_complete: false,
            seen: Timeline { text: keep_text.then(String::new), ..Timeline::default() },
        }
    }

    /// Takes bytes that arrived at one moment. `Some`: nothing more is wanted.
    pub fn feed(&mut self, input: &[u8], at: Stamp) -> Option<Over> {
        if !input.is_empty() {
            self.seen.first_byte.get_or_insert(at);
        }
        let mut rest = input;
        loop {
            match self.http.next(&mut rest) {
                Ok(None) => return None,
                Ok(Some(Part::Head(head))) => self.head(head),
                Ok(Some(Part::Body(body))) => self.body(body, at),
                Ok(Some(Part::End)) => {
                    self.body_complete = true;
                    self.last_line(at);
                    let reusable = self.keep_alive && rest.is_empty() && self.failure_keeps_connection();
                    return Some(Over { reusable });
                }
                Err(error) => self.fail_http(&error),
            }
            if self.over_early() {
                return Some(Over { reusable: false });
            }
        }
    }

    /// The connection ended.
    pub fn eof(&mut self, at: Stamp, reused: bool) {
        self.last_line(at);
        let cut = match self.http.at_eof() {
            AtEof::Complete => {
                self.body_complete = true;
                return;
            }
            // The published client takes a body cut below its content length for a whole one (B.4).
            AtEof::ShortLength if matches!(self.events, Events::Published(_)) => {
                self.body_complete = true;
                return;
            }
            AtEof::Nothing if reused => {
                let detail = "the kept connection was closed before the first byte of an answer";
                self.fail(Failure::new(Class::StaleConnection, detail));
                return;
            }
            AtEof::Nothing => "the connection was closed before the first byte of an answer",
            AtEof::InHead => "the connection was closed inside the response head",
            AtEof::ShortLength => "the body is shorter than its content length",
            AtEof::ShortChunks => "the chunked body was cut",
        };
        // Whatever is lost after [DONE] is not part of the answer.
        if self.seen.done.is_none() && self.error_body.is_none() {
            self.fail(Failure::new(Class::Truncated, cut));
        }
    }

    /// Something outside the bytes ended the request; the first failure stands.
    pub fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// `[DONE]` has come, and only the end of the body is missing.
    pub fn only_end_missing(&self) -> bool {
        self.seen.done.is_some()
    }

    /// What was seen, and how it ended.
    pub fn finish(mut self) -> (Timeline, Result<(), Failure>) {
        if let Some(body) = self.error_body.take()
            && let Some(failure) = &mut self.failure
        {
            let text = String::from_utf8_lossy(&body);
            if !text.trim().is_empty() {
                failure.detail = format!("{}: {}", failure.detail, text.trim());
            }
        }
        let verdict = match self.failure {
            Some(failure) => Err(failure),
            None if matches!(self.events, Events::Strict(_)) && !self.ended_properly() => {
                Err(Failure::new(Class::Truncated, "the stream ended without [DONE] and without a finish reason"))
            }
            None if self.seen.chunks == 0 => Err(Failure::new(Class::Empty, "empty completion")),
            None => Ok(()),
        };
        (self.seen, verdict)
    }

    fn ended_properly(&self) -> bool {
        self.seen.done.is_some() || (self.body_complete && self.seen.finished)
    }

    /// After an error status the connection is fine; after any other failure it is not trusted.
    fn failure_keeps_connection(&self) -> bool {
        self.failure.as_ref().is_none_or(|failure| failure.class == Class::ServerStatus)
    }

    fn over_early(&self) -> bool {
        match &self.events {
            Events::Published(_) => self.failure.is_some() || self.seen.done.is_some(),
            Events::Strict(_) => !self.failure_keeps_connection(),
        }
    }

    fn fail_http(&mut self, error: &HttpError) {
        let class = match error {
            HttpError::Head(_) | HttpError::Framing(_) => Class::ProtocolError,
            HttpError::Chunk(_) => Class::Truncated,
        };
        self.fail(Failure::new(class, error.to_string()));
    }

    fn head(&mut self, head: Head) {
        self.keep_alive = head.keep_alive;
        let strict = matches!(self.events, Events::Strict(_));
        let bad_status = if strict { !(200..300).contains(&head.status) } else { head.status >= 300 };
        if bad_status {
            self.fail(Failure::new(Class::ServerStatus, format!("HTTP {} {}", head.status, head.reason)));
            self.error_body = Some(Vec::new());
        } else if let Some(coding) = head.coding {
            self.fail(Failure::new(
                Class::ProtocolError,
                format!("content-encoding {coding}, which was not asked for"),
            ));
        } else if let Some(media) = head.media_type.filter(|media| strict && media != "text/event-stream") {
            self.fail(Failure::new(Class::ProtocolError, format!("{media} instead of an event stream")));
        }
    }

    fn body(&mut self, mut body: &[u8], at: Stamp) {
        if let Some(kept) = &mut self.error_body {
            kept.extend_from_slice(&body[..body.len().min(ERROR_BODY_MAX - kept.len())]);
            return;
        }
        let outcome = match &mut self.events {
            Events::Strict(decoder) => strict_events(decoder, &mut body, at, &mut self.seen),
            Events::Published(lines) => published_lines(lines, &mut body, at, &mut self.seen),
        };
        if let Err(failure) = outcome {
            self.fail(failure);
        }
    }

    /// The published client reads a last line that no line feed ends.
    fn last_line(&mut self, at: Stamp) {
        if let Events::Published(lines) = &mut self.events
            && self.seen.done.is_none()
            && self.error_body.is_none()
            && let Some(payload) = lines.rest()
            && let Err(failure) = published_payload(&payload, at, &mut self.seen)
        {
            self.fail(failure);
        }
    }
}

fn strict_events(decoder: &mut sse::Strict, body: &mut &[u8], at: Stamp, seen: &mut Timeline) -> Result<(), Failure> {
    loop {
        let event = match decoder.next(body) {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Failure::new(Class::ProtocolError, error.to_string())),
        };
        // Nothing after [DONE] belongs to the answer, a second [DONE] included.
        if seen.done.is_some() {
            continue;
        }
        let data = match std::str::from_utf8(event.data) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(event.data),
        };
        let payload = data.trim();
        seen.first_event.get_or_insert(at);
        if payload == "[DONE]" {
            seen.done = Some(at);
            continue;
        }
        if event.kind == b"error" {
            return Err(Failure::new(Class::InBandError, clip(payload)));
        }
        if payload.is_empty() {
            seen.skipped += 1;
            continue;
        }
        match chunk::read(payload, Pieces::Every, seen.text.as_mut()) {
            Ok(Facts { error: Some(error), .. }) => return Err(Failure::new(Class::InBandError, clip(&error))),
            Ok(facts) => note(facts, at, seen),
            Err(NoChunk::NotJson | NoChunk::Malformed) => {
                return Err(Failure::new(Class::ProtocolError, format!("not a chunk: {}", clip(payload))));
            }
        }
    }
}

fn published_lines(lines: &mut sse::Lines, body: &mut &[u8], at: Stamp, seen: &mut Timeline) -> Result<(), Failure> {
    while seen.done.is_none() {
        match lines.next(body) {
            Ok(Some(payload)) => published_payload(&payload, at, seen)?,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Failure::new(Class::ProtocolError, error.to_string())),
        }
    }
    Ok(())
}

/// B.4, steps 2 to 7.
fn published_payload(payload: &str, at: Stamp, seen: &mut Timeline) -> Result<(), Failure> {
    seen.first_event.get_or_insert(at);
    if payload == "[DONE]" {
        seen.done = Some(at);
        return Ok(());
    }
    match chunk::read(payload, Pieces::Published, seen.text.as_mut()) {
        Ok(facts) => note(facts, at, seen),
        Err(NoChunk::NotJson) => seen.skipped += 1,
        Err(NoChunk::Malformed) => {
            return Err(Failure::new(Class::ProtocolError, format!("not an object: {}", clip(payload))));
        }
    }
    Ok(())
}

fn note(facts: Facts<'_>, at: Stamp, seen: &mut Timeline) {
    if let Some(usage) = facts.usage {
        seen.usage = Some(usage.into_owned());
    }
    seen.finished |= facts.finished;
    if facts.has_choices {
        seen.first_choice.get_or_insert(at);
        seen.last_choice = Some(at);
    }
    if facts.chars == 0 {
        return;
    }
    match seen.last_piece.replace(at) {
        None => (seen.first_piece, seen.first_chars) = (Some(at), facts.chars),
        Some(before) => seen.gaps.push(at.0.saturating_sub(before.0)),
    }
    seen.chunks += 1;
    seen.total_chars += facts.chars;
}

/// The front of a text, for a record.
fn clip(text: &str) -> String {
    match text.char_indices().nth(300) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}
