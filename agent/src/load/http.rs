//! The answering half of HTTP/1.1, incremental: a head, then body bytes by content length, by chunks or until the
//! connection closes. It copies nothing but a head that arrives in pieces, and knows neither sockets nor events.

use memchr::memchr;

/// Largest response head that is read, bytes.
const HEAD_MAX: usize = 64 * 1024;
/// Most header fields that are read.
const FIELDS_MAX: usize = 128;
/// Longest chunk-size line or trailer line, bytes.
const LINE_MAX: usize = 16 * 1024;

/// What the head says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// Reason phrase, as sent.
    pub reason: String,
    /// Media type without parameters, lower case; `None` when not sent.
    pub media_type: Option<String>,
    /// A content coding other than identity.
    pub coding: Option<String>,
    /// Whether the server keeps the connection open after this response.
    pub keep_alive: bool,
}

/// One thing read from the connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// The final head; interim (1xx) responses are skipped.
    Head(Head),
    /// Body bytes, framing removed.
    Body(&'a [u8]),
    /// The body is complete.
    End,
}

/// Bytes that are not HTTP/1.1 as expected here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// No HTTP response head.
    #[error("response head: {0}")]
    Head(String),
    /// Framing headers that contradict each other or cannot be read.
    #[error("body framing: {0}")]
    Framing(String),
    /// A chunk that does not begin with its size, or does not end where the size says.
    #[error("chunked body: {0}")]
    Chunk(&'static str),
}

/// How a connection that ended left the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEof {
    /// Not one byte of a response had come.
    Nothing,
    /// Inside the head.
    InHead,
    /// The close is the end of the body.
    Complete,
    /// Fewer bytes than the content length.
    ShortLength,
    /// Before the last chunk.
    ShortChunks,
}

#[derive(Debug)]
enum State {
    Head(Vec<u8>),
    Length(u64),
    UntilClose,
    ChunkSize { size: u64, digits: u32, seen: usize, extension: bool },
    ChunkData(u64),
    ChunkEnd { cr: bool },
    Trailer { line: usize, cr: bool },
    Ended,
}

/// Decoder of one response.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    report_end: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { state: State::Head(Vec::new()), report_end: false }
    }
}

impl Decoder {
    /// The next part of `input`, which advances past it; `None` when the rest of `input` says no more.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Part<'a>>, HttpError> {
        loop {
            if self.report_end {
                self.report_end = false;
                return Ok(Some(Part::End));
            }
            if input.is_empty() {
                return Ok(None);
            }
            match &mut self.state {
                State::Ended => return Ok(None),
                State::Head(kept) => match read_head(kept, input)? {
                    None => return Ok(None),
                    Some((head, state)) => {
                        self.enter(state);
                        if head.status >= 200 {
                            return Ok(Some(Part::Head(head)));
                        }
                        self.state = State::Head(Vec::new());
                        self.report_end = false;
                    }
                },
                State::Length(left) => {
                    let body = take(input, *left);
                    *left -= body.len() as u64;
                    if *left == 0 {
                        self.enter(State::Ended);
                    }
                    return Ok(Some(Part::Body(body)));
                }
                State::UntilClose => return Ok(Some(Part::Body(std::mem::take(input)))),
                State::ChunkData(left) => {
                    let body = take(input, *left);
                    *left -= body.len() as u64;
                    if *left == 0 {
                        self.state = State::ChunkEnd { cr: false };
                    }
                    return Ok(Some(Part::Body(body)));
                }
                State::ChunkSize { .. } | State::ChunkEnd { .. } | State::Trailer { .. } => self.framing_byte(input)?,
            }
        }
    }

    /// Whether the response has been read to its end.
    pub fn ended(&self) -> bool {
        matches!(self.state, State::Ended) && !self.report_end
    }

    /// What it means that the connection ended here.
    pub fn at_eof(&self) -> AtEof {
        match &self.state {
            State::Head(kept) if kept.is_empty() => AtEof::Nothing,
            State::Head(_) => AtEof::InHead,
            State::UntilClose | State::Ended => AtEof::Complete,
            State::Length(_) => AtEof::ShortLength,
            State::ChunkSize { .. } | State::ChunkData(_) | State::ChunkEnd { .. } | State::Trailer { .. } => {
                AtEof::ShortChunks
            }
        }
    }

    fn enter(&mut self, state: State) {
        self.state = if matches!(state, State::Length(0)) { State::Ended } else { state };
        self.report_end = matches!(self.state, State::Ended);
    }

    /// One byte between chunks; they are few.
    fn framing_byte(&mut self, input: &mut &[u8]) -> Result<(), HttpError> {
        let byte = input[0];
        *input = &input[1..];
        match &mut self.state {
            State::ChunkSize { size, digits, seen, extension } => {
                *seen += 1;
                match byte {
                    b'\n' if *digits == 0 => return Err(HttpError::Chunk("a chunk has no size")),
                    b'\n' if *size == 0 => self.state = State::Trailer { line: 0, cr: false },
                    b'\n' => self.state = State::ChunkData(*size),
                    _ if *seen > LINE_MAX => return Err(HttpError::Chunk("a chunk-size line is too long")),
                    _ if *extension => {}
                    b'\r' | b';' | b' ' | b'\t' => *extension = true,
                    _ => {
                        let digit =
                            char::from(byte).to_digit(16).ok_or(HttpError::Chunk("a chunk size is not hexadecimal"))?;
                        if *digits >= 15 {
                            return Err(HttpError::Chunk("a chunk size is too large"));
                        }
                        *size = *size << 4 | u64::from(digit);
                        *digits += 1;
                    }
                }
            }
            State::ChunkEnd { cr } => match byte {
                b'\r' if !*cr => *cr = true,
                b'\n' => self.state = CHUNK_SIZE,
                _ => return Err(HttpError::Chunk("a chunk does not end where its size says")),
            },
            State::Trailer { line, cr } => match byte {
                b'\n' if *line == 0 => self.enter(State::Ended),
                b'\n' => (*line, *cr) = (0, false),
                b'\r' if !*cr => *cr = true,
                _ if *line > LINE_MAX => return Err(HttpError::Chunk("a trailer line is too long")),
                _ => (*line, *cr) = (*line + 1, false),
            },
            State::Head(_) | State::Length(_) | State::UntilClose | State::ChunkData(_) | State::Ended => {}
        }
        Ok(())
    }
}

