//! JSON tokens from a feed, in constant memory.
//!
//! The grammar is RFC 8259's plus the bare words `NaN`, `Infinity` and `-Infinity`, which the bench tool writes
//! (Python's default), and unpaired surrogate escapes. Everything is checked, also what is skipped. Each token has a
//! fast path over the window and a slow one, byte by byte, for the few that straddle two windows.

use std::io::Read;

use super::ReadError;
use super::feed::{Feed, malformed};

/// Arrays and objects may be nested this deep; Python's own reader gives up a little earlier.
pub(super) const MAX_DEPTH: usize = 1024;
/// Longest number that is kept for its value, in characters.
const MAX_NUMBER: usize = 4096;

/// A position in a feed.
#[derive(Debug)]
pub(super) struct Scanner<R> {
    feed: Feed<R>,
    /// Next byte in the window.
    at: usize,
    number: Vec<u8>,
}

/// A number or one of the bare words, as written.
#[derive(Debug)]
pub(super) enum Number<'a> {
    /// Only digits, perhaps with a minus before them.
    Integer(&'a str),
    /// With a fraction or an exponent.
    Real(&'a str),
    /// `NaN`, `Infinity` or `-Infinity`.
    Word(&'static str),
    /// More than [`MAX_NUMBER`] characters: their number, and whether there are only digits.
    Long {
        /// Characters.
        characters: u64,
        /// Neither fraction nor exponent.
        integer: bool,
    },
}

/// What kind of value begins here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Object,
    Array,
    String,
    /// A number, or a bare word that stands for one.
    Number,
    Literal(&'static str),
}

impl Start {
    fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::String,
            b'-' | b'0'..=b'9' | b'N' | b'I' => Self::Number,
            b't' => Self::Literal("true"),
            b'f' => Self::Literal("false"),
            b'n' => Self::Literal("null"),
            _ => return None,
        })
    }
}

impl<R: Read> Scanner<R> {
    pub(super) fn new(source: R, limit: u64, hashed: bool) -> Self {
        Self { feed: Feed::new(source, limit, hashed), at: 0, number: Vec::new() }
    }

    /// Offset of the next byte in the file.
    pub(super) fn offset(&self) -> u64 {
        self.feed.base() + self.at as u64
    }

    pub(super) fn fault<T>(&self, what: impl Into<String>) -> Result<T, ReadError> {
        Err(malformed(what, self.offset()))
    }

