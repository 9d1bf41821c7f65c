//! Watching without a terminal: a line per event for people, or the event as JSON for programs. Data goes to
//! stdout, words about the connection to stderr where stdout is JSON.

use std::io::{self, Write};

use super::{GONE_AFTER, Source, Told, words};
use crate::agent_link::LinkEvent;

/// How a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The trial's end was seen, or the journal's.
    Seen,
    /// The agent is gone and said nothing.
    Gone,
}

/// Writes until the source ends. An agent that stays away is asked after with `alive` every [`GONE_AFTER`].
pub async fn run(mut source: Source, json: bool, out: &mut impl Write, alive: impl Fn() -> bool) -> io::Result<End> {
    let mut away = true;
    loop {
        let told = if away {
            let Ok(told) = tokio::time::timeout(GONE_AFTER, source.next()).await else {
                if alive() {
                    continue;
                }
                say(out, json, None, "the agent is gone")?;
                return Ok(End::Gone);
            };
            told
        } else {
            source.next().await
        };
        let told = match told {
            None | Some(Told::ReplayOver) => return Ok(End::Seen),
            Some(Told::Link(told)) => *told,
        };
        away = matches!(told, LinkEvent::Waiting { .. } | LinkEvent::Lost { .. });
        let ended = matches!(told, LinkEvent::Ended { .. });
        if json && let LinkEvent::Event(event) = &told {
            serde_json::to_writer(&mut *out, event)?;
            out.write_all(b"\n")?;
        } else if let LinkEvent::Event(event) = &told {
            if let Some(text) = words::event(event) {
                say(out, json, Some(event.at_ms), &text)?;
            }
        } else if let LinkEvent::Log(lines) = &told {
            for line in lines.data.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !json) {
                let name = lines.source.as_str();
                say(out, json, Some(lines.at_ms), &format!("{name}| {}", words::plain(line)))?;
            }
        } else if let Some(text) = words::link(&told) {
            say(out, json, None, &text)?;
        }
        out.flush()?;
        if ended {
            return Ok(End::Seen);
        }
    }
}

fn say(out: &mut impl Write, json: bool, at_ms: Option<u64>, text: &str) -> io::Result<()> {
    if json {
        return writeln!(io::stderr(), "controller watch: {text}");
    }
    match at_ms {
        #[expect(clippy::cast_precision_loss, reason = "tenths of a second are shown")]
        Some(ms) => writeln!(out, "[{:9.1} s] {text}", ms as f64 / 1000.0),
        None => writeln!(out, "[   -       ] {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::replay;
    use super::*;

    async fn played(json: bool) -> (End, String) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(include_bytes!("recorded.jsonl")).unwrap();
        let told = replay::read(file.path()).unwrap();
        let mut out = Vec::new();
        let source = Source::Replay(replay::play(told, "inf".parse().unwrap()));
        let end = run(source, json, &mut out, || false).await.unwrap();
        (end, String::from_utf8(out).unwrap())
    }

    #[tokio::test]
    async fn json_lines_are_the_journal_again() {
        let (end, text) = played(true).await;
        assert_eq!(end, End::Seen);
        let value = |text: &str| -> Vec<serde_json::Value> {
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        assert_eq!(value(&text), value(include_str!("recorded.jsonl")));
    }

    #[tokio::test]
    async fn a_trial_in_plain_lines() {
        insta::assert_snapshot!(played(false).await.1);
    }
}
