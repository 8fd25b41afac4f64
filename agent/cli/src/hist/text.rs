//! Tables and bars.

use std::fmt::Write as _;

use super::super::units::count;
use super::notes;
use analysis::buckets::Buckets;
use analysis::groups::Groups;
use analysis::histogram::{Histogram, Question, Row};
use analysis::key::Key;
use analysis::latency::{Latency, LatencyBy, Unpaired};
use analysis::spread::Spread;
use stdx::terminal;

/// Columns of the longest bar.
const BAR: u64 = 40;
/// Bars of eight heights.
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn histogram(question: &Question, answer: &Histogram, rows: usize) -> String {
    let mut table = Table::default();
    let mut heads: Vec<_> = question.keys.iter().map(Key::text).collect();
    heads.push("count".to_owned());
    for value in &question.values {
        heads.extend(["sum", "min", "avg", "max"].map(|what| format!("{what}({})", value.text())));
    }
    heads.push(String::new());
    table.rows.push(heads);
    let most = answer.rows.iter().map(|row| row.count).max().unwrap_or(0);
    for row in answer.rows.iter().take(rows) {
        table.rows.push(cells(row.keys.clone(), row, most));
    }
    if answer.overflow.count > 0 {
        let mut keys = vec![String::new(); question.keys.len()];
        if let Some(first) = keys.first_mut() {
            "(others)".clone_into(first);
        }
        table.rows.push(cells(keys, &answer.overflow, 0));
    }
    let mut text = table.text(question.keys.len());
    let left_out = answer.rows.len() - rows;
    let _ = write!(text, "\n{} records, {} rows", count(answer.records), count(answer.rows.len() as u64));
    if left_out > 0 {
        let _ = write!(text, ", {} not shown", count(left_out as u64));
    }
    text.push('\n');
    text
}

fn cells(mut cells: Vec<String>, row: &Row, most: u64) -> Vec<String> {
    for key in &mut cells {
        // A thread may give itself any name.
        *key = terminal::name(key);
    }
    cells.push(row.count.to_string());
    for value in &row.values {
        cells.extend([value.sum, value.least, value.average(), value.most].map(|number| number.to_string()));
    }
    cells.push(bar(row.count, most));
    cells
}

pub(super) fn latency(answer: &Latency, nanoseconds: bool) -> String {
    let times = &answer.times;
    let mut text = String::new();
    let time = |time: u64| time_text(time, nanoseconds);
    if times.count() == 0 {
        text.push_str(NO_PAIR);
    } else {
        let [p50, p90, p99] = times.percentiles([50, 90, 99]);
        for (name, value) in [
            ("count", times.count().to_string()),
            ("min", time(times.least())),
            ("avg", time(times.average())),
            ("p50", time(p50)),
            ("p90", time(p90)),
            ("p99", time(p99)),
            ("max", time(times.most())),
        ] {
            let _ = writeln!(text, "{name:>6}  {value}");
        }
        let most = times.powers().map(|(_, count)| count).max().unwrap_or(0);
        let sparks: String = times.powers().map(|(_, count)| spark(count, most)).collect();
        let _ = writeln!(text, "\n        {sparks}\n");
        powers(&mut text, times, time);
    }
    unpaired(&mut text, &answer.unpaired);
    text
}

pub(super) fn latency_by(answer: &LatencyBy, nanoseconds: bool) -> String {
    let mut text = String::new();
    if answer.groups.count() == 0 {
        text.push_str(NO_PAIR);
    } else {
        groups(&mut text, &answer.by, &answer.groups, |time| time_text(time, nanoseconds));
    }
    unpaired(&mut text, &answer.unpaired);
    text
}

pub(super) fn spread(answer: &Spread) -> String {
    let mut text = String::new();
    if answer.groups.count() == 0 {
        text.push_str("no event has a number of 0 or more in this field\n");
    } else {
        groups(&mut text, &answer.by, &answer.groups, |number| number.to_string());
    }
    notes(
        &mut text,
        &[
            (answer.negative, "events with a negative value are not counted"),
            (answer.without_value, "events without a number in this field are not counted"),
        ],
    );
    text
}

const NO_PAIR: &str = "no first event is followed by a second one with the same key\n";

