//! Rows as text.

use std::fmt::Write as _;

use super::{
    super::text::per_second,
    rows::{Row, Table},
};
use crate::units::{bytes, count};
use api::usage::RingUsage;

/// What stands for what nobody knows.
const UNKNOWN: &str = "?";
/// What stands for rings where there are none.
const NONE: &str = "-";
/// Characters of a gauge.
const GAUGE: u64 = 10;

/// A table for each kind of rows, with this many rows of each at most.
pub(super) fn text(table: &Table, rows: usize) -> String {
    let mut text = String::new();
    let kinds = [
        ("SESSION", &table.sessions),
        ("CHANNEL", &table.channels),
        ("RINGS OF", &table.cpus),
        ("EVENT", &table.events),
    ];
    for (title, of) in kinds {
        if of.is_empty() && title != "SESSION" {
            continue;
        }
        let _ = writeln!(text, "{}", titles(title));
        for row in of.iter().take(rows) {
            let _ = writeln!(text, "{}", line(row));
        }
        let more = of.len().saturating_sub(rows);
        if more != 0 {
            let _ = writeln!(text, "... {} more", count(more as u64));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{LEGEND}");
    text
}

/// What the signs mean.
pub(super) const LEGEND: &str = "?: not known   -: no rings, everything is stored";

/// The titles of the columns.
pub(super) fn titles(of: &str) -> String {
    format!(
        "{:<27} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}  {of}",
        "FULL", "EVENTS/S", "EVENTS", "LOST/S", "LOST", "STORED/S", "OVERWRITTEN"
    )
}

/// A row.
pub(super) fn line(row: &Row) -> String {
    let rate = |rate: Option<f64>| rate.map_or_else(|| UNKNOWN.to_owned(), per_second);
    let stored = row.stored_per_second.map_or_else(|| UNKNOWN.to_owned(), |rate| bytes(rate.round() as u64));
    let overwritten = row.overwritten_bytes.map_or_else(|| UNKNOWN.to_owned(), bytes);
    let mut text = format!(
        "{:<27} {:>11} {:>11} {:>11} {:>11} {stored:>11} {overwritten:>11}  {}",
        full(row),
        rate(row.events_per_second),
        count(row.events),
        rate(row.lost_per_second),
        count(row.lost.total()),
        row.name
    );
    let causes: Vec<String> =
        row.lost.causes().into_iter().filter(|(_, lost)| *lost != 0).map(cause).collect();
    if !causes.is_empty() {
        let _ = write!(text, "  lost: {}", causes.join(", "));
    }
    if row.overwrites {
        text += "  (overwrites)";
    }
    if !row.active {
        text += "  (stopped)";
    }
    text
}

fn cause((name, lost): (&str, u64)) -> String {
    format!("{name} {}", count(lost))
}

/// How full rings are: as a gauge, in percent of the fullest one, and in bytes of all of them.
fn full(row: &Row) -> String {
    let Some(rings) = &row.rings else { return NONE.to_owned() };
    let RingUsage { held_bytes, fullest_held_bytes: held, fullest_room_bytes: room, .. } = *rings;
    let of = |parts: u64| (held * parts).checked_div(room).unwrap_or(0).min(parts);
    let marks = of(GAUGE) as usize;
    let gauge = format!("{}{}", "#".repeat(marks), ".".repeat(GAUGE as usize - marks));
    format!("[{gauge}] {:>3}% {:>9}", of(100), bytes(held_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::usage::Lost;

    #[test]
    fn what_is_not_known_is_no_number() {
        let mut rings = RingUsage::default();
        rings.add(1024, 4096);
        rings.add(3072, 4096);
        let lost = Lost { ring_full: 1200, nested: 3, ..Lost::default() };
        let row = Row {
            name: "c CPU 0".into(),
            active: true,
            rings: Some(rings),
            events: 5,
            lost,
            lost_per_second: Some(2.5),
            ..Row::default()
        };
        assert_eq!(
            line(&row),
            "[#######...]  75%    4.0 KB           ?           5         2.5       1 203           ?           ?  \
             c CPU 0  lost: ring_full 1 200, nested 3"
        );
        let over = Row { name: "s".into(), overwrites: true, overwritten_bytes: Some(0), ..Row::default() };
        assert!(line(&over).starts_with("- ") && line(&over).ends_with("0 B  s  (overwrites)  (stopped)"));
    }
}
