//! The full-screen view: a pure drawing of [`ViewState`] at a moment of the agent's clock.

use std::fmt::Write;

use proto::event::Phase;
use proto::status::PASS;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Table};

use super::page::Spread;
use super::state::{Connection, Mode, Shown, ViewState};
use super::words::{self, duration, figure};

const GOOD: Style = Style::new().fg(Color::Green);
const BAD: Style = Style::new().fg(Color::Red);
const WARN: Style = Style::new().fg(Color::Yellow);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws the state as it is at `now_ms` of the agent's clock.
pub fn draw(frame: &mut Frame<'_>, state: &ViewState, now_ms: u64) {
    let area = frame.area();
    // Two thirds of what is left after head and foot go to figures, the rest to the log, which needs six lines.
    let body = area.height.saturating_sub(3);
    let middle = (body * 2 / 5).clamp(5, 18);
    let lower = (body / 4).clamp(4, 12);
    let [head, middle, lower, log, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(middle),
        Constraint::Length(lower),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(area);
    let [phases_area, steps_area] = Layout::horizontal([Constraint::Length(30), Constraint::Min(20)]).areas(middle);
    let [processes_area, host_area] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(lower);
    draw_head(frame, head, state, now_ms);
    draw_phases(frame, phases_area, state, now_ms);
    draw_steps(frame, steps_area, state, now_ms);
    draw_processes(frame, processes_area, state);
    draw_host(frame, host_area, state, now_ms);
    draw_log(frame, log, state);
    draw_foot(frame, foot, state);
    match &state.mode {
        Mode::Help => popup(frame, area, "keys", HELP),
        Mode::ConfirmAbort => popup(frame, area, "abort", ABORT),
        Mode::Watch | Mode::Search(_) => {}
    }
}

const HELP: &[&str] = &[
    "q        leave; the trial goes on",
    "a        abort the trial (asks first)",
    "s        log of: both, server, bench",
    "/        show only lines that hold a word; Esc shows all again",
    "p space  hold the log, and let it go",
    "up down PgUp PgDn End   move in the log",
    "any key closes this",
];

const ABORT: &[&str] =
    &["Stop this trial now? It ends with 143 and does not pass.", "", "y  stop it        any other key  no"];

fn titled(title: &str) -> Block<'static> {
    Block::new().borders(Borders::ALL).border_style(DIM).title(Span::styled(format!(" {title} "), BOLD))
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &ViewState, now_ms: u64) {
    let status = &state.status;
    let (word, style) = match &state.connection {
        Connection::Live => ("live".to_owned(), GOOD),
        Connection::Replay => ("replay".to_owned(), GOOD),
        Connection::Waiting(reason) => (format!("waiting for the agent: {reason}"), WARN),
        Connection::Lost(reason) => (format!("connection lost, trying again: {reason}"), BAD),
        Connection::Ended(reason) => (format!("ended: {reason}"), DIM),
    };
    let clean = |text: &str| words::plain(text.as_bytes());
    let mut first = vec![
        Span::styled(format!("trial {}", clean(&status.token)), BOLD),
        Span::raw(format!("  {}  ", clean(&status.model))),
        Span::styled(clean(&word), style),
    ];
    if !state.notice.is_empty() {
        first.push(Span::styled(format!("  {}", state.notice), WARN));
    }
    let style = match (&status.finished, &status.stopping) {
        (Some(ending), _) if ending.reason == PASS => GOOD,
        (Some(_), _) => BAD,
        (None, Some(_)) => WARN,
        (None, None) => Style::new(),
    };
    let second = Line::from(vec![
        Span::styled(words::headline(status, now_ms), style),
        Span::styled(format!("   {} since start", duration(now_ms)), DIM),
    ]);
    frame.render_widget(Paragraph::new(vec![Line::from(first), second]), area);
}

fn draw_phases(frame: &mut Frame<'_>, area: Rect, state: &ViewState, now_ms: u64) {
    let phases = &state.status.phases;
    let room = usize::from(area.height.saturating_sub(2));
    let rows = phases.iter().enumerate().skip(phases.len().saturating_sub(room)).map(|(index, span)| {
        let next = phases.get(index + 1).map(|next| next.from_ms);
        let over = span.phase == Phase::Done;
        let length = if over { String::new() } else { duration(next.unwrap_or(now_ms).saturating_sub(span.from_ms)) };
        let style = if next.is_some() || over { Style::new() } else { BOLD };
        Row::new([words::phase(span.phase), length]).style(style)
    });
    let table = Table::new(rows, [Constraint::Min(18), Constraint::Length(8)]).block(titled("phases"));
    frame.render_widget(table, area);
}

