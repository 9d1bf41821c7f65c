//! The terminal loop: what comes from the source, the keyboard, this host's cards and the clock goes through
//! [`ViewState::step`] and onto the screen. The terminal is given back on every way out.

use std::io;
use std::path::Path;
use std::time::Duration;

use crossterm::event::{Event as TermEvent, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use super::state::{Connection, Effect, Gpu, Input, Key, ViewState};
use super::{Source, Told, render};
use crate::agent_link::{Client, LinkEvent, Target};

/// Between two drawings that no key asked for.
const TICK: Duration = Duration::from_millis(200);
/// Between two readings of the cards.
const GPU_EVERY: Duration = Duration::from_secs(1);

/// The agent's clock, kept running here between its messages.
#[derive(Debug, Clone, Copy)]
struct Clock {
    at_ms: u64,
    since: Instant,
}

impl Clock {
    fn now_ms(self, state: &ViewState) -> u64 {
        match state.connection {
            Connection::Live if state.status.finished.is_none() => {
                let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.at_ms.saturating_add(passed).max(state.status.at_ms)
            }
            // Nothing moves any more, or it moves with the journal.
            Connection::Live
            | Connection::Replay
            | Connection::Waiting(_)
            | Connection::Lost(_)
            | Connection::Ended(_) => state.status.at_ms,
        }
    }
}

/// Shows the trial until the person leaves.
pub async fn run(source: Source, sysfs: &Path) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let outcome = watch(&mut terminal, source, sysfs).await;
    ratatui::try_restore()?;
    outcome
}

async fn watch(terminal: &mut ratatui::DefaultTerminal, mut source: Source, sysfs: &Path) -> io::Result<()> {
    let connection = match source {
        Source::Live { .. } => Connection::Waiting("connecting".into()),
        Source::Replay(_) => Connection::Replay,
    };
    let mut state = ViewState::new(connection);
    let mut clock = Clock { at_ms: 0, since: Instant::now() };
    let mut keys = EventStream::new();
    let (answer, mut answers) = mpsc::channel(4);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut gpus_at = Instant::now();
    let mut more = true;
    loop {
        let mut draw = false;
        let input = tokio::select! {
            biased;
            _ = terminate.recv() => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
            event = keys.next() => match event {
                None => return Ok(()),
                Some(event) => {
                    draw = true;
                    match event? {
                        TermEvent::Key(key) => pressed(key),
                        TermEvent::Resize(..)
                        | TermEvent::FocusGained
                        | TermEvent::FocusLost
                        | TermEvent::Mouse(_)
                        | TermEvent::Paste(_) => None,
                    }
                }
            },
            Some(text) = answers.recv() => Some(Input::AbortAnswer(text)),
            _ = tick.tick() => {
                draw = true;
                (gpus_at <= Instant::now()).then(|| {
                    gpus_at = Instant::now() + GPU_EVERY;
                    Input::Gpus(gpus(sysfs))
                })
            }
            told = source.next(), if more => match told {
                None => {
                    more = false;
                    None
                }
                Some(Told::ReplayOver) => Some(Input::ReplayOver),
                Some(Told::Link(told)) => {
                    if let LinkEvent::Connected { peer, .. } = &*told {
                        clock = Clock { at_ms: peer.at_ms, since: Instant::now() };
                    }
                    Some(Input::Told(told))
                }
            },
        };
        match input.and_then(|input| state.step(input)) {
            Some(Effect::Quit) => return Ok(()),
            Some(Effect::Abort) => {
                if let Source::Live { target, .. } = &source {
                    tokio::spawn(abort(target.clone(), answer.clone()));
                }
            }
            None => {}
        }
        if draw {
            terminal.draw(|frame| render::draw(frame, &state, clock.now_ms(&state)))?;
        }
    }
}

async fn abort(target: Target, answer: mpsc::Sender<String>) {
    let asked = async { Client::connect(&target).await?.abort("asked for in controller watch").await };
    let text = match asked.await {
        Ok((true, _)) => "abort: accepted, the trial is being stopped".to_owned(),
        Ok((false, _)) => "abort: the trial was being stopped already".to_owned(),
        Err(error) => format!("abort: {error}"),
    };
    // Whoever asked may have left.
    let _ = answer.send(text).await;
}

/// A key as the view knows it; Ctrl-C leaves.
#[expect(clippy::wildcard_enum_match_arm, reason = "a keyboard has more keys than the view")]
fn pressed(key: KeyEvent) -> Option<Input> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let key = match key.code {
        KeyCode::Char('c') if control => return Some(Input::Leave),
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::End => Key::End,
        _ => return None,
    };
    Some(Input::Key(key))
}

/// GPU memory of the cards that sysfs shows.
pub fn gpus(sysfs: &Path) -> Vec<Gpu> {
    let read = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let mut cards: Vec<(u32, Gpu)> = std::fs::read_dir(sysfs.join("class/drm"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let card = entry.file_name().into_string().ok()?;
            // Connectors are called card0-DP-1.
            let number = card.strip_prefix("card")?.parse().ok()?;
            let device = entry.path().join("device");
            let used = read(&device.join("mem_info_vram_used"))?;
            Some((number, Gpu { card, used, total: read(&device.join("mem_info_vram_total")) }))
        })
        .collect();
    cards.sort_by_key(|(number, _)| *number);
    cards.into_iter().map(|(_, gpu)| gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_read_in_order_and_connectors_are_not_cards() {
        let dir = tempfile::tempdir().unwrap();
        for (card, used) in
            [("card10", "5\n"), ("card2", "7\n"), ("card2-DP-1", "9\n"), ("cardx", "1\n"), ("card3", "?")]
        {
            let device = dir.path().join("class/drm").join(card).join("device");
            std::fs::create_dir_all(&device).unwrap();
            std::fs::write(device.join("mem_info_vram_used"), used).unwrap();
        }
        std::fs::write(dir.path().join("class/drm/card2/device/mem_info_vram_total"), "8\n").unwrap();
        let seen: Vec<_> = gpus(dir.path()).into_iter().map(|gpu| (gpu.card, gpu.used, gpu.total)).collect();
        assert_eq!(seen, [("card2".to_owned(), 7, Some(8)), ("card10".to_owned(), 5, None)]);
    }
}
