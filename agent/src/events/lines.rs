//! Bytes to lines in constant memory: long lines are split, never collected (failure scenario FS-39).

/// Splits a stream of bytes at newlines, and at a bound where there is none.
#[derive(Debug)]
pub struct LineSplitter {
    pending: Vec<u8>,
    max: usize,
}

impl LineSplitter {
    /// Lines of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { pending: Vec::new(), max: max.max(1) }
    }

    /// Takes bytes and hands every complete line to `line`, without its newline. Carriage returns end a line
    /// too: progress bars have no other end.
    pub fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(&[u8])) {
        while !bytes.is_empty() {
            let room = self.max - self.pending.len();
            let end = bytes.iter().take(room).position(|b| matches!(b, b'\n' | b'\r'));
            let (head, rest, whole) = match end {
                Some(at) => (&bytes[..at], &bytes[at + 1..], true),
                None if bytes.len() >= room => (&bytes[..room], &bytes[room..], true),
                None => (bytes, &[][..], false),
            };
            self.pending.extend_from_slice(head);
            if whole {
                if !self.pending.is_empty() {
                    line(&self.pending);
                }
                self.pending.clear();
            }
            bytes = rest;
        }
    }

    /// What was left without an end.
    pub fn finish(&mut self, line: impl FnOnce(&[u8])) {
        if !self.pending.is_empty() {
            line(&self.pending);
            self.pending.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(max: usize, chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut splitter = LineSplitter::new(max);
        let mut lines = Vec::new();
        for chunk in chunks {
            splitter.push(chunk, |l| lines.push(l.to_vec()));
        }
        splitter.finish(|l| lines.push(l.to_vec()));
        lines
    }

    #[test]
    fn lines_survive_any_chunking() {
        let text = b"one\ntwo\r\nthree\n\nfour";
        let whole = split(100, &[text]);
        assert_eq!(whole, [&b"one"[..], b"two", b"three", b"four"]);
        let bytewise: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(split(100, &bytewise), whole);
    }

    /// FS-39.
    #[test]
    fn no_newline_is_split_at_the_bound() {
        let lines = split(4, &[b"abcdefghij\nk"]);
        assert_eq!(lines, [&b"abcd"[..], b"efgh", b"ij", b"k"]);
    }
}
