//! Reading an export in one pass over its bytes, in constant memory beside the numbers that are judged.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io::Read;

use super::MAX_BYTES;
use super::lengths::Lengths;
use super::scan::{Number, Scanner, Start};

/// Keys whose repetition makes an export unusable: two readers must not see two numbers (design section 8).
pub const JUDGED: [&str; 12] = [
    COMPLETED,
    FAILED,
    OUTPUT_LENS,
    TOTAL_OUTPUT_TOKENS,
    "duration",
    "output_throughput",
    "request_throughput",
    "total_token_throughput",
    "mean_ttft_ms",
    "median_ttft_ms",
    "mean_tpot_ms",
    "median_tpot_ms",
];

pub(super) const COMPLETED: &str = "completed";
pub(super) const FAILED: &str = "failed";
pub(super) const OUTPUT_LENS: &str = "output_lens";
pub(super) const TOTAL_OUTPUT_TOKENS: &str = "total_output_tokens";

/// What a text of another's is cut to where it is quoted, in bytes.
const QUOTED: usize = 32;
/// Memory for the names of top-level figures, in bytes; the real tool writes about 60 of them.
const KEY_BUDGET: usize = 8 * 1024 * 1024;
/// What an entry takes beside its name.
const KEY_OVERHEAD: usize = 64;

/// `completed`, `failed` or `total_output_tokens` as it stands in the file, by JSON type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counter {
    /// A JSON integer that fits.
    Integer(i128),
    /// A JSON integer beyond `i128`: its first digits, and how many there are.
    Huge(String),
    /// Anything else that stands there, as written or by its type.
    NotInteger(String),
    /// The key is not there.
    Absent,
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Huge(text) | Self::NotInteger(text) => f.write_str(text),
            Self::Absent => f.write_str("absent"),
        }
    }
}

/// A top-level JSON number (never a boolean, never inside a string).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// Written as an integer that fits.
    Integer(i64),
    /// Any other finite number.
    Float(f64),
}

impl Scalar {
    /// The value as a double.
    #[expect(clippy::cast_precision_loss, reason = "figures, not identities")]
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Integer(i) => i as f64,
            Self::Float(f) => f,
        }
    }
}

/// State of the `output_lens` array.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputLens {
    /// The key is not there.
    Absent,
    /// Present, and every entry is a whole, non-negative, finite number.
    Whole(Lengths),
    /// Present and not such an array; says what stands there.
    Invalid(String),
}

/// What was read from one export: every top-level number, in the file's order, and what the judgement needs.
///
/// `H` is the hash of the file: a text where it was taken ([`read`]), nothing where it was not ([`read_unhashed`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Export<H = String> {
    /// `completed`.
    pub completed: Counter,
    /// `failed`.
    pub failed: Counter,
    /// `total_output_tokens`, by type; its value is among the scalars too.
    pub total_output_tokens: Counter,
    /// Every top-level finite number, in the order of the file; the last of a repeated key that nobody judges.
    pub scalars: Vec<(String, Scalar)>,
    /// `output_lens`.
    pub output_lens: OutputLens,
    /// SHA-256 of the whole file, lower-case hex.
    pub sha256: H,
    /// Size in bytes.
    pub bytes: u64,
}

