//! Tables of answers: numbers to the right, names to the left.

use crate::units::count;
use analysis::answers::TimesTold;
use stdx::terminal;

/// Which side of its column a cell is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    title: String,
    heads: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
    /// How many more there are.
    left_out: usize,
}

impl Table {
    /// A table with these columns, in parts.
    pub(super) fn new(title: &str, heads: &[&[(&'static str, Side)]]) -> Self {
        Self { title: title.to_owned(), heads: heads.concat(), rows: Vec::new(), left_out: 0 }
    }

    /// Adds a row, in the same parts. Names are those of others.
    pub(super) fn row(&mut self, cells: &[&[String]]) {
        self.rows.push(cells.concat().iter().map(|cell| terminal::name(cell)).collect());
    }

    /// There are so many more rows behind these, which nobody wants to see.
    pub(super) fn leave_out(&mut self, rows: usize) {
        self.left_out += rows;
    }

    /// The first `limit` rows, and how many there are more. Nothing of a table without rows.
    pub(super) fn text(&self, limit: usize) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let shown = &self.rows[..self.rows.len().min(limit)];
        let width = |column: usize| {
            let cells = shown.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.heads[column].0.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for ((cell, width), (_, side)) in cells.zip(&widths).zip(&self.heads) {
                line += &match side {
                    Side::Left => format!("  {cell:<width$}"),
                    Side::Right => format!("  {cell:>width$}"),
                };
            }
            line.truncate(line.trim_end().len());
            line + "\n"
        };
        let mut text = format!("\n{}\n", self.title);
        text += &line(&mut self.heads.iter().map(|(head, _)| *head));
        for row in shown {
            text += &line(&mut row.iter().map(String::as_str));
        }
        let more = self.rows.len() - shown.len() + self.left_out;
        if more != 0 {
            text += &format!("  and {more} more; -n prints them\n");
        }
        text
    }
}

/// The columns of [`times`].
pub(super) const TIMES: [(&str, Side); 6] = [
    ("COUNT", Side::Right),
    ("TOTAL", Side::Right),
    ("AVERAGE", Side::Right),
    ("P50", Side::Right),
    ("P99", Side::Right),
    ("MAX", Side::Right),
];

/// Durations in columns, which may be unknown.
pub(super) fn times(times: impl Into<Option<TimesTold>>) -> [String; 6] {
    let Some(times) = times.into() else { return [const { UNKNOWN }; 6].map(str::to_owned) };
    let TimesTold { total_ns, average_ns, p50_ns, p99_ns, most_ns, .. } = times;
    let [total, average, most] = [total_ns, average_ns, most_ns].map(duration);
    [count(times.count), total, average, perhaps_duration(p50_ns), perhaps_duration(p99_ns), most]
}

/// What stands for something that is not known.
const UNKNOWN: &str = "?";

/// What may be unknown.
pub(super) fn perhaps<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// A duration, which may be unknown.
pub(super) fn perhaps_duration(ns: Option<u64>) -> String {
    perhaps(ns, duration)
}

/// A line that says how often there was no room to tell things apart. Nothing if there always was.
pub(super) fn no_room(times: u64, of: &str) -> String {
    if times == 0 { String::new() } else { format!("{} times there was no room for {of}\n", count(times)) }
}

/// A duration with three digits or more: `17 ns`, `1.23 us`, `45.6 ms`, `123 s`.
pub(super) fn duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// A time of the recording's clock in seconds, as `report -t` prints it.
pub(super) fn seconds(time: u64) -> String {
    format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000)
}

/// A part of a whole in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}", part as f64 * 100.0 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        let texts = [0, 999, 1_234, 45_600, 999_400, 1_500_000, 2_000_000_000, 123_400_000_000].map(duration);
        assert_eq!(texts, ["0 ns", "999 ns", "1.23 us", "45.6 us", "999 us", "1.50 ms", "2.00 s", "123 s"]);
    }

    #[test]
    fn a_table_shows_the_first_rows_and_hostile_names_as_text() {
        let mut table = Table::new("Things", &[&[("NAME", Side::Left), ("COUNT", Side::Right)]]);
        assert_eq!(table.text(1), "");
        table.row(&[&["a\x1b[2J\nb".to_owned(), "7".to_owned()]]);
        table.row(&[&["c".to_owned(), "8".to_owned()]]);
        let text = table.text(1);
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains("a\\x1b[2J\\x0ab"), "{text}");
        assert!(text.ends_with("  and 1 more; -n prints them\n"), "{text}");
        table.leave_out(3);
        assert!(table.text(1).ends_with("  and 4 more; -n prints them\n"));
        assert!(table.text(2).ends_with("  and 3 more; -n prints them\n"));
    }
}