/// A row for each key, then its distribution.
fn groups(text: &mut String, by: &[Key], groups: &Groups, show: impl Fn(u64) -> String) {
    let mut table = Table::default();
    let mut heads: Vec<_> = by.iter().map(|key| key.field.clone()).collect();
    heads.extend(["count", "total", "min", "avg", "p50", "p90", "p99", "max", ""].map(str::to_owned));
    table.rows.push(heads);
    let sum =
        |numbers: &Buckets| u64::try_from(numbers.sum()).map_or_else(|_| numbers.sum().to_string(), &show);
    let mut row = |mut cells: Vec<String>, numbers: &Buckets| {
        let [p50, p90, p99] = numbers.percentiles([50, 90, 99]);
        cells.extend([numbers.count().to_string(), sum(numbers)]);
        let rest = [numbers.least(), numbers.average(), p50, p90, p99, numbers.most()];
        cells.extend(rest.map(&show));
        cells.push(String::new());
        table.rows.push(cells);
    };
    // A thread may give itself any name.
    let safe = |key: &[String]| key.iter().map(|value| terminal::name(value)).collect::<Vec<_>>();
    for group in &groups.rows {
        row(safe(&group.key), &group.numbers);
    }
    let (keys, more) = groups.keys;
    let left = keys.saturating_sub(groups.rows.len() as u64);
    let others = match (left, more) {
        (_, true) => "(others)".to_owned(),
        (1, false) => "(1 other)".to_owned(),
        (left, false) => format!("({} others)", count(left)),
    };
    if groups.others.count() != 0 {
        let mut cells = vec![String::new(); by.len()];
        if let Some(first) = cells.first_mut() {
            first.clone_from(&others);
        }
        row(cells, &groups.others);
    }
    text.push_str(&table.text(by.len()));
    let rows = groups.rows.iter().map(|group| (safe(&group.key).join(", "), &group.numbers));
    let rest = Some((others, &groups.others)).filter(|(_, numbers)| numbers.count() != 0);
    for (title, numbers) in rows.chain(rest) {
        let _ = writeln!(text, "\n{title}");
        powers(text, numbers, &show);
    }
}

/// A bar for each power of two.
fn powers(text: &mut String, numbers: &Buckets, show: impl Fn(u64) -> String) {
    let most = numbers.powers().map(|(_, count)| count).max().unwrap_or(0);
    for (from, number) in numbers.powers() {
        let to = from.max(1).saturating_mul(if from == 0 { 1 } else { 2 });
        let line = format!("{:>12} - {:<12} {number:>10}  {}", show(from), show(to), bar(number, most));
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn unpaired(text: &mut String, unpaired: &Unpaired) {
    let Unpaired { restarted, open, unmatched, overflow } = *unpaired;
    notes(
        text,
        &[
            (restarted, "first events were followed by another first event with the same key"),
            (open, "first events were not followed by a second one"),
            (unmatched, "second events had no first one"),
            (overflow, "first events were ignored, as too many were pending; raise --max-keys"),
        ],
    );
}

/// A time in the clock's unit.
fn time_text(time: u64, nanoseconds: bool) -> String {
    if nanoseconds { duration(time) } else { time.to_string() }
}

/// A time for people: `1.234 ms`.
fn duration(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.3} us", nanoseconds as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3} ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.3} s", nanoseconds as f64 / 1e9),
    }
}

fn bar(number: u64, most: u64) -> String {
    let width = if most == 0 { 0 } else { (u128::from(number) * u128::from(BAR)).div_ceil(u128::from(most)) };
    "#".repeat(width as usize)
}

fn spark(number: u64, most: u64) -> char {
    if number == 0 || most == 0 {
        return ' ';
    }
    let height = (u128::from(number) * SPARKS.len() as u128).div_ceil(u128::from(most)) as usize;
    SPARKS[height.clamp(1, SPARKS.len()) - 1]
}

/// Columns as wide as their widest cell.
#[derive(Default)]
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// The first `left` columns and the last one are aligned to the left, the numbers between them to the
    /// right.
    fn text(&self, left: usize) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = if column < left || column + 1 == columns {
                    write!(line, "{cell:<width$}  ")
                } else {
                    write!(line, "{cell:>width$}  ")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}
