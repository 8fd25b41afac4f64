//! Rows on a terminal, and what keys do.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{
    Frame,
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{
    super::screen::{Page, Wanted},
    rows::{Row, Table},
    text::{LEGEND, line, titles},
};

/// Lines that are no rows: the kinds of rows, the titles of columns, and the legend.
const OTHERS: usize = 3;

/// A kind of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tab {
    Sessions,
    Cpus,
    Channels,
    Events,
}

impl Tab {
    /// Those of a session, in the order of their keys.
    const OF_SESSION: [Self; 3] = [Self::Cpus, Self::Channels, Self::Events];

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Sessions => ("Sessions", "SESSION"),
            Self::Cpus => ("1 Rings", "RINGS OF"),
            Self::Channels => ("2 Channels", "CHANNEL"),
            Self::Events => ("3 Events", "EVENT"),
        }
    }

    fn rows(self, table: &Table) -> &[Row] {
        match self {
            Self::Sessions => &table.sessions,
            Self::Cpus => &table.cpus,
            Self::Channels => &table.channels,
            Self::Events => &table.events,
        }
    }
}

/// What is chosen.
pub(super) struct View {
    tabs: &'static [Tab],
    /// The one that is shown, by its index.
    tab: usize,
    /// Rows that are above the first.
    scrolled: usize,
    /// How many fitted when it was drawn last.
    fitted: usize,
    is_paused: bool,
    interval: Duration,
    has_colour: bool,
    /// What is shown before the first interval is over.
    first: Table,
}

impl View {
    pub(super) fn new(interval: Duration, has_colour: bool, is_sums: bool, first: Table) -> Self {
        let tabs: &'static [Tab] = if is_sums { &[Tab::Sessions] } else { &Tab::OF_SESSION };
        Self { tabs, tab: 0, scrolled: 0, fitted: 0, is_paused: false, interval, has_colour, first }
    }

    fn shown(&self) -> Tab {
        self.tabs.get(self.tab).copied().unwrap_or(Tab::Sessions)
    }

    fn go_to(&mut self, tab: usize) {
        if tab < self.tabs.len() {
            (self.tab, self.scrolled) = (tab, 0);
        }
    }

    fn style(&self, colour: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.has_colour { style.fg(colour) } else { style }
    }

    fn head(&self, table: &Table) -> Line<'static> {
        let mut spans = Vec::new();
        if self.is_paused {
            spans.push(Span::styled("[stopped] ", self.style(Color::Yellow, Modifier::BOLD)));
        }
        for tab in self.tabs {
            let modifier = if *tab == self.shown() { Modifier::REVERSED } else { Modifier::empty() };
            spans.push(Span::styled(format!(" {} ", tab.names().0), self.style(Color::Cyan, modifier)));
        }
        if let (Tab::Cpus | Tab::Channels | Tab::Events, [session]) = (self.shown(), &table.sessions[..]) {
            spans.push(Span::raw(format!("  session {}", session.name)));
        }
        spans.push(Span::raw(format!("  each {:?}", self.interval)));
        Line::from(spans)
    }

    fn row(&self, row: &Row) -> Line<'static> {
        let style = match (row.lost.total(), row.active) {
            (0, true) => Style::new(),
            (0, false) => self.style(Color::DarkGray, Modifier::DIM),
            _ => self.style(Color::Red, Modifier::empty()),
        };
        Line::styled(line(row), style)
    }
}

impl Page for View {
    type Table = Table;

    fn key(&mut self, key: KeyEvent) -> Wanted {
        if key.kind == KeyEventKind::Release {
            return Wanted::Nothing;
        }
        let page = self.fitted.max(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Wanted::Quit,
            KeyCode::Char('z') if key.modifiers.contains(KeyModifiers::CONTROL) => return Wanted::Suspend,
            KeyCode::Char('q') => return Wanted::Quit,
            KeyCode::Char('+') => return Wanted::Interval(true),
            KeyCode::Char('-') => return Wanted::Interval(false),
            KeyCode::Char('1') => self.go_to(0),
            KeyCode::Char('2') => self.go_to(1),
            KeyCode::Char('3') => self.go_to(2),
            KeyCode::Tab => self.go_to((self.tab + 1) % self.tabs.len()),
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(page),
            // There are no more rows than there are: drawing sees to it.
            KeyCode::Down => self.scrolled = self.scrolled.saturating_add(1),
            KeyCode::PageDown => self.scrolled = self.scrolled.saturating_add(page),
            KeyCode::Home => self.scrolled = 0,
            KeyCode::End => self.scrolled = usize::MAX,
            _ => {}
        }
        Wanted::Nothing
    }

    fn draw(&mut self, frame: &mut Frame<'_>, table: Option<&Table>) {
        let first = std::mem::take(&mut self.first);
        let shown = table.unwrap_or(&first);
        let rows = self.shown().rows(shown);
        self.fitted = usize::from(frame.area().height).saturating_sub(OTHERS);
        self.scrolled = self.scrolled.min(rows.len().saturating_sub(self.fitted));
        let mut lines = vec![
            self.head(shown),
            Line::styled(titles(self.shown().names().1), self.style(Color::Reset, Modifier::REVERSED)),
        ];
        lines.extend(rows.iter().skip(self.scrolled).take(self.fitted).map(|row| self.row(row)));
        lines.resize(self.fitted + OTHERS - 1, Line::default());
        let legend = format!("q quit  Tab view  Space stop  + - interval   {LEGEND}");
        lines.push(Line::styled(legend, self.style(Color::DarkGray, Modifier::DIM)));
        frame.render_widget(Paragraph::new(lines), frame.area());
        self.first = first;
    }

    fn is_paused(&self) -> bool {
        self.is_paused
    }

    fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn drawn(view: &mut View, (width, height): (u16, u16)) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame, None)).unwrap();
        let buffer = terminal.backend().buffer();
        let line =
            |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn whatever_the_size_it_is_drawn_and_scrolled() {
        let row = |cpu: u32| Row { name: format!("c CPU {cpu}"), active: true, ..Row::default() };
        let table = Table {
            sessions: vec![Row { name: "web".into(), ..Row::default() }],
            cpus: (0..30).map(row).collect(),
            ..Table::default()
        };
        let mut view = View::new(Duration::from_secs(1), false, false, table);
        for size in [(1, 1), (5, 2), (20, 3), (300, 100)] {
            assert_eq!(drawn(&mut view, size).len(), usize::from(size.1));
        }
        let lines = drawn(&mut view, (160, 10));
        assert_eq!(lines[0], " 1 Rings  2 Channels  3 Events   session web  each 1s");
        assert!(lines[2].ends_with("c CPU 0") && lines[8].ends_with("c CPU 6"), "{lines:#?}");
        view.key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
        assert!(drawn(&mut view, (160, 10))[8].ends_with("c CPU 29"));
        view.key(KeyEvent::new(KeyCode::Char('3'), KeyModifiers::NONE));
        assert!(drawn(&mut view, (160, 10))[1].ends_with("EVENT"));
    }
}
