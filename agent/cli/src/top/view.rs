//! What is on the screen, and what keys change of it.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{
    Frame,
    layout::Rect,
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{
    rates::{Row, Sort, Table, arranged},
    screen::{Page, Wanted},
    text::{head, per_second},
};
use crate::units::count;
use stdx::terminal;

/// Rows above the table: the head, the views, and the titles of the columns.
const ABOVE: u16 = 3;
/// With fewer columns than this, shares and totals are left out, so that names have room.
const NARROW: u16 = 64;
/// The longest text that rows can be chosen by.
const TEXT_MAX: usize = 64;

/// What is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tab {
    #[default]
    Events,
    Processes,
    Cpus,
}

impl Tab {
    const ALL: [(Self, &str); 3] =
        [(Self::Events, "1 Events"), (Self::Processes, "2 Processes"), (Self::Cpus, "3 CPUs")];

    fn next(self) -> Self {
        match self {
            Self::Events => Self::Processes,
            Self::Processes => Self::Cpus,
            Self::Cpus => Self::Events,
        }
    }

    fn rows(self, table: &Table) -> &[Row] {
        match self {
            Self::Events => &table.events,
            Self::Processes => &table.processes,
            Self::Cpus => &table.cpus,
        }
    }
}

/// What is chosen.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is switched by a key of its own")]
pub(super) struct View {
    tab: Tab,
    sort: Sort,
    is_reversed: bool,
    /// Rows with this text are shown.
    text: String,
    /// Whether that is being typed.
    is_typing: bool,
    /// Whether what is shown stays.
    is_paused: bool,
    shows_keys: bool,
    /// Rows that are above the first.
    scrolled: usize,
    /// How many fitted when it was drawn last, and how many there were.
    fitted: usize,
    of: usize,
    /// Whether there was little room beside each other.
    is_narrow: bool,
    interval: Duration,
    /// Whether colours are used.
    has_colour: bool,
}

const KEYS: [&str; 9] = [
    "1 2 3 Tab   events, processes, CPUs",
    "s           sort by rate, total, name",
    "r           reverse the order",
    "/           only rows with a text; Enter, Esc",
    "Space       stop and go on showing",
    "+ -         longer, shorter interval",
    "Up Down PgUp PgDn Home End   scroll",
    "h ?         these keys",
    "q           quit",
];

impl View {
    pub(super) fn new(interval: Duration, has_colour: bool) -> Self {
        Self { interval, has_colour, ..Self::default() }
    }

