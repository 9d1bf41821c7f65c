//! A journal as a source: each event after the time that had passed before it, divided by the speed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use proto::event::Event;
use tokio::sync::mpsc;

use super::Told;
use crate::agent_link::LinkEvent;

/// Longest line read; the agent writes far shorter ones.
const LINE_MAX: u64 = 4 << 20;

/// A journal that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system's words.
    #[error("journal {path}: {source}")]
    Io {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// No event in it.
    #[error("journal {path} holds no event; name an events.<token>.jsonl")]
    Empty {
        /// Which.
        path: String,
    },
}

/// Times real time; `f64::INFINITY` plays at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed(f64);

impl std::str::FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(speed) if speed > 0.0 => Ok(Self(speed)),
            Ok(_) | Err(_) => Err(format!("must be a number above 0, such as 1, 10 or inf, got {text:?}")),
        }
    }
}

/// Everything in the journal, in order. Lines that cannot be read are said so and passed over; a last line
/// without its end is what a dying agent left and is passed over too.
pub fn read(path: &Path) -> Result<Vec<LinkEvent>, JournalError> {
    let failed = |source| JournalError::Io { path: path.display().to_string(), source };
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let mut told = Vec::new();
    let mut next_seq = 1;
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        line.clear();
        let length = (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line).map_err(failed)?;
        if length == 0 {
            break;
        }
        number += 1;
        match serde_json::from_slice::<Event>(&line) {
            Ok(event) => {
                if event.seq > next_seq {
                    told.push(LinkEvent::Gap { first: next_seq, last: event.seq - 1 });
                }
                next_seq = next_seq.max(event.seq.saturating_add(1));
                told.push(LinkEvent::Event(event));
            }
            Err(error) => told.push(LinkEvent::Unreadable { reason: format!("line {number}: {error}") }),
        }
    }
    if told.iter().any(|item| matches!(item, LinkEvent::Event(_))) {
        Ok(told)
    } else {
        Err(JournalError::Empty { path: path.display().to_string() })
    }
}

/// Plays it. Must be called inside a tokio runtime.
pub fn play(told: Vec<LinkEvent>, Speed(speed): Speed) -> mpsc::Receiver<Told> {
    let (send, receive) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut clock = None;
        for item in told {
            if let LinkEvent::Event(event) = &item {
                let passed = event.at_ms.saturating_sub(clock.unwrap_or(event.at_ms));
                clock = Some(event.at_ms);
                tokio::time::sleep(Duration::from_millis(passed).div_f64(speed.min(1e12))).await;
            }
            if send.send(Told::Link(Box::new(item))).await.is_err() {
                return;
            }
        }
        // The reader may be gone already.
        let _ = send.send(Told::ReplayOver).await;
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const RECORDED: &str = include_str!("recorded.jsonl");

    fn journal(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_damaged_journal_shows_what_is_left() {
        let mut lines: Vec<&str> = RECORDED.lines().collect();
        lines[2] = "{\"seq\":3,";
        lines[4] = r#"{"seq":5,"at_ms":1,"event":"of_tomorrow"}"#;
        let told = read(journal(&lines.join("\n")).path()).unwrap();
        let unreadable = told.iter().filter(|item| matches!(item, LinkEvent::Unreadable { .. })).count();
        let gaps: Vec<_> = told.iter().filter(|item| matches!(item, LinkEvent::Gap { .. })).cloned().collect();
        assert_eq!(unreadable, 2);
        assert_eq!(gaps, [LinkEvent::Gap { first: 3, last: 3 }, LinkEvent::Gap { first: 5, last: 5 }]);
        assert!(matches!(read(journal("").path()), Err(JournalError::Empty { .. })));
        assert!(matches!(read(journal("no json\n").path()), Err(JournalError::Empty { .. })));
    }

    #[test]
    fn speed_is_above_zero() {
        for bad in ["0", "-1", "nan", "fast", ""] {
            assert!(bad.parse::<Speed>().is_err(), "{bad}");
        }
        assert!("inf".parse::<Speed>().is_ok() && "0.5".parse::<Speed>().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn it_takes_its_own_time() {
        let told = read(journal(RECORDED).path()).unwrap();
        for (speed, milliseconds) in [("1", 910), ("10", 91)] {
            let start = tokio::time::Instant::now();
            let mut playing = play(told.clone(), speed.parse().unwrap());
            let mut count = 0;
            while playing.recv().await.is_some() {
                count += 1;
            }
            let took = start.elapsed().as_millis();
            assert_eq!(count, told.len() + 1);
            // Each sleep is rounded up to a millisecond.
            assert!((milliseconds..milliseconds + 40).contains(&took), "{speed}: {took}");
        }
    }
}
