//! A picture on a terminal that is drawn over and over.
//!
//! Each picture is drawn by itself, from the upper left corner on, and leaves the terminal as a shell wants
//! it: the cursor is to be seen and stands below. So nothing is to be put right at the end, whatever ends it.
//! The sequences are those of ECMA-48 (CUP, EL, ED) and, for the cursor and for what becomes of long lines,
//! of the VT100 and VT220 (DECAWM, DECTCEM).

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// What stands for the rows of a table that have no room.
const MORE: &str = "  ...";

/// Least lines of a table: the empty one above, the title, the heads of the columns, and a row or two.
const LEAST: usize = 5;

/// How much there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Size {
    /// That of a terminal; of one that does not know, the usual one.
    pub(super) fn of(terminal: impl AsFd) -> Self {
        let size = tcgetwinsize(terminal).ok();
        let of = |number: Option<u16>, usual: usize| match number {
            None | Some(0) => usual,
            Some(number) => number.into(),
        };
        Self { rows: of(size.map(|size| size.ws_row), 24), columns: of(size.map(|size| size.ws_col), 80) }
    }
}

/// The bytes that draw a text, of which so much is to be seen as there is room for. The `first` picture puts
/// what is on the screen above it, where terminals keep what has scrolled away.
pub(super) fn picture(text: &str, size: Size, first: bool) -> String {
    let mut drawn = if first { "\r\n".repeat(size.rows.saturating_sub(1)) } else { String::new() };
    // The cursor hides while it moves. What is too long, as characters of double width make it, is cut off.
    drawn += "\x1b[?25l\x1b[?7l\x1b[H";
    // The cursor stands in the last row.
    for line in fit(text, Size { rows: size.rows.saturating_sub(1), ..size }) {
        drawn += &line;
        drawn += "\x1b[K\r\n";
    }
    drawn + "\x1b[J\x1b[?7h\x1b[?25h"
}

/// The lines of a text with tables, each behind an empty line, that there is room for. The longest tables are
/// cut first.
fn fit(text: &str, size: Size) -> Vec<String> {
    let mut tables: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        match tables.last_mut() {
            Some(table) if !line.is_empty() => table.push(line),
            _ => tables.push(vec![line]),
        }
    }
    let mut excess = tables.iter().map(Vec::len).sum::<usize>().saturating_sub(size.rows);
    while excess > 0
        && let Some(table) =
            tables.iter_mut().filter(|table| table.len() > LEAST).max_by_key(|table| table.len())
    {
        // Of the last two lines the one that stands for the others remains.
        table.truncate(table.len() - 2);
        table.push(MORE);
        excess -= 1;
    }
    let lines = tables.concat().into_iter().take(size.rows);
    lines.map(|line| line.chars().take(size.columns).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal with these rows and columns, as far as pictures need it.
    struct Screen {
        size: Size,
        cells: Vec<Vec<char>>,
        row: usize,
        column: usize,
        scrolled: usize,
        shows_cursor: bool,
        wraps: bool,
    }

    impl Screen {
        fn new(rows: usize, columns: usize) -> Self {
            let cells = vec![vec![' '; columns]; rows];
            let size = Size { rows, columns };
            Self { size, cells, row: 0, column: 0, scrolled: 0, shows_cursor: true, wraps: true }
        }

        fn write(&mut self, text: &str) {
            let mut rest = text;
            while let Some(c) = rest.chars().next() {
                rest = &rest[c.len_utf8()..];
                match c {
                    '\r' => self.column = 0,
                    '\n' => self.feed(),
                    '\x1b' => {
                        let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                        self.obey(&rest[..=end]);
                        rest = &rest[end + 1..];
                    }
                    c => self.put(c),
                }
            }
        }

        fn feed(&mut self) {
            if self.row + 1 < self.size.rows {
                self.row += 1;
            } else {
                self.cells.remove(0);
                self.cells.push(vec![' '; self.size.columns]);
                self.scrolled += 1;
            }
        }

        fn put(&mut self, c: char) {
            assert!(self.column < self.size.columns || !self.wraps, "a line is too long");
            let column = self.column.min(self.size.columns - 1);
            self.cells[self.row][column] = c;
            self.column += 1;
        }

        fn obey(&mut self, sequence: &str) {
            let column = self.column.min(self.size.columns);
            match sequence {
                "[H" => (self.row, self.column) = (0, 0),
                "[K" => self.cells[self.row][column..].fill(' '),
                "[J" => {
                    self.cells[self.row][column..].fill(' ');
                    self.cells[self.row + 1..].iter_mut().for_each(|row| row.fill(' '));
                }
                "[?7l" => self.wraps = false,
                "[?7h" => self.wraps = true,
                "[?25l" => self.shows_cursor = false,
                "[?25h" => self.shows_cursor = true,
                other => panic!("{other:?}"),
            }
        }

        fn lines(&self) -> Vec<String> {
            let line = |row: &Vec<char>| row.iter().collect::<String>().trim_end().to_owned();
            self.cells.iter().map(line).collect()
        }
    }

    fn table(title: &str, rows: usize) -> String {
        let rows = (0..rows).map(|row| format!("  {title} {row}\n"));
        [format!("\n{title}\n  HEAD\n")].into_iter().chain(rows).collect()
    }

    #[test]
    fn what_fits_is_drawn_as_it_is_in_place_of_what_was_there() {
        let text = format!("head\n{}", table("one", 3));
        let mut screen = Screen::new(10, 20);
        screen.write("$ tracer-agent\r\n");
        screen.write(&picture(&text, screen.size, true));
        assert_eq!((screen.scrolled, screen.row, screen.column), (1, 7, 0));
        let drawn = ["head", "", "one", "  HEAD", "  one 0", "  one 1", "  one 2", "", "", ""];
        assert_eq!(screen.lines(), drawn);
        assert!(screen.shows_cursor && screen.wraps);
        screen.write(&picture("head of the next\n", screen.size, false));
        assert_eq!((screen.scrolled, screen.row), (1, 1));
        assert_eq!(screen.lines()[..2], ["head of the next", ""]);
        assert!(screen.lines()[1..].iter().all(String::is_empty), "{:?}", screen.lines());
    }

    #[test]
    fn the_longest_tables_are_cut_until_all_have_room() {
        let text = format!("head\n{}{}{}", table("a", 2), table("b", 50), table("c", 9));
        let mut screen = Screen::new(24, 20);
        screen.write(&picture(&text, screen.size, true));
        screen.write(&picture(&text, screen.size, false));
        let lines = screen.lines();
        assert_eq!(screen.row, 23);
        assert_eq!(lines[0], "head");
        let count = |name: &str| lines.iter().filter(|line| line.starts_with(&format!("  {name} "))).count();
        assert_eq!((count("a"), count("b"), count("c")), (2, 5, 4), "{lines:#?}");
        assert_eq!(lines.iter().filter(|line| **line == MORE).count(), 2, "{lines:#?}");
    }

    #[test]
    fn whatever_the_size_the_text_fits() {
        let long = "x".repeat(300);
        let text =
            format!("head {long}\n{}{}{}", table(&long, 9), table("\u{65e5}\u{672c}", 30), table("c", 1));
        for (rows, columns) in [(1, 1), (2, 3), (5, 80), (8, 10), (24, 80), (60, 400)] {
            let mut screen = Screen::new(rows, columns);
            for first in [true, false, false] {
                screen.write(&picture(&text, screen.size, first));
                assert_eq!(screen.scrolled, 0, "{rows} x {columns}: nothing was there to scroll away");
                assert!(screen.shows_cursor && screen.wraps);
            }
        }
    }
}