impl<H> Export<H> {
    /// A top-level finite number by name.
    pub fn scalar(&self, name: &str) -> Option<Scalar> {
        self.scalars.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

/// Why a file is no export: 54 for the agent, a dropped record for the host.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Zero bytes.
    #[error("the file is empty")]
    Empty,
    /// Not one JSON object, not UTF-8, a BOM, trailing data, too deep, too large, a repeated judged key.
    #[error("{what} at byte {offset}")]
    Malformed {
        /// What was found.
        what: String,
        /// Where, from 0.
        offset: u64,
    },
    /// The system's own words.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Reads one export from a stream: one pass, constant memory.
///
/// Numbers that no finite double holds are unusable values, not faults of the file (review finding B-02). Above a
/// megabyte a second thread hashes.
pub fn read(source: impl Read) -> Result<Export, ReadError> {
    let (export, sha256) = read_within(source, MAX_BYTES, true)?;
    Ok(Export {
        sha256: sha256.unwrap_or_default(),
        completed: export.completed,
        failed: export.failed,
        total_output_tokens: export.total_output_tokens,
        scalars: export.scalars,
        output_lens: export.output_lens,
        bytes: export.bytes,
    })
}

/// [`read`] without the hash, which takes longer than all the rest: for judging alone.
pub fn read_unhashed(source: impl Read) -> Result<Export<()>, ReadError> {
    read_within(source, MAX_BYTES, false).map(|(export, _)| export)
}

fn read_within(source: impl Read, limit: u64, hashed: bool) -> Result<(Export<()>, Option<String>), ReadError> {
    let mut scanner = Scanner::new(source, limit, hashed);
    match scanner.next()? {
        Some(b'{') => scanner.bump(),
        None if scanner.offset() == 0 => return Err(ReadError::Empty),
        None => return scanner.fault("nothing but white space"),
        Some(0xEF) => return scanner.fault("a byte order mark or other text before the object"),
        Some(b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b'N' | b'I') => {
            return scanner.fault("not a JSON object");
        }
        Some(_) => return scanner.fault("not JSON"),
    }
    let mut fields = Fields::default();
    if scanner.next_inside()? == b'}' {
        scanner.bump();
    } else {
        loop {
            scanner.expect(b'"', "a key in quotes")?;
            let at = scanner.offset();
            let (key, whole) = scanner.string(KEY_BUDGET)?;
            if !whole {
                return scanner.fault(format!("a key longer than {KEY_BUDGET} bytes"));
            }
            scanner.expect(b':', "':'")?;
            if fields.repeats_judged(&key) {
                return Err(super::feed::malformed(format!("a second {key:?}"), at));
            }
            fields.value(key, &mut scanner)?;
            match scanner.next_inside()? {
                b',' => scanner.bump(),
                b'}' => {
                    scanner.bump();
                    break;
                }
                _ => return scanner.fault("expected ',' or '}'"),
            }
        }
    }
    if scanner.next()?.is_some() {
        return scanner.fault("data after the object");
    }
    let (bytes, sha256) = scanner.finish()?;
    Ok((fields.into_export(bytes), sha256))
}

/// Everything kept so far.
#[derive(Debug)]
struct Fields {
    seen: u16,
    completed: Counter,
    failed: Counter,
    total_output_tokens: Counter,
    output_lens: OutputLens,
    /// By name, with the place of the key in the file.
    scalars: HashMap<String, (usize, Scalar)>,
    keys: usize,
    budget: usize,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            seen: 0,
            completed: Counter::Absent,
            failed: Counter::Absent,
            total_output_tokens: Counter::Absent,
            output_lens: OutputLens::Absent,
            scalars: HashMap::new(),
            keys: 0,
            budget: KEY_BUDGET,
        }
    }
}

impl Fields {
    /// Whether this is a judged key for the second time.
    fn repeats_judged(&mut self, key: &str) -> bool {
        let Some(index) = JUDGED.iter().position(|judged| *judged == key) else { return false };
        let bit = 1 << index;
        let again = self.seen & bit != 0;
        self.seen |= bit;
        again
    }

    fn value<R: Read>(&mut self, key: String, scanner: &mut Scanner<R>) -> Result<(), ReadError> {
        let start = scanner.start()?;
        if key == OUTPUT_LENS {
            self.output_lens = output_lens(start, scanner)?;
            return Ok(());
        }
        let (counter, scalar) = if start == Start::Number {
            let number = scanner.number()?;
            (counter(&number), scalar(&number))
        } else if JUDGED.contains(&key.as_str()) {
            (Counter::NotInteger(describe(start, scanner)?), None)
        } else {
            scanner.skip_value()?;
            (Counter::Absent, None)
        };
        match key.as_str() {
            COMPLETED => self.completed = counter,
            FAILED => self.failed = counter,
            TOTAL_OUTPUT_TOKENS => self.total_output_tokens = counter,
            _ => {}
        }
        let Some(scalar) = scalar else {
            self.scalars.remove(&key);
            return Ok(());
        };
        let cost = key.len() + KEY_OVERHEAD;
        match self.scalars.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().1 = scalar,
            Entry::Vacant(free) => {
                let Some(left) = self.budget.checked_sub(cost) else {
                    return scanner.fault("too many top-level figures");
                };
                self.budget = left;
                free.insert((self.keys, scalar));
                self.keys += 1;
            }
        }
        Ok(())
    }

    fn into_export(self, bytes: u64) -> Export<()> {
        let mut scalars: Vec<_> = self.scalars.into_iter().collect();
        scalars.sort_unstable_by_key(|(_, (place, _))| *place);
        Export {
            completed: self.completed,
            failed: self.failed,
            total_output_tokens: self.total_output_tokens,
            scalars: scalars.into_iter().map(|(key, (_, value))| (key, value)).collect(),
            output_lens: self.output_lens,
            sha256: (),
            bytes,
        }
    }
}

fn counter(number: &Number<'_>) -> Counter {
    match number {
        Number::Integer(text) => text.parse().map_or_else(|_| Counter::Huge(shorten(text)), Counter::Integer),
        Number::Long { characters, integer: true } => Counter::Huge(long(*characters)),
        other @ (Number::Real(_) | Number::Word(_) | Number::Long { .. }) => Counter::NotInteger(written(other)),
    }
}