fn draw_steps(frame: &mut Frame<'_>, area: Rect, state: &ViewState, now_ms: u64) {
    let status = &state.status;
    let mut rows: Vec<Row<'_>> = status
        .results
        .iter()
        .map(|result| {
            let figures = &result.figures;
            let style = if result.verdict == PASS { Style::new() } else { BAD };
            Row::new([
                words::step(result.step),
                words::plain(result.verdict.as_bytes()),
                figure(figures.median_ttft_ms),
                figure(figures.p99_ttft_ms),
                figure(figures.median_tpot_ms),
                figure(figures.output_throughput),
            ])
            .style(style)
        })
        .collect();
    if let Some(run) = &status.running {
        let since = duration(now_ms.saturating_sub(run.from_ms));
        rows.push(Row::new([words::step(run.step), since]).style(BOLD));
    }
    if let Some(spread) = Spread::of(status) {
        let with =
            |value: Option<(f64, f64)>| value.map_or_else(|| "-".into(), |(_, percent)| format!("\u{b1}{percent:.1}%"));
        let cells = [
            "spread".into(),
            String::new(),
            with(spread.ttft),
            String::new(),
            with(spread.tpot),
            with(spread.throughput),
        ];
        rows.push(Row::new(cells).style(DIM));
    }
    // The newest rows are the ones to see.
    let room = usize::from(area.height.saturating_sub(3));
    let rows = rows.split_off(rows.len().saturating_sub(room));
    let widths = [
        Constraint::Length(10),
        Constraint::Min(7),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(6),
    ];
    let header = Row::new(["step", "verdict", "TTFT", "p99", "TPOT", "tok/s"]).style(DIM);
    let title = format!("steps: {} of {} passed, times in ms", status.steps_passed, status.steps);
    frame.render_widget(Table::new(rows, widths).header(header).block(titled(&title)), area);
}

fn draw_processes(frame: &mut Frame<'_>, area: Rect, state: &ViewState) {
    let rows = state.status.processes.iter().map(|process| {
        Row::new([
            process.pid.to_string(),
            process.role.clone(),
            words::plain(process.name.as_bytes()),
            format!("{:.0}%", process.cpu_percent),
            words::bytes(process.rss_bytes),
        ])
    });
    let widths = [
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Min(6),
        Constraint::Length(5),
        Constraint::Length(10),
    ];
    frame.render_widget(Table::new(rows, widths).block(titled("processes")), area);
}

fn draw_host(frame: &mut Frame<'_>, area: Rect, state: &ViewState, now_ms: u64) {
    let status = &state.status;
    let clean = |text: &str| words::plain(text.as_bytes());
    let mut lines = Vec::new();
    for finding in status.findings.iter().rev().take(2) {
        lines.push(Line::styled(format!("finding: {}", clean(&finding.detail)), WARN));
    }
    for answer in &status.health {
        let since = duration(now_ms.saturating_sub(answer.at_ms));
        let style = if answer.answer.starts_with("200") { GOOD } else { WARN };
        lines.push(Line::styled(format!("{}: {}, {since} ago", clean(&answer.path), clean(&answer.answer)), style));
    }
    for gpu in &state.gpus {
        let total = gpu.total.map_or_else(String::new, |total| format!(" of {}", words::bytes(total)));
        lines.push(Line::raw(format!("{}: {}{total}", gpu.card, words::bytes(gpu.used))));
    }
    frame.render_widget(Paragraph::new(lines).block(titled("health, gpus, findings")), area);
}

