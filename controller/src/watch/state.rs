//! What the live view shows, as a pure fold of what the link tells and the keys pressed. No clock, no I/O:
//! the same inputs give the same screen, live or replayed.

use std::collections::VecDeque;

use proto::event::Step;
use proto::status::Status;

use super::words;
use crate::agent_link::{LinkEvent, LogLines, LogSource};

/// Log lines kept for scrolling and search.
const LINES_KEPT: usize = 5000;
/// Characters kept of a line.
const LINE_CHARS: usize = 2000;

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Which log.
    pub source: LogSource,
    /// Of which bench step.
    pub step: Option<Step>,
    /// On the agent's clock.
    pub at_ms: u64,
    /// Safe to show.
    pub text: String,
}

/// How the view is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// Nobody has answered yet.
    Waiting(String),
    /// Events come.
    Live,
    /// It was there and will be tried again.
    Lost(String),
    /// Nothing more will come.
    Ended(String),
    /// A journal is being played.
    Replay,
}

/// GPU memory of one card of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// `card0`.
    pub card: String,
    /// Bytes.
    pub used: u64,
    /// Bytes, where the driver says so.
    pub total: Option<u64>,
}

/// Which log lines are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Both.
    All,
    /// One.
    Only(LogSource),
}

/// What the keys are for at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Watching.
    Watch,
    /// The keys are explained.
    Help,
    /// A search word is being typed.
    Search(String),
    /// Are you sure?
    ConfirmAbort,
}

/// A key, whatever the terminal calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// One line up.
    Up,
    /// One line down.
    Down,
    /// Half a page up.
    PageUp,
    /// Half a page down.
    PageDown,
    /// To the newest line.
    End,
}

/// What there is to take in.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// From the link or the journal.
    Told(Box<LinkEvent>),
    /// From the keyboard.
    Key(Key),
    /// Leave, whatever the keys are for.
    Leave,
    /// A reading of this host's cards.
    Gpus(Vec<Gpu>),
    /// How an abort went.
    AbortAnswer(String),
    /// The journal ended.
    ReplayOver,
}

/// What must be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Ask the agent to stop the trial.
    Abort,
    /// Leave.
    Quit,
}

/// All that is shown.
#[derive(Debug, Clone)]
pub struct ViewState {
    /// The trial.
    pub status: Status,
    /// The connection.
    pub connection: Connection,
    /// What the agent says about versions, if anything.
    pub notice: String,
    /// Log lines, oldest first.
    pub lines: VecDeque<LogLine>,
    /// Log lines that did not come.
    pub lines_dropped: u64,
    /// Events that did not come.
    pub events_missing: u64,
    /// Items that this build cannot read.
    pub unreadable: u64,
    /// Cards of this host.
    pub gpus: Vec<Gpu>,
    /// Which lines are shown.
    pub shown: Shown,
    /// Only lines that hold this.
    pub search: String,
    /// How many of the newest shown lines are below the pane; above 0 the pane does not move.
    pub scroll: usize,
    /// The pane does not move.
    pub paused: bool,
    /// What keys are for.
    pub mode: Mode,
    /// Last word on an abort.
    pub message: String,
}

impl ViewState {
    /// Nothing seen yet.
    pub fn new(connection: Connection) -> Self {
        Self {
            status: Status::default(),
            connection,
            notice: String::new(),
            lines: VecDeque::new(),
            lines_dropped: 0,
            events_missing: 0,
            unreadable: 0,
            gpus: Vec::new(),
            shown: Shown::All,
            search: String::new(),
            scroll: 0,
            paused: false,
            mode: Mode::Watch,
            message: String::new(),
        }
    }