/// The value, if it is a finite double.
fn scalar(number: &Number<'_>) -> Option<Scalar> {
    match number {
        Number::Integer(text) => text.parse().map(Scalar::Integer).ok().or_else(|| finite(text).map(Scalar::Float)),
        Number::Real(text) => finite(text).map(Scalar::Float),
        Number::Word(_) | Number::Long { .. } => None,
    }
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

fn shorten(text: &str) -> String {
    match text.get(..QUOTED) {
        Some(head) if text.len() > QUOTED => format!("{head}... ({} characters)", text.len()),
        _ => text.to_owned(),
    }
}

fn long(characters: u64) -> String {
    format!("a number of {characters} characters")
}

/// Takes a value that is not a number; what it is, in words, cut where it is long.
fn describe<R: Read>(start: Start, scanner: &mut Scanner<R>) -> Result<String, ReadError> {
    Ok(match start {
        Start::Literal(word) => {
            scanner.literal(word)?;
            word.to_owned()
        }
        Start::String => {
            scanner.bump();
            let (text, whole) = scanner.string(QUOTED)?;
            format!("the string {text:?}{}", if whole { "" } else { "..." })
        }
        Start::Array => {
            scanner.skip_value()?;
            "an array".to_owned()
        }
        Start::Object => {
            scanner.skip_value()?;
            "an object".to_owned()
        }
        Start::Number => written(&scanner.number()?),
    })
}

/// A number as it stands in the file, cut where it is long.
fn written(number: &Number<'_>) -> String {
    match number {
        Number::Integer(text) | Number::Real(text) => shorten(text),
        Number::Word(word) => (*word).to_owned(),
        Number::Long { characters, .. } => long(*characters),
    }
}

fn not_whole(index: u64, what: &str) -> String {
    format!("entry {index} is {what}, not a whole number of tokens")
}

/// Takes the value of `output_lens`, whatever it is; the first entry that is no length is the one named.
fn output_lens<R: Read>(start: Start, scanner: &mut Scanner<R>) -> Result<OutputLens, ReadError> {
    if start != Start::Array {
        return Ok(OutputLens::Invalid(format!("{}, not an array", describe(start, scanner)?)));
    }
    scanner.bump();
    let mut lengths = Lengths::default();
    let mut invalid = None;
    if scanner.next_inside()? == b']' {
        scanner.bump();
        return Ok(OutputLens::Whole(lengths));
    }
    for index in 0_u64.. {
        let start = scanner.start()?;
        let fault = if invalid.is_some() {
            scanner.skip_value()?;
            None
        } else if start == Start::Number {
            let number = scanner.number()?;
            match whole(&number) {
                Some(length) if lengths.push(length) => None,
                Some(_) => Some(format!("more than {} different lengths", Lengths::MAX_DIFFERENT)),
                None => Some(not_whole(index, &written(&number))),
            }
        } else {
            Some(not_whole(index, &describe(start, scanner)?))
        };
        invalid = invalid.or(fault);
        match scanner.next_inside()? {
            b',' => scanner.bump(),
            b']' => {
                scanner.bump();
                break;
            }
            _ => return scanner.fault("expected ',' or ']'"),
        }
    }
    Ok(invalid.map_or(OutputLens::Whole(lengths), OutputLens::Invalid))
}

/// A length in tokens: whole, not negative, and small enough to be one. `5.0` and `-0` are whole (contract H.4, L.2).
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be whole and in range")]
fn whole(number: &Number<'_>) -> Option<u64> {
    match number {
        Number::Integer(text) => {
            text.strip_prefix('-').map_or_else(|| text.parse().ok(), |zero| (zero == "0").then_some(0))
        }
        Number::Real(text) => {
            finite(text).filter(|v| v.fract() == 0.0 && (0.0..=Lengths::MAX_F64).contains(v)).map(|v| v as u64)
        }
        Number::Word(_) | Number::Long { .. } => None,
    }
    .filter(|length| *length <= Lengths::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FS-65.
    #[test]
    fn a_file_that_grows_for_ever_ends() {
        struct Endless;
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                buffer.fill(b' ');
                Ok(buffer.len())
            }
        }
        let error = read_within(Read::chain(&b"{"[..], Endless), 10_000_000, true).unwrap_err().to_string();
        assert!(error.starts_with("more than 10000000 bytes at byte"), "{error}");
        assert!(read_within(&b"{ }"[..], 3, false).is_ok());
        assert!(read_within(&b"{ } "[..], 3, false).is_err());
    }
}