    fn typed(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(c) if self.text.len() < TEXT_MAX => self.text.push(c),
            KeyCode::Backspace => drop(self.text.pop()),
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => (self.is_typing, self.text) = (false, String::new()),
            _ => {}
        }
        self.scrolled = 0;
    }

    fn go_to(&mut self, tab: Tab) {
        (self.tab, self.scrolled) = (tab, 0);
    }

    fn scroll(&mut self, rows: usize) {
        self.scrolled = self.scrolled.saturating_add(rows).min(self.of.saturating_sub(self.fitted));
    }

    fn style(&self, colour: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.has_colour { style.fg(colour) } else { style }
    }

    fn head(&self, table: Option<&Table>) -> Line<'static> {
        let text = table.map_or_else(|| "tracer-agent top".to_owned(), head);
        let is_lossy = table.is_some_and(|table| table.skipped != 0);
        let colour = if is_lossy { Color::Red } else { Color::Reset };
        let mut spans = Vec::new();
        if self.is_paused {
            spans.push(Span::styled("[stopped] ", self.style(Color::Yellow, Modifier::BOLD)));
        }
        spans.push(Span::styled(text, self.style(colour, Modifier::BOLD)));
        Line::from(spans)
    }

    fn tabs(&self, table: Option<&Table>) -> Line<'static> {
        let mut spans = Vec::new();
        for (tab, name) in Tab::ALL {
            let modifier = if tab == self.tab { Modifier::REVERSED } else { Modifier::empty() };
            spans.push(Span::styled(format!(" {name} "), self.style(Color::Cyan, modifier)));
        }
        let order = if self.is_reversed { ", reversed" } else { "" };
        spans.push(Span::raw(format!("  by {}{order}  each {:?}", self.sort.name(), self.interval)));
        if let Some((used, room)) = table.map(|table| table.keys) {
            spans.push(Span::raw(format!("  maps {} % full", (used * 100).checked_div(room).unwrap_or(0))));
        }
        Line::from(spans)
    }

    fn rows(&mut self, table: &Table, room: usize) -> Vec<Line<'static>> {
        let rows = arranged(self.tab.rows(table), self.sort, self.is_reversed, &self.text);
        (self.of, self.fitted) = (rows.len(), room);
        self.scrolled = self.scrolled.min(rows.len().saturating_sub(room));
        let all = table.rate();
        let line = |row: &&Row| {
            let text = self.line(row, all);
            let is_lossy = row.skipped.is_some_and(|skipped| skipped != 0);
            let style = match (row.count, is_lossy) {
                (_, true) => self.style(Color::Red, Modifier::empty()),
                (0, false) => self.style(Color::DarkGray, Modifier::DIM),
                _ => Style::new(),
            };
            Line::styled(text, style)
        };
        rows.iter().skip(self.scrolled).take(room).map(line).collect()
    }

    fn line(&self, row: &Row, all: f64) -> String {
        let share = if all > 0.0 { row.rate / all * 100.0 } else { 0.0 };
        let rate = per_second(row.rate);
        let numbers = if self.is_narrow {
            format!("{rate:>11}")
        } else {
            format!("{rate:>11} {share:>5.1} {:>14}", count(row.total))
        };
        match (self.tab, row.pid) {
            (Tab::Processes, Some(pid)) => {
                format!("{numbers} {pid:>8} {:<15} {}", row.name, row.event.as_deref().unwrap_or(""))
            }
            _ => match row.skipped.filter(|skipped| *skipped != 0) {
                Some(skipped) => format!("{numbers} {}  {} SKIPPED", row.name, count(skipped)),
                None => format!("{numbers} {}", row.name),
            },
        }
    }

    fn foot(&self) -> Line<'static> {
        if self.is_typing || !self.text.is_empty() {
            let cursor = if self.is_typing { "_" } else { "  (Esc: all)" };
            // What is typed or pasted goes to the terminal, too.
            return Line::raw(format!("/{}{cursor}", terminal::name(&self.text)));
        }
        Line::styled(
            "q quit  Tab view  s sort  / choose  Space stop  h keys",
            self.style(Color::DarkGray, Modifier::DIM),
        )
    }
}

impl Page for View {
    type Table = Table;

