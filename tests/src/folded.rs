//! Folded stacks: a line for each, with how often it is there.

use std::collections::BTreeMap;

use crate::trace_cmd;

/// Stacks and how many events have them, from the lines of stock trace-cmd. The first frame of a user stack
/// is in the event's own line.
pub fn by_stock(report: &str, is_event: impl Fn(&trace_cmd::Line) -> bool) -> BTreeMap<String, u64> {
    #[derive(Default)]
    struct Waiting {
        comm: String,
        is_wanted: bool,
        kernel: Vec<String>,
        user: Vec<String>,
    }
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut count = |waiting: Waiting| {
        let frames: Vec<_> = waiting.user.into_iter().rev().chain(waiting.kernel.into_iter().rev()).collect();
        let frames = without_tracing(&frames);
        if waiting.is_wanted && !frames.is_empty() {
            *counts.entry(format!("{};{}", waiting.comm, frames.join(";"))).or_default() += 1;
        }
    };
    let mut by_cpu: BTreeMap<u32, Waiting> = BTreeMap::new();
    let mut last = (0, String::new());
    for line in report.lines() {
        if let Some(found) = trace_cmd::Line::parse(line) {
            last = (found.cpu, found.event.clone());
            if !found.event.ends_with("_stack") {
                let is_wanted = is_event(&found);
                let comm = found.comm.replace(' ', "_");
                let waiting = Waiting { comm, is_wanted, ..Waiting::default() };
                if let Some(before) = by_cpu.insert(found.cpu, waiting) {
                    count(before);
                }
            }
        }
        if let Some((_, frame)) = line.split_once("=> ").filter(|_| last.1.ends_with("_stack")) {
            let name = frame.split([' ', '+']).next().unwrap();
            if let Some(waiting) = by_cpu.get_mut(&last.0).filter(|_| name != "-") {
                let frames = if last.1 == "kernel_stack" { &mut waiting.kernel } else { &mut waiting.user };
                frames.push(name.to_owned());
            }
        }
    }
    by_cpu.into_values().for_each(count);
    counts
}

/// Functions of the kernel that record an event: a stack that is taken there ends with them.
const TRACING: [&str; 4] = ["__traceiter_", "__bpf_trace_", "trace_event_", "perf_trace_"];

/// The frames of a stack, the innermost last, without those that recorded its event, unless it has no others.
pub fn without_tracing<S: AsRef<str>>(frames: &[S]) -> &[S] {
    let is_tracing = |frame: &S| TRACING.iter().any(|start| frame.as_ref().starts_with(start));
    let count = frames.iter().rposition(|frame| !is_tracing(frame)).map_or(frames.len(), |last| last + 1);
    &frames[..count]
}

/// Lines of folded stacks.
pub fn read(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), count.parse().unwrap())
    };
    text.lines().map(line).collect()
}
