//! Events of stock trace-cmd's text.

use std::path::Path;

use integration_tests::trace_cmd::{self, Line};

/// Where stock's text says that a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Context {
    Thread,
    Softirq,
    Irq,
}

/// An event of stock's text with raw fields, and where it was made.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) line: Line,
    context: Context,
}

impl Raw {
    pub(crate) fn number(&self, name: &str) -> u64 {
        let fields = format!(" {}", self.line.fields);
        let (_, rest) =
            fields.rsplit_once(&format!(" {name}=")).unwrap_or_else(|| panic!("{name}: {self:?}"));
        let text = rest.split_whitespace().next().unwrap_or_default();
        if text == "(nil)" {
            return 0;
        }
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse::<i64>().ok().map(i64::cast_unsigned).or_else(|| text.parse().ok()),
        };
        number.unwrap_or_else(|| panic!("{name}={text}: {self:?}"))
    }

    /// The thread, if it was one that did this.
    pub(crate) fn thread(&self) -> Option<u32> {
        (self.context == Context::Thread).then_some(self.line.pid)
    }
}

/// Stock's raw text of a file, with where records were made, which stands in a text of its own.
pub(crate) fn raw(file: &Path) -> Vec<Raw> {
    let lines = trace_cmd::lines(&trace_cmd::report(file, &["-R", "-t"]));
    let latency = trace_cmd::report(file, &["-l", "-t"]);
    let contexts: Vec<Context> = latency.lines().filter_map(context).collect();
    assert_eq!(lines.len(), contexts.len());
    lines.into_iter().zip(contexts).map(|(line, context)| Raw { line, context }).collect()
}

/// The context of a line of `report -l`: `comm-pid CPUdNhP TIME: event:`, in which `h` is the one that
/// counts.
pub(crate) fn context(line: &str) -> Option<Context> {
    let (time, _) = line.match_indices(": ").find(|(at, _)| {
        let stamp = line[..*at].rsplit(' ').next().unwrap_or_default();
        stamp.split_once('.').is_some_and(|(seconds, fraction)| {
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits(seconds) && digits(fraction)
        })
    })?;
    let flags = line[..time].split_whitespace().rev().nth(1)?;
    let flags = flags.trim_start_matches(|c: char| c.is_ascii_digit());
    Some(match flags.chars().nth(2)? {
        's' => Context::Softirq,
        '.' => Context::Thread,
        _ => Context::Irq,
    })
}