    fn key(&mut self, key: KeyEvent) -> Wanted {
        if key.kind == KeyEventKind::Release {
            return Wanted::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Wanted::Quit,
                KeyCode::Char('z') => Wanted::Suspend,
                _ => Wanted::Nothing,
            };
        }
        if self.is_typing {
            self.typed(key.code);
            return Wanted::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Wanted::Quit,
            KeyCode::Char('+') => return Wanted::Interval(true),
            KeyCode::Char('-') => return Wanted::Interval(false),
            KeyCode::Char('1' | 'e') => self.go_to(Tab::Events),
            KeyCode::Char('2' | 'p') => self.go_to(Tab::Processes),
            KeyCode::Char('3' | 'c') => self.go_to(Tab::Cpus),
            KeyCode::Tab => self.go_to(self.tab.next()),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => (self.is_typing, self.text) = (true, String::new()),
            KeyCode::Char('h' | '?') => self.shows_keys = !self.shows_keys,
            KeyCode::Esc => {
                self.text.clear();
                self.shows_keys = false;
            }
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Down => self.scroll(1),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(self.fitted.max(1)),
            KeyCode::PageDown => self.scroll(self.fitted.max(1)),
            KeyCode::Home => self.scrolled = 0,
            KeyCode::End => self.scroll(usize::MAX),
            _ => {}
        }
        Wanted::Nothing
    }

    fn draw(&mut self, frame: &mut Frame<'_>, table: Option<&Table>) {
        let area = frame.area();
        self.is_narrow = area.width < NARROW;
        let mut lines = vec![self.head(table), self.tabs(table)];
        if self.shows_keys {
            lines.push(Line::default());
            lines.extend(KEYS.iter().map(|key| Line::raw(*key)));
        } else if let Some(table) = table {
            lines.push(Line::styled(
                titles(self.tab, self.is_narrow),
                self.style(Color::Reset, Modifier::REVERSED),
            ));
            let room = usize::from(area.height.saturating_sub(ABOVE + 1));
            lines.extend(self.rows(table, room));
        } else {
            lines.push(Line::raw("waiting for the first interval"));
        }
        let above = Rect { height: area.height.saturating_sub(1).max(1).min(area.height), ..area };
        frame.render_widget(Paragraph::new(lines), above);
        if area.height > 1 {
            let below = Rect { y: area.y + area.height - 1, height: 1, ..area };
            frame.render_widget(Paragraph::new(self.foot()), below);
        }
    }

    fn is_paused(&self) -> bool {
        self.is_paused
    }

    fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }
}

