//! Maps as metrics, in the text format of OpenMetrics 1.0, which Prometheus reads.
//!
//! | metric | of |
//! |---|---|
//! | `tracer_agent_map_events` (counter) | how many events each key has; of all functions but histograms |
//! | `tracer_agent_map_sum`, `_min`, `_max` (gauges) | what the function asks for |
//! | `tracer_agent_map_value` (histogram) | histograms |
//! | `tracer_agent_map_uncounted` (counter) | events that no key has, by `cause` |
//! | `tracer_agent_map_left_out` (gauge) | keys that are not told |
//! | `tracer_agent_map_seconds` (counter) | for how long the map has counted |
//!
//! Their labels are `map`, `session` or `trigger`, `user` in a daemon, `unit` where values have one, and what
//! keys are made of.
//! Prometheus cannot subtract, so an average is made of sum and count where it is looked at.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
};

use crate::counted::{Bucket, CountedMap, KeyPart, MapEntry, MapOwner, Number};

/// A value of an entry.
type Value = fn(&MapEntry) -> Option<Number>;

/// The maps as one document.
pub fn metrics(maps: &[CountedMap]) -> String {
    let mut text = String::new();
    let labels: Vec<Labels> = maps.iter().map(Labels::of).collect();
    let all = || maps.iter().zip(&labels);
    let is_histogram = |map: &CountedMap| map.function.is_histogram();
    family(&mut text, "events", "counter", "Events by key.", |out| {
        for (map, labels) in all().filter(|(map, _)| !is_histogram(map)) {
            map.entries.iter().for_each(|entry| out.line("_total", &labels.key(entry), entry.count));
        }
    });
    let gauges: [(&str, &str, Value); 3] = [
        ("sum", "Sum of the values of a key's events.", |entry| entry.sum),
        ("min", "Smallest value of a key's events.", |entry| entry.min),
        ("max", "Largest value of a key's events.", |entry| entry.max),
    ];
    for (name, help, value) in gauges {
        family(&mut text, name, "gauge", help, |out| {
            for (map, labels) in all().filter(|(map, _)| !is_histogram(map)) {
                for entry in &map.entries {
                    if let Some(value) = value(entry) {
                        out.line("", &labels.key(entry), value);
                    }
                }
            }
        });
    }
    family(&mut text, "value", "histogram", "Values of a key's events.", |out| {
        for (map, labels) in all().filter(|(map, _)| is_histogram(map)) {
            map.entries.iter().for_each(|entry| histogram(out, &labels.key(entry), entry));
        }
    });
    family(&mut text, "uncounted", "counter", "Events that no key has, by cause.", |out| {
        for (map, labels) in all() {
            for (cause, number) in causes(map) {
                out.line("_total", &format!("{},cause=\"{cause}\"", labels.fixed), number);
            }
        }
    });
    family(&mut text, "left_out", "gauge", "Keys that are not told.", |out| {
        for (map, labels) in all() {
            out.line("", &labels.fixed, map.more);
        }
    });
    family(&mut text, "seconds", "counter", "For how long the map has counted.", |out| {
        for (map, labels) in all() {
            let (seconds, rest) = (map.elapsed_ns / 1_000_000_000, map.elapsed_ns % 1_000_000_000);
            out.line("_total", &labels.fixed, format_args!("{seconds}.{rest:09}"));
        }
    });
    text.push_str("# EOF\n");
    text
}

/// The lines of a metric.
struct Lines<'t> {
    name: String,
    text: &'t mut String,
}

impl Lines<'_> {
    fn line(&mut self, suffix: &str, labels: &str, value: impl fmt::Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{}{suffix}{{{labels}}} {value}", self.name);
    }
}

