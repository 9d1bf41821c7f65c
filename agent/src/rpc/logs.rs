//! Bytes of a log file as they are: from the beginning or the last lines, and on as it grows. Pieces of at
//! most 64 KiB, constant memory whatever a line's length (FS-39, FS-57).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use bytes::Bytes;
use nix::libc;
use proto::pb::v1::LogsResponse;
use tokio::sync::watch;

use super::Timing;
use super::outbox::Outbox;

/// Bytes in one message, and in one look back for line ends.
const PIECE: usize = 64 << 10;

/// Opens a log for reading: a regular file, never a link, never something that would block.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Where the last `lines` lines begin. An unfinished last line counts as one.
pub(super) fn tail_offset(file: &File, lines: u64) -> io::Result<u64> {
    let end = file.metadata()?.len();
    if lines == 0 {
        return Ok(end);
    }
    let mut buffer = vec![0; PIECE];
    let mut at = end;
    let mut seen = 0;
    while at > 0 {
        let length = usize::try_from(at).unwrap_or(PIECE).min(PIECE);
        at -= length as u64;
        file.read_exact_at(&mut buffer[..length], at)?;
        for index in (0..length).rev() {
            let position = at + index as u64;
            // The newline that ends the last line begins no further one.
            if buffer[index] == b'\n' && position + 1 != end {
                seen += 1;
                if seen == lines {
                    return Ok(position + 1);
                }
            }
        }
    }
    Ok(0)
}

/// Sends the file from `offset`; with `follow` also what is appended, until the trial is over.
///
/// Files are read on this thread: they are local, and it is the status thread's own time.
pub(super) async fn send(
    mut file: File,
    mut offset: u64,
    follow: bool,
    mut over: watch::Receiver<bool>,
    timing: Timing,
    out: Outbox<LogsResponse>,
) {
    let mut buffer = vec![0; PIECE];
    if let Err(error) = file.seek(SeekFrom::Start(offset)) {
        out.fail(broken(&error));
        return;
    }
    loop {
        // Asked before the read: what was written before the end is read after it was seen.
        let last = !follow || *over.borrow_and_update();
        loop {
            let length = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    out.fail(broken(&error));
                    return;
                }
            };
            let piece = LogsResponse { data: Bytes::copy_from_slice(&buffer[..length]), offset };
            offset += length as u64;
            match out.send(piece).await {
                Ok(true) => {}
                Ok(false) => {
                    out.fail(stalled(offset));
                    return;
                }
                Err(_) => return,
            }
        }
        if last {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(timing.pace) => {}
            _ = over.changed() => {}
            () = out.closed() => return,
        }
    }
}

fn broken(error: &io::Error) -> tonic::Status {
    let message = format!("the log cannot be read: {error}");
    proto::fault::Fault::new(tonic::Code::DataLoss, "log_unreadable", message, "look at the file itself").into()
}

fn stalled(offset: u64) -> tonic::Status {
    let message = format!("this reader took nothing for too long and was cut off before byte {offset}");
    let remedy = "read faster, or ask for less with tail";
    proto::fault::Fault::new(tonic::Code::ResourceExhausted, "watcher_stalled", message, remedy).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn tail(text: &[u8], lines: u64) -> Vec<u8> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        let offset = tail_offset(&file, lines).unwrap();
        text[usize::try_from(offset).unwrap()..].to_vec()
    }

    #[test]
    fn the_last_lines_begin_where_they_begin() {
        let text = b"one\ntwo\nthree\n";
        for (lines, expected) in [(0, &b""[..]), (1, b"three\n"), (2, b"two\nthree\n"), (3, text), (9, text)] {
            assert_eq!(tail(text, lines), expected, "{lines}");
        }
        assert_eq!(tail(b"one\ntwo\nthr", 1), b"thr");
        assert_eq!(tail(b"\n\n\n", 2), b"\n\n");
        assert_eq!(tail(b"", 5), b"");
    }

    #[test]
    fn a_line_of_many_pieces_is_one_line() {
        let mut text = b"first\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', 3 * PIECE + 17));
        text.extend(b"\nlast\n");
        assert_eq!(tail(&text, 1), b"last\n");
        assert_eq!(tail(&text, 2).len(), text.len() - 6);
        assert_eq!(tail(&text, 3).len(), text.len());
    }
}
