//! `tracer-agent analyze`: its answers beside those of other tools on the same events, against programs whose
//! answers are known, and of recordings that do not know everything. Those that only read recordings are
//! [beside others](crate::beside).

mod chosen;
pub(crate) mod hostile;
mod lttng;
mod offcpu;
mod perf;
mod schema;
mod scoped;
pub(crate) mod stock;
mod unknown;

use std::path::{Path, PathBuf};

/// A recording of stock trace-cmd.
pub(crate) fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(name)
}

/// Each analysis, with the arguments that it needs, of which two depend on the recording.
pub(crate) const fn each_analysis(
    of_cpu: &'static [&'static str],
    of_stacks: &'static [&'static str],
) -> [(&'static str, &'static [&'static str]); 10] {
    [
        ("sched", &[]),
        ("offcpu", &[]),
        ("cpu", of_cpu),
        ("stacks", of_stacks),
        ("syscalls", &[]),
        ("io", &[]),
        ("irq", &[]),
        ("locks", &[]),
        ("memory", &[]),
        ("summary", &[]),
    ]
}