/// A metric, if it has lines.
fn family(text: &mut String, name: &str, kind: &str, help: &str, write: impl FnOnce(&mut Lines<'_>)) {
    let name = format!("tracer_agent_map_{name}");
    let mut lines = String::new();
    write(&mut Lines { name: name.clone(), text: &mut lines });
    if !lines.is_empty() {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
    }
}

fn histogram(out: &mut Lines<'_>, labels: &str, entry: &MapEntry) {
    let mut sum = 0_u64;
    for Bucket { to, count, .. } in &entry.buckets {
        sum += count;
        // A bucket ends before its end; those of Prometheus have theirs.
        if let Some(Number(to)) = to {
            out.line("_bucket", &format!("{labels},le=\"{}.0\"", to - 1), sum);
        }
    }
    out.line("_bucket", &format!("{labels},le=\"+Inf\""), entry.count.max(sum));
    out.line("_count", labels, entry.count.max(sum));
    // Of values that can be below 0 there is none: a counter does not fall.
    let first = entry.buckets.first().and_then(|bucket| bucket.from);
    if let Some(sum) = entry.sum.filter(|_| first.is_some_and(|first| first.0 >= 0)) {
        out.line("_sum", labels, sum);
    }
}

fn causes(map: &CountedMap) -> impl Iterator<Item = (&'static str, u64)> {
    let causes = [
        ("overflow", Some(map.overflow)),
        ("unreadable", Some(map.unreadable)),
        ("unmatched", Some(map.unmatched)),
        ("restarted", Some(map.restarted)),
        ("forgotten", Some(map.forgotten)),
        ("filtered", Some(map.filtered)),
        ("own_threads", Some(map.own_threads)),
        ("rate_limited", Some(map.rate_limited)),
        ("skipped", map.skipped),
    ];
    causes.into_iter().filter_map(|(cause, number)| Some((cause, number?)))
}

/// The labels of a map's lines.
struct Labels {
    /// Those of all of them.
    fixed: String,
    /// The names of what keys are made of.
    by: Vec<String>,
}

impl Labels {
    fn of(map: &CountedMap) -> Self {
        let mut fixed = format!("map=\"{}\"", escaped(&map.map));
        match &map.of {
            Some(MapOwner::Session(name)) => drop(write!(fixed, ",session=\"{}\"", escaped(name))),
            Some(MapOwner::Trigger(name)) => drop(write!(fixed, ",trigger=\"{}\"", escaped(name))),
            None => {}
        }
        if let Some(uid) = map.uid {
            let _ = write!(fixed, ",user=\"{uid}\"");
        }
        if let Some(unit) = &map.unit {
            let _ = write!(fixed, ",unit=\"{}\"", escaped(unit));
        }
        let mut taken: BTreeSet<String> =
            ["map", "session", "trigger", "user", "unit", "cause", "le"].map(str::to_owned).into();
        let by = map.by.iter().map(|part| label_of(part, &mut taken)).collect();
        Self { fixed, by }
    }

    /// Those of a key.
    fn key(&self, entry: &MapEntry) -> String {
        let mut labels = self.fixed.clone();
        for (name, part) in self.by.iter().zip(&entry.key) {
            let _ = match part {
                KeyPart::Number(number) => write!(labels, ",{name}=\"{number}\""),
                KeyPart::Text(text) => write!(labels, ",{name}=\"{}\"", escaped(text)),
            };
        }
        labels
    }
}

/// The name of a label for a part of keys: its letters, digits and underscores.
fn label_of(part: &str, taken: &mut BTreeSet<String>) -> String {
    let mut name: String =
        part.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '_' }).collect();
    name = name.trim_matches('_').to_owned();
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        name.insert_str(0, "key_");
    }
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// A label's value (OpenMetrics 1.0, "Escaping").
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_names_that_prometheus_takes() {
        let mut taken = BTreeSet::from(["map".to_owned()]);
        let names = ["next_comm", "$comm", "comm", "flags & 0x40", "map", "4 + x", "$"];
        let names: Vec<String> = names.iter().map(|name| label_of(name, &mut taken)).collect();
        assert_eq!(names, ["next_comm", "comm", "comm_", "flags___0x40", "map_", "key_4___x", "key_"]);
    }

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
    }
}