const CHUNK_SIZE: State = State::ChunkSize { size: 0, digits: 0, seen: 0, extension: false };

/// At most `limit` bytes off the front.
fn take<'a>(input: &mut &'a [u8], limit: u64) -> &'a [u8] {
    let count = usize::try_from(limit).unwrap_or(usize::MAX).min(input.len());
    let (body, rest) = input.split_at(count);
    *input = rest;
    body
}

/// Parses a head that is whole in `input`, or keeps what has come.
fn read_head(kept: &mut Vec<u8>, input: &mut &[u8]) -> Result<Option<Parsed>, HttpError> {
    if kept.is_empty()
        && let Some((used, parsed)) = parse_head(input)?
    {
        *input = &input[used..];
        return Ok(Some(parsed));
    }
    // A head in pieces: grow line by line, so that no body byte is kept.
    while !input.is_empty() {
        let upto = memchr(b'\n', input).map_or(input.len(), |at| at + 1);
        kept.extend_from_slice(&input[..upto]);
        *input = &input[upto..];
        if kept.len() > HEAD_MAX {
            return Err(HttpError::Head(format!("longer than {HEAD_MAX} bytes")));
        }
        if kept.last() == Some(&b'\n')
            && let Some((_, parsed)) = parse_head(kept)?
        {
            return Ok(Some(parsed));
        }
    }
    Ok(None)
}

/// A head, and how its body is framed.
type Parsed = (Head, State);

