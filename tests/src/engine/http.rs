//! The little of HTTP/1.1 that both of the server's ports need: request heads in, plain answers out.

use std::fmt::Write as _;

/// Longest request head that is read.
pub const HEAD_LIMIT: usize = 64 * 1024;
/// Longest request body that is read.
pub const BODY_LIMIT: usize = 64 << 20;

/// A request's head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// `GET`, `POST`, ...
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Bytes up to and with the blank line.
    pub length: usize,
    /// Bytes of the body.
    pub body: usize,
    /// The client wants the connection closed after the answer.
    pub close: bool,
    /// The client waits for `100 Continue`.
    pub expects_continue: bool,
    /// `x-request-id`.
    pub request_id: Option<String>,
}

/// What the bytes so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Not all of the head is there.
    Partial,
    /// A head.
    Head(Head),
    /// Nothing that we serve: answer with this status and close.
    Bad(u16),
}

/// Reads a head from the beginning of the buffer.
pub fn parse_head(bytes: &[u8]) -> Parsed {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return if bytes.len() > HEAD_LIMIT { Parsed::Bad(431) } else { Parsed::Partial };
    };
    let Ok(text) = std::str::from_utf8(&bytes[..end]) else { return Parsed::Bad(400) };
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version)) = (words.next(), words.next(), words.next()) else {
        return Parsed::Bad(400);
    };
    let path = target.split('?').next().unwrap_or_default().to_owned();
    let mut head =
        Head { method: method.into(), path, length: end + 4, close: version == "HTTP/1.0", ..Head::default() };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { return Parsed::Bad(400) };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            match value.parse() {
                Ok(length) if length <= BODY_LIMIT => head.body = length,
                Ok(_) => return Parsed::Bad(413),
                Err(_) => return Parsed::Bad(400),
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Parsed::Bad(411);
        } else if name.eq_ignore_ascii_case("connection") {
            head.close |= value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("expect") {
            head.expects_continue = value.eq_ignore_ascii_case("100-continue");
        } else if name.eq_ignore_ascii_case("x-request-id") {
            head.request_id = Some(value.to_owned());
        }
    }
    Parsed::Head(head)
}

/// A whole answer with a body of known length.
pub fn answer(status: u16, content_type: &str, body: &str, location: Option<&str>, close: bool) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    if let Some(location) = location {
        let _ = write!(text, "location: {location}\r\n");
    }
    // A 204 or 304 has no body, and saying one would desynchronise the connection.
    let body = if matches!(status, 204 | 304) { "" } else { body };
    if !matches!(status, 204 | 304) {
        let _ = write!(text, "content-type: {content_type}\r\ncontent-length: {}\r\n", body.len());
    }
    text.push_str(if close { "connection: close\r\n\r\n" } else { "\r\n" });
    text.push_str(body);
    text.into_bytes()
}

/// A JSON answer.
pub fn json(status: u16, body: &serde_json::Value, close: bool) -> Vec<u8> {
    answer(status, "application/json", &body.to_string(), None, close)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Payload Too Large",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads() {
        assert_eq!(parse_head(b"GET / HTTP/1.1\r\nHost: x\r\n"), Parsed::Partial);
        let text = b"POST /v1/completions?x=1 HTTP/1.1\r\nContent-Length: 12\r\nX-Request-Id: a7\r\nConnection: Close\r\n\r\nrest";
        let Parsed::Head(head) = parse_head(text) else { panic!("a head") };
        assert_eq!((head.path.as_str(), head.body, head.close), ("/v1/completions", 12, true));
        assert_eq!((head.request_id.as_deref(), &text[head.length..]), (Some("a7"), &b"rest"[..]));
        assert_eq!(parse_head(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), Parsed::Bad(411));
        assert_eq!(parse_head(b"nonsense\r\n\r\n"), Parsed::Bad(400));
    }
}
