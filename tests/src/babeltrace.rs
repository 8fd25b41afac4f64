//! babeltrace2, as a judge of traces.

use std::path::Path;

use crate::harness::{Ended, program, run};

/// What it prints of a trace, and how many lost events it tells of. Other warnings fail.
#[track_caller]
pub fn printed(trace: &Path, args: &[&str]) -> (String, u64) {
    let ended = run(program("/".as_ref(), "babeltrace2", args).arg(trace)).expect(0);
    let mut lost = 0;
    for warning in ended.err.lines() {
        let count =
            warning.strip_prefix("WARNING: Tracer discarded ").and_then(|rest| rest.split(' ').next());
        lost += count.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{warning}"));
    }
    (ended.out, lost)
}

/// The calls of a trace of `sys_enter` or of getppid's entries, each by its CPU and time. It is read without
/// a warning.
#[track_caller]
pub fn calls(trace: &Path) -> Vec<String> {
    let ended = calls_read(trace).expect(0);
    assert_eq!(ended.err, "", "{}", trace.display());
    calls_of(&ended)
}

/// The same of a trace that is being written; `None` while it cannot be read.
pub fn calls_by_now(trace: &Path) -> Option<Vec<String>> {
    let ended = calls_read(trace);
    (ended.code() == 0).then(|| calls_of(&ended))
}

#[track_caller]
fn calls_read(trace: &Path) -> Ended {
    run(program("/".as_ref(), "babeltrace2", ["--clock-cycles", "--no-delta"]).arg(trace))
}

fn calls_of(ended: &Ended) -> Vec<String> {
    let is_call = |line: &&str| line.contains(" sys_enter: ") || line.contains(" syscall_entry_getppid: ");
    ended.out.lines().filter(is_call).map(str::to_owned).collect()
}