    /// The next byte; `None` at the end of the file.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<Option<u8>, ReadError> {
        if let Some(byte) = self.feed.window().get(self.at) {
            return Ok(Some(*byte));
        }
        self.refill()
    }

    #[cold]
    fn refill(&mut self) -> Result<Option<u8>, ReadError> {
        let more = self.feed.advance()?;
        self.at = 0;
        Ok(if more { self.feed.window().first().copied() } else { None })
    }

    #[inline]
    pub(super) fn bump(&mut self) {
        self.at += 1;
    }

    /// The next byte, inside something that is not complete yet.
    #[inline]
    fn inside(&mut self, what: &str) -> Result<u8, ReadError> {
        match self.peek()? {
            Some(byte) => Ok(byte),
            None => self.fault(format!("the file ends inside {what}")),
        }
    }

    /// The next byte that is no white space.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<u8>, ReadError> {
        loop {
            match self.peek()? {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.bump(),
                other => return Ok(other),
            }
        }
    }

    /// The next byte that is no white space, inside a value.
    #[inline]
    pub(super) fn next_inside(&mut self) -> Result<u8, ReadError> {
        match self.next()? {
            Some(byte) => Ok(byte),
            None => self.fault("the file ends inside an object or an array"),
        }
    }

    /// Takes `byte`, which must be the next one that is no white space.
    pub(super) fn expect(&mut self, byte: u8, what: &str) -> Result<(), ReadError> {
        if self.next_inside()? == byte {
            self.bump();
            return Ok(());
        }
        self.fault(format!("expected {what}"))
    }

    /// What value begins at the next byte that is no white space; nothing is taken.
    pub(super) fn start(&mut self) -> Result<Start, ReadError> {
        match Start::of(self.next_inside()?) {
            Some(start) => Ok(start),
            None => self.fault("expected a value"),
        }
    }

    /// Takes the rest of a string whose opening quote is taken, keeping nothing.
    pub(super) fn skip_string(&mut self) -> Result<(), ReadError> {
        loop {
            self.at += plain_len(&self.feed.window()[self.at..]);
            match self.inside("a string")? {
                b'"' => {
                    self.bump();
                    return Ok(());
                }
                b'\\' => {
                    self.escape()?;
                }
                0..0x20 => return self.fault("control character in a string"),
                // The window ended inside plain text.
                _ => {}
            }
        }
    }

    /// Takes the rest of a string whose opening quote is taken, keeping at most `limit` bytes of it; says whether that
    /// was all. An unpaired surrogate is kept as it is written.
    pub(super) fn string(&mut self, limit: usize) -> Result<(String, bool), ReadError> {
        let mut text = Vec::new();
        let mut whole = true;
        loop {
            let rest = &self.feed.window()[self.at..];
            let plain = plain_len(rest);
            let room = limit.saturating_sub(text.len()).min(plain);
            text.extend_from_slice(&rest[..room]);
            whole &= room == plain;
            self.at += plain;
            match self.inside("a string")? {
                b'"' => {
                    self.bump();
                    // A cut inside a character is the only way in which this is not UTF-8.
                    return Ok((String::from_utf8_lossy(&text).into_owned(), whole));
                }
                b'\\' => {
                    let mut unit = self.escape()?;
                    while let Unit::Surrogate(high @ 0xD800..0xDC00) = unit {
                        // Only an escape that follows at once can complete the pair.
                        if self.inside("a string")? != b'\\' {
                            break;
                        }
                        let next = self.escape()?;
                        if let Unit::Surrogate(low @ 0xDC00..0xE000) = next {
                            let code = 0x10000 + ((u32::from(high) - 0xD800) << 10) + (u32::from(low) - 0xDC00);
                            unit = char::from_u32(code).map_or(next, Unit::Char);
                            break;
                        }
                        whole &= Unit::Surrogate(high).append(&mut text, limit);
                        unit = next;
                    }
                    whole &= unit.append(&mut text, limit);
                }
                0..0x20 => return self.fault("control character in a string"),
                _ => {}
            }
        }
    }

    /// Takes an escape sequence at its backslash.
    #[inline]
    fn escape(&mut self) -> Result<Unit, ReadError> {
        // Six bytes hold the longest one; nearly always they are in the window.
        if let Some(&[_, kind, a, b, c, d]) = self.feed.window().get(self.at..self.at + 6) {
            if let Some(plain) = simple_escape(kind) {
                self.at += 2;
                return Ok(Unit::Char(plain));
            }
            if kind == b'u'
                && let (Some(a), Some(b), Some(c), Some(d)) = (hex(a), hex(b), hex(c), hex(d))
            {
                self.at += 6;
                return Ok(Unit::of((a << 12) | (b << 8) | (c << 4) | d));
            }
        }
        self.escape_by_byte()
    }

    #[cold]
    fn escape_by_byte(&mut self) -> Result<Unit, ReadError> {
        self.bump();
        let kind = self.inside("an escape sequence")?;
        if let Some(plain) = simple_escape(kind) {
            self.bump();
            return Ok(Unit::Char(plain));
        }
        if kind != b'u' {
            return self.fault("unknown escape sequence");
        }
        self.bump();
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = hex(self.inside("an escape sequence")?) else {
                return self.fault("expected a hexadecimal digit");
            };
            code = (code << 4) | digit;
            self.bump();
        }
        Ok(Unit::of(code))
    }

    /// Takes one of `true`, `false`, `null` and the bare words.
    pub(super) fn literal(&mut self, word: &'static str) -> Result<(), ReadError> {
        for expected in word.bytes() {
            if self.inside("a literal")? != expected {
                return self.fault("unknown literal");
            }
            self.bump();
        }
        Ok(())
    }

    /// Takes a number or a bare word and keeps it.
    pub(super) fn number(&mut self) -> Result<Number<'_>, ReadError> {
        match self.inside("a number")? {
            b'N' => return self.literal("NaN").map(|()| Number::Word("NaN")),
            b'I' => return self.literal("Infinity").map(|()| Number::Word("Infinity")),
            _ => {}
        }
        self.number.clear();
        let (integer, characters) = if let Some((len, integer)) = number_len(&self.feed.window()[self.at..]) {
            let kept = len.min(MAX_NUMBER + 1);
            self.number.extend_from_slice(&self.feed.window()[self.at..self.at + kept]);
            self.at += len;
            (integer, len as u64)
        } else {
            match self.number_by_byte()? {
                Some(found) => found,
                None => return Ok(Number::Word("-Infinity")),
            }
        };
        if self.number.len() > MAX_NUMBER {
            return Ok(Number::Long { characters, integer });
        }
        // Digits, signs, points and exponents only.
        let text = std::str::from_utf8(&self.number).unwrap_or_default();
        Ok(if integer { Number::Integer(text) } else { Number::Real(text) })
    }

    /// Takes a number, keeping up to [`MAX_NUMBER`] + 1 characters; whether it is an integer, and its length. `None` for
    /// `-Infinity`.
    #[cold]
    fn number_by_byte(&mut self) -> Result<Option<(bool, u64)>, ReadError> {
        let mut length = 0;
        if self.peek()? == Some(b'-') {
            self.keep(b'-', &mut length);
            if self.inside("a number")? == b'I' {
                return self.literal("Infinity").map(|()| None);
            }
        }
        if self.inside("a number")? == b'0' {
            self.keep(b'0', &mut length);
            if self.peek()?.is_some_and(|byte| byte.is_ascii_digit()) {
                return self.fault("a number with a leading zero");
            }
        } else {
            self.digits(&mut length)?;
        }
        let mut integer = true;
        if self.peek()? == Some(b'.') {
            integer = false;
            self.keep(b'.', &mut length);
            self.digits(&mut length)?;
        }
        if let Some(e @ (b'e' | b'E')) = self.peek()? {
            integer = false;
            self.keep(e, &mut length);
            if let Some(sign @ (b'+' | b'-')) = self.peek()? {
                self.keep(sign, &mut length);
            }
            self.digits(&mut length)?;
        }
        Ok(Some((integer, length)))
    }

    fn keep(&mut self, byte: u8, length: &mut u64) {
        if self.number.len() <= MAX_NUMBER {
            self.number.push(byte);
        }
        *length += 1;
        self.bump();
    }

    /// One digit or more.
    fn digits(&mut self, length: &mut u64) -> Result<(), ReadError> {
        if !self.inside("a number")?.is_ascii_digit() {
            return self.fault("expected a digit");
        }
        while let Some(digit @ b'0'..=b'9') = self.peek()? {
            self.keep(digit, length);
        }
        Ok(())
    }

    /// Takes a whole value of any kind, keeping nothing.
    pub(super) fn skip_value(&mut self) -> Result<(), ReadError> {
        let mut nesting = Nesting::default();
        loop {
            match self.start()? {
                Start::Array => {
                    self.open(&mut nesting, true)?;
                    if self.next_inside()? != b']' {
                        self.skip_numbers();
                        continue;
                    }
                    self.bump();
                    nesting.pop();
                }
                Start::Object => {
                    self.open(&mut nesting, false)?;
                    if self.next_inside()? != b'}' {
                        self.skip_key()?;
                        continue;
                    }
                    self.bump();
                    nesting.pop();
                }
                Start::String => {
                    self.bump();
                    self.skip_string()?;
                }
                Start::Number => {
                    self.number()?;
                }
                Start::Literal(word) => self.literal(word)?,
            }
            // A value is complete: what may follow depends on what it stands in.
            loop {
                match nesting.top() {
                    None => return Ok(()),
                    Some(Nested::Array) => match self.next_inside()? {
                        b',' => {
                            self.bump();
                            self.skip_numbers();
                            break;
                        }
                        b']' => self.bump(),
                        _ => return self.fault("expected ',' or ']'"),
                    },
                    Some(Nested::Object) => match self.next_inside()? {
                        b',' => {
                            self.bump();
                            self.skip_key()?;
                            break;
                        }
                        b'}' => self.bump(),
                        _ => return self.fault("expected ',' or '}'"),
                    },
                }
                nesting.pop();
            }
        }
    }

    /// Runs over elements of an array that are numbers followed by a comma and lie in the window: most of a large export.
    /// Stops before the first element that is not; nothing is lost by stopping early.
    #[inline]
    fn skip_numbers(&mut self) {
        let window = self.feed.window();
        let mut at = self.at;
        loop {
            if window.get(at) == Some(&b' ') {
                at += 1;
            }
            match number_len(&window[at..]) {
                Some((len, _)) if window[at + len] == b',' => at += len + 1,
                _ => break,
            }
        }
        self.at = at;
    }

    fn skip_key(&mut self) -> Result<(), ReadError> {
        self.expect(b'"', "a key in quotes")?;
        self.skip_string()?;
        self.expect(b':', "':'")
    }

    fn open(&mut self, nesting: &mut Nesting, array: bool) -> Result<(), ReadError> {
        if !nesting.push(array) {
            return self.fault(format!("nested deeper than {MAX_DEPTH}"));
        }
        self.bump();
        Ok(())
    }

    /// Number of bytes, and their SHA-256 where it was taken; call at the end of the file.
    pub(super) fn finish(self) -> Result<(u64, Option<String>), ReadError> {
        self.feed.finish()
    }
}

