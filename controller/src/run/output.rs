//! What a child writes: read always and at once, kept as a bounded tail, whatever it is (100 MB without a newline, not
//! UTF-8); marker lines of stdout are kept beside it for runs without a markers file.

use proto::marker::Markers;
use proto::secret::Secrets;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a tail: 2,000 characters of four bytes, and room for what trimming takes away.
const TAIL_BYTES: usize = 32 * 1024;
/// Bytes of a run of blanks that are kept before the next text.
const BLANK_BYTES: usize = 16 * 1024;
/// Longest line that can be a marker.
const MARKER_LINE: usize = 4 * 1024;
/// Marker lines kept altogether.
const MARKER_TOTAL: usize = 1024 * 1024;

/// The end of a stream, bounded.
#[derive(Debug, Default)]
pub struct Tail {
    kept: Vec<u8>,
    /// Blanks after the kept text: they are part of it only if text follows.
    blank: Vec<u8>,
    total: u64,
}

impl Tail {
    /// Adds a chunk.
    pub fn push(&mut self, chunk: &[u8]) {
        self.total += chunk.len() as u64;
        let text = chunk.iter().rposition(|b| !b.is_ascii_whitespace()).map_or(0, |last| last + 1);
        let (text, blank) = chunk.split_at(text);
        if !text.is_empty() {
            self.kept.append(&mut self.blank);
            self.kept.extend_from_slice(text);
            keep_last(&mut self.kept, TAIL_BYTES);
        }
        self.blank.extend_from_slice(blank);
        keep_last(&mut self.blank, BLANK_BYTES);
    }

    /// The last 2,000 characters of the trimmed text (contract I.4), without secrets.
    pub fn text(&self, secrets: &Secrets) -> String {
        crate::result::details::tail(&secrets.hide(&self.kept))
    }

    /// Bytes that were written altogether.
    pub const fn total(&self) -> u64 {
        self.total
    }
}

/// Drops the front once a buffer is twice as long as it should be, so that each byte is moved at most once.
fn keep_last(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.len() > 2 * bytes {
        buffer.drain(..buffer.len() - bytes);
    }
}

/// Marker lines of a stream that is cut into chunks anywhere.
#[derive(Debug, Default)]
pub struct MarkerLines {
    line: Vec<u8>,
    too_long: bool,
    kept: Vec<u8>,
}

impl MarkerLines {
    /// Adds a chunk.
    pub fn push(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            self.part(&rest[..end]);
            self.end_line();
            rest = &rest[end + 1..];
        }
        self.part(rest);
    }

    fn part(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > MARKER_LINE {
            self.too_long = true;
        }
        if !self.too_long {
            self.line.extend_from_slice(part);
        }
    }

    fn end_line(&mut self) {
        let is_marker = !self.too_long && self.line.starts_with(b"TS_BENCH_");
        if is_marker && self.kept.len() + self.line.len() < MARKER_TOTAL {
            self.kept.extend_from_slice(&self.line);
            self.kept.push(b'\n');
        }
        self.line.clear();
        self.too_long = false;
    }

    /// Whether there was any: somebody who speaks the contract was there.
    pub const fn any(&self) -> bool {
        !self.kept.is_empty()
    }

    /// What the lines say, an unfinished last one included.
    pub fn markers(&self) -> Markers {
        let mut all = self.kept.clone();
        if !self.too_long {
            all.extend_from_slice(&self.line);
        }
        Markers::parse(&all)
    }
}

/// Everything that was read from one stream.
#[derive(Debug, Default)]
pub struct Captured {
    /// Its end.
    pub tail: Tail,
    /// Its markers.
    pub markers: MarkerLines,
}

/// Reads a stream to its end into a shared capture, so that what came is there even when the end never comes.
pub async fn drain(mut stream: impl AsyncRead + Unpin, into: std::sync::Arc<std::sync::Mutex<Captured>>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(n) => {
                let mut captured = into.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                captured.tail.push(&buffer[..n]);
                captured.markers.push(&buffer[..n]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_2000_characters_of_trimmed_text_row_252() {
        let mut tail = Tail::default();
        tail.push("ä".repeat(5000).as_bytes());
        tail.push(b"  \n\n");
        assert_eq!(tail.text(&Secrets::default()), "ä".repeat(2000));
        let mut short = Tail::default();
        short.push(b"\n  x\n");
        short.push(b" y  \n");
        assert_eq!(short.text(&Secrets::default()), "x\n y");
    }

    /// FS-39.
    #[test]
    fn memory_is_bounded_without_a_newline_and_without_utf8() {
        let mut captured = Captured::default();
        let chunk = vec![0xff_u8; 64 * 1024];
        for _ in 0..1600 {
            captured.tail.push(&chunk);
            captured.markers.push(&chunk);
        }
        captured.tail.push(b"\nTS_BENCH_STEP_START: 1\n");
        captured.markers.push(b"\nTS_BENCH_STEP_START: 1\n");
        // 100 MB of blanks must not push the last words out.
        let blanks = vec![b'\n'; 64 * 1024];
        for _ in 0..1600 {
            captured.tail.push(&blanks);
            captured.markers.push(&blanks);
        }
        assert!(
            captured.tail.text(&Secrets::default()).ends_with("TS_BENCH_STEP_START: 1"),
            "{}",
            captured.tail.text(&Secrets::default())
        );
        assert_eq!(captured.markers.markers().step_starts, 1);
        assert!(captured.tail.kept.capacity() + captured.tail.blank.capacity() < 512 * 1024);
        assert!(captured.markers.line.capacity() <= 2 * MARKER_LINE);
        assert_eq!(captured.tail.total(), 2 * 1600 * 64 * 1024 + 24);
    }

    #[test]
    fn markers_survive_any_cut_row_251() {
        let text = b"noise\nTS_BENCH_METRIC: server_startup_sec=307\nTS_BENCH_STEP_START: 1\nTS_BENCH_RESULT: pass";
        for size in 1..text.len() {
            let mut lines = MarkerLines::default();
            text.chunks(size).for_each(|chunk| lines.push(chunk));
            let markers = lines.markers();
            assert_eq!((markers.server_startup_sec, markers.step_starts), (Some(307), 1), "{size}");
            assert!(markers.result.is_some(), "{size}");
        }
    }
}
