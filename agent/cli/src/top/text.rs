//! Tables as text, where there is no terminal to draw on.

use std::fmt::Write as _;

use super::{
    super::units::count,
    rates::{Row, Sort, Table, arranged},
};

/// A table for each view, with this many rows of each at most.
pub(super) fn text(table: &Table, rows: usize) -> String {
    let mut text = format!("{}\n", head(table));
    for (title, of, is_process) in
        [("EVENT", &table.events, false), ("PROCESS", &table.processes, true), ("CPU", &table.cpus, false)]
    {
        let arranged = arranged(of, if title == "CPU" { Sort::Name } else { Sort::Rate }, false, "");
        let pid = if is_process { format!("{:>8} ", "PID") } else { String::new() };
        let _ = writeln!(text, "\n{pid}{:>12} {:>14}  {title}", "EVENTS/S", "TOTAL");
        for row in arranged.iter().take(rows) {
            let _ = writeln!(text, "{}", line(row));
        }
        let more = arranged.len().saturating_sub(rows);
        if more != 0 {
            let _ = writeln!(text, "... {} more", count(more as u64));
        }
    }
    text
}

/// The line above the tables.
pub(super) fn head(table: &Table) -> String {
    let mut text = format!(
        "{:.1} s: {} events/s, {} events",
        table.elapsed_ns as f64 / 1e9,
        per_second(table.rate()),
        count(table.total)
    );
    if table.unnamed != 0 {
        let _ = write!(text, ", {} of no known process", count(table.unnamed));
    }
    if table.skipped != 0 {
        let _ = write!(text, ", {} NOT COUNTED (skipped by the kernel)", count(table.skipped));
    }
    text
}

fn line(row: &Row) -> String {
    let pid = row.pid.map_or_else(String::new, |pid| format!("{pid:>8} "));
    let event = row.event.as_ref().map_or_else(String::new, |event| format!("  ({event})"));
    format!("{pid}{:>12} {:>14}  {}{event}", per_second(row.rate), count(row.total), row.name)
}

/// A rate, with a digit behind the point where it is small.
pub(super) fn per_second(rate: f64) -> String {
    if rate != 0.0 && rate < 10.0 { format!("{rate:.1}") } else { count(rate.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_views_are_in_the_text() {
        let row = |name: &str, pid: Option<u32>| Row {
            name: name.to_owned(),
            pid,
            rate: 1500.4,
            count: 3001,
            total: 12_345,
            ..Row::default()
        };
        let table = Table {
            elapsed_ns: 2_500_000_000,
            interval_ns: 2_000_000_000,
            count: 3001,
            total: 12_345,
            unnamed: 7,
            skipped: 3,
            events: vec![row("sched:sched_switch", None)],
            processes: (0..5).map(|pid| row("sh", Some(pid))).collect(),
            cpus: vec![row("0", None)],
            ..Table::default()
        };
        let text = text(&table, 2);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "2.5 s: 1 501 events/s, 12 345 events, 7 of no known process, 3 NOT COUNTED (skipped by the kernel)"
        );
        assert!(lines.contains(&"       1 500         12 345  sched:sched_switch"), "{text}");
        assert!(lines.contains(&"       1        1 500         12 345  sh"), "{text}");
        assert!(lines.contains(&"... 3 more"), "{text}");
        assert_eq!(
            (per_second(0.25), per_second(0.0), per_second(9999.6)),
            ("0.2".into(), "0".into(), "10 000".into())
        );
    }
}
