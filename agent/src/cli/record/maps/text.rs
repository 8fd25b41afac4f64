//! Maps as tables and bars, and as JSON.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Map, Value, json};

use super::super::super::{CliError, units::count};
use crate::{
    capture::{Entry, KeyValue, MapContents, MapOptions, Numbers},
    spec::FunctionSpec,
    terminal,
};

/// Columns of the longest bar, as bpftrace has them.
const BAR: u64 = 52;

/// The entries of a map, the largest first.
fn sorted<'c>(options: &MapOptions, contents: &'c MapContents) -> Vec<&'c Entry> {
    let rank = |numbers: &Numbers| match options.spec.function {
        FunctionSpec::Sum | FunctionSpec::Stats => numbers.sum,
        FunctionSpec::Min => numbers.least,
        FunctionSpec::Max => numbers.most,
        FunctionSpec::Avg => average(numbers),
        FunctionSpec::Count | FunctionSpec::Hist | FunctionSpec::Lhist { .. } => numbers.count.into(),
    };
    let mut entries: Vec<&Entry> = contents.entries.iter().collect();
    entries.sort_by(|one, other| {
        rank(&other.numbers).cmp(&rank(&one.numbers)).then_with(|| one.key.cmp(&other.key))
    });
    entries
}

fn average(numbers: &Numbers) -> i128 {
    numbers.sum / i128::from(numbers.count.max(1))
}

/// The map for people.
pub(super) fn table(options: &MapOptions, contents: &MapContents) -> String {
    let mut text = format!("{}\n", terminal::name(&options.spec.name));
    let entries = sorted(options, contents);
    if options.spec.function.is_histogram() {
        for entry in &entries {
            histogram(&mut text, options, entry);
        }
    } else {
        numbers(&mut text, options, &entries);
    }
    for (number, what) in losses(contents) {
        if number != 0 {
            let _ = writeln!(text, "{what}: {}", count(number));
        }
    }
    text.push('\n');
    text
}