fn parse_head(bytes: &[u8]) -> Result<Option<(usize, Parsed)>, HttpError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let used = match response.parse(bytes).map_err(|e| HttpError::Head(e.to_string()))? {
        httparse::Status::Complete(used) => used,
        httparse::Status::Partial => return Ok(None),
    };
    let status = response.code.unwrap_or(0);
    let old = response.version == Some(0);
    let mut head = Head {
        status,
        reason: response.reason.unwrap_or("").to_owned(),
        media_type: None,
        coding: None,
        keep_alive: !old,
    };
    let (mut length, mut chunked) = (None, None);
    for field in response.headers.iter() {
        let text = String::from_utf8_lossy(field.value);
        let text = text.trim();
        let lower = || text.to_ascii_lowercase();
        if field.name.eq_ignore_ascii_case("content-length") {
            let value: u64 = text.parse().map_err(|_| HttpError::Framing(format!("content-length {text:?}")))?;
            if length.is_some_and(|other| other != value) {
                return Err(HttpError::Framing("two content lengths".to_owned()));
            }
            length = Some(value);
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            match lower().as_str() {
                "chunked" => chunked = Some(()),
                "identity" => {}
                other => return Err(HttpError::Framing(format!("transfer-encoding {other:?}"))),
            }
        } else if field.name.eq_ignore_ascii_case("content-type") {
            head.media_type = Some(lower().split(';').next().unwrap_or("").trim().to_owned());
        } else if field.name.eq_ignore_ascii_case("content-encoding") {
            head.coding = Some(lower()).filter(|coding| coding != "identity" && !coding.is_empty());
        } else if field.name.eq_ignore_ascii_case("connection") {
            for option in lower().split(',').map(str::trim) {
                match option {
                    "close" => head.keep_alive = false,
                    "keep-alive" if old => head.keep_alive = true,
                    _ => {}
                }
            }
        }
    }
    let state = if status == 204 || status == 304 || status < 200 {
        State::Length(0)
    } else if chunked.is_some() {
        CHUNK_SIZE
    } else if let Some(length) = length {
        State::Length(length)
    } else {
        head.keep_alive = false;
        State::UntilClose
    };
    Ok(Some((used, (head, state))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, body and ending of a response that arrives in pieces of at most `step` bytes.
    fn read(bytes: &[u8], step: usize) -> Result<(u16, Vec<u8>, AtEof, bool), HttpError> {
        let mut decoder = Decoder::default();
        let (mut status, mut body, mut ended) = (0, Vec::new(), false);
        for piece in bytes.chunks(step) {
            let mut input = piece;
            while let Some(part) = decoder.next(&mut input)? {
                match part {
                    Part::Head(head) => status = head.status,
                    Part::Body(bytes) => body.extend_from_slice(bytes),
                    Part::End => ended = true,
                }
            }
        }
        assert_eq!(ended, decoder.ended());
        Ok((status, body, decoder.at_eof(), ended))
    }

    #[test]
    fn every_framing_at_every_step() {
        let chunked: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n0000A\r\n, world 10\r\n0\r\nX-T: 1\r\n\r\n";
        let length: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nabc";
        let close: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nabc";
        let none: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
        let cut: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nabc";
        let short: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
        for step in 1..chunked.len() {
            assert_eq!(read(chunked, step), Ok((200, b"hello, world 10".to_vec(), AtEof::Complete, true)), "{step}");
            assert_eq!(read(length, step), Ok((500, b"abc".to_vec(), AtEof::Complete, true)), "{step}");
            assert_eq!(read(close, step), Ok((200, b"abc".to_vec(), AtEof::Complete, false)), "{step}");
            assert_eq!(read(none, step), Ok((204, vec![], AtEof::Complete, true)), "{step}");
            assert_eq!(read(cut, step), Ok((200, b"abc".to_vec(), AtEof::ShortChunks, false)), "{step}");
            assert_eq!(read(short, step), Ok((200, b"abc".to_vec(), AtEof::ShortLength, false)), "{step}");
            assert_eq!(read(&close[..9], step).map(|r| r.2), Ok(AtEof::InHead), "{step}");
        }
        assert_eq!(Decoder::default().at_eof(), AtEof::Nothing);
    }

    #[test]
    fn broken_framing_is_an_error_and_no_panic() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for bad in ["xyz\r\n", "\r\n", "3\r\nabcd", "1000000000000000\r\n"] {
            let bytes = format!("{chunked}{bad}");
            for step in 1..bytes.len() {
                assert!(matches!(read(bytes.as_bytes(), step), Err(HttpError::Chunk(_))), "{bad:?} {step}");
            }
        }
        for bad in [
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        ] {
            assert!(matches!(read(bad.as_bytes(), 7), Err(HttpError::Framing(_))), "{bad:?}");
        }
        assert!(matches!(read(b"SSH-2.0-x\r\n\r\n", 3), Err(HttpError::Head(_))));
        assert!(matches!(
            read(format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(HEAD_MAX)).as_bytes(), 1000),
            Err(HttpError::Head(_))
        ));
    }

    #[test]
    fn keep_alive_follows_version_and_header() {
        let head = |text: &str| {
            let mut decoder = Decoder::default();
            match decoder.next(&mut text.as_bytes()) {
                Ok(Some(Part::Head(head))) => head,
                other => panic!("{other:?}"),
            }
        };
        assert!(head("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n").keep_alive);
        assert!(!head("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: x, Close\r\n\r\n").keep_alive);
        assert!(!head("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n").keep_alive);
        assert!(head("HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n").keep_alive);
        assert!(!head("HTTP/1.1 200 OK\r\n\r\n").keep_alive);
        let typed = head("HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n\r\n");
        assert_eq!(typed.media_type.as_deref(), Some("text/event-stream"));
    }
}
