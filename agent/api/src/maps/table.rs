//! Maps as tables, and as bars.

use std::fmt::Write as _;

use crate::counted::{Bucket, CountedMap, KeyPart, MapEntry, MapFunction, MapOwner, Number};
use stdx::terminal;

/// Columns of the longest bar, as bpftrace has them.
const BAR: u64 = 52;

/// A map for people.
pub fn table(map: &CountedMap) -> String {
    let mut text = terminal::name(&map.map);
    if let Some(of) = &map.of {
        let (kind, name) = match of {
            MapOwner::Session(name) => ("session", name),
            MapOwner::Trigger(name) => ("trigger", name),
        };
        let _ = write!(text, " ({kind} {}", terminal::name(name));
        text +=
            &map.uid.filter(|uid| *uid != 0).map_or_else(|| ")".to_owned(), |uid| format!(" of user {uid})"));
    }
    text.push('\n');
    if let Some(question) = &map.question {
        let _ = writeln!(text, "  {}", terminal::name(question));
    }
    if map.function.is_histogram() {
        for entry in &map.entries {
            histogram(&mut text, map, entry);
        }
    } else {
        numbers(&mut text, map);
    }
    if map.more != 0 {
        let _ = writeln!(text, "{} more keys (--keys)", map.more);
    }
    for (number, what) in losses(map) {
        if number != 0 {
            let _ = writeln!(text, "{what}: {number}");
        }
    }
    text.push('\n');
    text
}

fn losses(map: &CountedMap) -> [(u64, &'static str); 7] {
    [
        (map.overflow, "events with keys beyond the limit (--max-keys)"),
        (map.unreadable, "events with a key or value that could not be read"),
        (map.unmatched, "second events without a first one"),
        (map.restarted, "first events that were followed by another first event with the same key"),
        (map.forgotten, "first events that were forgotten, as too many were pending or there was a pause"),
        (map.open, "first events without a second one so far"),
        (map.rate_limited, "events beyond the rate"),
    ]
}

/// A key's parts as text. A thread may give itself any name.
fn shown(key: &[KeyPart]) -> impl Iterator<Item = String> {
    key.iter().map(|part| match part {
        KeyPart::Number(number) => number.to_string(),
        KeyPart::Text(text) => terminal::name(text),
    })
}

/// A number, or a time for people.
fn number(map: &CountedMap, Number(number): Number) -> String {
    if map.unit.is_none() {
        return number.to_string();
    }
    match u64::try_from(number).unwrap_or(u64::MAX) {
        ns @ 0..1_000 => format!("{ns} ns"),
        ns @ 1_000..1_000_000 => format!("{:.3} us", ns as f64 / 1e3),
        ns @ 1_000_000..1_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        ns => format!("{:.3} s", ns as f64 / 1e9),
    }
}

/// The columns of a function.
fn heads(function: MapFunction) -> &'static [&'static str] {
    match function {
        MapFunction::Count => &["count"],
        MapFunction::Sum => &["count", "sum"],
        MapFunction::Min => &["count", "min"],
        MapFunction::Max => &["count", "max"],
        MapFunction::Avg => &["count", "avg"],
        MapFunction::Stats => &["count", "sum", "min", "avg", "max"],
        MapFunction::Hist | MapFunction::Lhist => &["count", "sum", "avg"],
    }
}

fn value(map: &CountedMap, entry: &MapEntry, head: &str) -> String {
    let of = match head {
        "sum" => entry.sum,
        "min" => entry.min,
        "max" => entry.max,
        "avg" => entry.avg,
        _ => return entry.count.to_string(),
    };
    of.map(|of| number(map, of)).unwrap_or_default()
}

fn numbers(text: &mut String, map: &CountedMap) {
    let heads = heads(map.function);
    let mut rows: Vec<Vec<String>> = vec![
        map.by
            .iter()
            .map(|name| terminal::name(name))
            .chain(heads.iter().map(|&head| head.to_owned()))
            .collect(),
    ];
    for entry in &map.entries {
        let values = heads.iter().map(|head| value(map, entry, head));
        rows.push(shown(&entry.key).chain(values).collect());
    }
    let left = map.by.len();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column < left {
                write!(line, "  {cell:<width$}")
            } else {
                write!(line, "  {cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn histogram(text: &mut String, map: &CountedMap, entry: &MapEntry) {
    let title: Vec<String> = map
        .by
        .iter()
        .zip(shown(&entry.key))
        .map(|(name, value)| format!("{}={value}", terminal::name(name)))
        .collect();
    let values = heads(map.function).iter().map(|head| format!("{head} {}", value(map, entry, head)));
    let parts: Vec<String> = title.into_iter().chain(values).collect();
    let _ = writeln!(text, "\n  {}", parts.join("  "));
    let most = entry.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    for Bucket { from, to, count } in &entry.buckets {
        let open = from.map_or_else(|| "(...".to_owned(), |from| format!("[{}", number(map, from)));
        let close = to.map_or_else(|| "...)".to_owned(), |to| format!("{})", number(map, to)));
        let width = (u128::from(*count) * u128::from(BAR) / u128::from(most)) as usize;
        let _ = writeln!(
            text,
            "  {:<24} {count:>10} |{:<width_of_bar$}|",
            format!("{open}, {close}"),
            "@".repeat(width),
            width_of_bar = BAR as usize
        );
    }
}