fn losses(contents: &MapContents) -> [(u64, &'static str); 7] {
    let losses = contents.losses;
    [
        (losses.overflow, "events with keys beyond the limit (--max-keys)"),
        (losses.unreadable, "events with a key or value that could not be read"),
        (losses.unmatched, "second events without a first one"),
        (losses.restarted, "first events that were followed by another first event with the same key"),
        (losses.forgotten, "first events that were forgotten, as too many were pending"),
        (contents.open, "first events without a second one so far"),
        (losses.rate_limited, "events beyond the rate"),
    ]
}

/// A key's parts as text. A thread may give itself any name.
fn shown(key: &[KeyValue]) -> impl Iterator<Item = String> {
    key.iter().map(|part| match part {
        KeyValue::Number(number) => number.to_string(),
        KeyValue::Text(text) => terminal::name(&String::from_utf8_lossy(text)),
    })
}

/// A number, or a time for people.
fn number(options: &MapOptions, number: i128) -> String {
    if options.spec.from.is_none() {
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
fn columns(options: &MapOptions, numbers: &Numbers) -> Vec<(&'static str, String)> {
    let shown = |value| number(options, value);
    let (sum, average) = (|| shown(numbers.sum), || shown(average(numbers)));
    let (least, most) = (|| shown(numbers.least), || shown(numbers.most));
    let count = ("count", numbers.count.to_string());
    match options.spec.function {
        FunctionSpec::Count => vec![count],
        FunctionSpec::Sum => vec![count, ("sum", sum())],
        FunctionSpec::Min => vec![count, ("min", least())],
        FunctionSpec::Max => vec![count, ("max", most())],
        FunctionSpec::Avg => vec![count, ("avg", average())],
        FunctionSpec::Stats => {
            vec![count, ("sum", sum()), ("min", least()), ("avg", average()), ("max", most())]
        }
        FunctionSpec::Hist | FunctionSpec::Lhist { .. } => {
            vec![count, ("sum", sum()), ("avg", average())]
        }
    }
}

fn numbers(text: &mut String, options: &MapOptions, entries: &[&Entry]) {
    let heads = columns(options, &Numbers::default()).into_iter().map(|(name, _)| name.to_owned());
    let mut rows: Vec<Vec<String>> = vec![options.spec.by.iter().cloned().chain(heads).collect()];
    for entry in entries {
        let values = columns(options, &entry.numbers).into_iter().map(|(_, value)| value);
        rows.push(shown(&entry.key).chain(values).collect());
    }
    let left = options.spec.by.len();
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

/// The ends of a histogram's bucket: the first number of it, and the first after it.
fn ends(function: FunctionSpec, bucket: usize) -> (Option<i128>, Option<i128>) {
    match function {
        FunctionSpec::Lhist { min, max, step } => {
            let last = (i128::from(max) - i128::from(min)).unsigned_abs().div_ceil(u128::from(step.max(1)));
            let at = |bucket: usize| i128::from(min) + bucket as i128 * i128::from(step);
            match bucket {
                0 => (None, Some(at(0))),
                _ if bucket as u128 > last => (Some(at(bucket - 1)), None),
                _ => (Some(at(bucket - 1)), Some(at(bucket))),
            }
        }
        _ => match bucket {
            0 => (None, Some(0)),
            1 => (Some(0), Some(1)),
            _ => (Some(1 << (bucket - 2)), Some(1 << (bucket - 1))),
        },
    }
}

fn histogram(text: &mut String, options: &MapOptions, entry: &Entry) {
    let title: Vec<String> = options
        .spec
        .by
        .iter()
        .zip(shown(&entry.key))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let values = columns(options, &entry.numbers).into_iter().map(|(name, value)| format!("{name} {value}"));
    let parts: Vec<String> = title.into_iter().chain(values).collect();
    let _ = writeln!(text, "\n  {}", parts.join("  "));
    let used = |(_, count): &(usize, &u64)| **count != 0;
    let first = entry.buckets.iter().enumerate().find(used).map_or(0, |(at, _)| at);
    let last = entry.buckets.iter().enumerate().rfind(used).map_or(0, |(at, _)| at);
    let most = entry.buckets.iter().max().copied().unwrap_or(0).max(1);
    for (bucket, &number_of) in entry.buckets.iter().enumerate().take(last + 1).skip(first) {
        let (from, to) = ends(options.spec.function, bucket);
        let open = from.map_or_else(|| "(...".to_owned(), |from| format!("[{}", number(options, from)));
        let close = to.map_or_else(|| "...)".to_owned(), |to| format!("{})", number(options, to)));
        let width = (u128::from(number_of) * u128::from(BAR) / u128::from(most)) as usize;
        let _ = writeln!(
            text,
            "  {:<24} {number_of:>10} |{:<width_of_bar$}|",
            format!("{open}, {close}"),
            "@".repeat(width),
            width_of_bar = BAR as usize
        );
    }
}

/// The map as one line of JSON.
pub(super) fn json(
    options: &MapOptions,
    contents: &MapContents,
    elapsed: Duration,
    is_last: bool,
) -> Result<String, CliError> {
    let spec = &options.spec;
    let losses = contents.losses;
    let entries: Vec<Value> =
        sorted(options, contents).into_iter().map(|entry| of_entry(options, entry)).collect();
    let name = match spec.function {
        FunctionSpec::Count => "count",
        FunctionSpec::Sum => "sum",
        FunctionSpec::Min => "min",
        FunctionSpec::Max => "max",
        FunctionSpec::Avg => "avg",
        FunctionSpec::Stats => "stats",
        FunctionSpec::Hist => "hist",
        FunctionSpec::Lhist { .. } => "lhist",
    };
    let value = json!({
        "map": spec.name,
        "function": name,
        "unit": spec.from.as_ref().map(|_| "ns"),
        "by": spec.by,
        "elapsed_ns": u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        "last": is_last,
        "entries": entries,
        "overflow": losses.overflow,
        "unreadable": losses.unreadable,
        "unmatched": losses.unmatched,
        "restarted": losses.restarted,
        "forgotten": losses.forgotten,
        "open": contents.open,
        "filtered": losses.filtered,
        "rate_limited": losses.rate_limited,
        "skipped": losses.skipped,
    });
    let line = serde_json::to_string(&value)
        .map_err(|error| CliError::Failed(format!("cannot write the maps as JSON: {error}")))?;
    Ok(line + "\n")
}

/// A number as JSON, which has those of 64 bits.
fn of_number(number: i128) -> Value {
    match (i64::try_from(number), u64::try_from(number)) {
        (Ok(number), _) => number.into(),
        (_, Ok(number)) => number.into(),
        _ => number.to_string().into(),
    }
}

fn of_entry(options: &MapOptions, entry: &Entry) -> Value {
    let Numbers { count, sum, least, most } = entry.numbers;
    let key = entry.key.iter().map(|part| match part {
        KeyValue::Number(number) => of_number(*number),
        KeyValue::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
    });
    let mut value = Map::new();
    value.insert("key".to_owned(), key.collect());
    value.insert("count".to_owned(), count.into());
    let function = options.spec.function;
    let mut add = |name: &str, number| value.insert(name.to_owned(), of_number(number));
    if !matches!(function, FunctionSpec::Count | FunctionSpec::Min | FunctionSpec::Max) {
        add("sum", sum);
        add("avg", average(&entry.numbers));
    }
    if matches!(function, FunctionSpec::Min | FunctionSpec::Stats) {
        add("min", least);
    }
    if matches!(function, FunctionSpec::Max | FunctionSpec::Stats) {
        add("max", most);
    }
    if function.is_histogram() {
        let bucket = |(at, &count): (usize, &u64)| {
            let (from, to) = ends(function, at);
            (count != 0)
                .then(|| json!({ "from": from.map(of_number), "to": to.map(of_number), "count": count }))
        };
        let buckets: Vec<Value> = entry.buckets.iter().enumerate().filter_map(bucket).collect();
        value.insert("buckets".to_owned(), buckets.into());
    }
    value.into()
}
