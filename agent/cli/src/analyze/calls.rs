//! `analyze syscalls`, as text.

use super::table::{Side::Left, Side::Right, TIMES, Table, no_room, perhaps, perhaps_duration, times};
use crate::units::count;
use analysis::answers::{Call, CallError, CallsAnswer, Covered};

/// Most errors that are named of a call.
const ERRORS: usize = 3;

/// Tables of calls and of threads.
pub(super) fn text(answer: &CallsAnswer, _: &Covered, limit: usize) -> String {
    let mut text = no_room(answer.left_out, "a thread or a call");
    let rest =
        [("OFF CPU", Right), ("FAILED", Right), ("OPEN", Right), ("ERRORS", Left), ("UNMATCHED", Left)];
    let mut calls = Table::new(
        "System calls, by the time that they took; OPEN: without an end; UNMATCHED: without a begin",
        &[&[("CALL", Left)], &TIMES, &rest],
    );
    for call in &answer.calls {
        let [failed, open] = [call.failed, call.unfinished].map(|of| perhaps(of, count));
        let counts =
            [perhaps_duration(call.off_cpu_ns), failed, open, errors(&call.errors), without_entry(call)];
        calls.row(&[&[name(call)], &times(call.times), &counts]);
    }
    text += &calls.text(limit);
    let heads = [
        ("THREAD", Left),
        ("TID", Right),
        ("CALLS", Right),
        ("TOTAL", Right),
        ("OFF CPU", Right),
        ("FAILED", Right),
        ("MOSTLY", Left),
    ];
    let mut threads = Table::new("Threads, by the time that they were in system calls", &[&heads]);
    threads.leave_out(answer.threads.len().saturating_sub(limit));
    for thread in answer.threads.iter().take(limit) {
        threads.row(&[&[
            thread.comm.clone(),
            thread.tid.to_string(),
            perhaps(thread.count, count),
            perhaps_duration(thread.total_ns),
            perhaps_duration(thread.off_cpu_ns),
            perhaps(thread.failed, count),
            thread.most.clone().unwrap_or_default(),
        ]]);
    }
    text + &threads.text(limit)
}

/// The name of a system call, or else its number.
pub(super) fn call_text(name: Option<&str>, number: Option<i64>) -> String {
    match (name, number) {
        (Some(name), _) => name.to_owned(),
        (None, Some(number)) => format!("call {number}"),
        (None, None) => "unknown call".to_owned(),
    }
}

fn name(call: &Call) -> String {
    call_text(call.name.as_deref(), call.number)
}

/// The exits of a call that have no entry, and their errors.
fn without_entry(call: &Call) -> String {
    match (call.unmatched, errors(&call.unmatched_errors)) {
        (Some(0), _) => String::new(),
        (exits, errors) if errors.is_empty() => perhaps(exits, count),
        (exits, errors) => format!("{}: {errors}", perhaps(exits, count)),
    }
}

/// The most frequent errors.
fn errors(errors: &[CallError]) -> String {
    let named = errors.iter().take(ERRORS).map(|error| {
        let name = error.name.map_or_else(|| error.errno.to_string(), str::to_owned);
        format!("{name} {}", count(error.count))
    });
    let mut text = named.collect::<Vec<_>>().join(", ");
    if errors.len() > ERRORS {
        text += ", ...";
    }
    text
}