fn titles(tab: Tab, is_narrow: bool) -> String {
    let numbers = if is_narrow {
        format!("{:>11}", "EVENTS/S")
    } else {
        format!("{:>11} {:>5} {:>14}", "EVENTS/S", "%", "TOTAL")
    };
    match tab {
        Tab::Events => format!("{numbers} EVENT"),
        Tab::Processes => format!("{numbers} {:>8} {:<15} MOST OF", "PID", "NAME"),
        Tab::Cpus => format!("{numbers} CPU"),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn table() -> Table {
        let row = |name: String, pid: Option<u32>, rate: u64| Row {
            event: pid.map(|_| "sched:sched_switch".to_owned()),
            name,
            pid,
            rate: rate as f64,
            count: rate,
            total: 10 * rate,
            skipped: (pid.is_none() && rate == 7).then_some(5),
        };
        Table {
            elapsed_ns: 10_000_000_000,
            interval_ns: 1_000_000_000,
            count: 100,
            total: 1000,
            keys: (10, 100),
            events: (0..50).map(|rate| row(format!("sys:event_{rate}"), None, rate)).collect(),
            processes: (0..30)
                .map(|pid| row(format!("proc{pid}"), Some(pid + 100), u64::from(pid)))
                .collect(),
            cpus: vec![row("0".to_owned(), None, 60), row("1".to_owned(), None, 40)],
            ..Table::default()
        }
    }

    fn drawn(view: &mut View, (width, height): (u16, u16)) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let table = table();
        terminal.draw(|frame| view.draw(frame, Some(&table))).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| {
            let cells = (0..width).map(|x| buffer[(x, y)].symbol());
            cells.collect::<String>().trim_end().to_owned()
        };
        (0..height).map(line).collect()
    }

    fn press(view: &mut View, code: KeyCode) -> Wanted {
        view.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn types(view: &mut View, text: &str) {
        for c in text.chars() {
            press(view, KeyCode::Char(c));
        }
    }

    #[test]
    fn each_view_is_drawn_with_the_highest_rates_first() {
        let mut view = View::new(Duration::from_secs(1), false);
        let lines = drawn(&mut view, (80, 24));
        assert_eq!(lines[0], "10.0 s: 100 events/s, 1 000 events");
        assert!(lines[1].contains("by rate  each 1s  maps 10 % full"), "{lines:#?}");
        assert_eq!(lines[2], "   EVENTS/S     %          TOTAL EVENT");
        assert_eq!(lines[3], "         49  49.0            490 sys:event_49");
        assert_eq!(lines[22], "         30  30.0            300 sys:event_30");
        assert!(lines[23].starts_with("q quit"), "{lines:#?}");
        press(&mut view, KeyCode::Char('2'));
        let lines = drawn(&mut view, (80, 24));
        assert_eq!(lines[3], "         29  29.0            290      129 proc29          sched:sched_switch");
        press(&mut view, KeyCode::Tab);
        assert_eq!(drawn(&mut view, (80, 24))[3], "         60  60.0            600 0");
    }

    #[test]
    fn rows_are_scrolled_sorted_and_chosen() {
        let mut view = View::default();
        drawn(&mut view, (80, 24));
        press(&mut view, KeyCode::End);
        assert!(drawn(&mut view, (80, 24))[22].ends_with("sys:event_0"));
        press(&mut view, KeyCode::PageUp);
        assert!(drawn(&mut view, (80, 24))[22].ends_with("sys:event_20"));
        press(&mut view, KeyCode::Home);
        press(&mut view, KeyCode::Char('r'));
        assert!(drawn(&mut view, (80, 24))[3].ends_with("sys:event_0"));
        press(&mut view, KeyCode::Char('r'));
        types(&mut view, "/event_1q");
        let lines = drawn(&mut view, (80, 24));
        assert_eq!((lines[23].as_str(), lines[3].as_str()), ("/event_1q_", ""));
        press(&mut view, KeyCode::Backspace);
        assert_eq!(press(&mut view, KeyCode::Enter), Wanted::Nothing);
        let lines = drawn(&mut view, (80, 24));
        assert!(lines[3].ends_with("sys:event_19") && lines[13].ends_with("sys:event_1"), "{lines:#?}");
        press(&mut view, KeyCode::Esc);
        assert!(drawn(&mut view, (80, 24))[3].ends_with("sys:event_49"));
        assert!(drawn(&mut view, (80, 60)).iter().any(|line| line.ends_with("sys:event_7  5 SKIPPED")));
    }

    #[test]
    fn names_have_room_on_a_narrow_terminal() {
        let lines = drawn(&mut View::default(), (40, 8));
        assert_eq!((lines[2].as_str(), lines[3].as_str()), ("   EVENTS/S EVENT", "         49 sys:event_49"));
    }

    #[test]
    fn whatever_the_size_it_is_drawn() {
        for size in [(1, 1), (5, 2), (20, 3), (40, 4), (80, 5), (300, 100)] {
            let mut view = View::default();
            for key in ['1', '2', '3', 'h', 'h', '/'] {
                press(&mut view, KeyCode::Char(key));
                assert_eq!(drawn(&mut view, size).len(), usize::from(size.1));
            }
        }
    }

    #[test]
    fn keys_ask_for_what_others_do() {
        let mut view = View::default();
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        assert_eq!(press(&mut view, KeyCode::Char('q')), Wanted::Quit);
        assert_eq!(view.key(control('c')), Wanted::Quit);
        assert_eq!(view.key(control('z')), Wanted::Suspend);
        assert_eq!(press(&mut view, KeyCode::Char('+')), Wanted::Interval(true));
        assert_eq!(press(&mut view, KeyCode::Char('-')), Wanted::Interval(false));
        press(&mut view, KeyCode::Char(' '));
        assert!(view.is_paused && drawn(&mut view, (80, 24))[0].starts_with("[stopped] "));
        press(&mut view, KeyCode::Char('h'));
        assert!(drawn(&mut view, (80, 24)).iter().any(|line| line.starts_with("q           quit")));
        // What is typed never reaches the terminal as it is, and has an end.
        press(&mut view, KeyCode::Char('/'));
        for _ in 0..200 {
            press(&mut view, KeyCode::Char('\u{9b}'));
        }
        assert!(view.text.len() <= TEXT_MAX + 1);
        let foot = &drawn(&mut view, (80, 24))[23];
        assert!(foot.starts_with(r"/\xc2\x9b"), "{foot:?}");
        assert_eq!(view.key(control('c')), Wanted::Quit);
    }
}