fn draw_log(frame: &mut Frame<'_>, area: Rect, state: &ViewState) {
    let which = match state.shown {
        Shown::All => "log of server and bench".to_owned(),
        Shown::Only(source) => format!("log of {}", source.as_str()),
    };
    let mut title = which;
    if !state.search.is_empty() {
        let _ = write!(title, ", with {:?}", state.search);
    }
    if state.lines_dropped > 0 {
        let _ = write!(title, ", {} lines left out", state.lines_dropped);
    }
    if state.paused || state.scroll > 0 {
        let _ = write!(title, ", held: {} newer below", state.scroll);
    }
    let room = usize::from(area.height.saturating_sub(2));
    let mut lines: Vec<Line<'_>> = state
        .lines
        .iter()
        .rev()
        .filter(|line| state.shows(line))
        .skip(state.scroll)
        .take(room)
        .map(|line| {
            let head = match line.step {
                None => "server| ".to_owned(),
                Some(step) => format!("{}| ", words::step(step)),
            };
            Line::from(vec![Span::styled(head, DIM), Span::raw(line.text.as_str())])
        })
        .collect();
    lines.reverse();
    frame.render_widget(Paragraph::new(lines).block(titled(&title)), area);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, state: &ViewState) {
    let mut text = match &state.mode {
        Mode::Search(word) => format!("show lines with: {word}_   Enter takes it, Esc does not"),
        Mode::Watch | Mode::Help | Mode::ConfirmAbort => {
            "q leave  a abort  s source  / search  p hold  ? keys".to_owned()
        }
    };
    if state.events_missing > 0 {
        let _ = write!(text, "   {} events missing", state.events_missing);
    }
    if state.unreadable > 0 {
        let _ = write!(text, "   {} items not readable by this build", state.unreadable);
    }
    let mut spans = vec![Span::styled(text, DIM)];
    if !state.message.is_empty() {
        spans.push(Span::styled(format!("   {}", state.message), WARN));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn popup(frame: &mut Frame<'_>, area: Rect, title: &str, lines: &[&'static str]) {
    let longest = lines.iter().map(|line| line.len()).max().unwrap_or(0);
    let width = u16::try_from(longest + 4).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let text: Vec<Line<'_>> = lines.iter().map(|line| Line::raw(*line)).collect();
    let block = titled(title).border_style(Style::new());
    frame.render_widget(Paragraph::new(text).block(block), place);
}

#[cfg(test)]
mod tests {
    use super::super::state::{Gpu, Input, Key};
    use super::*;
    use crate::agent_link::{LinkEvent, LogLines, LogSource};
    use proto::event::{Event, Step, StepKind};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn told(event: LinkEvent) -> Input {
        Input::Told(Box::new(event))
    }

    fn recorded(events: usize) -> ViewState {
        let mut state = ViewState::new(Connection::Live);
        for line in include_str!("recorded.jsonl").lines().take(events) {
            state.step(told(LinkEvent::Event(serde_json::from_str::<Event>(line).unwrap())));
        }
        state
    }

    fn busy() -> ViewState {
        let mut state = recorded(16);
        let log = |source, step, data: &str| {
            told(LinkEvent::Log(LogLines { source, step, at_ms: 500, data: data.as_bytes().to_vec() }))
        };
        state.step(log(LogSource::Server, None, "loading weights\n\x1b[32mINFO\x1b[0m serving on 18300\n"));
        let step = Step { kind: StepKind::Measured, number: 1, total: 2 };
        state.step(log(LogSource::Bench, Some(step), "100%|\u{2588}\u{2588}| 4/4\n"));
        state.step(told(LinkEvent::LogsDropped { source: None, lines: 12 }));
        let card = |card: &str, used| Gpu { card: card.into(), used, total: Some(288 << 30) };
        state.step(Input::Gpus(vec![card("card0", 256 << 30), card("card1", 1 << 20)]));
        state
    }

    fn screen(state: &ViewState, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state, 625)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_running_trial_at_80_by_24() {
        insta::assert_snapshot!(screen(&busy(), 80, 24));
    }

    #[test]
    fn a_running_trial_at_200_by_60() {
        insta::assert_snapshot!(screen(&busy(), 200, 60));
    }

    #[test]
    fn a_trial_that_is_over() {
        let mut state = recorded(24);
        state.step(told(LinkEvent::Ended { reason: "trial over".into() }));
        insta::assert_snapshot!(screen(&state, 80, 24));
    }

    #[test]
    fn the_question_before_an_abort() {
        let mut state = busy();
        state.step(Input::Key(Key::Char('a')));
        insta::assert_snapshot!(screen(&state, 80, 24));
    }

    #[test]
    fn no_size_is_too_small() {
        for (width, height) in [(1, 1), (5, 3), (20, 10), (80, 1), (1, 24)] {
            for key in ['?', 'a', '/'] {
                let mut state = busy();
                state.step(Input::Key(Key::Char(key)));
                screen(&state, width, height);
            }
        }
    }

    #[test]
    fn a_replayed_journal_ends_on_the_screen_of_the_live_trial() {
        let live = recorded(24);
        let mut replayed = ViewState::new(Connection::Replay);
        for line in include_str!("recorded.jsonl").lines() {
            replayed.step(told(LinkEvent::Event(serde_json::from_str(line).unwrap())));
        }
        replayed.connection = live.connection.clone();
        assert_eq!(screen(&live, 200, 60), screen(&replayed, 200, 60));
    }
}