    /// Takes one input in.
    pub fn step(&mut self, input: Input) -> Option<Effect> {
        match input {
            Input::Told(told) => {
                self.told(*told);
                None
            }
            Input::Gpus(gpus) => {
                self.gpus = gpus;
                None
            }
            Input::AbortAnswer(answer) => {
                self.message = answer;
                None
            }
            Input::ReplayOver => {
                let ended = self.status.finished.is_some();
                let word = if ended { "end of the journal" } else { "the journal ends without an end of the trial" };
                self.connection = Connection::Ended(word.into());
                None
            }
            Input::Leave => Some(Effect::Quit),
            Input::Key(key) => self.key(key),
        }
    }

    fn told(&mut self, told: LinkEvent) {
        match told {
            LinkEvent::Waiting { reason } => self.connection = Connection::Waiting(reason),
            LinkEvent::Connected { peer, .. } => {
                self.connection = Connection::Live;
                self.notice = words::plain(peer.notice.as_bytes());
            }
            LinkEvent::Event(event) => self.status.apply(&event),
            LinkEvent::Gap { first, last } => {
                self.events_missing = self.events_missing.saturating_add((last + 1).saturating_sub(first));
            }
            LinkEvent::Log(lines) => self.log(&lines),
            LinkEvent::LogsDropped { lines, .. } => self.lines_dropped = self.lines_dropped.saturating_add(lines),
            LinkEvent::Unreadable { .. } => self.unreadable += 1,
            LinkEvent::Lost { reason } => self.connection = Connection::Lost(reason),
            LinkEvent::Ended { reason } => self.connection = Connection::Ended(reason),
        }
    }