/// One unit of a string that was written as an escape.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Char(char),
    Surrogate(u16),
}

impl Unit {
    fn of(code: u16) -> Self {
        char::from_u32(u32::from(code)).map_or(Self::Surrogate(code), Self::Char)
    }

    /// Appends it where there is room; says whether there was.
    fn append(self, text: &mut Vec<u8>, limit: usize) -> bool {
        let mut buffer = [0; 4];
        let escaped;
        let bytes = match self {
            Self::Char(c) => c.encode_utf8(&mut buffer).as_bytes(),
            Self::Surrogate(code) => {
                escaped = format!("\\u{code:04x}");
                escaped.as_bytes()
            }
        };
        let fits = text.len() + bytes.len() <= limit;
        if fits {
            text.extend_from_slice(bytes);
        }
        fits
    }
}

fn simple_escape(kind: u8) -> Option<char> {
    Some(match kind {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        _ => return None,
    })
}

fn hex(byte: u8) -> Option<u16> {
    Some(u16::from(match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        _ => return None,
    }))
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The eight bytes at `at`, the first one lowest.
#[inline]
fn eight(window: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*window.get(at..)?.first_chunk()?))
}

/// How many bytes at the beginning are neither a quote, a backslash nor a control character.
#[inline]
fn plain_len(window: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = eight(window, at) {
        let (quote, back) = (word ^ (LOW * 0x22), word ^ (LOW * 0x5c));
        // A high bit is set in every byte that matches; borrows can only add some above the first true one.
        let hits = (quote.wrapping_sub(LOW) & !quote)
            | (back.wrapping_sub(LOW) & !back)
            | (word.wrapping_sub(LOW * 0x20) & !word);
        if hits & HIGH != 0 {
            return at + (hits & HIGH).trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    window[at..].iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).map_or(window.len(), |rest| at + rest)
}

/// Position of the first byte from `at` on that is no digit; `None` when the window ends first.
#[inline]
fn digits_end(window: &[u8], mut at: usize) -> Option<usize> {
    while let Some(word) = eight(window, at) {
        let value = word ^ (LOW * 0x30);
        // A high bit is set in every byte above 9; carries can only add some above the first true one.
        let other = (value.wrapping_add(LOW * 0x76) | value) & HIGH;
        if other != 0 {
            return Some(at + other.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    window[at..].iter().position(|byte| !byte.is_ascii_digit()).map(|rest| at + rest)
}

/// Length of the number at the beginning, and whether it is an integer; `None` when there is none or the window ends before
/// it is certain where the number does.
#[inline]
fn number_len(window: &[u8]) -> Option<(usize, bool)> {
    let first = usize::from(window.first() == Some(&b'-'));
    let mut end = match window.get(first)? {
        b'0' => first + 1,
        b'1'..=b'9' => digits_end(window, first + 1)?,
        _ => return None,
    };
    let mut integer = true;
    if *window.get(end)? == b'.' {
        let fraction = end + 1;
        end = digits_end(window, fraction)?;
        if end == fraction {
            return None;
        }
        integer = false;
    }
    match window.get(end)? {
        b'e' | b'E' => {
            let digits = end + 1 + usize::from(matches!(window.get(end + 1)?, b'+' | b'-'));
            end = digits_end(window, digits)?;
            if end == digits {
                return None;
            }
            integer = false;
        }
        // After a leading zero.
        b'0'..=b'9' => return None,
        _ => {}
    }
    Some((end, integer))
}

/// What is open around a value, one bit each.
#[derive(Debug, Default)]
struct Nesting {
    arrays: [u64; MAX_DEPTH / 64],
    depth: usize,
}

#[derive(Debug, Clone, Copy)]
enum Nested {
    Array,
    Object,
}

impl Nesting {
    /// One level more; `false` when that is too deep. The export's own object is a level too.
    fn push(&mut self, array: bool) -> bool {
        if self.depth + 1 >= MAX_DEPTH {
            return false;
        }
        let bit = 1 << (self.depth % 64);
        let word = &mut self.arrays[self.depth / 64];
        *word = if array { *word | bit } else { *word & !bit };
        self.depth += 1;
        true
    }

    fn pop(&mut self) {
        self.depth -= 1;
    }

    fn top(&self) -> Option<Nested> {
        let index = self.depth.checked_sub(1)?;
        let array = self.arrays[index / 64] & (1 << (index % 64)) != 0;
        Some(if array { Nested::Array } else { Nested::Object })
    }
}