    fn log(&mut self, batch: &LogLines) {
        for line in batch.data.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let mut text = words::plain(line);
            if let Some((cut, _)) = text.char_indices().nth(LINE_CHARS) {
                text.truncate(cut);
            }
            let line = LogLine { source: batch.source, step: batch.step, at_ms: batch.at_ms, text };
            if (self.paused || self.scroll > 0) && self.shows(&line) {
                self.scroll += 1;
            }
            self.lines.push_back(line);
            if self.lines.len() > LINES_KEPT {
                self.lines.pop_front();
            }
        }
        self.scroll = self.scroll.min(self.lines.len());
    }

    /// Whether the pane shows this line.
    pub fn shows(&self, line: &LogLine) -> bool {
        let source = match self.shown {
            Shown::All => true,
            Shown::Only(source) => line.source == source,
        };
        source && (self.search.is_empty() || line.text.contains(&self.search))
    }

    /// Whether an abort can be asked for.
    pub fn can_abort(&self) -> bool {
        self.connection == Connection::Live && self.status.finished.is_none()
    }

    fn key(&mut self, key: Key) -> Option<Effect> {
        match &mut self.mode {
            Mode::Watch => self.key_in_watch(key),
            Mode::Help => {
                self.mode = Mode::Watch;
                None
            }
            Mode::Search(word) => {
                match key {
                    Key::Char(c) => word.push(c),
                    Key::Backspace => drop(word.pop()),
                    Key::Enter => {
                        self.search = std::mem::take(word);
                        self.scroll = 0;
                        self.mode = Mode::Watch;
                    }
                    Key::Escape => self.mode = Mode::Watch,
                    Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::End => {}
                }
                None
            }
            Mode::ConfirmAbort => {
                self.mode = Mode::Watch;
                // Only this key; everything else, Enter too, means no.
                (key == Key::Char('y')).then(|| {
                    "abort: asked".clone_into(&mut self.message);
                    Effect::Abort
                })
            }
        }
    }

    fn key_in_watch(&mut self, key: Key) -> Option<Effect> {
        match key {
            Key::Char('q') => return Some(Effect::Quit),
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Char('a') => {
                if self.can_abort() {
                    self.mode = Mode::ConfirmAbort;
                } else {
                    "there is nothing to abort".clone_into(&mut self.message);
                }
            }
            Key::Char('s') => {
                self.shown = match self.shown {
                    Shown::All => Shown::Only(LogSource::Server),
                    Shown::Only(LogSource::Server) => Shown::Only(LogSource::Bench),
                    Shown::Only(LogSource::Bench) => Shown::All,
                };
                self.scroll = 0;
            }
            Key::Char('/') => self.mode = Mode::Search(self.search.clone()),
            Key::Char('p' | ' ') => {
                self.paused = !self.paused;
                if !self.paused {
                    self.scroll = 0;
                }
            }
            Key::Escape => {
                self.search.clear();
                self.message.clear();
            }
            Key::Up => self.scroll_by(1),
            Key::PageUp => self.scroll_by(10),
            Key::Down => self.scroll = self.scroll.saturating_sub(1),
            Key::PageDown => self.scroll = self.scroll.saturating_sub(10),
            Key::End => self.scroll = 0,
            Key::Char(_) | Key::Enter | Key::Backspace => {}
        }
        None
    }

    fn scroll_by(&mut self, lines: usize) {
        let shown = self.lines.iter().filter(|line| self.shows(line)).count();
        self.scroll = (self.scroll + lines).min(shown.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(data: &[u8]) -> Input {
        let lines = LogLines { source: LogSource::Server, step: None, at_ms: 1, data: data.to_vec() };
        Input::Told(Box::new(LinkEvent::Log(lines)))
    }

    fn live() -> ViewState {
        ViewState::new(Connection::Live)
    }

    fn press(state: &mut ViewState, keys: &str) -> Option<Effect> {
        keys.chars().map(|c| state.step(Input::Key(Key::Char(c)))).last().flatten()
    }

    #[test]
    fn an_abort_takes_two_keys_and_a_living_trial() {
        let mut state = live();
        assert_eq!(press(&mut state, "a"), None);
        assert_eq!(state.mode, Mode::ConfirmAbort);
        assert_eq!(state.step(Input::Key(Key::Enter)), None);
        assert_eq!(state.mode, Mode::Watch);
        assert_eq!(press(&mut state, "ay"), Some(Effect::Abort));
        assert_eq!(press(&mut state, "y"), None);
        let mut over = ViewState::new(Connection::Ended("trial over".into()));
        assert_eq!(press(&mut over, "ay"), None);
    }

    #[test]
    fn pause_and_scroll_keep_the_same_lines_in_sight() {
        let mut state = live();
        state.step(logs(b"a\nb\nc\n"));
        state.step(Input::Key(Key::Up));
        state.step(logs(b"d\ne\n"));
        assert_eq!(state.scroll, 3);
        press(&mut state, "p");
        press(&mut state, "p");
        assert_eq!(state.scroll, 0);
        for _ in 0..99 {
            state.step(Input::Key(Key::PageUp));
        }
        assert_eq!(state.scroll, 4);
    }

    #[test]
    fn search_and_source_choose_lines() {
        let mut state = live();
        state.step(logs(b"one error\ntwo\n"));
        press(&mut state, "/err");
        state.step(Input::Key(Key::Enter));
        let seen: Vec<_> = state.lines.iter().filter(|line| state.shows(line)).map(|line| line.text.as_str()).collect();
        assert_eq!(seen, ["one error"]);
        state.step(Input::Key(Key::Escape));
        press(&mut state, "ss");
        assert_eq!(state.shown, Shown::Only(LogSource::Bench));
        assert_eq!(state.lines.iter().filter(|line| state.shows(line)).count(), 0);
    }

    #[test]
    fn lines_are_bounded() {
        let mut state = live();
        for _ in 0..200 {
            state.step(logs(&b"x\n".repeat(100)));
        }
        assert_eq!(state.lines.len(), LINES_KEPT);
        state.step(logs(&[vec![b'y'; 100_000], vec![b'\n']].concat()));
        assert_eq!(state.lines.back().map(|line| line.text.len()), Some(LINE_CHARS));
    }

    #[test]
    fn q_is_a_letter_while_a_word_is_typed() {
        let mut state = live();
        assert_eq!(press(&mut state, "/q"), None);
        assert_eq!(state.mode, Mode::Search("q".into()));
    }
}
